//! DeBERTa of versions 2 and 3 (arXiv 2006.03654, 2111.09543): distances share buckets, and the matrices
//! of queries and keys; a convolution may be beside the first layer.

use crate::arch::blocks::attention::{norm, product};
use crate::arch::blocks::disentangled_attention::{NEAR, NEAR_K, NEAR_NORM, NEAR_Q};
use crate::arch::blocks::encoder::{Encoder, FIELDS_WITHOUT_TYPES};
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::families::disentangled_fields::{self, FIELDS, FIXED, whole};
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, Kind, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, Part, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::arch::blocks::neighbour_rows::neighbours;
use crate::arch::blocks::outputs::Yields;
use crate::arch::blocks::weight_forms::run_parts;
use crate::config::ConfigError;
use crate::config::common::{self, Facts, MODEL};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op, UnaryOp};

pub(crate) const ARCH: Arch = Arch {
    model_type: "deberta-v2",
    class: "DebertaV2Model",
    fields: &[IDENTITY, MODEL, FIELDS_WITHOUT_TYPES, FIELDS, OWN],
    fixed: FIXED,
    goldens: &["deberta_v2", "deberta_v2_classes", "deberta_v3_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = &[
    // Below 1: each distance has a row.
    Field::new("position_buckets", Accepts::Number).unless(Neutral::Any),
    Field::new("norm_rel_ebd", Accepts::Text).unless(Neutral::Any),
    Field::new("share_att_key", Accepts::Flag).unless(Neutral::Any),
    Field::new("conv_kernel_size", Accepts::Count),
    Field::new("conv_act", Accepts::OneOf(CONV_ACTS)).unless(Neutral::Any),
];

/// Activations of the convolution.
const CONV_ACTS: &[&str] = &["tanh", "gelu", "gelu_new", "relu", "silu"];

/// DeBERTa v2.
#[derive(Clone, Debug)]
struct Deberta {
    encoder: Encoder,
    /// Activation of the convolution, if there is one.
    convolved: Option<UnaryOp>,
}

/// Taps of the convolution `[out, in, 3]`, its bias, and the norm after it.
const CONV: Part = Part("conv");
const CONV_NORM: Part = Part("conv.norm");
const TAPS: usize = 3;

fn read(f: &Fields) -> Result<Deberta, ConfigError> {
    let (mut encoder, near) = disentangled_fields::read(f, whole(f, "position_buckets")?)?;
    let normed = f.text("norm_rel_ebd").is_some_and(|s| s.split('|').any(|s| s.trim().to_lowercase() == "layer_norm"));
    let (eps, shared) = (encoder.norm.eps, f.flag("share_att_key"));
    if normed && eps <= 0.0 {
        return Err(f.invalid("layer_norm_eps", &eps, "more than 0".into()));
    }
    for layer in &mut encoder.layers {
        layer.attention.near = near;
        if let Some(near) = &mut layer.attention.near {
            (near.norm, near.shared, near.key_bias) = (normed.then_some(eps), shared, true);
        }
    }
    let convolved = match f.count("conv_kernel_size") {
        None | Some(0) => None,
        Some(TAPS) => Some(common::activation(f, "conv_act", UnaryOp::Tanh)),
        Some(other) => {
            let help = format!("this architecture has {TAPS}, or none");
            return Err(f.unsupported("conv_kernel_size", other.to_string(), help));
        }
    };
    Ok(Deberta { encoder, convolved })
}

impl Deberta {
    /// `convolution`: the first layer's rows and what is made of the rows before it, those beside a row
    /// included, normalized.
    fn convolution(
        &self,
        l: &mut Lifter,
        act: UnaryOp,
        before: &Carried,
        after: &Carried,
    ) -> Result<Carried, FrontendError> {
        let hidden = self.encoder.facts.hidden;
        let mut f = l.func("convolution");
        let (x, after) = (f.carried("x", before), f.carried("y", after));
        let positions = f.input(Input::Positions);
        let [next, last] = neighbours(&mut f, x, hidden, positions);
        let taps = f.weight(CONV, Kind::Matrix, &[hidden, hidden, TAPS]);
        let bias = f.bias(CONV, hidden);
        let taps = f.op(Op::Transpose, &[taps]);
        let taps = f.op(Op::Flatten, &[taps]);
        let mut made = None;
        for (i, row) in [last, x, next].into_iter().enumerate() {
            let w = run_parts(&mut f, taps, TAPS, i, 1);
            let y = product(&mut f, row, w, None);
            made = Some(made.map_or(y, |sum| f.add(sum, y)));
        }
        let y = made.map_or(x, |y| f.add(y, bias));
        let y = f.unary(act, y);
        let y = f.add(after, y);
        let y = norm(&mut f, CONV_NORM, self.encoder.norm, y, hidden);
        Ok(f.call(&[y])?.pop().unwrap_or_default())
    }
}

impl Shape for Deberta {
    fn facts(&self) -> &Facts {
        self.encoder.facts()
    }

    fn yields(&self) -> Yields {
        self.encoder.yields()
    }

    fn spare(&self) -> &'static [&'static str] {
        self.encoder.spare()
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (rows, _) = self.encoder.embedding(l)?;
        let mut x = rows.clone();
        for (i, spec) in self.encoder.layers.iter().enumerate() {
            x = self.encoder.layer(l, (i, None), spec, &x, &[])?;
            if let Some(act) = self.convolved.filter(|_| i == 0) {
                x = self.convolution(l, act, &rows, &x)?;
            }
        }
        self.encoder.head(l, &x)
    }
}

const NAMES: Table = &[
    (TABLE, "deberta.embeddings.word_embeddings"),
    (POSITIONS, "deberta.embeddings.position_embeddings"),
    (TYPES, "deberta.embeddings.token_type_embeddings"),
    (TABLE_NORM, "deberta.embeddings.LayerNorm"),
    (NEAR, "deberta.encoder.rel_embeddings"),
    (NEAR_NORM, "deberta.encoder.LayerNorm"),
    (NEAR_K, "deberta.encoder.layer.{}.attention.self.pos_key_proj"),
    (NEAR_Q, "deberta.encoder.layer.{}.attention.self.pos_query_proj"),
    (CONV, "deberta.encoder.conv.conv"),
    (CONV_NORM, "deberta.encoder.conv.LayerNorm"),
    (ATTN_Q, "deberta.encoder.layer.{}.attention.self.query_proj"),
    (ATTN_K, "deberta.encoder.layer.{}.attention.self.key_proj"),
    (ATTN_V, "deberta.encoder.layer.{}.attention.self.value_proj"),
    (ATTN_OUT, "deberta.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "deberta.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "deberta.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "deberta.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "deberta.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "pooler.dense"),
    (CLASSES, "classifier"),
];
