mod agreement;
mod config;
mod drafters;
mod drafts;
mod entries;
mod families;
mod newcomer;
mod parts;
mod positions;
mod published;
mod renamed;
mod rotations;
mod samples;
mod stacked;
mod tops;
mod towers;
mod wholes;

use super::*;
use crate::config::ConfigError;
use crate::fixtures::{Tensor, random_tensors, write_checkpoint};
use crate::testing::{Folder, config, golden, with};
use llmcc_ir::diag::Diagnostic;
use llmcc_ir::eval::{Batch, State, eval_entry, eval_module};
use llmcc_ir::graph::{Arg, ENCODE, Role};
use llmcc_ir::kv::KvDType;
use llmcc_ir::output::{Output, Rows};
use llmcc_ir::text::print_module;
use llmcc_ir::verify::verify_module;
pub(crate) use newcomer::dummy_config;
use serde_json::{Value, json};

/// f32 state, as the goldens have.
const EXACT: Options = Options {
    kv_dtype: KvDType::F32,
    max_context: None,
    embed: false,
    also_embed: false,
    with_image: false,
    draft_heads: DraftHeads::None,
    hidden_states: false,
};

/// The same for a fixture: the reference of some has LongRoPE's short factors, as it has no longer sequence.
fn exact(name: &str) -> Options {
    let short = ["phi3-longrope", "phi4_multimodal", "minicpm3"];
    Options { max_context: short.contains(&name).then_some(64), ..EXACT }
}

/// A checkpoint with random tensors after `edit`.
fn checkpoint(config: &Value, edit: impl FnOnce(&mut Vec<Tensor>)) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    let mut tensors = random_tensors(config, 1);
    edit(&mut tensors);
    write_checkpoint(&folder.0, config, &tensors).unwrap();
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    (folder, ckpt)
}

fn lifted(config: &Value) -> Module {
    let (_folder, ckpt) = checkpoint(config, |_| ());
    lift(&ckpt, &Options::default()).unwrap()
}

/// The first output of an entry for a batch of new sequences, in f64.
fn evaluated(ckpt: &Checkpoint, module: &Module, entry: usize, batch: &Batch) -> Vec<f64> {
    let weights = |i: usize| {
        let weight = &module.weights[i];
        weight.data.clone().unwrap_or_else(|| ckpt.to_f32(&weight.name).unwrap())
    };
    let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
    eval_entry(module, &module.entries[entry], &weights, &mut states, batch).unwrap().remove(0)
}

/// Asserts that a checkpoint's meaning is Transformers' for a fixture: the f64 evaluation of its
/// graph is closer to Transformers' f64 logits than Transformers' own f32 is.
fn assert_logits_of(name: &str, ckpt: &Checkpoint) {
    assert_eq!(logits_error(name, ckpt), None);
}

/// The error of the logits, if they differ.
fn logits_error(name: &str, ckpt: &Checkpoint) -> Option<String> {
    let module = lift(ckpt, &exact(name)).unwrap();
    let expected = Checkpoint::open(&golden(name).join("golden.safetensors")).unwrap();
    let data = |t: &str| expected.tensor(t).unwrap().data;
    let tokens: Vec<i32> = data("tokens").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    // Goldens of a classifier have the results of whole texts only, or of pairs of texts.
    let kind = ["logits", "hidden"].into_iter().find(|kind| expected.info(kind).is_some());
    let kind = kind.unwrap_or("pooled_f64");
    let doubles = |t: &str| -> Vec<f64> { data(t).as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect() };
    let floats = |t: &str| expected.tensor(t).unwrap().to_f32().into_iter().map(f64::from);
    let f64s: Vec<f64> = if kind == "pooled_f64" { doubles(kind) } else { floats(kind).collect() };
    let weights = |i: usize| ckpt.tensor(&module.weights[i].name).unwrap().to_f32();
    let source: Option<Batch> = expected.info("source").map(|_| {
        let tokens: Vec<i32> = data("source").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        Batch::single(&tokens, 0)
    });
    let source = source.or_else(|| {
        expected.info("features").map(|info| sound(&expected.tensor("features").unwrap().to_f32(), info.shape[1]))
    });
    let eval = |batch: &Batch| {
        let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
        if let Some(source) = &source {
            let encode = module.entries.iter().find(|e| e.name == ENCODE).unwrap();
            let none = eval_entry(&module, encode, &weights, &mut states, source).unwrap();
            assert!(none.is_empty());
        }
        eval_module(&module, &weights, &mut states, batch).unwrap()
    };
    let ours = if kind == "pooled_f64" {
        scores(&module, &expected, eval)
    } else {
        kept(&eval(&Batch::single(&tokens, 0)), tokens.len(), data("at"))
    };
    assert_eq!(ours.len(), f64s.len());
    let error = |x: &mut dyn Iterator<Item = f64>| x.zip(&f64s).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let ours = error(&mut ours.iter().copied());
    let entitled = match kind {
        "pooled_f64" => error(&mut floats("pooled_f32")),
        _ => floats("error_f32").fold(0.0, f64::max),
    };
    // (Not a number is wrong as well.)
    let right = ours <= entitled;
    (!right).then(|| format!("{name}: off by {ours:e}, Transformers in f32 by {entitled:e}"))
}

