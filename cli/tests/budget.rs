//! Error budgets hold for the packed weights.

use std::path::Path;
use std::process::{Command, Output};

const HIDDEN: usize = 256;
const FFN: usize = 1024;
const VOCAB: usize = 4096;

/// SplitMix64, as a number in −1…1.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// A Llama of one layer whose elements are `element(rows, row, column, random)`.
fn checkpoint(folder: &Path, element: impl Fn(usize, usize, usize, f32) -> f32) {
    let config = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": {HIDDEN}, "intermediate_size": {FFN}, "vocab_size": {VOCAB},
        "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": false, "torch_dtype": "float32",
        "attention_bias": false, "mlp_bias": false}}"#
    );
    std::fs::write(folder.join("config.json"), config).expect("config");
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        (layer("input_layernorm"), vec![HIDDEN]),
        (layer("self_attn.q_proj"), vec![HIDDEN, HIDDEN]),
        (layer("self_attn.k_proj"), vec![HIDDEN, HIDDEN]),
        (layer("self_attn.v_proj"), vec![HIDDEN, HIDDEN]),
        (layer("self_attn.o_proj"), vec![HIDDEN, HIDDEN]),
        (layer("post_attention_layernorm"), vec![HIDDEN]),
        (layer("mlp.gate_proj"), vec![FFN, HIDDEN]),
        (layer("mlp.up_proj"), vec![FFN, HIDDEN]),
        (layer("mlp.down_proj"), vec![HIDDEN, FFN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]),
    ];
    let (mut header, mut data, mut state) = (vec![], vec![], 1);
    for (name, shape) in tensors {
        let (from, columns) = (data.len(), shape[shape.len() - 1]);
        for i in 0..shape.iter().product::<usize>() {
            let v = if shape.len() == 1 {
                1.0
            } else {
                element(shape[0], i / columns, i % columns, random(&mut state) * 0.05)
            };
            data.extend(v.to_le_bytes());
        }
        header.push(format!(
            r#""{name}": {{"dtype": "F32", "shape": {shape:?}, "data_offsets": [{from}, {}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(", "));
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("model.safetensors"), file).expect("weights");
}

fn llmcc(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmcc")).current_dir(folder).args(args).output().expect("llmcc runs")
}

fn compile(folder: &Path, more: &[&str]) -> Result<serde_json::Value, String> {
    let _ = std::fs::remove_file(folder.join("m.so"));
    let done = llmcc(folder, &[&["compile", ".", "-o", "m.so", "--target", "x86-64"], more].concat());
    if !done.status.success() {
        assert!(!folder.join("m.so").exists());
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&llmcc(folder, &["inspect", "m.so", "--json"]).stdout).expect("a manifest"))
}

/// Eight rows of each large matrix, in blocks that no sample takes, are so large that they are most
/// of it, and so uneven that 4 bits lose a third of them.
fn eight_large_rows(rows: usize, row: usize, column: usize, v: f32) -> f32 {
    match rows >= FFN && row < 8 {
        true if column.is_multiple_of(32) => 1000.0,
        true => 70f32.copysign(v),
        false => v,
    }
}

#[test]
fn budgets_are_kept_where_samples_mislead() {
    let f = tempfile::tempdir().expect("temporary folder");
    checkpoint(f.path(), eight_large_rows);
    let first = compile(f.path(), &["--error-budget", "0.09"]).expect("compiles");
    let bytes = std::fs::read(f.path().join("m.so")).expect("artifact");
    let budget = &first["certificate"]["budget"];
    let real = budget["rms_error"].as_f64().expect("an error");
    assert!(real > 0.0 && real <= 0.09, "{budget}");
    // By whole tensors, so that the prediction equals the packed error; also of each part.
    assert!((budget["predicted_rms_error"].as_f64().expect("an error") - real).abs() < 1e-9, "{budget}");
    let head = budget["stored"]
        .as_array()
        .expect("choices")
        .iter()
        .find(|s| s["what"] == "head.w" || s["what"].to_string().contains("head"));
    let head = head.and_then(|s| s["relative_rms_error"].as_f64()).expect("the head");
    let tensors = first["weights"]["tensors"].as_array().expect("tensors");
    let packed = tensors.iter().find(|t| t["name"] == "lm_head.weight").expect("the head");
    assert_eq!(head, packed["relative_rms_error"].as_f64().unwrap_or(0.0));
    // The same again, to the byte; and without weights the same code.
    compile(f.path(), &["--error-budget", "0.09"]).expect("compiles");
    assert!(std::fs::read(f.path().join("m.so")).expect("artifact") == bytes);
    let absent = compile(f.path(), &["--error-budget", "0.09", "--weights", "absent"]).expect("compiles");
    assert_eq!((&absent["code"], &absent["versions"]), (&first["code"], &first["versions"]));
}

