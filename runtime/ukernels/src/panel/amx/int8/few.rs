//! Few rows: one tile of them passes over weights that come from memory.
//!
//! There is less to multiply than to read, so reading must never wait. Weights are decoded a tile
//! of columns at a time, some tiles before they are multiplied: a tile cannot be loaded while its
//! fresh bytes are on the way to the cache, which takes about as long as the processor looks ahead.
//! Sums are scaled while the next groups are multiplied, for the same reason. So the processor
//! always sees decoding, multiplying and scaling side by side, and lines are asked for evenly. One
//! strip of blocks follows the other without a pause.
//!
//! # What bounds it
//!
//! With 8 rows, 64 columns of two blocks (1056 bytes) take 41 ns when they are in the second-level
//! cache, half of it decoding (16 lines, 5 instructions and two stores each), the rest loading
//! tiles and storing and scaling sums; 16 rows take 54 ns. Memory brings as much in 64 ns (Granite
//! Rapids, 3.3 GHz, 16.5 GB/s per core), and the exposed rest makes it 80 ns.

use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;

use llmcc_abi::layout::BLOCK;

use super::super::{LINE, Place, SIDE, TILE, clear, store};
use super::{Panel, Vectors, line_of};
use crate::isa::Isa;
use crate::panel::slice::Coded;
use crate::panel::{LATER, SOON};

/// Decoded tiles that are kept.
const TILES: usize = 4;
/// Tiles that are decoded before they are multiplied.
const EARLY: usize = TILES - 1;
/// Blocks at a time, or one twice.
const BLOCKS: usize = 2;
/// Lines decoded in one go: tiles are whole multiples.
const LINES: usize = 4;

/// Data that stays in the first-level cache.
#[repr(C, align(64))]
struct Work {
    tiles: [[[u8; TILE]; BLOCKS]; TILES],
    /// Sums of two pairs of groups: both blocks of the first group, both of the second.
    sums: [[[u8; TILE]; 4]; 2],
    /// Scales and minima of both pairs; for each block, both groups'.
    factors: [[[[[f32; BLOCK]; 2]; 2]; BLOCKS]; 2],
    outputs: [[[f32; BLOCK]; SIDE]; BLOCKS],
}

/// Two blocks, or one twice.
#[derive(Clone, Copy)]
struct Strip {
    /// Number of the first block, and how many there are.
    first: usize,
    blocks: usize,
    w: *const u8,
    /// From the first block to the second.
    other: usize,
}

/// A pair of groups whose sums are in memory.
#[derive(Clone, Copy)]
struct Due {
    strip: Strip,
    /// Its number in the strip, and in all.
    pair: usize,
    count: usize,
}

/// Blocks on their way, strip after strip without a pause.
struct Few<'a, T> {
    panel: &'a Panel<'a>,
    /// Number of the first row, and its activations.
    first: usize,
    a: *const u8,
    /// Groups, and pairs of them.
    groups: usize,
    pairs: usize,
    work: *mut Work,
    /// Blocks being decoded, their next part, and the remaining tiles of their record.
    ahead: Strip,
    next: *const u8,
    of_record: usize,
    format: PhantomData<T>,
}

