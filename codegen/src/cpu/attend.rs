//! Attention by the microkernel [`llmcc_abi::Uk::Attend`]: consecutive tokens of one sequence and
//! all query heads of a KV head in one call, so that keys and values are widened once for all of
//! them.
//!
//! A thread cuts its range of items into runs of tokens that belong to one sequence; a step of a
//! single token, whose bound is memory, into runs of KV heads, which the microkernel goes through
//! together, page by page: alone, a KV head reads 1 or 2 KB here and there, at half the bandwidth.
//! Results do not depend on the cuts: the microkernel treats every token alike.
//!
//! In steps of few tokens a thread's range may begin or end within a (token, KV head): it has some
//! of the sixteen parts of that context. A thread leaves its blocks' results in the slot of the
//! first boundary between threads that lies inside, and the thread that finishes the last block
//! merges them and rounds the result. Nobody waits.

use super::attention::{Item, tokens};
use super::emit::{Emit, I32, I64};
use super::frame::Frame;
use super::microkernel::Microkernel;
use super::{Lowering, quant, wide};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::layout::{self, Page};
use llmcc_abi::{
    ATTEND_PARTS, ATTEND_SPLIT_TOKENS, AttendArgs, AttendMore, AttendWith, PAGE_TOKENS, StepCtx, Uk, attend_shared,
    attend_work,
};
use llmcc_ir::eval::ScoreBias;
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Attention, ParamId, RowElem};
use llmcc_ir::kv::{First, KvSpec};
use llmcc_ir::plan::row_bytes;
use std::mem::offset_of;

struct Plan {
    /// Whether the call needs [`AttendMore`].
    with: bool,
    /// The f32 vector of sinks.
    sinks: Option<ParamId>,
    /// The f32 vector that is added to scores, and its index.
    bias: Option<ParamId>,
    biased: Option<ScoreBias>,
    /// The f32 vectors of keys and queries of distances, and how far these go.
    relative: Option<([ParamId; 2], usize)>,
    /// In a latent cache: queries of the part stored as keys.
    own: Option<ParamId>,
    causal: bool,
    chunked: bool,
    /// Rows of numbers of selected rows of the cache, and how many there are in a list.
    selected: Option<(ParamId, usize)>,
    /// Each KV head has as many numbers of its own.
    by_head: bool,
    /// Heads whose maxima and sums come after the values.
    sums_of: Option<usize>,
    softcap: f32,
    spec: KvSpec,
    page: Page,
    /// Query heads per KV head.
    heads: usize,
    /// Work items of a token.
    kv_units: usize,
    /// Columns of the queries, and of the results, of one KV head.
    query_width: usize,
    width: usize,
    out_cols: usize,
    out_elem: RowElem,
    /// Scratch: the arguments of a call.
    args: usize,
    /// Scratch: results of a run before they are rounded.
    sums: usize,
    /// Scratch of the microkernel.
    work: usize,
}

/// Where a field of [`AttendMore`] lies in the arguments.
const fn more(field: usize) -> usize {
    offset_of!(AttendWith, more) + field
}

/// A part of a context, or tokens with all of theirs.
struct Work {
    at: Item,
    /// Row of the block table.
    seq: Value,
    /// Tokens, and KV heads: more than one only of either.
    count: Value,
    kv_heads: Value,
    /// Parts `from..to` of [`ATTEND_PARTS`].
    from: Value,
    to: Value,
    /// Memory shared with those who have the other parts.
    shared: Value,
}

