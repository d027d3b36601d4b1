//! Kernels that keep a state of fixed size.

use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{Body, CausalConv, ParamKind, Recurrence, RowElem, WindowMeans, Wkv};
use llmcc_ir::state::FixedSpec;
use llmcc_ir::ty::Dim;

/// A convolution over time.
pub fn causal_conv(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, channels) = cx.rows_of(class)?;
    let [x, taps, state] = op.args[..] else { return None };
    let (width, k) = cx.matrix_of(taps)?;
    let ((of, start), spec) = (cx.columns_of(x), fixed(cx, state)?);
    let kind = cx.rows_kind(of)?;
    Some(Draft::new(rows, |d| {
        let x = d.input(of, kind);
        let taps = d.input(taps, ParamKind::Vector { len: width * k });
        let state = d.input(state, ParamKind::State(spec.into()));
        let out = d.output(channels, RowElem::F32);
        Body::CausalConv(CausalConv { x, start, taps, width, state, out })
    }))
}

/// A linear recurrence.
pub fn recurrence(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, width) = cx.rows_of(class)?;
    let ([q, k, v, decay, with, state], write) = match op.args[..] {
        [q, k, v, decay, with, state] => ([q, k, v, decay, with, state], None),
        [q, k, v, decay, with, state, write] => ([q, k, v, decay, with, state], Some(write)),
        _ => return None,
    };
    let Op::Recurrence { update } = op.op else { return None };
    let spec = fixed(cx, state)?;
    let [q, k, v] =
        [q, k, v].map(|class| cx.columns_of(class)).map(|(class, start)| Some((class, start, each(cx, class)?)));
    let (q, k, v) = (q?, k?, v?);
    let [decay, with] = [decay, with].map(|class| Some((class, each(cx, class)?)));
    let (decay, with) = (decay?, with?);
    let write = match write {
        Some(class) => Some((class, each(cx, class)?)),
        None => None,
    };
    let groups = columns(cx, op.args[0])? / spec.rows.max(1);
    debug_assert!(rows == Dim::Tokens);
    Some(Draft::new(rows, |d| {
        Body::Recurrence(Recurrence {
            q: d.input(q.0, q.2),
            q_start: q.1,
            k: d.input(k.0, k.2),
            k_start: k.1,
            groups,
            v: d.input(v.0, v.2),
            v_start: v.1,
            decay: d.input(decay.0, decay.1),
            update,
            with: d.input(with.0, with.1),
            write: write.map(|(class, kind)| d.input(class, kind)),
            state: d.input(state, ParamKind::State(spec.into())),
            out: d.output(width, RowElem::F32),
        })
    }))
}

/// Means with weights that decay.
pub fn wkv(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, width) = cx.rows_of(class)?;
    let [k, v, decay, bonus, state] = op.args[..] else { return None };
    let [(k, k_start), (v, v_start)] = [k, v].map(|class| cx.columns_of(class));
    let (k_kind, v_kind, spec) = (cx.rows_kind(k)?, cx.rows_kind(v)?, fixed(cx, state)?);
    Some(Draft::new(rows, |d| {
        let vector = ParamKind::Vector { len: width };
        Body::Wkv(Wkv {
            k: d.input(k, k_kind),
            k_start,
            v: d.input(v, v_kind),
            v_start,
            decay: d.input(decay, vector.clone()),
            bonus: d.input(bonus, vector),
            state: d.input(state, ParamKind::State(spec.into())),
            out: d.output(width, RowElem::F32),
        })
    }))
}

/// Means of windows of tokens.
pub fn window_means(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, channels) = cx.rows_of(class)?;
    let [k, v, places, _positions, state] = op.args[..] else { return None };
    let (width, of_place) = cx.matrix_of(places)?;
    let [(k, k_start), (v, v_start)] = [k, v].map(|class| cx.columns_of(class));
    let (k_kind, v_kind, spec) = (cx.rows_kind(k)?, cx.rows_kind(v)?, fixed(cx, state)?);
    Some(Draft::new(rows, |d| {
        Body::WindowMeans(WindowMeans {
            k: d.input(k, k_kind),
            k_start,
            v: d.input(v, v_kind),
            v_start,
            places: d.input(places, ParamKind::Vector { len: width * of_place }),
            width,
            state: d.input(state, ParamKind::State(spec.into())),
            out: d.output(channels, RowElem::F32),
        })
    }))
}

/// Rows, or a weight that is read as a vector.
fn each(cx: &Context<'_>, class: Id) -> Option<ParamKind> {
    let weight = cx.vector_of(class).or_else(|| cx.matrix_of(class).map(|(n, k)| n * k));
    weight.map_or_else(|| cx.rows_kind(class), |len| Some(ParamKind::Vector { len }))
}

/// Columns of rows, or of a vector.
fn columns(cx: &Context<'_>, class: Id) -> Option<usize> {
    cx.vector_of(class).or_else(|| cx.rows_of(class).map(|(_, cols)| cols))
}

/// The state of fixed size of a class.
fn fixed(cx: &Context<'_>, class: Id) -> Option<FixedSpec> {
    cx.graph[class].data.ty.as_ref()?.state()?.fixed().copied()
}
