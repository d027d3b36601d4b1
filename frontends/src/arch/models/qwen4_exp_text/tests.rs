use crate::arch::Model;
use crate::testing::{config, with};
use serde_json::{Value, json};

fn read(changes: Value) -> Result<Model, String> {
    let types = json!({ "layer_types": ["linear_attention", "full_attention"], "ple_layer_ids": [1] });
    Model::parse(&with(with(config("qwen4_exp_text"), types), changes)).map_err(|e| e.to_string())
}

#[test]
fn contexts_end_where_blocks_would_be_left_out() {
    assert_eq!(read(json!({})).unwrap().facts().max_position, 64);
    let model = read(json!({ "indexer_budget": 32 })).unwrap();
    assert_eq!(model.facts().max_position, 32);
    let expected = "`indexer_budget` selects 32 tokens: contexts are limited to that, since beyond it";
    assert!(model.unread[0].starts_with(expected), "{:?}", model.unread);
    let without = json!({ "indexer_budget": 32, "layer_types": "absent" });
    assert_eq!(read(without.clone()).unwrap().facts().max_position, 64);
    let every = with(without, json!({ "full_attention_interval": 2 }));
    assert_eq!(read(every).unwrap().facts().max_position, 32);
}

#[test]
fn what_is_not_computed_is_refused_in_words() {
    for (changes, expected) in [
        (json!({ "ple_layer_ids": [2] }), "`ple_layer_ids` is [2.0], which is not supported"),
        (json!({ "ple_layer_ids": [0] }), "`ple_layer_ids` is [0.0], which is not supported"),
        (json!({ "ple_embed_dim": 10 }), "rows of a 4th of it"),
        (json!({ "ple_conv_kernel_size": 1 }), "`ple_conv_kernel_size` is 1"),
        (json!({ "ngram_size": 1 }), "`ngram_size` is 1"),
        (json!({ "ngram_vocab_size_base": 1 << 28, "heads_per_ngram": 12 }), "tables of at most 2147483647 rows"),
        (json!({ "eos_token_id": null }), "eos_token_id"),
        (json!({ "indexer_budget": 30 }), "whole blocks of `indexer_compress_ratio` (4)"),
        (json!({ "indexer_kv_heads": 2 }), "`indexer_kv_heads` is 2"),
        (json!({ "hc_count": 1 }), "`hc_count` is 1"),
        (json!({ "output_gate_type": null, "hidden_act": "gelu" }), "this architecture expects \"silu\""),
    ] {
        let error = read(changes.clone()).unwrap_err();
        assert!(error.contains(expected), "{changes}: {error}");
    }
}
