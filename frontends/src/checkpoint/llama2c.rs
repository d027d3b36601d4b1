//! Models as llama2.c writes them (<https://github.com/karpathy/llama2.c>, `export.py`): sizes, then
//! f32 matrices of all layers one after the other. Version 0 begins with the sizes, version 1 with
//! `ak42`. Version 2 has f32 vectors first, then of each matrix int8 codes and f32 scales of groups of
//! the flattened matrix.

mod sizes;
mod ternary;

use super::consolidated::{self, Cut, transformers};
use super::quantized::{COMPUTED, Wrong, groups_of_int8};
use super::safetensors::{TensorInfo, stored_type};
use super::shard::Shard;
use super::stored::{Entry, Layout, Order};
use super::views::View;
use llmcc_ir::quant::CodedRow;
use serde_json::json;
use sizes::{AGAIN, Described, HEADER, Sizes, scale};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// int8 codes of a matrix and the scales of their groups.
#[derive(Debug)]
struct Grouped {
    shard: usize,
    codes: Range<usize>,
    scales: Range<usize>,
    columns: usize,
    /// Elements of a group, and of one of those that it is stored as.
    group: usize,
    unit: usize,
    /// The format has minima.
    minima: bool,
    order: Order,
}

impl Grouped {
    /// The first element of a row.
    fn first(&self, row: usize) -> usize {
        self.order.place(row).saturating_mul(self.columns)
    }

    fn code(&self, file: &[u8], element: usize) -> u8 {
        file.get(self.codes.start.saturating_add(element)).copied().unwrap_or(0)
    }

    fn scale(&self, file: &[u8], element: usize) -> f32 {
        scale(file, &self.scales, element / self.group)
    }
}

impl Layout for Grouped {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![(self.shard, self.codes.start..self.scales.end)]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let Some(file) = shards.get(self.shard).map(|s| &s.map[..]) else { return };
        let first = self.first(row);
        // Integers are stored as codes above zero.
        out.codes.iter_mut().enumerate().for_each(|(i, c)| *c = self.code(file, first + i) ^ 0x80);
        for (g, f) in out.factors.iter_mut().enumerate() {
            let scale = self.scale(file, first + g * self.unit);
            *f = (scale, if self.minima { -128.0 * scale } else { 0.0 });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let Some(file) = shards.get(self.shard).map(|s| &s.map[..]) else { return };
        let first = self.first(row);
        for (i, v) in out.iter_mut().enumerate() {
            *v = self.scale(file, first + i) * f32::from(self.code(file, first + i) as i8);
        }
    }
}

/// The matrix of int8 codes from `at` on, and where it ends.
fn coded(file: &[u8], shard: usize, sizes: &Sizes, cut: Cut, shape: &[usize], at: usize) -> (Entry, usize) {
    let elements: usize = shape.iter().product();
    let columns = shape.last().copied().unwrap_or(1);
    let codes = at..at + elements;
    let scales = codes.end..codes.end + elements / sizes.group * 4;
    let half = (0..elements / sizes.group).all(|i| {
        let s = scale(file, &scales, i);
        half::f16::from_f32(s).to_f32() == s
    });
    // Groups of rows, which files need not have.
    let format = Some(sizes.group).filter(|group| columns.is_multiple_of(*group)).and_then(|g| groups_of_int8(g, half));
    let (dtype, unit) = format.unwrap_or((&COMPUTED, 1));
    let order = cut.order(sizes.dim / sizes.heads);
    let end = scales.end;
    let info = TensorInfo { dtype, shape: shape.to_vec(), bytes: codes.clone() };
    let layout = Grouped { shard, codes, scales, columns, group: sizes.group, unit, minima: !half, order };
    (Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info) }, end)
}

