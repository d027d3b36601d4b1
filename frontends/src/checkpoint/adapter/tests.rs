use super::*;
use crate::checkpoint::safetensors;
use crate::testing::{Folder, golden, with};
use crate::{Options, lift};
use serde_json::json;

fn adapter(name: &str, scale: f32) -> Adapter {
    Adapter { path: golden("adapters").join(name), scale }
}

/// Every adapter changes its base as PEFT does.
#[test]
fn adapters_merge_as_in_peft() {
    let all = [
        ("lora", "base"),
        ("rslora", "base"),
        ("dora", "base"),
        ("embedding", "base"),
        ("saved", "base"),
        ("bias", "biased"),
        ("bias_only", "biased"),
        ("tokens", "base"),
        ("experts", "mixture"),
        ("stacked", "stacked_base"),
        ("conv", "gpt2"),
        ("conv_dora", "gpt2"),
    ];
    for (name, base) in all {
        let base = golden("adapters").join(base);
        let before = Checkpoint::open(&base).unwrap();
        let merged = Checkpoint::open_with(&base, &[adapter(name, 1.0)]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let file = std::fs::read(golden("adapters").join(name).join("merged.safetensors")).unwrap();
        let wanted = safetensors::parse(&file).unwrap();
        assert!(merged.names().eq(before.names()) && !wanted.is_empty());
        for tensor in merged.names() {
            let found = merged.to_f32(tensor).unwrap();
            let Some(info) = wanted.get(tensor) else {
                assert_eq!(Some(found), before.to_f32(tensor), "{name} {tensor}");
                continue;
            };
            let values = file[info.bytes.clone()].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            for (ours, theirs) in found.iter().zip(values) {
                // Some roundings of f32 sums of up to four terms apart.
                assert!(
                    (ours - theirs).abs() <= 8.0 * f32::EPSILON * theirs.abs().max(1.0),
                    "{name} {tensor}: {ours} {theirs}"
                );
            }
        }
        let module = lift(&merged, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(crate::unused::find(&merged, &module).unwrap(), None, "{name}");
        assert_eq!(merged.notes().len(), 1, "{:?}", merged.notes());
        let files = merged.source_files().unwrap();
        assert!(files.iter().any(|f| f.name == "adapter_config.json"));
    }
}

/// Half of an adapter twice is the adapter; more than one may be given.
#[test]
fn scales_and_several_adapters() {
    let base = golden("adapters/base");
    let open = |list: &[Adapter]| Checkpoint::open_with(&base, list).unwrap();
    let (once, twice) = (open(&[adapter("lora", 1.0)]), open(&[adapter("lora", 0.5), adapter("lora", 0.5)]));
    let name = "model.layers.0.self_attn.q_proj.weight";
    let (a, b) = (once.to_f32(name).unwrap(), twice.to_f32(name).unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5));
    assert!(a != Checkpoint::open(&base).unwrap().to_f32(name).unwrap());
    assert!(twice.notes()[0].ends_with("6 matrices merged at 0.5 times its strength"), "{:?}", twice.notes());
    let none = open(&[adapter("lora", 0.0)]);
    assert_eq!(none.to_f32(name), Checkpoint::open(&base).unwrap().to_f32(name));
}

/// Matrices that are codes are decoded first; 16-bit ones stay so.
#[test]
fn bases_of_other_types() {
    // An adapter of rank 1 for the base of a GGUF file.
    let folder = Folder::new();
    let ckpt = Checkpoint::open(&golden("gguf/mixed.gguf")).unwrap();
    let module = "model.layers.0.self_attn.q_proj";
    let [n, k] = ckpt.info(&format!("{module}.weight")).unwrap().shape[..] else { panic!() };
    let tensor = |part: &str, shape: [usize; 2]| crate::fixtures::Tensor {
        name: format!("base_model.model.{module}.lora_{part}.weight"),
        dtype: "F32",
        shape: shape.to_vec(),
        data: (0..shape[0] * shape[1]).flat_map(|i| (i as f32 / 256.0).to_le_bytes()).collect(),
    };
    let tensors = [tensor("A", [1, k]), tensor("B", [n, 1])];
    folder.write("adapter_model.safetensors", crate::fixtures::safetensors(&tensors));
    folder.write("adapter_config.json", json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 2 }).to_string());
    let adapter = Adapter { path: folder.0.clone(), scale: 1.0 };
    let merged = Checkpoint::open_with(&golden("gguf/mixed.gguf"), &[adapter]).unwrap();
    let name = format!("{module}.weight");
    let (before, after) = (ckpt.to_f32(&name).unwrap(), merged.to_f32(&name).unwrap());
    let wanted = |i: usize| before[i] + 2.0 * (i / k) as f32 / 256.0 * (i % k) as f32 / 256.0;
    assert!((0..n * k).all(|i| (after[i] - wanted(i)).abs() < 1e-5));
    assert_eq!(merged.info(&name).unwrap().dtype.name, "computed F32");
    assert!(merged.notes()[0].contains("1 of the matrices were quantized"), "{:?}", merged.notes());
    lift(&merged, &Options::default()).unwrap();
}

