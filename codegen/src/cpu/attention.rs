//! Attention over the paged cache: online softmax, page by page. The 128-bit version; `attend.rs`
//! calls the microkernel instead.
//!
//! A work item is a part of a token and a KV head ([`Item`]); all query heads of that KV head share
//! each page, so the cache is read once. For each page: 16 scores (vectors over tokens), masked
//! outside the causal window (masked scores and probabilities are *replaced*: unwritten slots may
//! hold anything), new maximum, probabilities, and the weighted sum of values over the valid slots.
//! The order depends on the token's position alone.

mod pages;

use super::Lowering;
use super::emit::{Emit, F32, LANES};
use super::frame::Frame;
use super::quant;
use super::store::page_address;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::layout::{self, Page};
use llmcc_abi::{ATTEND_PARTS, ATTEND_ROWS, PAGE_TOKENS, StepCtx};
use llmcc_ir::kernel::{Attention, ParamId, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::row_bytes;
use std::mem::offset_of;

/// Score vectors of a page.
const VECTORS: usize = PAGE_TOKENS / LANES;

struct Plan {
    spec: KvSpec,
    page: Page,
    /// Query heads per KV head.
    heads_per_kv: usize,
    heads: usize,
    scale: f32,
    out_cols: usize,
    out_elem: RowElem,
    /// Scratch: K and V of a page in f32, unless the cache is f32.
    k_buffer: usize,
    v_buffer: usize,
    /// Scratch: the 16 probabilities of a page.
    probabilities: usize,
    /// Scratch: per query head the maximum and the sum so far.
    state: usize,
    /// In a latent cache: queries of the part stored as keys; scratch for both parts of the
    /// queries, `[heads_per_kv][key_dim]`.
    own: Option<ParamId>,
    query: usize,
    /// Scratch: weighted sums `[heads_per_kv][value_dim]`.
    sums: usize,
}

/// A page as the inner loops see it.
struct Tile {
    /// `[key_dim][16]` f32.
    k: Value,
    /// `[16][value_dim]` f32.
    v: Value,
    /// Valid slots `from..to`.
    from: Value,
    to: Value,
    /// The same as masks.
    valid: [Value; VECTORS],
}

/// Consecutive tokens of an item, where `heads` query heads share a KV head: as many rows as the
/// microkernel takes at once, so that many rows share widened pages.
pub(super) const fn tokens(heads: usize) -> usize {
    let most = ATTEND_ROWS / heads;
    if most < LEAST { LEAST } else { most / LEAST * LEAST }
}

/// See [`tokens`].
const LEAST: usize = 16;

/// The tokens and the head of a work item.
///
/// Items of a KV head follow each other, so that a thread's range of items keeps to few heads.
/// Within a head, blocks of [`tokens`] come in the order first, last, second, last but one...:
/// later tokens of a prompt see more of it, and this way every range holds about equal shares. The
/// rest after whole blocks comes last.
pub(super) struct Item {
    /// KV head.
    pub head: Value,
    /// Token.
    pub token: Value,
    /// The tokens `token..end` belong to this item and those right after it.
    pub end: Value,
}

impl Item {
    /// Item number `item` of `kv_heads · T`, in blocks of `tokens`.
    pub fn new(low: &Lowering, e: &mut Emit, item: Value, tokens: usize) -> Item {
        let m = low.args.m;
        let head = e.b.ins().udiv(item, m);
        let first = e.b.ins().imul(head, m);
        let j = e.sub(item, first);
        let (blocks, _) = e.div_mod(m, tokens);
        let whole = e.times(blocks, tokens);
        let (block, within) = e.div_mod(j, tokens);
        let (half, odd) = e.div_mod(block, 2);
        let last = e.b.ins().iadd_imm_s(blocks, -1);
        let mirrored = e.sub(last, half);
        let is_odd = e.b.ins().icmp_imm_u(IntCC::NotEqual, odd, 0);
        let block = e.b.ins().select(is_odd, mirrored, half);
        let start = e.times(block, tokens);
        let (folded, end) = (e.add(start, within), e.offset(start, tokens));
        let in_block = e.compare(IntCC::SignedLessThan, j, whole);
        Item { head, token: e.b.ins().select(in_block, folded, j), end: e.b.ins().select(in_block, end, m) }
    }
}

/// Emits the items `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Attention) {
    let plan = Plan::new(low, frame, k);
    let block = tokens(plan.heads_per_kv);
    let positions = low.args.step(e, offset_of!(StepCtx, positions));
    let seqs = low.args.step(e, offset_of!(StepCtx, seqs));
    // Items come in parts, which threads may divide; here who has the first part has them all.
    let [lo, hi] = [low.args.lo, low.args.hi].map(|bound| {
        let bound = e.offset(bound, ATTEND_PARTS - 1);
        e.div_mod(bound, ATTEND_PARTS).0
    });
    e.each(lo, hi, 1, |e, item| {
        let Item { head, token, .. } = Item::new(low, e, item, block);
        let p = e.index(positions, token, 4);
        let position = e.load_index(p, 0);
        let p = e.index(seqs, token, 4);
        let seq = e.load_index(p, 0);
        plan.reset(low, e);
        let end = e.offset(position, 1);
        let first = match plan.spec.window {
            Some(window) => {
                let zero = e.int(0);
                let first = e.b.ins().iadd_imm_s(end, -(window as i64));
                e.max(first, zero)
            }
            None => e.int(0),
        };
        let (first_page, _) = e.div_mod(first, PAGE_TOKENS);
        let (last_page, _) = e.div_mod(position, PAGE_TOKENS);
        let end_page = e.offset(last_page, 1);
        let queries = plan.queries(low, e, k.q, token, head);
        e.each(first_page, end_page, 1, |e, number| {
            let page = page_address(low, e, &plan.spec, low.args.operand(k.kv), seq, number);
            let start = e.times(number, PAGE_TOKENS);
            let (from, to) = (e.sub(first, start), e.sub(end, start));
            let (zero, all) = (e.int(0), e.int(PAGE_TOKENS as i64));
            let (from, to) = (e.max(from, zero), e.min(to, all));
            let tile = plan.load(low, e, page, head, from, to);
            plan.each_head(low, e, queries, |e, query, state, sums| plan.head(low, e, &tile, query, state, sums));
        });
        plan.each_head(low, e, queries, |e, _, state, sums| plan.finish(e, state, sums));
        plan.store(low, e, low.args.operand(k.out), token, head);
    });
}

