//! Zamba2 (arXiv 2411.15242): mixers of Mamba-2, before some of which stands a block of attention and
//! an MLP over the rows and the embeddings side by side. There are few such blocks, which take turns;
//! each use has adapters of low rank of its own.

use super::blocks::{Attention, Norm, attend, linear, norm};
use super::decoder::inv_freq;
use super::ends::{embedded, head};
use super::entry::{Arch, Shape};
use super::lifter::{Carried, Draft, Lifter};
use super::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, Kind, MLP_DOWN, MLP_GATE_UP, MLP_NORM, NORM, Names, Part, TABLE,
    Table,
};
use super::recurrent::{
    Mamba2, ReadNorm, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT, mamba2, split_cols,
};
use crate::config::common::{self, ACTIVATIONS, DefaultHeads, Facts, Heads, MODEL, RMS_NORM, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::{ConfigError, rope as read_rope};
use crate::error::FrontendError;
use crate::rope::RopeConfig;
use llmcc_ir::graph::{Input, Op, UnaryOp, Value};

pub(super) const ARCH: Arch = Arch {
    model_type: "zamba2",
    class: "Zamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, ROTARY, OWN],
    // What follows from other fields, how the same is computed, and training.
    fixed: &[
        ("head_dim", Neutral::Any),
        ("attention_head_dim", Neutral::Any),
        ("attention_hidden_size", Neutral::Any),
        ("kv_channels", Neutral::Any),
        ("num_query_groups", Neutral::Any),
        ("hybrid_layer_ids", Neutral::Any),
        ("mamba_headdim", Neutral::Any),
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
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Zamba::read(f)?)),
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
];

const LINEAR: Part = Part("shared.linear");
const GATE_UP_DOWN: Part = Part("mlp.gate_up.adapter_down");
const GATE_UP_UP: Part = Part("mlp.gate_up.adapter_up");
const ADAPTERS: [(Part, Part); 3] = [
    (Part("attn.q.adapter_down"), Part("attn.q.adapter_up")),
    (Part("attn.k.adapter_down"), Part("attn.k.adapter_up")),
    (Part("attn.v.adapter_down"), Part("attn.v.adapter_up")),
];
const MIXER_NORM: Part = Part("ssm.before");

const NAMES: Table = &[
    (TABLE, "model.embed_tokens"),
    (HEAD, "lm_head"),
    (NORM, "model.final_layernorm"),
    (MIXER_NORM, "model.layers.{}.input_layernorm"),
    (MIXER_NORM, "model.layers.{}.mamba_decoder.input_layernorm"),
    (SSM_IN, "model.layers.{}.mamba.in_proj"),
    (SSM_IN, "model.layers.{}.mamba_decoder.mamba.in_proj"),
    (SSM_CONV, "model.layers.{}.mamba.conv1d"),
    (SSM_CONV, "model.layers.{}.mamba_decoder.mamba.conv1d"),
    (SSM_DT, "model.layers.{}.mamba.dt_bias"),
    (SSM_DT, "model.layers.{}.mamba_decoder.mamba.dt_bias"),
    (SSM_A, "model.layers.{}.mamba.A_log"),
    (SSM_A, "model.layers.{}.mamba_decoder.mamba.A_log"),
    (SSM_D, "model.layers.{}.mamba.D"),
    (SSM_D, "model.layers.{}.mamba_decoder.mamba.D"),
    (SSM_NORM, "model.layers.{}.mamba.norm"),
    (SSM_NORM, "model.layers.{}.mamba_decoder.mamba.norm"),
    (SSM_OUT, "model.layers.{}.mamba.out_proj"),
    (SSM_OUT, "model.layers.{}.mamba_decoder.mamba.out_proj"),
    (LINEAR, "model.layers.{}.linear"),
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

#[derive(Debug)]
struct Zamba {
    facts: Facts,
    norm: Norm,
    mixer: Mamba2,
    /// Which layers have a shared block.
    hybrid: Vec<bool>,
    block: SharedBlock,
}

/// A block that layers share.
#[derive(Debug)]
struct SharedBlock {
    /// How many there are.
    count: usize,
    attention: Attention,
    rope: Option<RopeConfig>,
    ffn: usize,
    act: UnaryOp,
    bias: bool,
    /// Rank of the adapters; whether attention has some, too.
    rank: usize,
    adapted: bool,
}

/// Which of the uses of shared blocks one is.
#[derive(Clone, Copy)]
struct Use {
    /// The layer under whose name the block is stored.
    owner: usize,
    /// Its number among all uses.
    number: usize,
}

impl Zamba {
    fn read(f: &Fields) -> Result<Zamba, ConfigError> {
        let facts = Facts::read(f, Some(32_000), 4096, true)?;
        let norm = Norm::rms(common::eps(f, "rms_norm_eps", 1e-5)?);
        let hybrid = hybrid(f, facts.layers)?;
        let (mixer, block) = (mixer(f, facts.hidden)?, SharedBlock::read(f, &facts)?);
        Ok(Zamba { facts, norm, mixer, hybrid, block })
    }
}

impl SharedBlock {
    fn read(f: &Fields, facts: &Facts) -> Result<SharedBlock, ConfigError> {
        let default = DefaultHeads { queries: Some(32), kv: None, dim: None };
        let wide = facts.hidden.saturating_mul(2);
        let heads = Heads::read(f, wide, default)?;
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
            rank: f.size("adapter_rank").or(128),
            adapted: f.flag("use_shared_attention_adapter"),
        })
    }
}