/// The adapter of an embedder says how rows are pooled, and has the modules after that.
#[test]
fn modules_beside_an_adapter() {
    let folder = Folder::new();
    let pooling =
        |way: &str| json!({ "word_embedding_dimension": 16, format!("pooling_mode_{way}"): true }).to_string();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        folder.write(name, std::fs::read(golden("adapters/dora").join(name)).unwrap());
    }
    let module = |i: usize, kind: &str, path: &str| {
        let kind = format!("sentence_transformers.models.{kind}");
        json!({ "idx": i, "name": i.to_string(), "path": path, "type": kind })
    };
    let list = [
        module(0, "Transformer", ""),
        module(1, "Pooling", "1_Pooling"),
        module(2, "Dense", "2_Dense"),
        module(3, "Normalize", "3_Normalize"),
    ];
    folder.write("modules.json", json!(list).to_string());
    for name in ["1_Pooling", "2_Dense"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
    }
    folder.write("1_Pooling/config.json", pooling("cls_token"));
    let activation = "torch.nn.modules.linear.Identity";
    let dense = json!({ "in_features": 16, "out_features": 3, "bias": false, "activation_function": activation });
    folder.write("2_Dense/config.json", dense.to_string());
    let weight =
        crate::fixtures::Tensor { name: "linear.weight".into(), dtype: "F32", shape: vec![3, 16], data: vec![1; 192] };
    folder.write("2_Dense/model.safetensors", crate::fixtures::safetensors(&[weight]));
    let base = golden("adapters/base");
    let merged = Checkpoint::open_with(&base, &[Adapter { path: folder.0.clone(), scale: 1.0 }]).unwrap();
    let found = embedding::found(&merged).unwrap().unwrap();
    assert_eq!((found.pool, found.normalize, found.layers.len()), (llmcc_ir::output::Pool::First, true, 1));
    assert_eq!(merged.info("2_Dense/linear.weight").unwrap().shape, [3, 16]);
    assert_eq!(embedding::found(&Checkpoint::open(&base).unwrap()).unwrap(), None);
    lift(&merged, &Options::default()).unwrap();
}

