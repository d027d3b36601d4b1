//! The encoder of Switch Transformers (arXiv 2101.03961): T5's, with experts in place of some MLPs, one for
//! each token. An expert takes no more than some tokens of a text; those after them get nothing of it.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::Experts;
use crate::arch::blocks::families::t5_encoder::{self, Absent, FIELDS, NAMES, read};
use crate::arch::blocks::names::{ATTN_BIAS, EXPERT_DOWN, EXPERT_UP, MLP_DOWN, MLP_UP, Names, ROUTER, Table};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{Router, UnaryOp};

pub(crate) const ARCH: Arch = Arch {
    model_type: "switch_transformers",
    class: "SwitchTransformersEncoderModel",
    fields: &[IDENTITY, FIELDS.split_at(9).0, &[FIELDS[10], FIELDS[12], FIELDS[13], FIELDS[14]], OWN],
    fixed: FIXED,
    goldens: &["switch_transformers"],
    names: Names(&[EXPERTS, NAMES]),
    read: |f| {
        let mut e = read(f, &ABSENT)?;
        let router = Router::softmax(1, false);
        let mlp = e.layers.first().map_or((0, UnaryOp::Relu), |l| (l.mlp.ffn, l.mlp.act));
        let experts = Experts {
            gated: false,
            router_bias: f.flag_or("router_bias", false),
            capacity: Some(f.size("expert_capacity").or(64)),
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

const OWN: &[Field] = &[
    Field::new("num_experts", Accepts::Size(4096)),
    Field::new("expert_capacity", Accepts::Size(1 << 24)),
    Field::new("router_bias", Accepts::Flag),
    Field::new("num_sparse_encoder_layers", Accepts::Count),
    Field::new("encoder_sparse_step", Accepts::Count),
];

const FIXED: &[(&str, Neutral)] = &[
    t5_encoder::FIXED[0],
    t5_encoder::FIXED[1],
    t5_encoder::FIXED[2],
    t5_encoder::FIXED[3],
    t5_encoder::FIXED[4],
    t5_encoder::FIXED[5],
    t5_encoder::FIXED[6],
    ("add_cross_attention", Neutral::Off),
    // No MLP has a gate, and `dense_act_fn` says the activation.
    ("feed_forward_proj", Neutral::Words(&["relu"])),
    ("is_gated_act", Neutral::Off),
    // Of the decoder.
    ("num_sparse_decoder_layers", Neutral::Any),
    ("decoder_sparse_step", Neutral::Any),
    // Another type would round what the router computes.
    ("router_dtype", Neutral::Words(&["float32"])),
    // There is one way, and it is this.
    ("router_type", Neutral::Words(&["tokens_masked"])),
    // Of training, and of texts that are filled up.
    ("router_jitter_noise", Neutral::Any),
    ("router_ignore_padding_tokens", Neutral::Any),
    ("router_z_loss_coef", Neutral::Any),
    ("router_aux_loss_coef", Neutral::Any),
    ("add_router_probs", Neutral::Any),
];

const EXPERTS: Table = &[
    (ATTN_BIAS, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    (MLP_UP, "encoder.block.{}.layer.1.mlp.wi"),
    (MLP_DOWN, "encoder.block.{}.layer.1.mlp.wo"),
    (ROUTER, "encoder.block.{}.layer.1.mlp.router.classifier"),
    (EXPERT_UP, "encoder.block.{}.layer.1.mlp.experts.expert_{e}.wi"),
    (EXPERT_DOWN, "encoder.block.{}.layer.1.mlp.experts.expert_{e}.wo"),
];
