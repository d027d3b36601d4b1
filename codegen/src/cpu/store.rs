//! Where results go: f32 rows, int8 rows, and pages of the KV cache.

use super::Lowering;
use super::emit::{Emit, LANES};
use super::expr::Program;
use super::frame::Frame;
use super::quant;
use super::span::Span;
use super::wide::{self, Halves};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::layout;
use llmcc_abi::{HalfKind, PAGE_TOKENS, StepCtx};
use llmcc_ir::kernel::{Expr, ParamId, RowElem, Store};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::row_bytes;
use std::mem::offset_of;

/// Destination of a row's columns.
pub(super) enum Dest {
    /// f32 rows.
    F32 {
        /// First column.
        start: usize,
        /// Bytes of a row.
        stride: usize,
    },
    /// bf16 rows.
    Bf16 {
        /// First column.
        start: usize,
        /// Bytes of a row.
        stride: usize,
    },
    /// int8 rows.
    Int8 {
        /// First column, a multiple of the group.
        start: usize,
        /// Columns of a row.
        cols: usize,
        /// By which rule.
        elem: RowElem,
        /// Columns per scale.
        group: usize,
    },
    /// Keys or values of the cache.
    Kv {
        /// The cache.
        spec: KvSpec,
        /// Keys, not values.
        key: bool,
    },
}

/// The row written to.
pub(super) struct Target {
    /// First row of the matrix, or the page pool.
    pub base: Value,
    /// Row number.
    pub row: Value,
}

impl Dest {
    /// Destination and operand of a segment's store.
    pub fn new(low: &Lowering, store: &Store) -> (ParamId, Dest) {
        match *store {
            Store::Rows { param, start } => (param, Dest::rows(low, param, start)),
            Store::KvKey(param) => (param, Dest::Kv { spec: low.kernel.kv(param), key: true }),
            Store::KvValue(param) => (param, Dest::Kv { spec: low.kernel.kv(param), key: false }),
        }
    }

    /// Columns from `start` on of a matrix of rows.
    pub fn rows(low: &Lowering, param: ParamId, start: usize) -> Dest {
        let (cols, elem) = low.rows(param);
        let stride = row_bytes(cols, elem);
        match elem {
            RowElem::F32 => Dest::F32 { start, stride },
            RowElem::Bf16 => Dest::Bf16 { start, stride },
            RowElem::Q8 { group } | RowElem::I8 { group } => Dest::Int8 { start, cols, elem, group },
            RowElem::F16 | RowElem::Fp8 => unreachable!("`supported` refuses such rows"),
        }
    }

    /// `expr` as it is to be evaluated for this destination; see [`Program::new`].
    pub fn program(&self, low: &Lowering, frame: &mut Frame, expr: &Expr, width: usize) -> Program {
        let in_memory = !matches!(self, Dest::F32 { .. });
        Program::new(low, frame, expr, width, in_memory)
    }

    /// Evaluates `program` over `span` and stores it.
    pub fn emit(&self, low: &Lowering, e: &mut Emit, program: &Program, span: &Span, target: &Target) {
        for stage in program.stages() {
            stage.emit(low, e, span);
        }
        self.put(low, e, program, span, target);
    }

    /// Evaluates `program` for the rows `0..count` of a tile and stores them. `row` calls its
    /// argument with the span of a row and its index in the matrix at `base`.
    pub fn tile(
        &self,
        low: &Lowering,
        e: &mut Emit,
        program: &Program,
        count: Value,
        base: Value,
        row: impl Fn(&mut Emit, Value, &mut dyn FnMut(&mut Emit, &Span, Value)),
    ) {
        let zero = e.int(0);
        if !program.by_stages() {
            return e.each(zero, count, 1, |e, i| {
                row(e, i, &mut |e, span, row| self.emit(low, e, program, span, &Target { base, row }));
            });
        }
        for stage in program.stages() {
            e.each(zero, count, 1, |e, i| row(e, i, &mut |e, span, _| stage.emit(low, e, span)));
        }
        e.each(zero, count, 1, |e, i| {
            row(e, i, &mut |e, span, row| self.put(low, e, program, span, &Target { base, row }));
        });
    }

