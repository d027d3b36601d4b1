//! Qwen2-VL (arXiv 2409.12191): patches of images of any size, which turn by row and column, and two linear layers over
//! squares of them. The rows of an image have positions in rows and columns of the text, too.

use super::expansion::Expansion;
use super::family::{Family, Projector, Tower};
use super::vit::{PATCH, Vit};
use crate::arch::blocks::attention::{linear, norm};
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::{ATTN_NORM, ATTN_OUT, ATTN_QKV, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, Part, names};
use crate::config::ConfigError;
use crate::config::fields::{Accepts, Field, Fields};
use crate::error::FrontendError;
use crate::image::Processor;
use llmcc_ir::graph::{Op, Role, UnaryOp, Value};
use serde_json::Map;

pub(crate) const FAMILY: Family = Family {
    model_type: "qwen2_vl",
    names: Names(&[names! {
        "visual." | "model.visual." {
            PATCH => "patch_embed.proj", NORM => "merger.ln_q", INTO => "merger.mlp.0", OUT => "merger.mlp.2",
        }
        "visual.blocks.{}." | "model.visual.blocks.{}." {
            ATTN_NORM => "norm1", ATTN_QKV => "attn.qkv", ATTN_OUT => "attn.proj", MLP_NORM => "norm2",
            MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.fc2",
        }
    }]),
    processor: |tower| {
        let vit = &tower.vit;
        Processor::qwen2_vl([vit.side(), vit.square, vit.frames.unwrap_or(1)], vit.most)
    },
    read,
};

/// The first layer of the projector.
const INTO: Part = Part("project.in");
/// The second.
const OUT: Part = Part("project.out");

/// Most patches of an image: larger ones are made smaller (`max_pixels` of the processor), so that an image has at most
/// 1024 rows.
const MOST_PATCHES: usize = 4096;

const FIELDS: &[Field] = &[Field::new("image_token_id", Accepts::Count)];

fn read(whole: &Fields, config: &Map<String, serde_json::Value>) -> Result<Tower, ConfigError> {
    let f = whole.inside(config, "", &[FIELDS])?;
    let (vit, columns) = Vit::of_films(&f, config, "qwen2_vl", MOST_PATCHES)?;
    let each = vit.square * vit.square;
    let expansion = Expansion {
        marker: "<|vision_start|><|image_pad|><|vision_end|>",
        before: "<|vision_start|>",
        placeholder: "<|image_pad|>",
        count: 0,
        after: "<|vision_end|>",
        token: f.count("image_token_id").unwrap_or(151_655),
        both_ways: false,
    };
    Ok(Tower { vit, projector: Box::new(Merger { each, columns }), rows: (each - 1, each), expansion })
}

/// Rows of squares of patches, one after the other, through two linear layers.
#[derive(Debug)]
struct Merger {
    /// Patches of a square.
    each: usize,
    /// Columns of the rows.
    columns: usize,
}

impl Projector for Merger {
    fn lift(&self, l: &mut Lifter, vit: &Vit, x: &Carried) -> Result<(), FrontendError> {
        let width = vit.hidden;
        let mut f = l.func("project");
        let x = f.carried("x", x);
        let x = norm(&mut f, NORM, vit.norm, x, width);
        // The patches of a square stand one after the other: its last row gets those before it.
        let taps = [vec![1.0; width], vec![0.0; width]].concat();
        let taps = f.table("taps", "$image.before", [2, width], taps, Role::Weight);
        let mut rows = vec![x];
        for i in 1..self.each {
            let state = f.fixed(&format!("before{i}"), [1, 1, width]);
            let last = rows.last().copied().unwrap_or(x);
            rows.push(f.op(Op::CausalConv, &[last, taps, state]));
        }
        rows.reverse();
        let rows: Vec<Value> = rows.into_iter().map(|x| gathered(&mut f, x)).collect();
        let x = if rows.len() > 1 { f.op(Op::ConcatCols, &rows) } else { rows[0] };
        let all = self.each * width;
        let x = linear(&mut f, INTO, [all, all], true, x);
        let x = f.unary(UnaryOp::Gelu, x);
        let x = linear(&mut f, OUT, [self.columns, all], true, x);
        f.call(&[x])?;
        Ok(())
    }
}
