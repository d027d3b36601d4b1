//! Gemma 3 (arXiv 2503.19786): SigLIP's tower, means of squares of its patches, and a matrix.

use super::expansion::Expansion;
use super::family::{Family, Projector, Tower};
use super::vit::{PATCH, SIGLIP, Vit};
use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, Kind, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, Part, names,
};
use crate::config::ConfigError;
use crate::config::fields::{Accepts, Field, Fields};
use crate::error::FrontendError;
use crate::image::Processor;
use llmcc_ir::graph::{Input, Op, Role};
use serde_json::{Map, Value};

pub(crate) const FAMILY: Family = Family {
    model_type: "gemma3",
    names: Names(&[names! {
        "vision_tower.vision_model." | "model.vision_tower.vision_model." | "model.vision_tower." | "vision_tower." {
            PATCH => "embeddings.patch_embedding", POSITIONS => "embeddings.position_embedding",
            NORM => "post_layernorm",
        }
        "vision_tower.vision_model.encoder.layers.{}." | "model.vision_tower.vision_model.encoder.layers.{}."
            | "model.vision_tower.encoder.layers.{}." | "vision_tower.encoder.layers.{}."
        {
            ATTN_NORM => "layer_norm1", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
            ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj", MLP_NORM => "layer_norm2",
            MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.fc2",
        }
        "multi_modal_projector." | "model.multi_modal_projector." {
            SOFT_NORM => "mm_soft_emb_norm", PROJECT => "mm_input_projection_weight",
        }
    }]),
    processor: |tower| Processor::siglip(tower.vit.image()),
    read,
};

/// The norm of means.
const SOFT_NORM: Part = Part("soft_norm");
/// The matrix, stored `[in, out]`.
const PROJECT: Part = Part("project");

const FIELDS: &[Field] = &[
    Field::new("image_token_index", Accepts::Count).or(&["image_token_id"]),
    Field::new("mm_tokens_per_image", Accepts::Size(1 << 16)),
];

fn read(whole: &Fields, config: &Map<String, Value>) -> Result<Tower, ConfigError> {
    let f = whole.inside(config, "", &[FIELDS])?;
    let mut vit = Vit::read(&f, config, &SIGLIP)?;
    let count = f.size("mm_tokens_per_image").or(256);
    let side = count.isqrt();
    if side * side != count || !vit.grid.is_multiple_of(side) {
        let expected = format!("a square of a number that divides the {} patches of a side", vit.grid);
        return Err(f.invalid("mm_tokens_per_image", &count, expected));
    }
    vit.square = vit.grid / side;
    let each = vit.square * vit.square;
    let expansion = Expansion {
        marker: "<start_of_image>",
        before: "\n\n<start_of_image>",
        placeholder: "<image_soft_token>",
        count,
        after: "<end_of_image>\n\n",
        token: f.count("image_token_index").unwrap_or(262_144),
        both_ways: true,
    };
    Ok(Tower { vit, projector: Box::new(Means { each }), rows: (each - 1, each), expansion })
}

/// Means of so many rows each, their norm, and a matrix.
#[derive(Debug)]
struct Means {
    each: usize,
}

impl Projector for Means {
    fn lift(&self, l: &mut Lifter, vit: &Vit, x: &Carried) -> Result<(), FrontendError> {
        let width = vit.hidden;
        let mut f = l.func("project");
        let x = f.carried("x", x);
        let mut x = norm(&mut f, NORM, vit.norm, x, width);
        if self.each > 1 {
            // All rows of a square weigh the same: its last row has the mean.
            let (nothing, positions) = (f.scalar(0.0), f.input(Input::Positions));
            let keys = f.mul(x, nothing);
            let places =
                f.table("places", "$image.places", [self.each, width], vec![0.0; self.each * width], Role::Weight);
            let state = f.fixed("means", [1, 3, width]);
            x = f.op(Op::WindowMeans, &[keys, x, places, positions, state]);
        }
        let x = gathered(&mut f, x);
        let soft = Norm { from_one: true, ..Norm::rms(vit.norm.eps) };
        let x = norm(&mut f, SOFT_NORM, soft, x, width);
        let hidden = f.facts().hidden;
        let w = f.weight(PROJECT, Kind::Bare, &[width, hidden]);
        let w = f.op(Op::Transpose, &[w]);
        let x = f.matmul(x, w);
        f.call(&[x])?;
        Ok(())
    }
}