/// Without a base, an adapter is described.
#[test]
fn adapters_alone_are_described() {
    let of = |name: &str| about::about(&golden("adapters").join(name)).unwrap();
    assert_eq!(of("base"), None);
    let dora = of("dora").unwrap();
    assert_eq!((dora.method.as_str(), dora.base.as_deref(), dora.problem), ("DoRA", Some("base"), None));
    assert_eq!(dora.ranks.into_iter().collect::<Vec<_>>(), [4]);
    assert_eq!(
        dora.modules.into_iter().collect::<Vec<_>>(),
        ["down_proj", "q_proj", "v_proj"].map(|m| (m.to_string(), 2))
    );
    assert!(dora.only_merged.unwrap().contains("use_dora") && dora.types.contains_key("F32"));
    let saved = of("saved").unwrap();
    assert!(saved.replaced.contains(&"lm_head.weight".to_string()) && saved.only_merged.is_some());
    // The errors without its tensors.
    let folder = Folder::new();
    folder.write("adapter_config.json", json!({ "peft_type": "LOHA" }).to_string());
    let problem = about::about(&folder.0).unwrap().unwrap().problem.unwrap();
    assert!(problem.contains("`peft_type` is `LOHA`"), "{problem}");
}

/// A table that is the head, too, is so no more where one of the two is changed, whatever it is called.
#[test]
fn tables_of_any_name_are_untied() {
    let base = golden("adapters/gpt2");
    let before = Checkpoint::open(&base).unwrap();
    let [rows, columns] = before.info("transformer.wte.weight").unwrap().shape[..] else { panic!() };
    let tensor = |name: &str, shape: [usize; 2]| crate::fixtures::Tensor {
        name: format!("base_model.model.{name}"),
        dtype: "F32",
        shape: shape.to_vec(),
        data: (0..shape[0] * shape[1]).flat_map(|i| (i as f32 / 64.0).to_le_bytes()).collect(),
    };
    let table = ["transformer.wte.lora_embedding_A", "transformer.wte.lora_embedding_B"];
    let head = ["lm_head.lora_A.weight", "lm_head.lora_B.weight"];
    for (changed, names) in [("transformer.wte.weight", table), ("lm_head.weight", head)] {
        let folder = Folder::new();
        let [a, b] = if changed == "lm_head.weight" { [columns, rows] } else { [rows, columns] };
        let tensors = [tensor(names[0], [1, a]), tensor(names[1], [b, 1])];
        folder.write("adapter_model.safetensors", crate::fixtures::safetensors(&tensors));
        folder.write("adapter_config.json", json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1 }).to_string());
        let merged = Checkpoint::open_with(&base, &[Adapter { path: folder.0.clone(), scale: 1.0 }]).unwrap();
        let was = before.to_f32("transformer.wte.weight");
        for name in ["transformer.wte.weight", "lm_head.weight"] {
            assert_eq!(merged.to_f32(name) == was, name != changed, "{changed}: {name}");
        }
        let module = lift(&merged, &Options::default()).unwrap();
        assert_eq!(crate::unused::find(&merged, &module).unwrap(), None, "{changed}");
    }
}

/// A table and a head that are kept one are changed together.
#[test]
fn tables_may_be_kept_tied() {
    let base = golden("adapters/gpt2");
    let table = "transformer.wte.weight";
    let before = Checkpoint::open(&base).unwrap();
    let [rows, columns] = before.info(table).unwrap().shape[..] else { panic!() };
    let tensor = |part: &str, shape: [usize; 2]| crate::fixtures::Tensor {
        name: format!("base_model.model.transformer.wte.lora_embedding_{part}"),
        dtype: "F32",
        shape: shape.to_vec(),
        data: (0..shape[0] * shape[1]).flat_map(|i| (i as f32 / 64.0).to_le_bytes()).collect(),
    };
    let folder = Folder::new();
    folder.write(FILES[0], crate::fixtures::safetensors(&[tensor("A", [1, rows]), tensor("B", [columns, 1])]));
    let settings = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "ensure_weight_tying": true });
    folder.write(CONFIG, settings.to_string());
    let merged = Checkpoint::open_with(&base, &[Adapter { path: folder.0.clone(), scale: 1.0 }]).unwrap();
    assert!(merged.info("lm_head.weight").is_none() && merged.to_f32(table) != before.to_f32(table));
    lift(&merged, &Options::default()).unwrap();
}

