//! Rotary positions of GGUF files: the rotated part of each head, and the scaling of frequencies.

use super::Value;
use super::file::{Config, File, OTHER_MODEL, Wrong, head_dim};
use serde_json::json;

/// The factors of Llama 3's frequencies.
const FACTORS: &str = "rope_freqs.weight";
/// The factors of frequencies in long texts.
const LONG: &str = "rope_factors_long.weight";
/// The factors in short ones.
const SHORT: &str = "rope_factors_short.weight";

/// Tensors that settings follow from.
pub(super) const TENSORS: &[&str] = &[FACTORS, LONG, SHORT];

/// Sets the fields about rotary positions; of a family that reads factors itself, how much of a head is
/// rotated only.
pub(super) fn set(file: &File, config: &mut Config, own_factors: bool) -> Result<(), Wrong> {
    // Also where all of a head is: some classes rotate a part where nothing is said.
    if let (Some(rotated), Some(dim)) = (file.size("rope.dimension_count"), head_dim(config)) {
        config.insert("partial_rotary_factor".into(), (rotated as f64 / dim.max(1) as f64).into());
    }
    let magnitude = magnitude(file)?;
    if own_factors {
        return match magnitude {
            1.0 => Ok(()),
            _ => file.refused(format_args!("has a `{MAGNITUDE}` of {magnitude}, which is not supported")),
        };
    }
    let scaling = match (file.has(FACTORS), file.has(LONG)) {
        (true, _) => Some(factors(file, config, magnitude)?),
        (false, true) => Some(by_length(file, config)?),
        (false, false) => multiplied(file, config, scaling(file)?, magnitude)?,
    };
    config.extend(scaling.map(|scaling| ("rope_scaling".to_string(), scaling)));
    Ok(())
}

/// Factor of rotated queries and keys.
const MAGNITUDE: &str = "rope.scaling.attn_factor";

/// A file's value; 1 by default.
fn magnitude(file: &File) -> Result<f64, Wrong> {
    match file.get(MAGNITUDE) {
        None => Ok(1.0),
        Some(value) => match value.number().filter(|x| x.is_finite() && *x > 0.0) {
            Some(x) => Ok(x),
            None => file.refused(format_args!("has a `{MAGNITUDE}` that is not a positive number")),
        },
    }
}

/// Settings with the factor of rotated queries and keys.
fn multiplied(
    file: &File,
    config: &mut Config,
    scaling: Option<serde_json::Value>,
    magnitude: f64,
) -> Result<Option<serde_json::Value>, Wrong> {
    if magnitude == 1.0 {
        return Ok(scaling);
    }
    match scaling {
        Some(mut yarn) if yarn["rope_type"] == "yarn" => {
            if file.get("rope.scaling.yarn_log_multiplier").is_some() {
                return file.refused(format_args!("has a `{MAGNITUDE}` beside `rope.scaling.yarn_log_multiplier`"));
            }
            let usual = 0.1 * yarn["factor"].as_f64().unwrap_or(1.0).max(1.0).ln() + 1.0;
            yarn["attention_factor"] = (yarn["attention_factor"].as_f64().unwrap_or(usual) * magnitude).into();
            Ok(Some(yarn))
        }
        // Frequencies that are all divided by one number.
        other => {
            let factor = other.and_then(|linear| linear["factor"].as_f64()).unwrap_or(1.0);
            let Some(rotated) = file.size("rope.dimension_count").or_else(|| head_dim(config).map(|n| n as u64)) else {
                return file.refused(format_args!("has a `{MAGNITUDE}`, but not the width of heads"));
            };
            // The most that a head may have.
            let all = vec![factor; (rotated / 2).min(1 << 12) as usize];
            let original = file.required("context_length")?;
            Ok(Some(longrope(config, [&all, &all], Some(original), Some(magnitude))))
        }
    }
}

