//! Matrix products with prologues and epilogues.
//!
//! Work items are column tiles. For each, and for each `tile_m` rows, the accumulators of all lanes
//! are computed into scratch (f32, row-major), then the segment's expression is evaluated over them
//! and stored. A plain `Acc(0)` into f32 rows is computed in place.

use super::Lowering;
use super::emit::{Emit, I64};
use super::expr::Program;
use super::frame::Frame;
use super::microkernel::Microkernel;
use super::panel::{self, Panel};
use super::rownorm::RowWork;
use super::span::Span;
use super::store::{Dest, Target};
use cranelift_codegen::ir::{InstBuilder, StackSlot, Value};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_abi::{PanelArgs, Uk};
use llmcc_ir::kernel::{Expr, Matmul, MatrixOperand, ParamId, Prologue, RowElem, Segment};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::Format;
use llmcc_ir::target::microkernel_of;
use std::mem::offset_of;

/// The rows multiplied, after the prologue.
struct Input {
    base: Value,
    stride: usize,
    elem: RowElem,
}

/// A weight matrix of a segment.
pub(super) struct Lane {
    pub weights: ParamId,
    pub k: usize,
    pub format: Format,
    /// Accumulators in scratch.
    pub tile: usize,
}

struct Plan<'k> {
    segment: &'k Segment,
    first_item: usize,
    lanes: Vec<Lane>,
    /// f32 elements from one row of a tile to the next: room for padding to whole blocks and int8
    /// groups.
    tile_stride: usize,
    program: Program,
    out: ParamId,
    dest: Dest,
    /// The accumulators are computed where they are stored.
    in_place: bool,
}

/// Emits the column tiles `lo..hi`; returns scratch bytes per row.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Matmul) -> usize {
    let (cols, elem) = low.rows(k.x);
    let prologue = k.prologue.as_ref().map(|p| Rows::new(low, frame, k.x, p));
    let multiplied = k.prologue.map_or(elem, |p| p.elem);
    let mut plans = Vec::new();
    let mut first_item = 0;
    for segment in &k.segments {
        plans.push(plan(low, frame, segment, first_item, k.tile_m));
        first_item += segment.tiles();
    }
    let args = panel_args(e);
    let (input, per_row) = match &prologue {
        Some(rows) => {
            let base = e.offset(low.args.scratch, frame.size());
            rows.emit(low, e, base);
            (Input { base, stride: rows.stride, elem: multiplied }, rows.stride)
        }
        None => (Input { base: low.args.operand(k.x), stride: row_bytes(cols, elem), elem }, 0),
    };
    for plan in &plans {
        plan.emit(low, e, &input, k.tile_m, args);
    }
    per_row
}

/// Room for the arguments of a microkernel.
pub(super) fn panel_args(e: &mut Emit) -> StackSlot {
    e.stack_slot::<PanelArgs>()
}

fn plan<'k>(low: &Lowering, frame: &mut Frame, segment: &'k Segment, first_item: usize, tile_m: usize) -> Plan<'k> {
    let tile_n = segment.tile_n.min(segment.n.next_multiple_of(BLOCK));
    let tile_stride = layout::tile_row(tile_n);
    let mut lanes: Vec<Lane> = segment.weights.iter().map(|w| Lane::new(low, *w)).collect();
    let (out, dest) = Dest::new(low, &segment.store);
    let program = dest.program(low, frame, &segment.expr, tile_n);
    // A plain accumulator into f32 rows needs no tile, if whole blocks may be written.
    let in_place =
        matches!((&dest, &segment.expr), (Dest::F32 { .. }, Expr::Acc(0))) && segment.n.is_multiple_of(BLOCK);
    if !in_place {
        lanes.iter_mut().for_each(|lane| lane.tile = frame.floats(tile_m * tile_stride));
    }
    Plan { segment, first_item, lanes, tile_stride, program, out, dest, in_place }
}

impl Plan<'_> {
    fn emit(&self, low: &Lowering, e: &mut Emit, input: &Input, tile_m: usize, args: StackSlot) {
        let s = self.segment;
        let (first, end) = (e.int(self.first_item as i64), e.int((self.first_item + s.tiles()) as i64));
        let (from, to) = (e.max(low.args.lo, first), e.min(low.args.hi, end));
        e.each(from, to, 1, |e, item| {
            let tile = e.sub(item, first);
            let col = e.times(tile, s.tile_n);
            let (n, tile_n) = (e.int(s.n as i64), e.int(s.tile_n as i64));
            let rest = e.sub(n, col);
            let width = e.min(rest, tile_n);
            let zero = e.int(0);
            e.each(zero, low.args.m, tile_m, |e, row| {
                let rest = e.sub(low.args.m, row);
                let rows = e.int(tile_m as i64);
                let rows = e.min(rest, rows);
                self.tile(low, e, input, args, &Tile { col, width, row, rows });
            });
        });
    }

    fn tile(&self, low: &Lowering, e: &mut Emit, input: &Input, args: StackSlot, t: &Tile) {
        if let (Dest::F32 { start, stride }, true) = (&self.dest, self.in_place) {
            let out = e.index(low.args.operand(self.out), t.row, *stride);
            let out = e.offset(out, start * 4);
            let out = e.index(out, t.col, 4);
            self.lanes[0].product(low, e, input, args, t, out, stride / 4);
            return;
        }
        for lane in &self.lanes {
            let out = e.offset(low.args.scratch, lane.tile);
            lane.product(low, e, input, args, t, out, self.tile_stride);
        }
        self.dest.tile(low, e, &self.program, t.rows, low.args.operand(self.out), |e, i, f| {
            let acc = accumulators(low, e, &self.lanes, i, self.tile_stride);
            let row = e.add(t.row, i);
            f(e, &Span { row, col: t.col, width: t.width, n: self.segment.n, acc: &acc, slot: None }, row);
        });
    }
}

