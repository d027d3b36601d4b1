//! The state of an attention layer: paged keys and values.

use crate::quant::{Code, Encoding, Float, Per, Scale, ScaleKind};
use llmcc_abi::kv_dtype;
use llmcc_abi::layout::{self, Page};
use std::fmt;
use std::ops::Range;

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
    /// int4 with one f32 scale per token and head; heads have an even number of elements.
    Int4,
}

impl KvDType {
    /// Every type with its name in text and options.
    pub const ALL: &[(KvDType, &'static str)] = &[
        (KvDType::F32, "f32"),
        (KvDType::F16, "f16"),
        (KvDType::Bf16, "bf16"),
        (KvDType::Int8, "int8"),
        (KvDType::Int4, "int4"),
    ];

    /// The encoding of the numbers.
    pub const fn encoding(self) -> Encoding {
        match self {
            KvDType::F32 => Encoding::F32,
            KvDType::F16 => Encoding::F16,
            KvDType::Bf16 => Encoding::BF16,
            KvDType::Int8 => Encoding::scaled(Code::Signed { bits: 8 }, Scale::new(Per::TokenHead, ScaleKind::F32)),
            KvDType::Int4 => Encoding::scaled(Code::Signed { bits: 4 }, Scale::new(Per::TokenHead, ScaleKind::F32)),
        }
    }

    /// The largest code, where elements are codes: `−most` to `most` are used.
    pub const fn most(self) -> Option<u32> {
        let e = self.encoding();
        if e.is_quantized() { Some((1 << (e.bits() - 1)) - 1) } else { None }
    }

    /// The kind of floats without scales.
    pub const fn float(self) -> Option<Float> {
        self.encoding().float()
    }

    /// Whether elements are 16-bit floats.
    pub const fn is_half(self) -> bool {
        matches!(self.float(), Some(Float::F16 | Float::Bf16))
    }

    /// Whether heads of so many elements can be stored.
    pub const fn holds(self, dim: usize) -> bool {
        dim.is_multiple_of(8usize.div_ceil(self.bits()))
    }

    /// The number under which artifacts know it: see [`llmcc_abi::kv_dtype`].
    pub const fn number(self) -> u32 {
        match self {
            KvDType::F32 => kv_dtype::F32,
            KvDType::F16 => kv_dtype::F16,
            KvDType::Bf16 => kv_dtype::BF16,
            KvDType::Int8 => kv_dtype::INT8,
            KvDType::Int4 => kv_dtype::INT4,
        }
    }

    /// Bits of one element (scales apart).
    pub const fn bits(self) -> usize {
        self.encoding().bits() as usize
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
/// head size); `kv<f16, 8x192/128>` where keys and values differ; `kv<f16, 1x576/512, latent>`
/// where a key is its stored part, followed by the value (DeepSeek-V2, arXiv 2405.04434); `kv<f16,
/// 1x512, latent, every 4>` where four tokens have a row in common; `kv<f16, 8x64, first 4, behind 1020>`
/// where the first four tokens have rows, which tokens 1020 positions after them see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KvSpec {
    /// Element type.
    pub dtype: KvDType,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a key, and of a query.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// The value is the last part of the key, and not stored again for it.
    pub latent: bool,
    /// Sliding window: a token sees itself and the `window - 1` tokens before it (and, where
    /// attention is not causal, as many after it). `None` = the whole sequence.
    pub window: Option<usize>,
    /// A row for so many tokens: of each of the sequence's windows of that length the last token stores
    /// one, the others nothing; without a sliding window. 1 = a row for each.
    pub every: usize,
    /// The first tokens of a sequence alone have rows; without a sliding window. `None` = all tokens.
    pub first: Option<First>,
}

/// The first tokens of a sequence, as tokens far behind them see them: attention sinks (StreamingLLM, arXiv
/// 2309.17453).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct First {
    /// Tokens that have rows.
    pub rows: usize,
    /// A token sees those that are at least so many positions before it.
    pub behind: usize,
}

impl First {
    /// Rows that a token at `position` sees.
    pub const fn seen(self, position: usize) -> usize {
        llmcc_abi::first_seen(position, self.rows, self.behind)
    }
}

impl KvSpec {
    /// Positions that a token sees: up to its own, or, in a sequence of `end` tokens that look both
    /// ways, on either side.
    pub fn sees(&self, position: usize, end: Option<usize>) -> Range<usize> {
        if let Some(first) = self.first {
            return 0..first.seen(position);
        }
        let window = self.window.unwrap_or(usize::MAX);
        let first = position.saturating_add(1).saturating_sub(window);
        let after = end.map_or(position.saturating_add(1), |end| end.min(position.saturating_add(window)));
        first..after
    }

