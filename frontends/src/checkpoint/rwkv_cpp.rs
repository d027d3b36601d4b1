//! Models in the files of rwkv.cpp (<https://github.com/RWKV/rwkv.cpp>, `docs/FILE_FORMAT.md`): `ggmf` as an
//! integer, a version, sizes, then of each tensor its dimensions with the columns first, its name and its
//! elements, or the blocks that GGUF has too; all little-endian.
//!
//! The converter stores the numbers its kernels use; here they are converted back to the authors'
//! form (`tests/goldens/rwkv_cpp.py` does the same).

use super::consolidated::Described;
use super::gguf::blocks::{self, BlockType};
use super::quantized::Wrong;
use super::rwkv_forms::{self, Form, StoredTensor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The remedy for a file that no version of rwkv.cpp writes.
const AGAIN: &str = "the file is truncated or corrupt: download it again";
/// The remedy for an unsupported one.
const OTHER: &str = "convert the model again with a current rwkv.cpp (`convert_pytorch_to_ggml.py`), or take the \
                     authors' checkpoint";
/// Bytes before the tensors.
const HEADER: usize = 24;
/// The most layers and tensors of a model.
const MOST: usize = 4096;
const MOST_TENSORS: usize = 1 << 17;
/// Bytes of a name.
const LONGEST_NAME: usize = 1 << 10;
/// The first version whose blocks are GGUF's; the version before has the same floats.
const NEWER: u32 = 101;

/// Types by their numbers; `Err`: unsupported.
const TYPES: [Result<&str, &str>; 17] = [
    Ok("F32"),
    Ok("F16"),
    Ok("Q4_0"),
    Ok("Q4_1"),
    Err("Q4_1_O"),
    Err("Q4_2"),
    Err("Q4_3"),
    Ok("Q5_0"),
    Ok("Q5_1"),
    Ok("Q8_0"),
    Err("Q8_1"),
    Ok("Q2_K"),
    Ok("Q3_K"),
    Ok("Q4_K"),
    Ok("Q5_K"),
    Ok("Q6_K"),
    Ok("Q8_K"),
];

type Tensors = BTreeMap<String, StoredTensor>;

/// The header before the tensors.
struct Header {
    vocab: usize,
    hidden: usize,
    layers: usize,
}

/// The model of file `shard`, by the names and with the dimensions of the authors' checkpoints; `None` if
/// this is no file of rwkv.cpp.
pub(super) fn describe(file: &[u8], shard: usize) -> Option<Result<Described, Wrong>> {
    let version = number(file, 4)?;
    // GGML's own files of 2023 begin alike, and count from 1.
    let is = file.starts_with(b"fmgg") && (100..200).contains(&version);
    is.then(|| read(file, version).and_then(|(header, tensors)| model(&header, tensors, shard)))
}

fn number(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn read(file: &[u8], version: u32) -> Result<(Header, Tensors), Wrong> {
    if !(NEWER - 1..=NEWER).contains(&version) {
        return Err((format!("this is a file of rwkv.cpp of version {version}, which is not supported"), OTHER));
    }
    let size = |at: usize, what: &str| {
        let n = number(file, at).ok_or_else(|| (format!("the file ends within its header, before {what}"), AGAIN))?;
        // Some 2³² bytes of one column are more than there is.
        Ok((n as usize).min(1 << 30))
    };
    let header =
        Header { vocab: size(8, "the vocabulary")?, hidden: size(12, "the width")?, layers: size(16, "the layers")? };
    let kind = size(20, "the type")?;
    ty(kind, version).map_err(|name| (format!("the model has type {name}"), OTHER))?;
    if header.layers > MOST {
        return Err((format!("the header claims {} layers, more than {MOST}", header.layers), AGAIN));
    }
    let (mut tensors, mut at) = (Tensors::new(), HEADER);
    while at < file.len() {
        let (name, tensor) = tensor(file, at, version)?;
        at = tensor.bytes.end;
        if tensors.len() == MOST_TENSORS || tensors.insert(name.clone(), tensor).is_some() {
            return Err((
                format!("byte {at} of the file: tensor `{name}` appears twice, or after {MOST_TENSORS} others"),
                AGAIN,
            ));
        }
    }
    Ok((header, tensors))
}

/// The type of a number, or its name.
fn ty(number: usize, version: u32) -> Result<&'static BlockType, String> {
    let Some(name) = TYPES.get(number) else { return Err(format!("{number}, which is unknown")) };
    let name = name.map_err(|name| format!("{name}, which is not supported"))?;
    if version < NEWER && number > 1 {
        return Err(format!("{name} in its form before version {NEWER}, which is not supported"));
    }
    blocks::named(name).ok_or_else(|| format!("{name}, which is not supported"))
}

/// The tensor whose header begins at `at`.
fn tensor(file: &[u8], at: usize, version: u32) -> Result<(String, StoredTensor), Wrong> {
    let wrong = |what: String| (format!("byte {at} of the file: {what}"), AGAIN);
    let number = |i: usize| {
        let n = number(file, at.saturating_add(4 * i));
        n.map(|n| n as usize).ok_or_else(|| wrong("the file ends within the header of a tensor".into()))
    };
    let (rank, length, kind) = (number(0)?, number(1)?, number(2)?);
    if !(1..=3).contains(&rank) || length > LONGEST_NAME {
        return Err(wrong(format!("a tensor claims {rank} dimensions (1 to 3) and a name of {length} bytes")));
    }
    let mut shape = (0..rank).map(|i| number(3 + i)).collect::<Result<Vec<_>, Wrong>>()?;
    let from = at.saturating_add(4 * (3 + rank));
    let name =
        file.get(from..from.saturating_add(length)).ok_or_else(|| wrong("the file ends within a name".into()))?;
    let name = std::str::from_utf8(name).map_err(|_| wrong("the name of a tensor is not UTF-8".into()))?.to_string();
    let ty = ty(kind, version).map_err(|ty| (format!("tensor `{name}` has type {ty}"), OTHER))?;
    let columns = shape[0];
    let rows = shape[1..].iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    let whole = columns.is_multiple_of(ty.columns).then_some(columns / ty.columns * ty.bytes);
    let bytes = whole.zip(rows).and_then(|(row, rows)| row.checked_mul(rows));
    let (start, left) = (from + length, file.len() - from - length);
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && *bytes <= left) else {
        let what =
            format!("tensor `{name}`: {} {shape:?} is not a whole number of blocks in the {left} bytes left", ty.name);
        return Err(wrong(what));
    };
    shape.reverse();
    Ok((name, StoredTensor { ty, shape, bytes: start..start + bytes }))
}

