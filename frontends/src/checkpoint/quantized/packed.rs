//! GPTQ (arXiv 2210.17323), AWQ (arXiv 2306.00978), and what follows them: AutoRound
//! (arXiv 2309.05516). Integers of 2 to 8 bits in 32-bit words, with a scale and a zero for each
//! group of columns: `scale·(u − zero)`.
//!
//! GPTQ has `qweight` `[in·bits / 32, out]`, a stream of codes along the inputs; AWQ `[in, out / per
//! word]`, in an order of its own. Both have `qzeros` `[groups, out·bits / 32]` and `scales`
//! `[groups, out]`. AWQ's GEMV has them `[out, in / 8]`, `[out, words]` and `[out, groups]`. With
//! act-order a group's columns are not side by side: `g_idx` `[in]` has the group of each. What the
//! words are: [`super::words`].

use super::words::{Sizes, WordOrder, Words, grouped};
use super::{Tensors, UNQUANTIZED, Wrong, activations, compressed};
use crate::checkpoint::stored::Entry;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What to do with matrices in the order of a GPU's instructions.
const PLAIN_ORDER: &str = "take the checkpoint in plain GPTQ order that it was made of, or the unquantized one";
const MARLIN: &str = "its matrices are packed for Marlin's GPU kernels, which is not read";

fn setting(settings: &Map<String, Value>, name: &str) -> Option<i64> {
    settings.get(name).and_then(Value::as_i64)
}

fn text<'a>(settings: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    settings.get(name).and_then(Value::as_str)
}

pub(super) fn gptq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let format = text(settings, "checkpoint_format").unwrap_or("gptq");
    let marlin = settings.get("is_marlin_format").and_then(Value::as_bool) == Some(true);
    let less = match format {
        _ if marlin || format.contains("marlin") || !tensors.stems(".B").is_empty() => {
            return Err((MARLIN.into(), PLAIN_ORDER));
        }
        "gptq" => 1,
        "gptq_v2" => 0,
        other => return Err((format!("`checkpoint_format` is `{other}`; `gptq` and `gptq_v2` are read"), UNQUANTIZED)),
    };
    matrices(settings, tensors, WordOrder::Inputs { less })
}

pub(super) fn awq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let version = text(settings, "version").unwrap_or("gemm").to_lowercase();
    match (setting(settings, "bits").unwrap_or(4), version.as_str()) {
        (4, "gemm") => matrices(settings, tensors, WordOrder::Awq),
        (4, "gemv") => matrices(settings, tensors, WordOrder::Gemv { words: 0 }),
        (4, "gemv_fast") => matrices(settings, tensors, WordOrder::GemvFast),
        (4, "marlin") => Err((MARLIN.into(), PLAIN_ORDER)),
        (bits, version) => {
            let read = "4 bits, `gemm`, `gemv` and `gemv_fast` are";
            Err((format!("AWQ of {bits} bits, version `{version}`, is not read; {read}"), UNQUANTIZED))
        }
    }
}

pub(super) fn auto_round(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let packing = text(settings, "packing_format").or(text(settings, "backend")).unwrap_or("auto_round:auto_gptq");
    if packing.contains("awq") {
        return matrices(settings, tensors, WordOrder::Awq);
    }
    match packing {
        // As it has zeros that need not be the middle, it takes nothing off them; files of the old order do.
        "auto_round" | "auto_round:gptqmodel" => matrices(settings, tensors, WordOrder::Inputs { less: 0 }),
        "auto_round:llm_compressor" | "auto_round:fp8_static" => {
            compressed::stored(tensors, &BTreeSet::new(), None)?;
            activations::fixed(tensors, None)
        }
        other if other.contains("gptq") || other.contains("exllama") => {
            matrices(settings, tensors, WordOrder::Inputs { less: 1 })
        }
        other => {
            let read = "`auto_round`, those of GPTQ and AWQ, and `auto_round:llm_compressor` are read";
            Err((format!("`packing_format` is `{other}`; {read}"), UNQUANTIZED))
        }
    }
}

