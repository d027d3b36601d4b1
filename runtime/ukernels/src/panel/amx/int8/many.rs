//! Many rows: pairs of tiles of them pass over decoded weights in the first-level cache.
//!
//! # Structure
//!
//! Two blocks of weights at a time, [`STEP`] columns at a time, are decoded to signed bytes
//! ([`Strip::decode`]), one step before they are multiplied. All activation rows, up to [`ROWS`],
//! pass over them, 32 at a time. The sums of a group of 32 rows are a unit of work. Units form a
//! pipeline of three: the matrix unit computes the sums of one, while the sums of the unit before
//! go to memory and the sums of the one before that are scaled and added to the outputs
//! ([`scale`]), some rows after each product. So the processor, which looks some 500 instructions
//! ahead, always sees all three kinds of work; one after the other, each would wait for the end of
//! the one before.
//!
//! # What bounds it
//!
//! A unit of 128 columns takes the matrix unit 8 × 18 cycles. With operands in the first-level
//! cache storing and scaling beside that make it 260; decoding, divided among 64 rows, adds 60, and
//! activations, which come from the second-level cache with a line of each row, up to 100 (Granite
//! Rapids, 3.5 GHz).

use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use llmcc_abi::layout::BLOCK;

use super::super::{Ahead, LINE, Place, SIDE, TILE, store};
use super::rows::{ROWS, Rows, SECTION};
use super::{Panel, Vectors, line_of};
use crate::isa::Isa;
use crate::panel::slice::{Coded, W4, W4a, W8};
use crate::panel::{AHEAD, NEAR};

/// Rows of a unit.
const PAIR: usize = 2 * SIDE;
/// Columns that are decoded at a time: a whole number of groups.
pub(super) const STEP: usize = 128;
/// Groups whose weight factors are kept: the columns being decoded, multiplied and scaled.
const RING: usize = 16;

/// Factors of a group of both blocks.
#[repr(C, align(64))]
struct Factors {
    scales: [[f32; BLOCK]; 2],
    mins: [[f32; BLOCK]; 2],
    /// Lanes of outputs that count: none before the first group.
    keep: __mmask16,
}

/// Data that stays in the first-level cache.
#[repr(C, align(64))]
struct Work {
    /// Decoded weights of both blocks, now and next.
    codes: [[[u8; BLOCK * STEP]; 2]; 2],
    factors: [Factors; RING],
    /// Sums of two units; for each row, both blocks'.
    sums: [[[i32; 2 * BLOCK]; PAIR]; 2],
    /// Outputs, in the same order, if they cannot be summed up where they belong.
    outputs: [[f32; 2 * BLOCK]; ROWS],
}

/// A unit on its way.
#[derive(Clone, Copy)]
struct Due {
    /// Its sums, once they are in memory.
    sums: *mut u8,
    outputs: *mut f32,
    factors: *const Factors,
    /// Scales of its rows; the sums of their codes lie behind them as [`Rows`] tells.
    rows: *const f32,
    /// Whether there is one.
    live: bool,
}

/// Two blocks, or one twice, and rows that pass over them.
struct Strip<'a> {
    panel: &'a Panel<'a>,
    /// First block, and the distance to the second.
    w: *const u8,
    other: usize,
    /// Activations of the first row.
    a: *const u8,
    /// Pairs of tiles of rows.
    pairs: usize,
    work: *mut Work,
    rows: *const Rows,
    /// Both blocks' outputs of the first row, and the distance between rows, in floats.
    outputs: *mut f32,
    outputs_stride: usize,
    /// The unit whose sums are in the tiles, and the one whose sums are in memory.
    computed: Due,
    stored: Due,
}

/// Rows `first..first + rows` of all blocks.
///
/// # Safety
/// As [`super::run`]; the tiles are configured for pairs of tiles of rows, the last of which may be
/// short if it is the only one.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
#[inline(never)]
pub(super) unsafe fn run(panel: &Panel, first: usize, rows: usize) {
    let mut kept = MaybeUninit::<Rows>::uninit();
    let groups = panel.kp.div_ceil(panel.group);
    for row in (first..first + rows).step_by(ROWS) {
        let some = ROWS.min(first + rows - row);
        for section in (0..groups).step_by(SECTION) {
            let section = (section, groups.min(section + SECTION));
            unsafe {
                panel.factors(row, some, section, kept.as_mut_ptr());
                for b in (0..panel.p.blocks as usize).step_by(2) {
                    panel.blocks(row, some, b, section, kept.as_ptr());
                }
            }
        }
    }
}