/// Versions of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revision {
    Four,
    Five,
    Six,
    Seven,
}

/// The version, by tensors that only it has.
fn version(tensors: &Tensors) -> Result<Revision, Wrong> {
    let has = |name: &str| tensors.contains_key(&format!("blocks.0.att.{name}"));
    match () {
        () if has("r_k") => Ok(Revision::Seven),
        () if has("time_maa_x") => Ok(Revision::Six),
        () if has("gate.weight") => Ok(Revision::Five),
        () if has("ln_x.weight") => Err(("it is an RWKV-5.0 or 5.1; only 5.2 is supported".into(), OTHER)),
        () => Ok(Revision::Four),
    }
}

/// By the last part of the name.
fn form(version: Revision, part: &str) -> Form {
    match (version, part) {
        (Revision::Four, "time_decay") => Form::Rate,
        (Revision::Five, "time_decay") => Form::Decay,
        (Revision::Six, "time_decay") => Form::RowOfHeads,
        (Revision::Five | Revision::Six, "time_faaaa") => Form::OfHeads,
        (Revision::Six, "time_maa_w1" | "time_maa_w2" | "time_decay_w1" | "time_decay_w2") => Form::Turned,
        (Revision::Seven, "w1" | "w2" | "a1" | "a2" | "v1" | "v2" | "g1" | "g2") => Form::Turned,
        (Revision::Four | Revision::Five, part) if part.starts_with("time_mix_") => Form::Row,
        (Revision::Six, part) if part.starts_with("time_maa_") => Form::Row,
        _ => Form::Same,
    }
}

fn model(header: &Header, tensors: Tensors, shard: usize) -> Result<Described, Wrong> {
    let version = version(&tensors)?;
    let config = config(header, version, &tensors)?;
    let (mut index, mut widened) = (BTreeMap::new(), vec![]);
    for (name, tensor) in tensors {
        let part = name.rsplit('.').next().unwrap_or_default();
        if let Some(before) = name.strip_suffix("x_rwkvag").filter(|_| version == Revision::Seven) {
            let six = rwkv_forms::vectors(&tensor, 6, shard);
            let six = six.ok_or_else(|| (format!("tensor `{name}` is {:?}, not six vectors", tensor.shape), OTHER))?;
            index.extend("rwkvag".chars().zip(six).map(|(letter, entry)| (format!("{before}x_{letter}"), entry)));
            continue;
        }
        let form = form(version, part);
        if rwkv_forms::is_widened(&tensor, form) {
            widened.push(name.clone());
        }
        let wrong =
            || (format!("tensor `{name}` is {} {:?}, which is never its form", tensor.ty.name, tensor.shape), OTHER);
        index.insert(name.clone(), rwkv_forms::entry(&tensor, form, shard).ok_or_else(wrong)?);
    }
    Ok(Described { config, index, notes: rwkv_forms::note(&widened).into_iter().collect() })
}

