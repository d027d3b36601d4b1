//! Lines that a user types, or a program sends.

use crate::Error;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use std::io::{BufRead, IsTerminal, Read, Write};

const PROMPT: &str = "> ";

/// Where they come from.
pub(super) enum Lines {
    /// A terminal, with editing and a history.
    Terminal(Box<Editor<(), MemHistory>>),
    /// Anything else.
    Plain,
}

/// The line read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without white space around it.
    Text(String),
    /// A line that cannot be taken, and why.
    Refused(String),
    /// The user has thrown it away.
    Cleared,
    /// There are no more.
    End,
}

impl Lines {
    /// Lines of standard input.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn new() -> Result<Lines, Error> {
        if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
            return Ok(Lines::Plain);
        }
        let config = Config::builder().auto_add_history(true).build();
        let editor = Editor::with_history(config, MemHistory::new()).map_err(|e| failed(&e))?;
        Ok(Lines::Terminal(Box::new(editor)))
    }

    /// Whether a user edits them.
    pub fn edited(&self) -> bool {
        matches!(self, Lines::Terminal(_))
    }

    /// The next one, of `most` bytes at most.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn next(&mut self, most: usize) -> Result<Line, Error> {
        match self {
            Lines::Plain => {
                eprint!("{PROMPT}");
                let _ = std::io::stderr().flush();
                read(&mut std::io::stdin().lock(), most).map_err(|e| Error::io("read", "standard input", e))
            }
            Lines::Terminal(editor) => Ok(match editor.readline(PROMPT) {
                Ok(line) if line.len() > most => Line::Refused(too_long(most)),
                Ok(line) => Line::Text(line.trim().to_owned()),
                Err(ReadlineError::Eof) => Line::End,
                Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Line::Cleared,
                Err(e) => return Err(failed(&e)),
            }),
        }
    }
}

fn failed(e: &ReadlineError) -> Error {
    Error::io("read", "the terminal", std::io::Error::other(e.to_string()))
}

fn too_long(most: usize) -> String {
    format!("the line has more than {most} bytes, more than the context can hold: send a shorter one")
}

/// Reads a line of no more than `most` bytes; of a longer one nothing stays in memory.
fn read(input: &mut impl BufRead, most: usize) -> std::io::Result<Line> {
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
        Ok(line) => Line::Text(line.trim().to_owned()),
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
}
