//! Attention in which distances have keys and queries of their own (DeBERTa, arXiv 2006.03654): a score is
//! the sum of the products of query and key, of the query and the distance's key, and of the distance's
//! query and the key.

use super::blocks::Attention;
use super::encoder::{ClassHead, Defaults, Encoder};
use super::lifter::Draft;
use super::names::{Kind, Part};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, TOKENS};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use llmcc_ir::graph::{F32, Op, UnaryOp, Value};
use serde_json::Value as Json;

/// Rows that keys and queries of distances are made of.
pub(super) const NEAR: Part = Part("near");
/// Norm of these.
pub(super) const NEAR_NORM: Part = Part("near.norm");
/// Makes keys of them.
pub(super) const NEAR_K: Part = Part("near.k");
/// Makes queries of them.
pub(super) const NEAR_Q: Part = Part("near.q");

/// What distances have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Near {
    /// Rows for distances either way.
    pub span: usize,
    /// Distances up to half of `span` have a row each, and those up to this share the others; without it all
    /// have one.
    pub most: Option<usize>,
    /// Rows are normalized as in the layers, with so much added to the mean square.
    pub norm: Option<f32>,
    /// The matrices of queries and keys are those of tokens.
    pub shared: bool,
    /// Of its own ones, that of keys has a bias too.
    pub key_bias: bool,
}

/// A matrix and its bias.
type Linear = (Value, Option<Value>);

/// Distances whose bucket is so near to the next one's that f32 decides.
const UNDECIDED: f64 = 1e-4;

impl Near {
    /// How far along the buckets a distance is that has none of its own, in units of them.
    fn beyond(half: usize, most: usize, far: usize) -> f64 {
        let ratio = |a: usize| libm::log(a as f64 / half as f64);
        ratio(far) / ratio(most - 1) * (half - 1) as f64
    }

    /// The row of a key so far before the query.
    fn row(&self, before: i64) -> usize {
        let (span, half, far) = (self.span as i64, self.span / 2, before.unsigned_abs() as usize);
        let bucket = match self.most {
            Some(most) if far > half => before.signum() * (Near::beyond(half, most, far).ceil() as i64 + half as i64),
            _ => before,
        };
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }

    /// The distance from which on nothing changes, or the longest there is.
    fn reach(&self, longest: usize) -> usize {
        let ends = |far: &usize| self.row(*far as i64) + 1 == 2 * self.span && self.row(-(*far as i64)) == 0;
        (0..longest).find(ends).unwrap_or(longest)
    }

    /// Keys and queries of all distances, `[columns·(2r + 1)]` each, made by the matrices of tokens, or by
    /// some of their own, of `hidden` columns. They are the same for all texts.
    #[track_caller]
    fn tables(&self, f: &mut Draft, tokens: [Linear; 2], columns: usize, hidden: usize) -> [Value; 2] {
        let mut rows = f.weight(NEAR, Kind::Table, &[2 * self.span, hidden]);
        if let Some(eps) = self.norm {
            let gain = f.weight(NEAR_NORM, Kind::Gain, &[hidden]);
            let bias = f.bias(NEAR_NORM, hidden);
            rows = f.op(Op::StandardRows { eps: F32::new(eps) }, &[rows]);
            rows = f.op(Op::ScaleCols, &[rows, gain]);
            rows = f.add(rows, bias);
        }
        let reach = self.reach(f.max_context().saturating_sub(1)) as i64;
        let of_column = |c: usize| (-reach..=reach).map(move |after| (self.row(-after) * columns + c) as f32);
        let order = f.computed("near.order", "$near.order", (0..columns).flat_map(of_column).collect());
        let [queries, keys] = if self.shared {
            tokens
        } else {
            [(NEAR_Q, true), (NEAR_K, self.key_bias)].map(|(part, bias)| {
                let w = f.matrix(part, [columns, hidden]);
                (w, bias.then(|| f.bias(part, columns)))
            })
        };
        [keys, queries].map(|(w, b)| {
            let made = f.op(Op::MulTransposed, &[rows, w]);
            let made = b.map_or(made, |b| f.add(made, b));
            let flat = f.op(Op::Flatten, &[made]);
            f.op(Op::LookUp, &[flat, order])
        })
    }
}

