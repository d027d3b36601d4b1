//! Choosing a model among files of GGUF: repositories often have one for each format.

use crate::names::some;
use std::collections::BTreeMap;

const ENDING: &str = ".gguf";
/// Words in the names of files that lie beside models: parts that see images, statistics.
const BESIDE: [&str; 2] = ["mmproj", "imatrix"];

/// A file's name without its ending, and the part that it is of how many.
fn cut(name: &str) -> Option<(&str, Option<(usize, usize)>)> {
    let stem = name.strip_suffix(ENDING)?;
    let part = || {
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (base, this) = rest.rsplit_once('-')?;
        let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        (digits(count) && digits(this)).then_some((base, Some((this.parse().ok()?, count.parse().ok()?))))
    };
    Some(part().unwrap_or((stem, None)))
}

/// Models among files, with the names of their parts.
fn models<'n>(all: &[&'n str]) -> BTreeMap<&'n str, Vec<&'n str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in all {
        let file = name.rsplit('/').next().unwrap_or(name).to_lowercase();
        if let Some((base, _)) = cut(name).filter(|_| !BESIDE.iter().any(|word| file.contains(word))) {
            found.entry(base).or_default().push(name);
        }
    }
    found
}

/// The parts of a model, in order.
fn whole<'n>(base: &str, mut parts: Vec<&'n str>) -> Result<Vec<&'n str>, String> {
    parts.sort_unstable();
    let count = parts.iter().find_map(|p| Some(cut(p)?.1?.1)).unwrap_or(1);
    match parts.len() == count {
        true => Ok(parts),
        false => Err(format!(
            "`{base}{ENDING}` is split into {count} files, and {} are there: {}",
            parts.len(),
            some(&parts)
        )),
    }
}

/// All files of the model that a file belongs to.
///
/// # Errors
/// Parts are missing.
pub(crate) fn parts<'n>(all: &[&'n str], file: &str) -> Result<Vec<&'n str>, String> {
    match cut(file) {
        Some((base, Some((_, count)))) => {
            let own = |n: &&&str| matches!(cut(n), Some((b, Some((_, c)))) if b == base && c == count);
            whole(base, all.iter().filter(own).copied().collect())
        }
        _ => Ok(all.iter().filter(|n| **n == file).copied().collect()),
    }
}

/// The only model.
///
/// # Errors
/// There are several.
pub(crate) fn only<'n>(all: &[&'n str]) -> Result<Vec<&'n str>, String> {
    let mut found = models(all);
    match found.len() {
        1 => found.pop_first().map_or_else(|| Ok(vec![]), |(base, parts)| whole(base, parts)),
        0 => Err(format!("it has no model, but {}", some(all))),
        n => {
            let names: Vec<&str> = found.keys().copied().collect();
            Err(format!(
                "it has {n} models in GGUF: give the format of one (as in `OWNER/NAME:Q4_K_M`) or its file behind the \
                 model's name, of {}",
                some(&names)
            ))
        }
    }
}

/// The model of a format, such as `Q4_K_M`.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn of_format<'n>(all: &[&'n str], format: &str) -> Result<Vec<&'n str>, String> {
    let found = models(all);
    let fits = |base: &&str| {
        let base = base.to_lowercase();
        let word = format.to_lowercase();
        let at_end =
            base.strip_suffix(&word).is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '.', '_', '/']));
        at_end || base.split('/').rev().skip(1).any(|folder| folder == word)
    };
    let fitting: Vec<&str> = found.keys().copied().filter(fits).collect();
    match fitting[..] {
        [base] => whole(base, found[base].clone()),
        [] if found.is_empty() => Err(format!("it has no models in GGUF, but {}", some(all))),
        [] => {
            let names: Vec<&str> = found.keys().copied().collect();
            Err(format!("none of its models in GGUF is `{format}`: {}", some(&names)))
        }
        _ => Err(format!("several of its models are `{format}`: give the file of one, of {}", some(&fitting))),
    }
}
