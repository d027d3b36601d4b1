//! Ternary models as bitllama2.c writes them (<https://github.com/HKUSTGZ-MICS-LYU/bitllama2.c>): the header
//! of llama2.c's version 1, then f32 of the last norm and the table, then of each matrix an f32 scale and
//! codes of two bits, two's complement.
//!
//! Its programs of 2024 put the first of four weights into the highest bits of a byte; later ones
//! put it into the lowest, which no file tells. Products divide their input by its norm and the
//! root of its length; the model's norms do all but the division by the length, which is moved to
//! the scale.

use super::{Described, Sizes, scale};
use crate::checkpoint::consolidated::transformers;
use crate::checkpoint::quantized::Wrong;
use crate::checkpoint::quantized::ternary::{BY_TOKEN, TERNARY};
use crate::checkpoint::safetensors::{TensorInfo, stored_type};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout, Order};
use crate::checkpoint::views::View;
use llmcc_ir::quant::CodedRow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Configurations' names of such models.
pub(super) const CLASS: [&str; 2] = ["bitllama2c", "BitLlama2cForCausalLM"];

const NOTE: &str = "its products round their inputs to 8 bits with a scale per token, whatever --act says; the \
    first of four weights in a byte is assumed to be in the highest bits, as in the files of 2024 (later \
    programs use the lowest bits, and files do not tell)";

/// Columns of a matrix `[n, k]` that a byte holds.
const OF_BYTE: usize = 4;

const AGAIN: &str = "download the file again";

/// The matrices, in order.
const MATRICES: [&str; 7] = [
    "attention.wq",
    "attention.wk",
    "attention.wv",
    "attention.wo",
    "feed_forward.w1",
    "feed_forward.w2",
    "feed_forward.w3",
];

/// Codes of a matrix, all of its rows without a gap.
#[derive(Debug)]
struct HighFirst {
    shard: usize,
    bytes: Range<usize>,
    scale: f32,
    columns: usize,
    order: Order,
}

impl Layout for HighFirst {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![(self.shard, self.bytes.clone())]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let bytes = shards.get(self.shard).and_then(|s| s.map.get(self.bytes.clone())).unwrap_or_default();
        let first = self.order.place(row).saturating_mul(self.columns);
        for (i, c) in out.codes.iter_mut().enumerate() {
            // Stored as codes above zero: −1 is 0.
            *c = (two_bits(bytes, first + i) + 1) & 3;
        }
        out.factors.iter_mut().for_each(|f| *f = (self.scale, 0.0));
    }

    // It is codes.
    fn values(&self, _: &[Shard], _: usize, _: &mut [f32]) {}
}

fn two_bits(bytes: &[u8], element: usize) -> u8 {
    let byte = bytes.get(element / OF_BYTE).copied().unwrap_or(0);
    byte >> (6 - 2 * (element % OF_BYTE)) & 3
}

/// Whether a byte has the code of −2.
fn is_none(byte: u8) -> bool {
    (byte & !(byte << 1)) & 0b1010_1010 != 0
}

/// Shapes of the matrices of a layer.
fn matrices(sizes: &Sizes) -> Option<Vec<(&'static str, [usize; 2])>> {
    let parts = sizes.parts();
    let shape = |name: &str| match parts.iter().find(|(of, ..)| *of == name)?.1[..] {
        [n, k] => Some([n, k]),
        _ => None,
    };
    MATRICES.iter().map(|name| Some((*name, shape(name)?))).collect()
}

/// Bytes of the codes of a matrix, where these are whole bytes.
fn bytes([n, k]: [usize; 2]) -> Option<usize> {
    n.checked_mul(k).filter(|n| n.is_multiple_of(OF_BYTE)).map(|n| n / OF_BYTE)
}

/// Bytes of a whole file.
fn length(sizes: &Sizes) -> Option<usize> {
    let each = matrices(sizes)?.into_iter().try_fold(0usize, |sum, (_, shape)| sum.checked_add(4 + bytes(shape)?))?;
    let floats = sizes.vocab.checked_add(1)?.checked_mul(sizes.dim)?.checked_mul(4)?;
    super::HEADER[1].checked_add(floats)?.checked_add(each.checked_mul(sizes.layers)?)
}

/// The model of a file that is as long as such a file would be; `None` of any other.
pub(super) fn describe(file: &[u8], shard: usize, sizes: &Sizes) -> Option<Result<Described, Wrong>> {
    let is_one = sizes.version == 1 && sizes.tied && length(sizes) == Some(file.len());
    is_one.then(|| tensors(file, shard, sizes))
}