/// One value that no sample has and whose group's scale is beyond f16, so that no format of
/// integers holds its tensor.
#[test]
fn formats_too_small_for_a_value_are_left_out() {
    let f = tempfile::tempdir().expect("temporary folder");
    checkpoint(f.path(), |rows, row, column, v| if (rows, row, column) == (VOCAB, 3, 5) { 1e7 } else { v });
    let head = |t: &&serde_json::Value| t["name"] == "lm_head.weight";
    for more in [&["--weights", "embed"][..], &["--weights", "absent"]] {
        let manifest = compile(f.path(), &[&["--error-budget", "0.5", "--no-golden"], more].concat())
            .unwrap_or_else(|e| panic!("{more:?}: {e}"));
        let tensors = manifest["weights"]["tensors"].as_array().expect("tensors");
        let storage =
            |t: Option<&serde_json::Value>| t.and_then(|t| t["storage"].as_str()).unwrap_or_default().to_owned();
        assert!(storage(tensors.iter().find(head)).starts_with("f32"), "{tensors:?}");
        assert!(tensors.iter().any(|t| storage(Some(t)).starts_with("w4")), "{tensors:?}");
    }
}

#[test]
fn budgets_of_any_size_compile() {
    let f = tempfile::tempdir().expect("temporary folder");
    checkpoint(f.path(), |_, _, _, v| v);
    for budget in ["0", "5e-324", "1e-300", "1e-12", "1"] {
        let manifest =
            compile(f.path(), &["--error-budget", budget, "--no-golden"]).unwrap_or_else(|e| panic!("{budget}: {e}"));
        let real = manifest["certificate"]["rms_error"].as_f64().expect("an error");
        assert!(real <= budget.parse().expect("a number"), "{budget}: {real}");
    }
}

#[test]
fn weights_of_any_magnitude_compile_or_are_named() {
    let f = tempfile::tempdir().expect("temporary folder");
    for factor in [0.0f32, 1e-30, 1e4] {
        checkpoint(f.path(), |_, row, _, v| if row % 5 == 0 { 0.0 } else { v * factor });
        for more in [&["--error-budget", "0.09"][..], &["--w8"], &["--dtype", "f32"]] {
            match compile(f.path(), more) {
                // Its scales are f16, in which these are zero; before, the whole matrix was.
                Err(said) if factor == 1e-30 && more == ["--w8"] => {
                    assert!(said.contains("embed_tokens") && said.contains("give --format w8zg32"), "{said}");
                }
                made => drop(made.unwrap_or_else(|e| panic!("{factor:e} {more:?}: {e}"))),
            }
        }
    }
    checkpoint(f.path(), |_, _, _, v| v * 1e30);
    for more in [&["--error-budget", "0.09"][..], &["--w8"], &["--dtype", "f32"]] {
        let said = compile(f.path(), more).expect_err("such products are beyond f32");
        assert!(!said.contains("internal error") && !said.contains("panicked"), "{more:?}: {said}");
    }
    checkpoint(f.path(), |rows, row, column, v| if (rows, row, column) == (FFN, 700, 9) { f32::NAN } else { v });
    for more in [&["--error-budget", "0.09"][..], &["--w8"], &["--dtype", "f32"]] {
        let said = compile(f.path(), more).expect_err("not a number");
        // It is in two matrices, which are read side by side. The gain of the norm before may be
        // folded into them.
        let matrix = ["mlp.gate_proj.weight", "mlp.up_proj.weight"].iter().any(|name| said.contains(name));
        let named = matrix && [": row 700, column ", "not a finite number"].iter().all(|part| said.contains(part));
        assert!(named, "{more:?}: {said}");
    }
}
