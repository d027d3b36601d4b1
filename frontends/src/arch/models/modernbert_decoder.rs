//! ModernBERT's decoders, Ettin (arXiv 2507.11412): its layers with windows that look back only, and a
//! head as masked tokens have.

use crate::arch::blocks::decoder::{DenseHead, HEAD_DENSE, HEAD_NORM};
use crate::arch::blocks::families::modernbert_windows::{ROPES, reach};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "modernbert-decoder",
    class: "ModernBertDecoderForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, ATTENTION_BIAS, MLP_BIAS, OWN],
    // Further fields of ModernBERT's files, which nothing reads.
    fixed: fixed! {
        Words(&["absolute", "sans_pos"]) => position_embedding_type;
        Same("norm_eps") => layer_norm_eps;
        Any => classifier_pooling;
        On => causal_mask;
    },
    goldens: &["modernbert_decoder"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = fields! {
    intermediate_size, hidden_activation, norm_eps, norm_bias, local_attention, sliding_window,
    global_attn_every_n_layers, layer_types: Accepts::ListOf(&["full_attention", "sliding_attention"]),
    global_rope_theta, local_rope_theta, rope_scaling, rope_parameters, decoder_bias, classifier_bias,
    classifier_activation,
};

fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = defaults! {
        vocab: 50_368, heads: 12, max_position: 8192, tied: true, eps(norm_eps): 1e-5, act(hidden_activation): Gelu,
        ..LLAMA
    };
    let mut d = Decoder::read_with(f, &defaults, |heads, max_position| read_two(f, heads.dim, max_position, ROPES))?;
    d.norm = Norm { bias: f.flag("norm_bias"), ..Norm::layer(d.norm.eps) };
    d.embedding.norm = Some(d.norm);
    d.head.bias = f.flag_or("decoder_bias", true);
    let act = common::activation(f, "classifier_activation", UnaryOp::Gelu);
    d.head.dense = Some(DenseHead { act, bias: f.flag("classifier_bias") });
    let every = f.size("global_attn_every_n_layers").or(3);
    let sliding = common::sliding_layers(f, d.facts.layers)?
        .unwrap_or_else(|| (0..d.facts.layers).map(|i| !i.is_multiple_of(every)).collect());
    // Half of an encoder's window, which covers both sides.
    let window = reach(f)?;
    if window == 0 {
        let expected = "at least 2: this architecture has windows of half as many tokens".into();
        return Err(f.invalid("local_attention", &1, expected));
    }
    // The norm of the embeddings stands in place of the first one.
    d.layers.first_mut().into_iter().for_each(|layer| layer.norms = Some(Norms::BeforeMlp));
    let (bias, mlp_bias) = (f.flag("attention_bias"), f.flag("mlp_bias"));
    let d = d.with_heads(|i, a, h| {
        (h.qkv_bias, h.out_bias) = (bias, bias);
        (a.rotary, a.window) = (Some(usize::from(sliding[i])), sliding[i].then_some(window));
    });
    Ok(d.with_mlp(|m| (m.joined, m.bias) = (Some(Joined::GateUp), mlp_bias)))
}

const NAMES: Table = names! {
    "model." { TABLE => "embeddings.tok_embeddings", TABLE_NORM => "embeddings.norm", NORM => "final_norm" }
    "lm_head." { HEAD_DENSE => "dense", HEAD_NORM => "norm" }
    "" { HEAD => "decoder" }
    "model.layers.{}." {
        ATTN_NORM => "attn_norm", ATTN_Q => "attn.q_proj", ATTN_K => "attn.k_proj", ATTN_V => "attn.v_proj",
        ATTN_OUT => "attn.Wo", MLP_NORM => "mlp_norm", MLP_GATE_UP => "mlp.Wi", MLP_DOWN => "mlp.Wo",
    }
};
