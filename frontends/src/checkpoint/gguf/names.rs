//! What GGUF files call tensors, and what Transformers does.

/// Names without their endings; `{}` is the number of the layer.
type Names = &'static [(&'static str, &'static str)];

/// For all families.
const SHARED: Names = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"),
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
];

/// Where gate and up are one matrix.
pub(super) const FUSED_MLP: Names = &[("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj")];

/// With norms before and after the blocks.
pub(super) const SANDWICH_NORMS: Names = &[
    ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

/// Where norms come after the blocks only.
pub(super) const POST_NORMS: Names = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

/// Experts as Qwen has them; `{e}` is the number of the expert, all of which are one tensor here.
pub(super) const QWEN_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{e}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{e}.down_proj"),
];

/// Experts as Mixtral has them.
pub(super) const MIXTRAL_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{e}.w1"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{e}.w3"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{e}.w2"),
];

/// Experts of Qwen2-MoE, and the MLP beside them.
pub(super) const QWEN2_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{e}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{e}.down_proj"),
    ("blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"),
];

/// GLM-4's norms and fused matrix.
pub(super) const GLM4: Names = &[
    ("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"),
    ("blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"),
];

/// Norms of queries and keys of HunYuan.
pub(super) const HUNYUAN: Names = &[
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm"),
];

/// Phi-2.
pub(super) const PHI: Names = &[
    ("output_norm", "model.final_layernorm"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.dense"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.fc1"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.fc2"),
];

/// StarCoder2's MLP.
pub(super) const STARCODER2: Names =
    &[("blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"), ("blk.{}.ffn_down", "model.layers.{}.mlp.c_proj")];

/// Where the norm before the MLP is called one after attention.
pub(super) const SEED: Names = &[("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")];

/// What Transformers calls a tensor, by the names of a family before the shared ones; its own name
/// if it has none there.
pub(super) fn hugging_face(tensor: &str, own: Names) -> String {
    let (stem, ending) = tensor.rsplit_once('.').unwrap_or((tensor, ""));
    let (pattern, layer) = match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        Some((layer, rest)) if layer.parse::<u32>().is_ok() => (format!("blk.{{}}.{rest}"), layer),
        _ => (stem.to_string(), ""),
    };
    let found = own.iter().chain(SHARED).find(|(name, _)| *name == pattern);
    found.map_or_else(|| tensor.to_string(), |(_, name)| format!("{}.{ending}", name.replace("{}", layer)))
}
