//! ModernBERT's decoders, Ettin (arXiv 2507.11412): its layers with windows that look back only, and a
//! head as masked tokens have.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, DenseHead, HEAD_DENSE, HEAD_NORM, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::modernbert_windows::{ROPES, reach};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_GATE_UP, MLP_NORM, NORM, Names, TABLE, TABLE_NORM,
    Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, ATTENTION_BIAS, HEADS, MLP_BIAS, MODEL, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope_kinds::read_two;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "modernbert-decoder",
    class: "ModernBertDecoderForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, ATTENTION_BIAS, MLP_BIAS, OWN],
    // What files of ModernBERT say besides, and nothing reads.
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute", "sans_pos"])),
        ("layer_norm_eps", Neutral::Same("norm_eps")),
        ("classifier_pooling", Neutral::Any),
        ("causal_mask", Neutral::On),
    ],
    goldens: &["modernbert_decoder"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = &[
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
    Field::new("decoder_bias", Accepts::Flag).unless(Neutral::Any),
    Field::new("classifier_bias", Accepts::Flag),
    Field::new("classifier_activation", Accepts::OneOf(ACTIVATIONS)).unless(Neutral::Words(ACTIVATIONS)),
];

fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = Defaults {
        vocab: Some(50_368),
        heads: Some(12),
        max_position: 8192,
        tied: true,
        eps_field: "norm_eps",
        eps: 1e-5,
        act: ("hidden_activation", UnaryOp::Gelu),
        ..Defaults::LLAMA
    };
    let mut d = Decoder::read_with(f, &defaults, |heads, max_position| read_two(f, heads.dim, max_position, ROPES))?;
    d.norm = Norm { bias: f.flag("norm_bias"), ..Norm::layer(d.norm.eps) };
    d.table_norm = Some(d.norm);
    d.head_bias = f.flag_or("decoder_bias", true);
    let act = common::activation(f, "classifier_activation", UnaryOp::Gelu);
    d.dense_head = Some(DenseHead { act, bias: f.flag("classifier_bias") });
    let every = f.size("global_attn_every_n_layers").or(3);
    let sliding = common::sliding_layers(f, d.facts.layers)?
        .unwrap_or_else(|| (0..d.facts.layers).map(|i| !i.is_multiple_of(every)).collect());
    // Half of what an encoder sees, which looks both ways.
    let window = reach(f)?;
    if window == 0 {
        let expected = "at least 2: this architecture has windows of half as many tokens".into();
        return Err(f.invalid("local_attention", &1, expected));
    }
    // The norm of the embeddings stands in place of the first one.
    d.layers.first_mut().into_iter().for_each(|layer| layer.norms = Some(Norms::BeforeMlp));
    let (bias, mlp_bias) = (f.flag("attention_bias"), f.flag("mlp_bias"));
    let d = d.with_attention(|i, a| {
        (a.qkv_bias, a.out_bias) = (bias, bias);
        (a.rotary, a.window) = (Some(usize::from(sliding[i])), sliding[i].then_some(window));
    });
    Ok(d.with_mlp(|m| (m.fused, m.bias) = (true, mlp_bias)))
}

const NAMES: Table = &[
    (TABLE, "model.embeddings.tok_embeddings"),
    (TABLE_NORM, "model.embeddings.norm"),
    (HEAD_DENSE, "lm_head.dense"),
    (HEAD_NORM, "lm_head.norm"),
    (HEAD, "decoder"),
    (NORM, "model.final_norm"),
    (ATTN_NORM, "model.layers.{}.attn_norm"),
    (ATTN_Q, "model.layers.{}.attn.q_proj"),
    (ATTN_K, "model.layers.{}.attn.k_proj"),
    (ATTN_V, "model.layers.{}.attn.v_proj"),
    (ATTN_OUT, "model.layers.{}.attn.Wo"),
    (MLP_NORM, "model.layers.{}.mlp_norm"),
    (MLP_GATE_UP, "model.layers.{}.mlp.Wi"),
    (MLP_DOWN, "model.layers.{}.mlp.Wo"),
];
