//! Lines that a user types, or a program sends.

use crate::Error;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::fs::DirBuilder;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const PROMPT: &str = "> ";
/// Lines that a history keeps.
const MOST_LINES: usize = 1000;
/// Marks the beginning and the end of a text of several lines.
const BLOCK: &str = "\"\"\"";

/// Where lines come from.
pub struct Lines {
    origin: Origin,
    /// A message may have several lines.
    several: bool,
}

enum Origin {
    /// A terminal, with editing and a history, which may have a file.
    Terminal(Box<Editor<Typing, FileHistory>>, Option<PathBuf>),
    /// Anything else.
    Plain,
}

/// The line read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without white space around it.
    Text(String),
    /// A line that cannot be taken, and why.
    Refused(String),
    /// The user has thrown it away.
    Cleared,
    /// There are no more.
    End,
}

/// Help while a user types.
struct Typing {
    several: bool,
    /// Words that lines begin with.
    words: &'static [&'static str],
}

impl Helper for Typing {}
impl Highlighter for Typing {}

impl Hinter for Typing {
    type Hint = String;
}

impl Validator for Typing {
    fn validate(&self, ctx: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match self.several && is_open(ctx.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = line.get(..pos).filter(|begun| begun.starts_with('/'));
        let fits = |word: &&&str| begun.is_some_and(|begun| word.starts_with(begun));
        Ok((0, self.words.iter().filter(fits).map(|word| format!("{word} ")).collect()))
    }
}

impl Lines {
    /// Lines of standard input, each a message.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn new() -> Result<Lines, Error> {
        Lines::open(Typing { several: false, words: &[] }, None)
    }

    /// Messages of one or several lines from standard input: a line goes on after `\`, and lines between `"""` are one
    /// message. Lines typed before are in a file; `words` are offered as the beginnings of lines.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn several(history: Option<PathBuf>, words: &'static [&'static str]) -> Result<Lines, Error> {
        Lines::open(Typing { several: true, words }, history)
    }

    fn open(typing: Typing, history: Option<PathBuf>) -> Result<Lines, Error> {
        let several = typing.several;
        if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
            return Ok(Lines { origin: Origin::Plain, several });
        }
        let config = Config::builder().auto_add_history(true).max_history_size(MOST_LINES).map_err(|e| failed(&e))?;
        let config = config.build();
        let own = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, own).map_err(|e| failed(&e))?;
        editor.set_helper(Some(typing));
        let history = history.filter(|path| match begin(&mut editor, path) {
            Ok(()) => true,
            Err(why) => {
                eprintln!("warning: lines are not kept: {}: {why}", path.display());
                false
            }
        });
        Ok(Lines { origin: Origin::Terminal(Box::new(editor), history), several })
    }

    /// Whether a user edits them.
    pub fn edited(&self) -> bool {
        matches!(self.origin, Origin::Terminal(..))
    }

    /// The next one, of `most` bytes at most.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn next(&mut self, most: usize) -> Result<Line, Error> {
        match &mut self.origin {
            Origin::Plain => {
                eprint!("{PROMPT}");
                let _ = std::io::stderr().flush();
                let input = &mut std::io::stdin().lock();
                let line = if self.several { read_several(input, most) } else { read(input, most) };
                line.map_err(|e| Error::io("read", "standard input", e))
            }
            Origin::Terminal(editor, history) => Ok(match editor.readline(PROMPT) {
                Ok(line) if line.len() > most => Line::Refused(too_long(most)),
                Ok(line) => {
                    // (A full disk is no reason to end.)
                    let _ = history.as_ref().map(|path| editor.append_history(path));
                    Line::Text(if self.several { unfolded(&line) } else { line.trim().to_owned() })
                }
                Err(ReadlineError::Eof) => Line::End,
                Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Line::Cleared,
                Err(e) => return Err(failed(&e)),
            }),
        }
    }
}

/// Reads the lines typed before, and makes the folder of their file.
fn begin(editor: &mut Editor<Typing, FileHistory>, path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    // Only its user reads what was typed.
    let made = folder.map_or(Ok(()), |p| DirBuilder::new().recursive(true).mode(0o700).create(p));
    made.map_err(|e| e.to_string())?;
    match path.try_exists() {
        Ok(true) => editor.load_history(path).map_err(|e| e.to_string()),
        Ok(false) => editor.save_history(path).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    }
}

/// Whether a message goes on in the next line.
fn is_open(text: &str) -> bool {
    match text.trim_start().strip_prefix(BLOCK) {
        Some(rest) => !rest.trim_end().ends_with(BLOCK),
        None => text.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1,
    }
}

