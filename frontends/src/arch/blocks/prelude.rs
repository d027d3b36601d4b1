//! Names that most architecture files use: `use crate::arch::blocks::prelude::*`.

pub(crate) use crate::arch::blocks::attention::{
    Attention, BareBias, Form, Norm, OutNorm, Projection, QkNorm, ScoreForm, Tuning, linear, norm,
};
pub(crate) use crate::arch::blocks::attention_gates::Gate;
pub(crate) use crate::arch::blocks::attention_scores::Distance;
pub(crate) use crate::arch::blocks::clamps::Limits;
pub(crate) use crate::arch::blocks::decoder::{Decoder, Defaults, Norms, Positions};
pub(crate) use crate::arch::blocks::decoder_experts::silu_alone;
pub(crate) use crate::arch::blocks::defaults::defaults;
pub(crate) use crate::arch::blocks::encoder::{ClassHead, Encoder, FIELDS_WITHOUT_TYPES};
pub(crate) use crate::arch::blocks::entry::{Arch, Shape, answered_by};
pub(crate) use crate::arch::blocks::experts::{
    Experts, Place, Routing, Shared, Stored, mixture, sigmoid_router, sparse_by_types,
};
pub(crate) use crate::arch::blocks::latent_attention::{LATENT, Latent};
pub(crate) use crate::arch::blocks::layer::Layer;
pub(crate) use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
pub(crate) use crate::arch::blocks::mlp::{Joined, mlp};
pub(crate) use crate::arch::blocks::names::{
    ATTN_BIAS, ATTN_GATE, ATTN_K, ATTN_K_NORM, ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_Q_NORM, ATTN_QKV,
    ATTN_SINKS, ATTN_V, BERT, BERT_CLASSES, CLASSES, CORRECTION, DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, EXPERT_DOWN,
    EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE_UP, HEAD, HUGGING_FACE, Kind, MIXTRAL_EXPERTS, MLP_DOWN,
    MLP_GATE, MLP_GATE_UP, MLP_NORM, MLP_POST_NORM, MLP_UP, NORM, Names, POOLER, POSITIONS, POST_NORMS, Part,
    QWEN_EXPERTS, ROBERTA, ROBERTA_CLASSES, ROUTER, SANDWICH_NORMS, SHARED_DOWN, SHARED_GATE, SHARED_UP, TABLE,
    TABLE_NORM, TYPES, Table, bert_names, names,
};
pub(crate) use crate::arch::blocks::recurrent_mixer::Mixer;
pub(crate) use crate::arch::blocks::token_mixer::{Context, mixed};
pub(crate) use crate::arch::blocks::weight_forms::split_rows;
pub(crate) use crate::arch::blocks::{decoder, latent_attention, latent_decoder};
pub(crate) use crate::config::common::{
    ATTENTION, ATTENTION_BIAS, CAUSAL, DIVIDED, DefaultHeads, Facts, GPT_MLP, GPT_MODEL, HEADS, Heads, LAYER_NORM_MLP,
    MLP, MLP_BIAS, MODEL, OPTIONAL_WINDOWS, PARTIAL_ROTARY, PARTIAL_ROTARY_OF_KINDS, ROTARY, ROTARY_OF_KINDS,
    SIMPLE_ACTS, UNROTATED, WINDOW,
};
pub(crate) use crate::config::dictionary::fields;
pub(crate) use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
pub(crate) use crate::config::known::{Neutral, fixed};
pub(crate) use crate::config::rope_kinds::{Beside, TwoRopes, read_two};
pub(crate) use crate::config::{ConfigError, common, rope};
pub(crate) use crate::error::FrontendError;
pub(crate) use crate::rope::{RopeConfig, RopeScaling};
pub(crate) use llmcc_ir::graph::{BinaryOp, F32, Input, Op, Router, Score, UnaryOp, Value};
pub(crate) use llmcc_ir::output::Pool;
