//! Rotary embeddings: the two sets of LongRoPE, two kinds of layers, positions that leave a token out.

use super::*;
use crate::rope::{RopeConfig, RopeScaling};

/// The frequencies of the first table.
fn frequencies(config: &Value, max_context: usize) -> Vec<f32> {
    let (_folder, ckpt) = checkpoint(config, |_| ());
    let module = lift(&ckpt, &Options { max_context: Some(max_context), ..EXACT }).unwrap();
    module.weights.iter().find(|w| w.name == "$rope.inv_freq").unwrap().data.clone().unwrap()
}

/// The longest sequence decides for all positions; models say where that matters.
#[test]
fn longrope_has_one_set_of_factors() {
    let scaling = json!({ "type": "su", "short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0] });
    let config = |original: usize| {
        let changes = json!({ "rope_scaling": scaling, "original_max_position_embeddings": original,
            "partial_rotary_factor": 1.0 });
        with(config("phi3"), changes)
    };
    let long = config(16);
    assert_eq!(Model::parse(&long).unwrap().original_context, Some(16));
    for (context, expected) in [(1, [1.0, 0.005]), (16, [1.0, 0.005]), (17, [0.25, 0.00125]), (64, [0.25, 0.00125])] {
        assert_eq!(frequencies(&long, context), expected, "{context}");
    }
    // No sequence is longer than the original context.
    assert_eq!(Model::parse(&config(64)).unwrap().original_context, None);
    assert_eq!(frequencies(&config(64), 64), [1.0, 0.005]);
}

/// Both embeddings of an architecture, or the error.
fn both(model_type: &str, changes: Value) -> Result<String, String> {
    let base = json!({ "rope_theta": "absent", "rope_scaling": "absent", "rope_parameters": "absent",
        "rope_local_base_freq": "absent", "global_rope_theta": "absent", "local_rope_theta": "absent",
        "partial_rotary_factor": "absent", "partial_rotary_factors": "absent" });
    let config = with(with(config(model_type), base), changes);
    let model = Model::parse(&config).map_err(|e| e.to_string())?;
    let text = format!("{:?}", model.shape);
    let ropes = text.split("ropes: ").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    Ok(ropes.to_string())
}

fn debug(ropes: [(f64, usize, RopeScaling); 2]) -> String {
    let ropes = ropes.map(|(theta, dim, scaling)| RopeConfig { theta, dim, scaling });
    format!("{ropes:?}").trim_end_matches(']').to_string()
}

/// As `convert_rope_params_to_dict` of the classes in Transformers 5.23.
#[test]
fn scalings_beside_kinds_of_layers() {
    let (plain, eighth) = (RopeScaling::Default, RopeScaling::Linear { factor: 8.0 });
    let of = |theta: f64| json!({ "rope_type": "default", "rope_theta": theta });
    let nested = |full: Value, sliding: Value| json!({ "full_attention": full, "sliding_attention": sliding });
    let linear = json!({ "rope_type": "linear", "factor": 8.0 });
    for arch in ["gemma3_text", "gemma3n_text"] {
        let expected = debug([(5e5, 4, eighth.clone()), (2e4, 4, plain.clone())]);
        let changes = json!({ "rope_parameters": nested(of(5e5), of(2e4)), "rope_scaling": linear });
        assert_eq!(both(arch, changes).as_deref(), Ok(&*expected), "{arch}");
        // An absent base is that of the kind.
        let changes = json!({ "rope_parameters": nested(of(5e5), json!({ "rope_type": "default" })),
            "rope_local_base_freq": 2e4, "rope_scaling": linear });
        assert_eq!(both(arch, changes).as_deref(), Ok(&*expected), "{arch}");
    }
    let changes = json!({ "global_rope_theta": 5e5, "local_rope_theta": 2e4, "rope_scaling": linear });
    let expected = debug([(5e5, 4, eighth.clone()), (2e4, 4, eighth.clone())]);
    for arch in ["modernbert", "modernbert-decoder"] {
        assert_eq!(both(arch, changes.clone()).as_deref(), Ok(&*expected), "{arch}");
    }
    let changes = json!({ "rope_theta": 5e5, "rope_scaling": linear });
    assert_eq!(both("olmo3", changes), Ok(debug([(5e5, 4, eighth), (5e5, 4, plain)])));
}

/// Fields that the class would ignore are refused.
#[test]
fn rotations_that_contradict() {
    let of = |theta: f64| json!({ "rope_type": "default", "rope_theta": theta });
    let nested = json!({ "full_attention": of(1e6), "sliding_attention": of(1e4) });
    let linear = |name: &str| json!({ name: "linear", "factor": 8.0 });
    let flat = json!({ "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 });
    for arch in [
        "gemma3_text",
        "gemma3n_text",
        "olmo3",
        "modernbert",
        "modernbert-decoder",
        "gemma4_text",
        "mellum",
        "laguna",
        "step3p5",
        "ultrabert",
        "lfm3",
        "mimo_v2_flash",
    ] {
        // (A third of six elements is a pair.)
        let head_dim = if arch == "mimo_v2_flash" { 6 } else { 4 };
        let said = both(arch, json!({ "rope_parameters": flat, "head_dim": head_dim })).unwrap_err();
        assert!(said.contains("`rope_parameters` is ") && said.contains("`full_attention`"), "{arch}: {said}");
    }
    for (arch, changes, expected) in [
        ("gemma3_text", json!({ "rope_scaling": linear("type") }), "passes over `type`"),
        ("gemma3_text", json!({ "rope_parameters": nested, "rope_theta": 5e5 }), "`rope_theta` is 500000"),
        ("gemma3_text", json!({ "rope_parameters": nested, "rope_local_base_freq": 5e5 }), "`rope_local_base_freq`"),
        (
            "gemma3_text",
            json!({ "rope_parameters": { "full_attention": null }, "rope_scaling": linear("rope_type") }),
            "no `full_attention`",
        ),
        (
            "gemma3_text",
            json!({ "rope_parameters": { "full_attention": of(1e6), "factor": 8.0 } }),
            "`rope_parameters.factor` is 8.0",
        ),
        ("mellum", json!({ "rope_parameters": nested, "rope_scaling": linear("rope_type") }), "`rope_scaling` is "),
        ("mellum", json!({ "rope_theta": 1e6 }), "`rope_theta` is 1000000"),
        (
            "mellum",
            json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } }),
            "`rope_parameters.full_attention.rope_theta` is missing",
        ),
        ("olmo3", json!({ "rope_theta": 1e6 }), "`rope_theta` is 1000000"),
        ("modernbert", json!({ "rope_theta": 1e6 }), "`rope_theta` is 1000000"),
        (
            "laguna",
            json!({ "rope_parameters": { "full_attention": { "rope_type": "yarn", "rope_theta": 5e5,
            "factor": 4.0, "truncate": false } } }),
            "`truncate`",
        ),
    ] {
        let said = both(arch, changes.clone()).unwrap_err();
        assert!(said.contains(expected), "{arch} {changes}: {said}");
    }
    // Fields with the same meaning are no contradiction.
    assert!(both("gemma3_text", json!({ "rope_parameters": nested, "rope_theta": 1e6 })).is_ok());
    assert!(both("gemma3_text", json!({ "rope_scaling": { "type": "linear", "factor": 1.0 } })).is_ok());
    assert!(both("mellum", json!({ "rope_theta": 5e5, "rope_scaling": { "rope_type": "default" } })).is_ok());
}

/// Against Transformers (`tests/goldens/pad_positions.py`).
#[test]
fn a_filler_inside_a_text_is_not_counted() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/pad_positions.json")).unwrap();
    for case in &cases {
        let name = case["fixture"].as_str().unwrap();
        let ckpt = Checkpoint::open(&golden(name)).unwrap();
        let module = lift(&ckpt, &Options { embed: true, ..EXACT }).unwrap();
        let ids: Vec<i32> = serde_json::from_value(case["ids"].clone()).unwrap();
        let weights = |i: usize| ckpt.tensor(&module.weights[i].name).unwrap().to_f32();
        let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
        let y = eval_module(&module, &weights, &mut states, &Batch::single(&ids, 0)).unwrap();
        let width = y.len() / ids.len();
        for (row, at) in [0, ids.len() - 1].into_iter().enumerate() {
            let expected: Vec<f64> = serde_json::from_value(case["rows"][row].clone()).unwrap();
            let ours = &y[at * width..][..width];
            let off = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-4 && expected.len() == width, "{name}, row {at}: off by {off:e}");
        }
    }
}
