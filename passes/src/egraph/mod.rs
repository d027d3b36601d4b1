//! One e-graph per distinct function of the module.

pub mod analysis;
pub mod convert;
pub mod lang;
mod origin;
pub mod provenance;

pub use analysis::{Data, Facts, Graph, attr, classes, members, operation, store_of};
pub use lang::{Form, Term};
pub use llmcc_ir::graph::{Attr, Head};
