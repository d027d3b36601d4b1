//! Models as llama2.c writes them (<https://github.com/karpathy/llama2.c>, `export.py`): sizes, then
//! f32 matrices of all layers one after the other. Version 0 begins with the sizes, version 1 with
//! `ak42`.

use super::quantized::Wrong;
use super::safetensors::{TensorInfo, stored_type};
use super::views::View;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Little-endian `ak42`.
const MAGIC: &[u8] = b"24ka";
/// Bytes before the weights.
const HEADER: [usize; 2] = [28, 256];

const AGAIN: &str = "download the file again, or export it with llama2.c's `export.py --version 0` or `1`";

/// Sizes of a model.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dim: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
    context: usize,
    tied: bool,
    version: usize,
}

/// What stands in a file, in order: name, dimensions, and whether there is one for each layer.
type Part = (&'static str, Vec<usize>, bool);

impl Sizes {
    /// The sizes of a file; `None` if this is no such file.
    fn read(file: &[u8]) -> Option<Result<Sizes, Wrong>> {
        let number = |at: usize| file.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes);
        let newer = file.starts_with(MAGIC);
        if newer && number(4) != Some(1) {
            let what = format!("this is a file of llama2.c of version {}, which is not read", number(4).unwrap_or(0));
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
            version: usize::from(newer),
        };
        let whole = sizes.dim.is_multiple_of(sizes.heads) && sizes.heads.is_multiple_of(sizes.kv_heads);
        whole.then_some(Ok(sizes))
    }

    fn parts(&self) -> Vec<Part> {
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

    /// Elements of all.
    fn elements(&self) -> Option<usize> {
        self.parts().iter().try_fold(0usize, |sum, (_, shape, of_layers)| {
            let one = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
            sum.checked_add(one.checked_mul(if *of_layers { self.layers } else { 1 })?)
        })
    }
}

/// The model of a file: what `params.json` would say, and the tensors of file `shard`; `None` if this
/// is no file of llama2.c.
#[expect(clippy::type_complexity, reason = "what params.json would say, and tensors")]
pub(super) fn describe(file: &[u8], shard: usize) -> Option<Result<(Value, BTreeMap<String, View>), Wrong>> {
    let sizes = match Sizes::read(file)? {
        Ok(sizes) => sizes,
        Err(wrong) => return Some(Err(wrong)),
    };
    let bytes = sizes.elements().and_then(|n| n.checked_mul(4)?.checked_add(HEADER[sizes.version]));
    if bytes != Some(file.len()) {
        // Without a magic number any file may begin like this.
        let what = format!(
            "its header is one of llama2.c for a model of {} bytes, but the file has {}",
            bytes.map_or("too many".into(), |n| n.to_string()),
            file.len()
        );
        return (sizes.version > 0).then_some(Err((what, AGAIN)));
    }
    let dtype = stored_type("F32")?;
    let (mut tensors, mut at) = (BTreeMap::new(), HEADER[sizes.version]);
    for (name, shape, of_layers) in sizes.parts() {
        for layer in 0..if of_layers { sizes.layers } else { 1 } {
            let full = match name {
                _ if of_layers => format!("layers.{layer}.{name}.weight"),
                "freqs_cos" | "freqs_sin" => name.to_string(),
                _ => format!("{name}.weight"),
            };
            let to = at + 4 * shape.iter().product::<usize>();
            let info = TensorInfo { dtype, shape: shape.clone(), bytes: at..to };
            tensors.insert(full, View { shard, info, strides: None });
            at = to;
        }
    }
    let params = json!({
        "dim": sizes.dim, "hidden_dim": sizes.hidden, "n_layers": sizes.layers, "n_heads": sizes.heads,
        "n_kv_heads": sizes.kv_heads, "norm_eps": 1e-5, "max_seq_len": sizes.context, "bos_id": 1, "eos_id": 2,
    });
    Some(Ok((params, tensors)))
}