/// Emits the items `lo..hi`; returns [`llmcc_abi::KernelDesc::shared_per_block`].
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Attention) -> usize {
    let plan = Plan::new(low, frame, k);
    let call = e.offset(low.args.scratch, plan.args);
    let block = tokens(plan.heads);
    plan.constants(low, e, k, call);
    let seqs = low.args.step(e, offset_of!(StepCtx, seqs));
    let (lo, hi) = bounds(low, e);
    e.walk(lo, hi, |e, unit| {
        let (item, from) = e.div_mod(unit, ATTEND_PARTS);
        let at = Item::new(low, e, item, block);
        let left = e.sub(hi, unit);
        let (items, _) = e.div_mod(left, ATTEND_PARTS);
        // Whole contexts of as many tokens as there are, or a part of one.
        let start = e.b.ins().icmp_imm_u(IntCC::Equal, from, 0);
        let some = e.b.ins().icmp_imm_u(IntCC::NotEqual, items, 0);
        let whole = e.b.ins().band(start, some);
        let (one, all) = (e.int(1), e.int(ATTEND_PARTS as i64));
        // Each token has a selection of its own.
        let tokens = if plan.selected.is_some() { one } else { e.b.ins().select(whole, items, one) };
        let limit = e.add(at.token, tokens);
        let limit = e.min(limit, at.end);
        let p = e.index(seqs, at.token, 4);
        let seq = e.load_index(p, 0);
        let next = e.offset(at.token, 1);
        let end = e.scan(next, limit, |e, token| {
            let p = e.index(seqs, token, 4);
            let other = e.load_index(p, 0);
            e.compare(IntCC::Equal, other, seq)
        });
        let count = e.sub(end, at.token);
        let to = e.add(from, left);
        let to = e.min(to, all);
        // A single token takes all KV heads that are to be done whole.
        let single = e.b.ins().icmp_imm_u(IntCC::Equal, low.args.m, 1);
        let together = e.b.ins().band(whole, single);
        let most = e.int(block as i64);
        let heads = e.min(items, most);
        // Each KV head may have a selection of its own.
        let kv_heads = if plan.by_head { one } else { e.b.ins().select(together, heads, one) };
        let shared = slot(low, e, item, plan.kv_units);
        plan.run(low, e, k, call, &Work { at, seq, count, kv_heads, from, to, shared });
        let done = e.sub(to, from);
        let done = e.b.ins().imul(done, count);
        let done = e.b.ins().imul(done, kv_heads);
        e.add(unit, done)
    });
    attend_shared(plan.heads, plan.spec.value_dim)
}

/// The range of items; in steps of many tokens, which are work enough, moved up to whole tokens.
pub(super) fn bounds(low: &Lowering, e: &mut Emit) -> (Value, Value) {
    let few = e.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, low.args.m, ATTEND_SPLIT_TOKENS as i64);
    let mut bound = |x: Value| {
        let up = e.offset(x, ATTEND_PARTS - 1);
        let up = e.b.ins().band_imm_s(up, -(ATTEND_PARTS as i64));
        e.b.ins().select(few, x, up)
    };
    (bound(low.args.lo), bound(low.args.hi))
}

/// The slot of the first boundary between threads inside a (token, KV head): thread `t` begins at
/// `units * t / threads`, so that is the smallest `t` with `t >= (first + 1) * threads / units`,
/// less one since nothing ends before thread 0.
pub(super) fn slot(low: &Lowering, e: &mut Emit, item: Value, kv_units: usize) -> Value {
    let units = e.times(low.args.m, kv_units);
    let threads = low.args.step(e, offset_of!(StepCtx, threads));
    let first = e.times(item, ATTEND_PARTS);
    let inside = e.offset(first, 1);
    let scaled = e.b.ins().imul(inside, threads);
    let scaled = e.b.ins().iadd_imm_s(scaled, -1);
    // The quotient rounded up, less one.
    let number = e.b.ins().udiv(scaled, units);
    let stride = low.args.step(e, offset_of!(StepCtx, shared_stride));
    let at = e.b.ins().imul(number, stride);
    let shared = low.args.step(e, offset_of!(StepCtx, shared));
    e.add(shared, at)
}

/// The row of the block table with this number.
pub(super) fn pages(low: &Lowering, e: &mut Emit, seq: Value) -> Value {
    let tables = low.args.step(e, offset_of!(StepCtx, block_tables));
    let stride = low.args.step(e, offset_of!(StepCtx, block_stride));
    let first = e.b.ins().imul(seq, stride);
    e.index(tables, first, 4)
}

