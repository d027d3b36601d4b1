use crate::arch::Model;
use llmcc_ir::graph::Arg;
use serde_json::json;

/// The sizes of E4B, as part of the multimodal model: the last 15 of its 35 layers have no
/// caches, and read the caches of layers 18 and 19.
#[test]
fn the_published_sizes() {
    let sparsity = [vec![0.95; 10], vec![0.0; 25]].concat();
    let text = json!({
        "model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35,
        "intermediate_size": vec![16384; 35], "num_kv_shared_layers": 15,
        "activation_sparsity_pattern": sparsity,
    });
    let whole = json!({
        "model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"], "text_config": text,
        "vision_config": { "model_type": "gemma3n_vision" }, "audio_config": { "model_type": "gemma3n_audio" },
    });
    let model = Model::parse(&whole).unwrap();
    let (module, wanted) = model.imagined().unwrap();
    assert_eq!(module.states.len(), 20);
    let states =
        module.calls().flat_map(|c| &c.args).filter_map(|a| if let Arg::State(s) = a { Some(*s) } else { None });
    let states: Vec<usize> = states.collect();
    assert_eq!(states[..20], *(0..20).collect::<Vec<_>>());
    assert_eq!(states[20..], [18, 18, 18, 18, 19].repeat(3));
    let has = |name: &str| wanted.iter().any(|w| w.name == name);
    assert!(has("model.layers.19.self_attn.k_proj.weight") && !has("model.layers.20.self_attn.k_proj.weight"));
    // With a window or not, with caches or not; sparse or not.
    let funcs = ["predict", "attend", "feed", "correct"];
    let funcs = funcs.map(|name| module.funcs.iter().filter(|f| f.name.starts_with(name)).count());
    assert_eq!(funcs, [1, 4, 2, 1]);
}
