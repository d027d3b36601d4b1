//! From the metadata of a GGUF file to a `config.json` and tensors as Transformers has them.

use super::cut::{QKV, cut};
use super::families::{Family, Lines, Recipe, all};
use super::file::{CONVERT_AGAIN, Config, File, OTHER_MODEL, Tensors, Wrong, head_dim};
use super::names::{UNREAD, called, called_ahead, numbered};
use super::{Declares, Metadata, Value, blocks, keys, kinds, rope};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::stored::{Blocks, Constant, Entry, Joined, Kept, Order, Turns, like_it};
use crate::spelling::nearest;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys after the prefix of the architecture, and the fields that they are.
const KEYS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
];

/// Keys that are read in their own ways, or have no effect on the model's results.
const OTHER_KEYS: &[&str] = &[
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_attn_factor",
    "rope.scale_linear",
    "vocab_size",
    "tensor_data_layout",
    "expert_count",
    "expert_used_count",
    "expert_gating_func",
    "pooling_type",
    "nextn_predict_layers",
    WINDOWS,
];

/// Which layers have a window.
const WINDOWS: &str = "attention.sliding_window_pattern";

/// A model in a GGUF file, as if it were in Transformers' layout.
pub(in crate::checkpoint) struct Model {
    /// `config.json`.
    pub config: serde_json::Value,
    /// Tensors by Transformers' names.
    pub tensors: BTreeMap<String, Entry>,
    /// Notes on tensors that are read in another form than they are stored in.
    pub notes: Vec<String>,
}

/// Describes the model of a file; `tensors` come from all its parts, with the parts' numbers,
/// `bytes` are their contents, `declares` the fields that architectures read.
pub(in crate::checkpoint) fn describe(
    header: &Metadata,
    tensors: Tensors,
    bytes: &dyn Fn(usize, &TensorInfo) -> Vec<u8>,
    declares: Declares,
) -> Result<Model, Wrong> {
    let Some(name) = header.get("general.architecture").and_then(Value::text) else {
        return Err(("`general.architecture` is missing".into(), "this file holds no language model; give another"));
    };
    let tensors = without_ones(tensors);
    let file = File { name, metadata: header, tensors: &tensors, bytes, declares };
    let family = family(&file)?;
    let config = config(&file, family)?;
    if let Some(made) = family.stored.tensors {
        let (out, notes) = made(&file)?;
        return Ok(Model { config: config.into(), tensors: out, notes: widened_types(&tensors, notes) });
    }
    let mut rest = tensors.clone();
    rope::TENSORS.iter().for_each(|name| drop(rest.remove(*name)));
    if !family.has_whole_attention() {
        cut(QKV, &config, &mut rest)?;
    }
    let (mut out, mut notes) = (BTreeMap::new(), Vec::from_iter((family.note)(&file)));
    for join in family.stored.joins {
        let widened = joined(join, family, &config, &mut rest, &mut out)?;
        notes.extend(widened.first().map(|names| {
            let (names, others) = (names.join("`, `"), like_it(widened.len() - 1));
            format!("`{names}` have different types but are joined into one matrix: it is read as f32{others}")
        }));
    }
    let of_heads = family.order(&config);
    let ahead = file.size("nextn_predict_layers").map(|_| file.own_layers().unwrap_or(0));
    let mut apart = vec![];
    for (name, (shard, info)) in rest {
        let of_ahead = ahead.and_then(|layers| called_ahead(&name, family.names, layers));
        let called = of_ahead.unwrap_or_else(|| called(&name, family.names));
        if called == UNREAD {
            continue;
        }
        let info = shaped(&called, info);
        for (called, info) in experts(called, info) {
            let entry = match taken_apart(&info) {
                true => {
                    apart.push(name.clone());
                    decoded(family, &name, (shard, info))
                }
                false => entry(family, &name, (shard, info), of_heads),
            };
            if out.insert(called.clone(), entry).is_some() {
                return Err((format!("two tensors have the name `{called}`"), OTHER_MODEL));
            }
        }
    }
    if let Some(first) = apart.first() {
        let others = like_it(apart.len() - 1);
        notes.push(format!("`{first}` is read as f32, since its matrices are split{others}"));
    }
    for (called, numbers) in (family.stored.values)(&file)? {
        let info = shaped(&called, TensorInfo { dtype: blocks::floats(), shape: vec![numbers.len()], bytes: 0..0 });
        out.insert(called, Entry { layout: Some(Arc::new(Constant(numbers))), ..Entry::plain(0, info) });
    }
    Ok(Model { config: config.into(), tensors: out, notes: widened_types(&tensors, notes) })
}

