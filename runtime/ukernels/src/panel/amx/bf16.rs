//! bf16 weights × bf16 rows by AMX.
//!
//! Sums are as `TDPBF16PS` makes them, so the bits differ from the other levels: for each 32
//! columns the products of even ones and of odd ones are added up from zero, in ascending order,
//! one fused multiply-add each; then `acc += even + odd`. Subnormal numbers count as zeros, as
//! operands and as results. It is the same for any number of rows: also a single row takes this
//! code, which reads weights as fast as memory gives them.
//!
//! # What bounds it
//!
//! Per 32 columns of 32 × 32 outputs four tiles are loaded, 4 KB, for 73 cycles of the matrix unit.
//! Columns of two blocks stay in the first-level cache, rows come from the second-level cache, and
//! sums go there and back every [`PIECES`] tiles: some 200 cycles in all (Granite Rapids, 3.5 GHz).

use core::arch::x86_64::*;

use llmcc_abi::PanelArgs;
use llmcc_abi::layout::BLOCK;

use super::super::NEAR;
use super::{LINE, Place, SIDE, TILE, clear, configure, passes, release, store};

/// Columns of a tile.
pub(crate) const DEPTH: usize = 32;

/// Whether rows are whole tiles. It depends on nothing but the columns, as the order of summation
/// must.
#[inline(always)]
pub(crate) fn suits(p: &PanelArgs) -> bool {
    p.k > 0 && p.k.is_multiple_of(DEPTH as u64)
}

/// Computes a panel.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has AMX-BF16, this process may use tiles, and
/// [`suits`].
#[inline(always)]
pub(crate) unsafe fn run(p: &PanelArgs) {
    unsafe {
        for pass in passes(p.m as usize).into_iter().filter(|pass| pass.rows > 0) {
            configure(pass.tiles, LINE);
            if pass.tiles.1 > 0 {
                many(p, pass.first, pass.rows);
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
        let w = p.w.add(b * w_stride);
        let ask = Ask { from: w.wrapping_add(NEAR), lines: SIDE };
        sum::<1, BLOCKS>(&Operands {
            a: p.a.add(row * a_stride),
            a_stride,
            w,
            other: w_stride,
            pieces: p.k as usize / DEPTH,
            ask,
        });
        let c_stride = p.c_stride as usize;
        store::<1, BLOCKS>(&Place {
            at: p.c.add(row * c_stride + b * BLOCK).cast(),
            across: LINE,
            down: 0,
            stride: c_stride * 4,
        });
    }
}

/// Tiles of columns of two blocks that stay in the first-level cache, 2 KB each, while all rows
/// pass over them.
const PIECES: usize = 16;
/// Rows that pass over weights: their columns stay in the second-level cache while all blocks take
/// their turn.
const ROWS: usize = 128;

/// Pairs of tiles of rows, all blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
#[inline(never)]
unsafe fn many(p: &PanelArgs, first: usize, rows: usize) {
    let pieces = p.k as usize / DEPTH;
    for row in (first..first + rows).step_by(ROWS) {
        for piece in (0..pieces).step_by(PIECES) {
            let part = Part { row, rows: ROWS.min(first + rows - row), piece, pieces: PIECES.min(pieces - piece) };
            for b in (0..p.blocks as usize).step_by(2) {
                unsafe { if p.blocks as usize - b >= 2 { part.pass::<2>(p, b) } else { part.pass::<1>(p, b) } }
            }
        }
    }
}

/// Some rows and some tiles of their columns.
struct Part {
    row: usize,
    rows: usize,
    piece: usize,
    pieces: usize,
}

impl Part {
    /// Adds products with `BLOCKS` blocks to the outputs, where sums are kept meanwhile.
    #[inline(always)]
    unsafe fn pass<const BLOCKS: usize>(&self, p: &PanelArgs, b: usize) {
        let (a_stride, w_stride, c_stride) = (p.a_stride as usize, p.w_stride as usize, p.c_stride as usize);
        let pairs = self.rows.div_ceil(2 * SIDE);
        // Each pair of rows asks for its share of the lines of the next blocks.
        let lines = SIDE.div_ceil(pairs);
        for pair in 0..pairs {
            let row = self.row + pair * 2 * SIDE;
            unsafe {
                let at = p.c.add(row * c_stride + b * BLOCK).cast();
                let sums = Place { at, across: LINE, down: SIDE * c_stride * 4, stride: c_stride * 4 };
                if self.piece == 0 {
                    clear::<2, BLOCKS>()
                } else {
                    restore::<2, BLOCKS>(&sums)
                }
                let a = p.a.add(row * a_stride + self.piece * LINE);
                let w = p.w.add(b * w_stride + self.piece * TILE);
                let ask = Ask { from: w.wrapping_add(BLOCKS * w_stride + pair * lines * LINE), lines };
                sum::<2, BLOCKS>(&Operands { a, a_stride, w, other: w_stride, pieces: self.pieces, ask });
                store::<2, BLOCKS>(&sums);
            }
        }
    }
}

/// Operands of the products of up to 2 × 16 rows with up to two blocks, tile by tile of columns.
struct Operands {
    a: *const u8,
    a_stride: usize,
    w: *const u8,
    /// From a line of the first block to that of the second.
    other: usize,
    /// Tiles of columns.
    pieces: usize,
    ask: Ask,
}

/// Weights asked for with every tile of columns.
struct Ask {
    /// The first of them, with the first tile.
    from: *const u8,
    /// Lines of each block.
    lines: usize,
}

/// Adds products to the sums, in tiles 0 (first rows, first block), 1 (second block), 2 and 3
/// (second rows).
///
/// # Safety
/// As [`clear`].
#[inline(always)]
unsafe fn sum<const PARTS: usize, const BLOCKS: usize>(o: &Operands) {
    unsafe {
        for piece in 0..o.pieces {
            let (a, w) = (o.a.add(piece * LINE), o.w.add(piece * TILE));
            for line in 0..o.ask.lines {
                let p = o.ask.from.wrapping_add(piece * TILE + line * LINE);
                _mm_prefetch::<_MM_HINT_T1>(p.cast());
                if const { BLOCKS == 2 } {
                    _mm_prefetch::<_MM_HINT_T1>(p.wrapping_add(o.other).cast());
                }
            }
            load!(6, w, LINE);
            load!(4, a, o.a_stride);
            multiply!(true, 0, 4, 6);
            if const { BLOCKS == 2 } {
                load!(7, w.add(o.other), LINE);
                multiply!(true, 1, 4, 7);
            }
            if const { PARTS == 2 } {
                load!(5, a.add(SIDE * o.a_stride), o.a_stride);
                multiply!(true, 2, 5, 6);
                if const { BLOCKS == 2 } {
                    multiply!(true, 3, 5, 7);
                }
            }
        }
    }
}

/// Reads the sums that [`store`] wrote.
///
/// # Safety
/// As [`clear`].
#[inline(always)]
unsafe fn restore<const PARTS: usize, const BLOCKS: usize>(from: &Place) {
    unsafe {
        load!(0, from.at, from.stride);
        if const { BLOCKS == 2 } {
            load!(1, from.at.add(from.across), from.stride);
        }
        if const { PARTS == 2 } {
            load!(2, from.at.add(from.down), from.stride);
            if const { BLOCKS == 2 } {
                load!(3, from.at.add(from.down + from.across), from.stride);
            }
        }
    }
}
