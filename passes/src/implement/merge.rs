//! Horizontal merging: matmuls of the same input whose results meet in one operation become one launch.

use super::{Context, KernelNode, OpNode};
use crate::egraph::{Head, Term};
use crate::spec::{Draft, Output, Spec};
use egg::Id;
use llmcc_ir::kernel::{Body, Matmul};

/// Most outputs of a merged kernel.
const MAX_SEGMENTS: usize = 8;

/// Adds merged kernels for pairs of operands of one operation.
pub fn run(cx: &mut Context<'_>, _: Id, op: &OpNode) {
    let operands: &[Id] = match op.head {
        Head::Attention => &op.args[..2],
        Head::Binary(_) | Head::ConcatCols => &op.args,
        Head::KvAppend => &op.args[1..3],
        _ => return,
    };
    let (a, b) = (operands[0], operands[1]);
    if cx.graph.find(a) == cx.graph.find(b) {
        return;
    }
    let matmuls = |class: Id| cx.kernels(class).into_iter().filter(|n| matches!(n.0.kernel.body, Body::Matmul(_))).collect();
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

/// Both kernels in one, if they multiply the same input and have one result each, not both an attention state.
fn merged((ls, lc): &KernelNode, (rs, rc): &KernelNode) -> Option<Draft> {
    if ls.kernel.rows != rs.kernel.rows || !matches!((results(ls), results(rs)), ('r', 'r' | 'k') | ('k', 'r')) {
        return None;
    }
    let mut d = Draft::open(ls, lc);
    let (Body::Matmul(left), Body::Matmul(right)) = (d.body.clone(), d.import(rs, rc)) else { return None };
    let same_input = d.operand(left.x) == d.operand(right.x);
    if !same_input || left.prologue != right.prologue || left.segments.len() + right.segments.len() > MAX_SEGMENTS {
        return None;
    }
    let segments = left.segments.into_iter().chain(right.segments).collect();
    d.body = Body::Matmul(Matmul { segments, ..left });
    Some(d)
}
