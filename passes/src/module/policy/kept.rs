//! The part of a cache that stays, and its heads.

use llmcc_ir::graph::Op;
use llmcc_ir::kv::{First, KvSpec};

/// How much stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// First tokens.
    pub first: usize,
    /// Last tokens, the present one among them.
    pub window: usize,
    /// Whether positions are places in the cache, so that the first tokens stand before the window.
    pub places: bool,
}

impl Kept {
    /// The cache of the last tokens.
    pub fn last(self, spec: KvSpec) -> KvSpec {
        KvSpec { window: Some(self.window), ..spec }
    }

    /// The cache of the first ones.
    pub fn sinks(self, spec: KvSpec) -> KvSpec {
        KvSpec { window: None, first: Some(First { rows: self.first, behind: self.window }), ..spec }
    }

    /// A rotary table of places in the cache.
    pub fn placed(self, op: &Op) -> Op {
        match op {
            Op::RopeTable { scale, border, .. } => {
                Op::RopeTable { scale: *scale, border: *border, most: self.first + self.window - 1 }
            }
            other => other.clone(),
        }
    }
}

/// The KV heads of a cache that keep a part of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// All of them.
    All,
    /// Those with `true`, at least one and not all.
    Heads(Vec<bool>),
}

impl Part {
    /// The cache of the heads that keep a part.
    pub fn of(&self, spec: KvSpec) -> KvSpec {
        let heads = |mask: &Vec<bool>| mask.iter().filter(|part| **part).count();
        match self {
            Part::All => spec,
            Part::Heads(mask) => KvSpec { kv_heads: heads(mask), ..spec },
        }
    }

    /// The cache of the others, if there are any.
    pub fn rest(&self, spec: KvSpec) -> Option<KvSpec> {
        let of_part = self.of(spec).kv_heads;
        (self != &Part::All).then(|| KvSpec { kv_heads: spec.kv_heads - of_part, ..spec })
    }
}
