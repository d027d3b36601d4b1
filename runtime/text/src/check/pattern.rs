//! Regular expressions that cannot be matched in linear time must not repeat repetitions.

/// Bytes of an expression; the longest of released models has 700.
const LONGEST: usize = 1 << 14;

/// Checks an expression.
///
/// Expressions without look-around, back-references and the like are matched by automata in linear
/// time. The others backtrack, up to a million steps at each place, which `(a+)+` takes for a text
/// of twenty letters.
///
/// # Errors
/// The fault.
pub fn check(regex: &str) -> Result<(), String> {
    if regex.len() > LONGEST {
        return Err(format!("an expression of more than {LONGEST} bytes"));
    }
    let scan = scan(regex);
    if scan.backtracks && scan.nested {
        return Err(
            "repeats a repetition in an expression with look-around or back-references, which takes exponential time"
                .into(),
        );
    }
    Ok(())
}

/// Whether an expression may be matched by backtracking, in which a search can give up.
pub fn backtracks(regex: &str) -> bool {
    let scan = scan(regex);
    // A comment may begin what looks like a class.
    scan.backtracks
        || scan.special
        || scan.comments && regex.match_indices("(?").any(|(at, _)| !plain(&regex[at + 1..]))
}

/// Whether a group that begins so is no look-around, has no name, and the like.
fn plain(group: &str) -> bool {
    let next = group.as_bytes().get(1);
    !group.starts_with('?') || matches!(next, Some(b':' | b'i' | b'm' | b's' | b'x' | b'u' | b'U' | b'-'))
}

#[derive(Default)]
struct Scan {
    backtracks: bool,
    /// A group or an escape that automata may not know.
    special: bool,
    /// Parts of it may have comments.
    comments: bool,
    /// A group that contains an unbounded repetition is itself repeated without bound.
    nested: bool,
}

fn scan(regex: &str) -> Scan {
    let bytes = regex.as_bytes();
    let mut scan = Scan::default();
    // For every open group: whether it repeats something without bound.
    let mut groups = vec![false];
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let mut repeats = false;
        match byte {
            b'\\' => {
                let next = bytes.get(at).copied().unwrap_or(0);
                scan.backtracks |= matches!(next, b'1'..=b'9' | b'k' | b'K' | b'G');
                scan.special |= matches!(next, b'R' | b'X' | b'Z' | b'g');
                at += 1;
            }
            b'[' => {
                at = class_end(bytes, at);
            }
            b'(' => {
                let rest = &bytes[at..];
                scan.backtracks |=
                    [&b"?="[..], b"?!", b"?<=", b"?<!", b"?>", b"?("].iter().any(|p| rest.starts_with(p));
                let mut flags = rest.iter().take_while(|b| !matches!(b, b':' | b')'));
                scan.comments |= rest.starts_with(b"?") && flags.any(|b| *b == b'x');
                scan.special |= !regex.get(at..).is_some_and(plain);
                groups.push(false);
                continue;
            }
            b')' if groups.len() > 1 => repeats = groups.pop().unwrap_or_default(),
            _ => {}
        }
        let (unbounded, end, possessive) = quantifier(bytes, at);
        at = end;
        scan.backtracks |= possessive;
        scan.nested |= unbounded && repeats;
        if let Some(group) = groups.last_mut() {
            *group |= unbounded || repeats;
        }
    }
    scan
}

/// Behind a class that begins before `at`.
fn class_end(bytes: &[u8], mut at: usize) -> usize {
    let mut open = 1;
    // A bracket right behind the beginning is a character.
    if bytes.get(at) == Some(&b'^') {
        at += 1;
    }
    if bytes.get(at) == Some(&b']') {
        at += 1;
    }
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'[' => open += 1,
            b']' => open -= 1,
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    at
}

/// The quantifier at `at`: whether it has no bound, where it ends, whether it is possessive.
fn quantifier(bytes: &[u8], at: usize) -> (bool, usize, bool) {
    let (unbounded, end) = match bytes.get(at) {
        Some(b'*' | b'+') => (true, at + 1),
        Some(b'?') => (false, at + 1),
        Some(b'{') => match bytes[at..].iter().position(|b| *b == b'}') {
            Some(len) if bytes[at + 1..at + len].iter().all(|b| b.is_ascii_digit() || *b == b',') => {
                (bytes[at + len - 1] == b',', at + len + 1)
            }
            _ => return (false, at, false),
        },
        _ => return (false, at, false),
    };
    match bytes.get(end) {
        Some(b'?') => (unbounded, end + 1, false),
        Some(b'+') => (unbounded, end + 1, true),
        _ => (unbounded, end, false),
    }
}

#[cfg(test)]
mod tests {
    use super::{backtracks, check};

    /// Parentheses that are characters begin no group.
    #[test]
    fn literal_parentheses_are_matched_by_automata() {
        for regex in [r"\(?\d+\)?", r"[(?=]+", r"[^(?!)]", r"a\\R", r"(?i:a)\(?", "(?:a|b)+", r"[\](?]x"] {
            assert!(!backtracks(regex), "{regex}");
        }
        for regex in [
            r"\\(?=a)",
            r"[(](?!a)",
            r"(?<n>a)",
            r"(?P<n>a)",
            r"a++",
            r"\R",
            r"\X",
            r"(a)\1",
            r"(?>a)",
            r"x\Z",
            "(?x) a # [\n (?=b) # ]",
            r"\K",
        ] {
            assert!(backtracks(regex), "{regex}");
        }
        // Nor do they make repetitions repeat in time that grows without bound.
        assert_eq!(check(r"(\(?\d+\)?)+"), Ok(()));
        assert!(check(r"(\(?\d+\)?)+(?=a)").unwrap_err().contains("exponential"));
    }
}
