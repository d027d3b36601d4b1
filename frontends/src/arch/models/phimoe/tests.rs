use crate::arch::Model;
use crate::testing::{config, with};
use llmcc_ir::graph::Op;
use serde_json::{Value, json};

fn longrope(changes: Value) -> Value {
    let scaling = json!({
        "type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [4.0, 8.0], "short_mscale": 1.25,
        "long_mscale": 1.25, "original_max_position_embeddings": 16
    });
    with(config("phimoe"), json!({ "rope_theta": 10000.0, "rope_scaling": with(scaling, changes) }))
}

/// In Transformers 5.23 the frequencies of Phi-3.5-MoE are the short contexts' everywhere, and
/// its sines and cosines are multiplied by the file's factor.
#[test]
fn longrope_has_short_factors() {
    let (module, _) = Model::parse(&longrope(json!({}))).unwrap().imagined().unwrap();
    let found = module.weights.iter().find(|w| w.name == "$rope.inv_freq").unwrap().data.clone().unwrap();
    assert_eq!(found, [1.0, 1.0 / (1.5 * 100.0)]);
    let table = |op: &Op| {
        let Op::RopeTable { scale, .. } = op else { return None };
        Some(scale.get())
    };
    assert_eq!(module.funcs[0].nodes.iter().find_map(|n| table(&n.op)), Some(1.25));
    // The longest sequence decides.
    for (original, scale) in [(16, 1.5), (64, 1.25)] {
        let json = longrope(json!({ "long_mscale": 1.5, "original_max_position_embeddings": original }));
        let model = Model::parse(&json).unwrap();
        assert_eq!(model.original_context, Some(original).filter(|n| *n == 16));
        let (module, _) = model.imagined().unwrap();
        assert_eq!(module.funcs[0].nodes.iter().find_map(|n| table(&n.op)), Some(scale));
    }
}

#[test]
fn what_is_refused() {
    for (changes, expected) in [
        (json!({ "long_mscale": 0 }), "field `rope_scaling.long_mscale` is 0"),
        (json!({ "short_mscale": "absent" }), "field `rope_scaling.short_mscale` is missing"),
        (json!({ "short_factor": [1.0] }), "field `rope_scaling.short_factor` is [1.0]"),
        (json!({ "type": "yarn", "factor": 2.0 }), "field `rope_scaling` is yarn, which is not supported"),
    ] {
        let text = Model::parse(&longrope(changes)).unwrap_err().to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}
