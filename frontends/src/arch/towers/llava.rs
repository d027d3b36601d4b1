//! LLaVA 1.5 (arXiv 2310.03744): CLIP's tower up to one of its last layers, and two linear layers.

use super::expansion::Expansion;
use super::family::{Family, Projector, Tower};
use super::vit::{CLASS, CLIP, FIRST_NORM, PATCH, Vit};
use crate::arch::blocks::attention::linear;
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, MLP_DOWN, MLP_NORM, MLP_UP, Names, POSITIONS, Part, names,
};
use crate::config::ConfigError;
use crate::config::common;
use crate::config::fields::{Accepts, Field, Fields};
use crate::error::FrontendError;
use crate::image::Processor;
use llmcc_ir::graph::UnaryOp;
use serde_json::{Map, Value};

pub(crate) const FAMILY: Family = Family {
    model_type: "llava",
    names: Names(&[names! {
        "vision_tower.vision_model." | "model.vision_tower.vision_model." | "model.vision_tower." | "vision_tower." {
            PATCH => "embeddings.patch_embedding", CLASS => "embeddings.class_embedding",
            POSITIONS => "embeddings.position_embedding", FIRST_NORM => "pre_layrnorm",
        }
        "vision_tower.vision_model.encoder.layers.{}." | "model.vision_tower.vision_model.encoder.layers.{}."
            | "model.vision_tower.encoder.layers.{}." | "vision_tower.encoder.layers.{}."
        {
            ATTN_NORM => "layer_norm1", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
            ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj", MLP_NORM => "layer_norm2",
            MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.fc2",
        }
        "multi_modal_projector." | "model.multi_modal_projector." { INTO => "linear_1", OUT => "linear_2" }
    }]),
    processor: |tower| Processor::clip(tower.vit.image()),
    read,
};

/// The first layer of the projector.
const INTO: Part = Part("project.in");
/// The second.
const OUT: Part = Part("project.out");

const FIELDS: &[Field] = &[
    Field::new("image_token_index", Accepts::Count).or(&["image_token_id"]),
    Field::new("projector_hidden_act", Accepts::OneOf(&["gelu", "gelu_pytorch_tanh", "relu", "silu"])),
    Field::new("vision_feature_select_strategy", Accepts::OneOf(&["default", "full"])),
    Field::new("vision_feature_layer", Accepts::Any),
    Field::new("multimodal_projector_bias", Accepts::Flag),
];

fn read(whole: &Fields, config: &Map<String, Value>) -> Result<Tower, ConfigError> {
    let f = whole.inside(config, "", &[FIELDS])?;
    let mut vit = Vit::read(&f, config, &CLIP)?;
    vit.layers = layers(&f, vit.stored)?;
    let first = usize::from(f.text("vision_feature_select_strategy") != Some("full"));
    let projector = TwoLayers {
        act: common::activation(&f, "projector_hidden_act", UnaryOp::Gelu),
        bias: f.flag_or("multimodal_projector_bias", true),
    };
    let expansion = Expansion {
        marker: "<image>",
        before: "",
        placeholder: "<image>",
        count: vit.tokens() - first,
        after: "",
        token: f.count("image_token_index").unwrap_or(32_000),
        both_ways: false,
    };
    Ok(Tower { vit, projector: Box::new(projector), rows: (first, 1), expansion })
}

/// How many layers make the rows that `vision_feature_layer` names: all before it, the first being the embedding.
fn layers(f: &Fields, stored: usize) -> Result<usize, ConfigError> {
    let Some(field) = f.get("vision_feature_layer").value() else { return Ok(stored.saturating_sub(1)) };
    let last = field.as_i64().and_then(|n| match n < 0 {
        true => (stored + 1).checked_sub(usize::try_from(n.unsigned_abs()).ok()?),
        false => usize::try_from(n).ok(),
    });
    match last.filter(|n| *n <= stored) {
        Some(n) => Ok(n),
        None => {
            let expected = format!("one layer, from -{} to {stored}", stored + 1);
            Err(f.invalid_value("vision_feature_layer", field, expected))
        }
    }
}

/// Two linear layers with an activation between.
#[derive(Debug)]
struct TwoLayers {
    act: UnaryOp,
    bias: bool,
}

impl Projector for TwoLayers {
    fn lift(&self, l: &mut Lifter, vit: &Vit, x: &Carried) -> Result<(), FrontendError> {
        let mut f = l.func("project");
        let x = f.carried("x", x);
        let x = gathered(&mut f, x);
        let hidden = f.facts().hidden;
        let x = linear(&mut f, INTO, [hidden, vit.hidden], self.bias, x);
        let x = f.unary(self.act, x);
        let x = linear(&mut f, OUT, [hidden, hidden], self.bias, x);
        f.call(&[x])?;
        Ok(())
    }
}
