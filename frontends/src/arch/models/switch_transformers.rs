//! The encoder of Switch Transformers (arXiv 2101.03961): T5's, with experts in place of some MLPs, one for
//! each token. An expert takes no more than some tokens of a text; those after them get nothing of it.

use crate::arch::blocks::families::t5_encoder::{Absent, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "switch_transformers",
    class: "SwitchTransformersEncoderModel",
    fields: &[IDENTITY, OWN],
    fixed: FIXED,
    goldens: &["switch_transformers"],
    names: Names(&[EXPERTS, NAMES]),
    read: |f| {
        let mut e = read(f, &ABSENT)?;
        let router = Router::softmax(1, false);
        let mlp = e.layers.first().map_or((0, UnaryOp::Relu), |l| (l.mlp.ffn, l.mlp.act));
        let experts = Experts {
            gated: false,
            routing: Routing {
                bias: f.flag_or("router_bias", false),
                capacity: Some(f.size("expert_capacity").or(64)),
                ..Routing::default()
            },
            ..Experts::plain(router, f.size("num_experts").or(8), mlp)
        };
        let experts = experts.checked(f, ["num_experts", "num_experts"])?;
        // Without experts it is the number of layers, which makes the second layer one that has some.
        let some = f.count("num_sparse_encoder_layers").unwrap_or(3);
        let step = e.layers.len().checked_div(some).unwrap_or(e.layers.len());
        let step = f.count("encoder_sparse_step").unwrap_or(step);
        for (i, layer) in e.layers.iter_mut().enumerate() {
            let sparse = step == 1 || i.checked_rem(step) == Some(1);
            layer.experts = sparse.then_some(experts);
        }
        Ok(Box::new(e))
    },
};

const ABSENT: Absent = Absent { layers: 12, heads: 12, ..Absent::T5 };

const OWN: &[Field] = fields! {
    quantization_config, vocab_size, d_model, d_kv, d_ff, num_layers, num_heads, n_positions, layer_norm_epsilon,
    dense_act_fn, relative_attention_num_buckets, relative_attention_max_distance, eos_token_id, num_experts,
    expert_capacity, router_bias, num_sparse_encoder_layers, encoder_sparse_step,
};

const FIXED: &[(&str, Neutral)] = fixed! {
    Off => is_decoder add_cross_attention is_gated_act;
    Any => is_encoder_decoder num_decoder_layers scale_decoder_outputs tie_word_embeddings dropout_rate bos_token_id
        decoder_sparse_step router_ignore_padding_tokens router_z_loss_coef router_aux_loss_coef add_router_probs;
    // No MLP has a gate, and `dense_act_fn` says the activation.
    Words(&["relu"]) => feed_forward_proj;
    // Field of the decoder.
    Any => num_sparse_decoder_layers;
    // Another type would round the router's results.
    Words(&["float32"]) => router_dtype;
    // There is one way, and it is this.
    Words(&["tokens_masked"]) => router_type;
    // Fields of training, and of padded texts.
    Any => router_jitter_noise;
};

const EXPERTS: Table = names! {
    "" { ATTN_BIAS => "encoder.block.0.layer.0.SelfAttention.relative_attention_bias" }
    "encoder.block.{}." {
        MLP_UP => "layer.1.mlp.wi", MLP_DOWN => "layer.1.mlp.wo", ROUTER => "layer.1.mlp.router.classifier",
        EXPERT_UP => "layer.1.mlp.experts.expert_{e}.wi", EXPERT_DOWN => "layer.1.mlp.experts.expert_{e}.wo",
    }
};
