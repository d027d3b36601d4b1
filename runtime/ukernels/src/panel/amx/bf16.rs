//! bf16 weights × bf16 rows by AMX.
//!
//! Sums are those of `TDPBF16PS`, so not the bits of the other levels: of 32 columns the products of even ones and of odd ones are added up from zero, in ascending order, one fused
//! multiply-add each; then `acc += even + odd`. Subnormal numbers count as zeros, as operands and as results. It is the same for any number of rows: also a single row takes this
//! code, which reads weights as fast as memory gives them.
//!
//! # What bounds it
//!
//! Per 32 columns of 32 × 32 outputs four tiles are loaded, 4 KB, for 64 cycles of the matrix unit. A block of weights is some 100 KB long and the rows more, so most of that comes from the
//! second-level cache.

use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use llmcc_abi::PanelArgs;
use llmcc_abi::layout::BLOCK;

use super::super::NEAR;
use super::{LINE, Operands, Place, SIDE, TILE, clear, configure, passes, release, restore, store, sum};

/// Columns of a tile.
pub(crate) const DEPTH: usize = 32;

/// Whether rows are whole tiles. It depends on nothing but the columns, as the order of summation must.
#[inline(always)]
pub(crate) fn suits(p: &PanelArgs) -> bool {
    p.k > 0 && p.k.is_multiple_of(DEPTH as u64)
}

/// Computes a panel.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has AMX-BF16, this process may use tiles, and [`suits`].
#[inline(always)]
pub(crate) unsafe fn run(p: &PanelArgs) {
    unsafe {
        for pass in passes(p.m as usize).into_iter().filter(|pass| pass.rows > 0) {
            configure(pass.tiles, LINE);
            if pass.tiles.1 > 0 {
                for row in (pass.first..pass.first + pass.rows).step_by(2 * SIDE) {
                    many(p, row);
                }
            } else {
                few(p, pass.first);
            }
        }
        release();
    }
}

/// Up to 16 rows of all blocks: weights stream by.
#[inline(always)]
unsafe fn few(p: &PanelArgs, row: usize) {
    let blocks = p.blocks as usize;
    for b in (0..blocks).step_by(2) {
        unsafe { if blocks - b >= 2 { stream::<2>(p, row, b) } else { stream::<1>(p, row, b) } }
    }
}

/// Up to 16 rows of `BLOCKS` blocks.
#[inline(always)]
unsafe fn stream<const BLOCKS: usize>(p: &PanelArgs, row: usize, b: usize) {
    let (a_stride, w_stride) = (p.a_stride as usize, p.w_stride as usize);
    unsafe {
        clear::<1, BLOCKS>();
        sum::<true, 1, BLOCKS>(&Operands {
            a: p.a.add(row * a_stride),
            a_stride,
            second: 0,
            w: p.w.add(b * w_stride),
            other: w_stride,
            pieces: p.k as usize / DEPTH,
            depth: LINE,
            next: LINE,
            ahead: NEAR,
        });
        let c_stride = p.c_stride as usize;
        store::<1, BLOCKS>(&Place { at: p.c.add(row * c_stride + b * BLOCK).cast(), across: LINE, down: 0, stride: c_stride * 4 });
    }
}

/// Tiles of columns that pass through the first-level cache at once, 16 KB of each operand.
const PIECES: usize = 8;

/// Tiles of activations: of the first rows and of the second, for each tile of columns.
#[repr(C, align(64))]
struct Packed([[[u8; TILE]; 2]; PIECES]);

/// Pairs of blocks whose sums are kept while columns pass.
const PAIRS: usize = 8;

/// Sums of 32 rows and [`PAIRS`] pairs of blocks, tile after tile: in place, rows often lie a power of two apart.
#[repr(C, align(64))]
struct Sums([[[[f32; SIDE]; SIDE]; 4]; PAIRS]);

/// 17 to 32 rows of all blocks.
#[inline(always)]
unsafe fn many(p: &PanelArgs, row: usize) {
    let blocks = p.blocks as usize;
    for first in (0..blocks).step_by(2 * PAIRS) {
        unsafe { block(p, row, first, blocks.min(first + 2 * PAIRS)) };
    }
}

/// 17 to 32 rows of blocks `first..end`, some columns after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
#[inline(never)]
unsafe fn block(p: &PanelArgs, row: usize, first: usize, end: usize) {
    let mut packed = MaybeUninit::<Packed>::uninit();
    let mut sums = MaybeUninit::<Sums>::uninit();
    let pieces = p.k as usize / DEPTH;
    for piece in (0..pieces).step_by(PIECES) {
        let columns = (piece, PIECES.min(pieces - piece));
        unsafe {
            pack(p, row, columns, &mut packed);
            for b in (first..end).step_by(2) {
                let at = sums.as_mut_ptr().cast::<u8>().add((b - first) / 2 * 4 * TILE);
                let t = Columns {
                    a: packed.as_ptr().cast(),
                    columns,
                    sums: Place { at, across: TILE, down: 2 * TILE, stride: LINE },
                    ask: row == 0,
                };
                if end - b >= 2 { tiles::<2>(p, &t, b) } else { tiles::<1>(p, &t, b) }
            }
        }
    }
    for i in 0..(2 * SIDE).min(p.m as usize - row) {
        for b in first..end {
            let from = (b - first) / 2 * 4 + (b - first) % 2 + i / SIDE * 2;
            unsafe {
                let from = sums.as_ptr().cast::<u8>().add(from * TILE + i % SIDE * LINE);
                let to = p.c.add((row + i) * p.c_stride as usize + b * BLOCK);
                _mm512_storeu_ps(to, _mm512_load_ps(from.cast()));
            }
        }
    }
}

/// Copies tiles of activations together: in place, rows often lie a power of two apart and drive each other from the cache.
#[inline(always)]
unsafe fn pack(p: &PanelArgs, row: usize, (piece, some): (usize, usize), to: &mut MaybeUninit<Packed>) {
    let rows = (2 * SIDE).min(p.m as usize - row);
    let to = to.as_mut_ptr().cast::<u8>();
    for i in 0..rows {
        unsafe {
            let from = p.a.add((row + i) * p.a_stride as usize + piece * LINE);
            for j in 0..some {
                _mm512_store_si512(to.add((j * 2 * SIDE + i) * LINE).cast(), _mm512_loadu_si512(from.add(j * LINE).cast()));
            }
        }
    }
}

/// Some columns of the rows.
struct Columns {
    /// Packed activations.
    a: *const u8,
    /// First tile of columns, and how many.
    columns: (usize, usize),
    sums: Place,
    /// Whether to ask for weights in advance.
    ask: bool,
}

/// Adds the products of some columns to the sums of `BLOCKS` blocks.
#[inline(always)]
unsafe fn tiles<const BLOCKS: usize>(p: &PanelArgs, t: &Columns, b: usize) {
    let (w_stride, (piece, pieces)) = (p.w_stride as usize, t.columns);
    unsafe {
        if piece == 0 {
            clear::<2, BLOCKS>()
        } else {
            restore::<2, BLOCKS>(&t.sums)
        }
        sum::<true, 2, BLOCKS>(&Operands {
            a: t.a,
            a_stride: LINE,
            second: TILE,
            w: p.w.add(b * w_stride + piece * TILE),
            other: w_stride,
            pieces,
            depth: LINE,
            next: 2 * TILE,
            // The same columns of the next blocks.
            ahead: if t.ask { BLOCKS * w_stride } else { 0 },
        });
        store::<2, BLOCKS>(&t.sums);
    }
}