fn message(config: &Value) -> String {
    Settings::parse(config).map_or_else(|(what, help)| format!("{what}; {help}"), |s| format!("{s:?}"))
}

#[test]
fn settings_that_change_the_mathematics_are_refused() {
    let plain = json!({ "peft_type": "LORA", "r": 4, "lora_alpha": 8 });
    let parsed = Settings::parse(&plain).unwrap();
    assert_eq!(parsed.scale("a.q_proj", 4).unwrap(), 2.0);
    assert!(parsed.scale("a.q_proj", 5).unwrap_err().0.contains("has rank 5, but its settings say 4"));
    let patterns = json!({ "rank_pattern": { "q_proj": 2, "^a.v_proj": 1 }, "alpha_pattern": { "1\\.q_proj": 3 } });
    let parsed = Settings::parse(&with(plain.clone(), patterns)).unwrap();
    assert_eq!(parsed.scale("a.0.q_proj", 2).unwrap(), 4.0);
    assert_eq!(parsed.scale("a.1.q_proj", 2).unwrap(), 1.5);
    assert_eq!(parsed.scale("a.v_proj", 1).unwrap(), 8.0);
    // Another module's name may end the same way.
    assert_eq!(parsed.scale("b.a.v_proj", 4).unwrap(), 2.0);
    assert_eq!(parsed.scale("a.freq_proj", 4).unwrap(), 2.0);
    // Regular expressions of whole names, or of the parts after a dot.
    let patterns = json!({ "alpha_pattern": { r".*layers\.[02].*q_proj": 12, "^model.x$": 4, "down|up": 16 } });
    let parsed = Settings::parse(&with(plain.clone(), patterns)).unwrap();
    for (module, scale) in [
        ("model.layers.0.self_attn.q_proj", 3.0),
        ("model.layers.1.self_attn.q_proj", 2.0),
        ("model.layers.2.q_proj.x", 2.0),
        ("model.x", 1.0),
        ("a.model.x", 2.0),
        ("a.up", 4.0),
        ("a.upper", 2.0),
    ] {
        assert_eq!(parsed.scale(module, 4).unwrap(), scale, "{module}");
    }
    for (changes, says) in [
        (json!({ "peft_type": "IA3" }), "`peft_type` is `IA3`; only LORA is supported; merge it in Python"),
        (json!({ "peft_type": "absent" }), "`peft_type` is missing"),
        (json!({ "use_qalora": true }), "`use_qalora` is set"),
        (json!({ "lora_bias": true }), "`lora_bias` is set"),
        (json!({ "layer_replication": [[0, 1]] }), "`layer_replication` is set"),
        (json!({ "trainable_token_indices": [-1] }), "`trainable_token_indices` has [-1], where token ids"),
        (json!({ "trainable_token_indices": { "wte": 3 } }), "`trainable_token_indices` has 3, where"),
        (json!({ "something_new": 1 }), "`something_new` is set"),
        (json!({ "init_lora_weights": "pissa" }), "`init_lora_weights` is \"pissa\", which changes the base's"),
        (json!({ "r": 0 }), "`r` is 0; it must be a positive number"),
        (json!({ "lora_alpha": "x" }), "`lora_alpha` is \"x\""),
        (json!({ "use_dora": 1 }), "it must be true or false"),
        (json!({ "rank_pattern": { "a(": 1 } }), "has the pattern `a(`, which is not a regular expression"),
        (json!({ "alpha_pattern": { "a": -1 } }), "-1 for `a`"),
    ] {
        let found = message(&with(plain.clone(), changes));
        assert!(found.contains(says), "{says}: {found}");
    }
}