/// The model of file `shard`, as if it were in Transformers' layout; `None` if this is no file of llama2.c.
pub(super) fn describe(file: &[u8], shard: usize) -> Option<Result<consolidated::Described, Wrong>> {
    let found = match tensors(file, shard)? {
        Ok(found) => found,
        Err(wrong) => return Some(Err(wrong)),
    };
    let model = consolidated::describe(&found.params, vec![found.views], found.coded);
    Some(model.map(|mut model| {
        if let (Some([model_type, class]), Some(config)) = (found.class, model.config.as_object_mut()) {
            config.insert("model_type".into(), model_type.into());
            config.insert("architectures".into(), json!([class]));
        }
        model.notes.extend(found.notes);
        model
    }))
}

fn tensors(file: &[u8], shard: usize) -> Option<Result<Described, Wrong>> {
    let sizes = match Sizes::read(file)? {
        Ok(sizes) => sizes,
        Err(wrong) => return Some(Err(wrong)),
    };
    let bytes = sizes.bytes().and_then(|n| n.checked_add(HEADER[sizes.version]));
    if bytes != Some(file.len()) {
        if let Some(found) = ternary::describe(file, shard, &sizes) {
            return Some(found);
        }
        // Without a magic number any file may begin like this.
        let what = format!(
            "its llama2.c header describes a model of {} bytes, but the file has {}",
            bytes.map_or("too many".into(), |n| n.to_string()),
            file.len()
        );
        return (sizes.version > 0).then_some(Err((what, AGAIN)));
    }
    let dtype = stored_type("F32")?;
    let (mut views, mut of_codes, mut at) = (BTreeMap::new(), BTreeMap::new(), HEADER[sizes.version]);
    for (name, shape, of_layers) in sizes.parts() {
        for layer in 0..if of_layers { sizes.layers } else { 1 } {
            let full = match name {
                _ if of_layers => format!("layers.{layer}.{name}.weight"),
                "freqs_cos" | "freqs_sin" => name.to_string(),
                _ => format!("{name}.weight"),
            };
            if sizes.version == 2 && shape.len() == 2 {
                let (called, cut) = transformers(&full);
                let (entry, end) = coded(file, shard, &sizes, cut, &shape, at);
                of_codes.insert(called, entry);
                at = end;
                continue;
            }
            let to = at + 4 * shape.iter().product::<usize>();
            let info = TensorInfo { dtype, shape: shape.clone(), bytes: at..to };
            views.insert(full, View { shard, info, strides: None });
            at = to;
        }
    }
    Some(Ok(Described { params: sizes.params(), views, coded: of_codes, class: None, notes: vec![] }))
}

#[cfg(test)]
mod tests {
    use super::sizes::MAGIC;
    use crate::checkpoint::Checkpoint;
    use crate::testing::Folder;

    const HEAD: usize = 8;

