//! Scales of rows that are rounded token by token: a warp per run of columns.
//!
//! Magnitudes are compared by their bits: as integers they order like the numbers, and NaN above
//! infinity.

use crate::cx::{Cx, when_below};
use crate::mlir::{Cmp, Elem, F32, I32, WARP};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_ir::kernel::{AbsMaxScale, RowElem};

/// Warps of a block; each has runs of its own.
const WARPS: usize = 4;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &AbsMaxScale) -> Source {
    let (cols, width) = (cx.cols(k.x), k.scale.width);
    let runs = cols / width;
    let threads = WARPS as u32 * WARP as u32;
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (tid, row, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"), b.sreg("ctaid.y"));
        let (warp, lane) = b.warp_and_lane(tid);
        let first = b.mulc(block, WARPS as i64);
        let run = b.add(first, warp);
        let there = b.cmpc(Cmp::Slt, run, runs as i64);
        when_below(b, row, m, |b| {
            b.if_(there, |b| {
                let from = row_at(b, args.operand(k.x), cols, RowElem::F32, row);
                let start = b.mulc(run, width as i64);
                let (least, end, step) = (b.f32(k.scale.least.get()), b.i32(width as i64), b.i32(WARP as i64));
                let least = b.bitcast(least, I32);
                let most = b.for_((lane, end, step), &[least], |b, i, most| {
                    let col = b.add(start, i);
                    let p = col_at(b, from, Elem::F32, col);
                    let bits = b.load(p, I32);
                    let bits = b.andc(bits, 0x7fff_ffff);
                    vec![b.smax(most[0], bits)]
                });
                let most = b.reduce(most[0], &[16, 8, 4, 2, 1], |b, x, y| b.smax(x, y));
                let m = b.bitcast(most, F32);
                let writes = b.cmpc(Cmp::Eq, lane, 0);
                b.if_(writes, |b| {
                    let to = row_at(b, args.operand(k.out), 2 * runs, RowElem::F32, row);
                    let to = col_at(b, to, Elem::F32, run);
                    let most = b.f32(k.scale.most.get());
                    let (times, back) = (b.fdiv(most, m), b.fdiv(m, most));
                    b.store(times, to);
                    let to = b.atc(to, 4 * runs as i64);
                    b.store(back, to);
                });
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), threads, [per_rows(1), blocks(runs.div_ceil(WARPS)), blocks(1)])
}
