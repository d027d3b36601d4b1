//! Architectures of GGUF files, as a table: what their keys and tensors are in Transformers, and what
//! llama.cpp's converter did to values.

use super::names::{
    FUSED_MLP, GLM4, HUNYUAN, MIXTRAL_EXPERTS, PHI, POST_NORMS, QWEN_EXPERTS, QWEN2_EXPERTS, SANDWICH_NORMS, SEED,
    STARCODER2,
};

/// Models of one `general.architecture`.
pub(super) struct Family {
    /// Its name in GGUF, and the prefix of its keys.
    pub name: &'static str,
    /// `model_type` and class in Transformers.
    pub model_type: (&'static str, &'static str),
    /// Keys beside [`KEYS`], and fields.
    pub keys: &'static [(&'static str, &'static str)],
    /// Fields that follow from the family.
    pub fixed: &'static [(&'static str, bool)],
    /// Names before those that all families share.
    pub names: &'static [(&'static str, &'static str)],
    /// Rows of Q and K are in the order for rotating neighbours, instead of halves of heads.
    pub neighbours: bool,
    /// Norms are stored as what they multiply by, one more than in Transformers.
    pub gains: bool,
    /// Fields that are true if there is a tensor.
    pub found: &'static [(&'static str, &'static str)],
    /// Layers of the model whose scores are scaled by its width instead of its heads.
    pub unscaled: Option<u64>,
    /// There are experts.
    pub experts: bool,
}

const Q_BIAS: &str = "blk.0.attn_q.bias";
const ATTENTION_BIAS: &[(&str, &str)] = &[("attention_bias", Q_BIAS)];
const LAYER_NORM: (&str, &str) = ("attention.layer_norm_epsilon", "layer_norm_eps");