#[test]
fn adapters_that_do_not_fit() {
    let base = golden("adapters/base");
    let refused = |list: &[Adapter], base: &Path| Checkpoint::open_with(base, list).unwrap_err().to_string();
    let folder = Folder::new();
    let empty = Adapter { path: folder.0.clone(), scale: 1.0 };
    assert!(
        refused(std::slice::from_ref(&empty), &base)
            .contains("adapter_config.json: the file is missing; --lora takes the folder")
    );
    folder.write("adapter_config.json", r#"{"peft_type": "LORA", "r": 4, "base_model_name_or_path": "org/base"}"#);
    assert!(
        refused(std::slice::from_ref(&empty), &base)
            .contains("holds neither adapter_model.safetensors nor adapter_model.bin")
    );
    let alone = Checkpoint::open(&folder.0).unwrap_err().to_string();
    assert!(
        alone.contains("holds an adapter of `org/base`, not a model; give the base too: `llmcc compile "),
        "{alone}"
    );
    let other = refused(&[adapter("conv", 1.0)], &base);
    assert!(other.contains("matrix `transformer.h.0.attn.c_attn.weight`, which the base lacks"), "{other}");
    let write = |name: &str, shape: [usize; 2]| {
        let size = shape[0] * shape[1] * 4;
        let tensor = |part: &str, shape: Vec<usize>, bytes: usize| crate::fixtures::Tensor {
            name: format!("{name}.{part}.weight"),
            dtype: "F32",
            shape,
            data: vec![0; bytes],
        };
        let tensors = [tensor("lora_A", shape.to_vec(), size), tensor("lora_B", vec![16, 4], 256)];
        folder.write("adapter_model.safetensors", crate::fixtures::safetensors(&tensors));
        refused(std::slice::from_ref(&empty), &base)
    };
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    assert!(write(module, [4, 17]).contains("factors [16, 4] and [4, 17] do not make the base's [16, 16]"));
    assert!(write(module, [3, 16]).contains("do not make"));
    assert!(write("model.layers.0", [4, 16]).contains("does not begin with `base_model.model.`"));
}

/// Rows and factors of experts that do not fit, each in words.
#[test]
fn rows_and_experts_that_do_not_fit() {
    let folder = Folder::new();
    let adapter = Adapter { path: folder.0.clone(), scale: 1.0 };
    let refused = |base: &str, settings: Value, tensors: &[(&str, [usize; 2])]| {
        let all = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 2 });
        folder.write("adapter_config.json", with(all, settings).to_string());
        let tensors = tensors.iter().map(|(name, shape)| crate::fixtures::Tensor {
            name: format!("base_model.model.model.{name}"),
            dtype: "F32",
            shape: shape.to_vec(),
            data: vec![0; shape[0] * shape[1] * 4],
        });
        folder.write("adapter_model.safetensors", crate::fixtures::safetensors(&tensors.collect::<Vec<_>>()));
        Checkpoint::open_with(&golden("adapters").join(base), std::slice::from_ref(&adapter)).unwrap_err().to_string()
    };
    let rows = "embed_tokens.token_adapter.trainable_tokens_delta";
    for (tokens, name, shape, says) in [
        (json!([1, 2]), rows, [1, 16], "2 tokens have rows F32 [1, 16]"),
        (json!([1, 2]), rows, [2, 15], "2 tokens have rows F32 [2, 15]"),
        (json!([1, 32]), rows, [2, 16], "token 32 is outside the vocabulary of 32"),
        (json!({ "lm_head": [1] }), rows, [1, 16], "replaces rows of `lm_head`, but the file has no"),
        (
            json!([1]),
            "wte.token_adapter.trainable_tokens_delta",
            [1, 16],
            "rows of table `model.wte.weight`, which the base lacks",
        ),
    ] {
        let found = refused("base", json!({ "trainable_token_indices": tokens }), &[(name, shape)]);
        assert!(found.contains(says), "{says}: {found}");
    }
    let [a, b] = ["A", "B"].map(|part| format!("layers.0.mlp.experts.lora_{part}.weight"));
    for (base, a_shape, b_shape, says) in [
        ("mixture", [6, 9], [16, 6], "factors [16, 6] and [6, 9] fit no matrix of experts"),
        ("mixture", [6, 16], [16, 5], "fit no matrix of experts"),
        ("mixture", [7, 16], [16, 7], "fit no matrix of experts"),
        ("mixture", [3, 16], [16, 3], "has rank 1, but its settings say 2"),
        ("stacked_base", [6, 17], [16, 6], "fit no matrix of experts"),
        ("base", [6, 16], [16, 6], "changes `model.layers.0.mlp.experts`, but the base has no matrices of all experts"),
    ] {
        let found = refused(base, json!({ "target_parameters": ["x"] }), &[(&a, a_shape), (&b, b_shape)]);
        assert!(found.contains(says), "{says}: {found}");
    }
}

