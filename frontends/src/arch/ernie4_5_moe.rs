//! ERNIE 4.5 with experts (Baidu, 2025): dense layers first, then experts chosen by corrected
//! probabilities, beside an MLP for all tokens.
//!
//! The layers after the last, which predict further tokens, are left out.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::{CORRECTION_ROW, Experts, Shared};
use super::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "ernie4_5_moe",
    class: "Ernie4_5_MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OWN],
    fixed: &[("moe_use_aux_free", Neutral::On), ("moe_gate", Neutral::Words(&["topk"]))],
    goldens: &["ernie4_5_moe"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(103_424),
            heads: Some(20),
            kv_heads: Some(4),
            max_position: 131_072,
            tied: true,
            eps: 1e-5,
            theta: 5e5,
            ..Defaults::LLAMA
        };
        if f.flag("use_bias") {
            let help = "this architecture has biases in some modules only: not supported".to_string();
            return Err(f.unsupported("use_bias", "true".into(), help));
        }
        let d = Decoder::read(f, &defaults)?.with_attention(|_, a| a.neighbours = a.heads.dim);
        let least = f.number("moe_norm_min").unwrap_or(1e-12);
        if !(0.0..=1e-6).contains(&least) {
            let expected = "0 to 1e-6: this architecture has weights whose sum is never below it";
            return Err(f.invalid("moe_norm_min", &least, expected.into()));
        }
        let ffn = f.size("moe_intermediate_size").or(1536);
        let beside = f.count("moe_num_shared_experts").unwrap_or(2).min(1 << 12);
        let experts = Experts {
            ffn,
            correction: Some(CORRECTION_ROW),
            shared: (beside > 0).then_some(Shared::plain(ffn.saturating_mul(beside))),
            ..Experts::like(
                &d,
                Router::softmax(f.size("num_experts_per_tok").or(6), true),
                f.size("moe_num_experts").or(64),
            )
        };
        let experts = experts.checked(f, ["moe_num_experts", "num_experts_per_tok"])?;
        let sparse = sparse(f, d.layers.len())?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("use_bias", Accepts::Flag),
    Field::new("moe_num_experts", Accepts::Size(4096)).or(&["num_experts", "num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)).or(&["moe_k"]),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("moe_num_shared_experts", Accepts::Count),
    Field::new("moe_layer_start_index", Accepts::Count),
    Field::new("moe_layer_end_index", Accepts::Any),
    Field::new("moe_layer_interval", Accepts::Size(4096)),
    Field::new("moe_norm_min", Accepts::Number),
];

const NAMES: Table = &[(CORRECTION_ROW, "model.layers.{}.mlp.moe_statics.e_score_correction_bias")];

/// Which layers have experts.
fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let first = f.count("moe_layer_start_index").unwrap_or(1);
    let every = f.size("moe_layer_interval").or(1);
    let field = "moe_layer_end_index";
    let last = match f.get(field) {
        Given::Absent => layers,
        Given::Null => {
            let help = "this architecture has the number of a layer there".to_string();
            return Err(f.unsupported(field, "null".into(), help));
        }
        Given::Value(v) if v.as_i64() == Some(-1) => layers,
        Given::Value(v) => match v.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => n,
            None => return Err(f.invalid_value(field, v, "the number of a layer, or -1 for the last".into())),
        },
    };
    Ok((0..layers).map(|i| (i + 1).is_multiple_of(every) && i >= first && i <= last).collect())
}
