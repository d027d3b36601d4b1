//! Rotary embeddings of models whose layers are of two kinds, each with a table of its own.
//!
//! Classes differ in their use of `rope_theta` and `rope_scaling` beside `rope_parameters`: see
//! `convert_rope_params_to_dict` of their configurations in Transformers. Values that contradict
//! the fields that a class reads are refused.

use super::error::{ConfigError, show};
use super::fields::{Field, Fields};
use super::rope::{COMPRESS, ROPE, base, kind, object, part_of_head, plain, read_described, read_object};
use crate::config::dictionary::fields;
use crate::rope::{RopeConfig, RopeScaling};
use serde_json::{Map, Value};

/// Layers that see everything, and layers with a window.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
/// Where their objects are.
const AT: [&str; 2] = ["rope_parameters.full_attention.", "rope_parameters.sliding_attention."];
const PARAMETERS: &str = "rope_parameters";
const SCALING: &str = "rope_scaling";
const BASE: &str = "rope_theta";
const PART: &str = "partial_rotary_factor";

/// Fields of a rotation of the first pairs of whole heads.
const PROPORTIONAL: &[Field] = fields! { partial_rotary_factor, factor };

/// How a class reads two rotary embeddings: of layers that see everything, and of layers with a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoRopes {
    /// The bases where the file gives none.
    pub theta: [f64; 2],
    /// How much of each head turns where `rope_parameters` is absent.
    pub parts: [f64; 2],
    /// How much turns where `rope_parameters` does not say it.
    pub part: f64,
    /// Whether `rope_parameters` may say it.
    pub partial: bool,
    /// Fields read beside `rope_parameters`.
    pub beside: Beside,
}

/// A class's use of fields beside the objects in `rope_parameters`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    /// The bases in these fields, and `rope_scaling`, which changes the first embedding; with `both`, the other too.
    Scaling { bases: [&'static str; 2], both: bool },
    /// `rope_scaling` in place of absent objects. The caller has read the bases.
    Older,
    /// Nothing.
    Nothing,
}

impl TwoRopes {
    /// For a class that reads nothing but the objects in `rope_parameters`.
    pub const fn new(theta: [f64; 2]) -> TwoRopes {
        TwoRopes { theta, parts: [1.0; 2], part: 1.0, partial: false, beside: Beside::Nothing }
    }
}

/// Reads the two embeddings of heads of `head_dim` elements.
///
/// # Errors
/// One of them is not supported, or the file contradicts itself.
pub(crate) fn read_two(
    f: &Fields,
    head_dim: usize,
    max_position: usize,
    class: TwoRopes,
) -> Result<Vec<RopeConfig>, ConfigError> {
    let nested = nested(f)?;
    let bare = f.bare();
    let read = |i: usize| {
        let (at, mut map) = described(f, nested, i, class)?;
        let part = if nested { class.part } else { class.parts[i] };
        if part != 1.0 && !map.contains_key(PART) {
            map.insert(PART.into(), part.into());
        }
        let named = match class.beside {
            Beside::Scaling { bases, .. } => f.number(bases[i]),
            Beside::Older | Beside::Nothing => None,
        };
        let theta = named.unwrap_or(class.theta[i]);
        read_described(&bare, (at, &map), class.partial, (head_dim, max_position), theta)
    };
    let ropes = vec![read(0)?, read(1)?];
    agree(f, &ropes, (class, nested), head_dim)?;
    Ok(ropes)
}

/// Reads the embedding of one kind of layers, 0 or 1, from its object in `rope_parameters`.
///
/// # Errors
/// It is not supported.
pub(crate) fn read_one(
    f: &Fields,
    i: usize,
    head_dim: usize,
    max_position: usize,
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    let (at, map) = described(f, nested(f)?, i, TwoRopes::new([theta; 2]))?;
    read_object(&f.bare(), at, &map, head_dim, max_position, theta)
}

/// Whether `rope_parameters` has an object or null for a kind of layers.
fn nested(f: &Fields) -> Result<bool, ConfigError> {
    let Some(all) = f.object(PARAMETERS).filter(|all| KINDS.iter().any(|kind| all.contains_key(*kind))) else {
        return Ok(false);
    };
    for kind in KINDS {
        if let Some(v) = all.get(kind).filter(|v| !v.is_null() && !v.is_object()) {
            return Err(f.invalid_value(PARAMETERS, v, format!("an object or null in `{kind}`")));
        }
    }
    // Nothing reads the fields beside them. Published files have a base and a kind there.
    let beside = |name: &str| !KINDS.contains(&name) && ![BASE, "rope_type", "type"].contains(&name);
    let rest = all.iter().filter(|(name, _)| beside(name)).map(|(name, v)| (name.clone(), v.clone())).collect();
    f.inside_rope(&rest, "rope_parameters.", &[])?;
    Ok(true)
}

/// The fields of the embedding of a kind of layers, and their place.
fn described(
    f: &Fields,
    nested: bool,
    i: usize,
    class: TwoRopes,
) -> Result<(&'static str, Map<String, Value>), ConfigError> {
    let own = f.object(PARAMETERS).and_then(|m| m.get(KINDS[i])?.as_object()).filter(|_| nested);
    let scaling = match class.beside {
        Beside::Scaling { both, .. } if both || i == 0 => scaling(f)?,
        Beside::Older if !nested && i == 0 => scaling(f)?,
        Beside::Scaling { .. } | Beside::Older | Beside::Nothing => None,
    };
    if let Some(map) = own.filter(|map| map.get("truncate") == Some(&Value::Bool(false))) {
        // It is looked for beside the objects.
        let help = "this architecture rounds the range of YaRN to whole dimensions: leave `truncate` out".into();
        return Err(f.unsupported(PARAMETERS, show(map), help));
    }
    match (own, scaling) {
        (Some(own), None) => {
            if matches!(class.beside, Beside::Nothing) && own.get(BASE).is_none_or(Value::is_null) {
                return Err(ConfigError::Missing { field: format!("{}{BASE}", AT[i]) });
            }
            Ok((AT[i], own.clone()))
        }
        (Some(own), Some(more)) => Ok((AT[i], own.iter().chain(more).map(|(k, v)| (k.clone(), v.clone())).collect())),
        (None, Some(map)) if nested => {
            let help = format!("`{PARAMETERS}` has no `{}` that it changes", KINDS[i]);
            Err(f.unsupported(SCALING, show(map), help))
        }
        (None, Some(map)) => Ok(("rope_scaling.", map.clone())),
        (None, None) if nested && !matches!(class.beside, Beside::Scaling { .. }) && has_layers(f, i) => {
            Err(ConfigError::Missing { field: AT[i].trim_end_matches('.').into() })
        }
        (None, None) => Ok((AT[i], Map::new())),
    }
}

/// Whether `layer_types` names layers of a kind.
fn has_layers(f: &Fields, i: usize) -> bool {
    let types = f.get("layer_types").value().and_then(Value::as_array);
    types.is_some_and(|list| list.iter().any(|v| v == KINDS[i]))
}

/// `rope_scaling`. It is added to an object whose `rope_type` is `default`, so `type` alone says nothing to the class.
fn scaling<'a>(f: &Fields<'a>) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
    let Some(map) = f.object(SCALING).filter(|m| !m.is_empty()) else { return Ok(None) };
    let changes = map.get("factor").and_then(Value::as_f64) != Some(1.0);
    if changes && !map.contains_key("rope_type") && map.get("type").is_some_and(|kind| kind != "default") {
        let help = "this architecture passes over `type`: its kind is in `rope_type`".into();
        return Err(f.unsupported(SCALING, show(map), help));
    }
    Ok(Some(map))
}

