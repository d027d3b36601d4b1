//! Values of options, from their text.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use llmcc_codegen::link::LONGEST_SONAME;
use llmcc_frontends::slots::MOST_RANK;
use llmcc_frontends::{Adapter, DraftHeads};
use llmcc_ir::gpu::wish::{InputPlace, Wish};
use llmcc_ir::output::Pool;
use llmcc_ir::quant::{FORMATS, Format, Packing};
use llmcc_ir::state::AdapterSpec;
use serde_json::Value;
use std::path::Path;

/// Names of template variables that have another meaning, with the remedy.
const RESERVED: &[(&str, &str)] = &[
    ("messages", "messages come from -p and --system"),
    ("chat_template", "give --chat-template FILE"),
    ("add_generation_prompt", "--chat always asks for an answer"),
    ("continue_final_message", "--chat always asks for an answer of its own"),
];

/// Reads `NAME=VALUE`, a variable of a chat template: JSON, or else a string.
pub(super) fn parse_variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("it has no value; give NAME=VALUE")?;
    let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    if name.is_empty() || !name.chars().all(word) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("`{name}` is no name of a variable: letters, digits and `_`"));
    }
    match RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        Some((_, remedy)) => Err(format!("`{name}` cannot be set: {remedy}")),
        None => Ok((name.into(), serde_json::from_str(value).unwrap_or_else(|_| value.into()))),
    }
}

/// Reads the name of a pooling.
pub(super) fn pools() -> impl TypedValueParser<Value = Pool> {
    let known = |name: &str| Pool::ALL.iter().find(|(_, known)| *known == name).map(|(pool, _)| *pool);
    PossibleValuesParser::new(Pool::ALL.iter().map(|(_, name)| *name))
        .try_map(move |name| known(&name).ok_or("unknown"))
}

/// Reads `FOLDER` or `FOLDER=SCALE`.
pub(super) fn parse_adapter(text: &str) -> Result<Adapter, String> {
    // A folder may have the sign in its name.
    let scaled = text.rsplit_once('=').filter(|_| !Path::new(text).exists());
    let Some((path, scale)) = scaled else { return Ok(Adapter { path: text.into(), scale: 1.0 }) };
    match scale.parse::<f32>() {
        Ok(scale) if scale.is_finite() && !path.is_empty() => Ok(Adapter { path: path.into(), scale }),
        _ => Err(format!("`{scale}` is not a number, and there is no folder `{text}`; give FOLDER or FOLDER:SCALE")),
    }
}

/// Reads a time in milliseconds, more than none.
pub(super) fn parse_milliseconds(text: &str) -> Result<f64, String> {
    let time = text.parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms > 0.0);
    time.ok_or_else(|| format!("`{text}` is no time: give milliseconds, more than 0"))
}

pub(super) fn parse_budget(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if (0.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be a number from 0 (exact) to 1".into()),
    }
}

/// Reads a relative difference.
pub(super) fn parse_tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("must be a number above 0, such as 0.01".into()),
    }
}

