//! Weights that are packed already: copied, or brought into another order, bit for bit.

use super::source::{PackError, PackedBefore};
use llmcc_ir::plan::Storage;
use llmcc_ir::quant::{self, BLOCK, CodedRow, Format};
use rayon::prelude::*;

/// Bytes that are written together.
const AT_ONCE: usize = 8 << 20;
/// Elements that one task reorders.
const TASK_ELEMENTS: usize = 1 << 19;
/// Tasks whose results may wait for being written.
const TASKS_IN_FLIGHT: usize = 16;

/// Whether a matrix in one format can be brought into the order of another one, with the same bits: both have the same
/// codes, and the order of the first keeps them.
pub fn reorders(from: Format, to: Format) -> bool {
    from.has_codes_of(to) && (from.packing == to.packing || from.keeps_codes() || !from.is_quantized())
}

/// Writes a weight that was packed before, as it is stored now.
pub(super) fn write(
    before: &PackedBefore<'_>,
    wanted: Storage,
    name: &str,
    write: &mut dyn FnMut(&[u8]) -> Result<(), PackError>,
) -> Result<(), PackError> {
    match (before.storage, wanted) {
        (have, want) if have == want => before.bytes.chunks(AT_ONCE).try_for_each(write),
        (Storage::Matrix { n, k, format: from }, Storage::Matrix { n: rows, k: columns, format: to })
            if (n, k) == (rows, columns) && reorders(from, to) =>
        {
            let blocks = n.div_ceil(BLOCK);
            let per_task = (TASK_ELEMENTS / (BLOCK * k).max(1)).max(1);
            let starts: Vec<usize> = (0..blocks).step_by(per_task).collect();
            for wave in starts.chunks(TASKS_IN_FLIGHT) {
                let task = |first: &usize| {
                    let range = (*first, (first + per_task).min(blocks));
                    reordered(before.bytes, range, (n, k), (from, to))
                };
                let ready: Vec<Result<Vec<u8>, quant::PackError>> = wave.par_iter().map(task).collect();
                for bytes in ready {
                    write(&bytes.map_err(|e| refused(name, e.to_string()))?)?;
                }
            }
            Ok(())
        }
        _ => Err(refused(name, "it was packed with other codes or of another shape".into())),
    }
}

fn refused(name: &str, what: String) -> PackError {
    PackError::Expression { tensor: name.into(), what }
}

/// Blocks `first..last` in the other order.
fn reordered(
    packed: &[u8],
    (first, last): (usize, usize),
    (n, k): (usize, usize),
    (from, to): (Format, Format),
) -> Result<Vec<u8>, quant::PackError> {
    let size = to.block_bytes(k);
    let mut out = vec![0u8; (last - first) * size];
    let mut values = vec![0f32; BLOCK * k];
    for (block, out) in (first..last).zip(out.chunks_exact_mut(size)) {
        let rows = block * BLOCK..n.min((block + 1) * BLOCK);
        let codes: Option<Vec<CodedRow>> = rows.clone().map(|r| quant::unpack_codes(from, packed, k, r)).collect();
        match codes {
            Some(codes) => quant::pack_codes(to, &codes, k, out)?,
            None => {
                let values = &mut values[..rows.len() * k];
                rows.zip(values.chunks_exact_mut(k)).for_each(|(r, row)| quant::unpack_row(from, packed, k, r, row));
                quant::pack_block(to, values, k, out)?;
            }
        }
    }
    Ok(out)
}
