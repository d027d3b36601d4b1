//! Embeddings for each layer (Gemma 3n and 4): every token has a row for every layer, which a second
//! table and a projection of its embedding make together (in EmbeddingGemma 2 the projection alone); a layer
//! multiplies a gate with its own.

use crate::arch::blocks::attention::{Norm, linear, norm, scaled};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{Kind, Part, Table, names};
use crate::arch::blocks::weight_forms::root_of_width;
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op, UnaryOp, Value};
use std::f64::consts::FRAC_1_SQRT_2;

/// The table, `[vocab, layers·width]`.
const ROWS_TABLE: Part = Part("rows.table");
/// The projection of embeddings, `[layers·width, hidden]`.
pub(crate) const ROWS_PROJECTION: Part = Part("rows.projection");
/// Norm of its output.
pub(crate) const ROWS_NORM: Part = Part("rows.norm");
/// A layer's gate, `[width, hidden]`.
pub(crate) const ROW_GATE: Part = Part("row.gate");
/// A layer's output from the product, `[hidden, width]`.
pub(crate) const ROW_OUT: Part = Part("row.out");
/// Norm of that.
pub(crate) const ROW_NORM: Part = Part("row.norm");

pub(crate) const LAYER_ROWS: Table = names! {
    "model." {
        ROWS_TABLE => "embed_tokens_per_layer", ROWS_PROJECTION => "per_layer_model_projection",
        ROWS_NORM => "per_layer_projection_norm",
    }
    "model.layers.{}." {
        ROW_GATE => "per_layer_input_gate", ROW_OUT => "per_layer_projection",
        ROW_NORM => "post_per_layer_input_norm",
    }
};

/// Most columns of all layers together.
const MOST: usize = 1 << 20;

/// Sizes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerRows {
    /// Columns that each layer has.
    pub width: usize,
    /// Rows of the table; later tokens have its first. `None`: the projection is all.
    pub vocab: Option<usize>,
}

/// `rows`: all layers' rows side by side, `[T, layers·width]`, from the embeddings `x`.
pub(crate) fn all(l: &mut Lifter, of: LayerRows, eps: Norm, x: &Carried) -> Result<Carried, FrontendError> {
    let LayerRows { width, vocab } = of;
    let mut f = l.func("rows");
    let facts = f.facts();
    let (hidden, cols) = (facts.hidden, facts.layers.saturating_mul(width));
    let x = f.carried("x", x);
    let found = vocab.map(|rows| (rows, f.input(Input::Tokens)));
    let made = linear(&mut f, ROWS_PROJECTION, [cols, hidden], false, x);
    let made = scaled(&mut f, made, Some((1.0 / (hidden as f64).sqrt()) as f32));
    let made = norm(&mut f, ROWS_NORM, eps, made, width);
    let Some((vocab, tokens)) = found else {
        return Ok(f.call(&[made])?.pop().unwrap_or_default());
    };
    let table = f.weight(ROWS_TABLE, Kind::Table, &[vocab, cols]);
    let root = root_of_width(&f, table, width);
    let table = filled_up(&mut f, table, vocab, facts.vocab);
    let found = f.op(Op::Embed, &[table, tokens]);
    let found = scaled(&mut f, found, Some(root));
    let sum = f.add(made, found);
    let sum = scaled(&mut f, sum, Some(FRAC_1_SQRT_2 as f32));
    Ok(f.call(&[sum])?.pop().unwrap_or_default())
}

/// A table with its first row for tokens that it has none for.
fn filled_up(f: &mut Draft, table: Value, rows: usize, wanted: usize) -> Value {
    let missing = wanted.saturating_sub(rows);
    if missing == 0 {
        return table;
    }
    let mut parts = vec![table];
    let mut run = f.op(Op::SliceRows { start: 0, len: 1 }, &[table]);
    for bit in 0..missing.ilog2() + 1 {
        if missing >> bit & 1 == 1 {
            parts.push(run);
        }
        if missing >> bit > 1 {
            run = f.op(Op::ConcatRows, &[run, run]);
        }
    }
    f.op(Op::ConcatRows, &parts)
}

impl LayerRows {
    /// These sizes, if all columns of all layers are ones whose numbers f32 has.
    pub(crate) fn checked(self, f: &Fields, field: &str, layers: usize) -> Result<LayerRows, ConfigError> {
        match self.width.checked_mul(layers) {
            Some(n) if n <= MOST => Ok(self),
            _ => {
                let help =
                    format!("this architecture supports at most {MOST} columns for all `num_hidden_layers` together");
                Err(f.unsupported(field, self.width.to_string(), help))
            }
        }
    }

    /// The columns of layer `i`. The selection is a weight, so that layers have a function in
    /// common.
    pub(crate) fn own(self, f: &mut Draft, i: usize, rows: Value) -> Value {
        let first = i * self.width;
        let order = (first..first + self.width).map(|j| j as f32).collect();
        let order = f.computed("rows.order", &format!("$rows.order{i}"), order);
        f.op(Op::PickCols, &[rows, order])
    }

    /// A layer's addend: `norm(out(act(gate(x)) · own))`.
    pub(crate) fn gated(self, f: &mut Draft, eps: Norm, act: UnaryOp, x: Value, own: Value) -> Value {
        let hidden = f.facts().hidden;
        let gate = linear(f, ROW_GATE, [self.width, hidden], false, x);
        let gate = f.unary(act, gate);
        let y = f.mul(gate, own);
        let y = linear(f, ROW_OUT, [hidden, self.width], false, y);
        norm(f, ROW_NORM, eps, y, hidden)
    }
}
