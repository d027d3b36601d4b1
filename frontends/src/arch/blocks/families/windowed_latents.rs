//! Layers of latent attention that have windows, and sizes of their own (Dots 3 Note): their fields
//! in files, in the words of its authors and in Transformers'.

use crate::arch::blocks::experts::sparse_by_types;
use crate::arch::blocks::latent_attention::Latent;
use crate::config::ConfigError;
use crate::config::common::{Heads, layer_types};
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use crate::rope::{RopeConfig, RopeScaling};
use serde_json::{Map, Value};

/// The range of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Everything before.
    Full,
    /// An indexer's selection.
    Indexed,
    /// A window.
    Sliding,
}

/// Names of the sizes of layers with a window, each with its default.
const SIZES: [(&str, &str, usize); 7] = [
    ("num_attention_heads", "swa_num_attention_heads", 64),
    ("num_key_value_heads", "swa_num_key_value_heads", 64),
    ("q_lora_rank", "swa_q_lora_rank", 1024),
    ("kv_lora_rank", "swa_kv_lora_rank", 1024),
    ("head_dim", "swa_head_dim", 256),
    ("qk_nope_head_dim", "swa_qk_nope_head_dim", 192),
    ("v_head_dim", "swa_v_head_dim", 128),
];
const ROTATED: [&str; 2] = ["qk_rope_head_dim", "swa_qk_rope_head_dim"];
const EACH: &str = "per_layer_config";
const TYPES: &[&str] = &["full_attention", "indexed_attention", "sliding_attention"];
const ROPES: &str = "rope_parameters";
const MOST: usize = 1 << 16;

/// The sizes of layers with a window.
pub(crate) const FIELDS: &[Field] = fields! {
    swa_num_attention_heads: Accepts::Size(MOST), swa_num_key_value_heads: Accepts::Size(MOST),
    swa_q_lora_rank: Accepts::Size(MOST), swa_kv_lora_rank: Accepts::Size(MOST), swa_head_dim: Accepts::Size(MOST),
    swa_qk_nope_head_dim: Accepts::Size(MOST), swa_v_head_dim: Accepts::Size(MOST),
    swa_qk_rope_head_dim: Accepts::Size(MOST), per_layer_config,
};

/// Which layers those are, how positions are rotated in each kind, and which layers have experts.
pub(crate) const WHERE: &[Field] = fields! {
    layer_types: Accepts::ListOf(TYPES), use_dsa, head_dim: Accepts::Size(MOST),
    sliding_window | sliding_window_size, rope_theta, swa_rope_theta, rope_parameters, mlp_layer_types,
    first_k_dense_replace, moe_layer_freq: Accepts::Any,
};

/// The range of each layer's attention. Files of its authors mark layers that see everything if an
/// indexer selects.
pub(crate) fn kinds(f: &Fields, layers: usize) -> Result<Vec<Reach>, ConfigError> {
    let selects = match f.get("use_dsa").value().and_then(Value::as_bool) {
        None if f.object(EACH).is_none() => Some(true),
        said => said,
    };
    let wide = if selects == Some(false) { Reach::Full } else { Reach::Indexed };
    let listed = layer_types(f, layers)?;
    let of = |name: &str| match name {
        "sliding_attention" => Reach::Sliding,
        _ if selects.is_some() => wide,
        "indexed_attention" => Reach::Indexed,
        _ => Reach::Full,
    };
    let absent = |i: usize| if i >= 2 && i % 4 != 1 { Reach::Sliding } else { wide };
    Ok(listed.map_or_else(|| (0..layers).map(absent).collect(), |list| list.into_iter().map(of).collect()))
}

/// The latent and the heads of layers with a window; sizes absent from `per_layer_config` are as in
/// the others.
pub(crate) fn windowed(
    f: &Fields,
    kinds: &[Reach],
    (others, heads): (Latent, Heads),
) -> Result<(Latent, Heads), ConfigError> {
    let each = each(f, kinds)?;
    let size = |i: usize| -> Result<usize, ConfigError> {
        let (name, own, absent) = SIZES[i];
        let short = [heads.queries, heads.kv, others.q_rank.unwrap_or(absent), others.kv_rank];
        let of_head = [f.size("head_dim").or(256), others.nope, others.value];
        match &each {
            Some(map) => Ok(sized(f, map, name)?.or(short.into_iter().chain(of_head).nth(i)).unwrap_or(absent)),
            None => Ok(f.size(own).or(absent)),
        }
    };
    let [queries, kv, dim, nope] = [size(0)?, size(1)?, size(4)?, size(5)?];
    let rope = match &each {
        Some(map) => sized(f, map, ROTATED[0])?.unwrap_or(others.rope),
        None => f.size(ROTATED[1]).or(dim.saturating_sub(nope)),
    };
    let (field, whole) = (if each.is_some() { EACH } else { SIZES[4].1 }, nope.saturating_add(rope));
    if whole != dim {
        let help = format!("this architecture expects the rotated part of a head ({rope}) plus the rest ({nope})");
        return Err(f.unsupported(field, dim.to_string(), help));
    }
    if queries != kv {
        let help = format!("this architecture expects as many heads of keys and values as of queries ({queries})");
        return Err(f.unsupported(if each.is_some() { EACH } else { SIZES[1].1 }, kv.to_string(), help));
    }
    if rope == 0 || !rope.is_multiple_of(2) {
        let help = "this architecture rotates pairs of elements, an even number".into();
        return Err(f.unsupported(if each.is_some() { EACH } else { ROTATED[1] }, rope.to_string(), help));
    }
    let latent = Latent { q_rank: Some(size(2)?), kv_rank: size(3)?, nope, rope, value: size(6)?, ..others };
    Ok((latent, Heads { queries, kv, dim }))
}

