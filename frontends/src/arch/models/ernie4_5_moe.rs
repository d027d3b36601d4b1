//! ERNIE 4.5 with experts (Baidu, 2025): dense layers first, then experts chosen by corrected
//! probabilities, beside an MLP for all tokens.
//!
//! The layers after the last, which predict further tokens, are left out.

use crate::arch::blocks::experts::CORRECTION_ROW;
use crate::arch::blocks::families::ernie_decoder::{BIASES, EXPERTS, decoder, experts};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ernie4_5_moe",
    class: "Ernie4_5_MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, BIASES, EXPERTS, OWN],
    fixed: &[("moe_use_aux_free", Neutral::On), ("moe_gate", Neutral::Words(&["topk"]))],
    goldens: &["ernie4_5_moe"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let d = decoder(f)?;
        let experts = experts(f, &d, f.size("moe_intermediate_size").or(1536))?;
        let experts = Experts { correction: Some(CORRECTION_ROW), ..experts };
        let sparse = sparse(f, d.layers.len())?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = fields! { moe_intermediate_size, moe_layer_start_index, moe_layer_end_index, moe_layer_interval };

const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION_ROW => "mlp.moe_statics.e_score_correction_bias",
        CORRECTION_ROW => "mlp.gate.moe_statics.e_score_correction_bias",
    }
};

/// Which layers have experts.
fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let first = f.count("moe_layer_start_index").unwrap_or(1);
    let every = f.size("moe_layer_interval").or(1);
    let field = "moe_layer_end_index";
    let last = match f.get(field) {
        Given::Absent => layers,
        Given::Null => {
            let help = "this architecture expects the number of a layer".to_string();
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
