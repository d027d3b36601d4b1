//! Expression trees, evaluated for a run of columns of one row: by the microkernel `Map` where it
//! can, else four columns at a time.
//!
//! [`Expr::Normalize`] and [`Expr::Rope`] look at whole runs of columns, so an expression becomes a
//! [`Program`]: a list of stages, each of which evaluates its argument into memory and transforms
//! it in place, and a root expression that reads their results. Everything that evaluates
//! expressions (epilogues, pointwise kernels, row norms, prologues) goes through here, so equal
//! expressions give equal bits.
//!
//! A stage's result for accumulators replaces them, if nothing else reads them. Then a stage can be
//! done for all rows of a tile before the next one begins ([`Program::by_stages`]): calls that do
//! not wait for one another, of a function of some hundred cycles, overlap.

use super::Lowering;
use super::emit::{Emit, F32, I64};
use super::frame::Frame;
use super::ready::Ready;
use super::runs::{normalize, rotate};
use super::span::Span;
use super::wide;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Norm, ParamId};

/// Where columns of a row are in scratch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeAt {
    /// The accumulators of a lane.
    Acc(usize),
    /// A row buffer at this offset.
    Buffer(usize),
}

impl MadeAt {
    fn address(self, low: &Lowering, e: &mut Emit, span: &Span) -> Value {
        match self {
            MadeAt::Acc(lane) => span.acc[lane],
            MadeAt::Buffer(at) => e.offset(low.args.scratch, at),
        }
    }
}

/// An expression over values in memory.
enum Node {
    At(MadeAt),
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
}

/// A transformation at `place` before the expression is evaluated.
pub(super) struct Stage {
    place: MadeAt,
    make: Make,
}

enum Make {
    /// The expression alone: its reader can be a microkernel then.
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
}

impl Program {
    /// Splits `expr` into stages. `width`: most columns evaluated at once; row buffers are reserved
    /// in `frame`, padded to a multiple of 32 columns. `in_memory`: its value is wanted in scratch, see
    /// [`Program::address`].
    pub fn new(low: &Lowering, frame: &mut Frame, expr: &Expr, width: usize, in_memory: bool) -> Program {
        let mut split = Split { low, frame, width, whole: expr, stages: Vec::new() };
        let mut root = split.node(expr);
        if in_memory && !matches!(root, Node::At(_)) {
            root = split.stage(root, Make::Value);
        }
        Program { stages: split.stages, root }
    }

    /// Its stages, in order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Whether a stage can be done for many rows before the next one.
    pub fn by_stages(&self) -> bool {
        self.stages.iter().all(|stage| matches!(stage.place, MadeAt::Acc(_)))
    }

    /// After its stages: stores the whole span as f32 at `out`.
    pub fn store(&self, low: &Lowering, e: &mut Emit, span: &Span, out: Value) {
        evaluate(low, e, span, &self.root, out);
    }

    /// After its stages: where the span's f32 are, with room for the columns rounded up to 32.
    ///
    /// # Panics
    /// Unless it was made to be in memory.
    pub fn address(&self, low: &Lowering, e: &mut Emit, span: &Span) -> Value {
        match self.root {
            Node::At(place) => place.address(low, e, span),
            _ => unreachable!("the program was made to be stored"),
        }
    }
}

impl Node {
    /// Whether its columns lie in memory as they are.
    fn is_memory(&self) -> bool {
        matches!(self, Node::At(_) | Node::Rows { .. } | Node::Vector { .. } | Node::Expert { .. })
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
            Node::At(_)
            | Node::Rows { .. }
            | Node::Vector { .. }
            | Node::Const(_)
            | Node::Expert { .. }
            | Node::Combine { .. } => false,
        }
    }

    /// A place that this expression reads, which may be overwritten with its value: elementwise
    /// work reads a column before it is written.
    fn place(&self) -> Option<MadeAt> {
        match self {
            Node::At(place) => Some(*place),
            Node::Unary(_, x) => x.place(),
            Node::Binary(_, a, b) => a.place().or_else(|| b.place()),
            Node::Rows { .. } | Node::Vector { .. } | Node::Const(_) | Node::Expert { .. } | Node::Combine { .. } => {
                None
            }
        }
    }
}

/// How often `expr` reads the accumulators of a lane.
fn reads(expr: &Expr, lane: usize) -> usize {
    match expr {
        Expr::Acc(acc) => usize::from(*acc == lane),
        Expr::Unary(_, x) | Expr::Normalize(_, x) | Expr::Rope { x, .. } => reads(x, lane),
        Expr::Binary(_, a, b) => reads(a, lane) + reads(b, lane),
        Expr::Rows { .. }
        | Expr::Vector(_)
        | Expr::Const(_)
        | Expr::Expert { .. }
        | Expr::Pick { .. }
        | Expr::Combine { .. } => 0,
    }
}