    /// A file of version 2 as `version2_export` writes it, and each matrix's decoded values.
    fn version2(group: usize, tied: bool) -> (Vec<u8>, Vec<(String, Vec<f32>)>) {
        let (dim, hidden, layers, heads, kv_heads, vocab) = (64, 96, 2, 8, 4, 40);
        let mut file = MAGIC.to_vec();
        for n in [2, dim, hidden, layers, heads, kv_heads, vocab, 128] {
            file.extend(i32::to_le_bytes(n));
        }
        file.push(tied.into());
        file.extend((group as i32).to_le_bytes());
        file.resize(256, 0);
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        let norms = (2 * layers + 1) * dim;
        (0..norms).for_each(|i| file.extend((i as f32).to_le_bytes()));
        let kv = dim / heads * kv_heads;
        let layer = [("q", dim, dim), ("k", kv, dim), ("v", kv, dim), ("o", dim, dim)]
            .map(|(n, a, b)| (format!("self_attn.{n}_proj"), a, b));
        let mlp = [("gate", hidden, dim), ("down", dim, hidden), ("up", hidden, dim)]
            .map(|(n, a, b)| (format!("mlp.{n}_proj"), a, b));
        let mut list = vec![("model.embed_tokens.weight".to_string(), vocab, dim)];
        for (name, n, k) in layer.into_iter().chain(mlp) {
            list.extend((0..layers).map(|i| (format!("model.layers.{i}.{name}.weight"), n, k)));
        }
        list.extend((!tied).then(|| ("lm_head.weight".to_string(), vocab, dim)));
        let mut expected = vec![];
        for (name, n, k) in list {
            let (n, k) = (n as usize, k as usize);
            let codes: Vec<i8> = (0..n * k).map(|_| random() as u8 as i8).collect();
            let scales: Vec<f32> = (0..n * k / group).map(|_| random() as f32 / 127.0).collect();
            file.extend(codes.iter().map(|c| *c as u8));
            file.extend(scales.iter().flat_map(|s| s.to_le_bytes()));
            let values: Vec<f32> = codes.iter().enumerate().map(|(i, c)| scales[i / group] * f32::from(*c)).collect();
            let rotated = name.contains("q_proj") || name.contains("k_proj");
            // Neighbours to halves of heads.
            let place = |row: usize| row / HEAD * HEAD + row % HEAD % (HEAD / 2) * 2 + row % HEAD / (HEAD / 2);
            let rows = (0..n).flat_map(|row| values[if rotated { place(row) } else { row } * k..][..k].to_vec());
            expected.push((name, rows.collect()));
        }
        (file, expected)
    }

    #[test]
    fn int8_keeps_its_codes() {
        for (group, tied, dtype) in [(64, true, "w8zg64"), (32, false, "w8zg32"), (16, true, "f32")] {
            let (file, expected) = version2(group, tied);
            let folder = Folder::new();
            folder.write("model.bin", file);
            let ckpt = Checkpoint::open(&folder.0.join("model.bin")).unwrap();
            for (name, values) in expected {
                assert_eq!(ckpt.to_f32(&name).unwrap(), values, "{name}, groups of {group}");
                let whole = ckpt.info(&name).unwrap().shape[1].is_multiple_of(group);
                let found = ckpt.info(&name).unwrap().dtype.dtype.unwrap().to_string();
                assert_eq!(found, if whole { dtype } else { "f32" }, "{name}");
            }
            assert_eq!(ckpt.config()["vocab_size"], 40);
            assert_eq!(ckpt.config()["intermediate_size"], 96);
            assert_eq!(ckpt.config()["tie_word_embeddings"], tied);
            assert_eq!(ckpt.to_f32("model.norm.weight").unwrap()[0], 256.0);
        }
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let (file, _) = version2(32, true);
        let message = |file: Vec<u8>| {
            let folder = Folder::new();
            folder.write("model.bin", file);
            Checkpoint::open(&folder.0.join("model.bin")).map_or_else(|e| e.to_string(), |_| "nothing".into())
        };
        let with = |at: usize, n: i32| [&file[..at], &n.to_le_bytes(), &file[at + 4..]].concat();
        assert!(message(with(4, 3)).contains("of version 3, which is not supported"));
        assert!(message(file[..file.len() - 1].to_vec()).contains("but the file has"));
        // Invalid sizes, sizes that make no whole groups, or more bytes than there can be.
        for at in (8..32).step_by(4).chain([37]) {
            for n in [0, -1, 7, i32::MAX, 1 << 23] {
                assert_ne!(message(with(at, n)), "nothing", "{n} at {at}");
            }
        }
        for (magic, words) in [
            (0x6767_6d6c_u32, "GGML of 2023 or before"),
            (0x6767_6d66, "`ggmf`, version 1)"),
            (0x6767_6a74, "`ggjt`, version 1)"),
            (0x6767_6c61, "an adapter of llama.cpp"),
        ] {
            let file = [magic.to_le_bytes(), 1u32.to_le_bytes(), [0; 4], [0; 4]].concat();
            assert!(message(file.clone()).contains(words), "{}", message(file));
        }
    }
}
