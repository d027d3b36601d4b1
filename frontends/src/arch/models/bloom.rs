//! BLOOM (arXiv 2211.05100): scores with slopes instead of positions (ALiBi), embeddings behind a
//! norm, Q, K and V stored head by head, biases everywhere.

use crate::arch::blocks::layer::Norms;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bloom",
    class: "BloomForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["bloom"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { vocab: 250_880, heads: 8, max_position: 2048, ..GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        d.embedding.norm = Some(d.norm);
        if f.flag("apply_residual_connection_post_layernorm") {
            d.norms = Norms::Entering;
        }
        let d = d.with_heads(|_, a, h| {
            (h.projection, h.qkv_bias, h.out_bias, a.rotary) = (Projection::ByGroup, true, true, None);
            h.with_dot(|s| s.distance = Some(Distance::Slopes { max: 8.0 }));
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = fields! {
    apply_residual_connection_post_layernorm, _name_or_path, quantization_config, vocab_size, hidden_size | n_embed,
    num_hidden_layers | n_layer, num_attention_heads | n_head, max_position_embeddings | seq_length,
    tie_word_embeddings, bos_token_id, eos_token_id, layer_norm_epsilon,
};

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = names! {
    "transformer." | "" { TABLE => "word_embeddings", TABLE_NORM => "word_embeddings_layernorm", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." | "h.{}." {
        ATTN_NORM => "input_layernorm", ATTN_QKV => "self_attention.query_key_value",
        ATTN_OUT => "self_attention.dense", MLP_NORM => "post_attention_layernorm", MLP_UP => "mlp.dense_h_to_4h",
        MLP_DOWN => "mlp.dense_4h_to_h",
    }
};
