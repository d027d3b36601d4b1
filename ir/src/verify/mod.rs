//! Verifiers of all three levels.
//!
//! They collect every finding, each with its place and the name of its rule; [`RULES`] lists them.
//! What passes without an error never makes an evaluator or a backend panic.
//! [`Diagnostics::check`](crate::diag::Diagnostics::check) turns findings into a result.

mod access;
mod graph;
mod kernel;
mod plan;
mod rules;
mod states;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod top_k_tests;

pub use access::{Access, accesses};
pub use graph::{verify_func, verify_module};
pub use kernel::verify_kernel;
pub(crate) use kernel::{Input, KernelVerifier};
pub use plan::{verify_packed, verify_plan, verify_target};
pub use rules::RULES;

use crate::diag::{Diagnostic, Place, Severity};
use crate::kv::KvSpec;
use crate::quant::Format;
use crate::state::{AdapterSpec, FixedSpec, StateSpec};
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

/// Sizes of a state are positive.
fn state_spec(sink: &mut Sink, place: &Place, spec: &StateSpec) {
    match spec {
        StateSpec::Paged(kv) => kv_spec(sink, place, kv),
        StateSpec::Fixed(fixed) => fixed_spec(sink, place, fixed),
        StateSpec::Adapter(adapter) => adapter_spec(sink, place, adapter),
    }
}

/// A state holds something, and no more than memory can be asked for.
fn fixed_spec(sink: &mut Sink, place: &Place, spec: &FixedSpec) {
    if spec.is_empty() || spec.len() > FixedSpec::MOST {
        let message = format!("{spec} does not have between 1 and {} numbers", FixedSpec::MOST);
        sink.error("state-spec", place.clone(), message);
    }
}

/// A matrix of adapters holds something: whole blocks of rows, for a number of adapters there can be.
fn adapter_spec(sink: &mut Sink, place: &Place, spec: &AdapterSpec) {
    let AdapterSpec { n, k, slots } = *spec;
    let whole = n > 0 && n.is_multiple_of(AdapterSpec::BLOCK) && k > 0;
    let few = n.saturating_mul(k) <= FixedSpec::MOST && (1..=AdapterSpec::MOST).contains(&slots);
    if !whole || !few {
        let message =
            format!("{spec}: whole blocks of 16 rows, for 1 to {} adapters, are what there may be", AdapterSpec::MOST);
        sink.error("state-spec", place.clone(), message);
    }
}

/// Sizes of keys and values are positive.
fn kv_spec(sink: &mut Sink, place: &Place, spec: &KvSpec) {
    if spec.latent && spec.key_dim <= spec.value_dim {
        let message = format!("{spec}: a key is something of its own, followed by the value");
        return sink.error("kv-spec", place.clone(), message);
    }
    if spec.kv_heads == 0 || spec.own_dim() == 0 || spec.value_dim == 0 || spec.window == Some(0) {
        sink.error("kv-spec", place.clone(), format!("{spec} has a size of 0"));
    }
    if !spec.dtype.holds(spec.own_dim()) || !spec.dtype.holds(spec.value_dim) {
        sink.error("kv-spec", place.clone(), format!("{spec}: codes of 4 bits come in pairs, heads have an even size"));
    }
}

/// A format has a group of the table, or none.
fn format_ok(format: Format) -> bool {
    format.has_its_group()
}
