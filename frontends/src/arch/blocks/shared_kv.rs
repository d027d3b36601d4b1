//! Layers without keys and values of their own, which read an earlier layer's (Gemma 3n and Gemma
//! 4; YOCO, arXiv 2405.05254, Cross-Layer Attention, 2405.12981).

use crate::arch::blocks::attention::{Attention, Norm, linear, qk_norm};
use crate::arch::blocks::attention_scores::attended;
use crate::arch::blocks::layer::Layer;
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_OUT, ATTN_Q, ATTN_Q_NORM};
use crate::config::ConfigError;
use crate::config::fields::Fields;
use llmcc_ir::graph::{Op, Value};

const FIELD: &str = "num_kv_shared_layers";

/// Lets the last `count` layers read the state of the last layer before them that sees as far.
///
/// # Errors
/// When there is no such layer.
pub(crate) fn share_last(f: &Fields, layers: &mut [Layer], count: usize) -> Result<(), ConfigError> {
    if count == 0 {
        return Ok(());
    }
    let help = |what: &str| f.unsupported(FIELD, count.to_string(), format!("this architecture expects {what}"));
    let Some(first) = layers.len().checked_sub(count).filter(|first| *first > 0) else {
        return Err(help(&format!("fewer of them than `num_hidden_layers` ({})", layers.len())));
    };
    let (own, shared) = layers.split_at_mut(first);
    for l in shared {
        let window = l.attention.window;
        l.shares = own.iter().rposition(|o| o.attention.window == window);
        if l.shares.is_none() {
            return Err(help(
                "fewer, so that earlier layers have every kind of attention that `layer_types` has \
                for the sharing layers",
            ));
        }
    }
    Ok(())
}

/// Attention over `kv`, which another layer has updated in this step: queries of `h`, perhaps
/// normalized and rotated by `rope`, and the projection of their results.
#[track_caller]
pub(crate) fn attention_over(
    f: &mut Draft,
    a: &Attention,
    eps: Norm,
    h: Value,
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let (hidden, width, own) = (f.facts().hidden, a.heads.queries * a.heads.dim, a.own());
    let q = linear(f, ATTN_Q, [width, hidden], own.qkv_bias, h);
    let q = own.qk_norm.map_or(q, |of| qk_norm(f, of, ATTN_Q_NORM, a, a.heads.queries, eps, q));
    let q = rope.map_or(q, |rope| f.op(Op::Rope { head_dim: a.heads.dim }, &[q, rope]));
    let y = attended(f, &a.scoring(), q, kv, positions);
    linear(f, ATTN_OUT, [hidden, width], own.out_bias, y)
}