fn matrices(settings: &Map<String, Value>, tensors: &mut Tensors<'_>, order: WordOrder) -> Result<(), Wrong> {
    let group = setting(settings, "group_size").and_then(|g| usize::try_from(g).ok()).filter(|g| *g > 0);
    for stem in tensors.stems(".qweight") {
        let entry = match order {
            WordOrder::Inputs { .. } | WordOrder::Awq | WordOrder::Columns { .. } => {
                matrix(tensors, &stem, order, group)?
            }
            WordOrder::Gemv { .. } | WordOrder::GemvFast => by_rows(tensors, &stem, order, group)?,
        };
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    Ok(())
}

/// The bits of a code follow from the shapes, so that matrices may differ.
fn matrix(tensors: &mut Tensors<'_>, stem: &str, order: WordOrder, group: Option<usize>) -> Result<Entry, Wrong> {
    let [a, b] = tensors.matrix(&format!("{stem}.qweight"))?;
    let [groups, zeros] = tensors.matrix(&format!("{stem}.qzeros"))?;
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    let (n, k, bits) = match order {
        WordOrder::Inputs { .. } => {
            let bits = zeros.saturating_mul(32).checked_div(b).unwrap_or(0);
            (b, a.saturating_mul(32).checked_div(bits).unwrap_or(0), bits)
        }
        WordOrder::Awq | WordOrder::Columns { .. } | WordOrder::Gemv { .. } | WordOrder::GemvFast => {
            (b.saturating_mul(8), a, 4)
        }
    };
    if !(2..=8).contains(&bits) {
        let sizes = format!("`qweight` {:?} and `qzeros` {:?}", [a, b], [groups, zeros]);
        return Err(wrong(format!("{sizes} are of codes of {bits} bits; 2 to 8 are read")));
    }
    let whole = |n: usize| n.saturating_mul(bits).is_multiple_of(32);
    if n == 0 || k == 0 || !whole(n) || order != WordOrder::Awq && !whole(k) {
        return Err(wrong(format!("{n} outputs of {k} inputs are no whole words of codes of {bits} bits")));
    }
    let shape = Sizes { n, k, groups, group: group.filter(|g| k.div_ceil(*g) == groups) };
    let words = Words {
        order,
        bits,
        codes: tensors.take(&format!("{stem}.qweight"), &["I32"], &[a, b])?,
        zeros: Some(tensors.take(&format!("{stem}.qzeros"), &["I32"], &[groups, n * bits / 32])?),
        scales: tensors.take(&format!("{stem}.scales"), &["F16", "BF16", "F32"], &[groups, n])?,
        one: false,
    };
    let index = match tensors.index.contains_key(&format!("{stem}.g_idx")) {
        true => Some(tensors.take(&format!("{stem}.g_idx"), &["I32"], &[k])?),
        false => None,
    };
    grouped(tensors.shards, words, shape, index).map_err(wrong)
}

/// A matrix of AWQ's GEMV or GEMV-fast, `[out, in]`. Its groups are filled up to whole words.
fn by_rows(tensors: &mut Tensors<'_>, stem: &str, order: WordOrder, group: Option<usize>) -> Result<Entry, Wrong> {
    let name = |ending: &str| format!("{stem}.{ending}");
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    let [[a, b], [c, d]] = [tensors.matrix(&name("qweight"))?, tensors.matrix(&name("qzeros"))?];
    let fast = order == WordOrder::GemvFast;
    let (n, k) = if fast { (a.saturating_mul(4), b) } else { (a, b.saturating_mul(8)) };
    let group = group.unwrap_or(k);
    let groups = k.checked_div(group).unwrap_or(0);
    let room = if fast { c } else { d.saturating_mul(8) };
    let whole = n > 0 && k > 0 && k.is_multiple_of(group) && (!fast || k.is_multiple_of(64));
    if !whole || groups > room {
        let sizes = format!("`qweight` {:?} and `qzeros` {:?}", [a, b], [c, d]);
        return Err(wrong(format!("{sizes} are no {n} rows of {k} columns in groups of {group}")));
    }
    let (codes, zeros, scales) = match fast {
        true => ("I16", ("F16", [c, n]), [c, n]),
        false => ("I32", ("I32", [n, d]), [n, d.saturating_mul(8)]),
    };
    let words = Words {
        order: if fast { order } else { WordOrder::Gemv { words: d } },
        bits: 4,
        codes: tensors.take(&name("qweight"), &[codes], &[a, b])?,
        zeros: Some(tensors.take(&name("qzeros"), &[zeros.0], &zeros.1)?),
        scales: tensors.take(&name("scales"), &["F16"], &scales)?,
        one: false,
    };
    grouped(tensors.shards, words, Sizes { n, k, groups, group: Some(group) }, None).map_err(wrong)
}
