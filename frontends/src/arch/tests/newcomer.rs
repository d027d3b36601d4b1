//! The cost of a newcomer, and its means: `arch/models/dummy.rs`.

use super::*;
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{self, Part};
use crate::arch::blocks::outputs::Entry;
use crate::arch::models::FILES;
use llmcc_ir::graph::{Op, Value as Id};
use std::collections::BTreeMap;
use std::path::Path;

/// A small valid configuration of the dummy.
pub(crate) fn dummy_config() -> Value {
    json!({
        "architectures": ["DummyModel"], "model_type": "dummy", "n_vocab": 32, "n_embd": 16, "n_inner": 24, "n_layer": 2, "n_head": 4, "d_head": 4,
        "n_positions": 64, "layer_norm_epsilon": 1e-5, "sliding_window": null,
    })
}

/// Rust files of this crate that are not only tests.
fn sources(dir: &Path, out: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "snapshots" {
            sources(&path, out);
        } else if name.ends_with(".rs") && !["tests.rs", "testing.rs", "dummy.rs"].contains(&&*name) {
            out.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// One file and one line. Beyond that, the tests only know its configuration, which the others have
/// among the goldens.
#[test]
fn an_architecture_is_one_file_and_one_line() {
    let mut files = vec![];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    for name in FILES {
        // Parts of multimodal models have the names of models. Names that GGUF files and other programs have for
        // architectures, and the tokenizer classes of Transformers, stand in tables of their own, which need not have
        // all; and a method of quantization may have the name of one.
        let gguf = |path: &str| {
            path.contains("checkpoint/gguf/")
                || path.contains("tokenizer/gguf/")
                || ["mod", "settings"].iter().any(|f| path.ends_with(&format!("checkpoint/quantized/{f}.rs")))
                || ["consolidated", "rwkv_cpp", "llama2c/ternary"]
                    .iter()
                    .any(|f| path.ends_with(&format!("checkpoint/{f}.rs")))
                || path.ends_with("reading/other_modalities.rs")
                // Published drafts are layers of Llama.
                || path.ends_with("reading/drafter.rs")
                || ["gguf", "cuts", "classes"].iter().any(|f| path.ends_with(&format!("tokenizer/{f}.rs")))
        };
        let of_other_files =
            files.iter().filter(|(path, _)| !path.ends_with(&format!("models/{name}.rs")) && !gguf(path));
        let lines: Vec<&str> = of_other_files
            .flat_map(|(_, text)| text.lines().take_while(|l| *l != "#[cfg(test)]"))
            // Kinds of norms have the names of models that have them.
            .filter(|l| !l.contains("qk_norm_type"))
            // A whole has its `model_type` in common with a part of it that stands alone.
            .filter(|l| l.trim() != format!("model_type: \"{name}\","))
            // Another name of the same is a file of one line.
            .filter(|l| !l.ends_with(&format!("..{name}::ARCH }};")))
            .filter(|l| {
                l.trim_end_matches(';').ends_with(&format!("mod {name}"))
                    || l.contains(&format!("\"{name}\""))
                    || l.contains(&format!("{name}::"))
            })
            .collect();
        assert_eq!(lines, [format!("    mod {name};")], "{name}");
    }
}

/// The guide shows a file as it is.
#[test]
fn the_guide_is_true() {
    let guide = include_str!("../../../../docs/adding-architecture.md");
    assert!(guide.contains(&format!("```rust\n{}```", include_str!("../models/qwen2.rs"))));
}

/// f32 tensors of a fixture of Llama.
fn llama() -> (Value, BTreeMap<String, Vec<f32>>) {
    let ckpt = Checkpoint::open(&golden("llama")).unwrap();
    let names: Vec<String> = ckpt.names().map(String::from).collect();
    let tensor = |name: String| {
        let t = ckpt.tensor(&name).unwrap();
        (name, t.to_f32())
    };
    (ckpt.config().clone(), names.into_iter().map(tensor).collect())
}

fn f32_tensor(name: String, shape: &[usize], data: &[f32]) -> Tensor {
    assert_eq!(shape.iter().product::<usize>(), data.len(), "{name}");
    Tensor { name, dtype: "F32", shape: shape.to_vec(), data: data.iter().flat_map(|x| x.to_le_bytes()).collect() }
}

/// The rows of head `h`, with the halves of each head as neighbours.
fn neighbours(w: &[f32], h: usize, dim: usize, hidden: usize) -> Vec<f32> {
    let row = |r: usize| w[(h * dim + r) * hidden..][..hidden].to_vec();
    (0..dim / 2).flat_map(|j| [row(j), row(j + dim / 2)].concat()).collect()
}

fn transpose(w: &[f32], rows: usize) -> Vec<f32> {
    let cols = w.len() / rows;
    (0..cols).flat_map(|c| (0..rows).map(move |r| w[r * cols + c])).collect()
}

/// A checkpoint of Llama in the dummy's forms has the logits that Transformers gives the original:
/// fused, transposed and permuted weights are read correctly.
#[test]
fn other_forms_of_weights_mean_the_same() {
    let (config, tensors) = llama();
    let size = |name: &str| config[name].as_u64().unwrap() as usize;
    let (hidden, heads, kv_heads, dim, ffn) = (
        size("hidden_size"),
        size("num_attention_heads"),
        size("num_key_value_heads"),
        size("head_dim"),
        size("intermediate_size"),
    );
    let get = |name: &str| &tensors[name][..];
    let mut out = vec![
        f32_tensor("wte.weight".into(), &[size("vocab_size"), hidden], get("model.embed_tokens.weight")),
        f32_tensor("out.weight".into(), &[size("vocab_size"), hidden], get("lm_head.weight")),
        f32_tensor("ln_f.weight".into(), &[hidden], get("model.norm.weight")),
    ];
    for i in 0..size("num_hidden_layers") {
        let of = |part: &str| get(&format!("model.layers.{i}.{part}.weight"));
        let (q, k, v) = (of("self_attn.q_proj"), of("self_attn.k_proj"), of("self_attn.v_proj"));
        let qkv = (0..heads).flat_map(|h| {
            let g = h / (heads / kv_heads);
            [
                neighbours(q, h, dim, hidden),
                neighbours(k, g, dim, hidden),
                v[g * dim * hidden..][..dim * hidden].to_vec(),
            ]
            .concat()
        });
        let gate_up = [of("mlp.gate_proj"), of("mlp.up_proj")].concat();
        let mut add = |part: &str, shape: &[usize], data: &[f32]| {
            out.push(f32_tensor(format!("h.{i}.{part}.weight"), shape, data))
        };
        add("ln_1", &[hidden], of("input_layernorm"));
        add("ln_2", &[hidden], of("post_attention_layernorm"));
        add("attn.c_attn", &[3 * heads * dim, hidden], &qkv.collect::<Vec<_>>());
        add("attn.c_proj", &[heads * dim, hidden], &transpose(of("self_attn.o_proj"), hidden));
        add("mlp.c_fc", &[hidden, 2 * ffn], &transpose(&gate_up, 2 * ffn));
        add("mlp.c_proj", &[hidden, ffn], of("mlp.down_proj"));
    }
    let mut own = dummy_config();
    for (ours, theirs) in [
        ("n_vocab", "vocab_size"),
        ("n_embd", "hidden_size"),
        ("n_inner", "intermediate_size"),
        ("n_layer", "num_hidden_layers"),
    ] {
        own[ours] = config[theirs].clone();
    }
    (own["d_head"], own["layer_norm_epsilon"]) = (json!(dim), config["rms_norm_eps"].clone());
    let folder = Folder::new();
    write_checkpoint(&folder.0, &own, &out).unwrap();
    assert_logits_of("llama", &Checkpoint::open(&folder.0).unwrap());
}

/// A shape mistake in the file of an architecture says where, instead of a panic: function, layer,
/// operation, file and line.
#[test]
fn structures_that_do_not_type() {
    let (_folder, ckpt) = checkpoint(&config("llama"), |_| ());
    let model = Model::parse(ckpt.config()).unwrap();
    let mut l = Lifter::new(model.origin(Source::Checkpoint(&ckpt)), Entry::default(), KvDType::F32, 64);
    let mut f = l.layer("layer", 3);
    let positions = f.input(llmcc_ir::graph::Input::Positions);
    let (y, line) = (f.op(Op::MatMul, &[positions, positions]), line!());
    let error = f.call(&[y]).unwrap_err().to_string().replace(&*ckpt.config_path().to_string_lossy(), "PATH");
    assert_eq!(
        error,
        format!(
            "PATH: LlamaForCausalLM, function `layer` of layer 3: operation `matmul` of (i32[T], i32[T]) at {}:{line}: argument 1 of `matmul` must be a float matrix, not i32[T]; \
             if this is the model's own config.json, the mistake is in the architecture's file",
            file!()
        )
    );
    let mut f = l.func("head");
    let unnamed: Id = f.matrix(names::ATTN_Q_NORM, [4, 4]);
    let mistake = f.call(&[unnamed]).unwrap_err().to_string();
    assert!(mistake.contains("`model.layers..self_attn.q_norm.weight` is missing"), "{mistake}");
    let mut f = l.func("other");
    let unnamed = f.matrix(Part("attn.nothing"), [4, 4]);
    let mistake = f.call(&[unnamed]).unwrap_err().to_string();
    assert!(mistake.contains("function `other`: no tensor is named for parameter `attn.nothing.w`"), "{mistake}");
}
