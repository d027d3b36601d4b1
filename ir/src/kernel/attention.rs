//! Attention over the paged cache.

use super::part::{Or1, Pair, Unless, family};
use super::{ATTEND_PARTS, Family, Outcome, Param, ParamId, ParamKind, RowElem, Store, Use};
use crate::eval::{Attend, EvalError, KernelRun, RowValues, ScoreBias, attention, relative_reach, whole_queries};
use crate::graph::F32;
use crate::kv::KvSpec;
use crate::verify::KernelVerifier;

family! {
    /// Attention. Work items are `(token, KV head)` pairs in [`ATTEND_PARTS`] parts each, numbered as
    /// the backend likes.
    Attention {
        /// Queries `[T, heads·key_dim]`, not quantized; of a latent cache `[T, heads·value_dim]`.
        q: ParamId as Use::READ,
        /// In a latent cache with a part stored as keys: queries `[T, heads·own_dim]` of that part,
        /// in the storage of the others.
        own: Option<ParamId> as Use::READ,
        /// The cache.
        kv: ParamId as Use::READ,
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
        /// Scores are `softcap·tanh(score/softcap)`.
        softcap: Option<F32>,
        /// A vector `[heads]`: each head's sink, one more score, of a value that is zero.
        sinks: Option<ParamId> as Use::READ,
        /// A vector `[heads·(2r + 1)]` that is added to scores: with `r` = 0 a slope per head `h`,
        /// which gives `−slope·|j − i|` to the key at `j` and the query at `i`; else its element at
        /// `r + clamp(j − i, −r, r)`.
        bias: Option<ParamId> as Use::READ,
        /// Two vectors `[heads·key_dim·(2r + 1)]`: keys and queries of distances, as `relative_attention`
        /// has them. They come without any of `softcap`, `sinks`, `bias`, and with all of a sequence seen.
        relative: Option<[ParamId; 2]> as Pair(["relative_keys", "relative_queries"]),
        /// For each token the numbers of the rows that it attends to, f32 `[T, any]`, ascending until the first
        /// that is of no row, as [`super::Select`] stores them. With these there is none of `softcap`, `bias`,
        /// `relative`, and no window.
        selected: Option<ParamId> as Use::READ,
        /// Each KV head has as many numbers of its own among these, one head after the other.
        by_head: bool,
        /// Whether a token sees nothing after it. Else it sees all positions that its sequence has in the
        /// cache, those of the step included, or those less than the cache's window away on either side.
        causal: bool as Unless("bidirectional"),
        /// The cache's window is a chunk: a token sees slots from the last multiple of the chunk
        /// on.
        chunked: bool,
        /// After the values each row has the maxima of the heads' scores, and the sums of weights
        /// relative to them, f32: `[T, heads·value_dim + 2·heads]`. If a token sees no key: f32's
        /// least number and 0.
        sums: bool,
        /// Tokens that a GPU's block takes together, sharing its reads of the cache: 1 for
        /// decoding, more for prompts. A CPU takes runs of tokens as it finds them.
        tile_m: usize as Or1,
        /// Output `[T, heads·value_dim]`, in the operand's storage (a group of [`RowElem::Q8`] must
        /// divide the columns of a KV head's queries).
        out: ParamId as Use::WRITE,
    }
}

impl Family for Attention {
    fn has_whole_groups(&self, params: &[Param], elem: RowElem) -> bool {
        let Some(kv) = params.get(self.kv).and_then(|p| p.kind.state()?.paged()) else { return false };
        // A work item is the heads that share keys and values.
        let columns = self.heads / kv.kv_heads.max(1) * kv.value_dim;
        !elem.by_row() && columns.is_multiple_of(elem.run())
    }

