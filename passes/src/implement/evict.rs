//! Kernels of attention to caches that drop tokens.

use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{Eviction, Op};
use llmcc_ir::kernel::{Body, EvictingAttention, ParamKind, RowElem};
use llmcc_ir::state::FixedSpec;

/// Attention, and the choice of tokens that leave.
pub fn attention(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let Op::EvictingAttention { heads, scale, criterion, budget, recent, drop, window, level, together } = op.op else {
        return None;
    };
    let eviction = Eviction { criterion, budget, recent, drop, window, level, together };
    let (rows, width) = cx.rows_of(class)?;
    let [q, k, v, _positions, state] = op.args[..] else { return None };
    let (_, keys) = cx.rows_of(k)?;
    let spec: FixedSpec = cx.graph[state].data.ty.as_ref()?.state()?.fixed().copied()?;
    let [(q, q_start), (k, k_start), (v, v_start)] = [q, k, v].map(|class| cx.columns_of(class));
    let [q_kind, k_kind, v_kind] = [q, k, v].map(|class| cx.rows_kind(class));
    let (q_kind, k_kind, v_kind) = (q_kind?, k_kind?, v_kind?);
    Some(Draft::new(rows, |d| {
        Body::EvictingAttention(EvictingAttention {
            q: d.input(q, q_kind),
            q_start,
            k: d.input(k, k_kind),
            k_start,
            v: d.input(v, v_kind),
            v_start,
            heads,
            key_dim: keys / spec.heads.max(1),
            scale,
            eviction,
            state: d.input(state, ParamKind::State(spec.into())),
            out: d.output(width, RowElem::F32),
        })
    }))
}
