//! Shape of an attention kernel: its operands, the rows that a token sees, the scores of products.

use super::selected::Selections;
use crate::cx::{Args, Cx, row_stride};
use crate::expr::tanh;
use crate::mlir::{Builder, Elem, F32, I64, Ty, V};
use crate::piece::{self, col_at};
use llmcc_abi::layout::Page;
use llmcc_ir::eval::ScoreBias;
use llmcc_ir::graph::F32 as Real;
use llmcc_ir::kernel::{Attention, ParamId, RowElem};
use llmcc_ir::kv::{First, KvSpec};
use llmcc_ir::quant::Float;

/// Operands of an attention kernel, and how it computes scores.
pub(super) struct Shape {
    pub(super) kv: ParamId,
    pub(super) spec: KvSpec,
    pub(super) page: Page,
    pub(super) q: Rows,
    /// Queries of the part stored as keys, in a latent cache with such a part.
    pub(super) own: Option<Rows>,
    pub(super) out: Rows,
    /// Query heads per KV head.
    pub(super) group: usize,
    /// How products become scores.
    pub(super) scores: Scores,
    /// An f32 vector: one more score of each query head, of a value that is zero.
    pub(super) sinks: Option<ParamId>,
    /// An f32 vector that is added to scores, and how far its distances reach.
    pub(super) bias: Option<(ParamId, ScoreBias)>,
    /// Two f32 vectors: keys and queries of distances, and how far these go.
    pub(super) relative: Option<([ParamId; 2], usize)>,
    /// The rows that tokens attend to, if they select them.
    pub(super) selected: Option<Selections>,
    /// Whether a token sees nothing after it.
    pub(super) causal: bool,
    /// Whether the window is a chunk.
    pub(super) chunked: bool,
    /// Heads whose maxima and sums of weights come after the values.
    pub(super) sums: Option<usize>,
}

/// Rows of queries or results.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) param: ParamId,
    /// Columns of a row, and of a head.
    pub(super) cols: usize,
    pub(super) of_head: usize,
    pub(super) elem: RowElem,
}

impl Rows {
    /// The type of an element in memory.
    pub(super) fn storage(&self) -> Elem {
        piece::storage(self.elem)
    }
}

/// How products of queries and keys become scores in base 2.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    /// Multiplies them: the kernel's factor, and that from base e to base 2.
    pub(super) scale: f32,
    /// With a softcap: the factor before the hyperbolic tangent, and the one after it.
    pub(super) cap: Option<(f32, f32)>,
}

impl Scores {
    pub(super) fn new(scale: f32, softcap: Option<f32>) -> Scores {
        let base2 = |x: f32| (f64::from(x) * std::f64::consts::LOG2_E) as f32;
        let cap = softcap.map(|cap| ((f64::from(scale) / f64::from(cap)) as f32, base2(cap)));
        Scores { scale: base2(scale), cap }
    }

    /// The score of a product.
    pub(super) fn of(&self, b: &mut Builder, product: V) -> V {
        let x = self.inner(b, product);
        let factor = b.f32(self.factor());
        b.fmul(x, factor)
    }

    /// The factor that [`Scores::inner`] leaves.
    pub(super) fn factor(&self) -> f32 {
        self.cap.map_or(self.scale, |(_, after)| after)
    }

    /// The score of a product, but for a last factor.
    pub(super) fn inner(&self, b: &mut Builder, product: V) -> V {
        let Some((before, _)) = self.cap else { return product };
        let before = b.f32(before);
        let x = b.fmul(product, before);
        tanh(b, x)
    }
}