    /// After the stages of `program`: stores its value.
    pub fn put(&self, low: &Lowering, e: &mut Emit, program: &Program, span: &Span, target: &Target) {
        match self {
            Dest::F32 { start, stride } => {
                let row = e.index(target.base, target.row, *stride);
                let row = e.offset(row, start * 4);
                let col = span.column(e);
                let row = e.index(row, col, 4);
                program.store(low, e, span, row);
            }
            Dest::Bf16 { start, stride } => {
                let x = program.address(low, e, span);
                let row = e.index(target.base, target.row, *stride);
                let row = e.offset(row, start * 2);
                let col = span.column(e);
                let row = e.index(row, col, 2);
                if !low.portable {
                    return wide::round_bf16(low, e, x, span.width, row);
                }
                each_four(e, span, |e, at, lanes| {
                    let (from, to) = (e.index(x, at, 4), e.index(row, at, 2));
                    let v = e.load_lanes(from, 0, lanes);
                    e.store_bf16(v, to, 0, lanes);
                });
            }
            Dest::Int8 { start, cols, elem, group } => {
                let x = program.address(low, e, span);
                let layout = layout::q8_row(*cols, *group);
                let row = e.index(target.base, target.row, layout.bytes);
                let col = span.column(e);
                let first = e.offset(col, *start);
                quant::pad_row(e, x, span.width, span.n);
                quant::quantize(low, e, x, span.width, row, first, &layout, *elem);
            }
            Dest::Kv { spec, key } => {
                let x = program.address(low, e, span);
                with_row(low, e, spec, target, |e, position| {
                    let page = page_of(low, e, spec, target, position);
                    let slot = Slot { spec, key: *key, page };
                    match spec.dtype {
                        KvDType::Int8 | KvDType::Int4 => slot.store_codes(e, x, span),
                        KvDType::F16 if !low.portable => slot.store_halves(low, e, x, span, HalfKind::F16),
                        KvDType::Bf16 if !low.portable => slot.store_halves(low, e, x, span, HalfKind::Bf16),
                        KvDType::F32 | KvDType::F16 | KvDType::Bf16 => slot.store_floats(e, x, span),
                    }
                });
            }
        }
    }
}

/// Calls `f` with the number of each fourth column of a span, and how many follow: the last ones of
/// the segment may be fewer.
fn each_four(e: &mut Emit, span: &Span, f: impl Fn(&mut Emit, Value, usize)) {
    let (zero, tail) = (e.int(0), span.n % LANES);
    let whole = if tail == 0 { span.width } else { e.b.ins().band_imm_s(span.width, -4) };
    e.each(zero, whole, LANES, |e, at| f(e, at, LANES));
    if tail != 0 {
        let more = e.compare(IntCC::NotEqual, whole, span.width);
        e.when(more, |e| f(e, whole, tail));
    }
}

/// The page and the place in it of a row.
struct PageSlot {
    page: Value,
    slot: Value,
}

/// Calls `f` with the row of the cache that a token stores: its position, among the first ones where these alone are
/// kept, or the number of its window, for the last token of each.
fn with_row(low: &Lowering, e: &mut Emit, spec: &KvSpec, target: &Target, f: impl FnOnce(&mut Emit, Value)) {
    let positions = low.args.step(e, offset_of!(StepCtx, positions));
    let p = e.index(positions, target.row, 4);
    let position = e.load_index(p, 0);
    if let Some(first) = spec.first {
        let rows = e.int(first.rows as i64);
        let stores = e.compare(IntCC::SignedLessThan, position, rows);
        return e.when(stores, |e| f(e, position));
    }
    if spec.every <= 1 {
        return f(e, position);
    }
    let (row, place) = e.div_mod(position, spec.every);
    let last = e.int(spec.every as i64 - 1);
    let stores = e.compare(IntCC::Equal, place, last);
    e.when(stores, |e| f(e, row));
}

