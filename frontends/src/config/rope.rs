//! `rope_parameters` (Transformers 5), or `rope_scaling` with `rope_theta` beside it.

use super::error::{ConfigError, list, show};
use super::fields::{Field, Fields, Given};
use crate::config::dictionary::fields;
use crate::rope::{LongRopeFactors, RopeConfig, RopeScaling};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Fields of all scalings of the rotary frequencies.
pub(super) const ROPE: &[Field] = fields! { rope_type, type, rope_theta };

/// Where DeepSeek-V4 has the second of its embeddings, which has a base of its own.
pub(super) const COMPRESS: &str = "rope_parameters.compress.";

/// Further fields of architectures that rotate a part of each head.
const PARTIAL: &[Field] = fields! { partial_rotary_factor };

/// Further fields of architectures whose queries grow with the position.
const TUNED: &[Field] = fields! { llama_4_scaling_beta, original_max_position_embeddings };
const BETA: &str = "llama_4_scaling_beta";
const ORIGINAL: &str = "original_max_position_embeddings";

/// Fields of each scaling of the rotary frequencies, besides [`ROPE`].
const SCALINGS: &[(&str, &[Field])] = &[
    ("default", &[]),
    ("linear", fields! { factor }),
    // Changes frequencies beyond `max_position_embeddings` only, which no sequence goes.
    ("dynamic", fields! { factor }),
    ("llama3", fields! { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }),
    (
        "yarn",
        fields! {
            factor, attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim, truncate,
            original_max_position_embeddings,
        },
    ),
    ("longrope", fields! { short_factor, long_factor, factor, attention_factor, original_max_position_embeddings }),
];

/// Reads the rotary embedding of heads of `head_dim` elements; `theta` is the base where none is
/// given.
pub(crate) fn read(f: &Fields, head_dim: usize, max_position: usize, theta: f64) -> Result<RopeConfig, ConfigError> {
    let (at, map) = object(f)?;
    read_object(f, at, map, head_dim, max_position, theta)
}

/// As [`read`], of `part` of each head where the file does not say how much is rotated.
pub(crate) fn read_partial(
    f: &Fields,
    head_dim: usize,
    max_position: usize,
    theta: f64,
    part: f64,
) -> Result<RopeConfig, ConfigError> {
    let mut rope = read(f, head_dim, max_position, theta)?;
    if !says_part(f)? {
        rope.dim = part_of_head(f, head_dim, part)?;
    }
    Ok(rope)
}

/// Whether the file says how much of a head is rotated.
pub(crate) fn says_part(f: &Fields) -> Result<bool, ConfigError> {
    const FIELD: &str = "partial_rotary_factor";
    let (_, inside) = object(f)?;
    Ok(f.reads(FIELD) && (f.number(FIELD).is_some() || inside.contains_key(FIELD)))
}

/// Whether a rotary embedding is described, beside its base.
pub(crate) fn described(f: &Fields) -> Result<bool, ConfigError> {
    Ok(!object(f)?.1.is_empty())
}

/// How queries grow with the position: the weight of the logarithm, and the positions of a step.
pub(crate) fn tuning(f: &Fields) -> Result<(f64, usize), ConfigError> {
    let (at, map) = object(f)?;
    let r = f.inside(map, at, &[TUNED])?;
    if let (Some(outer), Some(inner)) = (f.number(BETA), r.number(BETA))
        && outer != inner
    {
        return Err(f.invalid(BETA, &outer, format!("as `{at}{BETA}` ({inner:?}), or absent")));
    }
    let beta = r.number(BETA).or(f.number(BETA));
    let step = r.size(ORIGINAL).value().or(f.size(ORIGINAL).value());
    match (beta, step) {
        (Some(beta), Some(step)) => Ok((beta, step)),
        _ => {
            let help = format!("this architecture expects `{BETA}` and `{ORIGINAL}`");
            Err(r.unsupported(BETA, beta.map_or("absent".into(), |b| b.to_string()), help))
        }
    }
}

/// Latent attention's factor of scores, beside the root of its heads, where frequencies are scaled:
/// the square of the magnitude given by `mscale_all_dim`.
pub(crate) fn score_scale(f: &Fields) -> Result<f64, ConfigError> {
    let (at, map) = object(f)?;
    let number = |name: &str| map.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let plain = kind(&f.inside(map, at, &[ROPE])?)? == "default";
    let (weight, factor) = (number("mscale_all_dim"), number("factor"));
    if plain || weight == 0.0 || factor <= 1.0 {
        return Ok(1.0);
    }
    let magnitude = 0.1 * weight * libm::log(factor) + 1.0;
    Ok(magnitude * magnitude)
}

/// Checks `rotary_dim`, which says how many elements of a head are rotated.
///
/// # Errors
/// When a head has less, or they are no pairs.
pub(crate) fn check_rotary_dim(f: &Fields, dim: usize, head_dim: usize) -> Result<(), ConfigError> {
    if dim > head_dim || !dim.is_multiple_of(2) {
        let expected = format!("even, and at most {head_dim}: this architecture expects heads of so many");
        return Err(f.invalid("rotary_dim", &dim, expected));
    }
    Ok(())
}

