//! Jinja, as Hugging Face Transformers sets it up for chat templates:
//! `ImmutableSandboxedEnvironment` with `trim_blocks`, `lstrip_blocks`, loop controls, the
//! `generation` tag and no automatic escaping.
//!
//! Templates are files of strangers, and they are programs. So this interpreter knows the cost of
//! everything *before* it does it: values are immutable and carry their expanded size and depth
//! ([`value::Heap`]), all bytes alive are counted, all work is, and expressions and calls nest to a
//! fixed depth. A template can thus fail with an error, but not exhaust memory, stack or patience.
//! General engines bound instructions at best, and thirty doublings of a string are few
//! instructions.
//!
//! More lenient than Jinja: loops over `none` are empty, and filters like `map` give lists, not
//! generators.
//!
//! Left out, because templates of models have no use for them: loading other templates (`extends`,
//! `include`, `import`), `trans`, the filters and tests that `known` lists, and storing
//! namespaces, macros or loops inside lists, mappings or other namespaces (they could form cycles).
//!
//! Files here use each other in a circle (`tests/tests/circles.rs`): expressions call functions and
//! methods, which format values and call expressions again.

mod ast;
mod call;
mod error;
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

use error::Result;
pub use error::{Clock, Error, Kind};
use value::{Heap, Value};

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
    /// Errors that Jinja would raise, and [`Kind::Limit`] past the limits of `heap`.
    pub fn render(&self, heap: &Heap, variables: &[(String, Value)], clock: Clock) -> Result<String> {
        eval::Interpreter::new(&self.program, heap, variables, clock).run()
    }
}