/// Tensors without dimensions of 1 after the last that counts, which llama.cpp bears: vectors have one dimension, and
/// matrices two. Frequencies of old files follow from settings.
fn without_ones(tensors: Tensors) -> Tensors {
    const STACKS: [&str; 8] =
        ["_exps.", "conv", "ssm_", "time_mix", "channel_mix", "altup", ".attn_k_b.", ".attn_v_b."];
    let shape = |name: &str, shape: &[usize]| {
        let vector = name.ends_with(".bias") || name.ends_with("norm.weight");
        let most = if vector { 1 } else { 2 };
        let stack = !vector && STACKS.iter().any(|part| name.contains(part));
        let ones = shape.iter().take_while(|n| **n == 1).count().min(shape.len().saturating_sub(most));
        shape[if stack { 0 } else { ones }..].to_vec()
    };
    let kept = |name: &String| !name.contains(".attn_rot_embd");
    let one = |(name, (shard, info)): (String, (usize, TensorInfo))| {
        let shape = shape(&name, &info.shape);
        (name, (shard, TensorInfo { shape, ..info }))
    };
    tensors.into_iter().filter(|(name, _)| kept(name)).map(one).collect()
}

/// Notes which types of tensors take more room here than in files, after the other notes.
fn widened_types(tensors: &Tensors, mut notes: Vec<String>) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, &TensorInfo)> = BTreeMap::new();
    let of_grids = |info: &&TensorInfo| ["IQ1", "IQ2", "IQ3"].iter().any(|family| info.dtype.name.starts_with(family));
    for info in tensors.values().map(|(_, info)| info).filter(of_grids) {
        counts.entry(info.dtype.name).or_insert((0, info)).0 += 1;
    }
    for (name, (count, info)) in counts {
        let (Some(ty), Some(dtype)) = (blocks::of(info.dtype), info.dtype.dtype) else { continue };
        let bits = (8 * ty.bytes) as f64 / ty.columns as f64;
        notes.push(format!(
            "{count} tensors are {name} with {bits:.2} bits per weight: they are kept exactly, in codes of 4 \
                bits (`{dtype}`)"
        ));
    }
    notes
}

/// How dimensions of Transformers' tensors differ from those in files.
#[derive(Clone, Copy)]
enum Reshape {
    /// A vector here, a matrix of one row there.
    Row,
    /// `[channels, width]` here, `[channels, 1, width]` there.
    Taps,
    /// Dimensions of 1 here, or of groups, that a vector there has not.
    Vector,
}

/// By endings of Transformers' names.
const FORMS: &[(&str, Reshape)] = &[
    ("shared_expert_gate.weight", Reshape::Row),
    ("moe_statics.e_score_correction_bias", Reshape::Row),
    ("_res_proj.weight", Reshape::Row),
    ("token_type_embeddings.weight", Reshape::Row),
    ("classifier.weight", Reshape::Row),
    ("conv1d.weight", Reshape::Taps),
    ("conv.conv.weight", Reshape::Taps),
    ("mamba.A_log", Reshape::Vector),
    ("attention.A_log", Reshape::Vector),
    ("mamba.D", Reshape::Vector),
    ("mamba.norm.weight", Reshape::Vector),
    ("mixer.D", Reshape::Vector),
    ("mixer.norm.weight", Reshape::Vector),
];