/// Attention of `q` over the state `kv`; `made`: the matrices that queries and keys of tokens are made by.
#[track_caller]
pub(super) fn attended(
    f: &mut Draft,
    a: &Attention,
    near: &Near,
    made: [Linear; 2],
    [q, k, v]: [Value; 3],
    (kv, positions): (Value, Value),
) -> Value {
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let (heads, hidden) = (a.heads.queries, f.facts().hidden);
    let [keys, queries] = near.tables(f, made, heads * a.heads.dim, hidden);
    let op = Op::RelativeAttention { heads, scale: F32::new(a.scale) };
    f.op(op, &[q, kv, positions, keys, queries])
}

/// What DeBERTa's configurations say of it.
pub(super) const FIELDS: &[Field] = &[
    Field::new("type_vocab_size", Accepts::Count),
    Field::new("position_biased_input", Accepts::Flag).unless(Neutral::Any),
    Field::new("relative_attention", Accepts::Flag),
    // Below 1: as many as there are positions.
    Field::new("max_relative_positions", Accepts::Number).unless(Neutral::Any),
    Field::new("pos_att_type", Accepts::Any).unless(Neutral::Any),
    Field::new("pooler_hidden_act", Accepts::OneOf(ACTIVATIONS)).unless(Neutral::Words(ACTIVATIONS)),
];

/// What their classes decide, or only other heads read.
pub(super) const FIXED: &[(&str, Neutral)] = &[
    ("pooler_hidden_size", Neutral::Same("hidden_size")),
    ("pooler_dropout", Neutral::Any),
    ("cls_dropout", Neutral::Any),
    ("legacy", Neutral::Any),
    ("talking_head", Neutral::Off),
    ("padding_idx", Neutral::Any),
    ("conv_groups", Neutral::One),
];

/// Tensors of other heads, and positions that are stored and not read.
const SPARE: &[&str] = &["cls.", "lm_predictions.", "mask_predictions.", "pooler."];
const WITHOUT_POSITIONS: &[&str] = &[
    "cls.",
    "lm_predictions.",
    "mask_predictions.",
    "pooler.",
    "deberta.embeddings.position_embeddings.",
    "embeddings.position_embeddings.",
];

/// What all versions have in common, with `buckets` of distances either way: the encoder, and what
/// distances have.
pub(super) fn read(f: &Fields, buckets: Option<usize>) -> Result<(Encoder, Option<Near>), ConfigError> {
    let mut e = Encoder::read(f, &Defaults { eps: 1e-7, spare: SPARE, ..Defaults::BERT })?;
    e.types = f.count("type_vocab_size").unwrap_or(0);
    if !f.flag_or("position_biased_input", true) {
        (e.positions, e.spare) = (None, WITHOUT_POSITIONS);
    }
    let (near, products) = near_of(f, e.facts.max_position, buckets, e.facts.hidden)?;
    for layer in &mut e.layers {
        let a = &mut layer.attention;
        a.scale = (1.0 / ((a.heads.dim * products) as f64).sqrt()) as f32;
    }
    e.classes = ClassHead { act: common::activation(f, "pooler_hidden_act", UnaryOp::Gelu), ..ClassHead::BERT };
    Ok((e, near))
}

/// Distances have so much, and scores are of so many products; reads [`FIELDS`]. `buckets`: how many
/// rows there are either way, where distances share some.
fn near_of(
    f: &Fields,
    max_position: usize,
    buckets: Option<usize>,
    hidden: usize,
) -> Result<(Option<Near>, usize), ConfigError> {
    let (keys, queries) = kinds(f)?;
    let products = 1 + usize::from(keys) + usize::from(queries);
    if !f.flag("relative_attention") || products == 1 {
        return Ok((None, products));
    }
    if products == 2 {
        let help = "this architecture has `c2p` and `p2c`, or neither".into();
        return Err(f.unsupported("pos_att_type", if keys { "\"c2p\"" } else { "\"p2c\"" }.into(), help));
    }
    let all = whole(f, "max_relative_positions")?.unwrap_or(max_position);
    let span = buckets.unwrap_or(all);
    if span.saturating_mul(2).saturating_mul(hidden) >= 1 << 24 {
        let expected = format!("fewer, so that 2 times {span} rows of {hidden} elements are less than 2^24");
        return Err(f.invalid("max_relative_positions", &all, expected));
    }
    let most = buckets.map(|_| all);
    if let Some(most) = most {
        decided(f, span / 2, most)?;
    }
    Ok((Some(Near { span, most, norm: None, shared: false, key_bias: false }), products))
}