/// Rows `first..first + rows`, at most a tile, of all blocks.
///
/// # Safety
/// As [`super::run`]; the tiles are configured for these rows twice.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
#[inline(never)]
pub(super) unsafe fn run<T: Coded>(panel: &Panel, first: usize, rows: usize) {
    let mut work = MaybeUninit::<Work>::uninit();
    let (p, tiles, of_pair) = (panel.p, panel.kp / panel.depth, 2 * panel.group / panel.depth);
    let groups = panel.kp.div_ceil(panel.group);
    unsafe {
        let mut few = Few::<T> {
            panel,
            first,
            a: p.a.add(first * p.a_stride as usize),
            groups,
            pairs: groups.div_ceil(2),
            work: work.as_mut_ptr(),
            ahead: panel.strip(0),
            next: p.w,
            of_record: 0,
            format: PhantomData,
        };
        let total = (p.blocks as usize).div_ceil(BLOCKS) * tiles;
        let mut due: Option<Due> = None;
        let mut at = Due { strip: few.ahead, pair: 0, count: 0 };
        let (mut tile, mut early) = (0, 0);
        // Tiles of the pair so far, and rows of the pair before it that are scaled: some with every
        // tile.
        let (mut done, mut scaled) = (0, 0);
        for t in 0..total + EARLY {
            if t < total {
                few.decode(t, early);
                early = if early + 1 == tiles { 0 } else { early + 1 };
            }
            if t < EARLY {
                continue;
            }
            if done == 0 {
                clear::<2, BLOCKS>();
                few.factors(&at);
            }
            few.multiply(t - EARLY, tile, 2 * done >= of_pair);
            (done, tile) = (done + 1, tile + 1);
            let last = done == of_pair || tile == tiles;
            if let Some(due) = &due {
                let to = if last { rows } else { (rows * done).div_ceil(of_pair) };
                few.scale(due, scaled..to);
                scaled = to;
            }
            if last {
                let to = (&raw mut (*few.work).sums[at.count % 2]).cast();
                store::<2, BLOCKS>(&Place { at: to, across: TILE, down: 2 * TILE, stride: LINE });
                due = Some(at);
                (at.pair, at.count, done, scaled) = (at.pair + 1, at.count + 1, 0, 0);
                if tile == tiles {
                    (at.strip, at.pair, tile) = (panel.strip(at.strip.first + BLOCKS), 0, 0);
                }
            }
        }
        if let Some(due) = &due {
            few.scale(due, 0..rows);
        }
    }
}

impl Panel<'_> {
    /// The blocks from block `first` on.
    #[inline(always)]
    fn strip(&self, first: usize) -> Strip {
        let (stride, blocks) = (self.p.w_stride as usize, BLOCKS.min((self.p.blocks as usize).saturating_sub(first)));
        Strip {
            first,
            blocks,
            w: self.p.w.wrapping_add(first * stride),
            other: if blocks == BLOCKS { stride } else { 0 },
        }
    }
}