impl Panel<'_> {
    /// Adds the products of a section of groups of rows `first..first + rows` of the blocks `b` and
    /// `b + 1`, if there are two.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    unsafe fn blocks(&self, first: usize, rows: usize, b: usize, section: (usize, usize), kept: *const Rows) {
        let mut work = MaybeUninit::<Work>::uninit();
        let work = work.as_mut_ptr();
        let (stride, c_stride, blocks) =
            (self.p.w_stride as usize, self.p.c_stride as usize, 2.min(self.p.blocks as usize - b));
        // Rows an odd number of lines apart, if there is room for whole units; others would drive
        // each other from the cache.
        let in_place = blocks == 2 && rows.is_multiple_of(PAIR) && c_stride % (2 * BLOCK) == BLOCK;
        unsafe {
            let outputs = (&raw mut (*work).outputs).cast::<f32>();
            let c = self.p.c.add(first * c_stride + b * BLOCK);
            let weights = (&raw const (*work).factors).cast();
            let none = |sums| Due { sums, outputs, factors: weights, rows: kept.cast(), live: false };
            let mut strip = Strip {
                panel: self,
                w: self.p.w.add(b * stride),
                other: (blocks - 1) * stride,
                a: self.p.a.add(first * self.p.a_stride as usize),
                pairs: rows.div_ceil(PAIR),
                work,
                rows: kept,
                outputs: if in_place { c } else { outputs },
                outputs_stride: if in_place { c_stride } else { 2 * BLOCK },
                computed: none((&raw mut (*work).sums[0]).cast()),
                stored: none((&raw mut (*work).sums[1]).cast()),
            };
            if !in_place && section.0 > 0 {
                copy(rows, blocks, (c, c_stride), (outputs, 2 * BLOCK));
            }
            if self.weights.has_minimum() {
                strip.groups::<true>(section)
            } else {
                strip.groups::<false>(section)
            }
            if !in_place {
                copy(rows, blocks, (outputs, 2 * BLOCK), (c, c_stride));
            }
        }
    }
}

/// Copies rows of blocks from somewhere to somewhere else, each with its stride in floats.
#[target_feature(enable = "avx512f")]
#[inline(never)]
unsafe fn copy(rows: usize, blocks: usize, from: (*const f32, usize), to: (*mut f32, usize)) {
    for row in 0..rows {
        for block in 0..blocks {
            unsafe {
                _mm512_storeu_ps(
                    to.0.add(row * to.1 + block * BLOCK),
                    _mm512_loadu_ps(from.0.add(row * from.1 + block * BLOCK)),
                )
            };
        }
    }
}