/// Buckets of distances that this computes as f32 does.
fn decided(f: &Fields, half: usize, most: usize) -> Result<(), ConfigError> {
    if half < 2 || most <= half + 1 {
        let expected = format!("more than {} (`position_buckets` / 2 + 1, which is at least 3)", half + 1);
        return Err(f.invalid("max_relative_positions", &most, expected));
    }
    let near = |far: &usize| {
        let x = Near::beyond(half, most, *far);
        (x - x.round()).abs() < UNDECIDED
    };
    match (half + 1..most - 1).find(near) {
        Some(far) => {
            let help = format!(
                "the class computes in f32 which bucket the distance {far} is in, and its error decides: \
                 this architecture has numbers of buckets where it does not, as 256 up to 512"
            );
            Err(f.unsupported("position_buckets", (2 * half).to_string(), help))
        }
        None => Ok(()),
    }
}

/// Whether there are keys of distances, and queries.
fn kinds(f: &Fields) -> Result<(bool, bool), ConfigError> {
    const FIELD: &str = "pos_att_type";
    let words: Vec<String> = match f.get(FIELD).value() {
        None => vec![],
        Some(Json::String(s)) => s.split('|').map(|s| s.trim().to_lowercase()).collect(),
        Some(Json::Array(list)) => list.iter().map(|v| v.as_str().unwrap_or_default().to_string()).collect(),
        Some(other) => return Err(f.invalid_value(FIELD, other, "a list of `c2p` and `p2c`".into())),
    };
    let has = |word: &str| words.iter().any(|w| w == word);
    match words.iter().find(|w| !["c2p", "p2c", ""].contains(&w.as_str())) {
        Some(other) => {
            Err(f.unsupported(FIELD, format!("\"{other}\""), "this architecture has `c2p` and `p2c`".into()))
        }
        None if words.iter().any(String::is_empty) && words.len() > 1 || words.len() > 2 => {
            Err(f.invalid(FIELD, &words, "each of `c2p` and `p2c` once".into()))
        }
        None => Ok((has("c2p"), has("p2c"))),
    }
}

/// A whole number of tokens; none below 1.
pub(super) fn whole(f: &Fields, field: &str) -> Result<Option<usize>, ConfigError> {
    let Accepts::Size(most) = TOKENS else { return Ok(None) };
    match f.number(field) {
        None => Ok(None),
        Some(n) if n.fract() != 0.0 || n > most as f64 => {
            Err(f.invalid(field, &n, format!("a whole number up to {most}")))
        }
        Some(n) => Ok((n >= 1.0).then_some(n as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::Near;

    /// The distances at which buckets begin, computed by Transformers' DeBERTa-v2.
    #[test]
    fn buckets_of_distances() {
        let near = |span, most| Near { span, most, norm: None, shared: true, key_bias: true };
        let begins =
            |near: &Near, until: i64| -> Vec<i64> { (1..until).filter(|d| near.row(*d) != near.row(d - 1)).collect() };
        let small = near(8, Some(24));
        assert_eq!(begins(&small, 24), [1, 2, 3, 4, 5, 8, 13]);
        assert!((1..24).all(|d| small.row(d) + small.row(-d) == 16));
        let large = near(256, Some(512));
        let starts = begins(&large, 512);
        assert_eq!(starts.len(), 255);
        assert_eq!(starts[126..140], [127, 128, 129, 130, 131, 133, 134, 136, 137, 139, 140, 142, 143, 145]);
        assert_eq!((large.row(0), large.row(511), large.row(-511), large.reach(2000)), (256, 511, 1, 512));
        let each = near(8, None);
        assert_eq!([0, 7, 8, 30, -7, -8, -30].map(|d| each.row(d)), [8, 15, 15, 15, 1, 0, 0]);
        assert_eq!((each.reach(100), each.reach(5)), (8, 5));
    }
}
