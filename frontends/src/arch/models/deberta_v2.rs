//! DeBERTa of versions 2 and 3 (arXiv 2006.03654, 2111.09543): distances share buckets, and the matrices
//! of queries and keys; a convolution may be beside the first layer.

use crate::arch::blocks::attention::product;
use crate::arch::blocks::disentangled_attention::{NEAR, NEAR_K, NEAR_NORM, NEAR_Q, Near};
use crate::arch::blocks::families::disentangled_fields::{self, FIELDS, FIXED, whole};
use crate::arch::blocks::neighbour_rows::neighbours;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::weight_forms::run_parts;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deberta-v2",
    class: "DebertaV2Model",
    fields: &[IDENTITY, MODEL, FIELDS_WITHOUT_TYPES, FIELDS, OWN],
    fixed: FIXED,
    goldens: &["deberta_v2", "deberta_v2_classes", "deberta_v3_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = fields! {
    // Below 1: each distance has a row.
    position_buckets, norm_rel_ebd, share_att_key, conv_kernel_size, conv_act: Accepts::OneOf(CONV_ACTS),
};

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
        let near = near.map(|near| Near { norm: normed.then_some(eps), shared, key_bias: true, ..near });
        layer.attention.change_heads(|_, h| h.scores = near.map_or(h.scores, ScoreForm::Near));
    }
    let convolved = match f.count("conv_kernel_size") {
        None | Some(0) => None,
        Some(TAPS) => Some(common::activation(f, "conv_act", UnaryOp::Tanh)),
        Some(other) => {
            let help = format!("this architecture supports {TAPS}, or none");
            return Err(f.unsupported("conv_kernel_size", other.to_string(), help));
        }
    };
    Ok(Deberta { encoder, convolved })
}

impl Deberta {
    /// `convolution`: the first layer's output and the convolution of the rows before it over
    /// neighbouring rows, normalized.
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
    answered_by! { encoder: facts yields spare }

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

const NAMES: Table = names! {
    "deberta." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
        NEAR => "encoder.rel_embeddings", NEAR_NORM => "encoder.LayerNorm", CONV => "encoder.conv.conv",
        CONV_NORM => "encoder.conv.LayerNorm",
    }
    "deberta.encoder.layer.{}." {
        NEAR_K => "attention.self.pos_key_proj", NEAR_Q => "attention.self.pos_query_proj",
        ATTN_Q => "attention.self.query_proj", ATTN_K => "attention.self.key_proj",
        ATTN_V => "attention.self.value_proj", ATTN_OUT => "attention.output.dense",
        ATTN_POST_NORM => "attention.output.LayerNorm", MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
        MLP_POST_NORM => "output.LayerNorm",
    }
    "" { POOLER => "pooler.dense", CLASSES => "classifier" }
};
