//! Common parts of EXAONE's generations.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::config::ConfigError;
use crate::config::fields::{Fields, Given};

/// The decoder, with norms before the blocks: norms of queries and keys, windows in most layers of
/// those that have windows, which rotate nothing in the others.
pub(crate) fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = defaults! { vocab: 102_400, heads: 32, kv_heads: 32, eps: 1e-5, window: Most(4096, 4), ..LLAMA };
    let window = f.size("sliding_window").or_null(4096);
    let (hybrid, pattern) = (window.is_some(), letters(f, window)?);
    let d = Decoder::read(f, &defaults)?;
    let last = d.layers.len().saturating_sub(1);
    Ok(d.with_heads(|i, a, h| {
        if let Some(pattern) = &pattern {
            a.window = window.filter(|_| i != last && pattern[i % pattern.len()]);
        }
        h.qk_norm = Some(QkNorm::Head);
        a.rotary = (!hybrid || a.window.is_some()).then_some(0);
    }))
}

/// Which layers have windows by a pattern of letters, which the layers repeat; the last one has
/// none. `None` where it is a number, or the types of layers are said one by one.
fn letters(f: &Fields, window: Option<usize>) -> Result<Option<Vec<bool>>, ConfigError> {
    let field = "sliding_window_pattern";
    let listed = f.get("layer_types").value().is_some();
    let v = match f.get(field) {
        Given::Absent => return Ok(None),
        Given::Null if listed || window.is_none() => return Ok(None),
        Given::Null => {
            let help = "this architecture expects a pattern where there are windows".to_string();
            return Err(f.unsupported(field, "null".into(), help));
        }
        Given::Value(v) => v,
    };
    let expected = "a number from 1 to 4096, or letters L (a window) and G (none)";
    match (v.as_u64(), v.as_str()) {
        (Some(1..=4096), _) => Ok(None),
        // No pattern: the types of layers are said one by one.
        (Some(0), _) if listed => Ok(None),
        (_, Some(text)) if !text.is_empty() && text.chars().all(|c| matches!(c, 'L' | 'G')) => {
            Ok(Some(text.chars().map(|c| c == 'L').collect()).filter(|_| !listed))
        }
        _ => Err(f.invalid_value(field, v, expected.into())),
    }
}
