//! Horizontal merging: matmuls of the same input whose results meet in attention become one launch.
//!
//! Results that meet in an elementwise operation or a concatenation need no merging: they become
//! lanes or segments of one kernel (`elementwise.rs`).

use super::{Context, KernelNode, OpNode};
use crate::egraph::Term;
use crate::spec::{Draft, Output, Spec};
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{Body, Matmul};

/// Most outputs of a merged kernel.
const MAX_SEGMENTS: usize = 8;

/// Adds the merged kernels of queries and cache update.
pub fn run(cx: &mut Context<'_>, _: Id, op: &OpNode) {
    if !matches!(op.op, Op::Attention { .. } | Op::RelativeAttention { .. }) {
        return;
    }
    for (_, state) in cx.states(op.args[1]) {
        merge(cx, op.args[0], state);
    }
}

fn merge(cx: &mut Context<'_>, a: Id, b: Id) {
    let matmuls =
        |class: Id| cx.kernels(class).into_iter().filter(|n| matches!(n.0.kernel.body, Body::Matmul(_))).collect();
    let (left, right): (Vec<KernelNode>, Vec<KernelNode>) = (matmuls(a), matmuls(b));
    for l in &left {
        for r in &right {
            let Some(d) = merged(l, r) else { continue };
            let (results_l, results_r) = (results(&l.0), results(&r.0));
            let kernel = cx.add(d);
            // Rows come before the attention state among a kernel's results.
            let (pa, pb) = if results_l == 'k' && results_r == 'r' { (1, 0) } else { (0, 1) };
            for (class, index) in [(a, pa), (b, pb)] {
                let proj = cx.graph.add(Term::Proj(index, [kernel]));
                cx.graph.union(class, proj);
            }
        }
    }
}

fn results(spec: &Spec) -> char {
    match spec.outputs()[..] {
        [Output::Rows(_)] => 'r',
        [Output::Kv(_)] => 'k',
        _ => '?',
    }
}

/// Both kernels in one, if they multiply the same input and have one result each, not both an
/// attention state.
fn merged((ls, lc): &KernelNode, (rs, rc): &KernelNode) -> Option<Draft> {
    if ls.kernel.rows != rs.kernel.rows || !matches!((results(ls), results(rs)), ('r', 'r' | 'k') | ('k', 'r')) {
        return None;
    }
    let mut d = Draft::open(ls, lc);
    let (Body::Matmul(left), Body::Matmul(right)) = (d.body.clone(), d.import(rs, rc)) else { return None };
    let same_input = d.operand(left.x) == d.operand(right.x);
    if !same_input
        || !d.reads_one_format()
        || left.prologue != right.prologue
        || left.segments.len() + right.segments.len() > MAX_SEGMENTS
    {
        return None;
    }
    let segments = left.segments.into_iter().chain(right.segments).collect();
    d.body = Body::Matmul(Matmul { segments, ..left });
    Some(d)
}
