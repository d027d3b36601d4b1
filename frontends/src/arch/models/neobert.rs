//! NeoBERT (arXiv 2502.19587): an encoder with RMSNorm before the blocks, rotary positions of
//! neighbours, gated MLPs, and no biases in its layers.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "neobert",
    class: "NeoBERT",
    fields: &[IDENTITY, HEADS, FIELDS],
    fixed: fixed! {
        // Switches of the authors' training code, which published files have set this way.
        Words(&["swiglu"]) => hidden_act;
        HeadDim => dim_head;
        // Fields of the class that made the configuration, and of the tokenizer.
        Any => kwargs;
        Any => pretrained_model_name_or_path trust_remote_code embedding_init_range decoder_init_range
            classifier_init_range tie_word_embeddings;
    },
    goldens: &["neobert", "neobert_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size, num_hidden_layers,
    // Rotary tables have so many rows; elsewhere it is about generating text.
    max_length, intermediate_size, norm_eps, eos_token_id,
};

fn read(f: &Fields) -> Result<Encoder, ConfigError> {
    let facts = Facts { max_position: f.size("max_length").or(1024), ..Facts::read(f, Some(30_522), 1024, false)? };
    let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
    if !heads.dim.is_multiple_of(2) {
        let expected = format!("such that heads have an even number of elements, not {}", heads.dim);
        return Err(f.invalid("num_attention_heads", &heads.queries, expected));
    }
    // Three matrices have as many elements as two of the width that is given, up to a multiple of 8.
    let ffn = (f.size("intermediate_size").or(3072).saturating_mul(2) / 3).next_multiple_of(8);
    let eps = common::eps(f, "norm_eps", 1e-6)?;
    let rope = rope::read(f, heads.dim, facts.max_position, 10_000.0)?;
    let mut e = Encoder::alike(facts, heads, (ffn, UnaryOp::Silu), eps);
    (e.norm, e.norm_first, e.embedding.norm, e.ropes) = (Norm::rms(eps), true, false, vec![rope]);
    for layer in &mut e.layers {
        layer.attention.change_heads(|a, h| {
            (h.projection, h.qkv_bias, h.out_bias) = (Projection::ByGroup, false, false);
            (a.rotary, h.neighbours) = (Some(0), heads.dim);
        });
        (layer.mlp.gated, layer.mlp.joined, layer.mlp.bias) = (true, Some(Joined::GateUp), false);
    }
    e.spare = &["decoder."];
    Ok(e)
}

const NAMES: Table = names! {
    "model." { TABLE => "encoder", NORM => "layer_norm" }
    "model.transformer_encoder.{}." {
        ATTN_NORM => "attention_norm", ATTN_QKV => "qkv", ATTN_OUT => "wo", MLP_NORM => "ffn_norm",
        MLP_GATE_UP => "ffn.w12", MLP_DOWN => "ffn.w3",
    }
    "" { POOLER => "dense", CLASSES => "classifier" }
};
