//! Prologues: a matmul normalizes and quantizes its input itself, on every core, instead of reading
//! the output of a row-wise kernel.

use super::{Context, KernelNode};
use crate::egraph::Term;
use crate::spec::{Draft, Output};
use egg::Id;
use llmcc_ir::kernel::{Body, Matmul, ParamKind, Prologue, RowNorm};

/// For one class that a row-wise kernel computes: adds the variants of all matmuls that read its
/// result.
pub fn run(cx: &mut Context<'_>, class: Id) {
    let norms: Vec<(KernelNode, RowNorm)> = cx
        .kernels(class)
        .into_iter()
        .filter_map(|n| {
            let body = match &n.0.kernel.body {
                Body::RowNorm(r) if !r.gather && r.residual.is_none() => r.clone(),
                _ => return None,
            };
            Some((n, body))
        })
        .collect();
    // A row-wise kernel that only finishes another's work is a detour: the prologue can do all of
    // it.
    let depth =
        |n: &RowNorm| usize::from(n.norm.is_some()) + usize::from(n.gain.is_some()) + usize::from(n.bias.is_some());
    let Some(most) = norms.iter().map(|(_, n)| depth(n)).max() else { return };
    let norms: Vec<_> = norms.into_iter().filter(|(_, n)| depth(n) == most).collect();
    for (target, node) in readers(cx, class) {
        for norm in &norms {
            if let Some(d) = absorbed(&node, norm) {
                let id = cx.add(d);
                cx.graph.union(target, id);
            }
        }
    }
}

/// Matmuls without prologue whose input is `class`, with their classes.
fn readers(cx: &Context<'_>, class: Id) -> Vec<(Id, KernelNode)> {
    let class = cx.graph.find(class);
    let mut out = vec![];
    for c in cx.graph.classes() {
        for t in &c.nodes {
            if let Term::Kernel(spec, children) = t
                && let Body::Matmul(m) = &spec.kernel.body
                && m.prologue.is_none()
                && cx.graph.find(children[m.x]) == class
            {
                out.push((c.id, (spec.clone(), children.to_vec())));
            }
        }
    }
    out.sort();
    out
}

fn absorbed(
    (spec, children): &KernelNode,
    ((norm_spec, norm_children), norm): &(KernelNode, RowNorm),
) -> Option<Draft> {
    let mut d = Draft::open(spec, children);
    let Body::Matmul(matmul) = d.body.clone() else { return None };
    let Body::RowNorm(inner) = d.import(norm_spec, norm_children) else { return None };
    let [Output::Rows(out)] = norm_spec.outputs()[..] else { return None };
    let (ParamKind::Rows { elem, .. }, ParamKind::Rows { elem: wanted, .. }) =
        (norm_spec.kind(out), spec.kind(matmul.x))
    else {
        return None;
    };
    let k = d
        .operand(inner.x)
        .and_then(|(_, kind)| if let ParamKind::Rows { cols, .. } = kind { Some(*cols) } else { None });
    // A tiled gain or bias has no place in a prologue.
    let whole = |kind: &ParamKind| matches!(kind, ParamKind::Vector { len } if Some(*len) == k);
    let vectors = [inner.gain, inner.bias].into_iter().flatten().filter_map(|v| d.operand(v));
    let fits = vectors.into_iter().all(|(_, kind)| whole(kind));
    // Tensor cores read fp8 rows from tiles that are copied as they are.
    if elem != wanted || !fits || elem.by_row() {
        return None;
    }
    let prologue = Some(Prologue { norm: norm.norm, gain: inner.gain, bias: inner.bias, elem: *elem });
    d.body = Body::Matmul(Matmul { x: inner.x, prologue, ..matmul });
    Some(d)
}