impl Plan {
    fn new(low: &Lowering, frame: &mut Frame, k: &Attention) -> Plan {
        // All fields are named here, used or not, so that a new one is not overlooked.
        let Attention { q: _, own, kv, out, heads, scale: _, softcap, sinks, bias, relative, .. } = *k;
        let Attention { causal, chunked, sums, selected, by_head, tile_m: _, .. } = *k;
        let spec = low.kernel.kv(kv);
        let (out_cols, out_elem) = low.rows(out);
        let heads = heads / spec.kv_heads;
        let width = heads * spec.value_dim;
        let query = if spec.latent { spec.value_dim } else { spec.key_dim };
        let rounded = out_elem != RowElem::F32;
        let with = softcap.is_some() || sinks.is_some() || bias.is_some() || !causal || chunked || !spec.uniform();
        let with = with || sums || selected.is_some() || spec.first.is_some();
        Plan {
            with,
            sinks,
            bias,
            biased: k.biased(&low.kernel.params),
            relative: relative.zip(k.reach(&low.kernel.params)),
            own,
            causal,
            chunked,
            selected: selected.map(|p| (p, low.cols(p) / k.lists(&spec))),
            by_head,
            sums_of: sums.then_some(k.heads),
            softcap: softcap.map_or(0.0, F32::get),
            spec,
            page: spec.page(),
            heads,
            kv_units: spec.kv_heads * ATTEND_PARTS,
            query_width: heads * query,
            width,
            out_cols,
            out_elem,
            args: frame.bytes(if with { size_of::<AttendWith>() } else { size_of::<AttendArgs>() }),
            sums: frame.floats(if rounded { tokens(heads) * width } else { 0 }),
            work: frame.floats(attend_work(tokens(heads) * heads, spec.key_dim.max(spec.value_dim))),
        }
    }

    /// Stores the arguments that are the same in every call.
    fn constants(&self, low: &Lowering, e: &mut Emit, k: &Attention, call: Value) {
        let row = |of_head: usize| row_bytes(self.spec.kv_heads * of_head, RowElem::F32);
        let out_stride =
            if self.out_elem == RowElem::F32 { row_bytes(self.out_cols, RowElem::F32) } else { self.width * 4 };
        let numbers = [
            (offset_of!(AttendArgs, q_stride), row(self.query_width)),
            (offset_of!(AttendArgs, heads), self.heads),
            (offset_of!(AttendArgs, d), self.spec.key_dim),
            (offset_of!(AttendArgs, window), self.spec.window.unwrap_or(0)),
            (offset_of!(AttendArgs, page_bytes), self.page.bytes),
            (offset_of!(AttendArgs, out_stride), out_stride),
        ];
        e.store_ints(call, &numbers);
        let dtype = e.b.ins().iconst(I32, i64::from(self.spec.dtype.number()));
        e.store(dtype, call, offset_of!(AttendArgs, dtype));
        let scale = e.float(k.scale.get());
        e.store(scale, call, offset_of!(AttendArgs, scale));
        e.store(low.args.operand(k.kv), call, offset_of!(AttendArgs, pool));
        let work = e.offset(low.args.scratch, self.work);
        e.store(work, call, offset_of!(AttendArgs, work));
        if self.with {
            let (softcap, none) = (e.float(self.softcap), e.int(0));
            e.store(softcap, call, more(offset_of!(AttendMore, softcap)));
            e.store(none, call, more(offset_of!(AttendMore, sinks)));
            e.store(none, call, more(offset_of!(AttendMore, ends)));
            e.store(none, call, more(offset_of!(AttendMore, own)));
            e.store(none, call, more(offset_of!(AttendMore, bias)));
            let (reach, slots) = match self.biased {
                None | Some(ScoreBias::Slopes) => (0, 0),
                Some(ScoreBias::Distances(reach)) => (reach, 0),
                Some(ScoreBias::Positions(slots)) => (0, slots),
            };
            let reach = self.relative.map_or(reach, |(_, reach)| reach);
            e.store(none, call, more(offset_of!(AttendMore, relative_keys)));
            e.store(none, call, more(offset_of!(AttendMore, relative_queries)));
            for (number, at) in [(reach, offset_of!(AttendMore, reach)), (slots, offset_of!(AttendMore, bias_slots))] {
                let number = e.b.ins().iconst(I32, number as i64);
                e.store(number, call, more(at));
            }
            let chunked = e.b.ins().iconst(I32, i64::from(self.chunked));
            e.store(chunked, call, more(offset_of!(AttendMore, chunked)));
            self.counts(e, call);
            e.store(none, call, more(offset_of!(AttendMore, selected)));
            let count = e.int(self.selected.map_or(0, |(_, count)| count) as i64);
            e.store(count, call, more(offset_of!(AttendMore, selected_count)));
            e.store(none, call, more(offset_of!(AttendMore, sums)));
            let values = e.b.ins().iconst(I32, self.spec.value_dim as i64);
            e.store(values, call, more(offset_of!(AttendMore, values)));
            let own_stride = e.int(row(self.own_width()) as i64);
            e.store(own_stride, call, more(offset_of!(AttendMore, own_stride)));
        }
    }

