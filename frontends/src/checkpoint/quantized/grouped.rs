//! Fine-grained FP8, as DeepSeek has it (arXiv 2412.19437): e4m3 numbers, and a scale for each block
//! of rows and columns in `weight_scale_inv`.

use super::{Part, Tensors, UNQUANTIZED, Wrong, coded};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem, Format};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Columns of a group.
const GROUP: usize = 128;

static FP8: StoredType = coded("FP8 in blocks", Format::new(Elem::named("fp8b"), GROUP as u16), 8);

pub(super) fn blocks_of_fp8(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let block = settings.get("weight_block_size").and_then(Value::as_array);
    let block: Option<Vec<usize>> = block.and_then(|list| list.iter().map(size).collect());
    let [rows, columns] = block.as_deref().unwrap_or_default() else {
        return Err(("`weight_block_size` is no pair of sizes".into(), UNQUANTIZED));
    };
    if !columns.is_multiple_of(GROUP) {
        return Err((format!("`weight_block_size` has {columns} columns, no multiple of {GROUP}"), UNQUANTIZED));
    }
    for stem in tensors.stems(".weight_scale_inv") {
        let name = format!("{stem}.weight");
        let [n, k] = tensors.matrix(&name)?;
        let codes = tensors.take(&name, &["F8_E4M3"], &[n, k])?;
        let of = [n.div_ceil(*rows), k.div_ceil(*columns)];
        let scales = tensors.take(&format!("{stem}.weight_scale_inv"), &["F32", "BF16"], &of)?;
        let info = TensorInfo { dtype: &FP8, shape: vec![n, k], bytes: codes.from..codes.to };
        let layout = Blocks { codes, scales, k, rows: *rows, columns: *columns, across: of[1] };
        tensors.index.insert(name, Entry { shard: codes.shard, info, layout: Some(Arc::new(layout)) });
    }
    Ok(())
}

#[derive(Debug)]
struct Blocks {
    codes: Part,
    scales: Part,
    k: usize,
    /// Of a block.
    rows: usize,
    columns: usize,
    /// Blocks beside each other.
    across: usize,
}

impl Layout for Blocks {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let codes = self.codes.bytes(shards).get(row * self.k..).unwrap_or_default();
        out.codes.iter_mut().zip(codes).for_each(|(c, u)| *c = *u);
        for (g, f) in out.factors.iter_mut().enumerate() {
            let at = row / self.rows * self.across + g * GROUP / self.columns;
            *f = (self.scales.float(shards, at), 0.0);
        }
    }

    // It is codes.
    fn values(&self, _: &[Shard], _: usize, _: &mut [f32]) {}
}
