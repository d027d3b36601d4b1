//! Pieces of expressions, and how they become segments.
//!
//! A fragment is a value as a kernel in the making sees it: an expression over operands of the
//! draft, with the weight matrices whose products are its accumulators. A fragment without matrices
//! is pure pointwise work; fragments with matrices fit together when they multiply the same input.

use super::{Context, KernelNode, MAX_EXPR};
use crate::spec::{Draft, expr_size};
use egg::Id;
use llmcc_ir::kernel::{Body, ExpertMatmul, Experts, Expr, Matmul, ParamId, ParamKind, Pointwise, Segment, Store};
use llmcc_ir::ty::Dim;

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A buffer, vector or constant.
    Leaf(Id),
    /// Recomputed inside: a kernel of its class.
    Kernel(KernelNode),
}

/// Operands of a fragment's products.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Rows.
    pub x: ParamId,
    /// The experts, if the matrices belong to experts.
    pub experts: Option<Experts>,
}

/// A value inside a draft.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Input of the products.
    pub x: Option<Input>,
    /// One matrix per accumulator.
    pub lanes: Vec<ParamId>,
    /// The value.
    pub expr: Expr,
}

impl Context<'_> {
    /// Ways to obtain the value of `class` inside a kernel: read it, or absorb a kernel that
    /// computes it. Where a matmul can be absorbed, absorbing only the elementwise work after it
    /// would be a detour.
    pub fn sources(&self, class: Id) -> Vec<Source> {
        let absorbable = |n: &KernelNode| match n.0.kernel.body.segments() {
            [s] => matches!(s.store, Store::Rows { start: 0, .. }) && expr_size(&s.expr) < MAX_EXPR,
            _ => false,
        };
        let mut kernels: Vec<KernelNode> = if self.read_once(class) { self.row_kernels(class) } else { vec![] };
        kernels.retain(absorbable);
        let is_matmul = |n: &KernelNode| n.0.kernel.body.product().is_some();
        if kernels.iter().any(is_matmul) {
            kernels.retain(is_matmul);
        }
        std::iter::once(Source::Leaf(class)).chain(kernels.into_iter().map(Source::Kernel)).collect()
    }

    /// Brings a source into a draft; `None` if it cannot be an operand.
    pub fn fragment(&self, draft: &mut Draft, source: &Source) -> Option<Fragment> {
        match source {
            Source::Leaf(class) => Some(Fragment { x: None, lanes: vec![], expr: self.leaf(draft, *class)? }),
            Source::Kernel((spec, children)) => {
                if spec.kernel.rows != draft.rows {
                    return None;
                }
                let body = draft.import(spec, children);
                let x = body.product().map(|p| Input { x: p.x, experts: p.experts });
                let s = body.segments().last()?.clone();
                Some(Fragment { x, lanes: s.weights, expr: s.expr })
            }
        }
    }

    /// A class as a leaf of an expression.
    fn leaf(&self, draft: &mut Draft, class: Id) -> Option<Expr> {
        if let Some(c) = self.graph[class].data.constant {
            return Some(Expr::Const(c));
        }
        if let Some(len) = self.vector_of(class) {
            return Some(Expr::Vector(draft.input(class, ParamKind::Vector { len })));
        }
        let kind = self.rows_kind(class)?;
        let fits = matches!(kind, ParamKind::Rows { rows, .. } if rows == draft.rows);
        fits.then(|| Expr::Rows { param: draft.input(class, kind), start: 0 })
    }
}

/// The same operand: bound to the same class in the same storage.
fn same(draft: &Draft, a: ParamId, b: ParamId) -> bool {
    a == b || matches!((draft.operand(a), draft.operand(b)), (Some(x), Some(y)) if x.0.is_some() && x == y)
}

