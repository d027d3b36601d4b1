//! Experts of several formats, stacks that are transposed, and leftover settings.

use super::*;
use crate::fixtures::Tensor;

fn tensor(name: &str, dtype: &'static str, shape: &[usize], data: Vec<u8>) -> Tensor {
    Tensor { name: name.into(), dtype, shape: shape.to_vec(), data }
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A checkpoint of these tensors, and the folder that it is in.
fn opened(settings: Value, tensors: &[Tensor]) -> (Folder, Result<Checkpoint, String>) {
    let folder = Folder::new();
    folder.write("model.safetensors", crate::fixtures::safetensors(tensors));
    folder.write("config.json", json!({ "quantization_config": settings }).to_string());
    let ckpt = Checkpoint::open(&folder.0).map_err(|e| e.to_string());
    (folder, ckpt)
}

fn format_of(ckpt: &Checkpoint, name: &str) -> String {
    ckpt.info(name).unwrap().dtype.dtype.unwrap().to_string()
}

/// An FP8 matrix of ones `[2, 128]` with a scale for all.
fn fp8(stem: &str, scale: f32) -> [Tensor; 2] {
    [
        tensor(&format!("{stem}.weight"), "F8_E4M3", &[2, 128], vec![0x38; 256]),
        tensor(&format!("{stem}.weight_scale"), "F32", &[], floats(&[scale])),
    ]
}

/// 4-bit numbers of ModelOpt, `1` everywhere, `[2, 128]` with scales for so many columns.
fn int4(stem: &str, scales: &[f32]) -> [Tensor; 2] {
    let all: Vec<f32> = [scales, scales].concat();
    [
        tensor(&format!("{stem}.weight"), "U8", &[1, 128], vec![0x11; 128]),
        tensor(&format!("{stem}.weight_scale"), "F32", &[2, scales.len()], floats(&all)),
    ]
}

/// Matrices that a method stores in several formats become one in a stack, with the same values;
/// elsewhere each matrix has its own.
#[test]
fn experts_have_one_format() {
    let third = 1.0 / 3.0;
    let bf16: Vec<u8> = std::iter::repeat_n([0x40, 0x3f], 256).flatten().collect(); // 0.75
    let tensors = [
        // f16 holds one of the scales.
        fp8("a.experts.0.up", 0.25).to_vec(),
        fp8("a.experts.1.up", third).to_vec(),
        fp8("layers.0.up", 0.25).to_vec(),
        fp8("layers.1.up", third).to_vec(),
        // Groups of 64 and 32 columns, with and without minima.
        int4("b.experts.0.up", &[0.5, 2.0]).to_vec(),
        int4("b.experts.10.up", &[third, 0.5, 0.5, 2.0]).to_vec(),
        // One was left as it was.
        fp8("c.experts.0.up", 0.5).to_vec(),
        vec![tensor("c.experts.1.up.weight", "BF16", &[2, 128], bf16)],
    ];
    let (_folder, ckpt) = opened(json!({ "quant_method": "modelopt" }), &tensors.concat());
    let ckpt = ckpt.unwrap();
    let values = |name: &str, wanted: &[f32]| {
        let row: Vec<f32> = wanted.iter().flat_map(|x| std::iter::repeat_n(*x, 128 / wanted.len())).collect();
        assert_eq!(ckpt.to_f32(&format!("{name}.weight")).unwrap(), [row.clone(), row].concat(), "{name}");
    };
    for (name, format, wanted) in [
        ("a.experts.0.up", "fp8b", &[0.25][..]),
        ("a.experts.1.up", "fp8b", &[third]),
        ("layers.0.up", "fp8", &[0.25]),
        ("layers.1.up", "fp8b", &[third]),
        ("b.experts.0.up", "w4zg32", &[0.5, 2.0]),
        ("b.experts.10.up", "w4zg32", &[third, 0.5, 0.5, 2.0]),
        ("c.experts.0.up", "f32", &[0.5]),
        ("c.experts.1.up", "f32", &[0.75]),
    ] {
        assert_eq!(format_of(&ckpt, &format!("{name}.weight")), format, "{name}");
        values(name, wanted);
    }
}

/// Floats of several types are f32 in a stack, whether anything is quantized or not; elsewhere each is as it was.
#[test]
fn experts_of_several_types_of_floats() {
    let f32s: Vec<f32> = (0..64).map(|i| i as f32 / 3.0).collect();
    let bf16: Vec<u8> = std::iter::repeat_n([0x40, 0x3f], 64).flatten().collect(); // 0.75
    let f16: Vec<u8> = std::iter::repeat_n([0x55, 0x35], 64).flatten().collect(); // 0.33325195
    let tensors = |stem: &str| {
        [
            tensor(&format!("{stem}0.up.weight"), "F32", &[2, 32], floats(&f32s)),
            tensor(&format!("{stem}1.up.weight"), "BF16", &[2, 32], bf16.clone()),
            tensor(&format!("{stem}2.up.weight"), "F16", &[2, 32], f16.clone()),
        ]
    };
    let all = [tensors("a.experts."), tensors("b.experts.expert_"), tensors("layers.")].concat();
    let folder = Folder::new();
    folder.write("model.safetensors", crate::fixtures::safetensors(&all));
    folder.write("config.json", "{}");
    let plain = Checkpoint::open(&folder.0).unwrap();
    assert!(plain.notes().iter().any(|n| n.contains("the experts of 2 stacks are floats")), "{:?}", plain.notes());
    let more = [all.clone(), fp8("c.up", 0.5).to_vec()].concat();
    let (_folder, quantized) = opened(json!({ "quant_method": "modelopt" }), &more);
    for ckpt in [plain, quantized.unwrap()] {
        for (stem, types) in
            [("a.experts.", ["f32"; 3]), ("b.experts.expert_", ["f32"; 3]), ("layers.", ["f32", "bf16", "f16"])]
        {
            for (i, value) in [None, Some(0.75), Some(0.333_251_95)].into_iter().enumerate() {
                let name = format!("{stem}{i}.up.weight");
                assert_eq!(format_of(&ckpt, &name), types[i], "{name}");
                assert_eq!(ckpt.to_f32(&name).unwrap(), value.map_or(f32s.clone(), |x| vec![x; 64]), "{name}");
                assert!(!ckpt.is_quantized(&name), "{name}");
            }
        }
    }
}

/// Inputs of experts are rounded where all have a scale for that, and it is said where not.
#[test]
fn inputs_of_experts() {
    let with = |last: bool| {
        let mut tensors = [fp8("experts.0.up", 0.3), fp8("experts.1.up", 0.3)].concat();
        tensors.push(tensor("experts.0.up.input_scale", "F32", &[], floats(&[0.5])));
        if last {
            tensors.push(tensor("experts.1.up.input_scale", "F32", &[1], floats(&[0.25])));
        }
        opened(json!({ "quant_method": "modelopt" }), &tensors)
    };
    let (_folder, ckpt) = with(true);
    let scale = |ckpt: &Checkpoint, e: usize| {
        ckpt.input_rounding(&format!("experts.{e}.up.weight")).and_then(|i| i.scale.fixed())
    };
    let ckpt = ckpt.unwrap();
    assert_eq!((scale(&ckpt, 0), scale(&ckpt, 1)), (Some(0.5), Some(0.25)));
    let (_folder, ckpt) = with(false);
    let ckpt = ckpt.unwrap();
    assert_eq!((scale(&ckpt, 0), scale(&ckpt, 1)), (None, None));
    assert!(ckpt.notes().iter().any(|n| n.starts_with("`experts.up.weight`: only some")), "{:?}", ckpt.notes());
}

/// Stacks of ModelOpt that are `[experts, in, out]`.
#[test]
fn turned_stacks_of_modelopt() {
    // One output has the 16 codes, two inputs in a byte, the other zeros.
    let codes: Vec<u8> = (0..8u8).flat_map(|i| [(2 * i) | ((2 * i + 1) << 4), 0]).collect();
    let tensors = [
        tensor("experts.down_proj", "U8", &[1, 8, 2], codes),
        tensor("experts.down_proj_weight_scale", "F8_E4M3", &[1, 1, 2], vec![0x40, 0x38]),
        tensor("experts.down_proj_weight_scale_2", "F32", &[], floats(&[0.5])),
        tensor("experts.down_proj_input_scale", "F32", &[], floats(&[0.5])),
        tensor("experts.up_proj", "F8_E4M3", &[2, 1, 2], vec![0x38, 0x40, 0x38, 0x40]),
        tensor("experts.up_proj_weight_scale", "F32", &[2, 2], floats(&[1.0, 2.0, 3.0, 4.0])),
        tensor("experts.up_proj_input_scale", "F32", &[], floats(&[0.5])),
    ];
    let (_folder, ckpt) = opened(json!({ "quant_method": "modelopt" }), &tensors);
    let ckpt = ckpt.unwrap();
    assert_eq!(ckpt.names().collect::<Vec<_>>(), ["experts.down_proj", "experts.up_proj"]);
    let four = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let wanted: Vec<f32> = four.iter().flat_map(|x| [*x, 0.0]).collect();
    assert_eq!(ckpt.to_f32("experts.down_proj").unwrap(), wanted);
    assert_eq!(ckpt.to_f32("experts.up_proj").unwrap(), [1.0, 4.0, 3.0, 8.0]);
    assert_eq!(ckpt.input_rounding("experts.up_proj").and_then(|i| i.scale.fixed()), Some(0.5));
    assert_eq!(ckpt.input_rounding("experts.down_proj"), None);
    // Packed along outputs, as no scales are.
    let others = [
        tensor("experts.down_proj", "U8", &[1, 32, 16], vec![0; 512]),
        tensor("experts.down_proj_weight_scale", "U8", &[1, 32, 1], vec![127; 32]),
    ];
    let (_folder, refused) = opened(json!({ "quant_method": "modelopt" }), &others);
    assert!(
        refused
            .unwrap_err()
            .contains("`experts.down_proj`: scales [1, 32, 1] do not fit transposed matrices U8 [1, 32, 16]")
    );
}

/// Quanto and Quark: bytes are read, words refused.
#[test]
fn quanto_and_quark() {
    let quanto = |dtype| {
        [
            tensor("a.weight._data", dtype, &[2, 32], vec![0x38; 64]),
            tensor("a.weight._scale", "F32", &[2, 1], floats(&[0.5, 0.25])),
            tensor("a.input_scale", "F32", &[], floats(&[1.0])),
            tensor("a.output_scale", "F32", &[], floats(&[0.5])),
        ]
    };
    for (dtype, number) in [("I8", 56.0), ("F8_E4M3", 1.0)] {
        // No configuration says that it is Quanto's.
        let (_folder, ckpt) = opened(Value::Null, &quanto(dtype));
        let ckpt = ckpt.unwrap();
        assert_eq!(ckpt.names().collect::<Vec<_>>(), ["a.weight"]);
        let wanted: Vec<f32> = [0.5, 0.25].iter().flat_map(|s| std::iter::repeat_n(s * number, 32)).collect();
        assert_eq!(ckpt.to_f32("a.weight").unwrap(), wanted);
        assert!(ckpt.notes()[0].starts_with("1 scales of inputs and outputs"), "{:?}", ckpt.notes());
    }
    let refused = opened(Value::Null, &quanto("U8")).1.unwrap_err();
    assert!(refused.contains("`a.weight` is Quanto's of U8; supported are I8 and F8_E4M3"), "{refused}");
    let (_folder, ckpt) = opened(json!({ "quant_method": "quark" }), &fp8("a", 0.25));
    assert_eq!(ckpt.unwrap().to_f32("a.weight").unwrap(), [0.25; 256]);
    let words = [
        tensor("a.weight", "I32", &[32, 4], vec![0; 512]),
        tensor("a.weight_scale", "F32", &[1, 32], floats(&[1.0; 32])),
    ];
    let refused = opened(json!({ "quant_method": "quark" }), &words).1.unwrap_err();
    assert!(refused.contains("`a.weight` is Quark's with fewer than 8 bits"), "{refused}");
}

/// Groups of 7 and 8 bits in one file: words of four codes are of either.
#[test]
fn seven_and_eight_bits() {
    let settings = |bits: &[u64]| {
        let groups: serde_json::Map<String, Value> = bits
            .iter()
            .map(|b| (format!("group_{b}"), json!({ "weights": { "num_bits": b, "type": "int" } })))
            .collect();
        json!({ "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups })
    };
    let packed = |stem: &str, word: u32, words: usize| {
        [
            tensor(&format!("{stem}.weight_packed"), "I32", &[1, words], word.to_le_bytes().repeat(words)),
            tensor(
                &format!("{stem}.weight_shape"),
                "I64",
                &[2],
                [1i64, 32].iter().flat_map(|n| n.to_le_bytes()).collect(),
            ),
            tensor(&format!("{stem}.weight_scale"), "F32", &[1, 1], floats(&[0.5])),
        ]
    };
    // Codes 65, 66, 67, 68 less 64, and 129, 130, 131, 132 less 128.
    let (seven, eight) = (65 | (66 << 7) | (67 << 14) | (68 << 21), 0x8483_8281);
    let tensors = [packed("seven", seven, 8), packed("eight", eight, 8)].concat();
    let (_folder, ckpt) = opened(settings(&[7, 8]), &tensors);
    let ckpt = ckpt.unwrap();
    for name in ["seven", "eight"] {
        assert_eq!(ckpt.to_f32(&format!("{name}.weight")).unwrap(), [0.5, 1.0, 1.5, 2.0].repeat(8), "{name}");
    }
    // With 3 and 4 bits so few columns take as many words.
    let refused = opened(settings(&[3, 4]), &packed("few", 0, 4)).1.unwrap_err();
    assert!(refused.contains("fits several of the file's widths, [3, 4]"), "{refused}");
    let refused = opened(settings(&[4]), &packed("few", 0, 5)).1.unwrap_err();
    assert!(refused.contains("fits none of the widths {4}"), "{refused}");
}

/// Settings that were left where someone has decoded the matrices.
#[test]
fn settings_without_codes() {
    let plain = [tensor("a.weight", "F32", &[1, 2], floats(&[1.0, 2.0]))];
    let (_folder, ckpt) = opened(json!({ "quant_method": "fp8" }), &plain);
    let ckpt = ckpt.unwrap();
    assert!(ckpt.config().get("quantization_config").is_none());
    assert!(ckpt.notes()[0].contains("says `fp8`, but no matrix is quantized"), "{:?}", ckpt.notes());
    // These round floats, or have names of their own.
    for method in ["gptq", "bitsandbytes"] {
        let refused = opened(json!({ "quant_method": method }), &plain).1.unwrap_err();
        let words = format!("`quantization_config` says `{method}`, but no matrix has this method's form; download");
        assert!(refused.contains(&words), "{refused}");
    }
    let bytes = [tensor("a.weight", "U8", &[1, 2], vec![1, 2])];
    let refused = opened(json!({ "quant_method": "fp8" }), &bytes).1.unwrap_err();
    assert!(refused.contains("but no matrix has this method's form (tensor `a.weight` is U8)"), "{refused}");
    // A method that is not in the table at all is refused when the model is read.
    let (_folder, ckpt) = opened(json!({ "quant_method": "aqlm" }), &plain);
    assert!(ckpt.unwrap().config().get("quantization_config").is_some());
}