impl Strip<'_> {
    /// All units of groups `from..to`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    #[inline(never)]
    unsafe fn groups<const ASYMMETRIC: bool>(&mut self, (from, to): (usize, usize)) {
        let each = STEP / self.panel.group;
        unsafe {
            self.decode(from, to.min(from + each), 0);
            for (i, g) in (from..to).step_by(each).enumerate() {
                let end = to.min(g + each);
                if end < to {
                    self.decode(end, to.min(end + each), (i + 1) % 2);
                }
                let mut ahead = self.ahead(g, end);
                for pair in 0..self.pairs {
                    for group in g..end {
                        let w = self.codes(i % 2, 0).add((group - g) * self.panel.group * BLOCK);
                        self.unit::<ASYMMETRIC>(&Unit { pair, group, kept: group - from, w }, &mut ahead);
                    }
                }
                ahead.rest();
            }
            self.drain::<ASYMMETRIC>();
        }
    }

    /// The lines after groups `g..end`, as far on as the second-level cache allows: the same
    /// columns of the next blocks, if possible.
    #[inline(always)]
    fn ahead(&self, g: usize, end: usize) -> Ahead {
        let block = &self.panel.block;
        let stride = self.panel.p.w_stride as usize;
        let far = if 2 * stride <= AHEAD { 2 * stride } else { NEAR };
        let of = |group: usize| self.w.wrapping_add(block.codes_of(group) + far);
        Ahead { next: of(g), end: of(end), other: self.other }
    }

    /// Decodes groups `g..end` to buffer `buffer`.
    #[inline(never)]
    unsafe fn decode(&self, g: usize, end: usize, buffer: usize) {
        for block in 0..if self.other > 0 { 2 } else { 1 } {
            unsafe {
                let to = self.codes(buffer, block);
                match (self.panel.weights.bits(), self.panel.weights.has_minimum()) {
                    (8, _) => self.decode_as::<W8>(block, g, end, to),
                    (_, false) => self.decode_as::<W4>(block, g, end, to),
                    (_, true) => self.decode_as::<W4a>(block, g, end, to),
                }
            }
        }
    }

    /// Decoded weights of a block.
    #[inline(always)]
    unsafe fn codes(&self, buffer: usize, block: usize) -> *mut u8 {
        unsafe { (&raw mut (*self.work).codes).cast::<u8>().add((buffer * 2 + block) * STEP * BLOCK) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    #[inline(never)]
    unsafe fn decode_as<T: Coded>(&self, block: usize, g: usize, end: usize, mut to: *mut u8) {
        let of = &self.panel.block;
        unsafe {
            let w = self.w.add(block * self.other);
            for group in g..end {
                let factors = w.add(of.scales_of(group));
                let kept = &raw mut (*self.work).factors[group % RING];
                (*kept).keep = if group == 0 { 0 } else { !0 };
                _mm512_store_ps((&raw mut (*kept).scales[block]).cast(), Vectors::load_f16(factors));
                if const { T::ENCODING.has_minimum() } {
                    _mm512_store_ps((&raw mut (*kept).mins[block]).cast(), Vectors::load_f16(factors.add(of.mins)));
                }
                let codes = w.add(of.codes_of(group));
                let columns = self.panel.group.min(self.panel.kp - group * self.panel.group);
                let lines = columns / const { 32 / T::ENCODING.bits() as usize };
                for line in 0..lines {
                    to = line_of::<T>(_mm512_loadu_si512(codes.add(line * LINE).cast()), to);
                }
            }
        }
    }

    /// Starts a unit, and moves those on their way on.
    #[inline(always)]
    unsafe fn unit<const ASYMMETRIC: bool>(&mut self, at: &Unit, ahead: &mut Ahead) {
        let panel = self.panel;
        let pieces = (panel.kp - at.group * panel.group).min(panel.group) / panel.depth;
        // Rows that are scaled after each product.
        let some = if self.stored.live { PAIR / 4 / pieces } else { 0 };
        unsafe {
            let a = self.a.add(at.pair * PAIR * panel.p.a_stride as usize + at.group * panel.group);
            let mut beside = Beside { due: self.stored, stride: self.outputs_stride, some, ahead };
            self.piece::<true, ASYMMETRIC>(a, at.w, &mut beside);
            for piece in 1..pieces {
                self.piece::<false, ASYMMETRIC>(
                    a.add(piece * panel.depth),
                    at.w.add(piece * panel.depth * BLOCK),
                    &mut beside,
                );
            }
            let due = Due {
                sums: self.stored.sums,
                outputs: self.outputs.add(at.pair * PAIR * self.outputs_stride),
                factors: &raw const (*self.work).factors[at.group % RING],
                rows: (&raw const (*self.rows).scales[at.kept]).cast::<f32>().add(at.pair * PAIR),
                live: true,
            };
            (self.stored, self.computed) = (self.computed, due);
        }
    }

    /// A tile of columns: four products, and other work after each. The `FIRST` of a unit take
    /// their tiles from the unit before, whose sums go to memory.
    #[inline(always)]
    unsafe fn piece<const FIRST: bool, const ASYMMETRIC: bool>(&self, a: *const u8, w: *const u8, beside: &mut Beside) {
        let (to, a_stride) = (self.computed.sums, self.panel.p.a_stride as usize);
        unsafe {
            if FIRST {
                store!(0, to, 2 * LINE);
                zero!(0);
            }
            load!(6, w, LINE);
            load!(4, a, a_stride);
            multiply!(false, 0, 4, 6);
            beside.some::<ASYMMETRIC>();
            if FIRST {
                store!(1, to.add(LINE), 2 * LINE);
                zero!(1);
            }
            load!(7, w.add(STEP * BLOCK), LINE);
            multiply!(false, 1, 4, 7);
            beside.some::<ASYMMETRIC>();
            if FIRST {
                store!(2, to.add(2 * TILE), 2 * LINE);
                zero!(2);
            }
            load!(5, a.add(SIDE * a_stride), a_stride);
            multiply!(false, 2, 5, 6);
            beside.some::<ASYMMETRIC>();
            if FIRST {
                store!(3, to.add(2 * TILE + LINE), 2 * LINE);
                zero!(3);
            }
            multiply!(false, 3, 5, 7);
            beside.some::<ASYMMETRIC>();
        }
    }

    /// Finishes the units on their way.
    #[inline(always)]
    unsafe fn drain<const ASYMMETRIC: bool>(&mut self) {
        unsafe {
            store::<2, 2>(&Place { at: self.computed.sums, across: LINE, down: 2 * TILE, stride: 2 * LINE });
            for mut due in [self.stored, self.computed] {
                if due.live {
                    due.scale::<ASYMMETRIC>(self.outputs_stride, PAIR);
                }
            }
        }
    }
}

/// A unit to be started.
struct Unit {
    /// Pair of tiles of rows.
    pair: usize,
    /// Its group, and the number of this among those whose activation factors are kept.
    group: usize,
    kept: usize,
    /// Decoded weights of the first block.
    w: *const u8,
}

/// Work to do after each product.
struct Beside<'a> {
    /// A unit being scaled, the distance between rows of outputs, and the rows per step.
    due: Due,
    stride: usize,
    some: usize,
    ahead: &'a mut Ahead,
}