fn mixer(f: &Fields, hidden: usize) -> Result<Mamba2, ConfigError> {
    let inner = f.size("mamba_expand").or(2).saturating_mul(hidden);
    let (heads, groups) = (f.size("n_mamba_heads").or(8), f.size("mamba_ngroups").or(1));
    for (field, n, of) in [("n_mamba_heads", heads, inner), ("mamba_ngroups", groups, heads)] {
        if !of.is_multiple_of(n) {
            return Err(f.unsupported(field, n.to_string(), format!("this architecture has {of} of what it divides")));
        }
    }
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

/// Kinds of layers; the last two are refused with a word of their own.
const KINDS: &[&str] = &["linear_attention", "mamba", "hybrid", "full_attention", "sliding_attention"];

/// Which layers have a shared block.
fn hybrid(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let field = "layers_block_type";
    let v = f.get(field).value().ok_or_else(|| f.missing(field))?;
    let kinds: Vec<&str> = v.as_array().into_iter().flatten().filter_map(|kind| kind.as_str()).collect();
    if kinds.iter().any(|kind| kind.ends_with("_attention") && *kind != "linear_attention") {
        let help = "this architecture has mixers, some of them behind a shared block".to_string();
        return Err(f.unsupported(field, v.to_string(), help));
    }
    if kinds.len() != layers {
        let help = format!("this architecture has a layer for each name of `{field}`");
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help));
    }
    Ok(kinds.into_iter().map(|kind| kind == "hybrid").collect())
}

impl Shape for Zamba {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut f = l.func("embed");
        let mut results = vec![embedded(&mut f)];
        if let Some(rope) = &self.block.rope {
            let (frequencies, op) = inv_freq(&mut f, rope, 0);
            let positions = f.input(Input::Positions);
            results.push(f.op(op, &[positions, frequencies]));
        }
        let mut carried = f.call(&results)?.into_iter();
        let first = carried.next().unwrap_or_default();
        let rope = carried.next();
        let (mut x, mut owners, mut number) = (first.clone(), vec![], 0);
        for i in 0..self.facts.layers {
            let mut used = None;
            if self.hybrid[i] {
                if owners.len() < self.block.count {
                    owners.push(i);
                }
                used = Some(Use { owner: owners[number % owners.len()], number });
                number += 1;
            }
            x = self.layer(l, i, [&x, &first], rope.as_ref(), used)?;
        }
        head(l, self.norm, &x)
    }
}