    /// Stores which tokens have a row, and where sums go.
    fn counts(&self, e: &mut Emit, call: Value) {
        let First { rows, behind } = self.spec.first.unwrap_or(First { rows: 0, behind: 0 });
        for (value, at) in [
            (self.spec.every, offset_of!(AttendMore, every)),
            (rows, offset_of!(AttendMore, first)),
            (behind, offset_of!(AttendMore, behind)),
            (self.sums_of.unwrap_or(0), offset_of!(AttendMore, sums_after)),
        ] {
            let value = e.b.ins().iconst(I32, value as i64);
            e.store(value, call, more(at));
        }
    }

    /// Columns of the queries of the part that one KV head stores as keys.
    fn own_width(&self) -> usize {
        self.heads * self.spec.own_dim()
    }

    /// Stores the arguments that only [`Uk::AttendWith`] takes.
    fn store_more(&self, low: &Lowering, e: &mut Emit, call: Value, (at, q, results): (&Item, Value, Value)) {
        if let Some(sinks) = self.sinks {
            let sinks = e.index(low.args.operand(sinks), at.head, self.heads * 4);
            e.store(sinks, call, more(offset_of!(AttendMore, sinks)));
        }
        if let Some(bias) = self.bias {
            let width = self.biased.map_or(1, ScoreBias::width);
            let bias = e.index(low.args.operand(bias), at.head, self.heads * width * 4);
            e.store(bias, call, more(offset_of!(AttendMore, bias)));
        }
        if let Some((tables, reach)) = self.relative {
            let fields = [offset_of!(AttendMore, relative_keys), offset_of!(AttendMore, relative_queries)];
            for (table, field) in tables.into_iter().zip(fields) {
                let of_head = self.query_width * (2 * reach + 1) * 4;
                let table = e.index(low.args.operand(table), at.head, of_head);
                e.store(table, call, more(field));
            }
        }
        if let Some(own) = self.own {
            let row = row_bytes(self.spec.kv_heads * self.own_width(), RowElem::F32);
            let own = e.index(low.args.operand(own), at.token, row);
            let own = e.index(own, at.head, self.own_width() * 4);
            e.store(own, call, more(offset_of!(AttendMore, own)));
        } else if self.spec.latent {
            // Queries of nothing, which are anywhere.
            e.store(q, call, more(offset_of!(AttendMore, own)));
        }
        if let Some((rows, count)) = self.selected {
            let mut numbers = e.index(low.args.operand(rows), at.token, row_bytes(low.cols(rows), RowElem::F32));
            if self.by_head {
                numbers = e.index(numbers, at.head, row_bytes(count, RowElem::F32));
            }
            e.store(numbers, call, more(offset_of!(AttendMore, selected)));
        }
        if self.sums_of.is_some() {
            // Results belong to this KV head; sums lie behind all heads' results.
            let before = e.times(at.head, self.width * 4);
            let row = e.sub(results, before);
            let sums = e.offset(row, self.spec.kv_heads * self.width * 4);
            let sums = e.index(sums, at.head, self.heads * 4);
            e.store(sums, call, more(offset_of!(AttendMore, sums)));
        }
        if !self.causal {
            let ends = low.args.step(e, offset_of!(StepCtx, ends));
            let ends = e.index(ends, at.token, 4);
            e.store(ends, call, more(offset_of!(AttendMore, ends)));
        }
    }

