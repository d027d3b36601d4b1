//! Products by AMX: the matrix unit multiplies 16 × 64 by 64 × 16 bytes at a time.
//!
//! Rows of activations are tiles of its A operand as they are stored, and lines of a block of
//! weights (16 rows side by side, four bytes of each) tiles of its B operand. Two by two tiles of
//! sums are computed at once, so that four tiles loaded serve four products.
//!
//! The instructions are written as assembly, since their intrinsics are not stable. Nobody else
//! uses tiles, so they may live from one piece of assembly to the next.

use core::arch::x86_64::*;

/// Rows and columns of a tile of sums.
const SIDE: usize = 16;
/// Bytes of a line: four of each of a block's rows, or 16 sums.
const LINE: usize = 64;
/// Bytes of a tile of sums.
const TILE: usize = SIDE * LINE;

/// Rows that are computed with one configuration of the tiles: all pairs of whole tiles, or the
/// remainder.
struct Pass {
    first: usize,
    rows: usize,
    /// Rows of the first tile and of the second. Without a second there is one tile of rows.
    tiles: (usize, usize),
}

/// Both passes over `rows` rows; either may be empty.
#[inline(always)]
fn passes(rows: usize) -> [Pass; 2] {
    let rest = rows % (2 * SIDE);
    let whole = rows - rest;
    [
        Pass { first: 0, rows: whole, tiles: (SIDE, SIDE) },
        Pass { first: whole, rows: rest, tiles: (rest.min(SIDE), rest.saturating_sub(SIDE)) },
    ]
}

/// Configures the tiles for that many activation rows, in the first tile and the second, of `depth`
/// bytes of columns.
#[inline(always)]
unsafe fn configure((first, second): (usize, usize), depth: usize) {
    #[repr(C, align(64))]
    struct Config([u8; 64]);
    let mut c = Config([0; 64]);
    c.0[0] = 1;
    // Sums of the first rows, of the second; activations; weights. Tiles without rows stay as they
    // are: unusable.
    let (sums, weights) = (LINE, depth / 4);
    let tiles = [
        (first, sums),
        (first, sums),
        (second, sums),
        (second, sums),
        (first, depth),
        (second, depth),
        (weights, LINE),
        (weights, LINE),
    ];
    for (tile, (rows, bytes)) in tiles.into_iter().enumerate() {
        c.0[16 + 2 * tile] = if rows > 0 { bytes as u8 } else { 0 };
        c.0[48 + tile] = rows as u8;
    }
    unsafe { core::arch::asm!("ldtilecfg [{}]", in(reg) &c, options(nostack, readonly)) }
}

macro_rules! zero {
    ($tile:literal) => {
        core::arch::asm!(concat!("tilezero tmm", $tile), options(nostack, nomem, preserves_flags))
    };
}
macro_rules! load {
    ($tile:literal, $p:expr, $stride:expr) => {
        core::arch::asm!(concat!("tileloadd tmm", $tile, ", [{} + {}]"), in(reg) $p, in(reg) $stride, options(nostack, readonly, preserves_flags))
    };
}
macro_rules! store {
    ($tile:literal, $p:expr, $stride:expr) => {
        core::arch::asm!(concat!("tilestored [{} + {}], tmm", $tile), in(reg) $p, in(reg) $stride, options(nostack, preserves_flags))
    };
}
macro_rules! multiply {
    ($bf16:expr, $sums:literal, $a:literal, $b:literal) => {
        if const { $bf16 } {
            core::arch::asm!(
                concat!("tdpbf16ps tmm", $sums, ", tmm", $a, ", tmm", $b),
                options(nostack, nomem, preserves_flags)
            )
        } else {
            core::arch::asm!(
                concat!("tdpbssd tmm", $sums, ", tmm", $a, ", tmm", $b),
                options(nostack, nomem, preserves_flags)
            )
        }
    };
}

pub(crate) mod bf16;
pub(crate) mod int8;

/// Gives the tiles back: unused tiles need not be saved when threads are switched.
#[inline(always)]
unsafe fn release() {
    unsafe { core::arch::asm!("tilerelease", options(nostack, nomem)) }
}

/// Lines that are read some steps later: prefetched one by one while there is other work, since a
/// burst of requests would wait for each other.
struct Ahead {
    next: *const u8,
    end: *const u8,
    /// To the same line of the second block; 0 if there is none.
    other: usize,
}

impl Ahead {
    /// Asks for a line of each block.
    #[inline(always)]
    unsafe fn some(&mut self) {
        if self.next < self.end {
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(self.next.cast());
                _mm_prefetch::<_MM_HINT_T1>(self.next.wrapping_add(self.other).cast());
            }
            self.next = self.next.wrapping_add(LINE);
        }
    }

    /// Asks for all that is left.
    #[inline(always)]
    unsafe fn rest(&mut self) {
        while self.next < self.end {
            unsafe { self.some() }
        }
    }
}

/// Sets the tiles of sums to 0.
///
/// # Safety
/// The tiles are configured for the rows; `PARTS` and `BLOCKS` are 1 or 2.
#[inline(always)]
unsafe fn clear<const PARTS: usize, const BLOCKS: usize>() {
    unsafe {
        zero!(0);
        if const { BLOCKS == 2 } {
            zero!(1);
        }
        if const { PARTS == 2 } {
            zero!(2);
            if const { BLOCKS == 2 } {
                zero!(3);
            }
        }
    }
}

/// Where tiles of sums are in memory.
#[derive(Clone, Copy)]
struct Place {
    at: *mut u8,
    /// To the tile of the second block.
    across: usize,
    /// To that of the second rows.
    down: usize,
    /// From one line to the next.
    stride: usize,
}

/// Writes the sums.
///
/// # Safety
/// As [`clear`].
#[inline(always)]
unsafe fn store<const PARTS: usize, const BLOCKS: usize>(to: &Place) {
    unsafe {
        store!(0, to.at, to.stride);
        if const { BLOCKS == 2 } {
            store!(1, to.at.add(to.across), to.stride);
        }
        if const { PARTS == 2 } {
            store!(2, to.at.add(to.down), to.stride);
            if const { BLOCKS == 2 } {
                store!(3, to.at.add(to.down + to.across), to.stride);
            }
        }
    }
}
