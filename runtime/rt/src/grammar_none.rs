//! Stands in for the module `grammar` when the runtime is built without that feature.

use std::borrow::Cow;

use crate::error::Result;
pub use crate::language::Language;

/// There is none.
#[derive(Clone, Debug)]
pub enum Grammar {}

/// There is none.
pub enum Guide {}

impl Guide {
    /// There is none.
    pub fn new(grammar: Grammar) -> Guide {
        match grammar {}
    }

    /// There is none.
    ///
    /// # Errors
    /// Never.
    pub fn apply<'a>(&self, _: Cow<'a, [f32]>, _: &[i32]) -> Result<Cow<'a, [f32]>> {
        match *self {}
    }

    /// There is none.
    pub fn forced(&self, _: &[i32], _: usize) -> Vec<i32> {
        match *self {}
    }
}