/// Frequencies that nothing is done to.
pub(super) fn plain(f: &Fields, field: &str, head_dim: usize, theta: f64) -> Result<RopeConfig, ConfigError> {
    if !(theta > 1.0 && (theta as f32).is_finite()) {
        return Err(f.invalid(field, &theta, "a finite number above 1".into()));
    }
    Ok(RopeConfig { theta, dim: head_dim, scaling: RopeScaling::Default })
}

pub(super) fn read_object(
    f: &Fields,
    at: &'static str,
    map: &Map<String, Value>,
    head_dim: usize,
    max_position: usize,
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    let partial = f.reads("partial_rotary_factor");
    read_described(f, (at, map), partial, (head_dim, max_position), theta)
}

/// The rotary embedding that an object describes, which is called `at` in messages; `theta` is the base where
/// it has none, and `partial` whether it may say how much of a head is rotated.
pub(crate) fn read_described(
    f: &Fields,
    (at, map): (&'static str, &Map<String, Value>),
    partial: bool,
    (head_dim, max_position): (usize, usize),
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    let names: Vec<&str> = SCALINGS.iter().map(|(name, _)| *name).collect();
    let kind = kind(&f.inside(map, at, &[ROPE])?)?;
    let table: Option<&[Field]> = SCALINGS.iter().find(|(name, _)| *name == kind).map(|(_, table)| *table);
    let partial: &[Field] = if partial { PARTIAL } else { &[] };
    let tuned: &[Field] = if f.reads(BETA) { TUNED } else { &[] };
    let tables = [
        ROPE,
        table.ok_or_else(|| ConfigError::Unsupported {
            field: format!("{at}rope_type"),
            found: show(kind),
            help: format!("supported are {}", list(&names)),
        })?,
        partial,
        tuned,
    ];
    let r = f.inside_rope(map, at, &tables)?;
    let theta = base(f, &r, at, theta)?;
    let dim = rotated(f, &r, head_dim)?;
    let original = || {
        (f.size("original_max_position_embeddings").value().or(r.size("original_max_position_embeddings").value()))
            .unwrap_or(max_position) as f64
    };
    let scaling = match kind {
        "linear" => RopeScaling::Linear { factor: r.factor("factor", 1.0)? },
        "dynamic" => r.factor("factor", 1.0).map(|_| RopeScaling::Default)?,
        "llama3" => llama3(&r, original())?,
        "yarn" => yarn(&r, original(), max_position)?,
        "longrope" => longrope(&r, original() as usize, max_position, dim)?,
        _ => RopeScaling::Default,
    };
    Ok(RopeConfig { theta, dim, scaling })
}

/// The base of the frequencies, `default` where none is given.
///
/// # Errors
/// When it is none, or the object and the fields beside it disagree.
pub(super) fn base(f: &Fields, r: &Fields, at: &str, default: f64) -> Result<f64, ConfigError> {
    for name in ["rope_theta", "original_max_position_embeddings", "partial_rotary_factor"] {
        if let (Some(outer), Some(inner)) = (f.number(name), r.number(name))
            && outer != inner
            && at != COMPRESS
        {
            return Err(f.invalid(name, &outer, format!("as `{at}{name}` ({inner:?}), or absent")));
        }
    }
    let theta = r.number("rope_theta").or(f.number("rope_theta")).unwrap_or(default);
    if !(theta > 1.0 && (theta as f32).is_finite()) {
        return Err(f.invalid("rope_theta", &theta, "a finite number above 1".into()));
    }
    Ok(theta)
}

/// The elements of a head that are rotated: all, or a part for architectures that declare
/// `partial_rotary_factor`.
fn rotated(f: &Fields, r: &Fields, head_dim: usize) -> Result<usize, ConfigError> {
    let part = r.number("partial_rotary_factor").or(f.number("partial_rotary_factor")).unwrap_or(1.0);
    part_of_head(f, head_dim, part)
}

/// A part of the elements of a head.
pub(super) fn part_of_head(f: &Fields, head_dim: usize, part: f64) -> Result<usize, ConfigError> {
    if !(part > 0.0 && part <= 1.0) {
        return Err(f.invalid("partial_rotary_factor", &part, "above 0 and at most 1".into()));
    }
    let dim = (head_dim as f64 * part) as usize;
    match dim.is_multiple_of(2) && dim > 0 {
        true => Ok(dim),
        false if part == 1.0 => Err(f.invalid("head_dim", &head_dim, "even, as pairs of elements are rotated".into())),
        false => Err(f.invalid(
            "partial_rotary_factor",
            &part,
            format!("such that an even number of the {head_dim} elements of a head is rotated"),
        )),
    }
}

/// The object that describes the rotary embedding, and its name with a point. As in Transformers,
/// `rope_scaling` counts if it is there.
pub(crate) fn object<'a>(f: &Fields<'a>) -> Result<(&'static str, &'a Map<String, Value>), ConfigError> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    let given = |name: &str| f.object(name).filter(|m| !m.is_empty());
    let (at, map) = match (given("rope_scaling"), given("rope_parameters")) {
        (Some(old), Some(new)) if old != new => {
            let help = "`rope_parameters` has another value: remove the wrong one".into();
            return Err(f.unsupported("rope_scaling", show(old), help));
        }
        (Some(m), _) => ("rope_scaling.", m),
        (None, Some(m)) => ("rope_parameters.", m),
        (None, None) => ("rope_scaling.", &*EMPTY),
    };
    if let Some((key, _)) = map.iter().find(|(_, v)| v.is_object()) {
        return Err(ConfigError::Unsupported {
            field: format!("{at}{key}"),
            found: "an object".into(),
            help: "one rotary embedding for all layers is supported".into(),
        });
    }
    Ok((at, map))
}

