//! ModernBERT (arXiv 2412.13663): norms before the blocks, rotary positions, gated MLPs, and in two
//! layers of three a window on both sides, with a rotary table of its own.

use crate::arch::blocks::families::modernbert_windows::{ROPES, reach};
use crate::arch::blocks::names::POOLER_NORM;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "modernbert",
    class: "ModernBertModel",
    fields: &[IDENTITY, MODEL, ATTENTION_BIAS, MLP_BIAS, FIELDS],
    // Further fields of ModernBERT's files, which nothing reads.
    fixed: fixed! { Words(&["absolute", "sans_pos"]) => position_embedding_type; Same("norm_eps") => layer_norm_eps; },
    goldens: &["modernbert", "modernbert_classes", "modernbert_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = fields! {
    num_attention_heads, intermediate_size, hidden_activation, norm_eps, norm_bias, local_attention, sliding_window,
    global_attn_every_n_layers, layer_types: Accepts::ListOf(&["full_attention", "sliding_attention"]),
    global_rope_theta, local_rope_theta, rope_scaling, rope_parameters, classifier_pooling, classifier_bias,
    classifier_activation,
};

fn read(f: &Fields) -> Result<Encoder, ConfigError> {
    let facts = Facts::read(f, Some(50_368), 8192, true)?;
    let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
    let (ffn, act) = (f.required_size("intermediate_size")?, common::activation(f, "hidden_activation", UnaryOp::Gelu));
    let every = f.size("global_attn_every_n_layers").or(3);
    let sliding = common::sliding_layers(f, facts.layers)?
        .unwrap_or_else(|| (0..facts.layers).map(|i| !i.is_multiple_of(every)).collect());
    // So many tokens on either side, and the token itself.
    let window = reach(f)?.saturating_add(1);
    let ropes = read_two(f, heads.dim, facts.max_position, ROPES)?;
    let norm_bias = f.flag("norm_bias");
    let eps = common::eps(f, "norm_eps", 1e-5)?;
    let mut e = Encoder::alike(facts, heads, (ffn, act), eps);
    (e.norm, e.norm_first, e.ropes) = (Norm { bias: norm_bias, ..Norm::layer(eps) }, true, ropes);
    for (i, (layer, sliding)) in e.layers.iter_mut().zip(sliding).enumerate() {
        layer.attention_norm = i > 0;
        let bias = f.flag("attention_bias");
        layer.attention.change_heads(|a, h| {
            (h.projection, h.qkv_bias, h.out_bias) = (Projection::Fused, bias, bias);
            (a.rotary, a.window) = (Some(usize::from(sliding)), sliding.then_some(window));
        });
        (layer.mlp.gated, layer.mlp.joined, layer.mlp.bias) = (true, Some(Joined::GateUp), f.flag("mlp_bias"));
    }
    let pool = ClassHead::pool(f)?;
    let act = common::activation(f, "classifier_activation", UnaryOp::Gelu);
    e.classes = ClassHead { pool, dense: true, act, bias: f.flag("classifier_bias"), norm: true, late: false };
    e.spare = &["head.", "decoder.", "lm_head."];
    Ok(e)
}

const NAMES: Table = names! {
    "model." { TABLE => "embeddings.tok_embeddings", TABLE_NORM => "embeddings.norm", NORM => "final_norm" }
    "model.layers.{}." {
        ATTN_NORM => "attn_norm", ATTN_QKV => "attn.Wqkv", ATTN_OUT => "attn.Wo", MLP_NORM => "mlp_norm",
        MLP_GATE_UP => "mlp.Wi", MLP_DOWN => "mlp.Wo",
    }
    "head." { POOLER => "dense", POOLER_NORM => "norm" }
    "" { CLASSES => "classifier" }
};
