//! Granite 4 (IBM, 2025): mixers of Mamba-2 in most layers, attention without positions in the
//! others, an MLP for all tokens, in the larger ones beside experts.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{Experts, Shared};
use crate::arch::blocks::families::granite_experts::{self, MULTIPLIERS, experts, read};
use crate::arch::blocks::families::mamba_fields::{EXPAND, MAMBA, MIXER, mixer};
use crate::arch::blocks::names::{HUGGING_FACE, MLP_DOWN, MLP_GATE_UP, Names, Table};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granitemoehybrid",
    class: "GraniteMoeHybridForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MULTIPLIERS, MAMBA, EXPAND, OWN],
    fixed: &[
        ("mamba_chunk_size", Neutral::Any),
        ("normalization_function", Neutral::Words(&["rmsnorm"])),
        ("rope", Neutral::Any),
    ],
    goldens: &["granitemoehybrid", "granitemoehybrid_dense"],
    names: Names(&[NAMES, granite_experts::NAMES, MIXER, HUGGING_FACE]),
    read: |f| {
        let rotates = match f.text("position_embedding_type") {
            Some("rope") => true,
            None | Some("nope") => false,
            Some(other) => {
                let help = "this architecture has rotary positions (\"rope\") or none (\"nope\")".to_string();
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
            return Ok(Box::new(d.with_mlp(|m| (m.ffn, m.fused) = (beside, true))));
        }
        if f.count("num_experts_per_tok") == Some(0) {
            let help = "this architecture has at least one expert of each token, or no experts".to_string();
            return Err(f.unsupported("num_experts_per_tok", "0".into(), help));
        }
        let shared = Some(Shared { fused: true, ..Shared::plain(beside) });
        let experts = Experts { shared, ..experts(f, &d)? };
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("num_local_experts", Accepts::Count).or(&["num_experts"]),
    Field::new("num_experts_per_tok", Accepts::Count),
    Field::new("shared_intermediate_size", WIDTH),
    Field::new("position_embedding_type", Accepts::Text),
    Field::new("layer_types", Accepts::ListOf(LAYER_TYPES)).or(&["layers_block_type"]),
];

/// As older and newer files say it; the last is refused with a word of its own.
const LAYER_TYPES: &[&str] = &["mamba", "attention", "linear_attention", "full_attention", "sliding_attention"];

/// Names of the MLP where there are no experts.
const NAMES: Table =
    &[(MLP_GATE_UP, "model.layers.{}.shared_mlp.input_linear"), (MLP_DOWN, "model.layers.{}.shared_mlp.output_linear")];

/// Which layers have mixers.
fn mixing_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(types) = common::layer_types(f, layers)? else { return Ok(vec![true; layers]) };
    if types.contains(&"sliding_attention") {
        let help = "this architecture has mixers and full attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| matches!(t, "mamba" | "linear_attention")).collect())
}
