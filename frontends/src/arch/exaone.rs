//! What the generations of EXAONE have in common.

use crate::config::ConfigError;
use crate::config::fields::{Fields, Given};

/// Which layers have windows by a pattern of letters, which the layers repeat; the last one has
/// none. `None` where it is a number, or the types of layers are said one by one.
pub(super) fn letters(f: &Fields, window: Option<usize>) -> Result<Option<Vec<bool>>, ConfigError> {
    let field = "sliding_window_pattern";
    let listed = f.get("layer_types").value().is_some();
    let v = match f.get(field) {
        Given::Absent => return Ok(None),
        Given::Null if listed || window.is_none() => return Ok(None),
        Given::Null => {
            let help = "this architecture has a pattern where there are windows".to_string();
            return Err(f.unsupported(field, "null".into(), help));
        }
        Given::Value(v) => v,
    };
    let expected = "a number from 1 to 4096, or letters L (a window) and G (none)";
    match (v.as_u64(), v.as_str()) {
        (Some(1..=4096), _) => Ok(None),
        (_, Some(text)) if !text.is_empty() && text.chars().all(|c| matches!(c, 'L' | 'G')) => {
            Ok(Some(text.chars().map(|c| c == 'L').collect()).filter(|_| !listed))
        }
        _ => Err(f.invalid_value(field, v, expected.into())),
    }
}
