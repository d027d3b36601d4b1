//! HunYuan with experts (Tencent, 2025): HunYuan with experts in every layer, beside an MLP for all
//! tokens that is as wide as each.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{Experts, Shared};
use crate::arch::blocks::families::hunyuan::{NORMS, read};
use crate::arch::blocks::names::{
    DEEPSEEK_EXPERTS, HUGGING_FACE, Names, ROUTER, SHARED_DOWN, SHARED_GATE, SHARED_UP, Table,
};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hunyuan_v1_moe",
    class: "HunYuanMoEV1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[
        ("use_qk_norm", Neutral::On),
        ("qk_norm", Neutral::On),
        ("qk_layernorm", Neutral::On),
        ("cla_share_factor", Neutral::Any),
        ("org_vocab_size", Neutral::Same("vocab_size")),
        ("use_mixed_mlp_moe", Neutral::On),
        ("norm_topk_prob", Neutral::On),
        // It has none of these, and one MLP for all tokens.
        ("num_shared_expert", Neutral::Any),
        ("moe_intermediate_size", Neutral::Any),
    ],
    goldens: &["hunyuan_v1_moe"],
    names: Names(&[NAMES, NORMS, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let d = read(f, false)?;
        let (count, top) = (same(f, "num_experts", None)?, same(f, "moe_topk", Some(1))?);
        let experts = Experts::like(&d, Router::softmax(top, true), count);
        let experts = Experts { shared: Some(Shared::plain(experts.ffn)), ..experts };
        let experts = experts.checked(f, ["num_experts", "moe_topk"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("num_experts", Accepts::Any).or(&["num_local_experts"]),
    Field::new("moe_topk", Accepts::Any).or(&["num_experts_per_tok"]),
];

const NAMES: Table = &[
    (ROUTER, "model.layers.{}.mlp.gate.wg"),
    (SHARED_GATE, "model.layers.{}.mlp.shared_mlp.gate_proj"),
    (SHARED_UP, "model.layers.{}.mlp.shared_mlp.up_proj"),
    (SHARED_DOWN, "model.layers.{}.mlp.shared_mlp.down_proj"),
];

/// A number for all layers, or a list of the same for each.
fn same(f: &Fields, field: &str, default: Option<usize>) -> Result<usize, ConfigError> {
    let Some(v) = f.get(field).value() else {
        let help = || f.unsupported(field, "absent".into(), "this architecture has a number of experts there".into());
        return default.ok_or_else(help);
    };
    let one = match v.as_array() {
        Some(list) => list.first().filter(|first| list.iter().all(|v| v == *first)),
        None => Some(v),
    };
    let number = one.and_then(serde_json::Value::as_u64).filter(|n| (1..=4096).contains(n));
    let expected = "a whole number from 1 to 4096, or a list of the same for each layer";
    match number.and_then(|n| usize::try_from(n).ok()) {
        Some(n) => Ok(n),
        None => Err(f.invalid_value(field, v, format!("{expected}: this architecture has equal layers here"))),
    }
}
