//! `rope_parameters` (Transformers 5), or `rope_scaling` with `rope_theta` beside it.

use super::fields::{self, Field, Fields, list, show};
use super::known::{self, Unread};
use super::{ConfigError, RopeConfig, RopeScaling};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Reads the rotary embedding. What is not read goes to `unread`.
pub(super) fn read(f: &Fields, head_dim: usize, max_position: usize, unread: &mut Unread) -> Result<RopeConfig, ConfigError> {
    let (at, map) = object(f)?;
    let names: Vec<&str> = fields::SCALINGS.iter().map(|(name, _)| *name).collect();
    let kind = kind(&Fields::new(map, at, &[fields::ROPE])?)?;
    let table: Option<&[Field]> = fields::SCALINGS.iter().find(|(name, _)| *name == kind).map(|(_, table)| *table);
    let tables = [
        fields::ROPE,
        table.ok_or_else(|| ConfigError::Unsupported {
            field: format!("{at}rope_type"),
            found: show(kind),
            help: format!("supported are {}", list(&names)),
        })?,
    ];
    let r = Fields::new(map, at, &tables)?;
    let rest = known::unread_rope(map, at, |name| r.reads(name));
    unread.changes.extend(rest.changes);
    unread.others.extend(rest.others);
    for name in ["rope_theta", "original_max_position_embeddings"] {
        if let (Some(outer), Some(inner)) = (f.number(name), r.number(name))
            && outer != inner
        {
            return Err(f.invalid(name, &outer, format!("as `{at}{name}` ({inner:?}), or absent")));
        }
    }
    let theta = r.number("rope_theta").or(f.number("rope_theta")).unwrap_or(10_000.0);
    if !(theta > 1.0 && (theta as f32).is_finite()) {
        return Err(f.invalid("rope_theta", &theta, "a finite number above 1".into()));
    }
    if !head_dim.is_multiple_of(2) {
        return Err(f.invalid("head_dim", &head_dim, "even, as pairs of elements are rotated".into()));
    }
    let original = || {
        (f.size("original_max_position_embeddings").value().or(r.size("original_max_position_embeddings").value())).unwrap_or(max_position)
            as f64
    };
    let scaling = match kind {
        "linear" => RopeScaling::Linear { factor: r.factor("factor", 1.0)? },
        "llama3" => llama3(&r, original())?,
        "yarn" => yarn(&r, original(), max_position)?,
        _ => RopeScaling::Default,
    };
    Ok(RopeConfig { theta, dim: head_dim, scaling })
}

/// The object that describes the rotary embedding, and its name with a point. As in Transformers, `rope_scaling` counts if it is there.
fn object<'a>(f: &Fields<'a>) -> Result<(&'static str, &'a Map<String, Value>), ConfigError> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    let given = |name: &str| f.object(name).filter(|m| !m.is_empty());
    let (at, map) = match (given("rope_scaling"), given("rope_parameters")) {
        (Some(old), Some(new)) if old != new => {
            let help = "`rope_parameters` says something else: remove the one that is not the model's".into();
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
fn kind<'a>(r: &Fields<'a>) -> Result<&'a str, ConfigError> {
    match (r.text("rope_type"), r.text("type")) {
        (Some(new), Some(old)) if new != old => Err(r.invalid("type", &old, format!("as `rope_type` ({new:?}), or absent"))),
        (new, old) => Ok(new.or(old).unwrap_or("default")),
    }
}

fn llama3(r: &Fields, original: f64) -> Result<RopeScaling, ConfigError> {
    let (low, high) = (r.factor("low_freq_factor", 0.0)?, r.factor("high_freq_factor", 0.0)?);
    if low >= high {
        return Err(r.invalid("high_freq_factor", &high, format!("above `low_freq_factor` ({low})")));
    }
    Ok(RopeScaling::Llama3 { factor: r.factor("factor", 1.0)?, low, high, original })
}

fn yarn(r: &Fields, original: f64, max_position: usize) -> Result<RopeScaling, ConfigError> {
    let factor = match r.get("factor") {
        fields::Given::Null => max_position as f64 / original,
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
    Ok(RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, original, truncate: r.flag_or("truncate", true) })
}
