use crate::checkpoint::Checkpoint;
use crate::testing::{Folder, golden};
use llmcc_ir::graph::UnaryOp;
use serde_json::{Value, json};
use std::path::Path;

mod required;
mod stacks;

/// A fixture: its name, its matrices with their formats, and how many notes there are.
type Fixture = (&'static str, &'static [(&'static str, &'static str)], usize);

const FIXTURES: &[Fixture] = &[
    ("bitsandbytes", &[("nf4", "nf4"), ("nested", "nf4"), ("fp4", "fp4"), ("wide", "nf4")], 0),
    ("bitsandbytes8", &[("int8", "w8zg128")], 1),
    ("gptq", &[("middle", "w4g128")], 0),
    ("gptq_order", &[("zeros", "w4zg64"), ("order", "w4zg64")], 0),
    ("gptq_row", &[("row", "w4g32")], 0),
    ("gptq8", &[("middle", "w8g32")], 0),
    ("gptq_v2", &[("zeros", "w4zg32")], 0),
    ("gptq2", &[("two", "w2zg64"), ("order", "w2zg64"), ("middle", "w2zg64")], 0),
    ("gptq3", &[("three", "w3zg64"), ("order", "w3zg64"), ("wide", "w8zg64")], 0),
    ("gptq_borrow", &[("four", "w4zg32"), ("two", "w2zg32"), ("eight", "w8zg32"), ("small", "f32")], 1),
    ("auto_round", &[("half", "w4g32"), ("small", "w4zg32")], 0),
    (
        "auto_round_raw",
        &[
            ("two", "w2zg32"),
            ("three", "w3zg32"),
            ("four", "w4zg32"),
            ("five", "w8zg32"),
            ("six", "w8zg32"),
            ("seven", "w8zg32"),
            ("eight", "w8zg32"),
            ("row", "w4zg64"),
        ],
        0,
    ),
    (
        "auto_round_less",
        &[
            ("two", "w2zg32"),
            ("three", "w3zg32"),
            ("four", "w4zg32"),
            ("five", "w8zg32"),
            ("six", "w8zg32"),
            ("seven", "w8zg32"),
            ("eight", "w8zg32"),
            ("middle", "w8zg32"),
        ],
        0,
    ),
    ("awq", &[("zeros", "w4zg64")], 0),
    ("awq_gemv", &[("zeros", "w4zg64")], 0),
    ("awq_gemv_fast", &[("fast", "w4ag32")], 0),
    (
        "hqq",
        &[
            ("eight", "w8zg64"),
            ("four", "w4zg64"),
            ("three", "w3zg32"),
            ("two", "w2zg128"),
            ("one", "w2zg32"),
            ("turned", "f32"),
            ("small", "f32"),
        ],
        1,
    ),
    (
        "hqq_others",
        &[
            ("viewed", "w4zg64"),
            ("three", "f32"),
            ("some", "w2zg32"),
            ("five", "w8zg64"),
            ("across", "f32"),
            ("rows", "w8zg64"),
            ("columns", "f32"),
            ("one", "w4zg64"),
        ],
        1,
    ),
    ("sparse24", &[("half", "bf16"), ("fp8", "fp8")], 1),
    ("sparse", &[("any", "f16"), ("int8", "w8zg128")], 1),
    ("fp8", &[("blocks", "fp8b")], 0),
    ("fp8_tensor", &[("one", "fp8")], 1),
    (
        "fp8_others",
        &[
            ("named", "fp8"),
            ("mistral", "fp8b"),
            ("bytes", "fp8b"),
            ("narrow", "f32"),
            ("four", "mxfp4"),
            ("experts.down_proj", "f32"),
            ("experts.up_proj", "f32"),
            ("norm.scale", "f32"),
        ],
        3,
    ),
    ("fbgemm", &[("rows", "fp8b")], 1),
    ("mxfp4", &[("experts", "mxfp4")], 0),
    ("bitnet", &[("ternary", "ternaryr")], 1),
    ("bitnet_auto", &[("ternary", "ternaryr")], 1),
    ("bitnet_unpacked", &[("ternary", "ternaryr")], 1),
    ("bitnet_online", &[("q_proj", "ternaryr"), ("lm_head", "bf16")], 1),
    (
        "compressed_pack",
        &[("group", "w4g128"), ("zeros", "w4zg32"), ("row", "w4g32"), ("order", "w4g64"), ("wide", "w4zg64")],
        0,
    ),
    ("compressed_mixed", &[("eight", "w8g64"), ("two", "w2zg64")], 0),
    (
        "compressed_dense",
        &[("three", "w3zg32"), ("six", "w8zg32"), ("whole", "w8zg64"), ("small", "f32"), ("one", "w2zg32")],
        1,
    ),
    ("compressed_exponents", &[("four", "mxfp4"), ("eight", "f32")], 1),
    ("compressed_int", &[("row", "w8g128"), ("tensor", "w8zg128"), ("zeros", "w8zg128")], 1),
    ("compressed_float", &[("row", "fp8"), ("tensor", "fp8b"), ("block", "fp8b")], 1),
    ("modelopt", &[("fp4", "nvfp4"), ("fp8", "fp8")], 2),
    ("modelopt_others", &[("pairs", "w4g32"), ("bytes", "w8g128"), ("four", "mxfp4"), ("blocks", "fp8b")], 0),
    ("modelopt_before", &[("half", "nvfp4"), ("awq", "f32"), ("fp8", "w4zg32"), ("smooth", "f32")], 3),
    ("compressed_six", &[("six", "f32")], 1),
    ("compressed_fp4", &[("fp4", "nvfp4")], 1),
    (
        "torchao",
        &[
            ("rows", "fp8"),
            ("one", "fp8"),
            ("four", "w8g32"),
            ("three", "w8g64"),
            ("eight", "w8g128"),
            ("zeros", "w8zg32"),
            ("dynamic", "w8g32"),
        ],
        1,
    ),
];

