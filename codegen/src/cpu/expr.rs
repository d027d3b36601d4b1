//! Expression trees, evaluated for a run of columns of one row: by the microkernel `Map` where it
//! can, else four columns at a time.
//!
//! [`Expr::Normalize`] and [`Expr::Rope`] look at whole runs of columns, so an expression becomes a
//! [`Program`]: a list of stages, each of which evaluates its argument into a row buffer in scratch
//! and transforms it in place, and a root expression that reads these buffers. Everything that
//! evaluates expressions (epilogues, pointwise kernels, row norms, prologues) goes through here, so
//! equal expressions give equal bits.

use super::Lowering;
use super::emit::{Emit, F32, I64, LANES};
use super::frame::Frame;
use super::runs::{normalize, rotate};
use super::wide::{self, Map};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::math::{Binary, Unary};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Norm, ParamId};

/// The columns of a row for which an expression is evaluated.
pub(super) struct Span<'a> {
    /// Row of matrix operands.
    pub row: Value,
    /// First column within the segment, a multiple of 4.
    pub col: Value,
    /// Number of columns.
    pub width: Value,
    /// The segment's columns; only its last span is not a multiple of 4 wide, if any.
    pub n: usize,
    /// This row of each lane's accumulators.
    pub acc: &'a [Value],
    /// The slot, in products of experts: rows have the segment's columns once for each.
    pub slot: Option<Slot>,
}

/// A slot of a row.
pub(super) struct Slot {
    /// First column in rows.
    pub start: Value,
    /// Its expert.
    pub expert: Value,
}

impl Span<'_> {
    /// First column in rows.
    pub fn column(&self, e: &mut Emit) -> Value {
        match &self.slot {
            Some(slot) => e.add(slot.start, self.col),
            None => self.col,
        }
    }
}

/// An expression over buffers.
enum Node {
    Acc(usize),
    Rows {
        param: ParamId,
        start: usize,
        cols: usize,
    },
    Vector {
        param: ParamId,
        len: usize,
    },
    Const(f32),
    /// The part of the span's expert in a vector.
    Expert {
        vector: ParamId,
    },
    /// Runs of rows, weighted.
    Combine {
        weights: ParamId,
        from: usize,
        y: ParamId,
        count: usize,
    },
    Unary(UnaryOp, Box<Node>),
    Binary(BinaryOp, Box<Node>, Box<Node>),
    /// A row buffer at this offset of scratch.
    Buffer(usize),
}

/// What is made in `buffer` before the expression is evaluated.
struct Stage {
    buffer: usize,
    make: Make,
}

enum Make {
    /// The expression alone: what reads it can be a microkernel then.
    Value(Node),
    /// A transformation of whole runs, in place.
    Runs(Node, Run),
    /// In each of `top` slots of a whole row its expert's part of a vector.
    Parts { vector: ParamId, routes: ParamId, top: usize },
    /// Columns of rows, in another order.
    Picked { rows: ParamId, order: ParamId },
}

enum Run {
    Normalize(Norm),
    Rope { head_dim: usize, table: ParamId, dim: usize },
}

/// An expression ready to be emitted.
pub(super) struct Program {
    stages: Vec<Stage>,
    root: Node,
    /// Row buffer for [`Program::to_buffer`], if the root needs one.
    result: usize,
}

/// A leaf with its address computed, so that the column loop only adds the column.
enum Ready {
    At(Value),
    Wrapped {
        base: Value,
        len: usize,
        col: Value,
    },
    /// The same number in all columns.
    Same(Value),
    Const(f32),
    Unary(UnaryOp, Box<Ready>),
    Binary(BinaryOp, Box<Ready>, Box<Ready>),
}

impl Program {
    /// Splits `expr` into stages. `width`: most columns evaluated at once; row buffers are reserved
    /// in `frame`, padded to a multiple of 32 columns.
    pub fn new(low: &Lowering, frame: &mut Frame, expr: &Expr, width: usize) -> Program {
        let mut stages = Vec::new();
        let root = split(low, frame, expr, width, &mut stages);
        let result = match &root {
            Node::Acc(_) => 0,
            node => node.buffer().unwrap_or_else(|| frame.floats(width.next_multiple_of(32))),
        };
        Program { stages, root, result }
    }