/// The tokens of a clip of sound with their rows: the frames `2i - 2` to `2i + 2`, zeros outside.
fn sound(frames: &[f32], mels: usize) -> Batch {
    let frame = |at: usize| match at.checked_sub(2).and_then(|at| frames.get(at * mels..(at + 1) * mels)) {
        Some(frame) => frame.to_vec(),
        None => vec![0.0; mels],
    };
    let tokens = frames.len() / mels / 2;
    let hidden = (0..tokens).flat_map(|token| (0..5).flat_map(move |j| frame(2 * token + j))).collect();
    Batch { hidden, ..Batch::single(&vec![0; tokens], 0) }
}

/// The rows that a fixture keeps.
fn kept(rows: &[f64], tokens: usize, at: &[u8]) -> Vec<f64> {
    let width = rows.len() / tokens;
    let at = at.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as usize);
    at.flat_map(|i| &rows[i * width..(i + 1) * width]).copied().collect()
}

/// Scores of the texts of a classifier's fixture.
fn scores(module: &Module, expected: &Checkpoint, eval: impl Fn(&Batch) -> Vec<f64>) -> Vec<f64> {
    let ints = |t: &str| -> Vec<i32> {
        let raw = expected.tensor(t).unwrap().data;
        raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    };
    let (texts, lengths) = (ints("texts"), ints("lengths"));
    let types = if expected.info("types").is_some() { ints("types") } else { vec![0; texts.len()] };
    let Output::Rows(Rows { pool, width, .. }) = module.output() else { panic!("no rows") };
    let mut ours = vec![];
    let mut start = 0;
    for n in lengths.iter().map(|n| *n as usize) {
        let text = start..start + n;
        let batch = Batch { types: types[text.clone()].to_vec(), ..Batch::single(&texts[text], 0) };
        let rows = eval(&batch);
        ours.extend(pool.of(&rows, width));
        start += n;
    }
    ours
}

/// A classifier has a name for each of its rows, if it has any.
#[test]
fn names_of_classes_are_those_of_rows() {
    let (from, folder) = (golden("bert_classes"), Folder::new());
    folder.write("model.safetensors", std::fs::read(from.join("model.safetensors")).unwrap());
    let config: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    let names = |ids: &[usize]| ids.iter().map(|i| (i.to_string(), json!(format!("L{i}")))).collect::<Value>();
    for (changes, says) in [
        (json!({ "id2label": names(&[0, 1, 2]) }), ""),
        (json!({ "id2label": "absent" }), ""),
        (json!({ "id2label": names(&[0, 1, 2, 3, 4]) }), "names 5 classes, and `classifier.weight` has 3 rows"),
        (json!({ "id2label": names(&[0, 1]) }), "names 2 classes, and `classifier.weight` has 3 rows"),
        (json!({ "id2label": names(&[0, 1, 7]) }), "names class 7, and `classifier.weight` has 3 rows"),
        (json!({ "id2label": "absent", "num_labels": 5 }), "`num_labels` in config.json is 5, and"),
    ] {
        folder.write("config.json", with(config.clone(), changes).to_string());
        let found = lift(&Checkpoint::open(&folder.0).unwrap(), &Options::default()).map(|_| ());
        let found = found.map_or_else(|e| e.to_string(), |()| String::new());
        assert!(if says.is_empty() { found.is_empty() } else { found.contains(says) }, "{says}: {found}");
    }
}