/// Each matrix of each fixture equals its method's decoding, to the bit, in the expected format;
/// none of its parts is left over.
#[test]
fn matrices_are_what_the_methods_decode() {
    for (method, matrices, notes) in FIXTURES {
        let ckpt = Checkpoint::open(&golden("quantized").join(method)).unwrap_or_else(|e| panic!("{e}"));
        assert!(ckpt.config().get("quantization_config").is_none(), "{method}");
        let names: Vec<&str> = ckpt.names().filter(|n| !n.ends_with(".expected")).collect();
        assert_eq!(names.len(), matrices.len(), "{method}: {names:?}");
        for (name, format) in *matrices {
            // Stacks of experts have no ending.
            let weight = [format!("{name}.weight"), name.to_string()].into_iter().find(|n| ckpt.info(n).is_some());
            let weight = weight.unwrap_or_else(|| panic!("{method} has no {name}"));
            let (ours, info) = (ckpt.to_f32(&weight).unwrap(), ckpt.info(&weight).unwrap());
            assert_eq!(info.dtype.dtype.unwrap().to_string(), *format, "{method} {name}");
            let expected = format!("{name}.expected");
            // These divide, or round twice; here products of scales are rounded.
            if ["bitsandbytes8", "compressed_fp4"].contains(method) {
                let wanted = ckpt.to_f32(&expected).unwrap();
                assert_eq!(info.shape, ckpt.info(&expected).unwrap().shape, "{method} {name}");
                let near = |a: f32, b: f32| a == b || (a / b - 1.0).abs() < 2f32.powi(-22);
                let differ = ours.iter().zip(&wanted).position(|(a, b)| !near(*a, *b));
                assert_eq!(differ.map(|i| (i, ours[i], wanted[i])), None, "{method} {name}");
                continue;
            }
            let data = ckpt.tensor(&expected).unwrap().data;
            let mut numbers = data.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b));
            let (hash, shape) = (numbers.next().unwrap(), numbers.map(|n| n as usize).collect::<Vec<_>>());
            assert_eq!(info.shape, shape, "{method} {name}");
            assert_eq!(hash_of(&ours), hash, "{method} {name} is decoded to other numbers, such as {:?}", &ours[..4]);
        }
        assert_eq!(ckpt.notes().len(), *notes, "{method}: {:?}", ckpt.notes());
    }
}

/// As `tests/goldens/quantized_fixtures.py` hashes the numbers that a method decodes a matrix to.
fn hash_of(numbers: &[f32]) -> u64 {
    // Zeros of both signs are the same.
    numbers.iter().fold(llmcc_test_support::FNV1A, |h, x| llmcc_test_support::fnv1a(&(x + 0.0).to_le_bytes(), h))
}

/// Only matrices whose columns were sorted have an order, and it names each column once.
#[test]
fn sorted_columns_have_an_order() {
    for (method, matrices, _) in FIXTURES {
        let ckpt = Checkpoint::open(&golden("quantized").join(method)).unwrap();
        for (name, _) in *matrices {
            let name = format!("{name}.weight");
            assert_eq!(ckpt.order(&name).is_some(), name == "order.weight", "{method} {name}");
            let mut order = ckpt.order(&name).unwrap_or_default().to_vec();
            order.sort_unstable();
            assert!(order.iter().enumerate().all(|(i, j)| i == *j as usize), "{method} {name}");
        }
    }
}