/// Refuses fields beside the objects that contradict the class's values.
fn agree(
    f: &Fields,
    ropes: &[RopeConfig],
    (class, nested): (TwoRopes, bool),
    head_dim: usize,
) -> Result<(), ConfigError> {
    let help =
        |has: String| format!("this architecture has {has} by the fields that it reads: give it in `{PARAMETERS}`");
    let bases: &[&str] = match &class.beside {
        Beside::Scaling { bases, .. } => bases,
        Beside::Older | Beside::Nothing => &[BASE],
    };
    for (name, rope) in bases.iter().zip(ropes) {
        if let Some(theta) = f.number(name).filter(|theta| *theta != rope.theta) {
            return Err(f.unsupported(name, theta.to_string(), help(rope.theta.to_string())));
        }
    }
    let full = ropes.first();
    if let (Some(part), Some(full)) = (f.number(PART), full)
        && part_of_head(f, head_dim, part)? != full.dim
    {
        return Err(f.unsupported(PART, part.to_string(), help(format!("{} of {head_dim}", full.dim))));
    }
    let own = f.object(PARAMETERS).and_then(|m| m.get(KINDS[0])?.as_object());
    let plain = |k: &str, v: &Value| ["rope_type", "type"].contains(&k) && v == "default";
    let said = |(k, v): (&String, &Value)| plain(k, v) || own.is_some_and(|own| own.get(k) == Some(v));
    let reads = matches!(class.beside, Beside::Scaling { .. }) || matches!(class.beside, Beside::Older) && !nested;
    if let Some(map) = f.object(SCALING).filter(|m| !reads && !m.iter().all(said)) {
        let help = format!(
            "this architecture expects an object for each kind of layers in `{PARAMETERS}`, and reads no other"
        );
        return Err(f.unsupported(SCALING, show(map), help));
    }
    if nested { Ok(()) } else { flat(f, ropes) }
}