#[test]
fn logits_equal_transformers() {
    let wrong: Vec<String> =
        goldens().filter_map(|name| logits_error(name, &Checkpoint::open(&golden(name)).unwrap())).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The text model of one that sees images too, in the layouts of older and newer files.
#[test]
fn text_models_inside_others() {
    let ckpt = Checkpoint::open(&golden("gemma3")).unwrap();
    let names: Vec<String> = ckpt.names().map(String::from).collect();
    for layout in ["language_model.model.", "model.language_model."] {
        let rename = |name: &String| {
            let t = ckpt.tensor(name).unwrap();
            Tensor {
                name: name.replacen("model.", layout, 1),
                dtype: "BF16",
                shape: t.shape.clone(),
                data: t.data.to_vec(),
            }
        };
        let mut tensors: Vec<Tensor> = names.iter().map(rename).collect();
        tensors.push(Tensor {
            name: "vision_tower.patch.weight".into(),
            dtype: "F32",
            shape: vec![1],
            data: vec![0; 4],
        });
        let mut text = ckpt.config().clone();
        let whole = json!({
            "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": { "hidden_size": 8 },
            "eos_token_id": [1, 5], "image_token_index": 7,
        });
        text.as_object_mut().unwrap().remove("eos_token_id");
        let config = with(whole, json!({ "text_config": text }));
        let folder = Folder::new();
        write_checkpoint(&folder.0, &config, &tensors).unwrap();
        let nested = Checkpoint::open(&folder.0).unwrap();
        assert_logits_of("gemma3", &nested);
        let model = Model::parse(nested.config()).unwrap();
        assert_eq!(
            (model.unread.as_slice(), &model.facts().eos[..]),
            (&["`vision_config` is {\"hidden_size\":8}".to_string()][..], &[1, 5][..])
        );
        let unused = |ckpt: &Checkpoint| crate::unused::find(ckpt, &lift(ckpt, &EXACT).unwrap()).unwrap();
        assert_eq!(unused(&nested), None);
        tensors.push(Tensor {
            name: format!("{layout}layers.9.mlp.up_proj.weight"),
            dtype: "F32",
            shape: vec![1],
            data: vec![0; 4],
        });
        write_checkpoint(&folder.0, &config, &tensors).unwrap();
        assert_eq!(unused(&Checkpoint::open(&folder.0).unwrap()).unwrap().tensors.len(), 1);
        // Only parts that are known are left out.
        for stranger in ["extra.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"] {
            tensors.last_mut().unwrap().name = stranger.into();
            write_checkpoint(&folder.0, &config, &tensors).unwrap();
            let found = unused(&Checkpoint::open(&folder.0).unwrap()).unwrap();
            assert_eq!(found.tensors, [stranger]);
        }
    }
}

#[test]
fn the_reference_is_the_pinned_one() {
    let pinned = include_str!("../../../tests/goldens/requirements.txt");
    assert!(pinned.contains(&REFERENCE.to_lowercase().replace(' ', "==")), "{REFERENCE}");
}

#[test]
fn modules_are_valid() {
    for name in goldens() {
        let module = lift(&Checkpoint::open(&golden(name)).unwrap(), &EXACT).unwrap();
        // The bias of scores by distance is put in order for each layer: some kilobytes. So are the keys of distances.
        let families = ["mpnet", "t5", "mt5", "umt5", "switch", "deberta", "xlnet"];
        let buckets = families.iter().any(|family| name.starts_with(family));
        let by_distance = |d: &Diagnostic| d.code == "unshared-weight" && buckets;
        let found: Vec<Diagnostic> = verify_module(&module).into_iter().filter(|d| !by_distance(d)).collect();
        assert_eq!(found, [], "{name}");
    }
}

/// Fixtures of the same graph as another, but for the numbers in it.
const SAME_GRAPH: [&str; 5] = ["llama3", "llama3_sharded", "llama_linear", "llama_bf16", "llama_f16"];

#[test]
fn modules_print_as_before() {
    for name in goldens().filter(|name| !SAME_GRAPH.contains(name)) {
        // A table of all positions would be most of the text.
        let options = Options { max_context: (name == "recurrent_gemma").then_some(64), ..Options::default() };
        let module = lift(&Checkpoint::open(&golden(name)).unwrap(), &options).unwrap();
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            let text = llmcc_test_support::folded(&print_module(&module));
            insta::assert_snapshot!(format!("lift-{name}"), text);
        });
    }
}

