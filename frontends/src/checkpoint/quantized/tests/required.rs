//! Settings that contradict tensors, or call for some that are missing.

use super::*;
use crate::fixtures::Tensor;
use crate::testing::with;

fn tensor(name: &str, dtype: &'static str, shape: &[usize], data: Vec<u8>) -> Tensor {
    Tensor { name: name.into(), dtype, shape: shape.to_vec(), data }
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A checkpoint of these tensors: one of its matrices, or the error.
fn opened(settings: &Value, tensors: &[Tensor], name: &str) -> Result<Vec<f32>, String> {
    let folder = Folder::new();
    folder.write("model.safetensors", crate::fixtures::safetensors(tensors));
    folder.write("config.json", json!({ "quantization_config": settings }).to_string());
    let ckpt = Checkpoint::open(&folder.0).map_err(|e| e.to_string())?;
    Ok(ckpt.to_f32(name).unwrap())
}

/// Words of codes of so many bits, that are all this one.
fn words(bits: usize, code: u32, count: usize) -> Vec<u8> {
    let bit = |i: usize| code >> (i % bits) & 1;
    let word = |w: usize| (0..32).fold(0u32, |word, i| word | bit(w * 32 + i) << i);
    (0..count).flat_map(|w| word(w).to_le_bytes()).collect()
}

/// A matrix `[32, 32]` of GPTQ: all codes are 1, all zeros are stored as `zero`.
fn gptq_matrix(stem: &str, bits: usize, zero: u32) -> Vec<Tensor> {
    // With 3 bits one word of codes differs from the next.
    let codes = words(bits, 1, bits);
    let codes = codes.chunks(4).flat_map(|word| word.repeat(32)).collect();
    vec![
        tensor(&format!("{stem}.qweight"), "I32", &[bits, 32], codes),
        tensor(&format!("{stem}.qzeros"), "I32", &[1, bits], words(bits, zero, bits)),
        tensor(&format!("{stem}.scales"), "F32", &[1, 32], floats(&[0.5; 32])),
    ]
}

/// Symmetric codes have their zero in the middle, however a file stores that; others have the zero
/// of their format.
#[test]
fn zeros_of_symmetric_gptq() {
    for bits in [2, 3, 4, 8] {
        let middle = 1u32 << (bits - 1);
        for (format, sym, stored, zero) in [
            ("gptq", Some(true), middle - 1, Some(middle)),
            ("gptq", Some(true), middle, Some(middle)),
            ("gptq", None, middle, Some(middle)),
            ("gptq", Some(false), middle, Some(middle + 1)),
            ("gptq", Some(false), middle - 1, Some(middle)),
            ("gptq", Some(true), 0, None),
            ("gptq_v2", Some(true), middle, Some(middle)),
            ("gptq_v2", Some(true), middle - 1, Some(middle)),
            ("gptq_v2", Some(false), middle - 1, Some(middle - 1)),
            ("gptq_v2", Some(true), 0, None),
        ] {
            // With 2 bits 0 is beside the middle in one of the formats, and 1 in the other.
            let zero = if bits == 2 && stored == 0 { zero.filter(|_| false) } else { zero };
            let mut settings = json!({ "quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": false });
            settings["checkpoint_format"] = format.into();
            if let Some(sym) = sym {
                settings["sym"] = sym.into();
            }
            let found = opened(&settings, &gptq_matrix("a", bits, stored), "a.weight");
            match zero {
                Some(zero) => {
                    let wanted = 0.5 * (1.0 - zero as f32);
                    assert_eq!(found, Ok(vec![wanted; 1024]), "{bits} {format} {sym:?} {stored}");
                }
                None => assert!(found.unwrap_err().contains("some zeros in `qzeros` differ from the middle"), "{bits}"),
            }
        }
    }
    // Modules whose settings are their own are taken as they are.
    let mut settings = json!({ "quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true });
    settings["dynamic"] = json!({ "+:a": { "sym": false } });
    assert_eq!(opened(&settings, &gptq_matrix("a", 4, 3), "a.weight"), Ok(vec![0.5 * (1.0 - 4.0); 1024]));
}

/// Each tensor that the settings call for is missed, by its name.
#[test]
fn tensors_that_settings_call_for() {
    let without = |method: &str, name: &str, changes: Value| {
        let gone = |v: &mut Value| drop(v.as_object_mut().unwrap().remove(name));
        let mut config = |v: &mut Value| *v = with(v.clone(), changes.clone());
        // (The bytes of a tensor that is gone are of none: it is renamed.)
        let renamed = |v: &mut Value| {
            let tensor = v[name].clone();
            assert!(!tensor.is_null(), "{method} has no {name}");
            gone(v);
            v["elsewhere"] = tensor;
        };
        outcome(&changed(method, &mut config, &mut { renamed }).0).unwrap_or_default()
    };
    let asymmetric = json!({ "config_groups": { "g": { "targets": ["Linear"], "weights":
        { "num_bits": 8, "type": "int", "symmetric": false, "strategy": "channel" } } } });
    let sorted = json!({ "config_groups": { "g": { "targets": ["re:.*order"], "weights":
        { "num_bits": 4, "type": "int", "actorder": "group" } } } });
    let fixed = json!({ "config_groups": { "g": { "targets": ["one"], "weights": { "num_bits": 8, "type": "float" },
        "input_activations": { "num_bits": 8, "type": "float", "dynamic": false } } } });
    for (method, name, changes) in [
        ("gptq_order", "order.g_idx", json!({})),
        ("compressed_pack", "order.weight_g_idx", sorted),
        ("compressed_int", "row.weight_zero_point", asymmetric),
        ("fp8_tensor", "one.activation_scale", json!({})),
        ("fp8_tensor", "one.input_scale", with(fixed, json!({ "quant_method": "compressed-tensors" }))),
        ("modelopt", "fp8.input_scale", json!({ "quant_algo": "FP8" })),
        ("modelopt", "fp4.weight_scale_2", json!({})),
        ("compressed_fp4", "fp4.weight_global_scale", json!({})),
        ("hqq", "four.axis", json!({ "quant_config": null })),
        ("torchao", "four._weight_zero_point", json!({})),
        ("awq", "zeros.qzeros", json!({})),
    ] {
        let found = match name {
            // Not there from the beginning.
            "row.weight_zero_point" | "one.input_scale" => {
                let mut config = |v: &mut Value| *v = with(v.clone(), changes.clone());
                let scale = |v: &mut Value| {
                    let tensors = v.as_object_mut().unwrap();
                    if let Some(scale) = tensors.remove("one.weight_scale_inv") {
                        tensors.insert("one.weight_scale".into(), scale);
                        let other = tensors.remove("one.activation_scale").unwrap();
                        tensors.insert("elsewhere".into(), other);
                    }
                };
                outcome(&changed(method, &mut config, &mut { scale }).0).unwrap_or_default()
            }
            _ => without(method, name, changes.clone()),
        };
        let name = name.replace("activation_scale", "input_scale");
        assert!(found.contains(&format!("tensor `{name}` is missing")), "{method} {name}: {found}");
    }
    let before = without("modelopt_before", "awq.pre_quant_scale", json!({ "pre_quant_scale": true }));
    assert!(before.is_empty(), "{before}");
    let zeros = without("modelopt", "k_proj.k_scale", json!({ "has_zero_point": true }));
    assert!(zeros.contains("`has_zero_point` is true"), "{zeros}");
    // The settings give properties that matrices do not.
    let axis = without("hqq", "four.axis", json!({}));
    assert!(axis.is_empty(), "{axis}");
}

/// One layer has a tensor that another of its kind lacks.
#[test]
fn layers_are_alike() {
    let layer = |i: usize, zero: bool| {
        let stem = format!("layers.{i}.up");
        let mut all = vec![
            tensor(&format!("{stem}.weight"), "I8", &[2, 128], vec![3; 256]),
            tensor(&format!("{stem}.weight_scale"), "F32", &[2, 1], floats(&[0.5; 2])),
        ];
        all.extend(zero.then(|| tensor(&format!("{stem}.weight_zero_point"), "I8", &[2, 1], vec![1; 2])));
        all
    };
    let settings = json!({ "quant_method": "compressed-tensors", "format": "int-quantized" });
    let name = "layers.0.up.weight";
    let found = opened(&settings, &[layer(0, true), layer(1, false)].concat(), name).unwrap_err();
    assert!(found.contains("tensor `layers.1.up.weight_zero_point` is missing, which such matrices"), "{found}");
    assert_eq!(opened(&settings, &[layer(0, true), layer(1, true)].concat(), name), Ok(vec![1.0; 256]));
}

/// Settings that change products while the model runs.
#[test]
fn settings_that_change_products() {
    for (method, settings, says) in [
        ("gptq", json!({ "rotation": "hadamard" }), "has `rotation` (\"hadamard\"), which is not supported"),
        ("gptq", json!({ "adapter": { "name": "lora", "rank": 8 } }), "has `adapter`"),
        ("gptq", json!({ "rotation": null, "adapter": {} }), ""),
        (
            "modelopt",
            json!({ "quant_method": "quark", "algo_config": [{ "name": "quarot", "online_r1": true }] }),
            "`quarot`",
        ),
        ("fp8_tensor", json!({ "activation_scheme": "sometimes" }), "supported are dynamic and static"),
    ] {
        let mut config = |v: &mut Value| *v = with(v.clone(), settings.clone());
        let found = outcome(&changed(method, &mut config, &mut |_| {}).0).unwrap_or_default();
        assert!(if says.is_empty() { found.is_empty() } else { found.contains(says) }, "{says}: {found}");
    }
}

/// Sizes of groups and blocks that do not cut a matrix.
#[test]
fn sizes_that_do_not_cut() {
    for (method, settings, says) in [
        ("awq", json!({ "group_size": 97 }), "192 inputs are not 3 groups of `group_size` 97"),
        ("awq", json!({ "group_size": 128 }), "192 inputs are not 3 groups of `group_size` 128"),
        ("awq", json!({ "q_group_size": 64, "group_size": null }), ""),
        ("awq_gemv", json!({ "group_size": 32 }), "do not fit 6 groups of 32 columns"),
        ("awq_gemv", json!({ "group_size": 96 }), "do not fit 2 groups of 96 columns"),
        ("awq_gemv_fast", json!({ "group_size": 64 }), "groups of 64 columns, by `group_size`"),
        ("gptq_v2", json!({ "group_size": [32] }), "a number of columns, or -1"),
    ] {
        let mut config = |v: &mut Value| *v = with(v.clone(), settings.clone());
        let found = outcome(&changed(method, &mut config, &mut |_| {}).0).unwrap_or_default();
        assert!(if says.is_empty() { found.is_empty() } else { found.contains(says) }, "{method}: {found}");
    }
    // Blocks of 129 rows would be as many as blocks of 128: the latter are meant.
    let settings = |rows: usize| json!({ "quant_method": "fp8", "weight_block_size": [rows, 128] });
    let scales: Vec<f32> = (1..5).map(|i| i as f32).collect();
    let tensors = [
        tensor("a.weight", "F8_E4M3", &[256, 256], vec![0x38; 65536]),
        tensor("a.weight_scale_inv", "F32", &[2, 2], floats(&scales)),
    ];
    assert_eq!(opened(&settings(129), &tensors, "a.weight"), opened(&settings(128), &tensors, "a.weight"));
    let ragged = [
        tensor("a.weight", "F8_E4M3", &[200, 128], vec![0x38; 25600]),
        tensor("a.weight_scale_inv", "F32", &[2, 1], floats(&scales[..2])),
    ];
    let values = opened(&settings(128), &ragged, "a.weight").unwrap();
    assert_eq!((values[127 * 128], values[128 * 128]), (1.0, 2.0));
}

/// NaN stays NaN: it makes no code of 0 and no scale of 0.
#[test]
fn no_numbers_stay_none() {
    let settings = json!({ "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online" });
    for bad in [f32::NAN, f32::INFINITY] {
        let mut numbers = [0.5f32; 64];
        numbers[5] = bad;
        let proj = tensor("a.q_proj.weight", "F32", &[2, 32], floats(&numbers));
        let head = tensor("lm_head.weight", "F32", &[2, 32], floats(&[1.0; 64]));
        let values = opened(&settings, &[proj, head], "a.q_proj.weight").unwrap();
        assert!(!values[5].is_finite(), "{bad}: {}", values[5]);
        let packed =
            [tensor("a.weight", "U8", &[1, 32], vec![0; 32]), tensor("a.weight_scale", "F32", &[1], floats(&[bad]))];
        let found = opened(&json!({ "quant_method": "bitnet" }), &packed, "a.weight").unwrap_err();
        assert!(found.contains("tensor `a.weight_scale` is"), "{found}");
        let fp4 = [
            tensor("a.weight_packed", "U8", &[1, 16], vec![0x11; 16]),
            tensor("a.weight_scale", "F8_E4M3", &[1, 2], vec![0x38; 2]),
            tensor("a.weight_global_scale", "F32", &[1], floats(&[bad])),
        ];
        let settings = json!({ "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized" });
        let found = opened(&settings, &fp4, "a.weight").unwrap_err();
        assert!(found.contains("tensor `a.weight_global_scale` is"), "{found}");
    }
}