/// Joins fragments into one set of lanes, so that their expressions may be combined.
pub fn join(draft: &Draft, parts: Vec<Fragment>) -> Option<(Option<Input>, Vec<ParamId>, Vec<Expr>)> {
    let x = common_input(draft, &parts)?;
    let mut lanes: Vec<ParamId> = vec![];
    let mut exprs = vec![];
    for mut part in parts {
        let map: Vec<usize> = part
            .lanes
            .iter()
            .map(|w| {
                lanes.iter().position(|l| same(draft, *l, *w)).unwrap_or_else(|| {
                    lanes.push(*w);
                    lanes.len() - 1
                })
            })
            .collect();
        part.expr.visit_mut(&mut |e| {
            if let Expr::Acc(l) = e {
                *l = map[*l];
            }
        });
        exprs.push(part.expr);
    }
    Some((x, lanes, exprs))
}

/// The matmul input of the fragments: `Some(None)` when none has products, `None` when they differ.
pub fn common_input(draft: &Draft, parts: &[Fragment]) -> Option<Option<Input>> {
    let mut inputs = parts.iter().filter_map(|p| p.x);
    let Some(first) = inputs.next() else { return Some(None) };
    let same_experts = |a: Option<Experts>, b: Option<Experts>| match (a, b) {
        (Some(a), Some(b)) => {
            let same_routes = match (a.routes, b.routes) {
                (Some(a), Some(b)) => same(draft, a, b),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            (a.experts, a.top) == (b.experts, b.top) && same_routes
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let fits = |i: Input| same(draft, first.x, i.x) && same_experts(first.experts, i.experts);
    inputs.all(fits).then_some(Some(first))
}

/// One output of a kernel under construction.
pub struct Piece {
    /// The value.
    pub value: Fragment,
    /// Columns.
    pub n: usize,
    /// Destination.
    pub store: Store,
}

/// Makes the body of a kernel from its outputs; `None` when products and pointwise outputs mix or
/// the inputs differ.
pub fn body(draft: &Draft, pieces: Vec<Piece>) -> Option<Body> {
    let values: Vec<Fragment> = pieces.iter().map(|p| p.value.clone()).collect();
    let x = common_input(draft, &values)?;
    if x.is_some() && values.iter().any(|v| v.x.is_none()) || values.iter().any(|v| expr_size(&v.expr) > MAX_EXPR) {
        return None;
    }
    if let Some(Input { x, experts: Some(experts) }) = x {
        return products_of_experts(draft, x, experts, pieces);
    }
    let segments = pieces
        .into_iter()
        .map(|p| Segment { n: p.n, weights: p.value.lanes, tile_n: 0, expr: p.value.expr, store: p.store })
        .collect();
    Some(match x {
        Some(Input { x, .. }) => Body::Matmul(Matmul { x, prologue: None, segments, tile_m: 0, k_parts: 1 }),
        None => Body::Pointwise(Pointwise { segments }),
    })
}

/// Products of experts with the operations after them; `None` where those are not elementwise in
/// each slot.
fn products_of_experts(draft: &Draft, x: ParamId, e: Experts, mut pieces: Vec<Piece>) -> Option<Body> {
    let piece = pieces.pop().filter(|_| pieces.is_empty())?;
    let n = piece.n / e.top;
    let mut fits = matches!(piece.store, Store::Rows { start: 0, .. });
    piece.value.expr.visit(&mut |expr| {
        fits &= match expr {
            Expr::Acc(_) | Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) => true,
            Expr::Rows { start, .. } => *start == 0,
            Expr::Vector(v) => {
                matches!(draft.operand(*v), Some((_, ParamKind::Vector { len })) if n.is_multiple_of(*len))
            }
            Expr::Expert { routes, top, .. } => *top == e.top && e.routes.is_some_and(|of| same(draft, *routes, of)),
            Expr::Normalize(..) | Expr::Rope { .. } | Expr::Pick { .. } | Expr::Combine { .. } => false,
        }
    });
    let Fragment { lanes: weights, expr, .. } = piece.value;
    let segment = Segment { n, weights, tile_n: 0, expr, store: piece.store };
    let Experts { routes, experts, top } = e;
    fits.then_some(Body::ExpertMatmul(ExpertMatmul { x, routes, experts, top, segment, tile_m: 0 }))
}

/// A new draft for rows of `rows`.
pub fn draft(rows: Dim) -> Draft {
    Draft::new(rows, |_| Body::Pointwise(Pointwise { segments: vec![] }))
}
