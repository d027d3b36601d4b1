//! Showing a finding in its text.

use crate::diag::{Diagnostic, Place};
use std::fmt::Write;

/// Longest part of a line that is shown, in characters.
const WIDTH: usize = 120;

/// Shows a finding with its file, line and column, the line itself and a mark under the place, as
/// rustc does.
///
/// A finding without a place in the text (see [`super::Source::locate`]) is shown with the file
/// only. If the line is long, the part around the place is shown. Columns count characters from 1.
pub fn render(d: &Diagnostic, text: &str, file: &str) -> String {
    let mut out = format!("{}[{}]: {}\n", d.severity.name(), d.code, d.message);
    let gutter = match &d.place {
        Place::Text(range) => excerpt(&mut out, text, file, range.start, range.end),
        Place::Whole => {
            let _ = writeln!(out, " --> {file}");
            1
        }
        place => {
            let _ = writeln!(out, " --> {file}: {place}");
            1
        }
    };
    if let Some(help) = &d.help {
        let _ = writeln!(out, "{:gutter$} = help: {help}", "");
    }
    out
}

/// Line and column of a byte of a text, both from 1; columns count characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let at = boundary(text, at);
    let from = text[..at].rfind('\n').map_or(0, |i| i + 1);
    (text[..from].bytes().filter(|b| *b == b'\n').count() + 1, text[from..at].chars().count() + 1)
}

/// Appends the place and the marked line; returns the width of the line number.
fn excerpt(out: &mut String, text: &str, file: &str, start: usize, end: usize) -> usize {
    let start = boundary(text, start);
    let from = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let to = text[start..].find('\n').map_or(text.len(), |i| start + i);
    let end = boundary(text, end).clamp(start, to.max(start));
    let (number, column) = line_and_column(text, start);
    let before = column - 1;
    let marked = text[start..end].chars().count();
    // Blanks and control characters count as one column each, as in the mark's line.
    let line = text[from..to].trim_end_matches('\r').chars().map(|c| if c.is_control() { ' ' } else { c });
    let skip = if before + marked.min(WIDTH / 2) > WIDTH { before - WIDTH / 3 } else { 0 };
    let shown: String = line.clone().skip(skip).take(WIDTH).collect();
    let more = line.clone().nth(skip + WIDTH).is_some();
    let (head, tail) = (if skip > 0 { "…" } else { "" }, if more { "…" } else { "" });
    let column = before - skip + head.chars().count();
    let carets = marked.clamp(1, WIDTH.saturating_sub(before - skip).max(1));
    let gutter = number.to_string().len();
    let _ = writeln!(out, "{:gutter$}--> {file}:{number}:{}", "", before + 1);
    let _ = writeln!(out, "{:gutter$} |", "");
    let _ = writeln!(out, "{number} | {}", format!("{head}{shown}{tail}").trim_end());
    let _ = writeln!(out, "{:gutter$} | {:column$}{}", "", "", "^".repeat(carets));
    gutter
}

fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, range: std::ops::Range<usize>) -> String {
        render(&Diagnostic::error("code", Place::Text(range), "message"), text, "x.lir")
    }

    #[test]
    fn columns_count_characters_and_tabs_as_one() {
        let text = "a\n\täö%x b\r\nc";
        let from = text.find("%x").expect("there");
        assert_eq!(at(text, from..from + 2), "error[code]: message\n --> x.lir:2:4\n  |\n2 |  äö%x b\n  |    ^^\n");
    }

    #[test]
    fn of_a_long_line_the_part_around_the_place_is_shown() {
        let text = format!("{}%x{}", "a ".repeat(5000), " b".repeat(5000));
        let shown = at(&text, 10_000..10_002);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() < WIDTH + 10), "{shown}");
        let mark = lines[4].find('^').expect("marked");
        assert_eq!(lines[3].chars().skip(mark).take(2).collect::<String>(), "%x", "{shown}");
        assert_eq!(lines[1], " --> x.lir:1:10001");
    }

    #[test]
    fn places_at_and_past_the_end_and_over_lines_are_shown() {
        for (text, range) in [("", 0..0), ("", 5..9), ("ab\n", 3..3), ("ab\ncd", 1..5), ("ä", 1..2)] {
            let shown = at(text, range);
            assert!(shown.contains('^') && shown.starts_with("error[code]: message\n"), "{shown}");
        }
    }

    #[test]
    fn other_places_are_named() {
        let d = Diagnostic::error("code", Place::Slot { slot: 3 }, "message").with_help("advice");
        assert_eq!(render(&d, "text", "x.lir"), "error[code]: message\n --> x.lir: slot 3\n  = help: advice\n");
    }
}