/// A message of one or several lines without its marks.
fn unfolded(text: &str) -> String {
    let block =
        |text: &str| text.strip_prefix(BLOCK)?.strip_suffix(BLOCK).map(|inner| inner.trim_matches('\n').to_owned());
    block(text.trim()).unwrap_or_else(|| text.replace("\\\n", "\n").trim().to_owned())
}

/// Reads a message of one or several lines, of no more than `most` bytes.
fn read_several(input: &mut impl BufRead, most: usize) -> std::io::Result<Line> {
    let mut text = String::new();
    loop {
        match read_raw(input, most.saturating_sub(text.len()))? {
            Line::Text(line) => text += &line,
            Line::End if text.is_empty() => return Ok(Line::End),
            Line::End if text.trim_start().starts_with(BLOCK) => {
                return Ok(Line::Refused(format!("the text that begins with {BLOCK} has no {BLOCK} at its end")));
            }
            Line::End => return Ok(Line::Text(unfolded(text.trim_end_matches(['\n', '\\'])))),
            refused => return Ok(refused),
        }
        if !is_open(&text) {
            return Ok(Line::Text(unfolded(&text)));
        }
        text.push('\n');
    }
}

fn failed(e: &ReadlineError) -> Error {
    Error::io("read", "the terminal", std::io::Error::other(e.to_string()))
}

fn too_long(most: usize) -> String {
    format!("the line has more than {most} bytes, more than the context can hold: send a shorter one")
}

/// Reads a line of no more than `most` bytes, without white space around it.
fn read(input: &mut impl BufRead, most: usize) -> std::io::Result<Line> {
    Ok(match read_raw(input, most)? {
        Line::Text(line) => Line::Text(line.trim().to_owned()),
        other => other,
    })
}

/// Reads a line of no more than `most` bytes, without its end; of a longer one nothing stays in memory.
fn read_raw(input: &mut impl BufRead, most: usize) -> std::io::Result<Line> {
    let mut line = vec![];
    // Its end is part of it.
    let n = input.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    if n == 0 {
        return Ok(Line::End);
    }
    if line.last() != Some(&b'\n') && n > most {
        skip_line(input)?;
        return Ok(Line::Refused(too_long(most)));
    }
    Ok(match String::from_utf8(line) {
        Ok(line) => Line::Text(line.trim_end_matches(['\r', '\n']).to_owned()),
        Err(e) => Line::Refused(format!("byte {} of the line is not UTF-8: send text", e.utf8_error().valid_up_to())),
    })
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let end = bytes.iter().position(|b| *b == b'\n');
        let n = end.map_or(bytes.len(), |i| i + 1);
        input.consume(n);
        if n == 0 || end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_long_or_no_text_are_passed_over() {
        let mut input = std::io::BufReader::with_capacity(4, &b"hi \n123456789012345\n12345678\n\xff\nlast"[..]);
        let mut next = || read(&mut input, 8).unwrap();
        assert_eq!(next(), Line::Text("hi".into()));
        assert!(matches!(next(), Line::Refused(why) if why.contains("more than 8 bytes")));
        assert_eq!(next(), Line::Text("12345678".into()));
        assert!(matches!(next(), Line::Refused(why) if why.contains("not UTF-8")));
        assert_eq!((next(), next()), (Line::Text("last".into()), Line::End));
    }

    #[test]
    fn messages_of_several_lines() {
        let text = "one \\\ntwo\n\"\"\"\n  a\n\n/b\\\n\"\"\"\n\"\"\"c\"\"\"\nlast \\";
        let mut input = std::io::BufReader::with_capacity(4, text.as_bytes());
        let mut next = || read_several(&mut input, 100).unwrap();
        assert_eq!(next(), Line::Text("one \ntwo".into()));
        assert_eq!(next(), Line::Text("  a\n\n/b\\".into()));
        assert_eq!(next(), Line::Text("c".into()));
        assert_eq!((next(), next()), (Line::Text("last".into()), Line::End));
        let mut input = &b"\"\"\"\nno end\n"[..];
        assert!(matches!(read_several(&mut input, 100).unwrap(), Line::Refused(why) if why.contains("at its end")));
        let mut input = &b"12345\\\n12345\\\n123\n"[..];
        assert!(matches!(read_several(&mut input, 10).unwrap(), Line::Refused(why) if why.contains("more than")));
        for (text, open) in
            [("a\\", true), ("a\\\\", false), ("a", false), ("\"\"\"", true), ("\"\"\"a\n\"\"\"", false)]
        {
            assert_eq!(is_open(text), open, "{text}");
        }
    }
}