    /// Why attention cannot read it, if it cannot; `plain`: it looks behind a token, and nothing is added
    /// to scores.
    pub(crate) fn misfit(&self, plain: bool) -> Option<String> {
        ((self.every > 1 || self.first.is_some()) && !plain)
            .then(|| format!("{self} is seen behind a token, by scores alone"))
    }

    /// Why no rows can be selected from it, if so: it stores more than one row at a time, or forgets.
    pub(crate) fn misread(&self) -> Option<String> {
        let all = self.window.is_none() && self.first.is_none();
        let rows = self.latent && self.own_dim() == 0 && self.kv_heads == 1 && all;
        (!rows).then(|| format!("{self} is not a cache of rows that are stored once, one after the other"))
    }

    /// Why attention cannot go by selected rows of it, if so.
    pub(crate) fn unselectable(&self) -> Option<String> {
        let parts = self.window.is_some() || self.first.is_some();
        parts.then(|| format!("{self} keeps a part of a sequence, and rows are selected from whole ones"))
    }

    /// Rows of a sequence of `len` tokens.
    pub const fn rows(&self, len: usize) -> usize {
        match self.first {
            Some(first) if first.rows < len => first.rows,
            Some(_) => len,
            None if self.every > 1 => len / self.every,
            None => len,
        }
    }

    /// The row that the token at `position` stores, if it does.
    pub const fn row(&self, position: usize) -> Option<usize> {
        let after = self.rows(position.saturating_add(1));
        if after > self.rows(position) { Some(after - 1) } else { None }
    }

    /// Elements of a key that are stored as such: all, but for those that are the value.
    pub const fn own_dim(&self) -> usize {
        if self.latent { self.key_dim.saturating_sub(self.value_dim) } else { self.key_dim }
    }

    /// Elements of a head that are stored as keys, or as values.
    pub const fn stored_dim(&self, key: bool) -> usize {
        if key { self.own_dim() } else { self.value_dim }
    }

    /// Whether a key has as many elements as a value, and both are stored.
    pub const fn uniform(&self) -> bool {
        self.key_dim == self.value_dim && !self.latent
    }

    /// Bytes of its pages.
    pub const fn page(&self) -> Page {
        layout::page(self.kv_heads, self.own_dim(), self.value_dim, self.dtype.bits())
    }

    /// Bytes of the stored key, or value, of a token of one head.
    pub const fn head_bytes(&self, key: bool) -> usize {
        self.stored_dim(key) * self.dtype.bits() / 8
    }

    /// Bytes of keys and values of a token, without scales.
    pub const fn token_bytes(&self) -> usize {
        self.kv_heads * (self.head_bytes(true) + self.head_bytes(false))
    }

    /// Columns that are stored of a token's keys, or values, of all heads.
    pub const fn width(&self, key: bool) -> usize {
        self.kv_heads.saturating_mul(self.stored_dim(key))
    }
}

impl fmt::Display for KvSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kv<{}, {}x{}", self.dtype, self.kv_heads, self.key_dim)?;
        if self.key_dim != self.value_dim {
            write!(f, "/{}", self.value_dim)?;
        }
        if self.latent {
            f.write_str(", latent")?;
        }
        if let Some(w) = self.window {
            write!(f, ", window {w}")?;
        }
        if self.every != 1 {
            write!(f, ", every {}", self.every)?;
        }
        if let Some(First { rows, behind }) = self.first {
            write!(f, ", first {rows}, behind {behind}")?;
        }
        f.write_str(">")
    }
}
