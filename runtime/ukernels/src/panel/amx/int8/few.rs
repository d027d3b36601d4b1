//! Few rows: one tile of them passes over weights that come from memory.
//!
//! There is less to multiply than to read, so reading must never wait. Weights are decoded a tile of columns at a time, some tiles before they are multiplied: a tile cannot be loaded while
//! what was just written to it is on the way to the cache, which takes about as long as the processor looks ahead. Sums are scaled while the next groups are multiplied, for the same reason.
//! So the processor always sees decoding, multiplying and scaling side by side, and lines are asked for evenly.
//!
//! # What bounds it
//!
//! With 8 rows, 64 columns of two blocks (1056 bytes) take 41 ns when they are in the second-level cache, half of it decoding (16 lines, 5 instructions and two stores each), the rest
//! loading tiles and storing and scaling sums; 16 rows take 54 ns. Memory brings as much in 64 ns (Granite Rapids, 3.3 GHz, 16.5 GB/s per core), and what remains exposed makes it 80 ns.

use core::arch::x86_64::*;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;

use llmcc_abi::layout::{BLOCK, Elem};

use super::super::{LINE, Place, SIDE, TILE, clear, store};
use super::{Panel, Vectors, line_of};
use crate::isa::Isa;
use crate::panel::int8::Format;
use crate::panel::{LATER, SOON};

/// Decoded tiles that are kept.
const TILES: usize = 4;
/// Tiles that are decoded before they are multiplied.
const EARLY: usize = TILES - 1;
/// Blocks at a time, or one twice.
const BLOCKS: usize = 2;
/// Lines decoded in one go: tiles are whole multiples.
const LINES: usize = 4;

/// What stays in the first-level cache.
#[repr(C, align(64))]
struct Work {
    tiles: [[[u8; TILE]; BLOCKS]; TILES],
    /// Sums of two pairs of groups: both blocks of the first group, both of the second.
    sums: [[[u8; TILE]; 4]; 2],
    /// Scales and minima of both pairs: of a block those of both groups.
    factors: [[[[[f32; BLOCK]; 2]; 2]; BLOCKS]; 2],
    outputs: [[[f32; BLOCK]; SIDE]; BLOCKS],
}

/// Two blocks on their way.
struct Few<'a, T> {
    panel: &'a Panel<'a>,
    /// First block, and what lies between it and the second.
    w: *const u8,
    other: usize,
    /// Activations.
    a: *const u8,
    /// Groups.
    groups: usize,
    work: *mut Work,
    /// What is decoded next, and the tiles of its record that remain.
    next: *const u8,
    of_record: usize,
    format: PhantomData<T>,
}

/// Rows `first..first + rows`, at most a tile, of blocks `b` and `b + 1`, if there are two.
///
/// # Safety
/// As [`super::run`]; the tiles are configured for these rows twice.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
#[inline(never)]
pub(super) unsafe fn run<T: Format<Vectors>>(panel: &Panel, first: usize, rows: usize, b: usize) {
    let mut work = MaybeUninit::<Work>::uninit();
    let (p, count, of_group) = (panel.p, panel.kp / panel.depth, panel.group / panel.depth);
    let blocks = BLOCKS.min(p.blocks as usize - b);
    unsafe {
        let w = p.w.add(b * p.w_stride as usize);
        let mut few = Few::<T> {
            panel,
            w,
            other: (blocks - 1) * p.w_stride as usize,
            a: p.a.add(first * p.a_stride as usize),
            groups: panel.kp.div_ceil(panel.group),
            work: work.as_mut_ptr(),
            next: w,
            of_record: 0,
            format: PhantomData,
        };
        (&raw mut (*few.work).outputs).write_bytes(0, 1);
        // Of the pair of groups before this one, some rows are scaled with every tile.
        let (mut pair, mut of_pair, mut scaled) = (0, 0, 0);
        for t in 0..count + EARLY {
            if t < count {
                few.decode(t);
            }
            if t < EARLY {
                continue;
            }
            if of_pair == 0 {
                clear::<2, BLOCKS>();
                few.factors(pair);
            }
            few.multiply(t - EARLY, of_pair >= of_group);
            of_pair += 1;
            let last = of_pair == 2 * of_group || t - EARLY + 1 == count;
            if pair > 0 {
                let to = if last { rows } else { (rows * of_pair).div_ceil(2 * of_group) };
                few.scale(pair - 1, scaled..to);
                scaled = to;
            }
            if last {
                let to = (&raw mut (*few.work).sums[pair % 2]).cast();
                store::<2, BLOCKS>(&Place { at: to, across: TILE, down: 2 * TILE, stride: LINE });
                (pair, of_pair, scaled) = (pair + 1, 0, 0);
            }
        }
        few.scale(pair - 1, 0..rows);
        for row in 0..rows {
            for block in 0..blocks {
                let c = p.c.add((first + row) * p.c_stride as usize + (b + block) * BLOCK);
                _mm512_storeu_ps(c, _mm512_load_ps((&raw const (*few.work).outputs[block][row]).cast()));
            }
        }
    }
}

