//! Expressions over output tiles, and where their values go.

use super::{ParamId, Use};
use crate::graph::{BinaryOp, F32, UnaryOp};

/// `x / √(mean(x²) + eps)` over runs of `width` columns, of `x` less its mean if `center`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Norm {
    /// Added to the mean square.
    pub eps: F32,
    /// Columns per run.
    pub width: usize,
    /// The mean of each run is subtracted first: LayerNorm (arXiv 1607.06450), else RMSNorm.
    pub center: bool,
}

impl Norm {
    /// RMSNorm.
    pub fn rms(eps: f32, width: usize) -> Norm {
        Norm { eps: F32::new(eps), width, center: false }
    }
}

/// One output of a matmul or pointwise kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// Output columns.
    pub n: usize,
    /// Matrices `[n, k]`, one per lane: `Acc(l)` of the expression is `x·weights[l]ᵀ`. Empty in
    /// pointwise kernels.
    pub weights: Vec<ParamId>,
    /// Columns per work item: a multiple of 16 and of every `head_dim`/`width` in the expression
    /// and of the store's quantization group; the last item of a segment may be narrower.
    pub tile_n: usize,
    /// The function of the accumulators.
    pub expr: Expr,
    /// Where it goes.
    pub store: Store,
}

/// A value per output element `(row i, column j)` of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// Accumulator of lane `l`.
    Acc(usize),
    /// Element `(i, start + j)` of a matrix of rows.
    Rows {
        /// The operand.
        param: ParamId,
        /// First column.
        start: usize,
    },
    /// Element `j mod len` of a vector operand.
    Vector(ParamId),
    /// A number.
    Const(F32),
    /// Element `j` of the slot's expert's part of a vector: in products of experts the slot belongs
    /// to the item, elsewhere the segment's columns are `top` equal slots.
    Expert {
        /// The vector, one part after the other.
        vector: ParamId,
        /// Numbers of the experts, `[M, 2·top]` rows.
        routes: ParamId,
        /// Slots.
        top: usize,
    },
    /// Element `(i, order_j)` of a matrix of rows.
    Pick {
        /// The rows.
        rows: ParamId,
        /// The column that each of the segment's is.
        order: ParamId,
    },
    /// `Σ_s w(i, from + s)·y(i, s·n + j)` over `count` runs of `y`, as long as the segment has
    /// columns, in order; each product and each sum is rounded.
    Combine {
        /// Rows with the weights.
        weights: ParamId,
        /// Column of the first weight.
        from: usize,
        /// Rows of `count` runs.
        y: ParamId,
        /// Runs.
        count: usize,
    },
    /// Elementwise function.
    Unary(UnaryOp, Box<Expr>),
    /// Elementwise function.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Normalization over runs of `width` columns (QK norm).
    Normalize(Norm, Box<Expr>),
    /// Rotary embedding with the table operand (`[M, D]` rows).
    Rope {
        /// Columns per head.
        head_dim: usize,
        /// Table operand.
        table: ParamId,
        /// The rotated value.
        x: Box<Expr>,
    },
}

/// Destination of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Store {
    /// Columns `start..start+n` of a matrix of rows, in the operand's storage.
    Rows {
        /// The operand.
        param: ParamId,
        /// First column.
        start: usize,
    },
    /// Keys of the cache, at each token's position.
    KvKey(ParamId),
    /// Values of the cache, at each token's position.
    KvValue(ParamId),
}

impl Store {
    /// All columns of a matrix of rows.
    pub(crate) fn all(param: ParamId) -> Store {
        Store::Rows { param, start: 0 }
    }
}

impl Expr {
    /// Calls `f` on every operand number, left to right, and the first column where not all columns
    /// are read.
    pub fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Option<usize>)) {
        match self {
            Expr::Acc(_) | Expr::Const(_) => {}
            Expr::Rows { param, start } => f(param, Some(*start)),
            Expr::Vector(p) => f(p, None),
            Expr::Expert { vector, routes, .. } => {
                f(vector, None);
                f(routes, None);
            }
            Expr::Pick { rows, order } => {
                f(rows, None);
                f(order, None);
            }
            Expr::Combine { weights, y, .. } => {
                f(weights, None);
                f(y, None);
            }
            Expr::Unary(_, x) | Expr::Normalize(_, x) => x.operands(f),
            Expr::Rope { table, x, .. } => {
                x.operands(f);
                f(table, None);
            }
            Expr::Binary(_, a, b) => {
                a.operands(f);
                b.operands(f);
            }
        }
    }

    /// The expressions that it is made of.
    pub fn parts(&self) -> [Option<&Expr>; 2] {
        match self {
            Expr::Acc(_)
            | Expr::Rows { .. }
            | Expr::Vector(_)
            | Expr::Const(_)
            | Expr::Expert { .. }
            | Expr::Pick { .. }
            | Expr::Combine { .. } => [None, None],
            Expr::Unary(_, x) | Expr::Normalize(_, x) | Expr::Rope { x, .. } => [Some(x), None],
            Expr::Binary(_, a, b) => [Some(a), Some(b)],
        }
    }

    /// The same, to change them.
    pub fn parts_mut(&mut self) -> [Option<&mut Expr>; 2] {
        match self {
            Expr::Acc(_)
            | Expr::Rows { .. }
            | Expr::Vector(_)
            | Expr::Const(_)
            | Expr::Expert { .. }
            | Expr::Pick { .. }
            | Expr::Combine { .. } => [None, None],
            Expr::Unary(_, x) | Expr::Normalize(_, x) | Expr::Rope { x, .. } => [Some(x), None],
            Expr::Binary(_, a, b) => [Some(a), Some(b)],
        }
    }

    /// Calls `f` on this expression and all below it, parents first.
    pub fn visit(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        self.parts().into_iter().flatten().for_each(|x| x.visit(f));
    }

    /// Calls `f` on this expression and all below it, children first, to rewrite in place.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        self.parts_mut().into_iter().flatten().for_each(|x| x.visit_mut(f));
        f(self);
    }

    /// Smallest tile width on which the expression can be evaluated on its own: the least common
    /// multiple of all runs of columns in it.
    pub fn column_run(&self) -> usize {
        let mut run = 1;
        self.visit(&mut |e| {
            if let Expr::Normalize(Norm { width, .. }, _) | Expr::Rope { head_dim: width, .. } = e {
                run = lcm(run, *width);
            }
        });
        run
    }
}

/// Least common multiple of two positive numbers; the largest `usize` if it is larger.
pub fn lcm(a: usize, b: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (a / gcd(a, b)).saturating_mul(b)
}

impl Segment {
    /// Work items of this segment.
    pub fn tiles(&self) -> usize {
        self.n.div_ceil(self.tile_n)
    }
}

/// Calls `f` on every operand of some segments: weights, the expression, the destination.
pub(super) fn segment_operands(segments: &mut [Segment], f: &mut dyn FnMut(&mut ParamId, Use)) {
    for (i, s) in segments.iter_mut().enumerate() {
        let (n, segment) = (s.n, Some(i));
        s.weights.iter_mut().for_each(|w| f(w, Use { segment, ..Use::READ }));
        let columns = |start: usize| start..start.saturating_add(n);
        s.expr.operands(&mut |p, start| f(p, Use { segment, cols: start.map(columns), ..Use::READ }));
        match &mut s.store {
            Store::Rows { param, start } => f(param, Use { segment, cols: Some(columns(*start)), ..Use::WRITE }),
            Store::KvKey(param) | Store::KvValue(param) => f(param, Use { segment, ..Use::WRITE }),
        }
    }
}