    fn items(&self, params: &[Param]) -> (usize, bool) {
        let Some(kv) = params.get(self.kv).and_then(|p| p.kind.state()?.paged()) else { return (1, true) };
        (kv.kv_heads * ATTEND_PARTS, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.finite("scale", self.scale);
        if let Some(cap) = self.softcap {
            v.finite("softcap", cap);
            if cap.get() <= 0.0 {
                v.error("attribute", format!("softcap {cap} is not positive"));
            }
        }
        if let Some(len) = self.sinks.and_then(|s| v.vector(s)).filter(|len| *len != self.heads) {
            v.error("vector-length", format!("{len} sinks for {} heads", self.heads));
        }
        if let Some(Err(what)) = self.bias.and_then(|b| v.vector(b)).map(|len| ScoreBias::of(len, self.heads)) {
            v.error("vector-length", what);
        }
        let rows = v.kernel.rows;
        let (q, kv, out) = (v.float_rows(self.q, rows), v.kv(self.kv), v.rows(self.out, rows));
        let Some(spec) = kv else { return };
        if self.chunked && (spec.window.is_none() || !self.causal) {
            v.error("attribute", "chunks are causal windows");
        }
        if spec.kv_heads == 0 || self.heads == 0 || !self.heads.is_multiple_of(spec.kv_heads) {
            return v.error(
                "attention-heads",
                format!("{} query heads cannot share {} KV heads", self.heads, spec.kv_heads),
            );
        }
        if let Some(what) = spec.misfit(self.causal && self.bias.is_none()) {
            v.error("attribute", what);
        }
        let cols = self.heads.saturating_mul(spec.value_dim);
        if let Some(q) = q {
            let dim = if spec.latent { spec.value_dim } else { spec.key_dim };
            v.columns(self.q, q, self.heads.saturating_mul(dim));
        }
        self.verify_own(v, &spec);
        self.verify_relative(v, &spec);
        self.verify_selected(v, &spec);
        if let Some((have, elem)) = out {
            let sums = if self.sums { self.heads.saturating_mul(2) } else { 0 };
            v.columns(self.out, have, cols.saturating_add(sums));
            if self.sums && elem != RowElem::F32 {
                v.error("store-group", "maxima and sums are in f32 rows");
            }
            let item = cols / spec.kv_heads;
            if elem.by_row() {
                v.error("store-group", "fp8 rows have a scale of all their columns, which only row-wise kernels see");
            }
            let run = elem.run();
            if !item.is_multiple_of(run) {
                v.error(
                    "store-group",
                    format!("groups of {run} do not divide the {item} columns of a KV head's queries"),
                );
            }
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let q = |i| match self.own {
            Some(own) => whole_queries(&x.kv(self.kv).spec, self.heads, &x.row(own, i), &x.row(self.q, i)),
            None => x.row(self.q, i),
        };
        let q: RowValues = (0..x.m).map(q).collect();
        let vector = |p: Option<ParamId>| p.map(|p| x.vector(p).iter().map(|v| f64::from(*v)).collect::<Vec<f64>>());
        let (sinks, bias) = (vector(self.sinks), vector(self.bias));
        let near = self.relative.map(|tables| tables.map(|t| vector(Some(t)).unwrap_or_default()));
        let relative = near.as_ref().map(|[keys, queries]| [&keys[..], &queries[..]]);
        let selected = self.selected.map(|p| (0..x.m).map(|i| x.row(p, i)).collect::<RowValues>());
        let Attention { heads, scale, softcap, causal, chunked, sums, .. } = *self;
        let (sinks, bias) = (sinks.as_deref(), bias.as_deref());
        let selected = selected.as_deref();
        let by_head = self.by_head;
        let of = Attend { heads, scale, softcap, sinks, bias, relative, causal, chunked, sums, selected, by_head };
        let out = attention(x.kv(self.kv), x.batch, &q, &of)?;
        Ok(Outcome::rows(vec![(Store::all(self.out), out)]))
    }
}

impl Attention {
    /// The usual softmax of queries `q` over the cache `kv` into rows `out`.
    pub fn usual([q, kv, out]: [ParamId; 3], heads: usize, scale: F32) -> Attention {
        let (own, softcap, sinks, bias, relative, selected) = (None, None, None, None, None, None);
        let (causal, chunked, sums, by_head, tile_m) = (true, false, false, false, 1);
        Attention {
            q,
            own,
            kv,
            out,
            heads,
            scale,
            softcap,
            sinks,
            bias,
            relative,
            selected,
            by_head,
            causal,
            chunked,
            sums,
            tile_m,
        }
    }

    /// Lists of numbers in a token's row of `selected`.
    pub fn lists(&self, kv: &KvSpec) -> usize {
        if self.by_head { kv.kv_heads.max(1) } else { 1 }
    }

    /// Index of the bias, if there is one.
    pub fn biased(&self, params: &[Param]) -> Option<ScoreBias> {
        match params.get(self.bias?)?.kind {
            ParamKind::Vector { len } => ScoreBias::of(len, self.heads).ok(),
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => None,
        }
    }

    /// How far the distances go that have keys and queries of their own, if they have.
    pub fn reach(&self, params: &[Param]) -> Option<usize> {
        let [keys, _] = self.relative?;
        let spec = params.get(self.kv)?.kind.state()?.paged()?;
        match params.get(keys)?.kind {
            ParamKind::Vector { len } => relative_reach(len, self.heads.saturating_mul(spec.key_dim)).ok(),
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => None,
        }
    }

    /// Keys and queries of distances are as many, and nothing else is added to scores.
    fn verify_relative(&self, v: &mut KernelVerifier<'_>, spec: &KvSpec) {
        let Some(tables) = self.relative else { return };
        let [Some(keys), Some(queries)] = tables.map(|t| v.vector(t)) else { return };
        if let Err(what) = relative_reach(keys, self.heads.saturating_mul(spec.key_dim)) {
            v.error("vector-length", what);
        } else if keys != queries {
            v.error("vector-length", format!("{keys} elements of keys of distances, and {queries} of their queries"));
        }
        let plain = self.softcap.is_none() && self.sinks.is_none() && self.bias.is_none();
        if !plain || self.causal || spec.latent || spec.window.is_some() {
            v.error("attribute", "keys and queries of distances come with nothing else, and no window");
        }
    }

    /// Rows are selected from whole sequences, and scores stay as they are.
    fn verify_selected(&self, v: &mut KernelVerifier<'_>, spec: &KvSpec) {
        let Some(selected) = self.selected else {
            if self.by_head {
                v.error("selection", "heads have no rows of their own without a selection");
            }
            return;
        };
        let have = v.f32_rows(selected, v.kernel.rows);
        if have.is_some_and(|have| !have.is_multiple_of(self.lists(spec))) {
            v.error("selection", format!("{} KV heads do not have as many numbers each", spec.kv_heads));
        }
        if let Some(what) = spec.unselectable() {
            v.error("selection", what);
        }
        if self.softcap.is_some() || self.bias.is_some() || self.relative.is_some() || !self.causal || self.chunked {
            v.error("selection", "attention over selected rows has no softcap, bias, chunks or later tokens");
        }
    }

    /// Latent caches with a part stored as keys need queries for it; others must have none.
    fn verify_own(&self, v: &mut KernelVerifier<'_>, spec: &KvSpec) {
        if self.own.is_some() != (spec.latent && spec.own_dim() > 0) {
            let message = format!("queries of what is stored as keys belong to a latent cache, not to {spec}");
            return v.error("latent", message);
        }
        let Some(own) = self.own else { return };
        if let Some(cols) = v.float_rows(own, v.kernel.rows) {
            v.columns(own, cols, self.heads.saturating_mul(spec.own_dim()));
        }
        if v.rows(own, v.kernel.rows).map(|r| r.1) != v.rows(self.q, v.kernel.rows).map(|r| r.1) {
            v.error("latent", "both parts of the queries need one storage");
        }
    }
}
