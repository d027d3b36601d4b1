//! GPTQ (arXiv 2210.17323), AWQ (arXiv 2306.00978), and their successor AutoRound (arXiv
//! 2309.05516). Integers of 2 to 8 bits in 32-bit words, with a scale and a zero for each group of
//! columns: `scale·(u − zero)`.
//!
//! GPTQ has `qweight` `[in·bits / 32, out]`, a stream of codes along the inputs; AWQ `[in, out /
//! per word]`, in an order of its own. Both have `qzeros` `[groups, out·bits / 32]` and `scales`
//! `[groups, out]`. AWQ's GEMV has them `[out, in / 8]`, `[out, words]` and `[out, groups]`. With
//! act-order a group's columns are not side by side: `g_idx` `[in]` has the group of each.
//! [`super::words`] describes the words.

use super::words::{Sizes, WordOrder, Words, grouped};
use super::{Tensors, UNQUANTIZED, Wrong, activations, compressed, required};
use crate::checkpoint::stored::Entry;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The remedy for matrices in the order of a GPU's instructions.
const PLAIN_ORDER: &str = "take the checkpoint in plain GPTQ order that it was made from, or the unquantized one";
const MARLIN: &str = "its matrices are packed for Marlin's GPU kernels, which is not supported";

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
        other => {
            return Err((format!("`checkpoint_format` is `{other}`; supported are `gptq` and `gptq_v2`"), UNQUANTIZED));
        }
    };
    matrices(settings, tensors, WordOrder::Inputs { less })
}

pub(super) fn awq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let version = text(settings, "version").unwrap_or("gemm").to_lowercase();
    let bits = setting(settings, "bits").or(setting(settings, "w_bit")).unwrap_or(4);
    match (bits, version.as_str()) {
        (4, "gemm") => matrices(settings, tensors, WordOrder::Awq),
        (4, "gemv") => matrices(settings, tensors, WordOrder::Gemv { words: 0 }),
        (4, "gemv_fast") => matrices(settings, tensors, WordOrder::GemvFast),
        (4, "marlin") => Err((MARLIN.into(), PLAIN_ORDER)),
        (bits, version) => {
            let read = "4 bits, `gemm`, `gemv` and `gemv_fast` are";
            Err((format!("AWQ of {bits} bits, version `{version}`, is not supported; {read}"), UNQUANTIZED))
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
            let read = "supported are `auto_round`, the formats of GPTQ and AWQ, and `auto_round:llm_compressor`";
            Err((format!("`packing_format` is `{other}`; {read}"), UNQUANTIZED))
        }
    }
}

/// The settings for all matrices.
#[derive(Clone, Copy, Debug)]
struct Said {
    order: WordOrder,
    /// Columns of a group; `None`: a row.
    group: Option<usize>,
    /// Some modules have groups of another size.
    varied: bool,
    /// Whether all zeros are the middle of the codes; `None` where it is not known.
    symmetric: Option<bool>,
    /// Whether columns were quantized in the order of their activations, so that `g_idx` is needed.
    sorted: bool,
}

/// Where settings of single modules stand, in GPTQModel's files and in AutoRound's.
const BY_MODULE: [&str; 2] = ["dynamic", "extra_config"];

impl Said {
    fn of(settings: &Map<String, Value>, order: WordOrder) -> Result<Said, Wrong> {
        let group = settings.get("group_size").or_else(|| settings.get("q_group_size")).filter(|v| !v.is_null());
        let group = match group {
            None => None,
            Some(v) => match v.as_i64() {
                Some(group @ 1..) => usize::try_from(group).ok(),
                Some(-1 | 0) => None,
                _ => return Err((format!("`group_size` is {v}; it must be a number of columns, or -1"), UNQUANTIZED)),
            },
        };
        let flag = |name: &str| required::flag(settings, name);
        // Settings of other modules may be any.
        let of_modules = || BY_MODULE.iter().filter_map(|name| settings.get(*name)?.as_object()).flat_map(Map::values);
        let differs = |name: &str| of_modules().any(|module| module.get(name).is_some());
        let symmetric = match order {
            WordOrder::Inputs { .. } | WordOrder::Columns { .. } => flag("sym")?,
            WordOrder::Awq | WordOrder::Gemv { .. } | WordOrder::GemvFast => flag("zero_point")?.map(|any| !any),
        };
        Ok(Said {
            order,
            group,
            varied: differs("group_size"),
            symmetric: symmetric.filter(|_| !differs("sym")),
            sorted: flag("desc_act")? == Some(true) && group.is_some() && !differs("desc_act"),
        })
    }
}