impl Zamba {
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        [x, first]: [&Carried; 2],
        rope: Option<&Carried>,
        used: Option<Use>,
    ) -> Result<Carried, FrontendError> {
        let hidden = self.facts.hidden;
        let name = if used.is_some() { "hybrid" } else { "layer" };
        let mut f = l.layer(name, i);
        let x = f.carried("x", x);
        let mut h = x;
        if let Some(used) = used {
            let first = f.carried("first", first);
            let rope = rope.map(|rope| f.carried("rope", rope));
            let y = self.shared(&mut f, used, [x, first], rope);
            let y = linear(&mut f, LINEAR, [hidden, hidden], false, y);
            h = f.add(x, y);
        }
        let h = norm(&mut f, MIXER_NORM, self.norm, h, hidden);
        let y = mamba2(&mut f, &self.mixer, Norm::rms(1e-5), h);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// What a shared block makes of the rows and the embeddings.
    fn shared(&self, f: &mut Draft, used: Use, [x, first]: [Value; 2], rope: Option<Value>) -> Value {
        let (hidden, block) = (self.facts.hidden, &self.block);
        let wide = 2 * hidden;
        let h = f.op(Op::ConcatCols, &[x, first]);
        let h = self.gained(f, used, ATTN_NORM, wide, h);
        let a = &block.attention;
        let heads = [(ATTN_Q, a.heads.queries), (ATTN_K, a.heads.kv), (ATTN_V, a.heads.kv)];
        let qkv = [0, 1, 2].map(|i| {
            let rows = heads[i].1 * a.heads.dim;
            let w = f.of_layer(heads[i].0, Kind::Matrix, used.shared(), &[rows, wide]);
            let y = f.matmul(h, w);
            if block.adapted { self.adapted(f, used, ADAPTERS[i], [rows, wide], h, y) } else { y }
        });
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", a.heads.kv, (a.heads.dim, a.heads.dim), None);
        let y = attend(f, a, self.norm, qkv, kv, positions, rope);
        let w = f.of_layer(ATTN_OUT, Kind::Matrix, used.shared(), &[hidden, a.heads.queries * a.heads.dim]);
        let y = f.matmul(y, w);
        let h = self.gained(f, used, MLP_NORM, hidden, y);
        self.mlp(f, used, h)
    }

    fn mlp(&self, f: &mut Draft, used: Use, h: Value) -> Value {
        let (hidden, block) = (self.facts.hidden, &self.block);
        let shape = [2 * block.ffn, hidden];
        // What is shared is read as it is.
        let w = f.of_layer(MLP_GATE_UP, Kind::Matrix, used.shared(), &shape);
        let y = f.matmul(h, w);
        let y = self.adapted(f, used, (GATE_UP_DOWN, GATE_UP_UP), shape, h, y);
        let y = self.biased(f, used, MLP_GATE_UP, shape[0], y);
        let [gate, x] = split_cols(f, y, [block.ffn; 2]);
        let gate = f.unary(block.act, gate);
        let y = f.mul(gate, x);
        let w = f.of_layer(MLP_DOWN, Kind::Matrix, used.shared(), &[hidden, block.ffn]);
        let y = f.matmul(y, w);
        self.biased(f, used, MLP_DOWN, hidden, y)
    }

    /// With a bias of the block, if its matrices have some.
    fn biased(&self, f: &mut Draft, used: Use, part: Part, len: usize, y: Value) -> Value {
        if !self.block.bias {
            return y;
        }
        let b = f.of_layer(part, Kind::Bias, used.shared(), &[len]);
        f.add(y, b)
    }

    /// A norm of the block.
    fn gained(&self, f: &mut Draft, used: Use, part: Part, width: usize, x: Value) -> Value {
        let x = norm(f, part, Norm { gain: false, ..self.norm }, x, width);
        let gain = f.of_layer(part, Kind::Gain, used.shared(), &[width]);
        f.mul(x, gain)
    }

    /// `y` and what the adapter of this use makes of `h`.
    fn adapted(&self, f: &mut Draft, used: Use, parts: (Part, Part), shape: [usize; 2], h: Value, y: Value) -> Value {
        let rank = self.block.rank;
        let down = f.of_layer(parts.0, Kind::Matrix, used.own(), &[rank, shape[1]]);
        let low = f.matmul(h, down);
        let up = f.of_layer(parts.1, Kind::Matrix, used.own(), &[shape[0], rank]);
        let more = f.matmul(low, up);
        f.add(y, more)
    }
}

impl Use {
    /// What all uses of a block share.
    fn shared(self) -> (usize, Option<usize>) {
        (self.owner, None)
    }

    /// What this one has alone.
    fn own(self) -> (usize, Option<usize>) {
        (self.owner, Some(self.number))
    }
}