/// Where row `row` of the sequence of a token lies.
fn page_of(low: &Lowering, e: &mut Emit, spec: &KvSpec, target: &Target, row: Value) -> PageSlot {
    let seqs = low.args.step(e, offset_of!(StepCtx, seqs));
    let p = e.index(seqs, target.row, 4);
    let seq = e.load_index(p, 0);
    let (number, slot) = e.div_mod(row, PAGE_TOKENS);
    let page = page_address(low, e, spec, target.base, seq, number);
    PageSlot { page, slot }
}

/// Address of page `number` of a sequence.
pub(super) fn page_address(
    low: &Lowering,
    e: &mut Emit,
    spec: &KvSpec,
    pool: Value,
    seq: Value,
    number: Value,
) -> Value {
    let tables = low.args.step(e, offset_of!(StepCtx, block_tables));
    let stride = low.args.step(e, offset_of!(StepCtx, block_stride));
    let entry = e.b.ins().imul(seq, stride);
    let entry = e.add(entry, number);
    let p = e.index(tables, entry, 4);
    let page = e.b.ins().uload32(cranelift_codegen::ir::MemFlagsData::new().with_notrap(), p, 0);
    e.index(pool, page, spec.page().bytes)
}

/// Writes keys or values of one token.
struct Slot<'a> {
    spec: &'a KvSpec,
    key: bool,
    page: PageSlot,
}

