//! Operands that are states.

use super::KernelVerifier;
use crate::kernel::{ParamId, ParamKind};
use crate::kv::KvSpec;
use crate::state::{AdapterSpec, FixedSpec};

impl KernelVerifier<'_> {
    pub fn kv(&mut self, id: ParamId) -> Option<KvSpec> {
        self.kind(id, "an attention state", |k| match *k {
            ParamKind::Kv(spec) => Some(spec),
            _ => None,
        })
    }

    /// A matrix of adapters.
    pub fn adapter(&mut self, id: ParamId) -> Option<AdapterSpec> {
        self.kind(id, "a matrix of adapters", |k| match *k {
            ParamKind::Adapter(spec) => Some(spec),
            _ => None,
        })
    }

    /// A state of fixed size.
    pub fn any_fixed(&mut self, id: ParamId) -> Option<FixedSpec> {
        self.kind(id, "a state of fixed size", |k| match *k {
            ParamKind::Fixed(spec) => Some(spec),
            _ => None,
        })
    }

    /// An operand that must be the state `want`.
    pub fn fixed(&mut self, id: ParamId, want: FixedSpec) {
        self.kind(id, &want.to_string(), |k| match *k {
            ParamKind::Fixed(have) if have == want => Some(()),
            _ => None,
        });
    }
}
