//! Cohere Compass (North Micro Vision, Cohere, 2026), the text models: Command A with halves of heads
//! rotated, in the layers of those kinds that `rope_parameters` has something for.

use super::command::{DEFAULTS, LOGIT_SCALE, read_with};
use super::decoder::Defaults;
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION_BIAS, DIVIDED, LAYER_NORM_MLP, MODEL, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use serde_json::Value;

pub(super) const ARCH: Arch = Arch {
    model_type: "cohere_compass_text",
    class: "CohereCompassForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, LAYER_NORM_MLP, ATTENTION_BIAS, LOGIT_SCALE, WINDOW, OWN],
    // The width is divided among the heads, whatever the first says; the second is of classifiers, which
    // have a class of their own.
    fixed: &[("head_dim", Neutral::Any), ("pooling", Neutral::Any)],
    goldens: &["cohere_compass"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let rotates = rotated_kinds(f)?;
        let turns = rotates.map(|of| of == Some(true));
        let mut d = read_with(f, &Defaults { window: WindowRule::None, ..DEFAULTS }, |heads, max| {
            let both = if turns.contains(&true) { rope::read_two(f, heads.dim, max, [1e4; 2])? } else { vec![] };
            Ok(both.into_iter().zip(turns).filter(|(_, turns)| *turns).map(|(rope, _)| rope).collect())
        })?;
        d.scales.logits = common::factor(f, "logit_scale")?;
        let layers = d.layers.len();
        let sliding = common::sliding_layers(f, layers)?.unwrap_or_else(|| vec![false; layers]);
        for (kind, at) in KINDS.iter().zip([false, true]) {
            if rotates[usize::from(at)].is_none() && sliding.contains(&at) {
                let help = format!("this architecture has `{kind}` in it, since layers of that kind are there");
                return Err(f.unsupported("rope_parameters", "without it".into(), help));
            }
        }
        let window = f.size("sliding_window").or_null(4096);
        Ok(Box::new(d.with_attention(|i, a| {
            a.neighbours = 0;
            a.window = window.filter(|_| sliding[i]);
            // The tables of kinds that do not rotate are left out.
            let table = usize::from(sliding[i] && turns[0]);
            a.rotary = turns[usize::from(sliding[i])].then_some(table);
        })))
    },
};

const OWN: &[Field] = &[Field::new("rope_parameters", Accepts::Object)];

/// Kinds of layers, in the order of their rotary tables.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// Whether layers of each kind rotate; `None` where nothing is said.
fn rotated_kinds(f: &Fields) -> Result<[Option<bool>; 2], ConfigError> {
    let all = f.object("rope_parameters");
    let of = |kind: &str| all.and_then(|m| m.get(kind));
    if let Some(other) = KINDS.iter().filter_map(|kind| of(kind)).find(|v| !v.is_object() && !v.is_null()) {
        let expected = "an object with one for each kind of layers, or null where they do not rotate";
        return Err(f.invalid_value("rope_parameters", other, expected.into()));
    }
    let base = |v: &Value| v.get("rope_theta").is_some_and(Value::is_number);
    if let Some(kind) = KINDS.iter().find(|kind| of(kind).is_some_and(|v| v.is_object() && !base(v))) {
        let help = format!("this architecture has a base of its own in `{kind}`, and none where nothing is said");
        return Err(f.unsupported("rope_parameters", format!("without `rope_theta` in `{kind}`"), help));
    }
    Ok(KINDS.map(|kind| of(kind).map(Value::is_object)))
}
