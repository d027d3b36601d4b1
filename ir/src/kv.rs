//! The state of an attention layer: paged keys and values.

use crate::quant::{Code, Encoding, Float, Per, Scale, ScaleKind};
use llmcc_abi::kv_dtype;
use std::fmt;

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KvDType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// int8 with one f32 scale per token and head.
    Int8,
}

impl KvDType {
    /// Every type with its name in text and options.
    pub const ALL: &[(KvDType, &'static str)] =
        &[(KvDType::F32, "f32"), (KvDType::F16, "f16"), (KvDType::Bf16, "bf16"), (KvDType::Int8, "int8")];

    /// What the numbers are.
    pub const fn encoding(self) -> Encoding {
        match self {
            KvDType::F32 => Encoding::F32,
            KvDType::F16 => Encoding::F16,
            KvDType::Bf16 => Encoding::BF16,
            KvDType::Int8 => Encoding::scaled(Code::Signed { bits: 8 }, Scale::new(Per::TokenHead, ScaleKind::F32)),
        }
    }

    /// The kind of floats without scales.
    pub const fn float(self) -> Option<Float> {
        self.encoding().float()
    }

    /// The number under which artifacts know it: see [`llmcc_abi::kv_dtype`].
    pub const fn number(self) -> u32 {
        match self {
            KvDType::F32 => kv_dtype::F32,
            KvDType::F16 => kv_dtype::F16,
            KvDType::Bf16 => kv_dtype::BF16,
            KvDType::Int8 => kv_dtype::INT8,
        }
    }

    /// Bytes of one element (scales apart).
    pub const fn bytes(self) -> usize {
        self.encoding().bits().div_ceil(8) as usize
    }

    /// The type named `name`.
    pub fn parse(name: &str) -> Option<KvDType> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(t, _)| *t)
    }
}

impl fmt::Display for KvDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(t, _)| t == self).map_or("?", |(_, n)| n))
    }
}

/// Shape and storage of one attention layer's state. Text: `kv<f16, 8x64, window 4096>` (KV heads ×
/// head size).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KvSpec {
    /// Element type.
    pub dtype: KvDType,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Sliding window: a token sees itself and the `window - 1` tokens before it. `None` = the
    /// whole sequence.
    pub window: Option<usize>,
}

impl KvSpec {
    /// Columns of the key (and of the value) matrix: `kv_heads · head_dim`.
    pub const fn width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim)
    }
}

/// The group of each state: those with the same window keep the same tokens, and so share a block
/// table. Groups count up in the order of their first states.
pub fn groups(states: &[KvSpec]) -> Vec<usize> {
    let mut windows = vec![];
    let group = |s: &KvSpec| {
        windows.iter().position(|w| *w == s.window).unwrap_or_else(|| {
            windows.push(s.window);
            windows.len() - 1
        })
    };
    states.iter().map(group).collect()
}

impl fmt::Display for KvSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kv<{}, {}x{}", self.dtype, self.kv_heads, self.head_dim)?;
        if let Some(w) = self.window {
            write!(f, ", window {w}")?;
        }
        f.write_str(">")
    }
}