/// A tensor with the dimensions that it has in Transformers.
fn shaped(called: &str, info: TensorInfo) -> TensorInfo {
    let form = FORMS.iter().find(|(ending, _)| called.ends_with(ending)).map(|(_, form)| *form);
    // Rates of Mamba's second version are a vector, the first version's a matrix.
    let rates = called.ends_with("mixer.A_log") && info.shape.last() == Some(&1);
    let shape = match (form, &info.shape[..]) {
        (Some(Reshape::Row), [n]) => vec![1, *n],
        (Some(Reshape::Taps), [.., channels, width] | [channels, 1, width]) if info.shape.len() < 4 => {
            vec![*channels, 1, *width]
        }
        (Some(Reshape::Taps), [1, channels, 1, width]) => vec![*channels, 1, *width],
        // Rates of the first version of Mamba, under the names of the second.
        (Some(Reshape::Vector), [n, k]) if *k > 1 && called.ends_with("A_log") => vec![*n, *k],
        (Some(Reshape::Vector), shape) => vec![shape.iter().fold(1usize, |n, dim| n.saturating_mul(*dim))],
        (None, shape) if rates => vec![shape.iter().fold(1usize, |n, dim| n.saturating_mul(*dim))],
        (_, shape) => shape.to_vec(),
    };
    TensorInfo { shape, ..info }
}

/// Makes tensors from several, or from rows or columns in another order. Returns the names of
/// tensors joined from different types, which so become floats.
fn joined(
    join: &Recipe,
    family: &Family,
    config: &Config,
    rest: &mut Tensors,
    out: &mut BTreeMap<String, Entry>,
) -> Result<Vec<Vec<String>>, Wrong> {
    let mut widened = vec![];
    let first = join.from[0];
    let found: Vec<String> = rest.keys().filter_map(|name| numbered(name, first)).collect();
    for layer in found {
        let names = join.from.iter().map(|name| name.replace("{}", &layer));
        let names: Vec<String> = names.filter(|name| rest.contains_key(name)).collect();
        if names.len() < join.from.len() {
            continue;
        }
        let sources: Vec<Blocks> =
            names.iter().filter_map(|name| rest.get(name).and_then(|t| blocks_of(family, name, t, None))).collect();
        let Some((shard, info)) = rest.get(&names[0]).cloned().filter(|_| sources.len() == names.len()) else {
            return Err((format!("tensor `{}` has a type that weights never have", names[0]), OTHER_MODEL));
        };
        if sources.iter().any(|s| !std::ptr::eq(s.ty, sources[0].ty)) {
            widened.push(names.clone());
        }
        let called = join.to.replace("{}", &layer);
        let entry = arranged(join, config, sources, Entry::plain(shard, info))
            .ok_or_else(|| (format!("tensor `{}` does not have the rows of `{called}`", names[0]), OTHER_MODEL))?;
        names.iter().for_each(|name| drop(rest.remove(name)));
        let entry = Entry { info: shaped(&called, entry.info.clone()), ..entry };
        out.insert(called, entry);
    }
    Ok(widened)
}

/// The tensor of sources; `first` is that of the first of them.
fn arranged(join: &Recipe, config: &Config, sources: Vec<Blocks>, first: Entry) -> Option<Entry> {
    let rows: Vec<usize> = sources.iter().map(Blocks::rows).collect();
    // The file's contents bound all sizes.
    if rows.contains(&0) {
        return None;
    }
    if join.lines == Lines::Columns {
        let columns = sources.first()?.columns;
        let turns = (join.turns)(config, &[columns]);
        if turns.rows() != columns {
            return None;
        }
        let mut order = vec![0; columns];
        (0..columns).for_each(|column| order[turns.place(column)] = column as u32);
        let layout = sources.into_iter().next()?;
        return Some(Entry { layout: Some(Arc::new(layout)), order: Some(Arc::new(order)), ..first });
    }
    let (turns, total) = ((join.turns)(config, &rows), rows.iter().sum());
    let columns = sources.first()?.columns;
    if turns.rows() != total || sources.iter().any(|s| s.columns != columns) {
        return None;
    }
    let ty = sources.first()?.ty;
    let same = sources.iter().all(|s| std::ptr::eq(s.ty, ty));
    let dtype = if same { &ty.stored } else { blocks::floats() };
    let shape = if first.info.shape.len() > 1 { vec![total, columns] } else { vec![total] };
    let info = TensorInfo { dtype, shape, bytes: first.info.bytes.clone() };
    Some(Entry { layout: Some(Arc::new(Joined { sources, turns })), ..Entry::plain(first.shard, info) })
}

