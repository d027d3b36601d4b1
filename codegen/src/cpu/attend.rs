//! Attention by the microkernel [`llmcc_abi::Uk::Attend`]: consecutive tokens of one sequence and all query heads of a KV head in one call, so that
//! keys and values are widened once for all of them.
//!
//! A thread cuts its range of items into runs of tokens that belong to one sequence. Results do not depend on the cuts: the microkernel treats every token alike.

use super::attention::{Item, TOKENS};
use super::emit::{Emit, I32, I64, LANES};
use super::frame::Frame;
use super::{CodegenError, Lowering, quant};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Value};
use cranelift_codegen::isa::CallConv;
use llmcc_abi::layout::{self, Page};
use llmcc_abi::{ATTEND_PARTS, AttendArgs, PAGE_TOKENS, StepCtx, Uk, attend_work, kv_dtype};
use llmcc_ir::kernel::{Attention, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::row_bytes;
use std::mem::offset_of;

struct Plan {
    spec: KvSpec,
    page: Page,
    /// Query heads per KV head.
    heads: usize,
    /// Columns of the queries of one KV head.
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

/// Emits the items `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Attention) -> Result<(), CodegenError> {
    let plan = Plan::new(low, frame, k)?;
    let call = e.offset(low.args.scratch, plan.args);
    plan.constants(low, e, k, call);
    let seqs = low.args.step(e, offset_of!(StepCtx, seqs));
    e.walk(low.args.lo, low.args.hi, |e, item| {
        let at = Item::new(low, e, item);
        let left = e.sub(low.args.hi, item);
        let limit = e.add(at.token, left);
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
        plan.run(low, e, k, call, &at, seq, count);
        e.add(item, count)
    });
    Ok(())
}

impl Plan {
    fn new(low: &Lowering, frame: &mut Frame, k: &Attention) -> Result<Plan, CodegenError> {
        let spec = low.kv(k.kv)?;
        let d = spec.head_dim;
        let (out_cols, out_elem) = low.rows(k.out)?;
        if d == 0 || spec.kv_heads == 0 || k.heads == 0 || !k.heads.is_multiple_of(spec.kv_heads) {
            return Err(low.error(format!("{} query heads do not fit {spec}", k.heads)));
        }
        if low.f32_rows(k.q)? != k.heads * d || out_cols != k.heads * d {
            return Err(low.error(format!("queries and output must have {} columns", k.heads * d)));
        }
        let heads = k.heads / spec.kv_heads;
        let width = heads * d;
        match out_elem {
            RowElem::F32 | RowElem::Bf16 => {}
            RowElem::Q8 { group } if width.is_multiple_of(group) => {}
            RowElem::Q8 { group } => return Err(low.error(format!("int8 groups of {group} cut the {width} columns of a KV head"))),
            RowElem::F16 | RowElem::Fp8 => return Err(low.error("CPUs have no f16 or fp8 rows".into())),
        }
        let rounded = out_elem != RowElem::F32;
        Ok(Plan {
            spec,
            page: layout::page(spec.kv_heads, d, spec.dtype.bytes()),
            heads,
            width,
            out_cols,
            out_elem,
            args: frame.bytes(size_of::<AttendArgs>()),
            sums: frame.floats(if rounded { TOKENS * width } else { 0 }),
            work: frame.floats(attend_work(TOKENS * heads, d)),
        })
    }

    /// Stores the arguments that are the same in every call.
    fn constants(&self, low: &Lowering, e: &mut Emit, k: &Attention, call: Value) {
        let row = row_bytes(k.heads * self.spec.head_dim, RowElem::F32);
        let out_stride = if self.out_elem == RowElem::F32 { row } else { self.width * 4 };
        let numbers = [
            (offset_of!(AttendArgs, q_stride), row),
            (offset_of!(AttendArgs, heads), self.heads),
            (offset_of!(AttendArgs, d), self.spec.head_dim),
            (offset_of!(AttendArgs, window), self.spec.window.unwrap_or(0)),
            (offset_of!(AttendArgs, page_bytes), self.page.bytes),
            (offset_of!(AttendArgs, out_stride), out_stride),
            (offset_of!(AttendArgs, part_from), 0),
            (offset_of!(AttendArgs, part_to), ATTEND_PARTS),
        ];
        for (offset, number) in numbers {
            let number = e.int(number as i64);
            e.store(number, call, offset);
        }
        let dtype = match self.spec.dtype {
            KvDType::F32 => kv_dtype::F32,
            KvDType::F16 => kv_dtype::F16,
            KvDType::Bf16 => kv_dtype::BF16,
            KvDType::Int8 => kv_dtype::INT8,
        };
        let dtype = e.b.ins().iconst(I32, i64::from(dtype));
        e.store(dtype, call, offset_of!(AttendArgs, dtype));
        let scale = e.float(k.scale.get());
        e.store(scale, call, offset_of!(AttendArgs, scale));
        e.store(low.args.operand(k.kv), call, offset_of!(AttendArgs, pool));
        let work = e.offset(low.args.scratch, self.work);
        e.store(work, call, offset_of!(AttendArgs, work));
    }

    /// `count` tokens of sequence `seq` from the item's token on.
    fn run(&self, low: &Lowering, e: &mut Emit, k: &Attention, call: Value, at: &Item, seq: Value, count: Value) {
        let q = e.index(low.args.operand(k.q), at.token, row_bytes(k.heads * self.spec.head_dim, RowElem::F32));
        let q = e.index(q, at.head, self.width * 4);
        let positions = low.args.step(e, offset_of!(StepCtx, positions));
        let positions = e.index(positions, at.token, 4);
        let tables = low.args.step(e, offset_of!(StepCtx, block_tables));
        let stride = low.args.step(e, offset_of!(StepCtx, block_stride));
        let first = e.b.ins().imul(seq, stride);
        let pages = e.index(tables, first, 4);
        let part = self.spec.head_dim * PAGE_TOKENS * self.spec.dtype.bytes();
        let keys = e.times(at.head, part);
        let values = e.offset(keys, self.page.v);
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
            (offset_of!(AttendArgs, tokens), count),
            (offset_of!(AttendArgs, positions), positions),
            (offset_of!(AttendArgs, pages), pages),
            (offset_of!(AttendArgs, k), keys),
            (offset_of!(AttendArgs, v), values),
            (offset_of!(AttendArgs, k_scales), k_scales),
            (offset_of!(AttendArgs, v_scales), v_scales),
            (offset_of!(AttendArgs, out), results),
        ];
        for (offset, value) in values {
            e.store(value, call, offset);
        }
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.push(AbiParam::new(I64));
        signature.returns.push(AbiParam::new(I64));
        let signature = e.b.import_signature(signature);
        let function = super::rope::microkernel(low, e, Uk::Attend);
        e.b.ins().call_indirect(signature, function, &[call]);
        match self.out_elem {
            RowElem::Q8 { group } => self.quantize(e, out, at, count, results, group),
            RowElem::Bf16 => self.shorten(e, out, at, count, results),
            RowElem::F32 | RowElem::F16 | RowElem::Fp8 => {}
        }
    }

    /// Rounds the results of a run to bf16 rows.
    fn shorten(&self, e: &mut Emit, out: Value, at: &Item, count: Value, results: Value) {
        let zero = e.int(0);
        e.each(zero, count, 1, |e, i| {
            let token = e.add(at.token, i);
            let row = e.index(out, token, row_bytes(self.out_cols, RowElem::Bf16));
            let row = e.index(row, at.head, self.width * 2);
            let x = e.index(results, i, self.width * 4);
            let whole = self.width / LANES * LANES;
            e.each_fixed(whole, LANES, |e, col| {
                let (from, to) = (e.index(x, col, 4), e.index(row, col, 2));
                let v = e.load_lanes(from, 0, LANES);
                e.store_bf16(v, to, 0, LANES);
            });
            if whole < self.width {
                let v = e.load_lanes(x, whole * 4, self.width - whole);
                e.store_bf16(v, row, whole * 2, self.width - whole);
            }
        });
    }

    /// Rounds the results of a run to int8 rows.
    fn quantize(&self, e: &mut Emit, out: Value, at: &Item, count: Value, results: Value, group: usize) {
        let layout = layout::q8_row(self.out_cols, group);
        let zero = e.int(0);
        e.each(zero, count, 1, |e, i| {
            let token = e.add(at.token, i);
            let row = e.index(out, token, layout.bytes);
            let x = e.index(results, i, self.width * 4);
            let first = e.times(at.head, self.width);
            let width = e.int(self.width as i64);
            quant::quantize(e, x, width, row, first, &layout, group);
        });
    }
}
