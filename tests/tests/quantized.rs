//! Checkpoints that are quantized already: compiled in their own bits, they compute the same as
//! their numbers.

use llmcc_cli::manifest::Manifest;
use llmcc_codegen::cpu::CpuBackend;
use llmcc_ir::kernel::{Kernel, ParamId, ParamKind, RowElem};
use llmcc_ir::quant::Format;
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, Golden, argmax, golden, greedy, logits_in_pieces, options, shared};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::path::Path;

/// Logits of 24 tokens.
fn logits(options: &llmcc_cli::session::CompileOptions) -> Vec<f32> {
    let artifact = Artifact::compile(options);
    let model = artifact.open(1);
    let seq = model.seq_new().expect("a sequence");
    let tokens: Vec<i32> = (0..24).map(|i| i * 7 % 60).collect();
    let rows: Vec<u32> = (0..24).collect();
    model.step(&tokens, &[seq; 24], &rows).expect("a step")
}

/// The largest difference, relative to the largest logit.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = a.iter().fold(0f32, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0f32, |m, (x, y)| m.max((x - y).abs())) / largest
}

/// A GGUF file of floats is the model that it was made of, to the bit.
#[test]
fn a_converted_model_computes_the_same() {
    let (converted, original) = (golden("gguf/llama_f16.gguf"), golden("llama_f16"));
    assert_eq!(logits(&options(&converted)), logits(&options(&original)));
}

/// The bits of a number in f16; a number without an exponent there is 0.
fn half(x: f32) -> u16 {
    let bits = llmcc_ir::quant::round_f16(x).to_bits();
    let of_exponent = (bits >> 23 & 0xff).checked_sub(113).map(|e| (e + 1) << 10 | (bits >> 13 & 0x3ff));
    (bits >> 16 & 0x8000) as u16 | of_exponent.unwrap_or(0) as u16
}

/// A matrix that is not of the type of most keeps its numbers, whatever stands beside it in a product.
#[test]
fn matrices_keep_their_types() {
    let (from, to) = (golden("llama_bf16"), tempfile::tempdir().expect("a folder"));
    let bytes = std::fs::read(from.join("model.safetensors")).expect("weights");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let other = |name: &str, bf16: &[u8]| {
        let numbers = bf16.as_chunks().0.iter().map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16));
        let numbers = numbers.map(|x| x * 1.003_906_2 + 1e-5);
        match name {
            "model.layers.1.mlp.down_proj.weight" => Some((Dtype::F32, numbers.flat_map(f32::to_le_bytes).collect())),
            "model.layers.0.self_attn.q_proj.weight" => {
                let halves = numbers.flat_map(|x| half(x).to_le_bytes());
                Some((Dtype::F16, halves.collect::<Vec<u8>>()))
            }
            _ => None,
        }
    };
    let made: HashMap<String, (Dtype, Vec<u8>)> =
        file.iter().filter_map(|(name, t)| Some((name.to_string(), other(name, t.data())?))).collect();
    assert_eq!(made.len(), 2);
    let views = file.iter().map(|(name, t)| match made.get(name) {
        Some((dtype, data)) => (name, TensorView::new(*dtype, t.shape().to_vec(), data).expect("a tensor")),
        None => (name, t),
    });
    safetensors::serialize_to_file(views, None, &to.path().join("model.safetensors")).expect("written");
    std::fs::copy(from.join("config.json"), to.path().join("config.json")).expect("copied");
    let own = options(to.path());
    let exact = logits(&llmcc_cli::session::CompileOptions { weights: Some(Format::F32), ..own.clone() });
    let found = difference(&exact, &logits(&own));
    assert!(found < 2e-6, "{found:e}");
    let rounded = logits(&llmcc_cli::session::CompileOptions { weights: Some(Format::BF16), ..own });
    assert!(difference(&exact, &rounded) > 1e-4);
}

/// Codes of every type decode to their numbers: with f32 rows only the order of rounding differs,
/// with int8 rows the loss of these.
#[test]
fn codes_compute_what_they_stand_for() {
    for name in ["mixed", "vectors"] {
        compute_what_they_stand_for(&golden(&format!("gguf/{name}.gguf")));
    }
}

fn compute_what_they_stand_for(path: &Path) {
    let exact = options(path);
    let decoded = logits(&llmcc_cli::session::CompileOptions { weights: Some(Format::F32), ..options(path) });
    assert!(decoded.iter().all(|x| x.is_finite()) && decoded[..64] != decoded[64..128]);
    let of_codes = difference(&decoded, &logits(&exact));
    assert!(of_codes < 1e-5, "{of_codes:e}");
    let int8 = difference(
        &decoded,
        &logits(&llmcc_cli::session::CompileOptions { act: Some(ActPolicy::Int8), ..options(path) }),
    );
    assert!(int8 > of_codes && int8 < 0.05, "{int8:e}");
}