impl Shape {
    pub(super) fn new(cx: &Cx<'_>, k: &Attention) -> Shape {
        // All of it is named, so that nothing is overlooked.
        let Attention { q: queries, own, kv, out: to, heads, scale, softcap, sinks, bias, relative, .. } = *k;
        let Attention { causal, chunked, sums, selected, by_head: _, tile_m: _, .. } = *k;
        let spec = cx.kernel.kv(kv);
        let rows = |param: ParamId| {
            let (cols, elem) = cx.rows(param);
            Rows { param, cols, of_head: cols / heads, elem }
        };
        Shape {
            kv,
            spec,
            page: spec.page(),
            q: rows(queries),
            own: own.map(rows),
            out: rows(to),
            group: heads / spec.kv_heads,
            scores: Scores::new(scale.get(), softcap.map(Real::get)),
            sinks,
            bias: bias.zip(k.biased(&cx.kernel.params)),
            relative: relative.zip(k.reach(&cx.kernel.params)),
            selected: selected.map(|rows| Selections { rows, most: cx.cols(rows), every: spec.every }),
            causal,
            chunked,
            sums: sums.then_some(heads),
        }
    }

    /// Whether scores are the products of queries and keys up to a token, perhaps with a softcap, and nothing else
    /// is wanted than weighted values.
    pub(super) fn usual(&self) -> bool {
        self.bias.is_none() && self.relative.is_none() && self.sums.is_none() && self.spec.first.is_none()
    }

    /// The 16-bit float that tensor cores multiply, if the cache is of such.
    pub(super) fn in_halves(&self) -> Option<Elem> {
        (self.usual() && self.spec.dtype.is_half()).then(|| piece::kv_storage(self.spec.dtype))
    }

    /// The 16-bit float that tensor cores multiply, and whether it comes from int8 codes; `None` if
    /// keys are not as wide as values, rows are selected, or only the plain kernel will do.
    pub(super) fn multiplied(&self) -> Option<(Elem, bool)> {
        if !self.spec.uniform() || !self.usual() || self.selected.is_some() {
            return None;
        }
        let (d, dtype) = (self.spec.key_dim, self.spec.dtype);
        match (dtype.float(), dtype.bits()) {
            (Some(Float::F16 | Float::Bf16), _) => d.is_multiple_of(16).then(|| (piece::kv_storage(dtype), false)),
            (None, 8) => d.is_multiple_of(32).then_some((Elem::F16, true)),
            (Some(Float::F32 | Float::E4m3) | None, _) => None,
        }
    }

    /// Address of column `col` of row `token` of queries or output.
    pub(super) fn element(&self, b: &mut Builder, args: Args<'_>, rows: Rows, token: V, col: V) -> V {
        let token = b.zext(token, I64);
        let start = b.mulc(token, row_stride(rows.cols, rows.elem) as i64);
        let line = b.at(args.operand(rows.param), start);
        col_at(b, line, rows.storage(), col)
    }

    /// Stores f32 values (a scalar, or a vector of adjacent columns) to the output.
    pub(super) fn store(&self, b: &mut Builder, args: Args<'_>, token: V, col: V, values: V) {
        let p = self.element(b, args, self.out, token, col);
        let values = piece::round(b, values, self.out.storage());
        if self.out.cols.is_multiple_of(4) || !matches!(values.ty, Ty::Vec(..)) {
            return b.store(values, p);
        }
        // Rows that end with sums begin anywhere.
        for (i, x) in b.unpack(values).into_iter().enumerate() {
            let p = b.atc(p, (i * self.out.storage().bytes()) as i64);
            b.store(x, p);
        }
    }

    /// Whether a token may see nothing: where several have a row, the first ones; where it sees rows far behind it
    /// alone; or it selects nothing.
    pub(super) fn may_be_blind(&self) -> bool {
        self.spec.every > 1 || self.spec.first.is_some() || self.selected.is_some()
    }