/// Matrices of experts that are codes of MXFP4, all in one, are decoded first.
#[test]
fn experts_in_mxfp4() {
    let base = golden("quantized_models/mxfp4");
    let before = Checkpoint::open(&base).unwrap();
    let (module, count) = ("model.layers.0.mlp.experts", before.config["num_local_experts"].as_u64().unwrap() as usize);
    let name = format!("{module}.down_proj");
    let [all, columns] = before.info(&name).unwrap().shape[..] else { panic!() };
    let rows = all / count;
    assert_ne!(rows, columns);
    let factor = |e: usize, i: usize| (e + 1) as f32 * i as f32 / 256.0;
    let tensor = |part: &str, shape: [usize; 2], value: &dyn Fn(usize) -> f32| crate::fixtures::Tensor {
        name: format!("base_model.model.{module}.lora_{part}.weight"),
        dtype: "F32",
        shape: shape.to_vec(),
        data: (0..shape[0] * shape[1]).flat_map(|i| value(i).to_le_bytes()).collect(),
    };
    let a = tensor("A", [count, columns], &|i| factor(i / columns, i % columns));
    let b = tensor("B", [rows, count], &|i| factor(i % count, i / count));
    let folder = Folder::new();
    folder.write("adapter_model.safetensors", crate::fixtures::safetensors(&[a, b]));
    let settings = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_parameters": ["experts.down_proj"] });
    folder.write("adapter_config.json", settings.to_string());
    let merged = Checkpoint::open_with(&base, &[Adapter { path: folder.0.clone(), scale: 1.0 }]).unwrap();
    let (was, is) = (before.to_f32(&name).unwrap(), merged.to_f32(&name).unwrap());
    for (at, (was, is)) in was.iter().zip(&is).enumerate() {
        let (e, i, j) = (at / columns / rows, at / columns % rows, at % columns);
        let wanted = was + 2.0 * factor(e, j) * factor(e, i);
        assert!((wanted - is).abs() <= 1e-5 * wanted.abs().max(1.0), "{e} {i} {j}: {is}, wanted {wanted}");
    }
    let both = format!("{module}.gate_up_proj");
    assert_eq!(merged.to_f32(&both), before.to_f32(&both));
    let notes = merged.notes().join("; ");
    assert!(notes.contains("1 of the matrices were quantized"), "{notes}");
    lift(&merged, &Options::default()).unwrap();
}

/// An adapter of the fixtures with other settings.
fn with_settings(name: &str, changes: Value) -> (Folder, Adapter) {
    let (from, folder) = (golden("adapters").join(name), Folder::new());
    let config: Value = serde_json::from_slice(&std::fs::read(from.join(CONFIG)).unwrap()).unwrap();
    folder.write(CONFIG, with(config, changes).to_string());
    folder.write(FILES[0], std::fs::read(from.join(FILES[0])).unwrap());
    let adapter = Adapter { path: folder.0.clone(), scale: 1.0 };
    (folder, adapter)
}

