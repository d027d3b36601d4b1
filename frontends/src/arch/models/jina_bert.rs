//! Jina's BERT of version 2 (arXiv 2310.19923): BERT whose scores fall with the distance of the
//! key, on both sides, instead of learned positions, and whose MLPs may have gates. The model for
//! code normalizes queries and keys, and attention's output twice.
//!
//! Its files call themselves `bert`; the class tells them apart.

use crate::arch::blocks::encoder::{AGAIN_NORM, Defaults, FIELDS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jina_bert",
    class: "JinaBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: fixed! {
        Words(&["alibi"]) => position_embedding_type;
        Off => is_decoder add_cross_attention;
        Words(&["mean"]) => emb_pooler;
        Any => attn_implementation model_max_length;
    },
    goldens: &["jina_bert", "jina_bert_reglu", "jina_bert_norms"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults::BERT)?;
        e.positions = None;
        let gated = match f.text("feed_forward_type") {
            Some("geglu") => Some(UnaryOp::Gelu),
            Some("reglu") => Some(UnaryOp::Relu),
            _ => None,
        };
        // The model for code does not say so: it has the tensors.
        let normed = f.flag("qk_post_norm");
        for layer in &mut e.layers {
            layer.again = Some(normed);
            layer.attention.change_heads(|_, h| h.with_dot(|s| s.distance = Some(Distance::BothWays)));
            if let Some(act) = gated {
                let m = &mut layer.mlp;
                (m.act, m.gated, m.fused, m.bias, m.out_bias) = (act, true, true, false, true);
            }
        }
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! { feed_forward_type: Accepts::OneOf(&["original", "geglu", "reglu"]), qk_post_norm };

const NAMES: Table = names! {
    "bert." {
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", POOLER => "pooler.dense",
    }
    "bert.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_GATE_UP => "mlp.gated_layers",
        // Taken apart by llama.cpp's older converters.
        MLP_GATE => "mlp.gated_layers_w", MLP_UP => "mlp.gated_layers_v", MLP_DOWN => "mlp.wo",
        MLP_POST_NORM => "mlp.layernorm",
        // Without gates.
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
        // Names in the model for code.
        ATTN_Q_NORM => "attention.self.layer_norm_q", ATTN_K_NORM => "attention.self.layer_norm_k",
        AGAIN_NORM => "layer_norm_1", MLP_GATE_UP => "mlp.up_gated_layer", MLP_DOWN => "mlp.down_layer",
        MLP_POST_NORM => "layer_norm_2",
    }
    "" { CLASSES => "classifier" }
};
