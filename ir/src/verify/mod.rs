//! Verifiers of all three levels.
//!
//! They collect every finding, each with its place and the name of its rule; [`RULES`] lists them.
//! Input that passes without an error never makes an evaluator or a backend panic.
//! [`Diagnostics::check`](crate::diag::Diagnostics::check) turns findings into a result.

mod access;
mod graph;
mod kernel;
mod plan;
mod rules;
mod states;

#[cfg(test)]
mod sources_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod top_k_tests;

pub use access::{Access, accesses};
use graph::{entry_context, outputs};
pub use graph::{verify_func, verify_module};
pub use kernel::verify_kernel;
pub(crate) use kernel::{Input, KernelVerifier};
pub use plan::{verify_packed, verify_plan, verify_target};
pub use rules::RULES;

use crate::diag::{Diagnostic, Place, Severity};
use crate::quant::Format;
use crate::state::StateSpec;
use std::collections::HashSet;

/// Collects findings.
#[derive(Default)]
struct Sink {
    out: Vec<Diagnostic>,
}

impl Sink {
    fn error(&mut self, code: &'static str, place: Place, message: impl Into<String>) {
        debug_assert!(RULES.iter().any(|(c, _)| *c == code), "the rule `{code}` is not listed");
        self.out.push(Diagnostic::error(code, place, message));
    }

    fn warning(&mut self, code: &'static str, place: Place, message: impl Into<String>) {
        self.error(code, place, message);
        self.out.last_mut().into_iter().for_each(|d| d.severity = Severity::Warning);
    }

    /// Names in one scope differ and are not empty.
    fn unique<'a>(&mut self, names: impl Iterator<Item = (&'a str, Place)>) {
        let mut seen = HashSet::new();
        for (name, place) in names {
            if name.is_empty() {
                self.error("empty-name", place, "has no name");
            } else if !seen.insert(name) {
                self.error("duplicate-name", place, format!("the name `{name}` is used twice"));
            }
        }
    }
}

/// Sizes of a state are positive, and no more than there can be.
fn state_spec(sink: &mut Sink, place: &Place, spec: &StateSpec) {
    for (code, message) in spec.verify() {
        sink.error(code, place.clone(), message);
    }
}

/// A format has a group of the table, or none.
fn format_ok(format: Format) -> bool {
    format.has_its_group()
}