/// The matrices of each expert, where a tensor joins them; else the tensor.
fn experts(called: String, info: TensorInfo) -> Vec<(String, TensorInfo)> {
    let [count @ 1..=MOST_EXPERTS, n, k] = info.shape[..] else { return vec![(called, info)] };
    if !called.contains("{e}") {
        // Codes are rows of a matrix: all experts' are one.
        let coded = [".experts.", ".moe."].iter().any(|part| called.contains(part)) && info.dtype.is_coded();
        let shape = if coded { vec![count.saturating_mul(n), k] } else { info.shape };
        return vec![(called, TensorInfo { shape, ..info })];
    }
    // Names between bars each have as many rows of an expert.
    let names: Vec<&str> = called.split('|').collect();
    let rows = n / names.len();
    let size = info.bytes.len() / count / names.len();
    let one = |i: usize| {
        let (e, name) = (i / names.len(), names[i % names.len()]);
        let from = info.bytes.start + i * size;
        let info = TensorInfo { dtype: info.dtype, shape: vec![rows, k], bytes: from..from + size };
        (name.replace("{e}", &e.to_string()), info)
    };
    (0..count * names.len()).map(one).collect()
}

/// Whether codes are a stack of matrices that are used each in their own way (latent attention's).
fn taken_apart(info: &TensorInfo) -> bool {
    info.shape.len() > 2 && info.dtype.is_coded()
}

/// The decoded codes of a tensor, as f32.
fn decoded(family: &Family, name: &str, (shard, info): (usize, TensorInfo)) -> Entry {
    let Some(blocks) = blocks_of(family, name, &(shard, info.clone()), None) else {
        return Entry::plain(shard, info);
    };
    let turns = Turns { before: 0, groups: 1, parts: vec![blocks.rows()] };
    let info = TensorInfo { dtype: blocks::floats(), ..info };
    Entry { layout: Some(Arc::new(Joined { sources: vec![blocks], turns })), ..Entry::plain(shard, info) }
}

/// Experts that a layer may have.
const MOST_EXPERTS: usize = 4096;

/// The remedy for architectures that are no language models of llmcc's under other names.
const REASONS: &[(&str, &str)] = &[
    ("clip", "this file is the image part of a model: give the file of the language model beside it"),
    (
        "bitnet-b1.58",
        "this is a file of bitnet.cpp; take the safetensors checkpoint, whose packed matrices are supported",
    ),
];

fn family(file: &File) -> Result<&'static Family, Wrong> {
    let name = file.name;
    let mut of_name = all().filter(|f| f.name == name).peekable();
    if of_name.peek().is_none() {
        let what = match nearest(name, all().map(|f| f.name)) {
            Some(known) => format!(
                "`general.architecture` is `{name}`, which is not supported; the nearest supported one is `{known}`"
            ),
            None => format!("`general.architecture` is `{name}`, which is not supported"),
        };
        let help = REASONS.iter().find(|(of, _)| *of == name).map_or(OTHER_MODEL, |(_, help)| help);
        return Err((what, help));
    }
    of_name.find(|f| (f.suits)(file)).ok_or_else(|| {
        let has = if file.size("expert_count").unwrap_or(0) > 0 { "has" } else { "has no" };
        (format!("this `{name}` {has} experts by `{name}.expert_count`, which is not supported"), OTHER_MODEL)
    })
}