/// Experts of a GGUF file, all in one tensor, stay the codes that they are.
#[test]
fn experts_of_a_gguf_file_keep_their_codes() {
    let path = golden("gguf/experts.gguf");
    let artifact = Artifact::compile(&options(&path));
    let formats = Manifest::of(&artifact.path).expect("a manifest").weights.by_format;
    // 4 experts of 3 matrices, less than a byte for each number, with padding.
    assert!(formats.get("mxfp4").is_some_and(|bytes| *bytes < 4 * 3 * 32 * 64), "{formats:?}");
    let decoded = logits(&llmcc_cli::session::CompileOptions { weights: Some(Format::F32), ..options(&path) });
    let difference = difference(&decoded, &logits(&options(&path)));
    assert!(decoded[..64] != decoded[64..128] && difference < 1e-5, "{difference:e}");
}

/// A trained model writes the expected text, from its own file in f32; from 8 and 4 bits as long as
/// llama.cpp does from the same file.
#[test]
fn gguf_files_write_the_expected_text() {
    let Some(dir) = shared("stories260K") else { return };
    let json = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
    };
    let want = json(&dir.join("expected/greedy200.json"));
    let want: Vec<i32> = want["ids"].as_array().expect("ids").iter().filter_map(|i| Some(i.as_i64()? as i32)).collect();
    let peer = json(&dir.join("expected/llama_cpp_peer.json"));
    for (kind, all) in [("F32", true), ("F16", false), ("BF16", false), ("Q8_0", false), ("Q4_0", false)] {
        let artifact = Artifact::compile(&options(&dir.join(format!("gguf/stories260K-{kind}.gguf"))));
        let model = artifact.open(2);
        let seq = model.seq_new().expect("a sequence");
        let theirs = peer["results"][kind]["greedy_prefix_equal"].as_u64().expect("a number") as usize;
        let wanted = if all { want.len() } else { theirs };
        let mut got = vec![want[0]];
        while got.len() < wanted {
            let last = got[got.len() - 1];
            got.push(argmax(&model.step(&[last], &[seq], &[0]).expect("decode")));
        }
        assert_eq!(got, want[..wanted], "{kind}");
    }
}

/// A model from elsewhere has the logits that llama.cpp computes, which rounds activations to f16:
/// half a unit in 11 bits, of the input of some products in a row.
#[test]
fn logits_are_those_of_the_peer() {
    let Some(dir) = shared("llama2_tiny_random_gguf") else { return };
    let ids: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("expected/prompt_ids.json")).expect("ids")).expect("JSON");
    let ids = ids["ids"].as_array().expect("ids").iter().filter_map(|i| Some(i.as_i64()? as i32));
    let ids: Vec<i32> = ids.collect();
    // A header of 128 bytes, then f32.
    let file = std::fs::read(dir.join("expected/logits_llamacpp.npy")).expect("logits");
    let theirs: Vec<f32> = file[128..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let artifact = Artifact::compile(&options(&dir.join("llama-2-tiny-random.gguf")));
    let model = artifact.open(1);
    let seq = model.seq_new().expect("a sequence");
    let rows: Vec<u32> = (0..ids.len() as u32).collect();
    let ours = model.step(&ids, &vec![seq; ids.len()], &rows).expect("a step");
    let difference = difference(&theirs, &ours);
    assert!(difference < 1e-3, "{difference:e}");
}

/// Models that a method has quantized, as its files have them, compute the same as Transformers
/// with the decoded numbers, and write the same.
#[test]
fn packed_models_compute_what_transformers_does() {
    let formats_of: [(&str, &[&str]); 13] = [
        ("fixed", &["w8g128", "fp8"]),
        ("mxfp4", &["mxfp4"]),
        ("gptq_order", &["w4g32"]),
        ("gptq3", &["w3zg64"]),
        ("compressed", &["w4g32", "w4zg32", "w8g128", "fp8", "nvfp4"]),
        // By the methods' own tools, of many options each.
        ("hqq", &["w4zg64", "w8zg32", "w3zg64", "w2zg32", "w4zg128"]),
        ("fp8_blocks", &["fp8b"]),
        ("fp8_powers", &[]),
        ("bitnet", &["ternaryr"]),
        ("bitnet_norms", &["ternaryr"]),
        ("bitnet_experts", &[]),
        ("bitnet_auto", &["ternaryr"]),
        ("bitnet_online", &["ternaryr"]),
    ];
    for (name, wanted) in formats_of {
        let folder = format!("quantized_models/{name}");
        let reference = Golden::load(&folder);
        // f32 rows times 8-bit floats take no generic path.
        let deny_fallback = name == "fp8_blocks";
        let fast = llmcc_cli::session::CompileOptions { deny_fallback, ..options(&golden(&folder)) };
        let artifact = Artifact::compile(&fast);
        // As codes; vectors are f32, but no matrix is.
        let manifest = Manifest::of(&artifact.path).expect("a manifest");
        let formats = &manifest.weights.by_format;
        let bytes = |format: &str| formats.get(format).copied().unwrap_or(0);
        assert!(wanted.iter().all(|format| bytes(format) > bytes("f32")), "{name}: {formats:?}");
        computes_what_transformers_does(name, &artifact, &reference);
    }
}