    /// Evaluates the whole span to f32 at `out`.
    pub fn store(&self, low: &Lowering, e: &mut Emit, span: &Span, out: Value) {
        for stage in &self.stages {
            stage.emit(low, e, span);
        }
        evaluate(low, e, span, &self.root, out);
    }

    /// Evaluates the whole span into memory and returns its address: f32, room for the columns
    /// rounded up to 32.
    pub fn to_buffer(&self, low: &Lowering, e: &mut Emit, span: &Span) -> Value {
        for stage in &self.stages {
            stage.emit(low, e, span);
        }
        match self.root {
            Node::Acc(lane) => span.acc[lane],
            Node::Buffer(at) => e.offset(low.args.scratch, at),
            _ => {
                let out = e.offset(low.args.scratch, self.result);
                evaluate(low, e, span, &self.root, out);
                out
            }
        }
    }
}

impl Node {
    /// Whether its columns lie in memory as they are.
    fn is_memory(&self) -> bool {
        matches!(self, Node::Acc(_) | Node::Rows { .. } | Node::Vector { .. } | Node::Expert { .. } | Node::Buffer(_))
    }

    /// Whether it is a function that there is a microkernel for, of memory.
    fn is_function(&self) -> bool {
        matches!(self, Node::Unary(op, x) if wide::unary(*op).is_some() && x.is_memory())
    }

    /// Whether a function that there is a microkernel for is in it.
    fn is_slow(&self) -> bool {
        match self {
            Node::Unary(op, x) => wide::unary(*op).is_some() || x.is_slow(),
            Node::Binary(_, a, b) => a.is_slow() || b.is_slow(),
            Node::Acc(_)
            | Node::Rows { .. }
            | Node::Vector { .. }
            | Node::Const(_)
            | Node::Expert { .. }
            | Node::Combine { .. }
            | Node::Buffer(_) => false,
        }
    }

    /// A row buffer that this expression reads, which may be overwritten with its value:
    /// elementwise work reads a column before it is written.
    fn buffer(&self) -> Option<usize> {
        match self {
            Node::Buffer(at) => Some(*at),
            Node::Unary(_, x) => x.buffer(),
            Node::Binary(_, a, b) => a.buffer().or_else(|| b.buffer()),
            Node::Acc(_)
            | Node::Rows { .. }
            | Node::Vector { .. }
            | Node::Const(_)
            | Node::Expert { .. }
            | Node::Combine { .. } => None,
        }
    }
}