/// The scaling: `rope_type`, or `type` of older files.
pub(super) fn kind<'a>(r: &Fields<'a>) -> Result<&'a str, ConfigError> {
    match (r.text("rope_type").map(today), r.text("type").map(today)) {
        (Some(new), Some(old)) if new != old => {
            Err(r.invalid("type", &old, format!("as `rope_type` ({new:?}), or absent")))
        }
        (new, old) => Ok(new.or(old).unwrap_or("default")),
    }
}

/// Today's name of a scaling.
fn today(kind: &str) -> &str {
    match kind {
        // The first files of Phi-3.
        "su" => "longrope",
        // Qwen2-VL: positions of images have several parts, which are all the same for texts.
        "mrope" => "default",
        other => other,
    }
}

fn llama3(r: &Fields, original: f64) -> Result<RopeScaling, ConfigError> {
    let (low, high) = (r.factor("low_freq_factor", 0.0)?, r.factor("high_freq_factor", 0.0)?);
    if low > high {
        return Err(r.invalid("high_freq_factor", &high, format!("at least `low_freq_factor` ({low})")));
    }
    Ok(RopeScaling::Llama3 { factor: r.factor("factor", 1.0)?, low, high, original })
}

fn longrope(r: &Fields, original: usize, max_position: usize, dim: usize) -> Result<RopeScaling, ConfigError> {
    let factors = |name: &str| {
        let all = r.numbers(name).ok_or_else(|| r.missing(name))?;
        let good = all.len() == dim / 2 && all.iter().all(|f| *f > 0.0 && (1.0 / *f as f32).is_finite());
        let expected = || format!("{} positive numbers, one for each pair of rotated elements", dim / 2);
        if good { Ok(all) } else { Err(r.invalid(name, &all, expected())) }
    };
    let (short, long) = (factors("short_factor")?, factors("long_factor")?);
    let factor = r.factor_or("factor", max_position as f64 / original as f64)?;
    let usual = if factor <= 1.0 { 1.0 } else { (1.0 + libm::log(factor) / libm::log(original as f64)).sqrt() };
    let attention_factor = r.factor_or("attention_factor", usual)?;
    if !(attention_factor as f32).is_finite() {
        return Err(r.invalid("original_max_position_embeddings", &original, "above 1".into()));
    }
    if max_position > original && short != long {
        r.leave_original(original);
    }
    let [short, long] = [short, long].map(|divisors| LongRopeFactors { divisors, attention_factor });
    Ok(RopeScaling::LongRope { short, long, original })
}

fn yarn(r: &Fields, original: f64, max_position: usize) -> Result<RopeScaling, ConfigError> {
    let factor = match r.get("factor") {
        Given::Null => max_position as f64 / original,
        _ => r.factor("factor", 1.0)?,
    };
    let magnitude = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * libm::log(factor) + 1.0 };
    let scales = (r.number("mscale").unwrap_or(0.0), r.number("mscale_all_dim").unwrap_or(0.0));
    let attention_factor = match (r.number("attention_factor"), scales) {
        (Some(given), _) => given,
        (None, (m, all)) if m != 0.0 && all != 0.0 => magnitude(m) / magnitude(all),
        (None, _) => magnitude(1.0),
    };
    if !(attention_factor > 0.0 && (attention_factor as f32).is_finite()) {
        return Err(r.invalid("attention_factor", &attention_factor, "a positive number".into()));
    }
    let or = |name: &str, default: f64| r.number(name).filter(|b| *b != 0.0).unwrap_or(default);
    let (beta_fast, beta_slow) = (or("beta_fast", 32.0), or("beta_slow", 1.0));
    if !(beta_slow > 0.0 && beta_fast >= beta_slow) {
        return Err(r.invalid("beta_fast", &beta_fast, format!("at least `beta_slow` ({beta_slow}), both positive")));
    }
    Ok(RopeScaling::Yarn {
        factor,
        attention_factor,
        beta_fast,
        beta_slow,
        original,
        truncate: r.flag_or("truncate", true),
    })
}
