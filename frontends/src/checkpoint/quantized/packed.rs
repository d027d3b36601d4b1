//! GPTQ (arXiv 2210.17323) and AWQ (arXiv 2306.00978): integers of 4 or 8 bits in 32-bit words, with
//! an f16 scale and a zero for each group of columns: `scale·(u − zero)`.
//!
//! GPTQ has `qweight` `[in / per word, out]`, words along the inputs; AWQ `[in, out / per word]`, in
//! an order of its own. Both have `qzeros` `[groups, out / per word]` and `scales` `[groups, out]`.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, grouped_type, unit};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Where AWQ puts each eighth of a word's outputs.
const AWQ_PLACE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// How a method writes its words.
#[derive(Clone, Copy, Debug)]
struct Words {
    bits: usize,
    /// Codes of adjacent inputs are in a word, in order; else those of adjacent outputs, in AWQ's.
    by_input: bool,
    /// Zeros are stored less this.
    less: u32,
}

impl Words {
    fn per_word(self) -> usize {
        32 / self.bits
    }

    /// The code at this place of a word.
    fn code(self, word: u32, place: usize) -> u8 {
        ((word >> (place * self.bits)) & ((1u32 << self.bits) - 1)) as u8
    }

    /// The place of an output in its word of zeros, or of codes by output.
    fn place(self, output: usize) -> usize {
        let place = output % self.per_word();
        if self.by_input { place } else { AWQ_PLACE.get(place).copied().unwrap_or(0) }
    }
}

fn setting(settings: &Map<String, Value>, name: &str) -> Option<i64> {
    settings.get(name).and_then(Value::as_i64)
}

pub(super) fn gptq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let bits = match setting(settings, "bits") {
        Some(bits @ (4 | 8)) => bits as usize,
        other => return Err((format!("GPTQ of {other:?} bits is not read, 4 and 8 are"), UNQUANTIZED)),
    };
    let format = settings.get("checkpoint_format").and_then(Value::as_str).unwrap_or("gptq");
    let less = match format {
        "gptq" => 1,
        "gptq_v2" => 0,
        other => return Err((format!("`checkpoint_format` is `{other}`; `gptq` and `gptq_v2` are read"), UNQUANTIZED)),
    };
    matrices(settings, tensors, Words { bits, by_input: true, less })
}

pub(super) fn awq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let version = settings.get("version").and_then(Value::as_str).unwrap_or("gemm").to_lowercase();
    match (setting(settings, "bits").unwrap_or(4), version.as_str()) {
        (4, "gemm") => matrices(settings, tensors, Words { bits: 4, by_input: false, less: 0 }),
        (bits, version) => {
            Err((format!("AWQ of {bits} bits, version `{version}`, is not read; 4 bits, `gemm` is"), UNQUANTIZED))
        }
    }
}