fn split(low: &Lowering, frame: &mut Frame, expr: &Expr, width: usize, stages: &mut Vec<Stage>) -> Node {
    match expr {
        Expr::Acc(lane) => Node::Acc(*lane),
        Expr::Rows { param, start } => Node::Rows { param: *param, start: *start, cols: low.cols(*param) },
        Expr::Vector(param) => Node::Vector { param: *param, len: low.kernel.vector(*param) },
        Expr::Const(c) => Node::Const(c.get()),
        Expr::Expert { vector, .. } if matches!(low.kernel.body, Body::ExpertMatmul(_)) => {
            Node::Expert { vector: *vector }
        }
        Expr::Expert { vector, routes, top } => {
            let buffer = frame.floats(width.next_multiple_of(32));
            let make = Make::Parts { vector: *vector, routes: *routes, top: *top };
            stages.push(Stage { buffer, make });
            Node::Buffer(buffer)
        }
        Expr::Pick { rows, order } => {
            let buffer = frame.floats(width.next_multiple_of(32));
            stages.push(Stage { buffer, make: Make::Picked { rows: *rows, order: *order } });
            Node::Buffer(buffer)
        }
        Expr::Combine { weights, from, y, count } => {
            Node::Combine { weights: *weights, from: *from, y: *y, count: *count }
        }
        Expr::Unary(op, x) => {
            let x = split(low, frame, x, width, stages);
            let x = if wide::unary(*op).is_some() { in_memory(low, frame, x, width, stages) } else { x };
            Node::Unary(*op, Box::new(x))
        }
        Expr::Binary(op, a, b) => {
            let mut a = split(low, frame, a, width, stages);
            let mut b = split(low, frame, b, width, stages);
            if a.is_slow() || b.is_slow() {
                // One operand may be a function of memory, if the other is memory.
                let mapped =
                    wide::binary(*op).is_some() && !matches!((&a, &b), (Node::Const(_), _) | (_, Node::Const(_)));
                if !(mapped && a.is_function()) {
                    a = in_memory(low, frame, a, width, stages);
                }
                if !(mapped && b.is_function() && a.is_memory()) {
                    b = in_memory(low, frame, b, width, stages);
                }
            }
            Node::Binary(*op, Box::new(a), Box::new(b))
        }
        Expr::Normalize(norm, x) => {
            let x = split(low, frame, x, width, stages);
            stage(frame, x, width, Run::Normalize(*norm), stages)
        }
        Expr::Rope { head_dim, table, x } => {
            let dim = low.cols(*table);
            let x = split(low, frame, x, width, stages);
            stage(frame, x, width, Run::Rope { head_dim: *head_dim, table: *table, dim }, stages)
        }
    }
}

/// `x` as an operand of a microkernel: made in a buffer before, unless it is in memory. Code made here
/// has four lanes, and takes that many times as long for a function that there is a microkernel for.
fn in_memory(low: &Lowering, frame: &mut Frame, x: Node, width: usize, stages: &mut Vec<Stage>) -> Node {
    if low.portable || x.is_memory() || matches!(x, Node::Const(_)) {
        return x;
    }
    let buffer = x.buffer().unwrap_or_else(|| frame.floats(width.next_multiple_of(32)));
    stages.push(Stage { buffer, make: Make::Value(x) });
    Node::Buffer(buffer)
}

fn stage(frame: &mut Frame, x: Node, width: usize, run: Run, stages: &mut Vec<Stage>) -> Node {
    let buffer = x.buffer().unwrap_or_else(|| frame.floats(width.next_multiple_of(32)));
    stages.push(Stage { buffer, make: Make::Runs(x, run) });
    Node::Buffer(buffer)
}

/// Evaluates `node` to f32 at `out`.
fn evaluate(low: &Lowering, e: &mut Emit, span: &Span, node: &Node, out: Value) {
    let ready = prepare(low, e, span, node);
    match ready.map() {
        Some(map) if !low.portable => map.call(low, e, span.width, out),
        _ => ready.store(e, span, out),
    }
}

fn prepare(low: &Lowering, e: &mut Emit, span: &Span, node: &Node) -> Ready {
    match node {
        Node::Acc(lane) => Ready::At(span.acc[*lane]),
        Node::Buffer(at) => Ready::At(e.offset(low.args.scratch, *at)),
        Node::Rows { param, start, cols } => {
            let row = e.index(low.args.operand(*param), span.row, cols * 4);
            let row = e.offset(row, start * 4);
            let col = span.column(e);
            Ready::At(e.index(row, col, 4))
        }
        Node::Expert { vector } => {
            let (part, slot) = (span.n, span.slot.as_ref().map(|s| s.expert));
            let base = low.args.operand(*vector);
            let base = slot.map_or(base, |expert| e.index(base, expert, part * 4));
            Ready::At(e.index(base, span.col, 4))
        }
        Node::Combine { weights, from, y, count } => {
            let w = e.index(low.args.operand(*weights), span.row, low.cols(*weights) * 4);
            let y = e.index(low.args.operand(*y), span.row, low.cols(*y) * 4);
            let y = e.index(y, span.col, 4);
            let term = |e: &mut Emit, s: usize| {
                let (w, y) = (e.offset(w, (from + s) * 4), e.offset(y, s * span.n * 4));
                Ready::Binary(BinaryOp::Mul, Box::new(Ready::Same(w)), Box::new(Ready::At(y)))
            };
            let first = term(e, 0);
            (1..*count).fold(first, |sum, s| Ready::Binary(BinaryOp::Add, Box::new(sum), Box::new(term(e, s))))
        }
        Node::Vector { param, len } if *len >= span.n => Ready::At(e.index(low.args.operand(*param), span.col, 4)),
        Node::Vector { param, len } => Ready::Wrapped { base: low.args.operand(*param), len: *len, col: span.col },
        Node::Const(c) => Ready::Const(*c),
        Node::Unary(op, x) => Ready::Unary(*op, Box::new(prepare(low, e, span, x))),
        Node::Binary(op, a, b) => {
            let a = prepare(low, e, span, a);
            let b = prepare(low, e, span, b);
            Ready::Binary(*op, Box::new(a), Box::new(b))
        }
    }
}

