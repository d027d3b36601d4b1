//! Jinja, as Hugging Face Transformers sets it up for chat templates:
//! `ImmutableSandboxedEnvironment` with `trim_blocks`, `lstrip_blocks`, loop controls, the
//! `generation` tag and no automatic escaping.
//!
//! Templates are files of strangers, and they are programs. So this interpreter knows what
//! everything costs *before* it does it: values are immutable and carry their expanded size and
//! depth ([`value::Heap`]), all bytes alive are counted, all work is, and expressions and calls
//! nest to a fixed depth. A template can thus fail with an error, but not exhaust memory, stack or
//! patience. General engines bound instructions at best, and thirty doublings of a string are few
//! instructions.
//!
//! More lenient than Jinja: loops over `none` are empty, and filters like `map` give lists, not
//! generators.
//!
//! Left out, because templates of models have no use for them: loading other templates (`extends`,
//! `include`, `import`), `trans`, the filters and tests that [`known`] lists, and storing namespaces, macros or loops inside lists, mappings or
//! other namespaces (what could make cycles).

mod ast;
mod call;
mod eval;
mod filters;
mod format;
mod known;
mod lex;
mod methods;
mod ops;
mod parse;
mod print;
#[cfg(test)]
mod tests;
pub mod value;

use std::fmt;

use value::{Heap, Value};

/// The local time, for `strftime_now`.
pub type Clock = fn() -> libc::tm;

/// What kind of failure an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The source is no template.
    Syntax,
    /// The template called `raise_exception`.
    Raised,
    /// Too large, too deep or too long.
    Limit,
    /// An operation failed, as in Python.
    Runtime,
}

/// Why a template does not parse or render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Class.
    pub kind: Kind,
    /// What failed.
    pub message: String,
    /// Line of the template, from 1; 0 where it is not known.
    pub line: u32,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), line: 0 }
    }

    fn runtime(message: impl Into<String>) -> Error {
        Error::new(Kind::Runtime, message)
    }

    fn limit(message: impl Into<String>) -> Error {
        Error::new(Kind::Limit, message)
    }

    fn at(mut self, line: u32) -> Error {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

type Result<T> = std::result::Result<T, Error>;

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    program: ast::Program,
}

impl Template {
    /// Parses `source`.
    ///
    /// # Errors
    /// [`Kind::Syntax`], or [`Kind::Limit`] for sources that are too long or nested too deeply.
    pub fn parse(source: &str) -> Result<Template> {
        Ok(Template { program: parse::parse(source)? })
    }

    /// Renders with `variables` (later ones win) that live on `heap`.
    ///
    /// # Errors
    /// What Jinja would raise, and [`Kind::Limit`] past the limits of `heap`.
    pub fn render(&self, heap: &Heap, variables: &[(String, Value)], clock: Clock) -> Result<String> {
        eval::Interpreter::new(&self.program, heap, variables, clock).run()
    }
}
