//! Names that come from a server or from the command line, before they become paths or addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Bytes that a part of a path may have on common file systems.
const LONGEST_PART: usize = 255;
/// Bytes of a whole name.
const LONGEST_NAME: usize = 1024;
/// Characters of a repository's name, as the hub limits them.
const LONGEST_ID: usize = 96;

/// Characters that stand for themselves in addresses.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The same, and the sign between folders.
const PLAIN_PATH: AsciiSet = PLAIN.remove(b'/');

/// Whether a file of a repository may have this name: relative, without steps upwards, and without characters that
/// would mean something to a file system, a terminal or Windows.
pub fn is_file(name: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '\\' | ':' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= LONGEST_PART;
    name.len() <= LONGEST_NAME && !name.contains(odd) && name.split('/').all(part)
}

/// Whether a text is the hash of a commit.
pub fn is_commit(text: &str) -> bool {
    is_hash(text, 40)
}

/// Whether a text has so many hexadecimal digits, in small letters.
pub fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text is a part of a repository's name: an owner, or a model.
pub fn is_word(text: &str) -> bool {
    let ours = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| matches!(c, '-' | '.');
    !text.is_empty()
        && text.chars().all(ours)
        && !text.starts_with(edge)
        && !text.ends_with(edge)
        && !text.contains("--")
        && !text.contains("..")
}

/// Whether a text is the name of a repository: `NAME`, or `OWNER/NAME`.
pub fn is_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    text.len() <= LONGEST_ID && parts.len() <= 2 && parts.into_iter().all(is_word)
}

/// Whether a text is a revision: a branch, a tag or a commit, such as `main` or `refs/pr/1`.
pub fn is_revision(text: &str) -> bool {
    let ours = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '*' | '[' | '~' | '^' | '\\' | ':' | '#' | '%');
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.len() <= LONGEST_PART;
    text.chars().all(ours) && !text.contains("..") && text.split('/').all(part)
}

/// A part of an address, in which the sign between folders stands for itself.
pub fn in_path(text: &str) -> String {
    utf8_percent_encode(text, &PLAIN_PATH).to_string()
}

/// A single part of an address.
pub fn in_part(text: &str) -> String {
    utf8_percent_encode(text, &PLAIN).to_string()
}

/// A text of a server for a terminal: its first line, without control characters, and not too long.
pub fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default();
    let mut out: String = line.chars().filter(|c| !c.is_control()).take(MOST).collect();
    if line.chars().count() > MOST {
        out.push_str("...");
    }
    out
}

/// The first of many names, for a message.
pub fn some(names: &[&str]) -> String {
    const MOST: usize = 12;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 if names.is_empty() => text.push_str("no files at all"),
        0 => {}
        more => text.push_str(&format!(" and {more} more")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_their_folder() {
        for good in ["config.json", "1_Pooling/config.json", "a b.gguf", "..a", ".gitattributes", "größe.bin"] {
            assert!(is_file(good), "{good}");
        }
        let long = "a".repeat(256);
        let many = vec!["a"; 600].join("/");
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            ".",
            "./a",
            "a\\b",
            "C:x",
            "a\nb",
            "a\u{1b}[2J",
            "a\0",
            "\u{202e}nosj.gifnoc",
            &long,
            &many,
        ] {
            assert!(!is_file(bad), "{bad:?}");
        }
    }

    #[test]
    fn repositories_and_revisions() {
        for good in ["gpt2", "meta-llama/Llama-3.2-1B", "a/b_c.d"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", "a/b/c", "/a", "a/", "-a/b", "a/b--c", "a/..", "a/b c", "a/b.", &"a".repeat(97)] {
            assert!(!is_id(bad), "{bad}");
        }
        for good in ["main", "refs/pr/1", "v1.0", "0123456789abcdef0123456789abcdef01234567"] {
            assert!(is_revision(good), "{good}");
        }
        for bad in ["", "..", "a/../b", "/main", "main/", "a b", "a?b", ".git", "a/.b", "a%2f"] {
            assert!(!is_revision(bad), "{bad}");
        }
    }

    #[test]
    fn texts_of_servers_are_one_plain_line() {
        assert_eq!(shown("  no\u{1b}[31m\u{7} way\nmore"), "no[31m way");
        assert_eq!(shown(&"x".repeat(300)).len(), 203);
        assert_eq!(in_path("a b/c#d"), "a%20b/c%23d");
        assert_eq!(in_part("refs/pr/1"), "refs%2Fpr%2F1");
    }
}
