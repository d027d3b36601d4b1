//! Fixtures as llama.cpp's converter writes them, by names and keys of its own package.

use super::forms::made;
use super::{file, open};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::gguf::{families, names};
use crate::fixtures::{Tensor, write_checkpoint};
use crate::testing::{Folder, golden, with};
use crate::{Options, arch, lift};
use llmcc_ir::eval::{Batch, State, eval_module};
use llmcc_ir::kv::KvDType;
use llmcc_ir::text::print_module;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A shape, and its numbers.
type Numbers = (Vec<usize>, Vec<f32>);

fn table() -> serde_json::Map<String, Value> {
    serde_json::from_slice(&std::fs::read(golden("gguf/names.json")).unwrap()).unwrap()
}

/// llama.cpp's defaults where files have no key.
fn assumed(fixture: &str) -> Value {
    match fixture {
        "gemma2" => json!({ "query_pre_attn_scalar": 32 }),
        "cohere2_moe" => json!({ "shared_expert_combination_strategy": "average" }),
        "minimax_m3_text" => json!({ "swiglu_alpha": 1.702, "swiglu_limit": 7.0 }),
        "cohere2" => json!({ "sliding_window_pattern": 4 }),
        "starcoder2" => json!({ "sliding_window": null }),
        "smollm3" => json!({ "no_rope_layers": "absent", "no_rope_layer_interval": 4, "layer_types": "absent" }),
        "hunyuan_v1_dense" => json!({ "rope_scaling": null }),
        "gpt_oss" => json!({ "swiglu_limit": 7.0 }),
        "deepseek_v2" | "deepseek_v2_lite" | "deepseek_v3" | "youtu" => json!({ "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1,
            "mscale": 0.9, "mscale_all_dim": 0.9,
        } }),
        "mpt" => json!({ "attn_config": { "alibi": true, "alibi_bias_max": 8, "clip_qkv": 1.5 } }),
        "olmoe" => json!({ "clip_qkv": null }),
        "step3p5" => json!({ "query_pre_attn_scalar": "absent" }),
        "mimo_v2_flash" => json!({ "routed_scaling_factor": "absent" }),
        "baichuan2" => json!({ "z_loss_weight": "absent" }),
        "minicpm3" => json!({
            "rope_scaling": {
                "type": "longrope", "long_factor": [1.1, 1.5, 2.5, 4.0], "short_factor": [1.0, 1.05, 1.2, 1.5],
                "original_max_position_embeddings": 256,
            },
            "dim_model_base": 256,
        }),
        "laguna" => {
            let [full, sliding] = ["full_attention", "sliding_attention"];
            json!({ "layer_types": [full, sliding, sliding, sliding] })
        }
        "afmoe" => json!({ "global_attn_every_n_layers": 4 }),
        "dots1" => json!({ "sliding_window": null }),
        "mistral4" => json!({ "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "original_max_position_embeddings": 16,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.0,
        } }),
        "granitemoehybrid" => json!({ "time_step_limit": "absent" }),
        "bamba" | "mamba2" => json!({ "time_step_limit": "absent" }),
        "nemotron_h" | "nemotron_h_latent" => json!({ "time_step_min": "absent" }),
        "llama4_text" => json!({ "attention_chunk_size": 8192, "floor_scale": 8192 }),
        "embedding_gemma" => {
            json!({ "layer_types": "absent", "_sliding_window_pattern": 6, "query_pre_attn_scalar": 32 })
        }
        _ => json!({}),
    }
}

/// A name with `{}` for its first number, which follows, and without the number of an expert, which
/// follows too.
fn pattern(name: &str) -> (String, String, usize) {
    let (mut parts, mut layer, mut expert): (Vec<&str>, _, _) = (vec![], String::new(), 0);
    for part in name.split('.') {
        match part.parse::<usize>() {
            // Matrices beside the layers, which are one stack.
            Ok(n) if parts.last().is_some_and(|part| part.ends_with("_projections")) => expert = n,
            Ok(_) if layer.is_empty() => {
                layer = part.to_string();
                parts.push("{}");
            }
            // Parts of T5's layers.
            Ok(_) if parts.last() == Some(&"layer") && parts.first() == Some(&"encoder") => parts.push(part),
            Ok(n) => expert = n,
            Err(_) => parts.push(part),
        }
    }
    (parts.join("."), layer, expert)
}

