//! Fixtures as llama.cpp's converter writes them, by names and keys of its own package.

use super::{file, open};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::gguf::names;
use crate::fixtures::{Tensor, write_checkpoint};
use crate::testing::{Folder, golden, with};
use crate::{Options, arch, lift};
use llmcc_ir::text::print_module;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A shape, and its numbers.
type Numbers = (Vec<usize>, Vec<f32>);

fn table() -> serde_json::Map<String, Value> {
    serde_json::from_slice(&std::fs::read(golden("gguf/names.json")).unwrap()).unwrap()
}

/// What llama.cpp takes for granted where files say nothing.
fn assumed(fixture: &str) -> Value {
    match fixture {
        "gemma2" => json!({ "query_pre_attn_scalar": 32 }),
        "cohere2" => json!({ "sliding_window_pattern": 4 }),
        "starcoder2" => json!({ "sliding_window": null }),
        "smollm3" => json!({ "no_rope_layers": "absent", "no_rope_layer_interval": 4, "layer_types": "absent" }),
        "hunyuan_v1_dense" => json!({ "rope_scaling": null }),
        _ => json!({}),
    }
}

/// A name with `{}` for its first number, which follows, and without the number of an expert, which
/// follows too.
fn pattern(name: &str) -> (String, String, usize) {
    let (mut parts, mut layer, mut expert) = (vec![], String::new(), 0);
    for part in name.split('.') {
        match part.parse::<usize>() {
            Ok(_) if layer.is_empty() => {
                layer = part.to_string();
                parts.push("{}");
            }
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

/// The GGUF file of a fixture.
fn converted(ckpt: &Checkpoint, about: &Value) -> Vec<u8> {
    let config = ckpt.config();
    let size = |name: &str| config[name].as_u64().map(|n| n as usize);
    let heads = size("num_attention_heads").unwrap();
    let head_dim = size("head_dim").unwrap_or(size("hidden_size").unwrap() / heads);
    let mut tensors: BTreeMap<String, BTreeMap<usize, Numbers>> = BTreeMap::new();
    for name in ckpt.names() {
        let (pattern, layer, expert) = pattern(name);
        let called = about["tensors"][&pattern].as_str().unwrap_or_else(|| panic!("{name}")).replace("{}", &layer);
        let mut shape = ckpt.info(name).unwrap().shape.clone();
        let mut values = ckpt.to_f32(name).unwrap();
        let of_heads = called.contains("attn_q.") || called.contains("attn_k.");
        match about["done"].as_str().unwrap() {
            "permute" if of_heads => values = permute(&values, shape.get(1).copied().unwrap_or(1), head_dim),
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

/// The same model in f32, with what llama.cpp takes for granted.
fn original(ckpt: &Checkpoint, fixture: &str, folder: &Folder) -> Checkpoint {
    let tensor = |name: &str| Tensor {
        name: name.into(),
        dtype: "F32",
        shape: ckpt.info(name).unwrap().shape.clone(),
        data: ckpt.to_f32(name).unwrap().iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let config = with(ckpt.config().clone(), assumed(fixture));
    write_checkpoint(&folder.0, &config, &ckpt.names().map(tensor).collect::<Vec<_>>()).unwrap();
    open(&folder.0)
}

/// Every tensor of every fixture has the name in Transformers that it had, by the tables alone.
#[test]
fn names_are_undone() {
    for (fixture, about) in table() {
        let name = about["metadata"]["general.architecture"].as_str().unwrap();
        let family =
            super::super::families::FAMILIES.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("{name}"));
        for (theirs, ours) in about["tensors"].as_object().unwrap() {
            let found = names::hugging_face(&ours.as_str().unwrap().replace("{}", "7"), family.names);
            assert_eq!(found.replace("{e}.", ""), theirs.replace("{}", "7"), "{fixture}");
        }
    }
}

/// A converted fixture is the same graph with the same weights.
#[test]
fn converted_fixtures_are_the_same_models() {
    let mut count = 0;
    for (fixture, about) in table().into_iter().filter(|(_, about)| about["whole"] == true) {
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

/// MiniCPM and InternLM2 are read as what they are in other names.
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