impl<T: Format<Vectors>> Few<'_, T> {
    /// Decodes tile `t`, the next one.
    #[inline(always)]
    unsafe fn decode(&mut self, t: usize) {
        let panel = self.panel;
        let lines = panel.depth / if const { matches!(T::ELEM, Elem::W8) } { 4 } else { 8 };
        unsafe {
            if self.of_record == 0 {
                self.next = self.next.add(panel.block.codes);
                self.of_record = panel.block.groups * (panel.group / panel.depth);
            }
            self.of_record -= 1;
            for block in 0..BLOCKS {
                let mut from = self.next.add(block * self.other);
                let mut to = (&raw mut (*self.work).tiles[t % TILES][block]).cast::<u8>();
                for _ in 0..lines / LINES {
                    for _ in 0..LINES {
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(SOON).cast());
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(LATER).cast());
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
    unsafe fn factors(&mut self, pair: usize) {
        let block_of = &self.panel.block;
        for half in 0..2.min(self.groups - 2 * pair) {
            for block in 0..BLOCKS {
                unsafe {
                    let from = self.w.add(block * self.other + block_of.scales_of(2 * pair + half));
                    let to = &mut (*self.work).factors[pair % 2][block];
                    _mm512_store_ps((&raw mut to[0][half]).cast(), Vectors::load_f16(from));
                    if const { matches!(T::ELEM, Elem::W4a) } {
                        _mm512_store_ps((&raw mut to[1][half]).cast(), Vectors::load_f16(from.add(block_of.mins)));
                    }
                }
            }
        }
    }

    /// Adds the products of tile `t`, which belongs to the first or the `second` group of a pair.
    #[inline(always)]
    unsafe fn multiply(&self, t: usize, second: bool) {
        unsafe {
            let w = (&raw const (*self.work).tiles[t % TILES]).cast::<u8>();
            load!(4, self.a.add(t * self.panel.depth), self.panel.p.a_stride);
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

    /// Scales the sums of a pair of groups of some rows and adds them to the outputs.
    #[inline(always)]
    unsafe fn scale(&mut self, pair: usize, rows: Range<usize>) {
        unsafe { if self.groups - 2 * pair >= 2 { self.scale_groups::<2>(pair, rows) } else { self.scale_groups::<1>(pair, rows) } }
    }

    #[inline(always)]
    unsafe fn scale_groups<const GROUPS: usize>(&mut self, pair: usize, rows: Range<usize>) {
        let (q8, a_stride) = (&self.panel.q8, self.panel.p.a_stride as usize);
        unsafe {
            let work = self.work;
            let load = |from: *const [f32; BLOCK]| _mm512_load_ps(from.cast());
            let (mut scales, mut mins) = ([[_mm512_setzero_ps(); BLOCKS]; GROUPS], [[_mm512_setzero_ps(); BLOCKS]; GROUPS]);
            for half in 0..GROUPS {
                for block in 0..BLOCKS {
                    scales[half][block] = load(&raw const (*work).factors[pair % 2][block][0][half]);
                    if const { matches!(T::ELEM, Elem::W4a) } {
                        mins[half][block] = load(&raw const (*work).factors[pair % 2][block][1][half]);
                    }
                }
            }
            let mut a = self.a.add(rows.start * a_stride + pair * 2 * 4);
            for row in rows {
                let mut acc = [_mm512_setzero_ps(); BLOCKS];
                for block in 0..BLOCKS {
                    acc[block] = load((&raw const (*work).outputs[block]).cast::<[f32; BLOCK]>().add(row));
                }
                for half in 0..GROUPS {
                    let a_scale = _mm512_set1_ps(a.add(q8.scales + half * 4).cast::<f32>().read_unaligned());
                    for block in 0..BLOCKS {
                        let sums = (&raw const (*work).sums[pair % 2][2 * half + block]).cast::<u8>().add(row * LINE);
                        let total = _mm512_cvtepi32_ps(_mm512_load_si512(sums.cast()));
                        acc[block] = _mm512_fmadd_ps(total, _mm512_mul_ps(scales[half][block], a_scale), acc[block]);
                    }
                    if const { matches!(T::ELEM, Elem::W4a) } {
                        let sum = _mm512_set1_ps(a.add(q8.sums + half * 4).cast::<i32>().read_unaligned() as f32);
                        for block in 0..BLOCKS {
                            acc[block] = _mm512_fmadd_ps(_mm512_mul_ps(mins[half][block], a_scale), sum, acc[block]);
                        }
                    }
                }
                for block in 0..BLOCKS {
                    _mm512_store_ps((&raw mut (*work).outputs[block]).cast::<f32>().add(row * BLOCK), acc[block]);
                }
                a = a.add(a_stride);
            }
        }
    }
}