fn config(file: &File, family: &Family) -> Result<Config, Wrong> {
    let (model_type, class) = family.model_type;
    let mut config = Config::new();
    config.insert("model_type".into(), model_type.into());
    config.insert("architectures".into(), json!([class]));
    if let Some(name) = file.metadata.get("general.name").and_then(Value::text) {
        config.insert("_name_or_path".into(), name.into());
    }
    let fields = || KEYS.iter().chain(family.keys.iter().copied().flatten());
    kinds::check(file, fields().map(|(key, _)| *key).chain(OTHER_KEYS.iter().copied()))?;
    for (key, field) in fields() {
        let list = file.get(key).and_then(Value::list).filter(|_| family.reading.lists.contains(key));
        let list = list.map(|list| list.iter().map(Value::to_json).collect());
        if let Some(value) = list.map_or_else(|| field_of(file, key), |list| Ok(Some(list)))? {
            config.insert((*field).into(), value);
        }
    }
    config.extend(family.fixed.iter().map(|(field, on)| ((*field).into(), (*on).into())));
    for (id, field) in [("bos", "bos_token_id"), ("eos", "eos_token_id")] {
        if let Some(id) = file.metadata.get(&format!("tokenizer.ggml.{id}_token_id")) {
            config.insert(field.into(), id.to_json());
        }
    }
    if let Some(dim) = file.own_width(family.model_type.0) {
        config.insert("head_dim".into(), dim.into());
    }
    scales(file, family, &mut config)?;
    if let Some(kinds) = layer_kinds(file, family)? {
        config.insert("layer_types".into(), kinds);
    }
    usual(file, family, &mut config)?;
    config.insert("tie_word_embeddings".into(), (!file.has("output.weight")).into());
    config.extend(family.found.iter().map(|(field, tensor)| ((*field).into(), file.has_or_fused(tensor).into())));
    config.extend(file.rows("token_embd.weight").map(|rows| ("vocab_size".to_string(), rows.into())));
    if let Some(n) = file.size("nextn_predict_layers") {
        // They are counted among the layers.
        let layers = file.required("block_count")?.saturating_sub(n);
        config.insert("num_hidden_layers".into(), layers.into());
        config.insert("num_nextn_predict_layers".into(), n.into());
    }
    rope::set(file, &mut config, family.reading.own_factors)?;
    gating(file, family)?;
    (family.adapt)(file, &mut config)?;
    same_widths(file, &config)?;
    unread(file, family, &mut config)?;
    Ok(config)
}

/// Whether a key is read of all families.
#[cfg(test)]
pub(super) fn reads_always(key: &str) -> bool {
    key == CAUSAL || OTHER_KEYS.contains(&key) || KEYS.iter().any(|(read, _)| *read == key)
}

/// Whether a family reads a key, or passes it over.
pub(super) fn reads(family: &Family, key: &str) -> bool {
    let mut fields = KEYS.iter().chain(family.keys.iter().copied().flatten());
    OTHER_KEYS.contains(&key) || family.quiet.contains(&key) || fields.any(|(read, _)| *read == key)
}

/// Refuses keys that change a model's results and that a family does not read. Unknown keys are
/// judged as unread fields of config.json.
fn unread(file: &File, family: &Family, config: &mut Config) -> Result<(), Wrong> {
    let (class, prefix) = (family.model_type.1, format!("{}.", file.name));
    // The decoder of T5 is causal, its encoder is not.
    if family.name != "t5" {
        keys::check_causal(file, !family.quiet.contains(&CAUSAL), class)?;
    }
    let mut unknown = vec![];
    for (key, value) in file.metadata {
        let Some(rest) = key.strip_prefix(&prefix).filter(|rest| *rest != CAUSAL && !reads(family, rest)) else {
            continue;
        };
        if let keys::Verdict::Unknown = keys::judge(file, (rest, value), config, class)? {
            unknown.push((key.clone(), value.to_json()));
        }
    }
    config.extend(unknown);
    Ok(())
}

/// Whether a query sees the tokens after it too.
const CAUSAL: &str = "attention.causal";

/// Settings that llama.cpp takes for granted where a file does not say them, whatever a class does then.
fn usual(file: &File, family: &Family, config: &mut Config) -> Result<(), Wrong> {
    let said = |key: &str| file.get(key).is_some();
    let field = |key: &str| family.keys.iter().copied().flatten().find(|(read, _)| *read == key).map(|(_, to)| *to);
    // The classes of these sum weights to 1 whatever is said.
    let normalizes = ["kimi-linear", "mimo2"].contains(&family.name);
    if let Some(field) = field("expert_weights_norm").filter(|_| !normalizes && !said("expert_weights_norm")) {
        config.insert(field.into(), false.into());
    }
    if let Some(field) = field("expert_weights_scale").filter(|_| !said("expert_weights_scale")) {
        config.insert(field.into(), 1.0.into());
    }
    let has = |field: &str| (file.declares)(family.model_type.0, field);
    let epsilons = EPSILONS.iter().filter_map(|key| Some((*key, field(key).or_else(|| of_all(key))?)));
    let epsilons: Vec<(&str, &str)> = epsilons.filter(|(_, field)| has(field)).collect();
    if let Some((key, _)) = epsilons.first().filter(|_| said("embedding_length"))
        && epsilons.iter().all(|(_, field)| config.get(*field).is_none())
    {
        return Err((format!("`{}.{key}` is missing", file.name), CONVERT_AGAIN));
    }
    if !said("rope.freq_base") && has("rope_theta") {
        config.insert("rope_theta".into(), 1e4.into());
    }
    if let Some(heads) = file.get("attention.head_count").and_then(Value::unsigned)
        && !said("attention.head_count_kv")
        && has("num_key_value_heads")
    {
        config.insert("num_key_value_heads".into(), heads.into());
    }
    Ok(())
}

