use crate::checkpoint::Checkpoint;
use crate::testing::golden;

/// Each matrix of each fixture is what its method decodes it to, to the bit, in the format that is
/// expected; nothing of its parts is left.
#[test]
fn matrices_are_what_the_methods_decode() {
    let wanted = [
        ("bitsandbytes", &[("nf4", "nf4"), ("nested", "nf4"), ("fp4", "fp4"), ("wide", "nf4")][..]),
        ("gptq", &[("middle", "w4g128")]),
        ("gptq_order", &[("zeros", "w4zg64"), ("order", "f32")]),
        ("gptq_row", &[("row", "w4g32")]),
        ("gptq8", &[("middle", "w8g32")]),
        ("gptq_v2", &[("zeros", "w4zg32")]),
        ("awq", &[("zeros", "w4zg64")]),
        ("fp8", &[("blocks", "fp8b")]),
        ("mxfp4", &[("experts", "mxfp4")]),
    ];
    for (method, matrices) in wanted {
        let ckpt = Checkpoint::open(&golden("quantized").join(method)).unwrap_or_else(|e| panic!("{e}"));
        assert!(ckpt.config().get("quantization_config").is_none());
        let names: Vec<&str> = ckpt.names().filter(|n| !n.ends_with(".expected")).collect();
        assert_eq!(names.len(), matrices.len(), "{method}: {names:?}");
        for (name, format) in matrices {
            // Stacks of experts have no ending.
            let weight = [format!("{name}.weight"), name.to_string()].into_iter().find(|n| ckpt.info(n).is_some());
            let weight = weight.unwrap_or_else(|| panic!("{method} has no {name}"));
            let (ours, wanted) = (ckpt.to_f32(&weight).unwrap(), ckpt.to_f32(&format!("{name}.expected")).unwrap());
            let info = ckpt.info(&weight).unwrap();
            assert_eq!(info.dtype.dtype.unwrap().to_string(), *format, "{method} {name}");
            assert_eq!(info.shape, ckpt.info(&format!("{name}.expected")).unwrap().shape, "{method} {name}");
            let differ = ours.iter().zip(&wanted).position(|(a, b)| a != b);
            assert_eq!(differ.map(|i| (i, ours[i], wanted[i])), None, "{method} {name}");
        }
        let noted = matrices.iter().any(|(name, _)| *name == "order");
        assert_eq!(ckpt.notes().len(), usize::from(noted), "{:?}", ckpt.notes());
    }
}