impl Ready {
    /// As a call of a microkernel, if it can be one.
    fn map(&self) -> Option<Map> {
        if let Some((unary, a)) = self.function() {
            return Some(Map { unary, binary: Binary::First, a, b: a });
        }
        let Ready::Binary(op, x, y) = self else { return None };
        let binary = wide::binary(*op)?;
        // Both functions that there are take their operands in any order.
        let ((unary, a), b) = match (x.function()?, y.function()?) {
            (x, (Unary::Same, b)) => (x, b),
            ((Unary::Same, b), y) => (y, b),
            _ => return None,
        };
        Some(Map { unary, binary, a, b })
    }

    /// A function of memory.
    fn function(&self) -> Option<(Unary, Value)> {
        match self {
            Ready::At(p) => Some((Unary::Same, *p)),
            Ready::Unary(op, x) => match **x {
                Ready::At(p) => Some((wide::unary(*op)?, p)),
                _ => None,
            },
            Ready::Wrapped { .. } | Ready::Same(_) | Ready::Const(_) | Ready::Binary(..) => None,
        }
    }

    /// Stores the span's columns at `out`, four at a time (the last ones of the segment may be
    /// fewer).
    fn store(&self, e: &mut Emit, span: &Span, out: Value) {
        let zero = e.int(0);
        let tail = span.n % LANES;
        let bytes = e.times(span.width, 4);
        let whole = if tail == 0 { bytes } else { e.b.ins().band_imm_s(bytes, -16) };
        let some = |e: &mut Emit, at: Value, lanes: usize| {
            let v = self.value(e, at, lanes);
            let p = e.add(out, at);
            e.store_lanes(v, p, 0, lanes);
        };
        e.each(zero, whole, 16, |e, at| some(e, at, LANES));
        if tail != 0 {
            let more = e.compare(IntCC::NotEqual, bytes, whole);
            e.when(more, |e| some(e, whole, tail));
        }
    }

    /// Value of `lanes` columns, `at` bytes from the start of the span; the other lanes hold
    /// anything.
    fn value(&self, e: &mut Emit, at: Value, lanes: usize) -> Value {
        match self {
            Ready::At(p) => {
                let p = e.add(*p, at);
                e.load_lanes(p, 0, lanes)
            }
            Ready::Wrapped { base, len, col } => wrapped(e, *base, *len, *col, at, lanes),
            Ready::Same(p) => e.load_splat(*p, 0),
            Ready::Const(c) => e.floats(*c),
            Ready::Unary(op, x) => {
                let x = x.value(e, at, lanes);
                e.unary(*op, x)
            }
            Ready::Binary(op, a, b) => {
                let a = a.value(e, at, lanes);
                let b = b.value(e, at, lanes);
                e.binary(*op, a, b)
            }
        }
    }
}

