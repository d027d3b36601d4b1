//! Elementwise kernels that no other kernel absorbed: a block per row, segments one after the
//! other.

use crate::cx::{Cx, when_below};
use crate::epilogue::{self, Tile};
use crate::{Source, blocks, per_rows};
use llmcc_ir::kernel::Pointwise;

const THREADS: u32 = 256;

/// Bytes of shared memory: normalized rows, and rows to be rounded to codes.
pub fn shared_bytes(cx: &Cx<'_>, body: &Pointwise) -> usize {
    body.segments.iter().map(|s| epilogue::shared_bytes(cx, s, 1, s.n)).max().unwrap_or(0)
}

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, body: &Pointwise) -> Source {
    let (mlir, program) = cx.function(THREADS, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row0 = b.sreg("ctaid.x");
        when_below(b, row0, m, |b| {
            for s in &body.segments {
                let (rows, col0, cols) = (b.i32(1), b.i32(0), b.i32(s.n as i64));
                let spare = b.shared();
                let tile = Tile {
                    acc: &[],
                    row0,
                    rows,
                    max_rows: 1,
                    col0,
                    cols,
                    max_cols: s.n,
                    spare,
                    threads: THREADS,
                    slots: None,
                };
                epilogue::run(cx, b, args, s, &tile);
                b.barrier();
            }
        });
    });
    Source {
        shared: shared_bytes(cx, body) as u32,
        ..Source::new(cx.entry(), (mlir, program), THREADS, [per_rows(1), blocks(1), blocks(1)])
    }
}
