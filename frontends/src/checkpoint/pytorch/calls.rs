//! Results of a pickle's "calls": tensors, and dictionaries.

use super::error::{AGAIN, PytorchError, SAVE, error};
use super::globals::Meaning;
use super::heap::{Object, Objects, Pickle, Pickled, Storage};
use crate::checkpoint::safetensors::{MAX_RANK, StoredType, stored_type};

/// Most notes of a tensor.
const MOST_NOTES: usize = 64;

/// The result of `callee(*args)`; `copies` are entries that may still be copied.
pub(super) fn call<'a>(
    m: &mut Objects<'a>,
    (at, copies): (usize, &mut usize),
    callee: Pickle<'a>,
    args: Pickle<'a>,
) -> Result<Pickle<'a>, PytorchError> {
    // A function and its arguments, given to another.
    let (mut callee, mut args) = (callee, args);
    if meaning(callee) == Some(Meaning::Apply) {
        let inner = match m.list(args) {
            Some([function, _, inner, ..]) => Some((*function, *inner)),
            _ => None,
        };
        (callee, args) = inner.ok_or_else(|| arguments(at))?;
    }
    let list = m.list(args).ok_or_else(|| arguments(at))?;
    let made = match meaning(callee) {
        Some(Meaning::Dict) => dictionary(m, at, list, copies)?,
        Some(Meaning::Tensor) => tensor(m, at, list, None)?,
        Some(Meaning::TypedTensor) => {
            let ty = list.get(6).and_then(|ty| match ty {
                Pickle::Global(Meaning::Type(name)) => stored_type(name),
                _ => None,
            });
            tensor(m, at, list, Some(ty.ok_or_else(|| arguments(at))?))?
        }
        Some(Meaning::Parameter | Meaning::Size) => return list.first().copied().ok_or_else(|| arguments(at)),
        Some(Meaning::Plain) => Object::Opaque,
        Some(Meaning::Apply | Meaning::Storage(_) | Meaning::Type(_)) | None => {
            return Err(error(at, "the pickle calls what is no function".into(), SAVE));
        }
    };
    Ok(m.keep(made))
}

fn arguments(at: usize) -> PytorchError {
    error(at, "the pickle makes a tensor of other things than a storage, an offset, sizes and strides".into(), AGAIN)
}

/// The tensor of `(storage, offset, sizes, strides, ...)`. Whether it lies in its storage is checked
/// when it has a name.
fn tensor<'a>(
    m: &Objects<'a>,
    at: usize,
    args: &[Pickle<'a>],
    ty: Option<&'static StoredType>,
) -> Result<Object<'a>, PytorchError> {
    let [Pickle::Object(storage), offset, sizes, strides, ..] = *args else { return Err(arguments(at)) };
    let Some(Object::Storage(of)) = m.objects.get(storage) else { return Err(arguments(at)) };
    let few = |value: Pickle<'a>| m.list(value).filter(|list| list.len() <= MAX_RANK);
    let numbers = |value: Pickle<'a>| few(value)?.iter().map(|n| unsigned(*n)).collect::<Option<Vec<u64>>>();
    if let (Some(a), Some(b)) = (m.list(sizes), m.list(strides))
        && (a.len() != b.len() || a.len() > MAX_RANK)
    {
        return Err(error(at, format!("a tensor has {} sizes and {} strides", a.len(), b.len()), AGAIN));
    }
    let (Some(offset), Some(sizes), Some(strides)) = (unsigned(offset), numbers(sizes), numbers(strides)) else {
        return Err(arguments(at));
    };
    // After hooks of training: that it stands for the negative of its elements, say.
    let noted = args.iter().skip(6).find_map(|note| match note {
        Pickle::Object(i) => match m.objects.get(*i) {
            // (That are so many are none.)
            Some(Object::Dict(notes)) if notes.len() > MOST_NOTES => notes.first(),
            Some(Object::Dict(notes)) => notes.iter().find(|(_, set)| *set != Pickle::Bool(false)),
            _ => None,
        },
        _ => None,
    });
    if let Some((name, _)) = noted {
        let name = if let Pickle::Text(name) = name { name } else { "?" };
        return Err(error(at, format!("a tensor has the note `{name}`, which may change what it holds"), SAVE));
    }
    let tensor = Pickled { at, storage, ty: ty.unwrap_or(of.ty), offset, sizes, strides };
    Ok(Object::Tensor(Box::new(tensor)))
}

fn unsigned(value: Pickle<'_>) -> Option<u64> {
    if let Pickle::Int(n) = value { u64::try_from(n).ok() } else { None }
}

/// The storage of `('storage', class, key, device, elements)` and, of old files, of a part of another:
/// `(key of the part, offset, elements)`.
pub(super) fn storage<'a>(m: &Objects<'a>, at: usize, id: Pickle<'a>) -> Result<Storage<'a>, PytorchError> {
    let bad = || error(at, "the pickle refers to something that is no storage".into(), SAVE);
    let id = m.list(id).ok_or_else(bad)?;
    let [Pickle::Text("storage"), class, Pickle::Text(key), _, numel, view @ ..] = id else { return Err(bad()) };
    let Some(Meaning::Storage(ty)) = meaning(*class) else { return Err(bad()) };
    let (ty, numel) = (stored_type(ty).ok_or_else(bad)?, unsigned(*numel).ok_or_else(bad)?);
    let skipped = match view.first().and_then(|view| m.list(*view)) {
        Some([_, offset, _]) => unsigned(*offset).ok_or_else(bad)?,
        _ => 0,
    };
    Ok(Storage { key, ty, numel, skipped })
}

/// A dictionary of these pairs, where they are some. Programs make one of a list once; each time takes from
/// `copies`, so that a list that is given again and again cannot take more memory than the pickle has entries.
fn dictionary<'a>(
    m: &Objects<'a>,
    at: usize,
    args: &[Pickle<'a>],
    copies: &mut usize,
) -> Result<Object<'a>, PytorchError> {
    let items = args.first().and_then(|list| m.list(*list)).unwrap_or_default();
    let left = copies.checked_sub(items.len());
    *copies =
        left.ok_or_else(|| error(at, "the pickle makes dictionaries of one list again and again".into(), SAVE))?;
    let pair = |item: &Pickle<'a>| match m.list(*item) {
        Some([key, value]) => Some((*key, *value)),
        _ => None,
    };
    Ok(Object::Dict(items.iter().filter_map(pair).collect()))
}

/// Whether a value is of this meaning.
fn meaning(value: Pickle<'_>) -> Option<Meaning> {
    if let Pickle::Global(meaning) = value { Some(meaning) } else { None }
}