/// The equivalent of `config.json`: sizes, most of them from tensors.
fn config(header: &Header, version: Revision, tensors: &Tensors) -> Result<Value, Wrong> {
    let Header { vocab, hidden, layers } = *header;
    let shape = |name: &str, rank: usize| {
        let found = tensors.get(name).filter(|t| t.shape.len() == rank);
        found
            .map(|t| &t.shape[..])
            .ok_or_else(|| (format!("tensor `{name}` is missing, or has other dimensions"), OTHER))
    };
    if shape("emb.weight", 2)? != [vocab, hidden] || vocab == 0 || hidden == 0 {
        return Err((
            format!("the header has {vocab} tokens of {hidden} columns, but `emb.weight` has another shape"),
            AGAIN,
        ));
    }
    let (model_type, class) = match version {
        Revision::Four => ("rwkv", "RwkvForCausalLM"),
        Revision::Five => ("rwkv5", "RwkvForCausalLM"),
        Revision::Six => ("rwkv6", "Rwkv6ForCausalLM"),
        Revision::Seven => ("rwkv7", "RWKV7ForCausalLM"),
    };
    let common = json!({
        "model_type": model_type,
        "architectures": [class],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": shape("blocks.0.ffn.key.weight", 2)?[0],
        "tie_word_embeddings": false,
    });
    let mut config: Map<String, Value> = common.as_object().cloned().unwrap_or_default();
    if vocab != BYTES {
        // In RWKV's vocabularies token 0 stands around texts.
        config.extend(["bos_token_id", "eos_token_id"].map(|name| (name.into(), 0.into())));
    }
    config.extend(heads_and_ranks(version, layers, &shape)?.into_iter().map(|(name, value)| (name.into(), value)));
    Ok(config.into())
}

/// Fields that versions have of their own, and the norms' addend. `shape`: the shape of a tensor of
/// so many dimensions.
fn heads_and_ranks<'a>(
    version: Revision,
    layers: usize,
    shape: &impl Fn(&str, usize) -> Result<&'a [usize], Wrong>,
) -> Result<Vec<(&'static str, Value)>, Wrong> {
    let of_layer = |layer: usize, part: &str, rank: usize| shape(&format!("blocks.{layer}.att.{part}"), rank);
    // Matrices of low rank are stored transposed.
    let rank = |layer: usize, part: &str| Ok::<_, Wrong>(of_layer(layer, part, 2)?[0]);
    let mut out: Vec<(&str, Value)> = match version {
        Revision::Four | Revision::Five | Revision::Six => vec![("layer_norm_epsilon", 1e-5.into())],
        Revision::Seven => vec![("norm_eps", 1e-5.into())],
    };
    match version {
        Revision::Four => {}
        Revision::Five | Revision::Six => {
            let head = of_layer(0, "time_faaaa", 3)?[1];
            // Published models have heads of 64 and the divisor 8. That of smaller heads is smaller in
            // version 5; of version 6 rwkv.cpp knows one.
            let divisor = if version == Revision::Five { (head / 8).max(1) } else { 8 };
            out.extend([("head_size", head.into()), ("head_size_divisor", divisor.into())]);
        }
        Revision::Seven => {
            // The first layer has no matrices for values.
            let of_values = if layers > 1 { rank(1, "v1")? } else { rank(0, "a1")? };
            out.extend([
                ("head_dim", of_layer(0, "r_k", 2)?[1].into()),
                ("decay_low_rank_dim", rank(0, "w1")?.into()),
                ("a_low_rank_dim", rank(0, "a1")?.into()),
                ("v_low_rank_dim", of_values.into()),
                ("gate_low_rank_dim", rank(0, "g1")?.into()),
            ]);
        }
    }
    if version == Revision::Six {
        let decay = rank(0, "time_decay_w1")?;
        out.extend([
            ("time_mix_extra_dim", (rank(0, "time_maa_w1")? / 5).into()),
            ("time_decay_extra_dim", decay.into()),
        ]);
    }
    Ok(out)
}

/// Tokens of a vocabulary of bytes.
const BYTES: usize = 256;

/// Whether a model is an RWKV with a vocabulary of this size.
pub(crate) fn is_rwkv(config: &Value, vocab: usize) -> bool {
    config["model_type"].as_str().is_some_and(|name| name.starts_with("rwkv")) && config["vocab_size"] == vocab
}

#[cfg(test)]
mod tests;
