//! Values of options, from their text.

use llmcc_frontends::Adapter;
use llmcc_frontends::slots::MOST_RANK;
use llmcc_ir::quant::{FORMATS, Format, Packing};
use llmcc_ir::state::AdapterSpec;
use llmcc_ir::target::Wish;
use std::path::Path;

/// Reads `FOLDER` or `FOLDER=SCALE`.
pub(super) fn parse_adapter(text: &str) -> Result<Adapter, String> {
    // A folder may have the sign in its name.
    let scaled = text.rsplit_once('=').filter(|_| !Path::new(text).exists());
    let Some((path, scale)) = scaled else { return Ok(Adapter { path: text.into(), scale: 1.0 }) };
    match scale.parse::<f32>() {
        Ok(scale) if scale.is_finite() && !path.is_empty() => Ok(Adapter { path: path.into(), scale }),
        _ => Err(format!("`{scale}` is no number, and there is no folder `{text}`")),
    }
}

pub(super) fn parse_budget(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if (0.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be a number from 0 (exact) to 1".into()),
    }
}

/// Reads `resident=2,warps=8,stages=4,input=whole`.
///
/// # Errors
/// What it does not know.
pub fn parse_wish(text: &str) -> Result<Wish, String> {
    let mut wish = Wish::NONE;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` has no value"))?;
        let number = || {
            value
                .parse()
                .ok()
                .filter(|n| (1..=16).contains(n))
                .ok_or_else(|| format!("{name} is a number from 1 to 16, not `{value}`"))
        };
        match (name, value) {
            ("resident", _) => wish.resident = Some(number()?),
            ("warps", _) => wish.warps = Some(number()?),
            ("stages", _) => wish.stages = Some(number()?),
            ("input", "whole" | "global") => wish.whole = Some(value == "whole"),
            _ => return Err(format!("`{part}` is none of resident=, warps=, stages=, input=whole and input=global")),
        }
    }
    Ok(wish)
}

/// A root in lower case.
pub(super) fn parse_root(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("it has 64 hexadecimal digits; `llmcc compile` and `llmcc inspect` print it".into()),
    }
}

pub(super) fn parse_format(text: &str) -> Result<Format, String> {
    Format::parse(text).filter(|f| f.is_quantized() && f.packing == Packing::Panel).ok_or_else(|| {
        let quantized = FORMATS.iter().filter(|d| d.encoding.is_quantized());
        let names: Vec<String> = quantized.flat_map(|d| d.formats()).map(|f| f.to_string()).collect();
        format!("the quantized formats are {}", names.join(", "))
    })
}

pub(super) fn parse_group(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(g) if llmcc_ir::quant::GROUPS.contains(&usize::from(g)) => Ok(g),
        _ => Err("must be 32, 64 or 128".into()),
    }
}

/// How many adapters there is to be room for.
pub(super) fn parse_slots(text: &str) -> Result<usize, String> {
    at_most(text, AdapterSpec::MOST)
}

/// The largest rank of adapters.
pub(super) fn parse_rank(text: &str) -> Result<usize, String> {
    at_most(text, MOST_RANK)
}

fn at_most(text: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("must be a number from 1 to {most}")),
    }
}

pub(super) fn parse_share(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if (0.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be a number from 0 to 1".into()),
    }
}

pub(super) fn parse_scale(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if (0.0..=f32::MAX).contains(&x) => Ok(x),
        _ => Err("must be 0 or a positive number".into()),
    }
}

/// A factor, which 0 cannot be.
pub(super) fn parse_penalty(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if x > 0.0 && x <= f32::MAX => Ok(x),
        _ => Err("must be a positive number (1 = off)".into()),
    }
}