impl Plan {
    fn new(low: &Lowering, frame: &mut Frame, k: &Attention) -> Plan {
        let spec = low.kernel.kv(k.kv);
        let (out_cols, out_elem) = low.rows(k.out);
        let heads_per_kv = k.heads / spec.kv_heads;
        let (k_buffer, v_buffer) = match spec.dtype {
            KvDType::F32 if !spec.latent => (0, 0),
            KvDType::F32 | KvDType::F16 | KvDType::Bf16 | KvDType::Int8 | KvDType::Int4 => {
                (frame.floats(spec.key_dim * PAGE_TOKENS), frame.floats(spec.value_dim * PAGE_TOKENS))
            }
        };
        Plan {
            spec,
            page: spec.page(),
            heads_per_kv,
            heads: k.heads,
            scale: k.scale.get(),
            out_cols,
            out_elem,
            k_buffer,
            v_buffer,
            probabilities: frame.floats(PAGE_TOKENS),
            state: frame.floats(heads_per_kv * 2),
            own: k.own,
            query: if k.own.is_some() { frame.floats(heads_per_kv * spec.key_dim) } else { 0 },
            sums: frame.floats(heads_per_kv * spec.value_dim),
        }
    }

    /// Nothing seen yet: maximum −∞, sums 0.
    fn reset(&self, low: &Lowering, e: &mut Emit) {
        let (none, zero) = (e.float(f32::NEG_INFINITY), e.float(0.0));
        e.each_fixed(self.heads_per_kv * 8, 8, |e, at| {
            let p = e.add(low.args.scratch, at);
            e.store(none, p, self.state);
            e.store(zero, p, self.state + 4);
        });
        let zeros = e.floats(0.0);
        // The buffer is a multiple of 64 bytes.
        e.each_fixed(self.heads_per_kv * self.spec.value_dim * 4, 16, |e, at| {
            let p = e.add(low.args.scratch, at);
            e.store(zeros, p, self.sums);
        });
    }

