//! Zamba2 (arXiv 2411.15242): mixers of Mamba-2; before some of them stands a block of attention
//! and an MLP over the rows and the embeddings side by side. There are few such blocks, which take
//! turns; each use has adapters of low rank of its own.

use crate::arch::blocks::families::zamba_decoder::{
    self, ADAPTERS, GATE_UP_DOWN, GATE_UP_UP, KINDS, SharedBlock, Zamba, hybrid,
};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_DT, SSM_NORM};
use crate::config::rope as read_rope;

pub(crate) const ARCH: Arch = Arch {
    model_type: "zamba2",
    class: "Zamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, ROTARY, OWN],
    // Fields that nothing reads, about details of computation and training.
    fixed: fixed! {
        Any => kv_channels num_query_groups chunk_size use_mem_eff_path use_mamba_kernels time_step_max
            time_step_floor time_step_limit;
        On => use_conv_bias use_shared_block_lora;
        Off => use_long_context;
    },
    goldens: &["zamba2"],
    names: Names(&[NAMES, zamba_decoder::NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = fields! {
    rms_norm_eps, layers_block_type | layer_types: Accepts::ListOf(KINDS), num_mem_blocks,
    use_shared_attention_adapter, adapter_rank, use_mem_rope, add_bias_linear, intermediate_size | ffn_hidden_size,
    hidden_act, num_attention_heads, num_key_value_heads, n_mamba_heads, mamba_ngroups, mamba_d_state, mamba_d_conv,
    mamba_expand, time_step_min,
    // These follow from others.
    attention_head_dim | head_dim: Accepts::Any, attention_hidden_size: Accepts::Any, mamba_headdim,
    hybrid_layer_ids,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        SSM_DT => "mamba.dt_bias", SSM_DT => "mamba_decoder.mamba.dt_bias", SSM_NORM => "mamba.norm",
        SSM_NORM => "mamba_decoder.mamba.norm", ATTN_NORM => "shared_transformer.input_layernorm",
        ATTN_Q => "shared_transformer.self_attn.q_proj", ATTN_K => "shared_transformer.self_attn.k_proj",
        ATTN_V => "shared_transformer.self_attn.v_proj", ATTN_OUT => "shared_transformer.self_attn.o_proj",
        ADAPTERS[0].0 => "shared_transformer.self_attn.linear_q_adapter_list.{e}.0",
        ADAPTERS[0].1 => "shared_transformer.self_attn.linear_q_adapter_list.{e}.1",
        ADAPTERS[1].0 => "shared_transformer.self_attn.linear_k_adapter_list.{e}.0",
        ADAPTERS[1].1 => "shared_transformer.self_attn.linear_k_adapter_list.{e}.1",
        ADAPTERS[2].0 => "shared_transformer.self_attn.linear_v_adapter_list.{e}.0",
        ADAPTERS[2].1 => "shared_transformer.self_attn.linear_v_adapter_list.{e}.1",
        MLP_NORM => "shared_transformer.pre_ff_layernorm",
        MLP_GATE_UP => "shared_transformer.feed_forward.gate_up_proj",
        MLP_DOWN => "shared_transformer.feed_forward.down_proj",
        GATE_UP_DOWN => "shared_transformer.feed_forward.gate_up_proj_adapter_list.{e}.0",
        GATE_UP_UP => "shared_transformer.feed_forward.gate_up_proj_adapter_list.{e}.1",
    }
};

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
    // Heads are twice as wide as the model's width gives, but scores are scaled as if they were not.
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
            return Err(f.unsupported(
                field,
                n.to_string(),
                format!("this architecture expects {of} of the width it divides"),
            ));
        }
    }
    common::follows(f, "mamba_headdim", inner / heads, "`mamba_expand` times `hidden_size` over `n_mamba_heads`")?;
    let conv = common::conv_width(f, "mamba_d_conv", 4)?;
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
        factors: None,
    })
}
