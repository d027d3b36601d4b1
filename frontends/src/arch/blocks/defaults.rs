//! Defaults of decoders.

use crate::config::common::WindowRule;
use llmcc_ir::graph::UnaryOp;

/// The values an architecture's Transformers configuration class fills in for absent fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// `vocab_size`; `None` = it must be given.
    pub vocab: Option<usize>,
    /// `num_attention_heads`; `None` = it must be given.
    pub heads: Option<usize>,
    /// `num_key_value_heads`; `None` = as many as query heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; `None` = `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// `max_position_embeddings`.
    pub max_position: usize,
    /// How the attention windows of the layers are chosen.
    pub window: WindowRule,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// The field with the addend to the mean square of norms, and its value.
    pub eps: (&'static str, f64),
    /// `intermediate_size` as a multiple of the width; `None` = it must be given.
    pub ffn: Option<usize>,
    /// `rope_theta`.
    pub theta: f64,
    /// `partial_rotary_factor`.
    pub partial: f64,
    /// The field with the activation of the MLP, and its value.
    pub act: (&'static str, UnaryOp),
}

impl Defaults {
    /// Llama's defaults.
    pub(crate) const LLAMA: Defaults = Defaults {
        vocab: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        max_position: 2048,
        window: WindowRule::None,
        tied: false,
        eps: ("rms_norm_eps", 1e-6),
        ffn: None,
        theta: 10_000.0,
        partial: 1.0,
        act: ("hidden_act", UnaryOp::Silu),
    };

    /// Defaults of GPT-2, and of many successors, which list their differences.
    pub(crate) const GPT2: Defaults = Defaults {
        vocab: Some(50_257),
        heads: Some(12),
        max_position: 1024,
        tied: true,
        eps: ("layer_norm_epsilon", 1e-5),
        ffn: Some(4),
        act: ("hidden_act", UnaryOp::GeluTanh),
        ..Defaults::LLAMA
    };
}

/// [`Defaults`] of a configuration class by what differs from those of another, as a literal without
/// `Some` and names of types: `defaults! { vocab: 50_257, act: Relu, window: Given, ..LLAMA }`.
/// `eps(norm_eps): 1e-5` and `act(hidden_activation): Gelu` name the field of `config.json` too.
macro_rules! defaults {
    ($($name:ident $(($field:ident))? $(: $value:expr)?,)+ ..LLAMA) => {
        $crate::arch::blocks::defaults::defaults! { $($name $(($field))? $(: $value)?,)+ ..Defaults::LLAMA }
    };
    ($($name:ident $(($field:ident))? $(: $value:expr)?,)+ ..GPT2) => {
        $crate::arch::blocks::defaults::defaults! { $($name $(($field))? $(: $value)?,)+ ..Defaults::GPT2 }
    };
    ($($name:ident $(($field:ident))? $(: $value:expr)?,)+ ..$base:expr) => {
        Defaults {
            $($name: $crate::arch::blocks::defaults::default!($base, $name $(($field))? $(: $value)?),)+
            ..$base
        }
    };
}

/// The value of one field of [`defaults!`].
macro_rules! default {
    ($base:expr, $name:ident) => { $crate::arch::blocks::defaults::default!($base, $name: $name) };
    ($base:expr, vocab: $value:expr) => { Some($value) };
    ($base:expr, heads: $value:expr) => { Some($value) };
    ($base:expr, kv_heads: $value:expr) => { Some($value) };
    ($base:expr, head_dim: $value:expr) => { Some($value) };
    ($base:expr, ffn: $value:expr) => { Some($value) };
    ($base:expr, window: $value:expr) => {{
        #[allow(unused_imports, reason = "the rule may be a variable")]
        use $crate::config::common::WindowRule::*;
        $value
    }};
    ($base:expr, eps: $value:expr) => { ($base.eps.0, $value) };
    ($base:expr, eps($field:ident): $value:expr) => { (stringify!($field), $value) };
    ($base:expr, act: $value:expr) => { ($base.act.0, $crate::arch::blocks::defaults::act!($value)) };
    ($base:expr, act($field:ident): $value:expr) => {
        (stringify!($field), $crate::arch::blocks::defaults::act!($value))
    };
    ($base:expr, $name:ident: $value:expr) => { $value };
}

/// An activation without the name of its type.
macro_rules! act {
    ($value:expr) => {{
        #[allow(unused_imports, reason = "the activation may be a variable")]
        use llmcc_ir::graph::UnaryOp::*;
        $value
    }};
}

pub(crate) use {act, default, defaults};