/// Every setting that selects modules is checked against the modules with factors; missing ones are
/// reported.
#[test]
fn settings_are_held_against_tensors() {
    for (name, base, changes, says) in [
        ("lora", "base", json!({ "target_modules": ["q_proj", "v_proj"] }), "which `target_modules` does not name"),
        ("lora", "base", json!({ "target_modules": ".*_proj" }), ""),
        ("lora", "base", json!({ "target_modules": "all-linear" }), ""),
        ("lora", "base", json!({ "target_modules": "absent" }), ""),
        ("lora", "base", json!({ "target_modules": r"model\.layers\.0\..*" }), "which `target_modules` does not name"),
        ("lora", "base", json!({ "target_modules": "(" }), "which is not a regular expression"),
        ("lora", "base", json!({ "target_modules": 3 }), "where names of modules are expected"),
        ("lora", "base", json!({ "exclude_modules": ["q_proj"] }), "which `exclude_modules` excludes"),
        ("lora", "base", json!({ "exclude_modules": r".*\.1\..*" }), "which `exclude_modules` excludes"),
        ("lora", "base", json!({ "exclude_modules": ["k_proj"] }), ""),
        ("lora", "base", json!({ "layers_to_transform": [0] }), "not in a layer of `layers_to_transform`"),
        ("lora", "base", json!({ "layers_to_transform": 1 }), "not in a layer of `layers_to_transform`"),
        ("lora", "base", json!({ "layers_to_transform": [0, 1] }), ""),
        ("lora", "base", json!({ "layers_to_transform": [0, 1], "layers_pattern": "layers" }), ""),
        ("lora", "base", json!({ "layers_to_transform": [0, 1], "layers_pattern": ["h"] }), "not in a layer of"),
        ("lora", "base", json!({ "layers_to_transform": [0], "target_modules": ".*" }), "which PEFT refuses"),
        ("lora", "base", json!({ "layers_to_transform": ["x"] }), "where numbers of layers are expected"),
        ("lora", "base", json!({ "modules_to_save": ["norm"] }), "`modules_to_save` has `norm`, but the file has no"),
        ("lora", "base", json!({ "modules_to_save": ["score"] }), "`modules_to_save` has `score`, but the file has no"),
        ("saved", "base", json!({ "modules_to_save": ["lm_head", "norm", "score"] }), ""),
        ("lora", "base", json!({ "trainable_token_indices": [3] }), "replaces rows of the embedding table, but the"),
        (
            "lora",
            "biased",
            json!({ "bias": "lora_only" }),
            "but the file has no `model.layers.0.self_attn.q_proj.bias`",
        ),
        ("lora", "base", json!({ "bias": "some" }), "`bias` is \"some\"; supported are none, all, lora_only"),
        (
            "experts",
            "mixture",
            json!({ "target_parameters": ["mlp.gate.weight"] }),
            "`target_parameters` does not name",
        ),
        ("lora", "base", json!({ "target_parameters": ["x"] }), "but the file has factors for none of them"),
        ("lora", "base", json!({ "lora_alpha": null }), "`lora_alpha` is null; it must be a positive number"),
        ("lora", "base", json!({ "peft_type": "PREFIX_TUNING" }), "which adds to the model's inputs"),
    ] {
        let (_folder, adapter) = with_settings(name, changes.clone());
        let opened = Checkpoint::open_with(&golden("adapters").join(base), &[adapter]);
        let found = opened.map_or_else(|e| e.to_string(), |ckpt| ckpt.notes().join("; "));
        match says {
            "" => assert!(found.starts_with("adapter "), "{changes}: {found}"),
            says => assert!(found.contains(says), "{says}: {found}"),
        }
    }
}

