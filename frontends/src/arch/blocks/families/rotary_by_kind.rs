//! Layers that rotate or do not by their kind, where `rope_parameters` has an object or null for each.

use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::config::rope_kinds::read_one;
use crate::rope::RopeConfig;
use serde_json::Value;

/// Kinds of layers, in the order of their rotary tables.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The tables of the kinds that rotate.
pub(crate) fn turning(
    f: &Fields,
    rotates: [Option<bool>; 2],
    head_dim: usize,
    max_position: usize,
) -> Result<Vec<RopeConfig>, ConfigError> {
    let turning = (0..2).filter(|i| rotates[*i] == Some(true));
    turning.map(|i| read_one(f, i, head_dim, max_position, 1e4)).collect()
}

/// Which of these a layer of a kind has.
pub(crate) fn table_of(rotates: [Option<bool>; 2], slides: bool) -> Option<usize> {
    let turns = rotates.map(|of| of == Some(true));
    turns[usize::from(slides)].then_some(usize::from(slides && turns[0]))
}

/// Whether something is said of each kind that layers are of.
pub(crate) fn all_said(f: &Fields, rotates: [Option<bool>; 2], sliding: &[bool]) -> Result<(), ConfigError> {
    for (kind, at) in KINDS.iter().zip([false, true]) {
        if rotates[usize::from(at)].is_none() && sliding.contains(&at) {
            let help = format!("this architecture expects `{kind}` in it, for its layers of that kind");
            return Err(f.unsupported("rope_parameters", "without it".into(), help));
        }
    }
    Ok(())
}

/// Whether layers of each kind rotate; `None` where nothing is said.
pub(crate) fn rotated_kinds(f: &Fields) -> Result<[Option<bool>; 2], ConfigError> {
    let all = f.object("rope_parameters");
    let of = |kind: &str| all.and_then(|m| m.get(kind));
    if let Some(other) = KINDS.iter().filter_map(|kind| of(kind)).find(|v| !v.is_object() && !v.is_null()) {
        let expected = "an object with one for each kind of layers, or null where they do not rotate";
        return Err(f.invalid_value("rope_parameters", other, expected.into()));
    }
    let base = |v: &Value| v.get("rope_theta").is_some_and(Value::is_number);
    if let Some(kind) = KINDS.iter().find(|kind| of(kind).is_some_and(|v| v.is_object() && !base(v))) {
        let help = format!("this architecture expects a base of its own in `{kind}`, and none where nothing is said");
        return Err(f.unsupported("rope_parameters", format!("without `rope_theta` in `{kind}`"), help));
    }
    Ok(KINDS.map(|kind| of(kind).map(Value::is_object)))
}