/// Experts whose columns have orders of their own are decoded, and it is said.
#[test]
fn sorted_columns_of_experts_are_noted() {
    let of_expert = |v: &mut Value| {
        let tensors = v.as_object_mut().unwrap();
        for name in tensors.keys().filter(|n| n.starts_with("order.")).cloned().collect::<Vec<_>>() {
            let t = tensors.remove(&name).unwrap();
            tensors.insert(format!("mlp.experts.3.{name}"), t);
        }
    };
    let ckpt = Checkpoint::open(&changed("gptq_order", &mut |_| {}, &mut { of_expert }).0).unwrap();
    let [note] = ckpt.notes() else { panic!("{:?}", ckpt.notes()) };
    assert!(note.starts_with("1 matrices of experts"), "{note}");
}

/// A copy of a fixture with another configuration and header.
fn changed(method: &str, config: &mut dyn FnMut(&mut Value), header: &mut dyn FnMut(&mut Value)) -> Folder {
    let (from, to) = (golden("quantized").join(method), Folder::new());
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let mut settings = json(&std::fs::read(from.join("config.json")).unwrap());
    config(&mut settings["quantization_config"]);
    to.write("config.json", settings.to_string());
    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let (length, rest) = file.split_at(8);
    let (head, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut tensors = json(head);
    header(&mut tensors);
    let head = tensors.to_string();
    let file = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), data].concat();
    to.write("model.safetensors", file);
    to
}

/// The error of a checkpoint; if it opens, all of it is read.
fn outcome(path: &Path) -> Option<String> {
    match Checkpoint::open(path) {
        Err(e) => Some(e.to_string()),
        Ok(ckpt) => {
            let float = |name: &&str| ckpt.info(name).and_then(|i| i.dtype.dtype).is_some_and(|t| t.is_float());
            for name in ckpt.names().filter(float) {
                let _ = ckpt.to_f32(name);
            }
            None
        }
    }
}

fn tensors(method: &str) -> Vec<String> {
    let mut names = vec![];
    let mut list = |v: &mut Value| names = v.as_object().unwrap().keys().cloned().collect();
    drop(changed(method, &mut |_| {}, &mut list));
    names.retain(|n| !n.ends_with(".expected") && n != "__metadata__");
    names
}

/// Tensors that are gone, or of other shapes or types, are errors or other matrices; nothing panics.
#[test]
fn hostile_tensors_are_refused() {
    for (method, ..) in FIXTURES {
        let mut refused = 0;
        for name in tensors(method) {
            let renamed = |v: &mut Value| {
                let t = v.as_object_mut().unwrap().remove(&name).unwrap();
                v["elsewhere"] = t;
            };
            refused += usize::from(outcome(&changed(method, &mut |_| {}, &mut { renamed }).0).is_some());
            for way in 0..4 {
                let turned = |v: &mut Value| {
                    let shape: Vec<u64> = serde_json::from_value(v[&name]["shape"].clone()).unwrap();
                    let all: u64 = shape.iter().product();
                    v[&name]["shape"] = match way {
                        0 => shape.into_iter().rev().collect::<Vec<u64>>().into(),
                        1 => json!([all]),
                        2 => json!([1, all]),
                        _ => json!([all, 1, 1]),
                    };
                };
                outcome(&changed(method, &mut |_| {}, &mut { turned }).0);
            }
            for (size, types) in [(1, ["U8", "I8", "F8_E4M3"]), (2, ["F16", "BF16", "I16"]), (4, ["F32", "I32", "U32"])]
            {
                for ty in types {
                    let cast = |v: &mut Value| {
                        let range: [u64; 2] = serde_json::from_value(v[&name]["data_offsets"].clone()).unwrap();
                        let elements: u64 =
                            v[&name]["shape"].as_array().unwrap().iter().filter_map(Value::as_u64).product();
                        if range[1] - range[0] == size * elements {
                            v[&name]["dtype"] = ty.into();
                        }
                    };
                    outcome(&changed(method, &mut |_| {}, &mut { cast }).0);
                }
            }
        }
        // There each tensor is a matrix.
        assert!(refused > 0 || *method == "bitnet_online", "{method}: nothing that is missing is missed");
    }
}

/// Settings that say anything at all.
#[test]
fn hostile_settings_are_refused() {
    let values = [
        json!(null),
        json!(-1),
        json!(0),
        json!(3),
        json!(1u64 << 62),
        json!("x"),
        json!([]),
        json!({}),
        json!([0, 7]),
    ];
    for (method, ..) in FIXTURES {
        let mut names: Vec<String> = vec![];
        let mut list = |v: &mut Value| names = v.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        drop(changed(method, &mut list, &mut |_| {}));
        for name in names {
            for value in &values {
                outcome(&changed(method, &mut |v| v[&name] = value.clone(), &mut |_| {}).0);
            }
        }
    }
}

