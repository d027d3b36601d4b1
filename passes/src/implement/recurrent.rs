//! What keeps a state of fixed size.

use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{Attr, ValueType};
use llmcc_ir::kernel::{Body, CausalConv, ParamKind, Recurrence, RowElem};
use llmcc_ir::state::FixedSpec;
use llmcc_ir::ty::Dim;

/// A convolution over time.
pub fn convolutions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    convolution(cx, class, op).into_iter().collect()
}

/// A linear recurrence.
pub fn recurrences(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    recurrence(cx, class, op).into_iter().collect()
}

fn convolution(cx: &Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, channels) = cx.rows_of(class)?;
    let [x, taps, state] = op.args[..] else { return None };
    let (width, k) = cx.matrix_of(taps)?;
    let ((of, start), spec) = (cx.columns_of(x), fixed(cx, state)?);
    let kind = cx.rows_kind(of)?;
    Some(Draft::new(rows, |d| {
        let x = d.input(of, kind);
        let taps = d.input(taps, ParamKind::Vector { len: width * k });
        let state = d.input(state, ParamKind::Fixed(spec));
        let out = d.output(channels, RowElem::F32);
        Body::CausalConv(CausalConv { x, start, taps, width, state, out })
    }))
}

fn recurrence(cx: &Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, width) = cx.rows_of(class)?;
    let [q, k, v, decay, rate, state] = op.args[..] else { return None };
    let delta = match cx.graph[*op.attrs.first()?].data.attr {
        Some(Attr::Flag(delta)) => delta,
        _ => return None,
    };
    let spec = fixed(cx, state)?;
    let groups = cx.rows_of(q)?.1 / spec.rows.max(1);
    let sources = [q, k, v].map(|class| cx.columns_of(class));
    let whole = [decay, rate].map(|class| cx.rows_kind(class));
    let [Some(decay_kind), Some(rate_kind)] = whole else { return None };
    let kinds = sources.map(|(class, _)| cx.rows_kind(class));
    let [Some(q_kind), Some(k_kind), Some(v_kind)] = kinds else { return None };
    debug_assert!(rows == Dim::Tokens);
    Some(Draft::new(rows, |d| {
        let [(q, q_start), (k, k_start), (v, v_start)] = sources;
        Body::Recurrence(Recurrence {
            q: d.input(q, q_kind),
            q_start,
            k: d.input(k, k_kind),
            k_start,
            groups,
            v: d.input(v, v_kind),
            v_start,
            decay: d.input(decay, decay_kind),
            rate: d.input(rate, rate_kind),
            delta,
            state: d.input(state, ParamKind::Fixed(spec)),
            out: d.output(width, RowElem::F32),
        })
    }))
}

/// The state of fixed size of a class.
fn fixed(cx: &Context<'_>, class: Id) -> Option<FixedSpec> {
    match cx.graph[class].data.ty {
        Some(ValueType::Fixed(spec)) => Some(spec),
        Some(ValueType::Tensor(_) | ValueType::Kv(_)) | None => None,
    }
}
