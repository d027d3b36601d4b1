//! Nomic BERT (arXiv 2402.01613): BERT with rotary positions and gated MLPs, without biases in products.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nomic_bert",
    class: "NomicBertModel",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention use_rms_norm prenorm parallel_block qkv_proj_bias mlp_fc1_bias
            mlp_fc2_bias rotary_emb_interleaved rotary_emb_scale_base;
        // These are in the authors' files.
        Off => causal;
        Any => pad_vocab_size_multiple;
    },
    goldens: &["nomic_bert"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut facts = Facts::read(f, Some(30_528), 2048, true)?;
        // Changes the frequencies of longer texts than were trained with.
        if f.number("rotary_scaling_factor").is_some() {
            facts.max_position = facts.max_position.min(f.size("max_trained_positions").or(2048));
        }
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let act = match f.text("hidden_act") {
            Some("geglu") => UnaryOp::Gelu,
            _ => common::activation(f, "hidden_act", UnaryOp::Silu),
        };
        let ffn = f.required_size("intermediate_size")?;
        let rope = rope::read(f, heads.dim, facts.max_position, 1000.0)?;
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", 1e-12)?);
        e.embedding.types = f.size("type_vocab_size").or(2);
        e.ropes = vec![rope];
        for layer in &mut e.layers {
            layer.attention.change_heads(|a, h| {
                (h.projection, h.qkv_bias, h.out_bias, a.rotary) = (Projection::Fused, false, false, Some(0));
            });
            (layer.mlp.gated, layer.mlp.bias) = (true, false);
        }
        e.spare = &["nomic_bert.pooler.", "pooler.", "cls."];
        Ok(Box::new(e))
    },
};

/// Activations of gates by their names in Transformers, and by the names of gated MLPs in the authors' files.
const ACTS: &[&str] =
    &["silu", "swish", "swiglu", "gelu", "geglu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu"];

/// The second names come from the authors' files.
const OWN: &[Field] = fields! {
    num_key_value_heads, head_dim, rope_theta | rotary_emb_base, rope_scaling, rope_parameters,
    original_max_position_embeddings, rotary_scaling_factor, max_trained_positions, intermediate_size | n_inner,
    hidden_act | activation_function: Accepts::OneOf(ACTS), layer_norm_eps | layer_norm_epsilon, type_vocab_size,
};

const NAMES: Table = names! {
    "nomic_bert." {
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "emb_ln",
        POOLER => "pooler.dense",
    }
    "nomic_bert.encoder.layers.{}." {
        ATTN_QKV => "attn.Wqkv", ATTN_OUT => "attn.out_proj", ATTN_POST_NORM => "norm1", MLP_GATE => "mlp.fc12",
        MLP_UP => "mlp.fc11", MLP_DOWN => "mlp.fc2", MLP_POST_NORM => "norm2",
    }
    "" { CLASSES => "classifier" }
};
