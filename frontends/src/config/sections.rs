//! Sections of a rotary embedding: which of its pairs turn along which axis (M-RoPE of Qwen2-VL, arXiv 2409.12191).

use super::error::ConfigError;
use super::fields::{Accepts, Field, Fields};
use super::rope::object;
use crate::rope::Sections;
use llmcc_ir::graph::AXES;

/// Fields of the object that describes the rotary embedding.
const FIELDS: &[Field] =
    &[Field::new("mrope_section", Accepts::Numbers), Field::new("mrope_interleaved", Accepts::Flag)];
const SIZES: &str = "mrope_section";

/// How the pairs of a rotary embedding are shared among the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The pairs of an axis stand together, as in Qwen2-VL.
    Apart,
    /// They take turns, as in Qwen3-VL.
    Interleaved,
}

/// The sections of an embedding of `dim` elements; where the file says none, the `usual` ones of an architecture. `None`:
/// the usual ones are for heads of another size, so all pairs turn along one axis.
///
/// # Errors
/// They are not as many as axes, or do not have all pairs.
pub(crate) fn read(f: &Fields, dim: usize, form: Form, usual: [usize; AXES]) -> Result<Option<Sections>, ConfigError> {
    let (at, map) = object(f)?;
    let r = f.inside(map, at, &[FIELDS])?;
    let pairs = dim / 2;
    let interleaved = form == Form::Interleaved;
    if r.get("mrope_interleaved").value().is_some() && r.flag("mrope_interleaved") != interleaved {
        let expected = format!("{interleaved}, as in all models of this architecture, or absent");
        return Err(r.invalid("mrope_interleaved", &!interleaved, expected));
    }
    let Some(given) = r.numbers(SIZES) else {
        let fits = usual.iter().sum::<usize>() == pairs;
        return Ok(fits.then_some(Sections { sizes: usual, interleaved }));
    };
    let whole = |n: &f64| (n.fract() == 0.0 && (0.0..=pairs as f64).contains(n)).then_some(*n as usize);
    let sizes: Option<Vec<usize>> = given.iter().map(whole).collect();
    match sizes.and_then(|sizes| <[usize; AXES]>::try_from(sizes).ok()) {
        Some(sizes) if sizes.iter().sum::<usize>() == pairs => Ok(Some(Sections { sizes, interleaved })),
        _ => {
            let expected = format!("{AXES} whole numbers whose sum is {pairs}, the pairs of a head");
            Err(r.invalid(SIZES, &given, expected))
        }
    }
}
