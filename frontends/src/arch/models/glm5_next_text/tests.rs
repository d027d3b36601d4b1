//! Values of configurations.

use crate::arch::Model;
use crate::testing::{config, with};
use serde_json::json;

const ARCH: &str = "glm5_next_text";

/// Published files have the delta attention in an object.
#[test]
fn delta_attention_in_an_object() {
    let shape = |changes| format!("{:?}", Model::parse(&with(config(ARCH), changes)).unwrap());
    let delta = |heads: usize, floor| {
        let flat = json!({ "linear_num_heads": heads, "linear_head_dim": 20, "linear_conv_kernel_dim": 3 });
        with(flat, json!({ "linear_lower_bound": floor }))
    };
    let object = |rest| {
        let own = json!({ "num_heads": 5, "head_dim": 20, "short_conv_kernel_size": 3 });
        with(delta(7, json!(-2.0)), json!({ "linear_attn_config": with(own, rest) }))
    };
    assert_eq!(shape(object(json!({ "gate_lower_bound": -0.5 }))), shape(delta(5, json!(-0.5))));
    // Fields beside it fill its gaps.
    assert_eq!(shape(object(json!({}))), shape(delta(5, json!(-2.0))));
    // A gate is safe with a bound, where nothing else is said.
    assert_eq!(shape(object(json!({ "gate_lower_bound": null }))), shape(delta(5, json!(-5.0))));
    let free = object(json!({ "gate_lower_bound": null, "safe_gate": false }));
    assert_eq!(shape(free), shape(delta(5, json!(null))));
}

#[test]
fn contexts_end_where_tokens_would_be_left_out() {
    let layers = json!({ "layer_types": ["linear_attention", "full_attention"] });
    let read = |changes| Model::parse(&with(with(config(ARCH), layers.clone()), changes));
    let most = |topk: usize, pool: usize| {
        let m = read(json!({ "index_topk": topk, "index_kpool": pool })).unwrap();
        (m.facts().max_position, m.unread)
    };
    // Whole pools, and all of one more but its last token.
    assert_eq!(most(52, 13), (64, vec![]));
    let (tokens, said) = most(40, 8);
    assert_eq!(tokens, 47);
    let start = "`index_topk` by `index_kpool` selects 47 tokens: contexts are limited to that";
    assert!(said[0].starts_with(start), "{said:?}");
    for (changes, wanted) in [
        (json!({ "index_topk": 50 }), "a multiple of `index_kpool` (13)"),
        (json!({ "index_kpool_always_select_tail": false }), "would be left out of any context"),
        (json!({ "qk_rope_head_dim": 8 }), "this architecture expects no rotated part"),
        (json!({ "q_lora_rank": null }), "this architecture expects a number"),
    ] {
        let error = read(changes).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    // Pools of one token are whole.
    let single = json!({ "index_kpool": 1, "index_kpool_always_select_tail": false, "index_topk": 30 });
    assert_eq!(read(single).unwrap().facts().max_position, 30);
    // Without a layer that selects there is no limit.
    let linear = json!({ "layer_types": ["linear_attention", "linear_attention"], "index_topk": 26 });
    assert_eq!(read(linear).unwrap().facts().max_position, 64);
}
