//! Texts whose tokens have positions along axes, against Transformers: `tests/goldens/positions.py`.

use super::*;
use crate::config::sections::Form;
use llmcc_ir::graph::{AXES, Input};

/// The fixtures, and how the pairs of their rotations are shared among the axes.
const ALL: [(&str, Form); 2] = [("qwen2_vl", Form::Apart), ("qwen3_vl", Form::Interleaved)];

fn ints(golden: &Checkpoint, name: &str) -> Vec<i32> {
    let raw = golden.tensor(name).unwrap().data;
    raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}

fn logits(ckpt: &Checkpoint, module: &Module, batch: &Batch) -> Vec<f64> {
    evaluated(ckpt, module, 0, batch)
}

/// Logits by positions of several axes are Transformers' in f64; without positions they follow from places.
#[test]
fn positions_mean_what_transformers_says() {
    for (name, _) in ALL {
        let ckpt = Checkpoint::open(&golden(name)).unwrap();
        let module = lift(&ckpt, &EXACT).unwrap();
        assert_eq!(verify_module(&module), [], "{name}");
        let takes = |arg: &Arg| *arg == Arg::Input(Input::Axes);
        assert!(module.entries[0].calls.iter().any(|call| call.args.iter().any(takes)), "{name}");
        let golden = Checkpoint::open(&golden(name).join("positions.safetensors")).unwrap();
        let (tokens, axes) = (ints(&golden, "tokens"), ints(&golden, "positions"));
        let batch = Batch { axes, ..Batch::single(&tokens, 0) };
        let got = logits(&ckpt, &module, &batch);
        let entitled = golden.tensor("error_f32").unwrap().to_f32().into_iter().fold(0.0, f32::max);
        let want = golden.tensor("logits").unwrap().to_f32();
        assert_eq!(got.len(), want.len());
        let error = got.iter().zip(&want).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
        assert!(error <= f64::from(entitled), "{name}: off by {error:e}, Transformers in f32 by {entitled:e}");
        let text = Batch::single(&tokens, 0);
        let same = Batch { axes: text.positions.iter().flat_map(|p| [*p; AXES]).collect(), ..text.clone() };
        assert_eq!(logits(&ckpt, &module, &text), logits(&ckpt, &module, &same), "{name}");
    }
}

/// Sections that do not share out the pairs of a head are refused, by their field.
#[test]
fn sections_are_checked() {
    let base: Value =
        serde_json::from_str(&std::fs::read_to_string(golden("qwen2_vl_text").join("config.json")).unwrap()).unwrap();
    let refused = |rope: Value| Model::parse(&with(base.clone(), json!({ "rope_scaling": rope }))).unwrap_err();
    for sections in [json!([2, 3, 4]), json!([4, 4]), json!([8.5, -0.5, 0]), json!([2, 3, 3, 0])] {
        let error = refused(json!({ "type": "mrope", "mrope_section": sections })).to_string();
        assert!(error.contains("rope_scaling.mrope_section") && error.contains("whose sum is 8"), "{error}");
    }
    let error = refused(json!({ "type": "mrope", "mrope_section": [2, 3, 3], "mrope_interleaved": true })).to_string();
    assert!(error.contains("mrope_interleaved"), "{error}");
}
