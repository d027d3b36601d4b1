//! Granite 4 (IBM, 2025): mixers of Mamba-2 in most layers, attention without positions in the
//! others, an MLP for all tokens, in the larger ones beside experts.

use crate::arch::blocks::families::granite_experts::{self, MULTIPLIERS, experts, read};
use crate::arch::blocks::families::mamba_fields::{EXPAND, MAMBA, MIXER, mixer};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MULTIPLIERS, MAMBA, EXPAND, OWN],
    fixed: fixed! { Any => mamba_chunk_size rope; Words(&["rmsnorm"]) => normalization_function; },
    goldens: &["granitemoehybrid", "granitemoehybrid_dense"],
    names: Names(&[NAMES, granite_experts::NAMES, MIXER, HUGGING_FACE]),
    read: |f| {
        let rotates = match f.text("position_embedding_type") {
            Some("rope") => true,
            None | Some("nope") => false,
            Some(other) => {
                let help = "this architecture expects rotary positions (\"rope\") or none (\"nope\")".to_string();
                return Err(f.unsupported("position_embedding_type", format!("{other:?}"), help));
            }
        };
        let d = read(f)?.with_attention(|_, a| a.rotary = a.rotary.filter(|_| rotates));
        let mixer = mixer(f, f.size("mamba_expand").or(2).saturating_mul(d.facts.hidden))?;
        let mixes = mixing_layers(f, d.facts.layers)?;
        let mut d = d.with_mixers(|i| mixes[i].then_some(Mixer::Mamba2(mixer)));
        if !rotates {
            d.ropes.clear();
        }
        let beside = f.size("shared_intermediate_size").or(1024);
        if f.count("num_local_experts") == Some(0) {
            return Ok(Box::new(d.with_mlp(|m| (m.ffn, m.joined) = (beside, Some(Joined::GateUp)))));
        }
        if f.count("num_experts_per_tok") == Some(0) {
            let help = "this architecture expects at least one expert of each token, or no experts".to_string();
            return Err(f.unsupported("num_experts_per_tok", "0".into(), help));
        }
        let shared = Some(Shared { fused: true, ..Shared::plain(beside) });
        let experts = Experts { shared, ..experts(f, &d)? };
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! {
    num_local_experts | num_experts: Accepts::Count, num_experts_per_tok: Accepts::Count, shared_intermediate_size,
    position_embedding_type, layer_types | layers_block_type: Accepts::ListOf(LAYER_TYPES),
};

/// As older and newer files say it; the last is refused with a word of its own.
const LAYER_TYPES: &[&str] = &["mamba", "attention", "linear_attention", "full_attention", "sliding_attention"];

/// Names of the MLP where there are no experts.
const NAMES: Table = names! {
    "model.layers.{}." { MLP_GATE_UP => "shared_mlp.input_linear", MLP_DOWN => "shared_mlp.output_linear" }
};

/// Which layers have mixers.
fn mixing_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(types) = common::layer_types(f, layers)? else { return Ok(vec![true; layers]) };
    if types.contains(&"sliding_attention") {
        let help = "this architecture supports mixers and full attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| matches!(t, "mamba" | "linear_attention")).collect())
}