/// Refuses `rope_parameters` without an object for a kind of layers, unless it repeats values that
/// are read elsewhere.
fn flat(f: &Fields, ropes: &[RopeConfig]) -> Result<(), ConfigError> {
    let Some(map) = f.object(PARAMETERS) else { return Ok(()) };
    let all = |is: &dyn Fn(&RopeConfig) -> bool| ropes.iter().all(is);
    let same = |(k, v): (&String, &Value)| match k.as_str() {
        "rope_type" | "type" => v == "default" && all(&|r| r.scaling == RopeScaling::Default),
        BASE => v.as_f64().is_some_and(|theta| all(&|r| r.theta == theta)),
        _ => v.is_null(),
    };
    if map.iter().all(same) {
        return Ok(());
    }
    let [full, sliding] = KINDS;
    let help = format!("this architecture expects an object for each kind of layers in it: `{full}` and `{sliding}`");
    Err(f.unsupported(PARAMETERS, show(map), help))
}

/// Reads two rotary embeddings as Gemma 4 has them. The first is for layers that see everything, whose heads of
/// `dims[0]` elements turn in part (`part` of them where nothing is said), the second for layers with a window,
/// whose heads have `dims[1]`.
pub(crate) fn read_proportional(
    f: &Fields,
    dims: [usize; 2],
    part: f64,
    max_position: usize,
) -> Result<Vec<RopeConfig>, ConfigError> {
    let (bare, class) = (f.bare(), TwoRopes::new([1e6, 1e4]));
    let nested = nested(f)?;
    let (at, sliding) = described(f, nested, 1, class)?;
    let sliding = read_object(&bare, at, &sliding, dims[1], max_position, class.theta[1])?;
    let (at, map) = described(f, nested, 0, class)?;
    let whole = part_of_head(f, dims[0], 1.0)?;
    let full = if map.is_empty() {
        RopeConfig { theta: class.theta[0], dim: whole, scaling: RopeScaling::Proportional { part, factor: 1.0 } }
    } else if kind(&f.inside(&map, at, &[ROPE])?)? == "proportional" {
        let tables: [&[Field]; 2] = [ROPE, PROPORTIONAL];
        let r = f.inside_rope(&map, at, &tables)?;
        let part = r.number(PART).unwrap_or(1.0);
        if !(part > 0.0 && part <= 1.0) {
            return Err(r.invalid(PART, &part, "above 0 and at most 1".into()));
        }
        let scaling = RopeScaling::Proportional { part, factor: r.factor_or("factor", 1.0)? };
        RopeConfig { theta: base(&bare, &r, at, class.theta[0])?, dim: whole, scaling }
    } else {
        read_object(&bare, at, &map, dims[0], max_position, class.theta[0])?
    };
    let ropes = vec![full, sliding];
    if !nested {
        flat(f, &ropes)?;
    }
    Ok(ropes)
}

/// Reads two rotary embeddings as DeepSeek-V4 has them, of `dim` elements of heads of `head_dim`: of
/// layers with a window alone, and of the others. They are objects in `rope_parameters`, or the former
/// has `rope_theta`, the latter all the rest and `compress_rope_theta`.
pub(crate) fn read_compressed(
    f: &Fields,
    [dim, head_dim]: [usize; 2],
    max_position: usize,
) -> Result<Vec<RopeConfig>, ConfigError> {
    const OTHER: &str = "compress_rope_theta";
    let theta = [f.number("rope_theta").unwrap_or(1e4), f.number(OTHER).unwrap_or(160_000.0)];
    let of = |kind: &str| f.object("rope_parameters").and_then(|m| m.get(kind)?.as_object());
    let mut ropes = match [of("main"), of("compress")] {
        [Some(main), Some(compress)] => vec![
            read_object(f, "rope_parameters.main.", main, head_dim, max_position, theta[0])?,
            read_object(f, COMPRESS, compress, head_dim, max_position, theta[1])?,
        ],
        _ => {
            let (at, map) = object(f)?;
            let mut rest = read_object(f, at, map, head_dim, max_position, theta[1])?;
            rest.theta = plain(f, OTHER, dim, theta[1])?.theta;
            if let RopeScaling::Yarn { attention_factor, .. } = &mut rest.scaling
                && !map.contains_key("attention_factor")
            {
                *attention_factor = 1.0;
            }
            vec![plain(f, "rope_theta", dim, theta[0])?, rest]
        }
    };
    for rope in &mut ropes {
        if rope.dim != dim && rope.dim != head_dim {
            let help = format!("this architecture rotates the same {dim} of {head_dim} elements everywhere");
            return Err(f.unsupported("partial_rotary_factor", format!("{} of {head_dim}", rope.dim), help));
        }
        rope.dim = dim;
    }
    Ok(ropes)
}