/// Transformers writes more fields than published files have, and leaves some out, as its classes
/// derive them.
#[test]
fn saved_configurations_mean_the_same() {
    let saved: serde_json::Map<String, Value> =
        serde_json::from_str(include_str!("../../../tests/goldens/saved.json")).unwrap();
    let mut wrong = vec![];
    let added = &saved[""];
    for (name, changes) in saved.iter().filter(|(name, _)| !name.is_empty()) {
        let own: Value = serde_json::from_slice(&std::fs::read(golden(name).join("config.json")).unwrap()).unwrap();
        let config = with(with(added.clone(), own), changes.clone());
        let named = with(config.clone(), json!({ "_name_or_path": "a/b" }));
        let unread = Model::parse(&named).map_or_else(|e| vec![e.to_string()], |m| m.unread);
        let of_text = unread.into_iter().filter(|u| !u.contains("_config` is"));
        wrong.extend(of_text.map(|what| format!("{name}: {what}")));
        let folder = Folder::new();
        for file in std::fs::read_dir(golden(name)).unwrap() {
            let file = file.unwrap();
            std::os::unix::fs::symlink(file.path(), folder.0.join(file.file_name())).unwrap();
        }
        std::fs::remove_file(folder.0.join("config.json")).unwrap();
        std::fs::write(folder.0.join("config.json"), config.to_string()).unwrap();
        let text = |ckpt: &std::path::Path| {
            Checkpoint::open(ckpt).and_then(|c| lift(&c, &EXACT)).map(|m| print_module(&m)).map_err(|e| e.to_string())
        };
        match (text(&golden(name)), text(&folder.0)) {
            (Ok(plain), Ok(saved)) if plain == saved => {}
            (_, Err(e)) => wrong.push(format!("{name}: {e}")),
            _ => wrong.push(format!("{name}: another module")),
        }
    }
    assert!(saved.len() > 100 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn equal_layers_share_a_function() {
    let names = |m: &Module| m.funcs.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    let calls = |m: &Module| m.calls().map(|c| c.func).collect::<Vec<_>>();
    let m = lifted(&with(config("llama"), json!({ "num_hidden_layers": 5 })));
    assert_eq!(
        (names(&m), calls(&m)),
        (vec!["embed".into(), "layer".into(), "head".into()], vec![0, 1, 1, 1, 1, 1, 2])
    );
    assert_eq!(m.states.len(), 5);
    let windows =
        json!({ "num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2 });
    let m = lifted(&with(config("qwen2"), windows));
    assert_eq!(
        (names(&m), calls(&m)),
        (vec!["embed".into(), "layer".into(), "layer1".into(), "head".into()], vec![0, 1, 1, 2, 2, 3])
    );
    assert_eq!(m.states.iter().map(|s| s.paged().unwrap().window).collect::<Vec<_>>(), [None, None, Some(8), Some(8)]);
    // A layer stored in another type is another layer.
    let (_folder, ckpt) = checkpoint(&config("llama"), |t| {
        let w = t.iter_mut().find(|t| t.name == "model.layers.1.mlp.up_proj.weight").unwrap();
        (w.dtype, w.data) = ("F32", vec![0; 2 * w.data.len()]);
    });
    assert_eq!(names(&lift(&ckpt, &EXACT).unwrap()), ["embed", "layer", "layer1", "head"]);
}

#[test]
fn a_tied_table_is_one_shared_weight() {
    let roles = |m: &Module| {
        let table = m.weights.iter().position(|w| w.name == "model.embed_tokens.weight").unwrap();
        let used = m.calls().flat_map(|c| c.args.iter().zip(&m.funcs[c.func].params));
        used.filter(|(a, _)| **a == Arg::Weight(table)).map(|(_, p)| p.role).collect::<Vec<_>>()
    };
    assert_eq!(
        roles(&lifted(&with(config("llama"), json!({ "tie_word_embeddings": true })))),
        [Role::SharedWeight, Role::SharedWeight]
    );
    assert_eq!(roles(&lifted(&config("llama"))), [Role::Weight]);
}

#[test]
fn windows_longer_than_the_context_vanish() {
    let (_folder, ckpt) = checkpoint(&with(config("mistral"), json!({ "sliding_window": 32 })), |_| ());
    let window =
        |max_context| lift(&ckpt, &Options { max_context, ..EXACT }).unwrap().states[0].paged().unwrap().window;
    assert_eq!((window(None), window(Some(33)), window(Some(32)), window(Some(8))), (Some(32), Some(32), None, None));
}

/// The message for a llama checkpoint whose tensors are edited.
fn message(changes: Value, edit: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let config = with(config("llama"), changes);
    let (folder, ckpt) = checkpoint(&config, edit);
    let text = lift(&ckpt, &EXACT).map_or_else(|e| e.to_string(), |_| "ok".into());
    text.replace(&*folder.0.to_string_lossy(), "DIR")
}

fn at<'a>(tensors: &'a mut [Tensor], name: &str) -> &'a mut Tensor {
    tensors.iter_mut().find(|t| t.name == name).unwrap()
}

#[test]
fn tensors_that_do_not_fit_the_configuration() {
    const UP: &str = "model.layers.1.mlp.up_proj.weight";
    let none = |_: &mut Vec<Tensor>| ();
    assert_eq!(message(json!({}), none), "ok");
    assert_eq!(
        message(json!({}), |t| t.retain(|t| t.name != UP)),
        "tensor `model.layers.1.mlp.up_proj.weight` is missing (LlamaForCausalLM needs it with shape [32, 16]); the checkpoint is incomplete or belongs to another architecture"
    );
    assert_eq!(
        message(json!({}), |t| t.retain(|t| t.name != "lm_head.weight")),
        "tensor `lm_head.weight` is missing (LlamaForCausalLM needs it with shape [32, 16]); if the head shares the embedding table, set `tie_word_embeddings` to true in config.json"
    );
    assert_eq!(
        message(json!({}), |t| t.iter_mut().for_each(|t| t.name = t.name.replace("model.", ""))),
        "tensor `model.embed_tokens.weight` is missing (LlamaForCausalLM needs it with shape [32, 16]); it is there without the `model.` prefix: this is a model without a head, for embeddings: compile it with --embed"
    );
    assert_eq!(
        message(json!({}), |t| at(t, UP).name = UP.replace(".weight", ".qweight")),
        "tensor `model.layers.1.mlp.up_proj.weight` is missing (LlamaForCausalLM needs it with shape [32, 16]); its quantized form is there: use the unquantized checkpoint and compile with --w8 or --w4"
    );
    assert_eq!(
        message(json!({}), |t| at(t, UP).shape = vec![16, 32]),
        "model.safetensors: tensor `model.layers.1.mlp.up_proj.weight` has shape [16, 32], but config.json makes it [32, 16]; the files belong to different models, or config.json was edited"
    );
    let retype = |t: &mut Tensor, dtype, bytes: usize| {
        (t.dtype, t.data) = (dtype, vec![0; t.shape.iter().product::<usize>() * bytes]);
    };
    assert_eq!(
        message(json!({}), |t| retype(at(t, UP), "F8_E4M3", 1)),
        "model.safetensors: tensor `model.layers.1.mlp.up_proj.weight` is stored as F8_E4M3; weights must be \
            F32, F16 or BF16: its quantization is not one that config.json may declare; use the unquantized \
            checkpoint and compile with --w8 or --w4"
    );
    for (dtype, bytes) in [("F64", 8), ("I8", 1)] {
        assert_eq!(
            message(json!({}), |t| retype(at(t, UP), dtype, bytes)),
            format!(
                "model.safetensors: tensor `model.layers.1.mlp.up_proj.weight` is stored as {dtype}; weights must be F32, F16 or BF16: convert the checkpoint, for example with `model.to(torch.bfloat16).save_pretrained(...)`"
            )
        );
    }
    let folder = Folder::new();
    write_checkpoint(&folder.0, &with(config("llama"), json!({ "model_type": "zebra" })), &[]).unwrap();
    let error = lift(&Checkpoint::open(&folder.0).unwrap(), &EXACT).unwrap_err();
    assert!(matches!(&error, FrontendError::Config { source: ConfigError::UnknownArch { .. }, .. }), "{error}");
    assert!(
        error.to_string().contains("config.json: architecture `zebra` is not supported; supported are llama, "),
        "{error}"
    );
}

#[test]
fn contexts_beyond_the_model() {
    let (_folder, ckpt) = checkpoint(&config("llama"), |_| ());
    let context = |n| {
        lift(&ckpt, &Options { max_context: Some(n), ..EXACT }).map(|m| m.info.max_context).map_err(|e| e.to_string())
    };
    let error = |n| {
        Err(format!(
            "a context of {n} tokens exceeds the model's 64 positions; give 1 to 64 (or set rope_scaling in \
                config.json)"
        ))
    };
    assert_eq!([context(0), context(1), context(64), context(65)], [error(0), Ok(1), Ok(64), error(65)]);
}