    /// Tokens of one sequence from the item's token on.
    fn run(&self, low: &Lowering, e: &mut Emit, k: &Attention, call: Value, work: &Work) {
        let at = &work.at;
        let row = row_bytes(self.spec.kv_heads * self.query_width, RowElem::F32);
        let q = e.index(low.args.operand(k.q), at.token, row);
        let q = e.index(q, at.head, self.query_width * 4);
        let positions = low.args.step(e, offset_of!(StepCtx, positions));
        let positions = e.index(positions, at.token, 4);
        let pages = pages(low, e, work.seq);
        let keys = e.times(at.head, self.spec.head_bytes(true) * PAGE_TOKENS);
        let of_values = self.spec.head_bytes(false) * PAGE_TOKENS;
        let values = if self.spec.uniform() { keys } else { e.times(at.head, of_values) };
        let values = e.offset(values, self.page.v);
        let scales = e.times(at.head, PAGE_TOKENS * 4);
        let (k_scales, v_scales) = (e.offset(scales, self.page.k_scales), e.offset(scales, self.page.v_scales));
        let out = low.args.operand(k.out);
        let results = if self.out_elem == RowElem::F32 {
            let row = e.index(out, at.token, row_bytes(self.out_cols, RowElem::F32));
            e.index(row, at.head, self.width * 4)
        } else {
            e.offset(low.args.scratch, self.sums)
        };
        let values = [
            (offset_of!(AttendArgs, q), q),
            (offset_of!(AttendArgs, tokens), work.count),
            (offset_of!(AttendArgs, kv_heads), work.kv_heads),
            (offset_of!(AttendArgs, positions), positions),
            (offset_of!(AttendArgs, pages), pages),
            (offset_of!(AttendArgs, k), keys),
            (offset_of!(AttendArgs, v), values),
            (offset_of!(AttendArgs, k_scales), k_scales),
            (offset_of!(AttendArgs, v_scales), v_scales),
            (offset_of!(AttendArgs, out), results),
            (offset_of!(AttendArgs, part_from), work.from),
            (offset_of!(AttendArgs, part_to), work.to),
            (offset_of!(AttendArgs, shared), work.shared),
        ];
        e.store_all(call, &values);
        if self.with {
            self.store_more(low, e, call, (at, q, results));
        }
        let which = if self.with { Uk::AttendWith } else { Uk::Attend };
        let called = Microkernel::new(low, e, which, &[I64], &[I64]).call(e, &[call]);
        let complete = e.b.inst_results(called)[0];
        if let Some(group) = self.out_elem.group() {
            e.when(complete, |e| self.quantize(low, e, out, work, results, group));
        } else if self.out_elem == RowElem::Bf16 {
            e.when(complete, |e| self.shorten(low, e, out, work, results));
        }
    }

    /// Runs `body(index, token, KV head)` for each result of a run.
    fn each(&self, e: &mut Emit, work: &Work, body: impl FnOnce(&mut Emit, Value, Value, Value)) {
        let (zero, count) = (e.int(0), e.b.ins().imul(work.count, work.kv_heads));
        let tokens = e.b.ins().icmp_imm_u(IntCC::Equal, work.kv_heads, 1);
        e.each(zero, count, 1, |e, i| {
            let (token, head) = (e.b.ins().select(tokens, i, zero), e.b.ins().select(tokens, zero, i));
            let (token, head) = (e.add(work.at.token, token), e.add(work.at.head, head));
            body(e, i, token, head);
        });
    }

    /// Rounds the results of a run to bf16 rows.
    fn shorten(&self, low: &Lowering, e: &mut Emit, out: Value, work: &Work, results: Value) {
        self.each(e, work, |e, i, token, head| {
            let row = e.index(out, token, row_bytes(self.out_cols, RowElem::Bf16));
            let row = e.index(row, head, self.width * 2);
            let x = e.index(results, i, self.width * 4);
            let width = e.int(self.width as i64);
            wide::round_bf16(low, e, x, width, row);
        });
    }

    /// Rounds the results of a run to int8 rows.
    fn quantize(&self, low: &Lowering, e: &mut Emit, out: Value, work: &Work, results: Value, group: usize) {
        let layout = layout::q8_row(self.out_cols, group);
        self.each(e, work, |e, i, token, head| {
            let row = e.index(out, token, layout.bytes);
            let x = e.index(results, i, self.width * 4);
            let first = e.times(head, self.width);
            let width = e.int(self.width as i64);
            quant::quantize(low, e, x, width, row, first, &layout, self.out_elem);
        });
    }
}
