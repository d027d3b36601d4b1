//! Adapters from files.

use std::path::Path;

use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{BLOCK, block};
use llmcc_text::adapter::{Adapter, AdapterTable, Placed, bf16};

use super::failed;
use crate::engine::Matrices;
use crate::error::{Error, Result, Status};

/// The states' matrices for the adapter at `path`, a folder that PEFT saved or its file of tensors,
/// by the table in the manifest.
///
/// # Errors
/// The artifact has no room for adapters; the files are missing, malformed or of another model.
pub fn read_adapter(manifest: &str, path: &Path) -> Result<Matrices> {
    let table = AdapterTable::of(manifest).map_err(failed)?.ok_or_else(|| {
        Error::new(Status::Unsupported, "the artifact has no room for adapters: compile the model with `--lora-slots`")
    })?;
    let adapter = Adapter::open(path).map_err(failed)?;
    let placed = table.place(&adapter).map_err(failed)?;
    Ok(placed.iter().map(|p| (p.state, packed(p, table.wide))).collect())
}

/// The layout of weights of plain numbers: 16 rows of a column, of bf16 of a pair of columns, after the
/// other.
fn packed(p: &Placed, wide: bool) -> Vec<u8> {
    let bytes = block(if wide { &Encoding::F32 } else { &Encoding::BF16 }, p.columns).bytes;
    let blocks = p.numbers.chunks(BLOCK * p.columns);
    let mut out = vec![0; blocks.len() * bytes];
    for (rows, out) in blocks.zip(out.chunks_exact_mut(bytes)) {
        for (r, row) in rows.chunks_exact(p.columns).enumerate() {
            for (c, x) in row.iter().enumerate() {
                if wide {
                    let at = (c * BLOCK + r) * 4;
                    out[at..at + 4].copy_from_slice(&x.to_le_bytes());
                } else {
                    let at = (c / 2 * BLOCK + r) * 4 + c % 2 * 2;
                    out[at..at + 2].copy_from_slice(&bf16(*x).to_le_bytes());
                }
            }
        }
    }
    out
}