/// Reads `resident=2,warps=8,stages=4,input=whole`.
///
/// # Errors
/// An unknown key or value.
pub fn parse_wish(text: &str) -> Result<Wish, String> {
    let mut wish = Wish::NONE;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` has no value; give name=value"))?;
        let number = || {
            value
                .parse()
                .ok()
                .filter(|n| (1..=16).contains(n))
                .ok_or_else(|| format!("{name} is `{value}`; it must be a number from 1 to 16"))
        };
        match (name, value) {
            ("resident", _) => wish.resident = Some(number()?),
            ("warps", _) => wish.warps = Some(number()?),
            ("stages", _) => wish.stages = Some(number()?),
            ("input", "whole") => wish.place = Some(InputPlace::Whole),
            ("input", "fitting") => wish.place = Some(InputPlace::Fitting),
            ("input", "global") => wish.place = Some(InputPlace::Global),
            ("cut", "yes" | "no") => wish.cut = Some(value == "yes"),
            _ => {
                let all = "resident=, warps=, stages=, input=whole, input=fitting, input=global, cut=yes and cut=no";
                return Err(format!("`{part}` is unknown; known are {all}"));
            }
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

/// Common names of formats, in small letters and without `_`, `-` and spaces, with their names
/// here.
const ALIASES: &[(&str, &str)] = &[
    ("q80", "w8g32"),
    ("q40", "w4g32"),
    ("q41", "w4ag32"),
    ("q50", "w5"),
    ("q51", "w5a"),
    ("int8", "w8g32"),
    ("int4", "w4g32"),
    ("e4m3", "fp8"),
    ("fp8e4m3", "fp8"),
    ("f8e4m3", "fp8"),
    ("float8", "fp8"),
    ("tq10", "ternary"),
    ("tq20", "ternary"),
    ("iq1s", "iq2"),
    ("iq1m", "iq2"),
    ("iq2xxs", "iq2"),
    ("iq2xs", "iq2"),
    ("iq2s", "iq2"),
    ("iq3xxs", "iq3"),
];

/// Columns that share a scale where a name does not say it.
const GROUP: &str = "g32";

/// Reads the name of a quantized format, in any case and as other programs spell it; with no group the formats that
/// have several have 32 columns in one, as `--w4` has.
pub(super) fn parse_format(text: &str) -> Result<Format, String> {
    let plain: String = text.chars().filter(|c| !"_- ".contains(*c)).flat_map(char::to_lowercase).collect();
    let name = ALIASES.iter().find(|(alias, _)| *alias == plain).map_or(plain.as_str(), |(_, name)| *name);
    let found = Format::parse(name).or_else(|| Format::parse(&format!("{name}{GROUP}")));
    if let Some(format) = found.filter(|f| f.is_quantized() && f.packing == Packing::Panel) {
        return Ok(format);
    }
    if found.is_some_and(|f| !f.is_quantized()) {
        return Err(format!("this is not a quantized format; give --dtype {name}"));
    }
    // llama.cpp's mixtures: `Q4_K_M` is Q4_K for most matrices, and Q6_K for some.
    let of_mixture = ["m", "s", "l"].iter().find_map(|size| plain.strip_suffix(size)).and_then(Format::parse);
    if let Some(format) = of_mixture.filter(|f| f.is_quantized()) {
        return Err(format!(
            "`{text}` is a mixture of formats of llama.cpp; give one format, such as `{format}`, or --error-budget"
        ));
    }
    let quantized = FORMATS.iter().filter(|d| d.encoding.is_quantized());
    let names: Vec<String> = quantized.flat_map(|d| d.formats()).map(|f| f.to_string()).collect();
    Err(format!("the quantized formats are {}", names.join(", ")))
}

/// The same, of any format of weights.
pub(super) fn parse_any_format(text: &str) -> Result<Format, String> {
    match Format::parse(&text.to_lowercase()).filter(|f| !f.is_quantized()) {
        Some(float) => Ok(float),
        None => parse_format(text).map_err(|e| format!("{e}, and f32, f16, bf16")),
    }
}

pub(super) fn parse_group(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(g) if llmcc_ir::quant::GROUPS.contains(&usize::from(g)) => Ok(g),
        _ => Err("must be 32, 64 or 128".into()),
    }
}

/// Reads the name of a shared object: that of a file, without a folder.
///
/// # Errors
/// No name of a file, or one that is too long.
pub fn parse_soname(text: &str) -> Result<String, String> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    match text {
        "" => Err("it is empty; leave the option out for an artifact without a name".into()),
        "." | ".." => Err("it is the name of a folder; give the name of a file, such as libtiny.so.1".into()),
        _ if text.len() > LONGEST_SONAME => Err(format!("it is longer than {LONGEST_SONAME} bytes")),
        _ if !text.chars().all(plain) => {
            Err("give the name of a file, such as libtiny.so.1: no folder, no space, no control characters".into())
        }
        _ => Ok(text.into()),
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

pub(super) fn parse_kept(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("must be a number above 0 and up to 1".into()),
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

/// The draft heads of an option: `all`, or how many.
pub(super) fn draft_heads(text: &str) -> Result<DraftHeads, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(DraftHeads::All),
        (_, Ok(n @ 1..)) => Ok(DraftHeads::First(n)),
        _ => Err("give `all` or a number of heads from 1 on".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_json_or_strings() {
        for (text, name, value) in [
            ("enable_thinking=false", "enable_thinking", json!(false)),
            ("n=3", "n", json!(3)),
            ("date=26 July", "date", json!("26 July")),
            ("date=\"7\"", "date", json!("7")),
            ("a=b=c", "a", json!("b=c")),
            ("empty=", "empty", json!("")),
            ("tools=[{\"name\": \"f\"}]", "tools", json!([{ "name": "f" }])),
        ] {
            assert_eq!(parse_variable(text), Ok((name.into(), value)), "{text}");
        }
        for (text, says) in [
            ("enable_thinking", "give NAME=VALUE"),
            ("=1", "no name of a variable"),
            ("a b=1", "no name of a variable"),
            ("1a=1", "no name of a variable"),
            ("messages=[]", "-p and --system"),
            ("chat_template=x", "--chat-template FILE"),
        ] {
            let found = parse_variable(text).unwrap_err();
            assert!(found.contains(says), "{text}: {found}");
        }
    }

    #[test]
    fn formats_as_people_spell_them() {
        for (text, format) in [
            ("w4", "w4g32"),
            ("W4", "w4g32"),
            ("w8g128", "w8g128"),
            ("w4a", "w4ag32"),
            ("w4z", "w4zg32"),
            ("Q4_K", "q4k"),
            ("q6_k", "q6k"),
            ("Q8_0", "w8g32"),
            ("Q5_1", "w5a"),
            ("IQ4_NL", "iq4nl"),
            ("iq3_s", "iq3s"),
            ("MXFP4", "mxfp4"),
            ("NF4", "nf4"),
            ("fp8_e4m3", "fp8"),
            ("int4", "w4g32"),
            ("TQ2_0", "ternary"),
        ] {
            assert_eq!(parse_format(text).map(|f| f.to_string()), Ok(format.into()), "{text}");
        }
        for (text, says) in [
            ("Q4_K_M", "give one format, such as `q4k`"),
            ("BF16", "give --dtype bf16"),
            ("w4g33", "the quantized formats are"),
            ("w4g32.frag", "the quantized formats are"),
            ("", "the quantized formats are"),
        ] {
            let found = parse_format(text).unwrap_err();
            assert!(found.contains(says), "{text}: {found}");
        }
    }
}
