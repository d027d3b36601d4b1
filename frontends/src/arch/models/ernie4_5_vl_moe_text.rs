//! ERNIE 4.5 VL with experts (Baidu, 2025), its text model: ERNIE 4.5 with experts; tokens of texts have their own half
//! of them and their own router. Positions of texts are the same in all three sections of its rotation.

use crate::arch::blocks::experts::CORRECTION_ROWS;
use crate::arch::blocks::families::ernie_decoder::{BIASES, EXPERTS, decoder, experts};
use crate::arch::blocks::prelude::*;

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
            let help = "this architecture does not support scaled frequencies".to_string();
            return Err(f.unsupported("rope_scaling", "a scaling".into(), help));
        }
        let experts = experts(f, &d, width(f)?)?;
        let experts = Experts {
            routing: Routing { transposed: true, ..Routing::default() },
            correction: Some(CORRECTION_ROWS),
            ..experts
        };
        d.ignored.image_experts = Some(experts.count);
        Ok(Box::new(d.with_sparse(f, 1, experts)?))
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

const OWN: &[Field] = fields! {
    rope_theta, rope_scaling, rope_parameters, moe_intermediate_size: Accepts::Numbers, mlp_layer_types,
};

const NAMES: Table = names! { "model.layers.{}." { CORRECTION_ROWS => "mlp.moe_statics.e_score_correction_bias" } };
