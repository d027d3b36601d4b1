//! EXAONE 4 (arXiv 2507.11407): norms after the blocks and of queries and keys, windows in most layers
//! of the larger ones; layers without rotate nothing there.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, POST_NORMS};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[],
    goldens: &["exaone4", "exaone4_full", "exaone4_letters"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(102_400),
            heads: Some(32),
            kv_heads: Some(32),
            eps: 1e-5,
            window: WindowRule::Most(4096, 4),
            ..Defaults::LLAMA
        };
        let window = f.size("sliding_window").or_null(4096);
        let (hybrid, letters) = (window.is_some(), letters(f, window)?);
        let mut d = Decoder::read(f, &defaults)?;
        let last = d.layers.len().saturating_sub(1);
        d.norms = Norms::After;
        Ok(Box::new(d.with_attention(|i, a| {
            if let Some(letters) = &letters {
                a.window = window.filter(|_| i != last && letters[i % letters.len()]);
            }
            a.qk_norm = Some(QkNorm::Head);
            a.rotary = (!hybrid || a.window.is_some()).then_some(0);
        })))
    },
};

const OWN: &[Field] = &[Field::new("sliding_window_pattern", Accepts::Any)];

/// Which layers have windows by a pattern of letters, which the layers repeat; the last one has
/// none. `None` where it is a number, or the types of layers are said one by one.
fn letters(f: &Fields, window: Option<usize>) -> Result<Option<Vec<bool>>, ConfigError> {
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