const PLAIN: Family = Family {
    name: "",
    model_type: ("", ""),
    keys: &[],
    fixed: &[],
    names: &[],
    neighbours: false,
    gains: false,
    found: &[],
    unscaled: None,
    experts: false,
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "llama",
        model_type: ("llama", "LlamaForCausalLM"),
        neighbours: true,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "llama",
        model_type: ("mixtral", "MixtralForCausalLM"),
        keys: &[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")],
        names: MIXTRAL_EXPERTS,
        neighbours: true,
        experts: true,
        ..PLAIN
    },
    Family {
        name: "granite",
        model_type: ("granite", "GraniteForCausalLM"),
        keys: &[
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("attention.scale", "attention_multiplier"),
            ("logit_scale", "logits_scaling"),
        ],
        neighbours: true,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family { name: "olmo2", model_type: ("olmo2", "Olmo2ForCausalLM"), names: POST_NORMS, ..PLAIN },
    Family {
        name: "qwen3moe",
        model_type: ("qwen3_moe", "Qwen3MoeForCausalLM"),
        keys: &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ],
        fixed: &[("norm_topk_prob", true)],
        names: QWEN_EXPERTS,
        experts: true,
        ..PLAIN
    },
    Family { name: "qwen2", model_type: ("qwen2", "Qwen2ForCausalLM"), ..PLAIN },
    Family { name: "qwen3", model_type: ("qwen3", "Qwen3ForCausalLM"), ..PLAIN },
    Family {
        name: "phi3",
        model_type: ("phi3", "Phi3ForCausalLM"),
        keys: &[("attention.sliding_window", "sliding_window")],
        names: FUSED_MLP,
        ..PLAIN
    },
    Family { name: "gemma", model_type: ("gemma", "GemmaForCausalLM"), gains: true, ..PLAIN },
    Family {
        name: "gemma3",
        model_type: ("gemma3_text", "Gemma3ForCausalLM"),
        keys: &[
            ("attention.sliding_window", "sliding_window"),
            ("rope.freq_base_swa", "rope_local_base_freq"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        names: SANDWICH_NORMS,
        gains: true,
        unscaled: Some(62),
        ..PLAIN
    },
    Family {
        name: "gemma2",
        model_type: ("gemma2", "Gemma2ForCausalLM"),
        keys: &[
            ("attention.sliding_window", "sliding_window"),
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        names: SANDWICH_NORMS,
        gains: true,
        unscaled: Some(46),
        ..PLAIN
    },
    Family {
        name: "arcee",
        model_type: ("arcee", "ArceeForCausalLM"),
        neighbours: true,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "command-r",
        model_type: ("cohere", "CohereForCausalLM"),
        keys: &[LAYER_NORM, ("logit_scale", "logit_scale")],
        found: &[("use_qk_norm", "blk.0.attn_q_norm.weight")],
        ..PLAIN
    },
    Family {
        name: "cohere2",
        model_type: ("cohere2", "Cohere2ForCausalLM"),
        keys: &[LAYER_NORM, ("logit_scale", "logit_scale"), ("attention.sliding_window", "sliding_window")],
        ..PLAIN
    },
    Family {
        name: "ernie4_5",
        model_type: ("ernie4_5", "Ernie4_5ForCausalLM"),
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
    Family {
        name: "exaone4",
        model_type: ("exaone4", "Exaone4ForCausalLM"),
        keys: &[("attention.sliding_window", "sliding_window")],
        names: POST_NORMS,
        ..PLAIN
    },
    Family { name: "glm4", model_type: ("glm4", "Glm4ForCausalLM"), names: GLM4, found: ATTENTION_BIAS, ..PLAIN },
    Family {
        name: "hunyuan-dense",
        model_type: ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
        names: HUNYUAN,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    // It is a Llama in other names.
    Family { name: "internlm2", model_type: ("llama", "LlamaForCausalLM"), neighbours: true, ..PLAIN },
    // The multipliers are those of Granite.
    Family {
        name: "minicpm",
        model_type: ("granite", "GraniteForCausalLM"),
        keys: &[
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("logit_scale", "logits_scaling"),
        ],
        neighbours: true,
        ..PLAIN
    },
    Family {
        name: "nemotron",
        model_type: ("nemotron", "NemotronForCausalLM"),
        keys: &[("attention.layer_norm_epsilon", "norm_eps")],
        gains: true,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "olmo",
        model_type: ("olmo", "OlmoForCausalLM"),
        keys: &[("attention.clamp_kqv", "clip_qkv")],
        neighbours: true,
        ..PLAIN
    },
    Family {
        name: "olmoe",
        model_type: ("olmoe", "OlmoeForCausalLM"),
        keys: &[("expert_count", "num_experts"), ("expert_used_count", "num_experts_per_tok")],
        fixed: &[("norm_topk_prob", false)],
        names: QWEN_EXPERTS,
        experts: true,
        ..PLAIN
    },
    Family { name: "phi2", model_type: ("phi", "PhiForCausalLM"), keys: &[LAYER_NORM], names: PHI, ..PLAIN },
    Family {
        name: "qwen2moe",
        model_type: ("qwen2_moe", "Qwen2MoeForCausalLM"),
        keys: &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ],
        fixed: &[("norm_topk_prob", false)],
        names: QWEN2_EXPERTS,
        experts: true,
        ..PLAIN
    },
    Family {
        name: "seed_oss",
        model_type: ("seed_oss", "SeedOssForCausalLM"),
        names: SEED,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family { name: "smollm3", model_type: ("smollm3", "SmolLM3ForCausalLM"), neighbours: true, ..PLAIN },
    Family {
        name: "stablelm",
        model_type: ("stablelm", "StableLmForCausalLM"),
        keys: &[LAYER_NORM, ("use_parallel_residual", "use_parallel_residual")],
        found: &[("use_qkv_bias", Q_BIAS)],
        ..PLAIN
    },
    Family {
        name: "starcoder2",
        model_type: ("starcoder2", "Starcoder2ForCausalLM"),
        keys: &[("attention.layer_norm_epsilon", "norm_epsilon")],
        names: STARCODER2,
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
];
