//! Fields that follow from others, that a class passes over, or whose neutral value is not 1.

use super::*;

fn parse(arch: &str, changes: Value) -> Result<Model, String> {
    Model::parse(&with(config(arch), changes)).map_err(|e| e.to_string())
}

/// A cap of 1 is a cap.
#[test]
fn caps_of_one() {
    for (arch, field, part) in [
        ("gemma2", "attn_logit_softcapping", "softcap: Some(1.0)"),
        ("gemma2", "final_logit_softcapping", "cap: Some(1.0)"),
        ("vaultgemma", "attn_logit_softcapping", "softcap: Some(1.0)"),
        ("vaultgemma", "final_logit_softcapping", "cap: Some(1.0)"),
        ("gemma3_text", "final_logit_softcapping", "cap: Some(1.0)"),
        ("gemma3n_text", "final_logit_softcapping", "cap: Some(1.0)"),
        ("gemma4_text", "final_logit_softcapping", "cap: Some(1.0)"),
        ("nanochat", "final_logit_softcapping", "cap: Some(1.0)"),
        ("recurrent_gemma", "logits_soft_cap", "cap: Some(1.0)"),
    ] {
        let model = parse(arch, json!({ field: 1.0 })).unwrap();
        assert!(format!("{:?}", model.shape).contains(part), "{arch}, {field}");
    }
}

/// A field that follows from others agrees with them, or is refused; where a class reads another
/// field, that one counts.
#[test]
fn fields_that_follow_from_others() {
    for (arch, field, good, bad) in [
        ("zamba2", "attention_head_dim", json!(8), json!(16)),
        ("zamba2", "head_dim", json!(8), json!(4)),
        ("zamba2", "attention_hidden_size", json!(32), json!(16)),
        ("zamba2", "mamba_headdim", json!(4), json!(8)),
        ("zamba2", "hybrid_layer_ids", json!([1]), json!([0])),
        ("mamba2", "expand", json!(2), json!(3)),
        ("bamba", "mamba_d_head", json!("auto"), json!(3)),
        ("falcon_h1", "mamba_d_head", json!("auto"), json!(3)),
        ("granitemoehybrid", "mamba_d_head", json!("auto"), json!(3)),
        ("jamba", "layers_block_type", json!(["mamba", "mamba"]), json!(["attention", "mamba"])),
        ("gpt_neo", "attention_layers", json!(["global", "local"]), json!(["local", "local"])),
        ("recurrent_gemma", "head_dim", json!(4), json!(8)),
        ("cohere_compass_text", "head_dim", json!(4), json!(8)),
        ("xlnet", "d_head", json!(4), json!(8)),
    ] {
        let sizes = match arch {
            "zamba2" => json!({ "mamba_expand": 2, "n_mamba_heads": 8 }),
            "mamba2" => json!({ "num_heads": 8, "head_dim": 4 }),
            "jamba" => json!({ "attn_layer_period": 8, "attn_layer_offset": 4 }),
            _ => json!({}),
        };
        let said = |v: &Value| parse(arch, with(sizes.clone(), json!({ field: v })));
        said(&good).unwrap_or_else(|e| panic!("{arch}, {field} {good}: {e}"));
        let e = said(&bad).unwrap_err();
        assert!(e.contains(field), "{arch}, {field} {bad}: {e}");
    }
}

/// Fields that the class reads: windows of ModernBERT under either name, BLOOM's residual after the norm.
#[test]
fn fields_that_were_passed_over() {
    let windowed = |arch: &str, changes: Value| format!("{:?}", parse(arch, changes).unwrap().shape);
    for (arch, window) in [("modernbert-decoder", "window: Some(5)"), ("modernbert", "window: Some(6)")] {
        let types = json!({ "layer_types": ["full_attention", "sliding_attention"], "local_attention": 10 });
        assert!(windowed(arch, types.clone()).contains(window), "{arch}");
        let said = windowed(arch, with(types, json!({ "local_attention": 40, "sliding_window": 5 })));
        assert!(said.contains(window), "{arch}: {said}");
    }
    let bloom = |on: bool| lifted(&with(config("bloom"), json!({ "apply_residual_connection_post_layernorm": on })));
    assert_ne!(bloom(true).funcs, bloom(false).funcs);
    // In Bamba half of each head is rotated, whatever stands beside `rope_parameters`.
    let bamba = parse("bamba", json!({ "partial_rotary_factor": 0.25 })).unwrap();
    assert_eq!(bamba.unread, ["`partial_rotary_factor` is 0.25"]);
    for arch in ["hy_v4", "glm5_next_text", "aria_text"] {
        let e = parse(arch, json!({ "hidden_act": "gelu" })).unwrap_err();
        assert!(e.contains("activates experts by silu"), "{arch}: {e}");
    }
    for arch in ["distilbert", "t5", "xlm"] {
        parse(arch, json!({ "bos_token_id": 0, "eos_token_id": 2 })).unwrap_or_else(|e| panic!("{arch}: {e}"));
    }
}
