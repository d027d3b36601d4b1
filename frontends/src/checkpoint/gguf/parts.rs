//! Models that are cut into several files.

use super::file::Wrong;
use super::{Header, Metadata, Value};

/// The most parts that are opened.
const MOST: u64 = 999;
const DOWNLOAD: &str = "download the model again, all parts of one revision";

/// The names of all parts of a model, by the first.
pub(in crate::checkpoint) fn names(header: &Header, name: &str) -> Result<Vec<String>, Wrong> {
    let count = number(&header.metadata, "split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(vec![name.to_string()]);
    }
    if count > MOST {
        return Err((format!("`split.count` is {count}, but a model has at most {MOST} parts"), DOWNLOAD));
    }
    let ending = format!("-00001-of-{count:05}.gguf");
    match name.strip_suffix(&ending) {
        Some(stem) => Ok((1..=count).map(|i| format!("{stem}-{i:05}-of-{count:05}.gguf")).collect()),
        None => Err((
            format!("it is one of {count} parts of a model, but its name does not end in `{ending}`"),
            "give the first part under its original name",
        )),
    }
}

/// Whether a file is the part that its name says: `at` counts from 0.
pub(in crate::checkpoint) fn check(header: &Header, at: usize, of: usize) -> Result<(), Wrong> {
    if of == 1 {
        return Ok(());
    }
    for (key, wanted) in [("split.no", at as u64), ("split.count", of as u64)] {
        match number(&header.metadata, key)? {
            Some(n) if n == wanted => {}
            Some(n) => {
                let what = format!("it is named part {} of {of}, but its `{key}` is {n}, not {wanted}", at + 1);
                return Err((what, DOWNLOAD));
            }
            None => return Err((format!("it is named part {} of {of}, but has no `{key}`", at + 1), DOWNLOAD)),
        }
    }
    Ok(())
}

/// Whether a part's metadata, except its number, equal the first part's.
pub(in crate::checkpoint) fn agrees(first: &Metadata, part: &Metadata) -> Result<(), Wrong> {
    for (key, value) in part.iter().filter(|(key, _)| *key != "split.no") {
        if let Some(other) = first.get(key).filter(|other| *other != value) {
            let what = format!("its `{key}` is {}, but the first part's is {}", value.to_json(), other.to_json());
            return Err((what, DOWNLOAD));
        }
    }
    Ok(())
}

/// Whether all parts have as many tensors together as the first says.
pub(in crate::checkpoint) fn check_tensors(header: &Metadata, parts: usize, found: usize) -> Result<(), Wrong> {
    match number(header, TENSORS)? {
        Some(n) if parts > 1 && n != found as u64 => {
            let what = format!("`{TENSORS}` is {n}, but its {parts} parts have {found} tensors");
            Err((what, DOWNLOAD))
        }
        _ => Ok(()),
    }
}

/// Tensors of all parts.
const TENSORS: &str = "split.tensors.count";

fn number(header: &Metadata, key: &str) -> Result<Option<u64>, Wrong> {
    let Some(value) = header.get(key) else { return Ok(None) };
    let wrong = || (format!("`{key}` is {}; it must be a whole number", value.to_json()), DOWNLOAD);
    Value::unsigned(value).map(Some).ok_or_else(wrong)
}
