//! Granite with experts (IBM's Granite 3 of 1B and 3B): Granite with a mixture of experts in every
//! layer, whose weights are a softmax of the chosen logits.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::{Experts, Stored};
use super::names::{EXPERTS_DOWN, EXPERTS_GATE_UP, HUGGING_FACE, Names, ROUTER, Table};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::{Router, Score};

pub(super) const ARCH: Arch = Arch {
    model_type: "granitemoe",
    class: "GraniteMoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["granitemoe"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        // Instead of 1/√head_dim, also where the file does not say it.
        let scale = common::factor(f, "attention_multiplier")?.unwrap_or(1.0);
        let mut d = Decoder::read(f, &Defaults::LLAMA)?;
        d.scales.embedding = common::factor(f, "embedding_multiplier")?;
        d.scales.residual = common::factor(f, "residual_multiplier")?;
        d.scales.logits = common::factor(f, "logits_scaling")?.map(|x| 1.0 / x);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.scale) = (bias, bias, scale));
        let router = Router::softmax(f.size("num_experts_per_tok").or(2), false);
        let router = Router { score: Score::Chosen, ..router };
        let experts =
            Experts { stored: Stored::Joined, ..Experts::like(&d, router, f.size("num_local_experts").or(8)) };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok", "intermediate_size"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("embedding_multiplier", Accepts::Number),
    Field::new("residual_multiplier", Accepts::Number),
    Field::new("attention_multiplier", Accepts::Number),
    Field::new("logits_scaling", Accepts::Number),
    Field::new("num_local_experts", Accepts::Size(4096)).or(&["num_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
];

const NAMES: Table = &[
    (ROUTER, "model.layers.{}.block_sparse_moe.router.layer"),
    (EXPERTS_GATE_UP, "model.layers.{}.block_sparse_moe.input_linear"),
    (EXPERTS_DOWN, "model.layers.{}.block_sparse_moe.output_linear"),
];