/// Rows of heads from halves to neighbours.
fn permute(values: &[f32], columns: usize, head_dim: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    let place = |row: usize| {
        let (head, i) = (row / head_dim, row % head_dim);
        head * head_dim + i / 2 + if i % 2 == 1 { head_dim / 2 } else { 0 }
    };
    (0..rows).flat_map(|row| values[place(row) * columns..][..columns].to_vec()).collect()
}

/// Tensors except sentence-transformers' modules.
fn of_model(ckpt: &Checkpoint) -> impl Iterator<Item = &str> {
    ckpt.names().filter(|name| !name.contains("_Dense/"))
}

/// The GGUF file of a fixture.
pub(super) fn converted(ckpt: &Checkpoint, about: &Value) -> Vec<u8> {
    converted_without(ckpt, about, |_| false)
}

/// The same without some of its tensors.
pub(super) fn converted_without(ckpt: &Checkpoint, about: &Value, left_out: impl Fn(&str) -> bool) -> Vec<u8> {
    let config = ckpt.config();
    let size = |name: &str| config[name].as_u64().map(|n| n as usize);
    let head_dim =
        || size("head_dim").unwrap_or_else(|| size("hidden_size").unwrap() / size("num_attention_heads").unwrap());
    let mut tensors: BTreeMap<String, BTreeMap<usize, Numbers>> = BTreeMap::new();
    for (name, list) in about["vectors"].as_object().into_iter().flatten() {
        let values: Vec<f32> = list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        tensors.entry(name.clone()).or_default().insert(0, (vec![values.len()], values));
    }
    for name in of_model(ckpt).filter(|name| !left_out(name)) {
        let (pattern, layer, expert) = pattern(name);
        let form = &about["tensors"][&pattern];
        if form.is_object() {
            for (called, shape, values) in made(form, &layer, ckpt.to_f32(name).unwrap()) {
                let place = form["stack"].as_u64().map_or(expert, |n| n as usize);
                tensors.entry(called).or_default().insert(place, (shape, values));
            }
            continue;
        }
        let called = form.as_str().unwrap_or_else(|| panic!("{name}")).replace("{}", &layer);
        let mut shape = ckpt.info(name).unwrap().shape.clone();
        let mut values = ckpt.to_f32(name).unwrap();
        let of_heads = called.contains("attn_q.") || called.contains("attn_k.");
        match about["done"].as_str().unwrap() {
            "permute" if of_heads => values = permute(&values, shape.get(1).copied().unwrap_or(1), head_dim()),
            "gain" if called.ends_with("norm.weight") => values.iter_mut().for_each(|v| *v += 1.0),
            _ => {}
        }
        if called.contains("inp_shexp") {
            shape.remove(0);
        }
        tensors.entry(called).or_default().insert(expert, (shape, values));
    }
    let mut places = vec![];
    let mut data: Vec<u8> = vec![];
    for (name, experts) in &tensors {
        let mut dims: Vec<u64> = experts[&0].0.iter().rev().map(|n| *n as u64).collect();
        dims.extend((experts.len() > 1).then_some(experts.len() as u64));
        data.resize(data.len().next_multiple_of(32), 0);
        places.push((name.as_str(), dims, data.len() as u64));
        data.extend(experts.values().flat_map(|(_, values)| values.iter().flat_map(|v| v.to_le_bytes())));
    }
    let tensors: Vec<(&str, &[u64], u32, u64)> = places.iter().map(|(n, dims, at)| (*n, &dims[..], 0, *at)).collect();
    let said = about["metadata"].as_object().unwrap();
    let metadata: Vec<(&str, u32, Vec<u8>)> = said.iter().map(|(key, v)| (key.as_str(), kind(v), bytes(v))).collect();
    let mut out = file(&metadata, &tensors, data.len());
    let from = out.len() - data.len();
    out[from..].copy_from_slice(&data);
    out
}

/// The type of a value of metadata. Floats are f64, so that nothing is rounded.
fn kind(v: &Value) -> u32 {
    match v {
        Value::Bool(_) => 7,
        Value::Number(n) if n.is_u64() => 10,
        Value::Number(_) => 12,
        Value::String(_) => 8,
        _ => 9,
    }
}

