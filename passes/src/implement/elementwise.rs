//! Elementwise work: on its own, as epilogue of the kernels that compute its operands, and as store
//! into the cache.
//!
//! One function serves all: each operand is read from a buffer or absorbed from a kernel of its
//! class; if any absorbed kernel multiplies matrices the result is a matmul with the expression as
//! epilogue (two products of the same input become two lanes), else a pointwise kernel.

use super::fragment::{Fragment, Piece, Source, body, draft, join};
use super::way::{Function, Way, way};
use super::{Context, OpNode, experts};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{Expr, ParamKind, RowElem, Store};

/// Widest run of columns that is normalized in an epilogue: a tile must hold it.
const MAX_RUN: usize = 256;

/// Adds every kernel whose last step is this elementwise operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    let Some((rows, n)) = cx.rows_of(class) else { return };
    let function = match way(op.op.head()) {
        Way::Expression(function) => function,
        Way::Join => return concat(cx, class, op),
        Way::Kernel(_) | Way::Kernels(_) | Way::Store | Way::Packed => return,
    };
    let build = |cx: &Context<'_>, choice: &[Source]| {
        let mut d = draft(rows);
        let parts: Option<Vec<Fragment>> = choice.iter().map(|s| cx.fragment(&mut d, s)).collect();
        let (x, lanes, exprs) = join(&d, parts?)?;
        let expr = apply(cx, &mut d, function, op, exprs)?;
        let param = d.output(n, RowElem::F32);
        let piece = Piece { value: Fragment { x, lanes, expr }, n, store: Store::Rows { param, start: 0 } };
        finish(d, vec![piece])
    };
    put_all(cx, class, &op.args[..function.operands()], build);
}

/// Adds the kernel of every choice of operand sources that works out: the one that absorbs nothing,
/// and those that absorb as much as possible.
fn put_all(cx: &mut Context<'_>, class: Id, args: &[Id], build: impl Fn(&Context<'_>, &[Source]) -> Option<Draft>) {
    let absorbed = |choice: &[Source]| choice.iter().filter(|s| matches!(s, Source::Kernel(_))).count();
    let mut built: Vec<(usize, Draft)> = vec![];
    for choice in choices(cx, args) {
        built.extend(build(cx, &choice).map(|d| (absorbed(&choice), d)));
    }
    let most = built.iter().map(|(n, _)| *n).max().unwrap_or(0);
    for (n, d) in built {
        if n == 0 || n == most {
            cx.put(class, d);
        }
    }
}

/// Adds the kernels that store keys and values into the cache.
pub fn run_stores(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    let Way::Store = way(op.op.head()) else { return };
    let Some((rows, _)) = cx.rows_of(op.args[1]) else { return };
    for (spec, class) in cx.states(class) {
        // A state that an earlier operation updated must be cached in the same type.
        let before = cx.states(op.args[0]).into_iter().find(|(s, _)| *s == spec).map_or(op.args[0], |(_, id)| id);
        // For a key that is the value, the value is stored.
        let parts = if spec.own_dim() > 0 { &op.args[1..3] } else { &op.args[2..3] };
        put_all(cx, class, parts, |cx, choice| {
            let mut d = draft(rows);
            let parts: Option<Vec<Fragment>> = choice.iter().map(|s| cx.fragment(&mut d, s)).collect();
            let kv = d.input(before, ParamKind::State(spec.into()));
            let stores = [(true, Store::KvKey(kv)), (false, Store::KvValue(kv))];
            let stores = stores.into_iter().skip(2 - choice.len());
            let piece = |(value, (key, store))| Piece { value, n: spec.width(key), store };
            let pieces = parts?.into_iter().zip(stores).map(piece).collect();
            finish(d, pieces)
        });
    }
}

fn concat(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    let Some((rows, n)) = cx.rows_of(class) else { return };
    let Some((_, left)) = cx.rows_of(op.args[0]) else { return };
    put_all(cx, class, &op.args, |cx, choice| {
        let mut d = draft(rows);
        let parts: Option<Vec<Fragment>> = choice.iter().map(|s| cx.fragment(&mut d, s)).collect();
        let param = d.output(n, RowElem::F32);
        let spans = [(0, left), (left, n - left)];
        let pieces = parts?.into_iter().zip(spans).map(|(value, (start, n))| Piece {
            value,
            n,
            store: Store::Rows { param, start },
        });
        finish(d, pieces.collect())
    });
}

fn finish(mut d: Draft, pieces: Vec<Piece>) -> Option<Draft> {
    d.body = body(&d, pieces)?;
    Some(d)
}

/// All combinations of sources of the operands.
fn choices(cx: &Context<'_>, args: &[Id]) -> Vec<Vec<Source>> {
    args.iter().fold(vec![vec![]], |done, arg| {
        let sources = cx.sources(*arg);
        done.iter()
            .flat_map(|head| sources.iter().map(move |s| head.iter().cloned().chain([s.clone()]).collect()))
            .collect()
    })
}

/// The operation applied to its operands' expressions.
fn apply(cx: &Context<'_>, d: &mut Draft, function: Function, op: &OpNode, mut args: Vec<Expr>) -> Option<Expr> {
    match function {
        Function::Unary(u) => Some(Expr::Unary(u, Box::new(args.pop()?))),
        Function::Binary(b) => {
            let (y, x) = (args.pop()?, args.pop()?);
            Some(Expr::Binary(b, Box::new(x), Box::new(y)))
        }
        Function::Normalize => {
            let norm = op.norm()?;
            (norm.width <= MAX_RUN).then_some(Expr::Normalize(norm, Box::new(args.pop()?)))
        }
        Function::Rope => {
            let Op::Rope { head_dim } = op.op else { return None };
            let table = d.input(op.args[1], cx.rows_kind(op.args[1])?);
            Some(Expr::Rope { head_dim, table, x: Box::new(args.pop()?) })
        }
        Function::Slice => {
            let (Expr::Rows { param, start }, Op::SliceCols { start: first, .. }) = (args.pop()?, &op.op) else {
                return None;
            };
            Some(Expr::Rows { param, start: start + first })
        }
        Function::Expert => experts::vector(cx, d, op),
        Function::Combine => experts::combine(cx, d, op),
        Function::Pick => {
            let (order, kind) = (cx.vector_of(op.args[1])?, cx.rows_kind(op.args[0])?);
            let rows = d.input(op.args[0], kind);
            Some(Expr::Pick { rows, order: d.input(op.args[1], ParamKind::Vector { len: order }) })
        }
    }
}