impl<T: Coded> Few<'_, T> {
    /// Decodes the next tile, the `t`th of all and one of its blocks' number `tile`.
    #[inline(always)]
    unsafe fn decode(&mut self, t: usize, tile: usize) {
        let panel = self.panel;
        let stride = panel.p.w_stride as usize;
        let lines = panel.depth / const { 32 / T::ENCODING.bits() as usize };
        unsafe {
            if tile == 0 {
                self.ahead = panel.strip(t / (panel.kp / panel.depth) * BLOCKS);
                (self.next, self.of_record) = (self.ahead.w, 0);
            }
            if self.of_record == 0 {
                self.next = self.next.add(panel.block.codes);
                self.of_record = panel.block.groups * (panel.group / panel.depth);
            }
            self.of_record -= 1;
            // Behind a block lies the other one, which is being read already.
            let left = stride.wrapping_sub(self.next.offset_from_unsigned(self.ahead.w));
            let ahead = |far: usize| if far < left { far } else { far + stride };
            let (soon, later) = (ahead(SOON), ahead(LATER));
            for block in 0..BLOCKS {
                let mut from = self.next.add(block * self.ahead.other);
                let mut to = (&raw mut (*self.work).tiles[t % TILES][block]).cast::<u8>();
                for _ in 0..lines / LINES {
                    for _ in 0..LINES {
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(soon).cast());
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(later).cast());
                        to = line_of::<T>(_mm512_loadu_si512(from.cast()), to);
                        from = from.add(LINE);
                    }
                }
            }
            self.next = self.next.add(lines * LINE);
        }
    }

    /// Reads the factors of a pair of groups.
    #[inline(always)]
    unsafe fn factors(&mut self, at: &Due) {
        let block_of = &self.panel.block;
        for half in 0..2.min(self.groups - 2 * at.pair) {
            for block in 0..BLOCKS {
                unsafe {
                    let from = at.strip.w.add(block * at.strip.other + block_of.scales_of(2 * at.pair + half));
                    let to = &mut (*self.work).factors[at.count % 2][block];
                    _mm512_store_ps((&raw mut to[0][half]).cast(), Vectors::load_f16(from));
                    if const { T::ENCODING.has_minimum() } {
                        _mm512_store_ps((&raw mut to[1][half]).cast(), Vectors::load_f16(from.add(block_of.mins)));
                    }
                }
            }
        }
    }

    /// Adds the products of the `t`th tile, one of its blocks' number `tile`, which belongs to the
    /// first or the `second` group of a pair.
    #[inline(always)]
    unsafe fn multiply(&self, t: usize, tile: usize, second: bool) {
        unsafe {
            let w = (&raw const (*self.work).tiles[t % TILES]).cast::<u8>();
            load!(4, self.a.add(tile * self.panel.depth), self.panel.p.a_stride);
            load!(6, w, LINE);
            load!(7, w.add(TILE), LINE);
            if second {
                multiply!(false, 2, 4, 6);
                multiply!(false, 3, 4, 7);
            } else {
                multiply!(false, 0, 4, 6);
                multiply!(false, 1, 4, 7);
            }
        }
    }

    /// Scales the sums of a pair of groups of some rows and adds them to the outputs, which the
    /// last pair of a strip takes to where they belong.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    #[inline(never)]
    unsafe fn scale(&mut self, due: &Due, rows: Range<usize>) {
        unsafe {
            if self.groups - 2 * due.pair >= 2 {
                self.scale_groups::<2>(due, rows)
            } else {
                self.scale_groups::<1>(due, rows)
            }
        }
    }

    #[inline(always)]
    unsafe fn scale_groups<const GROUPS: usize>(&mut self, due: &Due, rows: Range<usize>) {
        let (p, q8, a_stride) = (self.panel.p, &self.panel.q8, self.panel.p.a_stride as usize);
        unsafe {
            let work = self.work;
            let (sums, factors) = (&raw const (*work).sums[due.count % 2], &raw const (*work).factors[due.count % 2]);
            let load = |from: *const [f32; BLOCK]| _mm512_load_ps(from.cast());
            let (mut scales, mut mins) =
                ([[_mm512_setzero_ps(); BLOCKS]; GROUPS], [[_mm512_setzero_ps(); BLOCKS]; GROUPS]);
            for half in 0..GROUPS {
                for block in 0..BLOCKS {
                    scales[half][block] = load(&raw const (*factors)[block][0][half]);
                    if const { T::ENCODING.has_minimum() } {
                        mins[half][block] = load(&raw const (*factors)[block][1][half]);
                    }
                }
            }
            let keep = if due.pair == 0 { 0 } else { !0 };
            let finished = due.pair + 1 == self.pairs;
            let mut a = self.a.add(rows.start * a_stride + due.pair * 2 * 4);
            for row in rows {
                let c = p.c.wrapping_add((self.first + row) * p.c_stride as usize + due.strip.first * BLOCK);
                let out = |block: usize| (&raw mut (*work).outputs[block][row]).cast::<f32>();
                let mut acc = [_mm512_setzero_ps(); BLOCKS];
                for block in 0..BLOCKS {
                    acc[block] = _mm512_maskz_load_ps(keep, out(block));
                }
                for half in 0..GROUPS {
                    let a_scale = _mm512_set1_ps(a.add(q8.scales + half * 4).cast::<f32>().read_unaligned());
                    for block in 0..BLOCKS {
                        let sums = (&raw const (*sums)[2 * half + block]).cast::<u8>().add(row * LINE);
                        let total = _mm512_cvtepi32_ps(_mm512_load_si512(sums.cast()));
                        acc[block] = _mm512_fmadd_ps(total, _mm512_mul_ps(scales[half][block], a_scale), acc[block]);
                    }
                    if const { T::ENCODING.has_minimum() } {
                        let sum = _mm512_set1_ps(a.add(q8.sums + half * 4).cast::<i32>().read_unaligned() as f32);
                        for block in 0..BLOCKS {
                            acc[block] = _mm512_fmadd_ps(_mm512_mul_ps(mins[half][block], a_scale), sum, acc[block]);
                        }
                    }
                }
                for block in 0..BLOCKS {
                    let to =
                        if finished && block < due.strip.blocks { c.wrapping_add(block * BLOCK) } else { out(block) };
                    _mm512_storeu_ps(to, acc[block]);
                }
                a = a.add(a_stride);
            }
        }
    }
}