/// The same for models with matrices that no format has, or whose columns are multiplied: decoded,
/// and kept in f32.
#[test]
fn decoded_models_compute_what_transformers_does() {
    for name in ["hqq_columns", "modelopt_awq", "fixed_experts"] {
        let folder = format!("quantized_models/{name}");
        let exact = llmcc_cli::session::CompileOptions { weights: Some(Format::F32), ..options(&golden(&folder)) };
        computes_what_transformers_does(name, &Artifact::compile(&exact), &Golden::load(&folder));
    }
}

fn computes_what_transformers_does(name: &str, artifact: &Artifact, reference: &Golden) {
    let model = artifact.open(2);
    let logits = logits_in_pieces(&model, &reference.tokens, &[17, 1]);
    let (error, own) = (reference.error(&logits), reference.reference_error(true));
    assert!(error <= 2.0 * own, "{name}: error {error:.2e}, allowed {:.2e}", 2.0 * own);
    assert_eq!(greedy(&model, reference), reference.greedy, "{name}");
}

/// So do GGUF files whose tensors are taken apart otherwise than Transformers': stacked experts, with
/// biases, and latent attention. Experts stay codes.
#[test]
fn gguf_files_of_codes_compute_what_transformers_does() {
    let formats_of: [(&str, &[&str]); 2] = [("gguf_gpt_oss", &["mxfp4"]), ("gguf_deepseek2", &["w4g32", "w8g32"])];
    for (name, wanted) in formats_of {
        let folder = format!("quantized_models/{name}");
        let artifact = Artifact::compile(&options(&golden(&folder)));
        let manifest = Manifest::of(&artifact.path).expect("a manifest");
        let formats = &manifest.weights.by_format;
        assert!(wanted.iter().all(|format| formats.contains_key(*format)), "{name}: {formats:?}");
        computes_what_transformers_does(name, &artifact, &Golden::load(&folder));
    }
}

/// Inputs that a checkpoint rounds, by fixed scales or by tokens' scales, are rounded so, and
/// integers not once more. (The head of `bitnet` is no such product.)
#[test]
fn scales_of_a_checkpoint_are_the_only_ones() {
    for (name, all) in [("fixed", true), ("bitnet", false)] {
        let path = golden(&format!("quantized_models/{name}"));
        let with = |act| logits(&llmcc_cli::session::CompileOptions { act, ..options(&path) });
        let exact = with(Some(ActPolicy::F32));
        for act in [None, Some(ActPolicy::Int8)] {
            let off = with(act).iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(if all { off == 0.0 } else { off < 0.1 }, "{name} with {act:?}: {off:e}");
        }
    }
}

/// On every CPU the integers among them are multiplied as int8 rows by microkernels, with zeros and
/// without, and by scales of tokens; e4m3 numbers are f32 rows, which have none for `fp8`.
#[test]
fn inputs_of_fixed_scales_are_int8_rows() {
    for (name, products) in [("fixed", 4 * 2), ("fixed_experts", 0), ("bitnet", 7)] {
        let folder = golden(&format!("quantized_models/{name}"));
        for target in ["x86-64", "x86-64-v3", "x86-64-v4"] {
            let targets = vec![llmcc_cli::session::find_target(target).expect("a target")];
            let o = llmcc_cli::session::CompileOptions { targets, ..options(&folder) };
            let l = llmcc_cli::session::lower(&o, &CpuBackend::default()).unwrap_or_else(|e| panic!("{e}"));
            let v = l.preferred();
            let rows = |k: &Kernel, p: ParamId| match k.params[p].kind {
                ParamKind::Rows { elem, .. } => Some(elem),
                _ => None,
            };
            let mut found = 0;
            for (k, object) in v.compiled.plan.kernels.iter().zip(&v.objects) {
                let Some(product) = k.body.product() else { continue };
                let read = product.prologue.map(|p| p.elem).or_else(|| rows(k, product.x));
                if let Some(RowElem::I8 { .. }) = read {
                    assert!(object.generic.is_none(), "{name} for {target}: {:?}", object.generic);
                    found += k.body.segments().iter().map(|s| s.weights.len()).sum::<usize>();
                }
            }
            assert!(found >= products, "{name} for {target}: {found}");
        }
    }
}
