//! Common parts of texts, cut where marks begin and end.

/// Longest mark that a cut may move over, in bytes.
const LONGEST: usize = 80;

/// The length of the longest common beginning of two texts.
pub(crate) fn common_prefix(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(x, y)| x == y);
    same.map(|(x, _)| x.len_utf8()).sum()
}

/// The length of the longest common end of two texts.
pub(crate) fn common_suffix(a: &str, b: &str) -> usize {
    let same = a.chars().rev().zip(b.chars().rev()).take_while(|(x, y)| x == y);
    same.map(|(x, _)| x.len_utf8()).sum()
}

/// The place of the mark that is open at byte `at` of a text: `<` without `>`, or `[` of a name without `]`.
fn open_mark(text: &str, at: usize, square: bool) -> Option<usize> {
    let head = text.get(..at)?;
    let angle = head.rfind('<').filter(|from| !head.get(*from..).unwrap_or_default().contains('>'));
    let name = |from: &usize| {
        let rest = text.get(from + 1..).unwrap_or_default();
        rest.starts_with(|c: char| c == '/' || c.is_ascii_uppercase())
            && !head.get(*from..).unwrap_or_default().contains(']')
    };
    let bracket = if square { head.rfind('[').filter(name) } else { None };
    angle.max(bracket).filter(|from| at - from <= LONGEST)
}

/// Where a common beginning of `len` bytes ends: before a mark that it would cut.
pub(crate) fn back(text: &str, len: usize, square: bool) -> usize {
    if len == text.len() {
        return len;
    }
    open_mark(text, len, square).unwrap_or(len)
}

/// Where a common end that begins at byte `at` begins: after a mark that it would cut.
pub(crate) fn forward(text: &str, at: usize) -> usize {
    let Some(open) = open_mark(text, at, true) else { return at };
    let closes = if text.get(open..).unwrap_or_default().starts_with('[') { ']' } else { '>' };
    text.get(at..).and_then(|rest| rest.find(closes)).map_or(at, |end| at + end + 1)
}

/// The common end of two texts, from the beginning of a mark of both on.
pub(crate) fn shared_end<'a>(a: &'a str, b: &str) -> &'a str {
    let len = common_suffix(a, b);
    let moved = |text: &str| forward(text, text.len() - len) - (text.len() - len);
    a.get(a.len() - len + moved(a).max(moved(b))..).unwrap_or_default()
}

/// The common beginning of two texts, up to the end of a mark of both.
pub(crate) fn shared_start<'a>(a: &'a str, b: &str) -> &'a str {
    let len = common_prefix(a, b);
    let cut = back(a, len, true).min(back(b, len, true));
    a.get(..cut).unwrap_or_default()
}

/// The mark that a text ends with, but for blanks.
pub(crate) fn last_mark(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let open = match text.chars().next_back()? {
        '>' => text.rfind('<')?,
        ']' => text.rfind('[')?,
        _ => return None,
    };
    text.get(open..).filter(|mark| mark.len() > 2 && mark.len() <= LONGEST)
}

/// Whether a text has a mark that no plain text has: brackets, bars, backquotes.
pub(crate) fn is_marked(text: &str) -> bool {
    text.contains(['<', '[', '{', '`', '|']) || text.contains(">>>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_spare_marks() {
        assert_eq!(shared_start("\n</f><function=", "\n</f><|eom|>"), "\n</f>");
        assert_eq!(shared_start("</a>", "</a>"), "</a>");
        assert_eq!(shared_end("<|calls|><|call:begin|>", "<|call:end|><|call:begin|>"), "<|call:begin|>");
        assert_eq!(shared_end("[TOOL_CALLS][", ", "), "");
        assert_eq!(last_mark("x<assistant>\n<think>\n"), Some("<think>"));
        assert_eq!(last_mark("x"), None);
    }
}