/// Addends to squares before the division.
const EPSILONS: [&str; 2] = ["attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"];

/// The field that a key of all families is.
fn of_all(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(read, _)| *read == key).map(|(_, field)| *field)
}

/// Whether a key is one of a family's own.
fn reads_itself(family: &Family, key: &str) -> bool {
    family.keys.iter().copied().flatten().any(|(read, _)| *read == key)
}

/// A key's value; a per-layer list counts if its non-zero entries agree.
fn field_of(file: &File, key: &str) -> Result<Option<serde_json::Value>, Wrong> {
    let Some(value) = file.get(key) else { return Ok(None) };
    let Some(list) = value.list() else { return Ok(Some(value.to_json())) };
    let sizes: Option<Vec<u64>> = list.iter().map(Value::unsigned).collect();
    let Some(mut sizes) = sizes.filter(|sizes| !sizes.is_empty()) else {
        return Err((format!("`{}.{key}` is a list, but not of whole numbers", file.name), super::AGAIN));
    };
    sizes.retain(|n| *n > 0);
    sizes.dedup();
    match sizes[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.into())),
        [first, other, ..] => {
            file.refused(format_args!("has layers of several sizes: `{key}` is both {first} and {other}"))
        }
    }
}

/// Keys and values must be as wide as each other where heads have one width.
fn same_widths(file: &File, config: &Config) -> Result<(), Wrong> {
    let widths = (file.size("attention.key_length"), file.size("attention.value_length"));
    match widths {
        (Some(k), Some(v)) if k != v && config.contains_key("head_dim") && !config.contains_key("v_head_dim") => {
            Err((format!("keys of {k} columns and values of {v} columns differ in size"), OTHER_MODEL))
        }
        _ => Ok(()),
    }
}

/// Routers' functions of logits come from the class.
fn gating(file: &File, family: &Family) -> Result<(), Wrong> {
    const NAMES: [&str; 5] = ["none", "softmax", "sigmoid", "softmax of the chosen", "square roots of softplus"];
    let name = |n: u64| usize::try_from(n).ok().and_then(|n| NAMES.get(n)).copied().unwrap_or("unknown");
    match file.size("expert_gating_func") {
        // 0 says that nothing is said.
        Some(n) if n != 0 && n != family.reading.gating && file.size("expert_count").unwrap_or(0) > 0 => file.refused(
            format_args!("has experts that are chosen by {} instead of {}", name(n), name(family.reading.gating)),
        ),
        _ => Ok(()),
    }
}

/// Factors of scores and residuals, where files leave them to llama.cpp.
fn scales(file: &File, family: &Family, config: &mut Config) -> Result<(), Wrong> {
    let numbers = |key: &str| file.size(key);
    if let Some(layers) = family.reading.unscaled {
        // As llama.cpp: the largest model is the only one whose scores are not scaled by heads.
        let width = || numbers("embedding_length")?.checked_div(numbers("attention.head_count")?);
        let heads = if numbers("block_count") == Some(layers) { width() } else { head_dim(config).map(|n| n as u64) };
        config.extend(heads.map(|n| ("query_pre_attn_scalar".to_string(), n.into())));
    }
    if family.name == "minicpm" {
        let keys = ["embedding_scale", "residual_scale", "logit_scale"];
        if let Some(key) = keys.into_iter().find(|k| file.get(k).is_none()) {
            return Err((format!("`minicpm.{key}` is missing, as old versions of llama.cpp left it"), CONVERT_AGAIN));
        }
        config.extend(head_dim(config).map(|n| ("attention_multiplier".to_string(), (1.0 / (n as f64).sqrt()).into())));
    }
    Ok(())
}