/// Unsupported forms are refused with a message that gives the remedy.
#[test]
fn other_forms_are_refused_in_words() {
    let cases = [
        ("gptq", json!({ "checkpoint_format": "marlin" }), "take the checkpoint in plain GPTQ order"),
        ("gptq", json!({ "is_marlin_format": true }), "take the checkpoint in plain GPTQ order"),
        ("gptq", json!({ "checkpoint_format": "bitblas" }), "supported are `gptq` and `gptq_v2`"),
        ("awq", json!({ "version": "exllama" }), "`gemv` and `gemv_fast` are"),
        ("awq", json!({ "version": "marlin" }), "take the checkpoint in plain GPTQ order"),
        ("auto_round", json!({ "packing_format": "mlx" }), "the formats of GPTQ and AWQ, and"),
        ("gptq", json!({ "quant_method": "torchao" }), "with torchao 0.15 or later"),
        ("compressed_pack", json!({ "format": "marlin-24" }), "pack-quantized, int-quantized"),
        ("compressed_pack", json!({ "sparsity_config": { "format": "marlin-24" } }), "sparse (`marlin-24`)"),
        ("compressed_pack", json!({ "config_groups": {} }), "supported are 1 to 8 bits"),
        (
            "compressed_pack",
            json!({ "transform_config": { "config_groups": { "R3": { "apply": [{ "location": "q_attn" }] } } } }),
            "a transform at `q_attn`",
        ),
        ("bitnet", json!({ "quantization_mode": "never" }), "supported are offline and online"),
        ("bitnet", json!({ "linear_class": "linear" }), "supported are bitlinear and autobitlinear"),
        ("bitnet_online", json!({ "modules_to_not_convert": ["a*"] }), "it must be a list of names"),
        ("bitnet", json!({ "use_rms_norm": 1 }), "`use_rms_norm` is 1; it must be true or false"),
        ("bitnet", json!({ "use_rms_norm": true, "rms_norm_eps": "small" }), "`rms_norm_eps` is \"small\""),
        ("fp8", json!({ "weight_block_size": [128] }), "not a pair of sizes"),
        ("fp8", json!({ "weight_block_size": [64, 128] }), "do not fit a matrix"),
    ];
    for (method, settings, words) in cases {
        let mut config = |v: &mut Value| v.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let found = outcome(&changed(method, &mut config, &mut |_| {}).0);
        assert!(found.as_ref().is_some_and(|f| f.contains(words)), "{method} {settings}: {found:?}");
    }
}

/// Matrices that no format has are decoded, and their inputs rounded as the settings say.
#[test]
fn inputs_of_decoded_matrices_are_rounded() {
    let folder = Folder::new();
    let tensor = |name: &str, dtype: &'static str, shape: &[usize], data: Vec<u8>| crate::fixtures::Tensor {
        name: format!("a.{name}"),
        dtype,
        shape: shape.to_vec(),
        data,
    };
    let floats = |x: f32, n: usize| (0..n).flat_map(|_| x.to_le_bytes()).collect::<Vec<u8>>();
    let tensors = [
        tensor("weight", "F8_E4M3", &[64, 128], vec![0x38; 64 * 128]),
        tensor("weight_scale", "F32", &[1, 2], floats(0.25, 2)),
        tensor("input_scale", "F32", &[1], floats(0.5, 1)),
    ];
    folder.write("model.safetensors", crate::fixtures::safetensors(&tensors));
    for (inputs, number) in [("float", Some(UnaryOp::RoundE4m3)), ("int", Some(UnaryOp::RoundI8)), ("none", None)] {
        let group = json!({
            "weights": { "num_bits": 8, "type": "float", "strategy": "block", "block_structure": [64, 64] },
            "input_activations": { "num_bits": 8, "type": inputs, "strategy": "tensor", "dynamic": false },
        });
        let settings = json!({
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": { "group_0": group },
        });
        folder.write("config.json", json!({ "quantization_config": settings }).to_string());
        let ckpt = Checkpoint::open(&folder.0).unwrap();
        assert_eq!(ckpt.info("a.weight").unwrap().dtype.name, "computed F32");
        assert_eq!(ckpt.to_f32("a.weight").unwrap(), [0.25; 64 * 128]);
        assert_eq!(ckpt.input_rounding("a.weight").map(|how| how.number), number, "{inputs}");
    }
}
