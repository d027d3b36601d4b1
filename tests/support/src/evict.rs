//! Random attention to caches that drop tokens.

use crate::Gen;
use llmcc_ir::eval::FixedState;
use llmcc_ir::graph::{Criterion, Eviction, F32};
use llmcc_ir::kernel::{Body, EvictingAttention, RowElem};
use llmcc_ir::ty::Dim;

impl Gen {
    /// Attention whose sequences begin with the step, with small budgets, by heads `[kv_heads, group]` of keys and
    /// values of `dims` elements.
    pub fn evicting(&mut self, criterion: Criterion, [kv_heads, group]: [usize; 2], dims: [usize; 2]) -> Body {
        self.rows = Dim::Tokens;
        let mut lengths = vec![0; self.batch.seqs.iter().max().map_or(0, |s| s + 1)];
        for (seq, position) in self.batch.seqs.iter().zip(&mut self.batch.positions) {
            *position = lengths[*seq];
            lengths[*seq] += 1;
        }
        let budget = self.rng.below(2, 12);
        let drop = self.rng.below(1, budget);
        let (recent, window) = (self.rng.below(1, budget - drop + 1), self.rng.below(1, drop + 1));
        let (level, together) = (F32::new(self.rng.pick(&[0.0, 0.05, 0.2, 0.8])), self.rng.chance(3));
        let eviction = Eviction { criterion, budget, recent, drop, window, level, together };
        let ([key_dim, value_dim], heads) = (dims, kv_heads * group);
        let ((q, q_start), (k, k_start)) = (self.slice(heads * key_dim), self.slice(kv_heads * key_dim));
        let (v, v_start) = self.slice(kv_heads * value_dim);
        let state = self.state(FixedState::new(eviction.state(kv_heads, key_dim, value_dim)));
        let out = self.output(heads * value_dim, RowElem::F32);
        let scale = F32::new(0.3);
        Body::EvictingAttention(EvictingAttention {
            q,
            q_start,
            k,
            k_start,
            v,
            v_start,
            heads,
            key_dim,
            scale,
            eviction,
            state,
            out,
        })
    }
}
