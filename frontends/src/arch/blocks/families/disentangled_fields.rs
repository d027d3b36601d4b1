//! DeBERTa's configuration of distances ([`crate::arch::blocks::disentangled_attention`]), common to
//! its versions.

use crate::arch::blocks::disentangled_attention::Near;
use crate::arch::blocks::encoder::{ClassHead, Defaults, Encoder};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, TOKENS};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::{Neutral, fixed};
use llmcc_ir::graph::UnaryOp;
use serde_json::Value as Json;

/// Distances whose bucket is so near to the next one's that f32 decides.
const UNDECIDED: f64 = 1e-4;

/// Fields that are read.
pub(crate) const FIELDS: &[Field] = &[
    Field::new("type_vocab_size", Accepts::Count),
    Field::new("position_biased_input", Accepts::Flag).unless(Neutral::Any),
    Field::new("relative_attention", Accepts::Flag),
    // Below 1: as many as there are positions.
    Field::new("max_relative_positions", Accepts::Number).unless(Neutral::Any),
    Field::new("pos_att_type", Accepts::Any).unless(Neutral::Any),
    Field::new("pooler_hidden_act", Accepts::OneOf(ACTIVATIONS)).unless(Neutral::Words(ACTIVATIONS)),
];

/// Fields that the classes decide, or that only other heads read.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Same("hidden_size") => pooler_hidden_size;
    Any => pooler_dropout cls_dropout legacy padding_idx;
    Off => talking_head;
    One => conv_groups;
};

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

/// Fields common to all versions, with `buckets` of distances either way: the encoder, and the
/// distances.
pub(crate) fn read(f: &Fields, buckets: Option<usize>) -> Result<(Encoder, Option<Near>), ConfigError> {
    let mut e = Encoder::read(f, &Defaults { eps: 1e-7, spare: SPARE, ..Defaults::BERT })?;
    e.embedding.types = f.count("type_vocab_size").unwrap_or(0);
    if !f.flag_or("position_biased_input", true) {
        (e.embedding.positions, e.spare) = (None, WITHOUT_POSITIONS);
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
        let help = "this architecture supports `c2p` and `p2c`, or neither".into();
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
                 this architecture supports numbers of buckets where it does not, such as 256 up to 512"
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
            Err(f.unsupported(FIELD, format!("\"{other}\""), "this architecture supports `c2p` and `p2c`".into()))
        }
        None if words.iter().any(String::is_empty) && words.len() > 1 || words.len() > 2 => {
            Err(f.invalid(FIELD, &words, "each of `c2p` and `p2c` once".into()))
        }
        None => Ok((has("c2p"), has("p2c"))),
    }
}

/// A whole number of tokens; none below 1.
pub(crate) fn whole(f: &Fields, field: &str) -> Result<Option<usize>, ConfigError> {
    let Accepts::Size(most) = TOKENS else { return Ok(None) };
    match f.number(field) {
        None => Ok(None),
        Some(n) if n.fract() != 0.0 || n > most as f64 => {
            Err(f.invalid(field, &n, format!("a whole number up to {most}")))
        }
        Some(n) => Ok((n >= 1.0).then_some(n as usize)),
    }
}