    /// The queries of a token's heads that share a KV head, `[heads_per_kv][key_dim]`: where they
    /// lie, or, in two parts, brought together.
    fn queries(&self, low: &Lowering, e: &mut Emit, q: ParamId, token: Value, head: Value) -> Value {
        let part = |e: &mut Emit, of: ParamId, d: usize| {
            let row = e.index(low.args.operand(of), token, self.heads * d * 4);
            e.index(row, head, self.heads_per_kv * d * 4)
        };
        let Some(own) = self.own else { return part(e, q, self.spec.key_dim) };
        let to = e.offset(low.args.scratch, self.query);
        let (first, rest) = (self.spec.own_dim(), self.spec.value_dim);
        for (of, d, at) in [(own, first, 0), (q, rest, first)] {
            let from = part(e, of, d);
            let to = e.offset(to, at * 4);
            e.each_fixed(self.heads_per_kv, 1, |e, head| {
                let (from, to) = (e.index(from, head, d * 4), e.index(to, head, (first + rest) * 4));
                e.each_fixed(d, 1, |e, i| {
                    let (from, to) = (e.index(from, i, 4), e.index(to, i, 4));
                    let x = e.load(F32, from, 0);
                    e.store(x, to, 0);
                });
            });
        }
        to
    }

    /// Calls `body` for each query head with its query, state and sums.
    fn each_head(
        &self,
        low: &Lowering,
        e: &mut Emit,
        queries: Value,
        body: impl FnOnce(&mut Emit, Value, Value, Value),
    ) {
        let state = e.offset(low.args.scratch, self.state);
        let sums = e.offset(low.args.scratch, self.sums);
        let (query, values) = (self.spec.key_dim * 4, self.spec.value_dim * 4);
        e.fixed(self.heads_per_kv, 1, &[queries, state, sums], |e, _, c| {
            body(e, c[0], c[1], c[2]);
            vec![e.offset(c[0], query), e.offset(c[1], 8), e.offset(c[2], values)]
        });
    }

    /// Adds a page to a query head.
    fn head(&self, low: &Lowering, e: &mut Emit, tile: &Tile, query: Value, state: Value, sums: Value) {
        let zero = e.floats(0.0);
        let d = self.spec.key_dim;
        // Unrolled: a loop turn copies its accumulators.
        let unroll = if d.is_multiple_of(4) { 4 } else { 1 };
        let scores = e.fixed(d, unroll, &[zero; VECTORS], |e, i, acc| {
            let q = e.index(query, i, 4);
            let k = e.index(tile.k, i, PAGE_TOKENS * 4);
            let mut acc = acc.to_vec();
            for step in 0..unroll {
                let q = e.load_splat(q, step * 4);
                for (v, acc) in acc.iter_mut().enumerate() {
                    let k = e.load_lanes(k, step * PAGE_TOKENS * 4 + v * 16, LANES);
                    *acc = e.fma(k, q, *acc);
                }
            }
            acc
        });
        let (scale, none) = (e.floats(self.scale), e.floats(f32::NEG_INFINITY));
        let scores: Vec<Value> = scores
            .iter()
            .zip(tile.valid)
            .map(|(s, valid)| {
                let s = e.fmul(*s, scale);
                e.choose(valid, s, none)
            })
            .collect();
        let (a, b) = (e.fmax(scores[0], scores[1]), e.fmax(scores[2], scores[3]));
        let largest = e.fmax(a, b);
        let largest = e.max_lane_float(largest);
        let old = e.load(F32, state, 0);
        let maximum = e.max_float(old, largest);
        e.store(maximum, state, 0);
        let (maximum, old) = (e.splat(maximum), e.splat(old));
        let probabilities = e.offset(low.args.scratch, self.probabilities);
        let mut total = zero;
        for (i, (s, valid)) in scores.iter().zip(tile.valid).enumerate() {
            let x = e.fsub(*s, maximum);
            let x = e.exp(x);
            let x = e.choose(valid, x, zero);
            e.store(x, probabilities, i * 16);
            total = e.fadd(total, x);
        }
        let change = e.fsub(old, maximum);
        let change = e.exp(change);
        let total = e.sum_lanes(total);
        let sum = e.load(F32, state, 4);
        let factor = e.lane(change, 0);
        let sum = e.fmul(sum, factor);
        let sum = e.fadd(sum, total);
        e.store(sum, state, 4);
        self.weigh(e, tile, probabilities, change, sums);
    }

