//! Checkpoints that are quantized already, in another format: as if it had been made of their numbers.

use llmcc_cli::manifest::Manifest;
use llmcc_cli::options::CompileOptions;
use llmcc_cli::session;
use llmcc_frontends::Checkpoint;
use llmcc_frontends::fixtures::{Tensor, write_checkpoint};
use llmcc_ir::quant::Format;
use llmcc_tests::{Artifact, config, golden, logits_in_pieces, options};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// Logits of some tokens.
fn logits(artifact: &Artifact) -> Vec<f32> {
    let tokens: Vec<i32> = (0..24).map(|i| i * 7 % 60).collect();
    logits_in_pieces(&artifact.open(1), &tokens, &[24])
}

fn requantizing(folder: &Path, format: &str, keep: Option<&[&str]>) -> CompileOptions {
    CompileOptions {
        weights: Some(Format::parse(format).expect("a format")),
        keep_quantized: keep.map(|all| all.iter().map(ToString::to_string).collect()),
        ..options(folder)
    }
}

fn compiled(folder: &Path, format: &str, keep: Option<&[&str]>) -> Artifact {
    Artifact::compile(&requantizing(folder, format, keep))
}

/// The error of a model that is not compiled.
fn refused(folder: &Path, format: &str, keep: &[&str]) -> String {
    let error = session::lift(&requantizing(folder, format, Some(keep))).err();
    error.expect("an error").to_string()
}

/// The numbers of a tensor as f32.
fn numbers(from: &Checkpoint, name: &str) -> Vec<u8> {
    from.to_f32(name).expect("numbers").into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The same model with its numbers as f32.
fn decoded(folder: &Path) -> TempDir {
    let (from, to) = (Checkpoint::open(folder).expect("a checkpoint"), tempfile::tempdir().expect("a folder"));
    let float = |name: &str| Tensor {
        name: name.into(),
        dtype: "F32",
        shape: from.info(name).expect("a tensor").shape.clone(),
        data: numbers(&from, name),
    };
    let tensors: Vec<Tensor> = from.names().map(float).collect();
    let mut config = config(folder);
    config.as_object_mut().expect("an object").remove("quantization_config");
    write_checkpoint(to.path(), &config, &tensors).expect("written");
    to
}

/// A checkpoint as ModelOpt writes NVFP4: codes, scales in e4m3 of 16 of them, and one of the matrix.
fn nvfp4() -> TempDir {
    let (base, to) = (golden("quantized_models/fp8_blocks"), tempfile::tempdir().expect("a folder"));
    let from = Checkpoint::open(&base).expect("a checkpoint");
    let mut seed = 7u32;
    let mut byte = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let mut tensors = vec![];
    for name in from.names().map(str::to_owned).collect::<Vec<_>>() {
        let shape = from.info(&name).expect("a tensor").shape.clone();
        let tensor = |name: String, dtype, shape: Vec<usize>, data| Tensor { name, dtype, shape, data };
        let Some(stem) = name.strip_suffix("_proj.weight") else {
            let data = numbers(&from, &name);
            tensors.push(tensor(name, "F32", shape, data));
            continue;
        };
        let (n, k) = (shape[0], shape[1]);
        let codes = (0..n * k / 2).map(|_| byte()).collect();
        // From 0.5 to 1.75.
        let scales = (0..n * k / 16).map(|_| 0x30 + byte() % 14).collect();
        tensors.push(tensor(format!("{stem}_proj.weight"), "U8", vec![n, k / 2], codes));
        tensors.push(tensor(format!("{stem}_proj.weight_scale"), "F8_E4M3", vec![n, k / 16], scales));
        tensors.push(tensor(format!("{stem}_proj.weight_scale_2"), "F32", vec![], 0.03f32.to_le_bytes().to_vec()));
    }
    let mut config = config(&base);
    config["quantization_config"] = json!({
        "quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"],
    });
    write_checkpoint(to.path(), &config, &tensors).expect("written");
    to
}

/// The matrices are those that the format makes of the numbers, to the bit, and the manifest counts them.
fn as_of_numbers(folder: &Path, from: &str, count: usize) {
    let floats = decoded(folder);
    for format in ["w4g32", "w8g128", "fp8"] {
        let (own, other) = (compiled(folder, format, None), compiled(floats.path(), format, None));
        let (own_logits, other_logits) = (logits(&own), logits(&other));
        let same = own_logits.iter().zip(&other_logits).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && own_logits.iter().all(|x| x.is_finite()), "{from} as {format}");
        let manifest = Manifest::of(&own.path).expect("a manifest");
        assert_eq!(manifest.options.requantized, BTreeMap::from([(from.to_owned(), count)]), "{format}");
        assert!(!manifest.weights.by_format.contains_key(from), "{:?}", manifest.weights.by_format);
        let said = format!("rounded anew: {count} tensors of {from} as {format}");
        assert!(manifest.certificate.lossy.iter().any(|l| l.starts_with(&said)), "{:?}", manifest.certificate.lossy);
        assert!(Manifest::of(&other.path).expect("a manifest").options.requantized.is_empty());
    }
}

#[test]
fn fp8_is_quantized_anew() {
    // `o_proj` and the head are floats.
    as_of_numbers(&golden("quantized_models/fp8_blocks"), "fp8b", 6);
}

#[test]
fn nvfp4_is_quantized_anew() {
    as_of_numbers(nvfp4().path(), "nvfp4", 7);
}

/// Integer codes of few bits, whose columns a checkpoint has sorted by their groups.
#[test]
fn gptq_is_quantized_anew() {
    let folder = golden("quantized_models/gptq_order");
    let (own, floats) = (compiled(&folder, "w8g32", None), decoded(&folder));
    let other = compiled(floats.path(), "w8g32", None);
    assert!(logits(&own) == logits(&other));
    assert_eq!(Manifest::of(&own.path).expect("a manifest").options.requantized.len(), 1);
}

/// `--keep-quantized`: by names, by formats, all.
#[test]
fn parts_keep_their_bits() {
    let folder = nvfp4();
    let bytes = |keep: Option<&[&str]>| {
        let manifest = Manifest::of(&compiled(folder.path(), "w8g32", keep).path).expect("a manifest");
        let count = manifest.options.requantized.values().sum::<usize>();
        (manifest.weights.by_format.get("nvfp4").copied().unwrap_or(0), count)
    };
    let (none, mlp, all) = (bytes(None), bytes(Some(&["*.mlp.*"])), bytes(Some(&["nvfp4"])));
    assert_eq!((none, mlp.1, all.1), ((0, 7), 4, 0));
    assert!(0 < mlp.0 && mlp.0 < all.0, "{mlp:?} {all:?}");
    assert_eq!(bytes(Some(&["*"])), all);
    // The manifest of another format names nothing.
    let same = compiled(folder.path(), "nvfp4", None);
    assert!(Manifest::of(&same.path).expect("a manifest").options.requantized.is_empty());
    let error = refused(folder.path(), "w8g32", &["*.experts.*"]);
    assert!(error.contains("--keep-quantized=*.experts.*") && error.contains("nvfp4"), "{error}");
    let floats = golden("llama_bf16");
    let error = refused(&floats, "w8g32", &["*"]);
    assert!(error.contains("no quantized weights"), "{error}");
}
