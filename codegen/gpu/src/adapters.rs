//! Products with the matrices of adapters that are loaded while the model runs: a block of threads per
//! token and 16 columns of its result, which share out the columns of the matrix.
//!
//! Matrices are packed as for a CPU, 16 rows side by side, so half a warp reads the numbers of 16 rows
//! in one line. A thread adds its columns in ascending order, then half warps and warps in a fixed one.

use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, Memory, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_ir::kernel::{AdapterMatmul, RowElem};
use llmcc_ir::state::AdapterSpec;
use llmcc_ir::ty::DType;

/// Warps of a block.
const WARPS: usize = 8;
const THREADS: u32 = (WARPS * WARP) as u32;
/// Threads that share out the columns for one row of the matrix.
const TEAM: usize = THREADS as usize / BLOCK;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &AdapterMatmul) -> Source {
    let spec = cx.kernel.adapter(k.adapter);
    let product = AdapterProduct { k, spec, cols: cx.cols(k.x) };
    let (mlir, program) = cx.function(THREADS, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        let sums = Memory { name: "sums", at: 0, bytes: 4 * BLOCK, stages: WARPS, conflict_free: false, over: &[] };
        b.buffer(sums);
        when_below(b, row, m, |b| product.columns(b, args, row));
    });
    Source {
        shared: (4 * BLOCK * WARPS) as u32,
        ..Source::new(cx.entry(), (mlir, program), THREADS, [per_rows(1), blocks(spec.n / BLOCK), blocks(1)])
    }
}

struct AdapterProduct<'k> {
    k: &'k AdapterMatmul,
    spec: AdapterSpec,
    /// Columns of the input's rows.
    cols: usize,
}

impl AdapterProduct<'_> {
    /// The block's columns of a token's result.
    fn columns(&self, b: &mut Builder, args: Args<'_>, row: V) {
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.y"));
        let seq = args.seq(b, row);
        let entry = args.table(b, seq);
        let slot = b.load_const(entry, I32);
        let some = b.cmpc(Cmp::Ne, slot, 0);
        let none = |b: &mut Builder| vec![b.f32(0.0)];
        let matrix = |b: &mut Builder| {
            let slot = args.slot(b, args.operand(self.k.adapter), self.spec.bytes(), seq);
            let bytes = layout::block(&self.spec.format().encoding(), self.spec.k).bytes;
            let offset = b.zext(block, I64);
            let offset = b.mulc(offset, bytes as i64);
            let rows = b.at(slot, offset);
            let x = self.input(b, args, row, block);
            vec![self.sum(b, (tid, rows), x)]
        };
        let sum = b.if_else(some, &[F32], matrix, none)[0];
        let sum = of_all(b, tid, sum);
        let writes = b.cmpc(Cmp::Slt, tid, BLOCK as i64);
        b.if_(writes, |b| {
            let line = row_at(b, args.operand(self.k.out), self.spec.n, RowElem::F32, row);
            let first = b.mulc(block, BLOCK as i64);
            let col = b.add(first, tid);
            let p = col_at(b, line, Elem::F32, col);
            b.store(sum, p);
        });
    }

    /// The first of the columns that the block's part of the matrix multiplies.
    fn input(&self, b: &mut Builder, args: Args<'_>, row: V, block: V) -> V {
        let mut column = b.i32(self.k.start as i64);
        let mut end = 0;
        // Parts are whole blocks; no block lies beyond the last.
        for (i, part) in self.k.parts[..self.k.parts.len() - 1].iter().enumerate() {
            end += part / BLOCK;
            let reached = b.cmpc(Cmp::Sge, block, end as i64);
            let of_part = b.i32((self.k.start + (i + 1) * self.spec.k) as i64);
            column = b.select(reached, of_part, column);
        }
        let line = row_at(b, args.operand(self.k.x), self.cols, RowElem::F32, row);
        col_at(b, line, Elem::F32, column)
    }

    /// A thread's share of its row times the input.
    fn sum(&self, b: &mut Builder, (tid, rows): (V, V), x: V) -> V {
        // Columns that lie side by side in memory.
        let (together, elem) = if self.spec.dtype == DType::F32 { (1, Elem::F32) } else { (2, Elem::Bf16) };
        let line = BLOCK * together * elem.bytes();
        let (own, member) = (b.andc(tid, BLOCK as i64 - 1), b.shrc(tid, BLOCK.trailing_zeros().into()));
        let own = b.mulc(own, (together * elem.bytes()) as i64);
        let rows = b.at(rows, own);
        let (end, step, zero) = (b.i32(self.spec.k.div_ceil(together) as i64), b.i32(TEAM as i64), b.f32(0.0));
        let done = b.for_((member, end, step), &[zero], |b, i, sum| {
            let offset = b.mulc(i, line as i64);
            let p = b.at(rows, offset);
            let numbers = piece::load(b, p, elem, together);
            let first = b.mulc(i, together as i64);
            let sum = numbers.into_iter().enumerate().fold(sum[0], |sum, (j, w)| {
                let x = self.input_at(b, x, first, j);
                b.fma(w, x, sum)
            });
            vec![sum]
        });
        done[0]
    }

    /// Input `first + j`; of an odd number of columns there is none beside the last, whose number in
    /// the matrix is 0.
    fn input_at(&self, b: &mut Builder, x: V, first: V, j: usize) -> V {
        let p = col_at(b, x, Elem::F32, first);
        if j == 0 || self.spec.k.is_multiple_of(2) {
            let p = b.atc(p, 4 * j as i64);
            return b.load(p, F32);
        }
        let inside = b.cmpc(Cmp::Slt, first, (self.spec.k - j) as i64);
        let load = |b: &mut Builder| {
            let p = b.atc(p, 4 * j as i64);
            vec![b.load(p, F32)]
        };
        b.if_else(inside, &[F32], load, |b| vec![b.f32(0.0)])[0]
    }
}

/// The sum of all threads' shares of row `tid`, for the first 16 threads.
fn of_all(b: &mut Builder, tid: V, sum: V) -> V {
    let sum = b.reduce(sum, &[BLOCK as i64], |b, x, y| b.fadd(x, y));
    let (warp, lane) = b.warp_and_lane(tid);
    let shared = b.shared();
    let row = b.andc(lane, BLOCK as i64 - 1);
    let own = col_at(b, shared, Elem::F32, row);
    let first = b.cmpc(Cmp::Slt, lane, BLOCK as i64);
    b.if_(first, |b| {
        let offset = b.mulc(warp, 4 * BLOCK as i64);
        let p = b.at(own, offset);
        b.store(sum, p);
    });
    b.barrier();
    let shares: Vec<V> = (0..WARPS)
        .map(|warp| {
            let p = b.atc(own, (4 * BLOCK * warp) as i64);
            b.load(p, F32)
        })
        .collect();
    shares[1..].iter().fold(shares[0], |sum, x| b.fadd(sum, *x))
}