/// Elements `(col + at/4 + i) mod len` of a vector. Columns are multiples of 4, so where `len` is
/// one, four columns never wrap.
fn wrapped(e: &mut Emit, base: Value, len: usize, col: Value, at: Value, lanes: usize) -> Value {
    if len == 1 {
        return e.load_splat(base, 0);
    }
    let at = e.b.ins().ushr_imm_u(at, 2);
    let col = e.add(col, at);
    if len.is_multiple_of(LANES) {
        let (_, at) = e.div_mod(col, len);
        let p = e.index(base, at, 4);
        return e.load_lanes(p, 0, lanes);
    }
    let mut v = e.floats(0.0);
    for i in 0..lanes {
        let at = e.offset(col, i);
        let (_, at) = e.div_mod(at, len);
        let p = e.index(base, at, 4);
        let x = e.load(F32, p, 0);
        v = e.b.ins().insertlane(v, x, i as u8);
    }
    v
}

impl Stage {
    fn emit(&self, low: &Lowering, e: &mut Emit, span: &Span) {
        let buffer = e.offset(low.args.scratch, self.buffer);
        let (x, run) = match &self.make {
            Make::Value(x) => return evaluate(low, e, span, x, buffer),
            Make::Runs(x, run) => (x, run),
            Make::Parts { vector, routes, top } => {
                return parts(low, e, span, buffer, (*vector, *routes, *top));
            }
            Make::Picked { rows, order } => return picked(low, e, span, buffer, (*rows, *order)),
        };
        let in_place = matches!(x, Node::Buffer(at) if *at == self.buffer);
        if !in_place {
            evaluate(low, e, span, x, buffer);
        }
        let bytes = e.times(span.width, 4);
        let end = e.add(buffer, bytes);
        match run {
            Run::Normalize(norm) => e.each(buffer, end, norm.width * 4, |e, run| normalize(e, run, norm)),
            Run::Rope { head_dim, table, dim } => {
                let table = e.index(low.args.operand(*table), span.row, dim * 4);
                e.each(buffer, end, head_dim * 4, |e, head| rotate(e, head, table, *dim));
            }
        }
    }
}

/// Copies the parts of a row's experts into its slots, one after the other.
fn parts(low: &Lowering, e: &mut Emit, span: &Span, buffer: Value, (vector, routes, top): (ParamId, ParamId, usize)) {
    let part = span.n / top;
    let row = e.index(low.args.operand(routes), span.row, low.cols(routes) * 4);
    let most = (low.kernel.vector(vector) / part) as i64 - 1;
    e.each_fixed(top, 1, |e, slot| {
        let p = e.index(row, slot, 4);
        let number = e.load(F32, p, 0);
        let number = e.b.ins().fcvt_to_sint_sat(I64, number);
        let (least, most) = (e.int(0), e.int(most));
        let number = e.max(number, least);
        let number = e.min(number, most);
        let from = e.index(low.args.operand(vector), number, part * 4);
        let to = e.index(buffer, slot, part * 4);
        let (zero, width) = (e.int(0), e.int(part as i64));
        let at = Span { row: span.row, col: zero, width, n: part, acc: &[], slot: None };
        Ready::At(from).store(e, &at, to);
    });
}

/// Copies the columns of a row that an order names, one after the other.
fn picked(low: &Lowering, e: &mut Emit, span: &Span, buffer: Value, (rows, order): (ParamId, ParamId)) {
    let cols = low.cols(rows);
    let row = e.index(low.args.operand(rows), span.row, cols * 4);
    let order = e.index(low.args.operand(order), span.col, 4);
    let (zero, bytes) = (e.int(0), e.times(span.width, 4));
    e.each(zero, bytes, 4, |e, at| {
        let p = e.add(order, at);
        let column = e.load(F32, p, 0);
        let column = e.b.ins().fcvt_to_sint_sat(I64, column);
        let (least, most) = (e.int(0), e.int(cols as i64 - 1));
        let column = e.max(column, least);
        let column = e.min(column, most);
        let from = e.index(row, column, 4);
        let x = e.load(F32, from, 0);
        let to = e.add(buffer, at);
        e.store(x, to, 0);
    });
}