    /// `sums = sums·change + Σ p[t]·V[t]` over the valid slots, 32 columns at a time.
    fn weigh(&self, e: &mut Emit, tile: &Tile, probabilities: Value, change: Value, sums: Value) {
        const COLUMNS: usize = 32;
        let d = self.spec.value_dim;
        let whole = d / COLUMNS * COLUMNS;
        e.each_fixed(whole * 4, COLUMNS * 4, |e, at| {
            let (v, sums) = (e.add(tile.v, at), e.add(sums, at));
            self.weigh_columns(e, tile, probabilities, change, v, sums, COLUMNS);
        });
        if whole < d {
            let (v, sums) = (e.offset(tile.v, whole * 4), e.offset(sums, whole * 4));
            self.weigh_columns(e, tile, probabilities, change, v, sums, d - whole);
        }
    }

    fn weigh_columns(
        &self,
        e: &mut Emit,
        tile: &Tile,
        probabilities: Value,
        change: Value,
        v: Value,
        sums: Value,
        count: usize,
    ) {
        const UNROLL: usize = 4;
        let stride = self.spec.value_dim * 4;
        let lanes: Vec<usize> = (0..count).step_by(LANES).map(|i| LANES.min(count - i)).collect();
        let start: Vec<Value> = lanes
            .iter()
            .enumerate()
            .map(|(i, lanes)| {
                let x = e.load_lanes(sums, i * 16, *lanes);
                e.fmul(x, change)
            })
            .collect();
        let add_slots = |e: &mut Emit, slot: Value, slots: usize, acc: &[Value]| {
            let p = e.index(probabilities, slot, 4);
            let v = e.index(v, slot, stride);
            let mut acc = acc.to_vec();
            for s in 0..slots {
                let p = e.load_splat(p, s * 4);
                for (i, (acc, lanes)) in acc.iter_mut().zip(&lanes).enumerate() {
                    let v = e.load_lanes(v, s * stride + i * 16, *lanes);
                    *acc = e.fma(v, p, *acc);
                }
            }
            acc
        };
        let slots = e.sub(tile.to, tile.from);
        let whole = e.b.ins().band_imm_s(slots, -(UNROLL as i64));
        let middle = e.add(tile.from, whole);
        let acc = e.range(tile.from, middle, UNROLL, &start, |e, slot, acc| add_slots(e, slot, UNROLL, acc));
        let acc = e.range(middle, tile.to, 1, &acc, |e, slot, acc| add_slots(e, slot, 1, acc));
        for (i, (x, lanes)) in acc.iter().zip(&lanes).enumerate() {
            e.store_lanes(*x, sums, i * 16, *lanes);
        }
    }

    /// Divides by the sum of the probabilities.
    fn finish(&self, e: &mut Emit, state: Value, sums: Value) {
        let d = self.spec.value_dim;
        let total = e.load_splat(state, 4);
        let step = |e: &mut Emit, p: Value, lanes: usize| {
            let x = e.load_lanes(p, 0, lanes);
            let x = e.fdiv(x, total);
            e.store_lanes(x, p, 0, lanes);
        };
        let whole = d / LANES * LANES;
        e.each_fixed(whole * 4, 16, |e, at| {
            let p = e.add(sums, at);
            step(e, p, LANES);
        });
        if whole < d {
            let p = e.offset(sums, whole * 4);
            step(e, p, d - whole);
        }
    }

    /// Writes the columns of a KV head's queries.
    fn store(&self, low: &Lowering, e: &mut Emit, out: Value, token: Value, head: Value) {
        let count = self.heads_per_kv * self.spec.value_dim;
        let sums = e.offset(low.args.scratch, self.sums);
        let row = e.index(out, token, row_bytes(self.out_cols, self.out_elem));
        if let Some(group) = self.out_elem.group() {
            let first = e.times(head, count);
            let width = e.int(count as i64);
            let layout = layout::q8_row(self.out_cols, group);
            return quant::quantize(low, e, sums, width, row, first, &layout, self.out_elem);
        }
        let row = e.index(row, head, count * 4);
        let whole = count / LANES * LANES;
        e.each_fixed(whole * 4, 16, |e, at| {
            let (from, to) = (e.add(sums, at), e.add(row, at));
            let x = e.load_lanes(from, 0, LANES);
            e.store(x, to, 0);
        });
        if whole < count {
            let x = e.load_lanes(sums, whole * 4, count - whole);
            e.store_lanes(x, row, whole * 4, count - whole);
        }
    }
}