    /// Rows that a token of the step, at `position`, sees: positions, where each has one; numbers in its selection.
    pub(super) fn range(&self, b: &mut Builder, args: Args<'_>, token: V, position: V) -> Range {
        let first = self.first_seen(b, position);
        if let Some(selections) = &self.selected {
            return Range { first, count: selections.count(b, args, token, position) };
        }
        if let Some(First { rows, behind }) = self.spec.first {
            let most = i32::MAX as usize;
            let old = b.addc(position, 1 - behind.min(most) as i64);
            let (zero, all) = (b.i32(0), b.i32(rows.min(most) as i64));
            let old = b.smax(old, zero);
            return Range { first, count: b.min(old, all) };
        }
        if self.spec.every > 1 {
            let end = b.addc(position, 1);
            return Range { first, count: b.divc(end, self.spec.every as i64) };
        }
        if self.causal {
            let count = b.sub(position, first);
            return Range { first, count: b.addc(count, 1) };
        }
        let end = args.end(b, token);
        b.assume(end, &[6, 1001]);
        let end = match self.spec.window {
            Some(window) => {
                let most = b.addc(position, window.min(i32::MAX as usize / 2) as i64);
                b.min(end, most)
            }
            None => end,
        };
        Range { first, count: b.sub(end, first) }
    }

    /// The sink of a query head in base 2, if heads have one.
    pub(super) fn sink(&self, b: &mut Builder, args: Args<'_>, head: V) -> Option<V> {
        let sinks = self.sinks?;
        let offset = b.shlc(head, 2);
        let p = b.at(args.operand(sinks), offset);
        let sink = b.load_const(p, F32);
        let base2 = b.f32(std::f32::consts::LOG2_E);
        Some(b.fmul(sink, base2))
    }

    /// The sum of a row's weights, relative to `maximum`, with that of its head's sink.
    pub(super) fn with_sink(&self, b: &mut Builder, args: Args<'_>, head: V, (maximum, sum): (V, V)) -> V {
        let Some(sink) = self.sink(b, args, head) else { return sum };
        let x = b.fsub(sink, maximum);
        let weight = b.exp2(x);
        b.fadd(sum, weight)
    }

    /// The score, in base 2, of the key in a slot of a page in query head `head` at `position`, with
    /// what it gets by its distance.
    pub(super) fn biased(
        &self,
        b: &mut Builder,
        args: Args<'_>,
        (head, position): (V, V),
        (page, slot): (V, V),
        score: V,
    ) -> V {
        let Some((bias, goes_by)) = self.bias else { return score };
        let key = b.shlc(page, 4);
        let key = b.add(key, slot);
        let distance = b.sub(key, position);
        let of_head = b.mulc(head, goes_by.width() as i64);
        let log2 = std::f32::consts::LOG2_E;
        let (at, factor) = match goes_by {
            ScoreBias::Slopes => {
                let zero = b.i32(0);
                let back = b.sub(zero, distance);
                let far = b.smax(distance, back);
                let far = b.sitofp(far, F32);
                let per_slope = b.f32(-log2);
                (of_head, b.fmul(far, per_slope))
            }
            ScoreBias::Distances(reach) => {
                let (most, zero) = (b.i32(2 * reach as i64), b.i32(0));
                let at = b.addc(distance, reach as i64);
                let at = b.smax(at, zero);
                let at = b.min(at, most);
                (b.add(of_head, at), b.f32(log2))
            }
            ScoreBias::Positions(count) => {
                let last = b.i32(count as i64 - 1);
                let at = b.min(key, last);
                (b.add(of_head, at), b.f32(log2))
            }
        };
        let offset = b.shlc(at, 2);
        let p = b.at(args.operand(bias), offset);
        let bias = b.load_const(p, F32);
        b.fma(bias, factor, score)
    }

    /// First position that a token at `position` sees.
    pub(super) fn first_seen(&self, b: &mut Builder, position: V) -> V {
        let zero = b.i32(0);
        match self.spec.window {
            Some(chunk) if self.chunked => {
                let of_chunk = b.remc(position, chunk.min(i32::MAX as usize) as i64);
                b.sub(position, of_chunk)
            }
            Some(window) => {
                let first = b.addc(position, 1 - window.min(i32::MAX as usize) as i64);
                b.smax(first, zero)
            }
            None => zero,
        }
    }
}

/// Positions that a row sees.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) first: V,
    pub(super) count: V,
}
