//! ERNIE 4.5 VL with experts (Baidu, 2025), its text model: ERNIE 4.5 with experts, of which tokens of
//! texts have their own half and router. Positions of texts are the same in all three sections of its
//! rotation.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::{CORRECTION_ROWS, Experts, Shared, sparse_by_types};
use super::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, MLP, MODEL};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::rope::RopeScaling;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "ernie4_5_vl_moe_text",
    class: "Ernie4_5_VLMoeForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, OWN],
    fixed: &[],
    goldens: &["ernie4_5_vl_moe_text"],
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
        let mut d = Decoder::read(f, &defaults)?.with_attention(|_, a| a.neighbours = a.heads.dim);
        if d.ropes.iter().any(|rope| rope.scaling != RopeScaling::Default) {
            let help = "this architecture has frequencies that nothing is done to".to_string();
            return Err(f.unsupported("rope_scaling", "a scaling".into(), help));
        }
        let least = f.number("moe_norm_min").unwrap_or(1e-12);
        if !(0.0..=1e-6).contains(&least) {
            let expected = "0 to 1e-6: this architecture has weights whose sum is never below it";
            return Err(f.invalid("moe_norm_min", &least, expected.into()));
        }
        let ffn = width(f)?;
        let beside = f.count("moe_num_shared_experts").unwrap_or(2).min(1 << 12);
        let router = Router::softmax(f.size("num_experts_per_tok").or(6), true);
        let experts = Experts {
            ffn,
            router_turned: true,
            correction: Some(CORRECTION_ROWS),
            shared: (beside > 0).then_some(Shared::plain(ffn.saturating_mul(beside))),
            ..Experts::like(&d, router, f.size("moe_num_experts").or(64))
        };
        let experts = experts.checked(f, ["moe_num_experts", "num_experts_per_tok"])?;
        let sparse = sparse_by_types(f, d.layers.len(), 1)?;
        d.of_text = Some(experts.count);
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

/// The width of experts for texts, the first of two.
fn width(f: &Fields) -> Result<usize, ConfigError> {
    const FIELD: &str = "moe_intermediate_size";
    let Some(both) = f.numbers(FIELD) else { return Ok(1536) };
    let whole = |n: f64| (1.0..=MAX_WIDTH).contains(&n) && n.fract() == 0.0;
    match both[..] {
        [text, images] if whole(text) && whole(images) => Ok(text as usize),
        _ => {
            let expected = "two widths: this architecture has experts for texts and others for images";
            Err(f.invalid(FIELD, &both, expected.into()))
        }
    }
}

const MAX_WIDTH: f64 = (1 << 20) as f64;

const OWN: &[Field] = &[
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("use_bias", Accepts::Flag),
    Field::new("moe_num_experts", Accepts::Size(4096)).or(&["num_experts", "num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)).or(&["moe_k"]),
    Field::new("moe_intermediate_size", Accepts::Numbers),
    Field::new("moe_num_shared_experts", Accepts::Count),
    Field::new("mlp_layer_types", Accepts::Any),
    Field::new("moe_norm_min", Accepts::Number),
];

const NAMES: Table = &[(CORRECTION_ROWS, "model.layers.{}.mlp.moe_statics.e_score_correction_bias")];
