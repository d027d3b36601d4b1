//! Operands that are states.

use super::KernelVerifier;
use crate::kernel::{ParamId, ParamKind};
use crate::kv::KvSpec;
use crate::state::{AdapterSpec, FixedSpec};

impl KernelVerifier<'_> {
    pub fn kv(&mut self, id: ParamId) -> Option<KvSpec> {
        self.kind(id, "an attention state", |k| if let ParamKind::Kv(spec) = *k { Some(spec) } else { None })
    }

    /// A matrix of adapters.
    pub fn adapter(&mut self, id: ParamId) -> Option<AdapterSpec> {
        self.kind(id, "a matrix of adapters", |k| if let ParamKind::Adapter(spec) = *k { Some(spec) } else { None })
    }

    /// A state of fixed size.
    pub fn any_fixed(&mut self, id: ParamId) -> Option<FixedSpec> {
        self.kind(id, "a state of fixed size", |k| if let ParamKind::Fixed(spec) = *k { Some(spec) } else { None })
    }

    /// An operand that must be the state `want`.
    pub fn fixed(&mut self, id: ParamId, want: FixedSpec) {
        self.kind(id, &want.to_string(), |k| {
            if let ParamKind::Fixed(have) = *k { (have == want).then_some(()) } else { None }
        });
    }
}
