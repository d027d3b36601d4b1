//! BERT that predicts the next token (arXiv 1907.12461): the decoder by itself, which reads no encoder.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bert-generation",
    class: "BertGenerationDecoder",
    fields: &[IDENTITY, MODEL, HEADS, LAYER_NORM_MLP, fields! { is_decoder }],
    fixed: &[("add_cross_attention", Neutral::Off), ("position_embedding_type", Neutral::Words(&["absolute"]))],
    goldens: &["bert_generation"],
    names: Names(&[NAMES]),
    read: |f| {
        if !f.flag("is_decoder") {
            let help = "this architecture expects tokens that see no later ones, as a model that predicts these must";
            return Err(f.unsupported("is_decoder", "false".into(), help.into()));
        }
        let defaults = defaults! {
            vocab: 50_358, heads: 16, max_position: 512, tied: true, eps(layer_norm_eps): 1e-12, act: Gelu, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let norm = Norm::layer(d.norm.eps);
        (d.norm, d.norms, d.embedding.positions, d.embedding.norm) =
            (norm, Norms::Around, Some(Positions::Learned(0)), Some(norm));
        (d.head.norm, d.head.bias) = (false, true);
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "bert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TABLE_NORM => "embeddings.LayerNorm",
    }
    "bert.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_NORM => "output.LayerNorm",
    }
    "" { HEAD => "lm_head.decoder", HEAD => "lm_head" }
};