/// Modules that the settings name and the file lacks stay unchanged, with a note.
#[test]
fn modules_without_factors_are_noted() {
    let all = ["q_proj", "v_proj", "down_proj"];
    let (folder, adapter) = with_settings("lora", json!({ "target_modules": all }));
    let file = std::fs::read(folder.0.join(FILES[0])).unwrap();
    let kept =
        safetensors::parse(&file).unwrap().into_iter().filter(|(name, _)| !name.contains("layers.1.self_attn.q"));
    let tensors: Vec<_> = kept
        .map(|(name, t)| crate::fixtures::Tensor {
            name,
            dtype: t.dtype.name,
            shape: t.shape,
            data: file[t.bytes].to_vec(),
        })
        .collect();
    folder.write(FILES[0], crate::fixtures::safetensors(&tensors));
    let merged = Checkpoint::open_with(&golden("adapters/base"), std::slice::from_ref(&adapter)).unwrap();
    let note = "1 modules that its settings name have no factors in the file";
    assert!(merged.notes()[0].contains(note), "{:?}", merged.notes());
    folder.write(FILES[0], crate::fixtures::safetensors(&[]));
    let none = Checkpoint::open_with(&golden("adapters/base"), &[adapter]).unwrap_err().to_string();
    assert!(none.contains("holds no tensors, so the adapter changes nothing"), "{none}");
}

/// How a square matrix is stored its module's class says, as in PEFT, whatever `fan_in_fan_out` says.
#[test]
fn square_matrices_are_turned_by_their_class() {
    for (base, module, turned) in
        [("base", "model.layers.0.self_attn.q_proj", false), ("gpt2", "transformer.h.0.attn.c_proj", true)]
    {
        let name = format!("{module}.weight");
        let before = Checkpoint::open(&golden("adapters").join(base)).unwrap();
        let [n, k] = before.info(&name).unwrap().shape[..] else { panic!() };
        assert_eq!(n, k);
        let tensor = |part: &str, shape: [usize; 2]| crate::fixtures::Tensor {
            name: format!("base_model.model.{module}.lora_{part}.weight"),
            dtype: "F32",
            shape: shape.to_vec(),
            data: (0..n).flat_map(|i| (i as f32 * if part == "A" { 1.0 } else { 0.25 } + 1.0).to_le_bytes()).collect(),
        };
        let was = before.to_f32(&name).unwrap();
        for said in [false, true] {
            let folder = Folder::new();
            let tensors = [tensor("A", [1, n]), tensor("B", [n, 1])];
            folder.write(FILES[0], crate::fixtures::safetensors(&tensors));
            let config = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "fan_in_fan_out": said });
            folder.write(CONFIG, config.to_string());
            let adapter = Adapter { path: folder.0.clone(), scale: 1.0 };
            let merged = Checkpoint::open_with(&golden("adapters").join(base), &[adapter]).unwrap();
            for (at, (is, was)) in merged.to_f32(&name).unwrap().iter().zip(&was).enumerate() {
                let (i, o) = if turned { (at / n, at % n) } else { (at % n, at / n) };
                let wanted = was + (i as f32 + 1.0) * (o as f32 * 0.25 + 1.0);
                assert!((is - wanted).abs() < 1e-4, "{base} {said} {at}: {is} {wanted}");
            }
        }
    }
    // A matrix that is no square is not turned to make it fit.
    let folder = Folder::new();
    let base = golden("adapters/base");
    let module = "model.layers.0.mlp.down_proj";
    let ckpt = Checkpoint::open(&base).unwrap();
    let [n, k] = ckpt.info(&format!("{module}.weight")).unwrap().shape[..] else { panic!() };
    let tensor = |part: &str, shape: [usize; 2]| crate::fixtures::Tensor {
        name: format!("base_model.model.{module}.lora_{part}.weight"),
        dtype: "F32",
        shape: shape.to_vec(),
        data: vec![0; shape[0] * shape[1] * 4],
    };
    folder.write(FILES[0], crate::fixtures::safetensors(&[tensor("A", [1, n]), tensor("B", [k, 1])]));
    folder.write(CONFIG, json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1 }).to_string());
    let refused = Checkpoint::open_with(&base, &[Adapter { path: folder.0.clone(), scale: 1.0 }]).unwrap_err();
    assert!(refused.to_string().contains("do not make the base's"), "{refused}");
}
