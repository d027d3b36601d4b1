//! ERNIE 4.5 VL with experts (Baidu, 2025), its text model: ERNIE 4.5 with experts, of which tokens of
//! texts have their own half and router. Positions of texts are the same in all three sections of its
//! rotation.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION_ROWS, Experts, sparse_by_types};
use crate::arch::blocks::families::ernie_decoder::{BIASES, EXPERTS, decoder, experts};
use crate::arch::blocks::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, MLP, MODEL};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::rope::RopeScaling;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ernie4_5_vl_moe_text",
    class: "Ernie4_5_VLMoeForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, BIASES, EXPERTS, OWN],
    fixed: &[],
    goldens: &["ernie4_5_vl_moe_text"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let mut d = decoder(f)?;
        if d.ropes.iter().any(|rope| rope.scaling != RopeScaling::Default) {
            let help = "this architecture has frequencies that nothing is done to".to_string();
            return Err(f.unsupported("rope_scaling", "a scaling".into(), help));
        }
        let experts = experts(f, &d, width(f)?)?;
        let experts = Experts { router_turned: true, correction: Some(CORRECTION_ROWS), ..experts };
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
    Field::new("moe_intermediate_size", Accepts::Numbers),
    Field::new("mlp_layer_types", Accepts::Any),
];

const NAMES: Table = &[(CORRECTION_ROWS, "model.layers.{}.mlp.moe_statics.e_score_correction_bias")];
