//! Operands that are states.

use super::KernelVerifier;
use crate::kernel::ParamId;
use crate::kv::KvSpec;
use crate::state::{AdapterSpec, FixedSpec, StateSpec};

impl KernelVerifier<'_> {
    pub fn kv(&mut self, id: ParamId) -> Option<KvSpec> {
        self.state(id, "an attention state", StateSpec::paged)
    }

    /// A matrix of adapters.
    pub fn adapter(&mut self, id: ParamId) -> Option<AdapterSpec> {
        self.state(id, "a matrix of adapters", StateSpec::adapter)
    }

    /// A state of fixed size.
    pub fn any_fixed(&mut self, id: ParamId) -> Option<FixedSpec> {
        self.state(id, "a state of fixed size", StateSpec::fixed)
    }

    /// An operand that must be the state `want`.
    pub fn fixed(&mut self, id: ParamId, want: FixedSpec) {
        self.kind(id, &want.to_string(), |k| k.state()?.fixed().filter(|have| **have == want));
    }

    /// A state of the kind that `get` asks for.
    pub fn state<T: Copy>(&mut self, id: ParamId, what: &str, get: fn(&StateSpec) -> Option<&T>) -> Option<T> {
        self.kind(id, what, |k| k.state().and_then(&get).copied())
    }
}