/// The entry of `per_layer_config` for the layers with a window, the same for all.
fn each<'a>(f: &Fields<'a>, kinds: &[Reach]) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
    let Some(all) = f.object(EACH) else { return Ok(None) };
    let sliding: Vec<String> =
        kinds.iter().enumerate().filter(|(_, k)| **k == Reach::Sliding).map(|(i, _)| i.to_string()).collect();
    let refused = |found: String| {
        let help = format!("this architecture expects the same for each layer with a window ({})", sliding.join(", "));
        f.unsupported(EACH, found, help)
    };
    let first = all.values().next().and_then(Value::as_object);
    let known = |name: &str| name == ROTATED[0] || SIZES.iter().any(|(size, ..)| *size == name);
    let same = all.len() == sliding.len() && sliding.iter().all(|i| all.get(i).and_then(Value::as_object) == first);
    match first {
        None if sliding.is_empty() && all.is_empty() => Ok(None),
        Some(first) if same && first.keys().all(|name| known(name)) => Ok(Some(first)),
        _ => Err(refused(format!("about layers {:?}", all.keys().collect::<Vec<_>>()))),
    }
}

/// A size in it.
fn sized(f: &Fields, map: &Map<String, Value>, name: &str) -> Result<Option<usize>, ConfigError> {
    let Some(v) = map.get(name) else { return Ok(None) };
    let n = v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=MOST).contains(n));
    let refused = || f.unsupported(EACH, format!("`{name}`: {v}"), "this architecture expects sizes".into());
    n.map(Some).ok_or_else(refused)
}

/// The rotary tables of layers without a window and with one, of as many elements.
pub(crate) fn ropes(f: &Fields, dims: [usize; 2]) -> Result<Vec<RopeConfig>, ConfigError> {
    let absent = [("rope_theta", 8e7), ("swa_rope_theta", 5e4)];
    let mut ropes = vec![];
    for (((name, absent), kinds), dim) in absent.into_iter().zip([&TYPES[..2], &TYPES[2..]]).zip(dims) {
        let theta = f.number(name).unwrap_or(absent);
        let theta = match f.object(ROPES) {
            Some(map) if TYPES.iter().any(|kind| map.contains_key(*kind)) => {
                let own = kinds.iter().find_map(|kind| map.get(*kind)?.as_object());
                own.map_or(Ok(theta), |own| base(f, own))?
            }
            Some(all) => base(f, all)?,
            None => theta,
        };
        if !(theta > 1.0 && (theta as f32).is_finite()) {
            return Err(f.invalid(name, &theta, "a finite number above 1".into()));
        }
        ropes.push(RopeConfig { theta, dim, scaling: RopeScaling::Default });
    }
    Ok(ropes)
}

/// The base in an object of `rope_parameters`. The class computes the rotated part of a head from
/// the sizes.
fn base(f: &Fields, own: &Map<String, Value>) -> Result<f64, ConfigError> {
    let known = |(name, v): (&String, &Value)| match name.as_str() {
        "rope_type" | "type" => v == "default",
        "rope_theta" => v.is_number(),
        "partial_rotary_factor" | "mrope_section" => true,
        _ => v.is_null(),
    };
    match own.get("rope_theta").and_then(Value::as_f64).filter(|_| own.iter().all(known)) {
        Some(theta) => Ok(theta),
        None => {
            let help = "this architecture expects a base, `rope_theta`, and no scaling".into();
            Err(f.unsupported(ROPES, Value::Object(own.clone()).to_string(), help))
        }
    }
}

/// Which layers have experts: by a list of words, or by the number of the first that has some and a list of
/// numbers, or how many apart they are.
pub(crate) fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    const EVERY: &str = "moe_layer_freq";
    let first = f.count("first_k_dense_replace").unwrap_or(1);
    let said = match f.get("mlp_layer_types").value() {
        Some(_) => return sparse_by_types(f, layers, first),
        None => f.get(EVERY).value(),
    };
    let has: Option<Vec<bool>> = match said {
        None => Some(vec![true; layers]),
        Some(Value::Array(list)) => {
            let flags: Option<Vec<bool>> = list.iter().map(|v| Some(v.as_u64()? != 0)).collect();
            flags.filter(|flags| flags.len() >= layers)
        }
        Some(v) => v.as_u64().filter(|n| *n > 0).map(|n| (0..layers as u64).map(|i| i.is_multiple_of(n)).collect()),
    };
    let wrong = || said.map(|v| f.invalid_value(EVERY, v, format!("how many layers apart, or {layers} numbers")));
    match has {
        Some(has) => Ok(has.into_iter().enumerate().map(|(i, has)| has && i >= first).collect()),
        None => Err(wrong().unwrap_or_else(|| f.missing(EVERY))),
    }
}