fn matrices(settings: &Map<String, Value>, tensors: &mut Tensors<'_>, order: WordOrder) -> Result<(), Wrong> {
    let (said, mut moved) = (Said::of(settings, order)?, 0);
    for stem in tensors.stems(".qweight") {
        let entry = match order {
            WordOrder::Inputs { .. } | WordOrder::Awq | WordOrder::Columns { .. } => {
                matrix(tensors, &stem, said, &mut moved)?
            }
            WordOrder::Gemv { .. } | WordOrder::GemvFast => by_rows(tensors, &stem, said)?,
        };
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    if moved > 0 {
        let other = if matches!(order, WordOrder::Inputs { less: 0 }) { "one less" } else { "as they are" };
        tensors.notes.push(format!(
            "{moved} matrices are symmetric, and have their zeros stored {other}, which is not how their format \
             stores them: they are read as the middle of the codes"
        ));
    }
    Ok(())
}

/// The bits of a code follow from the shapes, so that matrices may differ. `moved` counts those whose zeros are
/// stored in the other way than the settings say.
fn matrix(tensors: &mut Tensors<'_>, stem: &str, said: Said, moved: &mut usize) -> Result<Entry, Wrong> {
    let Said { order, group, varied, symmetric, sorted } = said;
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
        return Err(wrong(format!("{sizes} are codes of {bits} bits; supported are 2 to 8")));
    }
    let whole = |n: usize| n.saturating_mul(bits).is_multiple_of(32);
    if n == 0 || k == 0 || !whole(n) || order != WordOrder::Awq && !whole(k) {
        return Err(wrong(format!("{n} outputs of {k} inputs do not fill whole words with codes of {bits} bits")));
    }
    let shape = Sizes {
        n,
        k,
        groups,
        group: group_of([k, groups], group, order == WordOrder::Awq && !varied).map_err(&wrong)?,
    };
    let mut words = Words {
        order,
        bits,
        codes: tensors.take(&format!("{stem}.qweight"), &["I32"], &[a, b])?,
        zeros: Some(tensors.take(&format!("{stem}.qzeros"), &["I32"], &[groups, n * bits / 32])?),
        scales: tensors.take(&format!("{stem}.scales"), &["F16", "BF16", "F32"], &[groups, n])?,
        one: false,
    };
    let index = match tensors.index.contains_key(&format!("{stem}.g_idx")) {
        true => Some(tensors.take(&format!("{stem}.g_idx"), &["I32"], &[k])?),
        false if sorted && groups > 1 => {
            return Err(required::missing(
                &format!("{stem}.g_idx"),
                "and `desc_act` says that its columns were sorted",
            ));
        }
        // (With it, groups have its size.)
        false if shape.group.is_some_and(|g| !k.is_multiple_of(g) && !g.is_power_of_two()) => {
            return Err(wrong(format!("{k} inputs are not whole groups of `group_size` {}", group.unwrap_or(0))));
        }
        false => None,
    };
    *moved += usize::from(words.settle(tensors.shards, &shape, symmetric).map_err(&wrong)?);
    grouped(tensors.shards, words, shape, index).map_err(wrong)
}

/// Columns of a group, for so many columns and groups: the settings' size, with only the last group
/// smaller (none if `strict`); where the settings belong to other matrices, `None`: an equal share.
fn group_of([k, groups]: [usize; 2], group: Option<usize>, strict: bool) -> Result<Option<usize>, String> {
    match group {
        Some(group) if strict && k != groups.saturating_mul(group) => {
            Err(format!("{k} inputs are not {groups} groups of `group_size` {group}"))
        }
        group => Ok(group.filter(|g| k.div_ceil(*g) == groups)),
    }
}

/// A matrix of AWQ's GEMV or GEMV-fast, `[out, in]`. Its groups are filled up to whole words.
fn by_rows(tensors: &mut Tensors<'_>, stem: &str, said: Said) -> Result<Entry, Wrong> {
    let Said { order, group, symmetric, .. } = said;
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
        return Err(wrong(format!("{sizes} do not fit {n} rows of {k} columns in groups of {group}")));
    }
    let (codes, zeros, scales) = match fast {
        true => ("I16", ("F16", [c, n]), [c, n]),
        false => ("I32", ("I32", [n, d]), [n, d.saturating_mul(8)]),
    };
    let mut words = Words {
        order: if fast { order } else { WordOrder::Gemv { words: d } },
        bits: 4,
        codes: tensors.take(&name("qweight"), &[codes], &[a, b])?,
        zeros: Some(tensors.take(&name("qzeros"), &[zeros.0], &zeros.1)?),
        scales: tensors.take(&name("scales"), &["F16"], &scales)?,
        one: false,
    };
    let sizes = Sizes { n, k, groups, group: Some(group) };
    if words.groups_used(tensors.shards, &sizes, room) != groups {
        let sizes = format!("`scales` do not fit {groups} groups of {group} columns");
        return Err(wrong(format!("{sizes}, by `group_size`: others are filled with zeros")));
    }
    words.settle(tensors.shards, &sizes, symmetric).map_err(wrong)?;
    grouped(tensors.shards, words, sizes, None).map_err(wrong)
}
