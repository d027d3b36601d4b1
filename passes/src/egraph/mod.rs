//! One e-graph per distinct function of the module.

pub mod analysis;
pub mod convert;
pub mod lang;

pub use analysis::{Data, Facts, Graph, store_of};
pub use lang::{Attr, Form, Head, Term};
