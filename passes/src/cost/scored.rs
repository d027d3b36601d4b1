//! Choices of the rows of a cache by scores: costs that all of them have in common.

use super::{ATTENTION, ATTENTION_TOKEN, OnCpu, imbalance};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::RowElem;
use llmcc_ir::kv::KvSpec;
use llmcc_ir::target::RowKind;

/// Rows that are scored for a token.
pub(super) struct Scored<'a> {
    /// The cache.
    pub kv: &'a KvSpec,
    /// How many rows they are.
    pub rows: usize,
    /// Multiply-adds for all of them.
    pub macs: usize,
}

impl Scored<'_> {
    /// Bytes of the rows of all sequences of `m` tokens.
    pub fn bytes(&self, sequences: usize, m: usize) -> f64 {
        (self.rows * self.kv.token_bytes() * sequences.clamp(1, m.max(1))) as f64
    }

    /// Seconds in `items` work items, with so many seconds of one core for all that is done with scores.
    pub fn cpu(&self, on: &OnCpu<'_>, steps: f64, items: usize) -> f64 {
        let OnCpu { t, m, env, .. } = *on;
        let computed = (m * self.macs) as f64 / (t.macs(RowKind::F32) * ATTENTION) + m as f64 * ATTENTION_TOKEN;
        (self.bytes(env.rows, m) / t.memory).max((computed + steps) / t.cores as f64 * imbalance(items, t.cores))
    }

    /// See [`super::Cost::work`].
    pub fn work(&self, on: &Launched<'_>) -> Work {
        let (bytes, macs) = (self.bytes(on.sequences, on.m), (on.m * self.macs) as f64);
        Work { bytes, macs, elem: RowElem::F32 }
    }
}