/// `rope_scaling` by the keys about it.
fn scaling(file: &File) -> Result<Option<serde_json::Value>, Wrong> {
    // As llama.cpp: 0 says that nothing is scaled.
    let factor = file.number("rope.scaling.factor").or(file.number("rope.scale_linear")).filter(|x| *x != 0.0);
    let kind = file.get("rope.scaling.type").and_then(Value::text);
    match (kind, factor) {
        // Phi's name for the frequencies as they are.
        (None | Some("none" | "longrope" | "linear" | "yarn"), None) | (Some("none"), _) => Ok(None),
        (None | Some("linear"), Some(factor)) => Ok(Some(json!({ "rope_type": "linear", "factor": factor }))),
        (Some("yarn"), Some(factor)) => {
            let original = file.size("rope.scaling.original_context_length");
            let mut out =
                json!({ "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original });
            let others = [("beta_fast", "beta_fast"), ("beta_slow", "beta_slow"), ("attn_factor", "attention_factor")];
            for (key, field) in others {
                if let Some(x) = file.number(&format!("rope.scaling.yarn_{key}")) {
                    out[field] = x.into();
                }
            }
            Ok(Some(out))
        }
        (Some(other), _) => Err((format!("`rope.scaling.type` is `{other}`, which is not supported"), OTHER_MODEL)),
    }
}

/// The settings of frequencies that depend on the length of a text.
fn by_length(file: &File, config: &mut Config) -> Result<serde_json::Value, Wrong> {
    let (Some(long), Some(short)) = (file.floats(LONG), file.floats(SHORT)) else {
        return file.refused(format_args!("has `{LONG}` without `{SHORT}` beside it in F32"));
    };
    // As llama.cpp: of a file that does not say it, all of the context is the original one.
    let original = file.size("rope.scaling.original_context_length").or(file.size("context_length"));
    Ok(longrope(config, [&long, &short], original, file.number("rope.scaling.attn_factor")))
}

/// The factors of frequencies that a file has: the settings of Llama 3 that make them, or the factors
/// themselves, for texts of any length.
fn factors(file: &File, config: &mut Config, magnitude: f64) -> Result<serde_json::Value, Wrong> {
    let wrong = || (format!("tensor `{FACTORS}` does not hold factors of frequencies in F32"), OTHER_MODEL);
    let stored = file.floats(FACTORS).filter(|all| all.iter().all(|x| x.is_finite() && *x > 0.0)).ok_or_else(wrong)?;
    if let Some(settings) = llama3(&stored, config).filter(|_| magnitude == 1.0) {
        return Ok(settings);
    }
    let original = file.required("context_length")?;
    Ok(longrope(config, [&stored, &stored], Some(original), Some(magnitude)))
}

/// The settings of these factors, for texts that are longer than the original context and for shorter ones.
fn longrope(
    config: &mut Config,
    [long, short]: [&[f64]; 2],
    original: Option<u64>,
    attention: Option<f64>,
) -> serde_json::Value {
    config.insert("original_max_position_embeddings".into(), json!(original));
    let mut out = json!({
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "original_max_position_embeddings": original,
    });
    if let Some(x) = attention {
        out["attention_factor"] = x.into();
    }
    out
}

/// The settings of Llama 3 that make these factors.
fn llama3(stored: &[f64], config: &Config) -> Option<serde_json::Value> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let theta = config.get("rope_theta").and_then(serde_json::Value::as_f64).unwrap_or(10_000.0);
    let factor = stored.iter().copied().fold(1.0, f64::max);
    let n = stored.len() as f64;
    let wavelength = |i: usize| std::f64::consts::TAU * theta.powf(i as f64 / n);
    // Any factor in between tells the original context.
    let between = stored.iter().position(|x| *x > 1.0 && *x < factor);
    let original = between.map_or(8192.0, |i| {
        let smooth = (1.0 / stored[i] - 1.0 / factor) / (1.0 - 1.0 / factor);
        (wavelength(i) * (smooth * (HIGH - LOW) + LOW)).round()
    });
    let made = |i: usize| {
        let smooth = ((original / wavelength(i) - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    if !stored.iter().enumerate().all(|(i, x)| (x / made(i) - 1.0).abs() <= 1e-4) {
        return None;
    }
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": original as u64,
    }))
}
