//! Expression trees, evaluated for a run of columns of one row: by the microkernel `Map` where it
//! can, else four columns at a time.
//!
//! [`Expr::Normalize`] and [`Expr::Rope`] look at whole runs of columns, so an expression becomes a
//! [`Program`]: a list of stages, each of which evaluates its argument into a row buffer in scratch
//! and transforms it in place, and a root expression that reads these buffers. Everything that
//! evaluates expressions (epilogues, pointwise kernels, row norms, prologues) goes through here, so
//! equal expressions give equal bits.

use super::Lowering;
use super::emit::{Emit, F32, LANES};
use super::frame::Frame;
use super::runs::{normalize, rotate};
use super::wide::{self, Map};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::math::{Binary, Unary};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Expr, Norm, ParamId};

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
    Unary(UnaryOp, Box<Node>),
    Binary(BinaryOp, Box<Node>, Box<Node>),
    /// A row buffer at this offset of scratch.
    Buffer(usize),
}

/// A transformation of whole runs, in place in `buffer`.
struct Stage {
    x: Node,
    buffer: usize,
    run: Run,
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
    Wrapped { base: Value, len: usize, col: Value },
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
    /// A row buffer that this expression reads, which may be overwritten with its value:
    /// elementwise work reads a column before it is written.
    fn buffer(&self) -> Option<usize> {
        match self {
            Node::Buffer(at) => Some(*at),
            Node::Unary(_, x) => x.buffer(),
            Node::Binary(_, a, b) => a.buffer().or_else(|| b.buffer()),
            Node::Acc(_) | Node::Rows { .. } | Node::Vector { .. } | Node::Const(_) => None,
        }
    }
}

fn split(low: &Lowering, frame: &mut Frame, expr: &Expr, width: usize, stages: &mut Vec<Stage>) -> Node {
    match expr {
        Expr::Acc(lane) => Node::Acc(*lane),
        Expr::Rows { param, start } => Node::Rows { param: *param, start: *start, cols: low.cols(*param) },
        Expr::Vector(param) => Node::Vector { param: *param, len: low.kernel.vector(*param) },
        Expr::Const(c) => Node::Const(c.get()),
        Expr::Unary(op, x) => Node::Unary(*op, Box::new(split(low, frame, x, width, stages))),
        Expr::Binary(op, a, b) => {
            let a = split(low, frame, a, width, stages);
            let b = split(low, frame, b, width, stages);
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

fn stage(frame: &mut Frame, x: Node, width: usize, run: Run, stages: &mut Vec<Stage>) -> Node {
    let buffer = x.buffer().unwrap_or_else(|| frame.floats(width.next_multiple_of(32)));
    stages.push(Stage { x, buffer, run });
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
            Ready::At(e.index(row, span.col, 4))
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
            Ready::Wrapped { .. } | Ready::Const(_) | Ready::Binary(..) => None,
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
        let in_place = matches!(self.x, Node::Buffer(at) if at == self.buffer);
        if !in_place {
            evaluate(low, e, span, &self.x, buffer);
        }
        let bytes = e.times(span.width, 4);
        let end = e.add(buffer, bytes);
        match &self.run {
            Run::Normalize(norm) => e.each(buffer, end, norm.width * 4, |e, run| normalize(e, run, norm)),
            Run::Rope { head_dim, table, dim } => {
                let table = e.index(low.args.operand(*table), span.row, dim * 4);
                e.each(buffer, end, head_dim * 4, |e, head| rotate(e, head, table, *dim));
            }
        }
    }
}

/// `norm(x)·gain` as an expression of the rows `x`: what row-norm kernels and prologues compute.
pub(super) fn norm_expr(x: ParamId, norm: Option<Norm>, gain: Option<ParamId>) -> Expr {
    let mut expr = Expr::Rows { param: x, start: 0 };
    if let Some(norm) = norm {
        expr = Expr::Normalize(norm, Box::new(expr));
    }
    if let Some(gain) = gain {
        expr = Expr::Binary(BinaryOp::Mul, Box::new(expr), Box::new(Expr::Vector(gain)));
    }
    expr
}