fn matrices(settings: &Map<String, Value>, tensors: &mut Tensors<'_>, words: Words) -> Result<(), Wrong> {
    let group = setting(settings, "group_size").unwrap_or(-1);
    let (mut computed, mut all) = (0, 0);
    for stem in tensors.stems(".qweight") {
        let entry = matrix(tensors, &stem, words, usize::try_from(group).ok())?;
        computed += usize::from(std::ptr::eq(entry.info.dtype, &COMPUTED));
        all += 1;
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    if computed > 0 {
        tensors.notes.push(format!(
            "{computed} of {all} quantized matrices have groups of columns that are not adjacent (act-order, `desc_act`): \
             they are decoded, and stored as other matrices of floats are"
        ));
    }
    Ok(())
}

fn matrix(tensors: &mut Tensors<'_>, stem: &str, words: Words, group: Option<usize>) -> Result<Entry, Wrong> {
    let per = words.per_word();
    let [a, b] = tensors.matrix(&format!("{stem}.qweight"))?;
    let [n, k] = if words.by_input { [b, a.saturating_mul(per)] } else { [b.saturating_mul(per), a] };
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    if n == 0 || k == 0 || !n.is_multiple_of(per) {
        return Err(wrong(format!("{n} outputs of {k} inputs are no whole words of codes")));
    }
    let group = group.filter(|g| *g > 0).unwrap_or(k);
    let Some(unit) = unit(group).filter(|unit| k.is_multiple_of(*unit)) else {
        return Err(wrong(format!("groups of {group} of {k} columns are no multiples of 32")));
    };
    let groups = k.div_ceil(group);
    let codes = tensors.take(&format!("{stem}.qweight"), &["I32"], &[a, b])?;
    let zeros = tensors.take(&format!("{stem}.qzeros"), &["I32"], &[groups, n / per])?;
    let scales = tensors.take(&format!("{stem}.scales"), &["F16"], &[groups, n])?;
    let index = match tensors.index.contains_key(&format!("{stem}.g_idx")) {
        true => Some(tensors.take(&format!("{stem}.g_idx"), &["I32"], &[k])?),
        false => None,
    };
    let shards = tensors.shards;
    let of = |i: usize| index.map_or(i / group, |p| p.word(shards, i) as usize);
    if let Some(i) = (0..k).find(|i| of(*i) >= groups) {
        return Err(wrong(format!("column {i} is of group {}, and there are {groups}", of(i))));
    }
    let adjacent = (0..k).all(|i| of(i) == i / group);
    let middle = 1u32 << (words.bits - 1);
    let mut layout = Packed { codes, zeros, scales, index, words, n, k, group, unit, middle: false };
    layout.middle = (0..groups).all(|g| (0..n).all(|row| layout.zero(shards, row, g) == middle));
    let elem = match (words.bits, layout.middle) {
        (4, true) => Elem::W4,
        (4, false) => Elem::named("w4z"),
        (_, true) => Elem::W8,
        (_, false) => Elem::named("w8z"),
    };
    let dtype = grouped_type(elem, unit).filter(|_| adjacent).unwrap_or(&COMPUTED);
    let info = TensorInfo { dtype, shape: vec![n, k], bytes: codes.from..codes.to };
    Ok(Entry { shard: codes.shard, info, layout: Some(Arc::new(layout)) })
}

#[derive(Debug)]
struct Packed {
    codes: Part,
    zeros: Part,
    scales: Part,
    /// The group of each column.
    index: Option<Part>,
    words: Words,
    n: usize,
    k: usize,
    /// Columns of a group in the checkpoint, and of one of those that it is stored as.
    group: usize,
    unit: usize,
    /// All zeros are in the middle of the codes.
    middle: bool,
}

impl Packed {
    fn code(&self, shards: &[Shard], row: usize, col: usize) -> u8 {
        let (w, per) = (self.words, self.words.per_word());
        match w.by_input {
            true => w.code(self.codes.word(shards, col / per * self.n + row), col % per),
            false => w.code(self.codes.word(shards, col * (self.n / per) + row / per), w.place(row)),
        }
    }

    fn zero(&self, shards: &[Shard], row: usize, group: usize) -> u32 {
        let (w, per) = (self.words, self.words.per_word());
        let word = self.zeros.word(shards, group * (self.n / per) + row / per);
        u32::from(w.code(word, w.place(row))) + w.less
    }

    fn scale(&self, shards: &[Shard], row: usize, group: usize) -> f32 {
        self.scales.float(shards, group * self.n + row)
    }
}

impl Layout for Packed {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        out.codes.iter_mut().enumerate().for_each(|(col, c)| *c = self.code(shards, row, col));
        for (g, f) in out.factors.iter_mut().enumerate() {
            let group = g * self.unit / self.group;
            let scale = self.scale(shards, row, group);
            // Exact: 11 bits and at most 9.
            let min = -scale * self.zero(shards, row, group) as f32;
            *f = (scale, if self.middle { 0.0 } else { min });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        for (col, v) in out.iter_mut().enumerate().take(self.k) {
            let group = self.index.map_or(col / self.group, |p| p.word(shards, col) as usize);
            let number = i32::from(self.code(shards, row, col)) - self.zero(shards, row, group) as i32;
            // Exact.
            *v = self.scale(shards, row, group) * number as f32;
        }
    }
}
