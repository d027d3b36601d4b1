//! Attention to a cache that drops tokens by their weights.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, ParamKind, Use};
use crate::eval::{EvalError, Evict, KernelRun, evicting_attention};
use crate::graph::{Eviction, F32};
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;
use llmcc_abi::evict::KeptLayout;

family! {
    /// Attention to a cache that drops tokens, as `evicting_attention` of the graph level. Work items are KV heads, or
    /// all of them together where they drop the same tokens, each with all tokens in order.
    EvictingAttention {
        /// Queries, f32 rows.
        q: ParamId as Use::READ,
        /// First column of the queries, `[heads · key_dim]`.
        q_start: usize,
        /// Keys, f32 rows.
        k: ParamId as Use::READ,
        /// First column of the keys, `[kv_heads · key_dim]`.
        k_start: usize,
        /// Values, f32 rows.
        v: ParamId as Use::READ,
        /// First column of the values, `[kv_heads · value_dim]`.
        v_start: usize,
        /// Query heads.
        heads: usize,
        /// Elements of a key.
        key_dim: usize,
        /// Multiplies `q·k`.
        scale: F32,
        /// Which tokens are dropped.
        eviction: Eviction,
        /// f32 `[kv_heads, key_dim + value_dim + 3, places]`.
        state: ParamId as Use::WRITE,
        /// f32 `[T, heads · value_dim]`.
        out: ParamId as Use::WRITE,
    }
}

impl EvictingAttention {
    /// Elements of a value.
    pub fn value_dim(&self, state: FixedSpec) -> usize {
        state.rows.saturating_sub(KeptLayout::MARKS).saturating_sub(self.key_dim)
    }
}

impl Family for EvictingAttention {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        let state = params.get(self.state).and_then(|p| p.kind.state()?.fixed());
        (state.filter(|_| !self.eviction.together).map_or(1, |s| s.heads), false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.finite("scale", self.scale);
        if let Some(what) = self.eviction.misfit() {
            return v.error("eviction", what);
        }
        let rows = v.kernel.rows;
        let [q, k, values, out] = [self.q, self.k, self.v, self.out].map(|p| v.f32_rows(p, rows));
        let Some(state) = v.any_fixed(self.state) else { return };
        let [Some(q), Some(k), Some(values), Some(out)] = [q, k, values, out] else { return };
        let kv_heads = state.heads;
        if self.heads == 0 || !self.heads.is_multiple_of(kv_heads) {
            let what = format!("{} query heads cannot share {kv_heads} KV heads", self.heads);
            return v.error("attention-heads", what);
        }
        let value_dim = self.value_dim(state);
        if self.key_dim == 0 || value_dim == 0 || state != self.eviction.state(kv_heads, self.key_dim, value_dim) {
            let what =
                format!("{state} is no state of keys of {} elements and {} tokens", self.key_dim, self.eviction.budget);
            return v.error("eviction", what);
        }
        for (p, start, want, have) in [
            (self.q, self.q_start, self.heads.saturating_mul(self.key_dim), q),
            (self.k, self.k_start, kv_heads.saturating_mul(self.key_dim), k),
            (self.v, self.v_start, kv_heads.saturating_mul(value_dim), values),
        ] {
            v.range("eviction", p, start, want, have);
        }
        v.columns(self.out, out, self.heads.saturating_mul(value_dim));
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let mut state = x.fixed(self.state).clone();
        let (spec, value_dim) = (state.spec, self.value_dim(state.spec));
        let columns = |p: ParamId, start: usize, n: usize| match x.kernel.params[p].kind {
            ParamKind::Rows { .. } => x.columns(p, start, n),
            ParamKind::Vector { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => vec![],
        };
        let q = columns(self.q, self.q_start, self.heads * self.key_dim);
        let k = columns(self.k, self.k_start, spec.heads * self.key_dim);
        let v = columns(self.v, self.v_start, spec.heads * value_dim);
        let of = Evict { scale: self.scale, eviction: self.eviction };
        let rows = evicting_attention(&mut state, x.batch, [&q, &k, &v], &of);
        Ok(Outcome::recurrent((self.out, rows), (self.state, state)))
    }
}
