//! From the values of a pickle to tensors by name, each in its storage.

use super::error::{AGAIN, PytorchError, SAVE, error};
use super::heap::{Object, Objects, Pickle, Pickled, Storage};
use crate::checkpoint::safetensors::TensorInfo;
use std::collections::BTreeMap;
use std::ops::Range;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Type, shape and bytes. For tensors with strides, the bytes from the first to the last
    /// element.
    pub info: TensorInfo,
    /// Elements between neighbours of each dimension, where they do not lie one after the other.
    pub strides: Option<Vec<usize>>,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Tensors by name. Several may have the same bytes.
    pub tensors: BTreeMap<String, Found>,
    /// Notes on ignored contents.
    pub notes: Vec<String>,
}

/// Where the bytes of a storage are.
type Places<'p> = &'p dyn Fn(&str) -> Option<Range<usize>>;

/// Where scripts put the weights beside other contents.
const WRAPPERS: &[&str] = &["state_dict", "model_state_dict", "model", "module"];

type Dict<'a> = [(Pickle<'a>, Pickle<'a>)];

/// The tensors of a dictionary, or of the one among them that has the model's.
pub(super) fn collect<'a>(
    m: &Objects<'a>,
    (at, value): (usize, Pickle<'a>),
    places: Places<'_>,
) -> Result<Contents, PytorchError> {
    let Some(Object::Dict(dict)) = m.object(value) else {
        return Err(error(at, "the file holds no dictionary of tensors".into(), SAVE));
    };
    let mut dict: &Dict<'a> = dict;
    let mut out = Contents::default();
    // Twice at most: a dictionary may hold itself.
    for _ in 0..2 {
        let Some((name, inner)) = wrapped(m, dict) else { break };
        let others = dict.len() - 1;
        if others > 0 {
            out.notes.push(format!("of the file `{name}` is read, and nothing of {others} other entries"));
        }
        dict = inner;
    }
    let mut aside = vec![];
    for (key, value) in dict {
        let Pickle::Text(name) = key else {
            return Err(error(at, "a tensor has a name that is no text".into(), SAVE));
        };
        match m.object(*value) {
            Some(Object::Tensor(tensor)) => {
                let found = place(m, name, tensor, places)?;
                out.tensors.insert((*name).to_string(), found);
            }
            Some(Object::Dict(_) | Object::List(_)) => {
                let what = format!("`{}` is a collection, where a tensor is expected", name.escape_debug());
                return Err(error(at, what, SAVE));
            }
            Some(Object::Storage(_) | Object::Opaque) | None => aside.push(*name),
        }
    }
    if out.tensors.is_empty() {
        return Err(error(at, "the file holds no tensors".into(), SAVE));
    }
    if let Some(first) = aside.first() {
        let n = aside.len();
        out.notes.push(format!("{n} entries of the file are no tensors and left aside, the first is `{first}`"));
    }
    Ok(out)
}

/// The dictionary of tensors in one that has none itself.
fn wrapped<'m, 'a>(m: &'m Objects<'a>, dict: &Dict<'a>) -> Option<(&'static str, &'m Dict<'a>)> {
    let tensor = |(_, value): &(Pickle<'a>, Pickle<'a>)| matches!(m.object(*value), Some(Object::Tensor(_)));
    if dict.iter().any(tensor) {
        return None;
    }
    let inner = |name: &&'static str| {
        let (_, value) = dict.iter().find(|(key, _)| *key == Pickle::Text(name))?;
        match m.object(*value) {
            Some(Object::Dict(inner)) => Some((*name, &inner[..])),
            _ => None,
        }
    };
    WRAPPERS.iter().find_map(inner)
}

/// Where a tensor is in the file.
fn place(m: &Objects<'_>, name: &str, t: &Pickled, places: Places<'_>) -> Result<Found, PytorchError> {
    let bad = |what: String| error(t.at, format!("tensor `{}`: {what}", name.escape_debug()), AGAIN);
    let Some(Object::Storage(storage)) = m.objects.get(t.storage) else { return Err(bad("it has no storage".into())) };
    let range = places(storage.key).ok_or_else(|| bad(format!("storage `{}` is not in the file", storage.key)))?;
    let (bytes, elements) = check(t, storage, &range).map_err(bad)?;
    if elements.checked_mul(t.ty.bits / 8).is_none_or(|bytes| bytes > range.len() as u64) {
        // The result of `expand`: a file of a few bytes must not become a tensor of any size.
        let shape = format!("{:?} with strides {:?}", t.sizes, t.strides);
        let what = format!("tensor `{}`: {shape} repeats elements of its storage", name.escape_debug());
        return Err(error(t.at, what, SAVE));
    }
    // Whole bytes that lie in the file, so that everything fits `usize`.
    let size = |n: &u64| usize::try_from(*n).map_err(|_| bad("it is too large".into()));
    let shape = t.sizes.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let strides = t.strides.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let plain =
        elements == 0 || strides_of(&shape).iter().zip(&strides).zip(&shape).all(|((a, b), n)| a == b || *n == 1);
    Ok(Found { info: TensorInfo { dtype: t.ty, shape, bytes }, strides: (!plain).then_some(strides) })
}

/// The bytes from the first element to the last, and how many elements there are.
fn check(t: &Pickled, storage: &Storage<'_>, range: &Range<usize>) -> Result<(Range<usize>, u64), String> {
    let whole = || format!("its sizes {:?} and strides {:?} are of no tensor", t.sizes, t.strides);
    let size = t.ty.bits / 8;
    let claimed = storage.numel.checked_mul(storage.ty.bits / 8).ok_or_else(whole)?;
    let stored = range.len() as u64;
    if claimed > stored {
        return Err(format!("storage `{}` is said to have {claimed} bytes, but has {stored}", storage.key));
    }
    let elements = t.sizes.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or_else(whole)?;
    // A zero does not excuse absurd ones beside it.
    if t.sizes.iter().any(|d| *d > isize::MAX as u64) {
        return Err(whole());
    }
    let steps = t.sizes.iter().zip(&t.strides);
    let last = steps.clone().try_fold(0u64, |sum, (n, stride)| {
        n.saturating_sub(1).checked_mul(*stride).and_then(|step| sum.checked_add(step))
    });
    let skipped = storage.skipped.checked_mul(storage.ty.bits / 8);
    let from = t.offset.checked_mul(size).and_then(|bytes| bytes.checked_add(skipped?));
    let (Some(last), Some(from)) = (last, from) else { return Err(whole()) };
    let span = if elements == 0 { Some(0) } else { last.checked_add(1).and_then(|n| n.checked_mul(size)) };
    let to = span.and_then(|span| from.checked_add(span)).filter(|to| *to <= stored);
    let Some(to) = to else {
        return Err(format!(
            "{:?} with strides {:?} from element {} on leaves its storage of {stored} bytes",
            t.sizes, t.strides, t.offset
        ));
    };
    Ok((range.start + from as usize..range.start + to as usize, elements))
}

/// Strides of a tensor whose elements lie one after the other.
fn strides_of(shape: &[usize]) -> Vec<usize> {
    let mut strides: Vec<usize> = shape
        .iter()
        .rev()
        .scan(1usize, |step, n| {
            let stride = *step;
            *step = step.saturating_mul(*n);
            Some(stride)
        })
        .collect();
    strides.reverse();
    strides
}
