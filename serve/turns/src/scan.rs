//! Marks and values at a place of a text that grows.

/// How a text begins with a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// With all of it, which ends here.
    Full(usize),
    /// As far as the text goes.
    Partial,
    /// Not at all.
    No,
}

/// Matches a mark at the beginning of a text. Blanks of a mark stand for any blanks or none, as do those before it;
/// blanks after it are not part of it. A word with a blank behind it is no beginning of a longer word.
pub(crate) fn mark(text: &str, mark: &str) -> Match {
    let whole = mark.ends_with(char::is_whitespace) && mark.trim_end().ends_with(char::is_alphanumeric);
    let mark = mark.trim();
    let mut rest = text.trim_start();
    if mark.is_empty() {
        return Match::Full(0);
    }
    // (Models write blanks between two brackets, too.)
    let words = mark.split_whitespace().flat_map(|word| word.split_inclusive(['>', ']']));
    for (i, word) in words.enumerate() {
        if i > 0 {
            rest = rest.trim_start();
        }
        match rest.strip_prefix(word) {
            Some(after) => rest = after,
            None if word.starts_with(rest) => return Match::Partial,
            None => return Match::No,
        }
    }
    match rest.chars().next() {
        None if whole => Match::Partial,
        Some(c) if whole && !c.is_whitespace() => Match::No,
        _ => Match::Full(text.len() - rest.len()),
    }
}

/// Brackets and quotes of a notation for values.
#[derive(Clone, Debug)]
pub(crate) struct Brackets {
    quotes: Vec<String>,
    escapes: bool,
    /// Bytes that were looked at.
    at: usize,
    depth: usize,
    quote: Option<usize>,
}

impl Brackets {
    /// JSON.
    pub(crate) fn json() -> Brackets {
        Brackets::new(&["\""], true)
    }

    /// Python's literals.
    pub(crate) fn python() -> Brackets {
        Brackets::new(&["\"", "'"], true)
    }

    /// Quotes of its own.
    pub(crate) fn new(quotes: &[&str], escapes: bool) -> Brackets {
        let quotes = quotes.iter().filter(|q| !q.is_empty()).map(|q| (*q).to_owned()).collect();
        Brackets { quotes, escapes, at: 0, depth: 0, quote: None }
    }

    /// The end of the value that the text begins with, which opens a bracket; `None`: the text ends before. Later calls
    /// go on where the last one ended, and have the same text with more behind it.
    pub(crate) fn end(&mut self, text: &str) -> Option<usize> {
        while let Some(rest) = text.get(self.at..).filter(|rest| !rest.is_empty()) {
            // A part of a quote may be at the end.
            let longest = self.quotes.iter().map(String::len).max().unwrap_or(1);
            if rest.len() < longest && self.quotes.iter().any(|q| q.len() > rest.len() && q.starts_with(rest)) {
                return None;
            }
            let c = rest.chars().next()?;
            match self.quote {
                Some(open) => {
                    let quote = self.quotes.get(open).map_or("", String::as_str);
                    if self.escapes && c == '\\' {
                        let escaped = rest.chars().nth(1)?;
                        self.at += 1 + escaped.len_utf8();
                    } else if rest.starts_with(quote) {
                        self.quote = None;
                        self.at += quote.len();
                    } else {
                        self.at += c.len_utf8();
                    }
                }
                None => {
                    if let Some(open) = self.quotes.iter().position(|quote| rest.starts_with(quote.as_str())) {
                        self.quote = Some(open);
                        self.at += self.quotes.get(open).map_or(1, String::len);
                        continue;
                    }
                    self.at += c.len_utf8();
                    match c {
                        '{' | '[' | '(' => self.depth += 1,
                        '}' | ']' | ')' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_match_with_any_blanks() {
        assert_eq!(mark("\n<a>\n<b>x", "<a><b>"), Match::Full(8));
        assert_eq!(mark("\n<a>\n<b>x", "<a> <b>\n"), Match::Full(8));
        assert_eq!(mark("<a><b> x", "<a>\n<b>\n"), Match::Full(6));
        assert_eq!(mark(" <a", "<a>"), Match::Partial);
        assert_eq!(mark("", "<a>"), Match::Partial);
        assert_eq!(mark("<b", "<a>"), Match::No);
        assert_eq!(mark("x", " \n"), Match::Full(0));
        assert_eq!(mark("all\n", "all\n"), Match::Full(3));
        assert_eq!(mark("all", "all\n"), Match::Partial);
        assert_eq!(mark("allow", "all\n"), Match::No);
    }

    #[test]
    fn values_end_at_any_split() {
        for (text, brackets) in [
            (r#"{"a": "}\"", "b": [{}]}"#, Brackets::json()),
            ("(a='x)', b=[1, (2)])", Brackets::python()),
            ("{a:<|\"|>}<|\"|>,b:[1]}", Brackets::new(&["<|\"|>"], false)),
        ] {
            for cut in 0..=text.len() {
                let mut brackets = brackets.clone();
                let first = brackets.end(&text[..cut]);
                let end = first.or_else(|| brackets.end(&format!("{text} }}")));
                assert_eq!(end, Some(text.len()), "{text} at {cut}");
            }
        }
    }
}