/// Splits an expression, whose stages gather here.
struct Split<'a, 'l, 'f> {
    low: &'a Lowering<'l>,
    frame: &'f mut Frame,
    width: usize,
    whole: &'a Expr,
    stages: Vec<Stage>,
}

impl Split<'_, '_, '_> {
    fn node(&mut self, expr: &Expr) -> Node {
        match expr {
            Expr::Acc(lane) => Node::At(MadeAt::Acc(*lane)),
            Expr::Rows { param, start } => Node::Rows { param: *param, start: *start, cols: self.low.cols(*param) },
            Expr::Vector(param) => Node::Vector { param: *param, len: self.low.kernel.vector(*param) },
            Expr::Const(c) => Node::Const(c.get()),
            Expr::Expert { vector, .. } if matches!(self.low.kernel.body, Body::ExpertMatmul(_)) => {
                Node::Expert { vector: *vector }
            }
            Expr::Expert { vector, routes, top } => {
                self.made(Make::Parts { vector: *vector, routes: *routes, top: *top })
            }
            Expr::Pick { rows, order } => self.made(Make::Picked { rows: *rows, order: *order }),
            Expr::Combine { weights, from, y, count } => {
                Node::Combine { weights: *weights, from: *from, y: *y, count: *count }
            }
            Expr::Unary(op, x) => {
                let x = self.node(x);
                let x = if wide::unary(*op).is_some() { self.in_memory(x) } else { x };
                Node::Unary(*op, Box::new(x))
            }
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Normalize(norm, x) => {
                let x = self.node(x);
                self.stage(x, |x| Make::Runs(x, Run::Normalize(*norm)))
            }
            Expr::Rope { head_dim, table, x } => {
                let run = Run::Rope { head_dim: *head_dim, table: *table, dim: self.low.cols(*table) };
                let x = self.node(x);
                self.stage(x, |x| Make::Runs(x, run))
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Node {
        let (mut a, mut b) = (self.node(a), self.node(b));
        if a.is_slow() || b.is_slow() {
            // One operand may be a function of memory, if the other is memory.
            let mapped = wide::binary(op).is_some() && !matches!((&a, &b), (Node::Const(_), _) | (_, Node::Const(_)));
            if !(mapped && a.is_function()) {
                a = self.in_memory(a);
            }
            if !(mapped && b.is_function() && a.is_memory()) {
                b = self.in_memory(b);
            }
        }
        Node::Binary(op, Box::new(a), Box::new(b))
    }

    /// `x` as an operand of a microkernel: made before, unless it is in memory. Code made here has
    /// four lanes, and takes that many times as long for a function that there is a microkernel for.
    fn in_memory(&mut self, x: Node) -> Node {
        if self.low.portable || x.is_memory() || matches!(x, Node::Const(_)) {
            return x;
        }
        self.stage(x, Make::Value)
    }

    /// A stage on `x`, in the place that `x` reads if that may be overwritten.
    fn stage(&mut self, x: Node, make: impl FnOnce(Node) -> Make) -> Node {
        let whole = self.whole;
        let again = |place: &MadeAt| matches!(place, MadeAt::Acc(lane) if reads(whole, *lane) > 1);
        let place = x.place().filter(|place| !again(place)).unwrap_or_else(|| self.buffer());
        self.stages.push(Stage { place, make: make(x) });
        Node::At(place)
    }

    /// A stage without an argument, in a row buffer.
    fn made(&mut self, make: Make) -> Node {
        let place = self.buffer();
        self.stages.push(Stage { place, make });
        Node::At(place)
    }

    fn buffer(&mut self) -> MadeAt {
        MadeAt::Buffer(self.frame.floats(self.width.next_multiple_of(32)))
    }
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
        Node::At(place) => Ready::At(place.address(low, e, span)),
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

impl Stage {
    /// Makes the span's columns.
    pub fn emit(&self, low: &Lowering, e: &mut Emit, span: &Span) {
        let buffer = self.place.address(low, e, span);
        let (x, run) = match &self.make {
            Make::Value(x) => return evaluate(low, e, span, x, buffer),
            Make::Runs(x, run) => (x, run),
            Make::Parts { vector, routes, top } => {
                return parts(low, e, span, buffer, (*vector, *routes, *top));
            }
            Make::Picked { rows, order } => return picked(low, e, span, buffer, (*rows, *order)),
        };
        let in_place = matches!(x, Node::At(place) if *place == self.place);
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