impl Beside<'_> {
    #[inline(always)]
    unsafe fn some<const ASYMMETRIC: bool>(&mut self) {
        unsafe {
            self.due.scale::<ASYMMETRIC>(self.stride, self.some);
            self.ahead.some();
        }
    }
}

impl Due {
    /// Scales the next `rows` rows, an even number.
    #[inline(always)]
    unsafe fn scale<const ASYMMETRIC: bool>(&mut self, stride: usize, rows: usize) {
        unsafe {
            scale::<ASYMMETRIC>(self.sums, self.outputs, self.rows, self.factors, stride, rows);
            self.sums = self.sums.add(rows * 2 * LINE);
            self.outputs = self.outputs.add(rows * stride);
            self.rows = self.rows.add(rows);
        }
    }
}

/// Scales sums of `count` rows, an even number, and adds them to the outputs.
///
/// One function, since it is needed after each product; its arguments are in registers, since it
/// takes no longer than one.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
#[inline(never)]
unsafe fn scale<const ASYMMETRIC: bool>(
    mut sums: *const u8,
    mut outputs: *mut f32,
    mut rows: *const f32,
    factors: *const Factors,
    stride: usize,
    count: usize,
) {
    unsafe {
        let of = |x: *const [f32; BLOCK]| _mm512_load_ps(x.cast());
        let scales = [of(&raw const (*factors).scales[0]), of(&raw const (*factors).scales[1])];
        let mins =
            if ASYMMETRIC { [of(&raw const (*factors).mins[0]), of(&raw const (*factors).mins[1])] } else { scales };
        let (end, keep) = (rows.add(count), (*factors).keep);
        while rows != end {
            for row in 0..2 {
                let a_scale = _mm512_set1_ps(rows.add(row).read());
                for block in 0..2 {
                    let total = _mm512_cvtepi32_ps(_mm512_load_si512(sums.add((row * 2 + block) * LINE).cast()));
                    let out = outputs.add(block * BLOCK);
                    let mut acc =
                        _mm512_fmadd_ps(total, _mm512_mul_ps(scales[block], a_scale), _mm512_maskz_loadu_ps(keep, out));
                    if ASYMMETRIC {
                        let sum = _mm512_set1_ps(rows.add(SECTION * ROWS + row).read());
                        acc = _mm512_fmadd_ps(_mm512_mul_ps(mins[block], a_scale), sum, acc);
                    }
                    _mm512_storeu_ps(out, acc);
                }
                outputs = outputs.add(stride);
            }
            (sums, rows) = (sums.add(4 * LINE), rows.add(2));
        }
    }
}
