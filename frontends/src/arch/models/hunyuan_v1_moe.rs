//! HunYuan with experts (Tencent, 2025): HunYuan with experts in every layer, beside an MLP for all
//! tokens that is as wide as each.

use crate::arch::blocks::families::hunyuan::{NORMS, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hunyuan_v1_moe",
    class: "HunYuanMoEV1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: fixed! {
        On => use_qk_norm qk_norm qk_layernorm use_mixed_mlp_moe norm_topk_prob;
        Any => cla_share_factor moe_intermediate_size;
        Same("vocab_size") => org_vocab_size;
        // It has none of these, and one MLP for all tokens.
        Any => num_shared_expert;
    },
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

const OWN: &[Field] = fields! {
    num_experts | num_local_experts: Accepts::Any, moe_topk | num_experts_per_tok: Accepts::Any,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.gate.wg", SHARED_GATE => "mlp.shared_mlp.gate_proj", SHARED_UP => "mlp.shared_mlp.up_proj",
        SHARED_DOWN => "mlp.shared_mlp.down_proj",
    }
};

/// A number for all layers, or a list of the same for each.
fn same(f: &Fields, field: &str, default: Option<usize>) -> Result<usize, ConfigError> {
    let Some(v) = f.get(field).value() else {
        let help = || f.unsupported(field, "absent".into(), "this architecture expects a number of experts".into());
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
        None => Err(f.invalid_value(field, v, format!("{expected}: this architecture expects equal layers here"))),
    }
}