fn tensors(file: &[u8], shard: usize, sizes: &Sizes) -> Result<Described, Wrong> {
    let wrong = |what: String| (what, AGAIN);
    let dtype = stored_type("F32").ok_or_else(|| wrong("f32 is no type".into()))?;
    let (mut views, mut coded, mut at) = (BTreeMap::new(), BTreeMap::new(), super::HEADER[1]);
    for (name, shape) in [("norm", vec![sizes.dim]), ("tok_embeddings", vec![sizes.vocab, sizes.dim])] {
        let to = at + 4 * shape.iter().product::<usize>();
        let info = TensorInfo { dtype, shape, bytes: at..to };
        views.insert(format!("{name}.weight"), View { shard, info, strides: None });
        at = to;
    }
    for (name, shape) in matrices(sizes).unwrap_or_default() {
        for layer in 0..sizes.layers {
            let (called, cut) = transformers(&format!("layers.{layer}.{name}.weight"));
            let range = at + 4..at + 4 + bytes(shape).unwrap_or(0);
            let codes = file.get(range.clone()).unwrap_or_default();
            if let Some(i) = codes.iter().position(|b| is_none(*b)) {
                let place = range.start + i;
                return Err(wrong(format!(
                    "tensor `{called}` has the code -2 in byte {place}; only -1, 0 and 1 are valid"
                )));
            }
            let own = scale(file, &(at..at + 4), 0);
            if !own.is_finite() {
                return Err(wrong(format!("the scale of tensor `{called}`, in byte {at}, is {own}")));
            }
            at = range.end;
            let order = cut.order(sizes.dim / sizes.heads);
            let info = TensorInfo { dtype: &TERNARY, shape: shape.to_vec(), bytes: range.clone() };
            let layout = HighFirst { shard, bytes: range, scale: own / shape[1] as f32, columns: shape[1], order };
            let entry = Entry { layout: Some(Arc::new(layout)), input: Some(BY_TOKEN), ..Entry::plain(shard, info) };
            coded.insert(called, entry);
        }
    }
    Ok(Described { params: sizes.params(), views, coded, class: Some(CLASS), notes: vec![NOTE.into()] })
}

#[cfg(test)]
mod tests {
    use crate::checkpoint::Checkpoint;
    use crate::testing::Folder;

    const SIZES: [i32; 7] = [16, 24, 2, 4, 2, 10, 32];

    /// Name, rows and columns, codes, scale.
    type Matrix = (String, [usize; 2], Vec<i8>, f32);

    /// A file, and its matrices in order.
    fn file() -> (Vec<u8>, Vec<Matrix>) {
        let [dim, hidden, layers, heads, kv_heads, vocab, _] = SIZES.map(|n| n as usize);
        let kv = dim / heads * kv_heads;
        let mut file = crate::checkpoint::llama2c::sizes::MAGIC.to_vec();
        std::iter::once(1).chain(SIZES).for_each(|n| file.extend(i32::to_le_bytes(n)));
        file.push(1);
        file.resize(256, 0);
        (0..dim * (vocab + 1)).for_each(|i| file.extend((i as f32).to_le_bytes()));
        let list = [
            ("self_attn.q", dim, dim),
            ("self_attn.k", kv, dim),
            ("self_attn.v", kv, dim),
            ("self_attn.o", dim, dim),
            ("mlp.gate", hidden, dim),
            ("mlp.down", dim, hidden),
            ("mlp.up", hidden, dim),
        ];
        let (mut expected, mut state) = (vec![], 1u32);
        for (name, n, k) in list {
            for layer in 0..layers {
                let scale = (expected.len() + 1) as f32 / 8.0;
                file.extend(scale.to_le_bytes());
                let codes: Vec<i8> = (0..n * k)
                    .map(|_| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (state >> 24) as i8 % 2
                    })
                    .collect();
                let byte = |four: &[i8]| four.iter().fold(0u8, |b, c| b << 2 | *c as u8 & 3);
                file.extend(codes.chunks(4).map(byte));
                expected.push((format!("model.layers.{layer}.{name}_proj.weight"), [n, k], codes, scale));
            }
        }
        (file, expected)
    }

    fn open(file: &[u8]) -> Result<Checkpoint, String> {
        let folder = Folder::new();
        folder.write("model.bin", file);
        Checkpoint::open(&folder.0.join("model.bin")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_is_what_was_written() {
        let (file, expected) = file();
        let ckpt = open(&file).unwrap();
        for (name, [n, k], codes, scale) in expected {
            let head = 4;
            let rotated = name.contains("q_proj") || name.contains("k_proj");
            // Neighbours to halves of heads.
            let place = |row: usize| row / head * head + row % head % (head / 2) * 2 + row % head / (head / 2);
            let row = |row: usize| if rotated { place(row) } else { row } * k;
            let wanted: Vec<f32> =
                (0..n).flat_map(|i| codes[row(i)..][..k].iter().map(|c| f32::from(*c) * (scale / k as f32))).collect();
            assert_eq!(ckpt.to_f32(&name).unwrap(), wanted, "{name}");
            assert_eq!(ckpt.info(&name).unwrap().dtype.dtype.unwrap().to_string(), "ternaryr", "{name}");
            assert_eq!(ckpt.input_rounding(&name), Some(super::BY_TOKEN), "{name}");
        }
        assert_eq!(ckpt.config()["model_type"], "bitllama2c");
        assert_eq!(ckpt.config()["vocab_size"], 10);
        assert!(ckpt.notes().iter().any(|n| n.contains("in the highest bits")), "{:?}", ckpt.notes());
    }

    #[test]
    fn other_codes_and_scales_are_refused() {
        let (file, _) = file();
        let first = 256 + 4 * 16 * 11;
        let with = |at: usize, bytes: &[u8]| [&file[..at], bytes, &file[at + bytes.len()..]].concat();
        for (wrong, what) in [
            (with(first + 4 + 3, &[0b0110_0001]), "the code -2 in byte 967; "),
            (with(first, &f32::NAN.to_le_bytes()), "in byte 960, is NaN"),
            // Not tied, shorter: the length is that of no file.
            (with(36, &[0]), "but the file has"),
            (file[..file.len() - 1].to_vec(), "but the file has"),
        ] {
            let message = open(&wrong).map_or_else(|e| e, |_| "nothing".into());
            assert!(message.contains(what), "{message}");
        }
    }
}