impl Slot<'_> {
    fn layout(&self) -> layout::Page {
        self.spec.page()
    }

    /// Elements that are stored of a head.
    fn dim(&self) -> usize {
        self.spec.stored_dim(self.key)
    }

    /// Address of column `col` (any column of the token's key or value), of whole bytes.
    fn address(&self, e: &mut Emit, col: Value) -> Value {
        let bytes = self.spec.dtype.bits() / 8;
        if self.key {
            // [kv_heads][dim][16]: columns are 16 elements apart.
            let at = e.times(col, PAGE_TOKENS);
            let at = e.add(at, self.page.slot);
            return e.index(self.page.page, at, bytes);
        }
        // [kv_heads][16][dim]
        let (head, d) = e.div_mod(col, self.dim());
        let at = e.times(head, PAGE_TOKENS);
        let at = e.add(at, self.page.slot);
        let at = e.times(at, self.dim());
        let at = e.add(at, d);
        let p = e.index(self.page.page, at, bytes);
        e.offset(p, self.layout().v)
    }

    /// f16 and bf16, by a microkernel. `x`: the span's columns in f32.
    fn store_halves(&self, low: &Lowering, e: &mut Emit, x: Value, span: &Span, kind: HalfKind) {
        // For keys each element is a run, for values each head.
        let (run, jump) = if self.key { (1, PAGE_TOKENS) } else { (self.dim(), self.dim() * PAGE_TOKENS) };
        let (_, first) = e.div_mod(span.col, run);
        let begin = e.sub(span.col, first);
        let out = self.address(e, begin);
        wide::round(low, e, x, span.width, &Halves { kind, out, first, run, jump });
    }

    /// f32, f16, bf16. `x`: the span's columns in f32.
    fn store_floats(&self, e: &mut Emit, x: Value, span: &Span) {
        each_four(e, span, |e, at, lanes| {
            let p = e.index(x, at, 4);
            let v = e.load_lanes(p, 0, lanes);
            let col = e.add(span.col, at);
            self.store_columns(e, v, col, lanes);
        });
    }

    fn store_columns(&self, e: &mut Emit, v: Value, col: Value, lanes: usize) {
        let v = match self.spec.dtype {
            KvDType::F16 => e.f32_to_f16(v),
            KvDType::Bf16 => e.f32_to_bf16(v),
            KvDType::F32 | KvDType::Int8 | KvDType::Int4 => e.bits(v),
        };
        let bytes = self.spec.dtype.bits() / 8;
        let adjacent = if self.key { PAGE_TOKENS } else { 1 };
        // Four values lie in one head unless heads have an odd size.
        let one_head = self.key || self.dim().is_multiple_of(LANES);
        let first = self.address(e, col);
        for i in 0..lanes {
            let x = e.lane(v, i);
            let (p, offset) = if one_head {
                (first, i * adjacent * bytes)
            } else {
                let col = e.offset(col, i);
                (self.address(e, col), 0)
            };
            match bytes {
                2 => e.store_half(x, p, offset),
                _ => e.store(x, p, offset),
            }
        }
    }

    /// Codes with a scale per head.
    fn store_codes(&self, e: &mut Emit, x: Value, span: &Span) {
        let (zero, d) = (e.int(0), self.dim());
        let layout = self.layout();
        let most = self.spec.dtype.most().unwrap_or(1) as f32;
        e.each(zero, span.width, d, |e, at| {
            let head = e.index(x, at, 4);
            let col = e.add(span.col, at);
            let (number, _) = e.div_mod(col, d);
            let (scale, inverse, valid) = quant::scales(e, head, d, most);
            let index = e.times(number, PAGE_TOKENS);
            let index = e.add(index, self.page.slot);
            let p = e.index(self.page.page, index, 4);
            e.store(scale, p, if self.key { layout.k_scales } else { layout.v_scales });
            if self.spec.dtype.bits() == 4 {
                return self.store_pairs(e, (head, number), (inverse, valid));
            }
            let first = self.address(e, col);
            let adjacent = if self.key { PAGE_TOKENS } else { 1 };
            let step = |e: &mut Emit, at: Value, lanes: usize| {
                let p = e.index(head, at, 4);
                let v = e.load_lanes(p, 0, lanes);
                let codes = quant::codes(e, v, inverse, valid);
                let p = e.index(first, at, adjacent);
                for i in 0..lanes {
                    let x = e.lane(codes, i);
                    e.store_byte(x, p, i * adjacent);
                }
            };
            e.each_fixed(d / LANES * LANES, LANES, |e, at| step(e, at, LANES));
            if d % LANES != 0 {
                let at = e.int((d / LANES * LANES) as i64);
                step(e, at, d % LANES);
            }
        });
    }

    /// Codes of 4 bits of one head, number `number`, whose values are at `x`: two to a byte, see
    /// [`layout::kv_nibble`].
    fn store_pairs(&self, e: &mut Emit, (x, number): (Value, Value), (inverse, valid): (Value, Value)) {
        let half = self.dim() / 2;
        // From one byte to the next, from the lower codes of four bytes to their upper ones, and from
        // one code to the next.
        let (adjacent, upper, apart) = if self.key { (PAGE_TOKENS, 4, 2) } else { (1, half * 4, 1) };
        let first = match self.key {
            true => {
                let line = e.times(number, half * PAGE_TOKENS);
                e.add(line, self.page.slot)
            }
            false => {
                let line = e.times(number, PAGE_TOKENS);
                let line = e.add(line, self.page.slot);
                let line = e.times(line, half);
                e.offset(line, self.layout().v)
            }
        };
        let first = e.add(self.page.page, first);
        let step = |e: &mut Emit, byte: Value| {
            let p = e.index(x, byte, apart * 4);
            let code = |e: &mut Emit, at: usize| {
                let v = e.load_splat(p, at);
                let codes = quant::codes(e, v, inverse, valid);
                e.lane(codes, 0)
            };
            let (low, high) = (code(e, 0), code(e, upper));
            let (low, high) = (e.b.ins().band_imm_s(low, 15), e.b.ins().ishl_imm_u(high, 4));
            let both = e.b.ins().bor(low, high);
            let to = e.index(first, byte, adjacent);
            e.store_byte(both, to, 0);
        };
        e.each_fixed(half, 1, step);
    }
}