/// Rows and columns being computed.
struct Tile {
    col: Value,
    width: Value,
    row: Value,
    rows: Value,
}

impl Lane {
    /// Without accumulators yet.
    pub fn new(low: &Lowering, weights: ParamId) -> Lane {
        let MatrixOperand { k, format, .. } = low.kernel.matrix(weights);
        Lane { weights, k, format, tile: 0 }
    }

    /// Computes accumulators at `out`, whose rows are `stride` f32 apart.
    fn product(
        &self,
        low: &Lowering,
        e: &mut Emit,
        input: &Input,
        args: StackSlot,
        t: &Tile,
        out: Value,
        stride: usize,
    ) {
        let block = self.format.block_bytes(self.k);
        // col is a multiple of 16.
        let number = e.b.ins().ushr_imm_u(t.col, i64::from(BLOCK.trailing_zeros()));
        let w = e.index(low.args.operand(self.weights), number, block);
        let blocks = e.offset(t.width, BLOCK - 1);
        let blocks = e.b.ins().ushr_imm_u(blocks, i64::from(BLOCK.trailing_zeros()));
        let a = e.index(input.base, t.row, input.stride);
        let panel = Panel {
            format: self.format,
            rows_elem: input.elem,
            k: self.k,
            w,
            w_stride: block,
            blocks,
            a,
            a_stride: input.stride,
            rows: t.rows,
            c: out,
            c_stride: stride,
        };
        self.multiply(low, e, args, &panel);
    }

    /// Computes a panel, by a microkernel where there is one.
    pub fn multiply(&self, low: &Lowering, e: &mut Emit, args: StackSlot, panel: &Panel) {
        multiply(low, e, args, panel);
    }
}

/// Row `i` of the accumulators of each lane, which are `stride` f32 apart.
pub(super) fn accumulators(low: &Lowering, e: &mut Emit, lanes: &[Lane], i: Value, stride: usize) -> Vec<Value> {
    let row = |lane: &Lane| {
        let tile = e.offset(low.args.scratch, lane.tile);
        e.index(tile, i, stride * 4)
    };
    lanes.iter().map(row).collect()
}

/// Computes a panel, by a microkernel where there is one.
pub(super) fn multiply(low: &Lowering, e: &mut Emit, args: StackSlot, panel: &Panel) {
    match microkernel_of(panel.format, panel.rows_elem) {
        Some(uk) if !low.portable => call(low, e, args, panel, uk),
        _ => panel::emit(e, panel),
    }
}

/// Calls the microkernel for a panel.
fn call(low: &Lowering, e: &mut Emit, slot: StackSlot, p: &Panel, uk: Uk) {
    let args = e.b.ins().stack_addr(I64, slot, 0);
    let numbers = [
        (offset_of!(PanelArgs, w_stride), p.w_stride),
        (offset_of!(PanelArgs, a_stride), p.a_stride),
        (offset_of!(PanelArgs, c_stride), p.c_stride),
        (offset_of!(PanelArgs, k), p.k),
        (offset_of!(PanelArgs, group), p.rows_elem.group().unwrap_or(p.format.group.into())),
    ];
    e.store_ints(args, &numbers);
    let values = [
        (offset_of!(PanelArgs, w), p.w),
        (offset_of!(PanelArgs, blocks), p.blocks),
        (offset_of!(PanelArgs, a), p.a),
        (offset_of!(PanelArgs, m), p.rows),
        (offset_of!(PanelArgs, c), p.c),
    ];
    e.store_all(args, &values);
    Microkernel::new(low, e, uk, &[I64], &[]).call(e, &[args]);
}

/// The prologue: rows in scratch, made by each thread for itself.
struct Rows {
    program: Program,
    dest: Dest,
    stride: usize,
    n: usize,
}

impl Rows {
    fn new(low: &Lowering, frame: &mut Frame, x: ParamId, p: &Prologue) -> Rows {
        let n = low.cols(x);
        let Prologue { norm, gain, bias, elem } = *p;
        let work = RowWork { x, norm, gain, bias, residual: None };
        let (dest, stride) = match elem {
            RowElem::Q8 { group } | RowElem::I8 { group } => {
                (Dest::Int8 { start: 0, cols: n, elem, group }, layout::q8_row(n, group).bytes)
            }
            RowElem::F32 => {
                let stride = (n * 4).next_multiple_of(64);
                (Dest::F32 { start: 0, stride }, stride)
            }
            RowElem::Bf16 => {
                let stride = (n * 2).next_multiple_of(64);
                (Dest::Bf16 { start: 0, stride }, stride)
            }
            RowElem::F16 | RowElem::Fp8 => unreachable!("`supported` refuses such rows"),
        };
        Rows { program: dest.program(low, frame, &work.expr(), n), dest, stride, n }
    }

    fn emit(&self, low: &Lowering, e: &mut Emit, base: Value) {
        let zero = e.int(0);
        e.each(zero, low.args.m, 1, |e, row| {
            let (col, width) = (e.int(0), e.int(self.n as i64));
            let span = Span { row, col, width, n: self.n, acc: &[], slot: None };
            self.dest.emit(low, e, &self.program, &span, &Target { base, row });
        });
    }
}
