//! Names of tensors in GGUF files, and in Transformers.

/// Names without their endings; `{}` is the number of the layer.
pub(super) type Names = &'static [(&'static str, &'static str)];

/// A tensor without a counterpart in a model, since another carries the same information.
pub(super) const UNREAD: &str = "";

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
    // Layers after the last, that predict further tokens.
    ("blk.{}.nextn.eh_proj", "model.layers.{}.eh_proj"),
    ("blk.{}.nextn.embed_tokens", "model.layers.{}.embed_tokens"),
    ("blk.{}.nextn.enorm", "model.layers.{}.enorm"),
    ("blk.{}.nextn.hnorm", "model.layers.{}.hnorm"),
    ("blk.{}.nextn.shared_head_head", "model.layers.{}.shared_head.head"),
    ("blk.{}.nextn.shared_head_norm", "model.layers.{}.shared_head.norm"),
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

/// Experts as Qwen has them; `{e}` is the number of the expert; all experts are one tensor here.
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

/// Latent attention.
pub(super) const LATENT_NAMES: Names = &[
    ("blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"),
    ("blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"),
    ("blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"),
    ("blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"),
    ("blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"),
    ("blk.{}.attn_kv_b", "model.layers.{}.self_attn.kv_b_proj"),
    ("blk.{}.attn_k_b", "model.layers.{}.self_attn.k_b_proj"),
    ("blk.{}.attn_v_b", "model.layers.{}.self_attn.v_b_proj"),
];

/// Norms inside the blocks of BitNet.
pub(super) const BITNET: Names = &[
    ("blk.{}.attn_sub_norm", "model.layers.{}.self_attn.attn_sub_norm"),
    ("blk.{}.ffn_sub_norm", "model.layers.{}.mlp.ffn_sub_norm"),
];

/// Norms of Apertus.
pub(super) const APERTUS: Names = &[
    ("blk.{}.attn_norm", "model.layers.{}.attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.feedforward_layernorm"),
];

/// Experts of DeepSeek's models, and those after them.
pub(super) const DEEPSEEK_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{e}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{e}.down_proj"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"),
];

/// Transformers' name of a tensor, by the names of a family before the shared ones; its own name if
/// it has none there. A name with its ending counts before one without.
pub(super) fn hugging_face(tensor: &str, own: &[Names]) -> String {
    let (stem, ending) = tensor.rsplit_once('.').unwrap_or((tensor, ""));
    let (whole, layer) = pattern(tensor);
    let (pattern, _) = pattern(stem);
    let find = |wanted: &str| {
        let names = || own.iter().copied().flatten().chain(SHARED);
        names().find(|(name, _)| *name == wanted).map(|(_, name)| name.replace("{}", layer))
    };
    let stem = || find(&pattern).map(|name| format!("{name}.{ending}"));
    find(&whole).or_else(stem).unwrap_or_else(|| tensor.to_string())
}

/// The same, where gate and up of experts may be one tensor (`--fuse-gate-up-exps`): both names, with a bar between.
pub(super) fn called(tensor: &str, own: &[Names]) -> String {
    let found = hugging_face(tensor, own);
    let parts = ["ffn_gate_exps.", "ffn_up_exps."].map(|part| hugging_face(&tensor.replace(BOTH, part), own));
    let apart = found == tensor && tensor.contains(BOTH) && parts.iter().all(|name| name.contains("{e}"));
    if apart { parts.join("|") } else { found }
}

/// The name of a tensor of a layer after the last, which predicts further tokens: named as in other
/// layers.
pub(super) fn called_ahead(tensor: &str, own: &[Names], layers: usize) -> Option<String> {
    let (number, rest) = tensor.strip_prefix("blk.")?.split_once('.')?;
    number.parse::<usize>().ok().filter(|n| *n >= layers)?;
    let norm = hugging_face(&format!("blk.{number}.attn_norm.weight"), own);
    let (layer, _) = norm.split_once(&format!(".{number}."))?;
    let called = called(tensor, own);
    let path = format!("{layer}.{number}.");
    Some(if called.starts_with(&path) { called } else { format!("{path}{rest}") })
}

const BOTH: &str = "ffn_gate_up_exps.";

/// A name with `{}` for the number of its layer, and the number.
fn pattern(name: &str) -> (String, &str) {
    // Models with a decoder too have the encoder's layers under this name.
    for before in ["blk.", "enc.blk."] {
        let found = name.strip_prefix(before).and_then(|rest| rest.split_once('.'));
        if let Some((layer, rest)) = found.filter(|(layer, _)| layer.parse::<u32>().is_ok()) {
            return (format!("{before}{{}}.{rest}"), layer);
        }
    }
    (name.to_string(), "")
}

/// The number of the layer of a tensor with a name of this pattern.
pub(super) fn numbered(tensor: &str, wanted: &str) -> Option<String> {
    let (found, layer) = pattern(tensor);
    (found == wanted).then(|| layer.to_string())
}
