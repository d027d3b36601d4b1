//! ModernBERT (arXiv 2412.13663): norms before the blocks, rotary positions, gated MLPs, and in two
//! layers of three a window on both sides, with a rotary table of its own.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::encoder::{ClassHead, Encoder};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::modernbert_windows::{ROPES, reach};
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE_UP, MLP_NORM, NORM, Names, POOLER, POOLER_NORM, TABLE,
    TABLE_NORM, Table,
};
use crate::config::ConfigError;
use crate::config::common::{
    self, ACTIVATIONS, ATTENTION_BIAS, DefaultHeads, Facts, Heads, MLP_BIAS, MODEL, TOKENS, WIDTH,
};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope_kinds::read_two;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;

pub(crate) const ARCH: Arch = Arch {
    model_type: "modernbert",
    class: "ModernBertModel",
    fields: &[IDENTITY, MODEL, ATTENTION_BIAS, MLP_BIAS, FIELDS],
    // What files of ModernBERT say besides, and nothing reads.
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute", "sans_pos"])),
        ("layer_norm_eps", Neutral::Same("norm_eps")),
    ],
    goldens: &["modernbert", "modernbert_classes", "modernbert_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = &[
    Field::new("num_attention_heads", Accepts::Size(1 << 14)),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_activation", Accepts::OneOf(ACTIVATIONS)),
    Field::new("norm_eps", Accepts::Number),
    Field::new("norm_bias", Accepts::Flag),
    Field::new("local_attention", TOKENS),
    Field::new("sliding_window", TOKENS),
    Field::new("global_attn_every_n_layers", Accepts::Size(4096)),
    Field::new("layer_types", Accepts::ListOf(&["full_attention", "sliding_attention"])),
    Field::new("global_rope_theta", Accepts::Number),
    Field::new("local_rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("classifier_pooling", Accepts::Text).unless(Neutral::Words(&["cls", "mean"])),
    Field::new("classifier_bias", Accepts::Flag),
    Field::new("classifier_activation", Accepts::OneOf(ACTIVATIONS)).unless(Neutral::Words(ACTIVATIONS)),
];

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
        let (a, bias) = (&mut layer.attention, f.flag("attention_bias"));
        (a.fused, a.qkv_bias, a.out_bias) = (true, bias, bias);
        (a.rotary, a.window) = (Some(usize::from(sliding)), sliding.then_some(window));
        (layer.mlp.gated, layer.mlp.fused, layer.mlp.bias) = (true, true, f.flag("mlp_bias"));
    }
    let pool = match f.text("classifier_pooling") {
        None | Some("cls") => Pool::First,
        Some("mean") => Pool::Mean,
        Some(other) => {
            let found = format!("\"{other}\"");
            return Err(f.unsupported("classifier_pooling", found, "this architecture has `cls` and `mean`".into()));
        }
    };
    let act = common::activation(f, "classifier_activation", UnaryOp::Gelu);
    e.classes = ClassHead { pool, dense: true, act, bias: f.flag("classifier_bias"), norm: true, late: false };
    e.spare = &["head.", "decoder.", "lm_head."];
    Ok(e)
}

const NAMES: Table = &[
    (TABLE, "model.embeddings.tok_embeddings"),
    (TABLE_NORM, "model.embeddings.norm"),
    (NORM, "model.final_norm"),
    (ATTN_NORM, "model.layers.{}.attn_norm"),
    (ATTN_QKV, "model.layers.{}.attn.Wqkv"),
    (ATTN_OUT, "model.layers.{}.attn.Wo"),
    (MLP_NORM, "model.layers.{}.mlp_norm"),
    (MLP_GATE_UP, "model.layers.{}.mlp.Wi"),
    (MLP_DOWN, "model.layers.{}.mlp.Wo"),
    (POOLER, "head.dense"),
    (POOLER_NORM, "head.norm"),
    (CLASSES, "classifier"),
];
