//! Zamba2 (arXiv 2411.15242): mixers of Mamba-2, before some of which stands a block of attention and
//! an MLP over the rows and the embeddings side by side. There are few such blocks, which take turns;
//! each use has adapters of low rank of its own.

use crate::arch::blocks::attention::{Attention, Norm};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::zamba_decoder::{
    self, ADAPTERS, GATE_UP_DOWN, GATE_UP_UP, KINDS, SharedBlock, Zamba, hybrid,
};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, MLP_DOWN, MLP_GATE_UP, MLP_NORM, Names, Table,
};
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_DT, SSM_NORM};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::common::{self, ACTIVATIONS, DefaultHeads, Facts, Heads, MODEL, RMS_NORM, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::{ConfigError, rope as read_rope};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "zamba2",
    class: "Zamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, ROTARY, OWN],
    // What nothing reads, how the same is computed, and training.
    fixed: &[
        ("kv_channels", Neutral::Any),
        ("num_query_groups", Neutral::Any),
        ("chunk_size", Neutral::Any),
        ("use_conv_bias", Neutral::On),
        ("use_mem_eff_path", Neutral::Any),
        ("use_mamba_kernels", Neutral::Any),
        ("use_shared_block_lora", Neutral::On),
        ("use_long_context", Neutral::Off),
        ("time_step_max", Neutral::Any),
        ("time_step_floor", Neutral::Any),
        ("time_step_limit", Neutral::Any),
    ],
    goldens: &["zamba2"],
    names: Names(&[NAMES, zamba_decoder::NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = &[
    RMS_NORM,
    Field::new("layers_block_type", Accepts::ListOf(KINDS)).or(&["layer_types"]),
    Field::new("num_mem_blocks", Accepts::Size(64)),
    Field::new("use_shared_attention_adapter", Accepts::Flag),
    Field::new("adapter_rank", WIDTH),
    Field::new("use_mem_rope", Accepts::Flag),
    Field::new("add_bias_linear", Accepts::Flag),
    Field::new("intermediate_size", WIDTH).or(&["ffn_hidden_size"]),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)),
    Field::new("num_key_value_heads", Accepts::Size(1 << 14)),
    Field::new("n_mamba_heads", Accepts::Size(1 << 14)),
    Field::new("mamba_ngroups", Accepts::Size(1 << 14)),
    Field::new("mamba_d_state", WIDTH),
    Field::new("mamba_d_conv", Accepts::Size(64)),
    Field::new("mamba_expand", Accepts::Size(64)),
    Field::new("time_step_min", Accepts::Number).unless(Neutral::Any),
    // These follow from others.
    Field::new(HEAD_DIM, Accepts::Any).or(&["head_dim"]),
    Field::new("attention_hidden_size", Accepts::Any),
    Field::new("mamba_headdim", Accepts::Any),
    Field::new("hybrid_layer_ids", Accepts::Any),
];

const NAMES: Table = &[
    (SSM_DT, "model.layers.{}.mamba.dt_bias"),
    (SSM_DT, "model.layers.{}.mamba_decoder.mamba.dt_bias"),
    (SSM_NORM, "model.layers.{}.mamba.norm"),
    (SSM_NORM, "model.layers.{}.mamba_decoder.mamba.norm"),
    (ATTN_NORM, "model.layers.{}.shared_transformer.input_layernorm"),
    (ATTN_Q, "model.layers.{}.shared_transformer.self_attn.q_proj"),
    (ATTN_K, "model.layers.{}.shared_transformer.self_attn.k_proj"),
    (ATTN_V, "model.layers.{}.shared_transformer.self_attn.v_proj"),
    (ATTN_OUT, "model.layers.{}.shared_transformer.self_attn.o_proj"),
    (ADAPTERS[0].0, "model.layers.{}.shared_transformer.self_attn.linear_q_adapter_list.{e}.0"),
    (ADAPTERS[0].1, "model.layers.{}.shared_transformer.self_attn.linear_q_adapter_list.{e}.1"),
    (ADAPTERS[1].0, "model.layers.{}.shared_transformer.self_attn.linear_k_adapter_list.{e}.0"),
    (ADAPTERS[1].1, "model.layers.{}.shared_transformer.self_attn.linear_k_adapter_list.{e}.1"),
    (ADAPTERS[2].0, "model.layers.{}.shared_transformer.self_attn.linear_v_adapter_list.{e}.0"),
    (ADAPTERS[2].1, "model.layers.{}.shared_transformer.self_attn.linear_v_adapter_list.{e}.1"),
    (MLP_NORM, "model.layers.{}.shared_transformer.pre_ff_layernorm"),
    (MLP_GATE_UP, "model.layers.{}.shared_transformer.feed_forward.gate_up_proj"),
    (MLP_DOWN, "model.layers.{}.shared_transformer.feed_forward.down_proj"),
    (GATE_UP_DOWN, "model.layers.{}.shared_transformer.feed_forward.gate_up_proj_adapter_list.{e}.0"),
    (GATE_UP_UP, "model.layers.{}.shared_transformer.feed_forward.gate_up_proj_adapter_list.{e}.1"),
];

fn read(f: &Fields) -> Result<Zamba, ConfigError> {
    let facts = Facts::read(f, Some(32_000), 4096, true)?;
    let norm = Norm::rms(common::eps(f, "rms_norm_eps", 1e-5)?);
    let hybrid = hybrid(f, facts.layers)?.ok_or_else(|| f.missing("layers_block_type"))?;
    let listed: Vec<usize> = hybrid.iter().enumerate().filter(|(_, is)| **is).map(|(i, _)| i).collect();
    if let Some(ids) = common::layer_numbers(f, "hybrid_layer_ids")?.filter(|ids| *ids != listed) {
        let expected = "the numbers of the layers that are `hybrid` in `layers_block_type`, or absent".into();
        return Err(f.invalid("hybrid_layer_ids", &ids, expected));
    }
    let (mixer, block) = (Mixer::Mamba2(mixer(f, facts.hidden)?), block(f, &facts)?);
    Ok(Zamba { facts, norm, mixer, hybrid, block })
}

/// Elements of a head of attention.
const HEAD_DIM: &str = "attention_head_dim";

fn block(f: &Fields, facts: &Facts) -> Result<SharedBlock, ConfigError> {
    let default = DefaultHeads { queries: Some(32), kv: None, dim: None };
    let wide = facts.hidden.saturating_mul(2);
    let heads = Heads::read(f, wide, default)?;
    common::follows(f, "attention_hidden_size", wide, "twice `hidden_size`")?;
    common::follows(f, HEAD_DIM, heads.dim, "twice `hidden_size` over `num_attention_heads`")?;
    // Heads are twice as wide as those of the model's width, scores as if they were not.
    let scale = (1.0 / (heads.dim as f64 / 2.0).sqrt()) as f32;
    let rotated = f.flag("use_mem_rope");
    let rope = if rotated { Some(read_rope::read(f, heads.dim, facts.max_position, 10_000.0)?) } else { None };
    let rotary = rotated.then_some(0);
    Ok(SharedBlock {
        count: f.size("num_mem_blocks").or(1),
        attention: Attention { scale, rotary, ..Attention::plain(heads, None) },
        rope,
        ffn: f.size("intermediate_size").or(facts.hidden.saturating_mul(4)),
        act: common::activation(f, "hidden_act", UnaryOp::Gelu),
        bias: f.flag("add_bias_linear"),
        rank: Some(f.size("adapter_rank").or(128)),
        adapted: f.flag("use_shared_attention_adapter"),
    })
}

fn mixer(f: &Fields, hidden: usize) -> Result<Mamba2, ConfigError> {
    let inner = f.size("mamba_expand").or(2).saturating_mul(hidden);
    let (heads, groups) = (f.size("n_mamba_heads").or(8), f.size("mamba_ngroups").or(1));
    for (field, n, of) in [("n_mamba_heads", heads, inner), ("mamba_ngroups", groups, heads)] {
        if !of.is_multiple_of(n) {
            return Err(f.unsupported(field, n.to_string(), format!("this architecture has {of} of what it divides")));
        }
    }
    common::follows(f, "mamba_headdim", inner / heads, "`mamba_expand` times `hidden_size` over `n_mamba_heads`")?;
    let conv = f.size("mamba_d_conv").or(4);
    if conv < 2 {
        return Err(f.invalid("mamba_d_conv", &conv, "at least 2".into()));
    }
    let bias = f.flag("add_bias_linear");
    Ok(Mamba2 {
        heads,
        head_dim: inner / heads,
        state: f.size("mamba_d_state").or(64),
        groups,
        conv,
        bias,
        out_bias: bias,
        conv_bias: true,
        act: UnaryOp::Silu,
        steps: [Some(f.number("time_step_min").unwrap_or(0.001) as f32), None],
        norm: ReadNorm::Gated,
        parts: None,
        scale: None,
    })
}