/// The kind of each layer, by whether it has a window: listed per layer, or by a period whose last
/// layer has none.
fn layer_kinds(file: &File, family: &Family) -> Result<Option<serde_json::Value>, Wrong> {
    let layers = match file.get(WINDOWS) {
        None => return Ok(None),
        Some(_) if reads_itself(family, WINDOWS) => return Ok(None),
        Some(_) => file.own_layers()?,
    };
    let given = file.get(WINDOWS).and_then(Value::list).unwrap_or_default();
    let given = match file.get(WINDOWS).and_then(Value::unsigned) {
        None => given[..layers.min(given.len())].to_vec(),
        Some(period) => {
            let Ok(period) = usize::try_from(period) else {
                return file.refused(format_args!("has a period of {period} layers in `{WINDOWS}`"));
            };
            // Or the first (Command A with experts).
            let full = if family.name == "cohere2moe" { 0 } else { period.saturating_sub(1) };
            (0..layers).map(|i| Value::Bool(i.checked_rem(period) != Some(full))).collect()
        }
    };
    let of_class = (file.declares)(family.model_type.0, "layer_types");
    let kinds = layer_types(&given).filter(|_| of_class || file.size("attention.sliding_window").unwrap_or(0) > 0);
    match kinds {
        Some(kinds) if !of_class && kinds.as_array().is_some_and(|all| all.contains(&json!("full_attention"))) => {
            let class = family.model_type.1;
            file.refused(format_args!(
                "has layers with and without a window (`{WINDOWS}`), which {class} does not have"
            ))
        }
        kinds => Ok(kinds.filter(|_| of_class)),
    }
}

/// The kind of each layer, by whether it has a window.
fn layer_types(windows: &[Value]) -> Option<serde_json::Value> {
    let is = |v: &Value| v.flag().or_else(|| Some(v.number()? != 0.0));
    let kind = |v: &Value| Some(if is(v)? { "sliding_attention" } else { "full_attention" });
    windows.iter().map(kind).collect::<Option<Vec<_>>>().map(|kinds| json!(kinds))
}

/// The blocks of a tensor with the converter's change undone.
fn blocks_of(
    family: &Family,
    name: &str,
    (shard, info): &(usize, TensorInfo),
    of_heads: Option<Order>,
) -> Option<Blocks> {
    const HEADS: [&str; 4] = ["attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"];
    let ty = blocks::of(info.dtype)?;
    let rotated = name.starts_with("blk.") && HEADS.iter().any(|end| name.ends_with(end));
    let order = of_heads.filter(|_| rotated).unwrap_or(Order::Stored);
    // Also `enorm` and `hnorm`, of layers that predict further tokens.
    let norm = name.ends_with("norm.weight") || name.contains(".ple_norm_");
    let gain = norm && family.stored.gains.is_more(name);
    let kept = match () {
        () if gain => Kept::OneMore,
        () if name.ends_with(".ssm_a") && family.stored.slopes => Kept::Slope,
        () if name.ends_with(".ssm_a") => Kept::Rate,
        () => Kept::Same,
    };
    let columns = if info.shape.len() > 1 { info.shape.last().copied().unwrap_or(1) } else { 1 };
    Some(Blocks { shard: *shard, bytes: info.bytes.clone(), ty, columns, order, kept })
}

/// How the rows of a tensor are read.
fn entry(family: &Family, name: &str, (shard, info): (usize, TensorInfo), of_heads: Option<Order>) -> Entry {
    let Some(blocks) = blocks_of(family, name, &(shard, info.clone()), of_heads) else {
        return Entry::plain(shard, info);
    };
    if blocks.ty.read.is_none() && blocks.order == Order::Stored && blocks.kept == Kept::Same {
        return Entry::plain(shard, info);
    }
    Entry { layout: Some(Arc::new(blocks)), ..Entry::plain(shard, info) }
}
