//! Sizes in the header of a file, and the tensors that follow.

use crate::checkpoint::quantized::Wrong;
use crate::checkpoint::stored::Entry;
use crate::checkpoint::views::View;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// Little-endian `ak42`.
pub(super) const MAGIC: &[u8] = b"24ka";

/// Bytes before the weights.
pub(super) const HEADER: [usize; 3] = [28, 256, 256];

pub(super) const AGAIN: &str =
    "download the file again, or export it with llama2.c's `export.py --version 0`, `1` or `2`";

/// Sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) vocab: usize,
    pub(super) context: usize,
    pub(super) tied: bool,
    pub(super) version: usize,
    /// Elements that share a scale; of version 2.
    pub(super) group: usize,
}

impl Sizes {
    /// The sizes of a file; `None` if this is no such file.
    pub(super) fn read(file: &[u8]) -> Option<Result<Sizes, Wrong>> {
        let number = |at: usize| file.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes);
        let newer = file.starts_with(MAGIC);
        let version = if newer { number(4)? } else { 0 };
        if newer && !(1..=2).contains(&version) {
            let what = format!("this is a file of llama2.c of version {version}, which is not supported");
            return Some(Err((what, AGAIN)));
        }
        let from = if newer { 8 } else { 0 };
        let numbers = (0..7).map(|i| number(from + 4 * i)).collect::<Option<Vec<_>>>()?;
        let &[dim, hidden, layers, heads, kv_heads, vocab, context] = &numbers[..] else { return None };
        let tied = if newer { file.get(36)? == &1 } else { vocab > 0 };
        let size = |n: i32| usize::try_from(n).ok().filter(|n| (1..1 << 24).contains(n));
        let sizes = Sizes {
            dim: size(dim)?,
            hidden: size(hidden)?,
            layers: size(layers).filter(|n| *n < 1024)?,
            heads: size(heads)?,
            kv_heads: size(kv_heads)?,
            vocab: size(vocab.checked_abs()?)?,
            context: size(context)?,
            tied,
            version: usize::try_from(version).ok()?,
            group: if version == 2 { size(number(37)?)? } else { 1 },
        };
        let whole = sizes.dim.is_multiple_of(sizes.heads) && sizes.heads.is_multiple_of(sizes.kv_heads);
        whole.then_some(Ok(sizes))
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        let Sizes { dim, hidden, heads, kv_heads, vocab, context, .. } = *self;
        let (kv, half) = (dim / heads * kv_heads, dim / heads / 2);
        let of_layers = |name, shape: &[usize]| (name, shape.to_vec(), true);
        let single = |name, shape: &[usize]| (name, shape.to_vec(), false);
        let attention = [
            of_layers("attention.wq", &[dim, dim]),
            of_layers("attention.wk", &[kv, dim]),
            of_layers("attention.wv", &[kv, dim]),
            of_layers("attention.wo", &[dim, dim]),
        ];
        let mlp = [
            of_layers("feed_forward.w1", &[hidden, dim]),
            of_layers("feed_forward.w2", &[dim, hidden]),
            of_layers("feed_forward.w3", &[hidden, dim]),
        ];
        let (table, norm) = (single("tok_embeddings", &[vocab, dim]), single("norm", &[dim]));
        let [attn_norm, ffn_norm] = ["attention_norm", "ffn_norm"].map(|name| of_layers(name, &[dim]));
        let mut parts = match self.version {
            0 => [vec![table, attn_norm], attention.into(), vec![ffn_norm], mlp.into(), vec![norm]].concat(),
            _ => [vec![attn_norm, ffn_norm, norm, table], attention.into(), mlp.into()].concat(),
        };
        if self.version == 0 {
            parts.extend(["freqs_cos", "freqs_sin"].map(|name| single(name, &[context, half])));
        }
        if !self.tied {
            parts.push(single("output", &[vocab, dim]));
        }
        parts
    }

    /// The equivalent of `params.json`.
    pub(super) fn params(&self) -> Value {
        json!({
            "dim": self.dim, "hidden_dim": self.hidden, "n_layers": self.layers, "n_heads": self.heads,
            "n_kv_heads": self.kv_heads, "norm_eps": 1e-5, "rope_theta": 1e4, "max_seq_len": self.context,
            "bos_id": 1, "eos_id": 2,
        })
    }

    /// Bytes of all; `None` if they are too many, or no whole groups.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.parts().iter().try_fold(0usize, |sum, (_, shape, of_layers)| {
            let one = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
            let one = match self.version == 2 && shape.len() == 2 {
                true if one.is_multiple_of(self.group) => one.checked_add((one / self.group).checked_mul(4)?)?,
                true => return None,
                false => one.checked_mul(4)?,
            };
            sum.checked_add(one.checked_mul(if *of_layers { self.layers } else { 1 })?)
        })
    }
}

pub(super) fn scale(file: &[u8], scales: &Range<usize>, number: usize) -> f32 {
    let at = scales.start.saturating_add(number.saturating_mul(4));
    let bytes = file.get(at..at.saturating_add(4)).and_then(|b| b.try_into().ok());
    f32::from_le_bytes(bytes.unwrap_or_default())
}

/// A model of a file.
pub(super) struct Described {
    /// The equivalent of `params.json`.
    pub(super) params: Value,
    /// Tensors of floats, by Llama's own names.
    pub(super) views: BTreeMap<String, View>,
    /// Tensors of codes, by the names of Transformers.
    pub(super) coded: BTreeMap<String, Entry>,
    /// `model_type` and class, where these are not Llama's.
    pub(super) class: Option<[&'static str; 2]>,
    pub(super) notes: Vec<String>,
}

/// The contents of a file, in order: name, dimensions, and whether there is one for each layer.
pub(super) type Part = (&'static str, Vec<usize>, bool);