fn bytes(v: &Value) -> Vec<u8> {
    match v {
        Value::Bool(b) => vec![u8::from(*b)],
        Value::Number(n) => n.as_u64().map_or_else(|| n.as_f64().unwrap().to_le_bytes(), u64::to_le_bytes).to_vec(),
        Value::String(s) => [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat(),
        Value::Array(list) => {
            let head = [&kind(&list[0]).to_le_bytes()[..], &(list.len() as u64).to_le_bytes()].concat();
            list.iter().fold(head, |out, v| [out, bytes(v)].concat())
        }
        other => panic!("{other}"),
    }
}

/// The same model in f32, with llama.cpp's defaults.
pub(super) fn original(ckpt: &Checkpoint, fixture: &str, folder: &Folder) -> Checkpoint {
    let tensor = |name: &str| Tensor {
        name: name.into(),
        dtype: "F32",
        shape: ckpt.info(name).unwrap().shape.clone(),
        data: ckpt.to_f32(name).unwrap().iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let config = with(ckpt.config().clone(), assumed(fixture));
    write_checkpoint(&folder.0, &config, &of_model(ckpt).map(tensor).collect::<Vec<_>>()).unwrap();
    open(&folder.0)
}

/// Every tensor of every fixture that is only renamed has the name in Transformers that it had, by
/// the tables alone.
#[test]
fn names_are_undone() {
    // Without the parts of names that files of embedders omit, or under another name.
    let others = [
        "baichuan2",
        "bert",
        "roberta_classes",
        "distilbert",
        "distilbert_classes",
        "embedding_gemma",
        "eurobert",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "jina_bert",
        "jina_bert_norms",
        "jina_embeddings_v3",
        "minimax_m3_text",
        "modernbert",
        "modernbert_classes",
        "modernbert_pairs",
        "nomic_bert",
        "solar_open",
        "xlm_roberta",
    ];
    let mut wrong = vec![];
    for (fixture, about) in table().into_iter().filter(|(name, _)| !others.contains(&&**name)) {
        let name = about["metadata"]["general.architecture"].as_str().unwrap();
        let tables: Vec<_> = families::all().filter(|f| f.name == name).map(|f| f.names).collect();
        for (theirs, ours) in about["tensors"].as_object().unwrap() {
            let Some(ours) = ours.as_str().map(|ours| ours.replace("{}", "7")) else { continue };
            let found: Vec<String> =
                tables.iter().map(|names| names::hugging_face(&ours, names).replace("{e}.", "")).collect();
            let theirs = theirs.replace("experts.{}.", "experts.").replace("{}", "7");
            wrong.extend((!found.contains(&theirs)).then(|| format!("{fixture}: {ours}: {theirs}, not {found:?}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The numbers of a tensor, as the graph takes them.
pub(super) fn numbers(ckpt: &Checkpoint, name: &str) -> Vec<f32> {
    // The graph itself puts columns in their places.
    let stored = ckpt.order(name).and_then(|_| ckpt.rows(name));
    stored.map_or_else(
        || ckpt.to_f32(name).unwrap(),
        |rows| {
            let mut out = vec![0f32; ckpt.info(name).unwrap().shape.iter().product()];
            rows.values(0, &mut out);
            out
        },
    )
}

/// A model's results for the tokens of a fixture.
fn results(ckpt: &Checkpoint, fixture: &str) -> Result<Vec<f64>, String> {
    let options = Options { kv_dtype: KvDType::F32, ..Options::default() };
    let module = lift(ckpt, &options).map_err(|e| e.to_string())?;
    let expected = open(&golden(fixture).join("golden.safetensors"));
    let tokens = expected.tensor("tokens").unwrap().data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b));
    let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
    let weights = |i: usize| numbers(ckpt, &module.weights[i].name);
    let batch = Batch::single(&tokens.collect::<Vec<_>>(), 0);
    Ok(eval_module(&module, &weights, &mut states, &batch).unwrap())
}

/// The error of a model whose tensors differ from the fixture's.
fn other_model(fixture: &str, converted: &Checkpoint, original: &Checkpoint) -> Option<String> {
    let unread = match arch::config(converted) {
        Ok(model) => model.unread,
        Err(e) => return Some(e.to_string()),
    };
    if !unread.is_empty() {
        return Some(format!("unread: {unread:?}"));
    }
    let (a, b) = match (results(converted, fixture), results(original, fixture)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(e), _) => return Some(format!("converted: {e}")),
        (_, Err(e)) => return Some(format!("original: {e}")),
    };
    let module = lift(converted, &Options::default()).ok()?;
    if let Some(unused) = crate::unused::find(converted, &module).unwrap() {
        return Some(format!("unused: {:?}", unused.tensors));
    }
    let most = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let error = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    // Numbers are rounded once where they were changed.
    let finite = a.iter().all(|x| x.is_finite());
    (a.len() != b.len() || !finite || error > 1e-5 * most).then(|| format!("off by {error:e} of {most:e}"))
}

/// Fixtures that the converter does more to than to rename give the same results.
#[test]
fn reshaped_fixtures_compute_the_same() {
    let mut wrong = vec![];
    for (fixture, about) in table().into_iter().filter(|(_, about)| about["vectors"].is_object()) {
        let before = open(&golden(&fixture));
        let folder = Folder::new();
        folder.write("m.gguf", converted(&before, &about));
        let original = original(&before, &fixture, &folder);
        let error = match Checkpoint::open(&folder.0.join("m.gguf")) {
            Ok(converted) => other_model(&fixture, &converted, &original),
            Err(e) => Some(e.to_string()),
        };
        wrong.extend(error.map(|e| format!("{fixture}: {e}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A converted fixture is the same graph with the same weights.
#[test]
fn converted_fixtures_are_the_same_models() {
    let mut count = 0;
    for (fixture, about) in
        table().into_iter().filter(|(_, about)| about["whole"] == true && !about["vectors"].is_object())
    {
        let before = open(&golden(&fixture));
        let folder = Folder::new();
        folder.write("m.gguf", converted(&before, &about));
        let converted = open(&folder.0.join("m.gguf"));
        let original = original(&before, &fixture, &folder);
        assert!(converted.names().eq(original.names()), "{fixture}: {:?}", converted.names().collect::<Vec<_>>());
        for name in original.names() {
            let (a, b) = (converted.info(name).unwrap(), original.info(name).unwrap());
            assert_eq!(a.shape, b.shape, "{fixture} {name}");
            let (a, b) = (converted.to_f32(name).unwrap(), original.to_f32(name).unwrap());
            // One was added and taken away.
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6), "{fixture} {name}");
        }
        assert!(arch::config(&converted).unwrap().unread.is_empty(), "{fixture}");
        let graph = |ckpt: &Checkpoint| {
            let module = lift(ckpt, &Options::default()).unwrap_or_else(|e| panic!("{fixture}: {e}"));
            assert_eq!(crate::unused::find(ckpt, &module).unwrap(), None, "{fixture}");
            print_module(&module)
        };
        let (a, b) = (graph(&converted), graph(&original));
        let differ = a.lines().zip(b.lines()).find(|(a, b)| a != b);
        assert_eq!(differ, None, "{fixture}");
        count += 1;
    }
    assert_eq!(count, 16);
}

/// Codes stay codes where rows are put in another order.
#[test]
fn rows_in_turns_keep_their_codes() {
    let said = table()["gpt_neox"]["metadata"].clone();
    let metadata: Vec<(&str, u32, Vec<u8>)> =
        said.as_object().unwrap().iter().map(|(key, v)| (key.as_str(), kind(v), bytes(v))).collect();
    let (heads, dim, width) = (4, 16, 64);
    let rows = 3 * heads * dim;
    let mut out = file(&metadata, &[("blk.0.attn_qkv.weight", &[width, rows], 8, 0)], (rows * 2 * 34) as usize);
    let from = out.len() - (rows * 2 * 34) as usize;
    // Blocks of 32 codes that are the number of the row, times 1.
    let block = |i: usize| [&[0x00, 0x3c][..], &[(i / 2 % 100) as u8; 32]].concat();
    out[from..].copy_from_slice(&(0..2 * rows as usize).flat_map(block).collect::<Vec<u8>>());
    let folder = Folder::new();
    folder.write("m.gguf", out);
    let ckpt = open(&folder.0.join("m.gguf"));
    let name = "gpt_neox.layers.0.attention.query_key_value.weight";
    assert_eq!(ckpt.info(name).unwrap().dtype.name, "Q8_0");
    let (heads, dim) = (heads as usize, dim as usize);
    for (row, values) in ckpt.to_f32(name).unwrap().chunks(width as usize).enumerate() {
        let (head, part, i) = (row / (3 * dim), row / dim % 3, row % dim);
        assert!(values.iter().all(|v| *v == ((part * heads + head) * dim + i) as f32 % 100.0), "{row}");
    }
}

/// Values that a file leaves open are asked for, not guessed.
#[test]
fn what_files_leave_open_is_refused() {
    let message = |fixture: &str, edit: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut about = table()[fixture].clone();
        edit(about["metadata"].as_object_mut().unwrap());
        let folder = Folder::new();
        folder.write("m.gguf", converted(&open(&golden(fixture)), &about));
        Checkpoint::open(&folder.0.join("m.gguf")).map_or_else(|e| e.to_string(), |_| "read".into())
    };
    let groups = message("deepseek_v3", &|m| drop(m.remove("deepseek2.expert_group_count")));
    assert!(groups.contains("`deepseek2.expert_group_count` is missing, as old versions"), "{groups}");
    let gating = message("glm4_moe", &|m| drop(m.insert("glm4moe.expert_gating_func".into(), 1.into())));
    assert!(gating.contains("chosen by softmax instead of sigmoid"), "{gating}");
    let mixers = message("bamba", &|m| drop(m.insert("granitehybrid.ssm.inner_size".into(), 81.into())));
    assert!(mixers.contains("has mixers whose width is not a multiple of the model's"), "{mixers}");
    let second = message("baichuan2", &|m| drop(m.insert("baichuan.block_count".into(), 40.into())));
    assert!(second.contains("is the 13 B model, whose scores have slopes"), "{second}");
    let widths = message("lfm2", &|m| drop(m.insert("lfm2.attention.head_count_kv".into(), json!([0, 2, 0, 4]))));
    assert!(widths.contains("has layers of several sizes: `attention.head_count_kv` is both 2 and 4"), "{widths}");
}

/// Unknown architectures are refused, with the nearest known one.
#[test]
fn others_are_refused_with_the_nearest() {
    let message = |name: &str| {
        let folder = Folder::new();
        folder.write("m.gguf", file(&[("general.architecture", 8, bytes(&json!(name)))], &[], 0));
        Checkpoint::open(&folder.0.join("m.gguf")).map_or_else(|e| e.to_string(), |_| "read".into())
    };
    let near = message("qwen3-moe");
    assert!(
        near.contains(
            "`general.architecture` is `qwen3-moe`, which is not supported; the nearest supported one is `qwen3"
        ),
        "{near}"
    );
    assert!(message("clip").contains("give the file of the language model beside it"), "{}", message("clip"));
    let far = message("wavtokenizer");
    assert!(far.contains("`wavtokenizer`, which is not supported") && !far.contains("nearest"), "{far}");
}

/// Settings that some files omit, and others express in another way.
#[test]
fn settings_that_follow_from_others() {
    let config = |fixture: &str, edit: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut about = table()[fixture].clone();
        edit(about["metadata"].as_object_mut().unwrap());
        let folder = Folder::new();
        folder.write("m.gguf", converted(&open(&golden(fixture)), &about));
        open(&folder.0.join("m.gguf")).config().clone()
    };
    // Columns of heads by the rows of queries, all of them rotated, where the class rotates half.
    let glm = config("glm_ocr_text", &|m| drop(m.remove("glm4.attention.key_length")));
    assert_eq!((&glm["head_dim"], &glm["partial_rotary_factor"]), (&json!(16), &json!(1.0)));
    let listed = config("qwen3_next", &|m| {
        m.insert("qwen3next.attention.recurrent_layers".into(), json!([true, false]));
        m.insert("qwen3next.full_attention_interval".into(), 4.into());
    });
    assert_eq!(listed["layer_types"], json!(["linear_attention", "full_attention"]));
    let whole = config("llama4_text", &|m| drop(m.insert("llama4.attention.sliding_window".into(), 0.into())));
    assert_eq!((&whole["no_rope_layers"], &whole["attn_temperature_tuning"]), (&json!([1, 1, 1, 1]), &json!(false)));
}

/// A file of a vocabulary says so.
#[test]
fn files_without_tensors_are_refused() {
    let folder = Folder::new();
    folder.write("m.gguf", file(&[("general.architecture", 8, bytes(&json!("llama")))], &[], 0));
    let e = arch::config(&open(&folder.0.join("m.gguf"))).map_or_else(|e| e.to_string(), |_| "read".into());
    assert!(
        e.ends_with(
            "m.gguf: holds a vocabulary or settings only, and no tensors; name the file with the model's weights"
        ),
        "{e}"
    );
}

/// A head of classes without the layers before it is refused.
#[test]
fn heads_without_their_poolers_are_refused() {
    let mut about = table()["roberta_classes"].clone();
    let tensors = about["tensors"].as_object_mut().unwrap();
    for name in ["classifier.dense.weight", "classifier.dense.bias"] {
        tensors.insert(name.into(), json!({ "to": [], "width": 1 }));
    }
    let folder = Folder::new();
    folder.write("m.gguf", converted(&open(&golden("roberta_classes")), &about));
    let e = Checkpoint::open(&folder.0.join("m.gguf")).map_or_else(|e| e.to_string(), |_| "read".into());
    assert!(e.contains("has a classification head, but not the pooler before it"), "{e}");
}

/// CamemBERT's first two rows of positions, which llama.cpp's converter leaves in place, are no token's.
#[test]
fn positions_that_begin_before_the_first_are_refused() {
    let mut about = table()["xlm_roberta"].clone();
    about["metadata"]["bert.context_length"] = json!(66);
    about["tensors"]["embeddings.position_embeddings.weight"] = json!("position_embd.weight");
    let folder = Folder::new();
    folder.write("m.gguf", converted(&open(&golden("camembert")), &about));
    let e = Checkpoint::open(&folder.0.join("m.gguf")).map_or_else(|e| e.to_string(), |_| "read".into());
    assert!(e.contains("has 66 rows of positions, like CamemBERT"), "{e}");
}

/// MiniCPM and InternLM2 are read under other names.
#[test]
fn models_in_other_names() {
    let mut about = table()["smollm3"].clone();
    let said = about["metadata"].as_object_mut().unwrap();
    let renamed = |name: &str| -> serde_json::Map<String, Value> {
        let key = |(k, v): (&String, &Value)| (k.replace("smollm3", name), v.clone());
        let mut out: serde_json::Map<String, Value> = said.iter().map(key).collect();
        out.insert("general.architecture".into(), name.into());
        out
    };
    let (internlm2, mut minicpm) = (renamed("internlm2"), renamed("minicpm"));
    let model = |metadata: &serde_json::Map<String, Value>| {
        let about = json!({ "metadata": metadata, "tensors": table()["smollm3"]["tensors"], "done": "permute" });
        let folder = Folder::new();
        folder.write("m.gguf", converted(&open(&golden("smollm3")), &about));
        Checkpoint::open(&folder.0.join("m.gguf")).map_err(|e| e.to_string())
    };
    assert_eq!(model(&internlm2).unwrap().config()["model_type"], "llama");
    let old = model(&minicpm).unwrap_err();
    assert!(old.contains("`minicpm.embedding_scale` is missing, as old versions of llama.cpp left it"), "{old}");
    for (key, value) in [("embedding_scale", 12.0), ("residual_scale", 0.25), ("logit_scale", 9.0)] {
        minicpm.insert(format!("minicpm.{key}"), value.into());
    }
    let read = model(&minicpm).unwrap();
    let config = read.config();
    assert_eq!((&config["model_type"], &config["attention_multiplier"]), (&json!("granite"), &json!(0.25)));
    assert_eq!((&config["residual_multiplier"], &config["logits_scaling"]), (&json!(0.25), &json!(9.0)));
    lift(&read, &Options::default()).unwrap();
}
