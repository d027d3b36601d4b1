//! Weights that a checkpoint has as codes, where another format is asked for: their numbers are decoded
//! exactly and rounded once more, unless `--keep-quantized` names them.

use crate::Error;
use crate::options::CompileOptions;
use crate::units::count;
use llmcc_frontends::{Checkpoint, wildcard};
use llmcc_ir::graph::Module;
use llmcc_ir::quant::Format;
use std::collections::{BTreeMap, BTreeSet};

/// Names of tensors by the format that the checkpoint has them in.
pub type Requantized = BTreeMap<Format, Vec<String>>;

/// Makes floats of the codes that are to have another format than the checkpoint's. Returns the names of these
/// tensors.
///
/// # Errors
/// [`Error::Usage`] for a pattern of `--keep-quantized` that names nothing.
pub fn decode(options: &CompileOptions, checkpoint: &mut Checkpoint) -> Result<Requantized, Error> {
    let Some(wanted) = options.weights.filter(|f| f.is_quantized()) else { return Ok(Requantized::new()) };
    let all: Vec<(String, Format)> = checkpoint.coded().map(|(name, format)| (name.into(), format)).collect();
    let kept = options.keep_quantized.as_deref().unwrap_or_default();
    check(kept, &all)?;
    let mut out = Requantized::new();
    for (name, format) in all {
        if !format.has_codes_of(wanted) && !kept.iter().any(|pattern| names(pattern, &name, format)) {
            checkpoint.decode(&name);
            out.entry(format).or_default().push(name);
        }
    }
    Ok(out)
}

/// Those that the model has.
pub fn of_model(mut all: Requantized, module: &Module) -> Requantized {
    let read: BTreeSet<&str> = module.weights.iter().map(|w| w.name.as_str()).collect();
    all.values_mut().for_each(|names| names.retain(|name| read.contains(name.as_str())));
    all.retain(|_, names| !names.is_empty());
    all
}

/// A line for each format about what was done.
pub fn lines(all: &Requantized, wanted: Format) -> Vec<String> {
    let line = |(format, names): (&Format, &Vec<String>)| {
        let (first, more) = (names.first().map_or("", String::as_str), names.len().saturating_sub(1));
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} of {format} as {wanted}: {first}{others}", count(names.len(), "tensor"))
    };
    all.iter().map(line).collect()
}

/// Fails where a pattern names nothing that is quantized.
fn check(patterns: &[String], all: &[(String, Format)]) -> Result<(), Error> {
    let nothing = |pattern: &&String| !all.iter().any(|(name, format)| names(pattern, name, *format));
    let Some(pattern) = patterns.iter().find(nothing) else { return Ok(()) };
    if all.is_empty() {
        return Err(Error::Usage("--keep-quantized: the checkpoint has no quantized weights; leave it out".into()));
    }
    let formats: BTreeSet<String> = all.iter().map(|(_, format)| format.to_string()).collect();
    Err(Error::Usage(format!(
        "--keep-quantized={pattern}: no quantized tensor is called so; give a format of the checkpoint's ({}) or names \
         with * for any characters, such as {}",
        formats.into_iter().collect::<Vec<_>>().join(", "),
        all[0].0
    )))
}

/// Whether a pattern is the name of the format, or fits the name of the tensor.
fn names(pattern: &str, name: &str, format: Format) -> bool {
    pattern == format.def().name || pattern == format.to_string() || wildcard::fits(pattern, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_formats() {
        let nvfp4 = Format::parse("nvfp4").expect("a format");
        assert!(names("nvfp4", "x", nvfp4) && !names("fp8", "x", nvfp4));
        // A format is named with or without its group.
        let w4 = Format::parse("w4g64").expect("a format");
        assert!(names("w4", "x", w4) && names("w4g64", "x", w4) && !names("w4g32", "x", w4));
    }
}
