//! Quantized weights × int8 rows by AMX: the matrix unit sums the products of a group, vector code scales them.
//!
//! The same chain as everywhere: per group an exact integer sum, then one f32 fused multiply-add. So the bits are those of the other levels, and rows may
//! be cut anywhere between this code and theirs.
//!
//! # Structure
//!
//! Two blocks of weights at a time, [`STEP`] columns at a time, are decoded to signed bytes ([`Panel::decode`]). All activation rows, up to [`ROWS`], pass over them, 32 at a time: the sums
//! of two groups are stored to memory ([`Panel::products`]), from where they are scaled and added to the outputs ([`Scale`]), all in the first-level cache. Rows that do not fill one tile
//! have code of their own, [`few`].
//!
//! # What bounds it
//!
//! Per group of 128 columns of 32 × 32 outputs the matrix unit takes 8 × 16 cycles, 12 loads of tiles some 100, four stores 64, the scaling of 64 vectors 2 cycles each, and decoding
//! 32 × 128 codes some 80, which is divided among the rows. Little of that overlaps: a group fills the reorder buffer. On a Granite Rapids core (3.3 GHz) it makes 0.5 to 0.9 T
//! multiply-adds per second of the 3.1 that the unit does without scales; VNNI makes 0.2 there.

use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use llmcc_abi::PanelArgs;
use llmcc_abi::layout::{self, BLOCK, Block, Elem, Q8Row};

use crate::isa::Isa;
use crate::isa::avx512::Avx512;

use super::super::int8::{Format, W4, W4a, W8};
use super::super::{AHEAD, NEAR};
use super::{Ahead, LINE, Operands, Pass, Place, SIDE, TILE, clear, configure, passes, release, store, sum};

mod few;

/// Vector code beside the matrix unit.
type Vectors = Avx512<false>;

/// Tiles of rows multiplied at once.
const PARTS: usize = 2;
/// Rows that pass over decoded weights: more would drive each other from the first-level cache.
const ROWS: usize = 128;
/// Columns that are decoded at a time: a whole number of groups.
const STEP: usize = 256;
/// Columns of a tile of activations or weights, unless groups are shorter.
const DEPTH: usize = 64;
/// Columns in the smallest group.
const LEAST: usize = 32;
/// Fewest rows worth it, of 4-bit codes, whose unpacking vector code repeats for every few rows, and of 8-bit codes.
const FEWEST: (usize, usize) = (3, 6);

/// The integer sums of two groups, a tile after the other.
#[repr(C, align(64))]
struct Sums([[[[i32; SIDE]; SIDE]; 4]; 2]);

/// Outputs on their way, a tile after the other. In place, rows would often lie a power of two apart and drive each other from the cache.
#[repr(C, align(64))]
struct Outputs([[f32; BLOCK]; 2 * ROWS]);

/// A step of decoded weights of a block.
#[repr(C, align(64))]
struct Decoded {
    codes: [u8; BLOCK * STEP],
    scales: [[f32; BLOCK]; STEP / LEAST],
    mins: [[f32; BLOCK]; STEP / LEAST],
}

/// A panel.
struct Panel<'a> {
    p: &'a PanelArgs,
    elem: Elem,
    group: usize,
    kp: usize,
    /// Columns of a tile.
    depth: usize,
    block: Block,
    q8: Q8Row,
}

/// Whether there are enough rows and groups are whole tiles: otherwise other code does it.
#[inline(always)]
pub(crate) fn suits(p: &PanelArgs, elem: Elem) -> bool {
    let (k, group) = (p.k as usize, p.group as usize);
    p.m as usize >= if elem == Elem::W8 { FEWEST.1 } else { FEWEST.0 }
        && group >= LEAST
        && STEP.is_multiple_of(group)
        && layout::padded_k(k).is_multiple_of(group.min(DEPTH))
}

/// Computes a panel of quantized weights.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has AVX-512 and AMX-INT8, this process may use tiles, and [`suits`].
#[inline(always)]
pub(crate) unsafe fn run(p: &PanelArgs, elem: Elem) {
    let (k, group) = (p.k as usize, p.group as usize);
    let panel = Panel {
        p,
        elem,
        group,
        kp: layout::padded_k(k),
        depth: group.min(DEPTH),
        block: layout::block(elem, k, group),
        q8: layout::q8_row(k, group),
    };
    unsafe {
        for pass in passes(p.m as usize).into_iter().filter(|pass| pass.rows > 0) {
            if pass.tiles.1 > 0 {
                configure(pass.tiles, panel.depth);
                panel.pass(pass.first, pass.rows);
            } else {
                configure((pass.rows, pass.rows), panel.depth);
                match panel.elem {
                    Elem::W8 => panel.few::<W8>(&pass),
                    Elem::W4 => panel.few::<W4>(&pass),
                    _ => panel.few::<W4a>(&pass),
                }
            }
        }
        release();
    }
}

impl Panel<'_> {
    /// The rows of a pass that are at most a tile.
    #[inline(always)]
    unsafe fn few<T: Format<Vectors>>(&self, pass: &Pass) {
        let blocks = self.p.blocks as usize;
        let mut b = 0;
        while blocks - b >= 2 {
            unsafe { few::run::<T, 2>(self, pass.first, pass.rows, b) };
            b += 2;
        }
        if b < blocks {
            unsafe { few::run::<T, 1>(self, pass.first, pass.rows, b) };
        }
    }

    /// Rows `first..first + rows` of all blocks, two tiles at a time.
    #[inline(always)]
    unsafe fn pass(&self, first: usize, rows: usize) {
        let blocks = self.p.blocks as usize;
        let mut b = 0;
        while blocks - b >= 2 {
            unsafe { self.rows::<2>(first, rows, b) };
            b += 2;
        }
        if b < blocks {
            unsafe { self.rows::<1>(first, rows, b) };
        }
    }

    /// The rows of `BLOCKS` blocks, [`ROWS`] at a time.
    #[inline(always)]
    unsafe fn rows<const BLOCKS: usize>(&self, first: usize, rows: usize, b: usize) {
        for start in (0..rows).step_by(ROWS) {
            unsafe { self.strip::<BLOCKS>(first + start, ROWS.min(rows - start), b) };
        }
    }

    /// The rows of `BLOCKS` blocks from block `b` on.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn strip<const BLOCKS: usize>(&self, first: usize, rows: usize, b: usize) {
        let mut decoded = MaybeUninit::<[Decoded; BLOCKS]>::uninit();
        let decoded = decoded.as_mut_ptr().cast::<Decoded>();
        let mut outputs = MaybeUninit::<Outputs>::uninit();
        let outputs = outputs.as_mut_ptr().cast::<f32>();
        // Outputs of `PARTS` tiles of rows.
        let each = PARTS * SIDE * BLOCKS * BLOCK;
        unsafe {
            for i in 0..rows.div_ceil(PARTS * SIDE) * PARTS * SIDE * BLOCKS {
                _mm512_store_ps(outputs.add(i * BLOCK), _mm512_setzero_ps());
            }
            let mut k = 0;
            while k < self.kp {
                let end = self.kp.min(k + STEP);
                for block in 0..BLOCKS {
                    self.decode(b + block, k, end, decoded.add(block));
                }
                let mut ahead = self.ahead::<BLOCKS>(b, k, end);
                for i in 0..rows.div_ceil(PARTS * SIDE) {
                    self.products::<BLOCKS>(decoded, first + i * PARTS * SIDE, (k, end), outputs.add(i * each), &mut ahead);
                }
                ahead.rest();
                k = end;
            }
            for row in 0..rows {
                let tile = row / SIDE * BLOCKS;
                let c = self.p.c.add((first + row) * self.p.c_stride as usize + b * BLOCK);
                for block in 0..BLOCKS {
                    let from = outputs.add(((tile + block) * SIDE + row % SIDE) * BLOCK);
                    _mm512_storeu_ps(c.add(block * BLOCK), _mm512_load_ps(from));
                }
            }
        }
    }

    /// What follows columns `k..end` of the blocks from `b` on, as far on as the second-level cache allows: the same columns of the next blocks, if possible.
    #[inline(always)]
    fn ahead<const BLOCKS: usize>(&self, b: usize, k: usize, end: usize) -> Ahead {
        let stride = self.p.w_stride as usize;
        let far = if BLOCKS * stride <= AHEAD { BLOCKS * stride } else { NEAR };
        let of = |column: usize| self.p.w.wrapping_add(b * stride + self.block.codes_of(column / self.group) + far);
        Ahead { next: of(k), end: of(end), other: (BLOCKS - 1) * stride }
    }

    /// Decodes columns `k..end` of block `b`.
    #[inline(always)]
    unsafe fn decode(&self, b: usize, k: usize, end: usize, to: *mut Decoded) {
        unsafe {
            match self.elem {
                Elem::W8 => self.decode_as::<W8>(b, k, end, to),
                Elem::W4 => self.decode_as::<W4>(b, k, end, to),
                _ => self.decode_as::<W4a>(b, k, end, to),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn decode_as<T: Format<Vectors>>(&self, b: usize, k: usize, end: usize, to: *mut Decoded) {
        unsafe {
            let w = self.p.w.add(b * self.p.w_stride as usize);
            let mut out = (&raw mut (*to).codes).cast::<u8>();
            for (i, group) in (k / self.group..end.div_ceil(self.group)).enumerate() {
                let factors = w.add(self.block.scales_of(group));
                _mm512_storeu_ps((&raw mut (*to).scales[i]).cast(), Vectors::load_f16(factors));
                if const { matches!(T::ELEM, Elem::W4a) } {
                    _mm512_storeu_ps((&raw mut (*to).mins[i]).cast(), Vectors::load_f16(factors.add(self.block.mins)));
                }
                let codes = w.add(self.block.codes_of(group));
                let columns = self.group.min(end - group * self.group);
                let lines = if const { matches!(T::ELEM, Elem::W8) } { columns / 4 } else { columns / 8 };
                for line in 0..lines {
                    let p = codes.add(line * 64);
                    out = line_of::<T>(_mm512_loadu_si512(p.cast()), out);
                }
            }
        }
    }

    /// Adds the products of columns `k.0..k.1` to `PARTS * 16` rows, from row `row` on, of `BLOCKS` blocks; the tiles' configuration knows if there are less.
    #[inline(always)]
    unsafe fn products<const BLOCKS: usize>(&self, w: *const Decoded, row: usize, k: (usize, usize), outputs: *mut f32, ahead: &mut Ahead) {
        let mut sums = MaybeUninit::<Sums>::uninit();
        let sums = sums.as_mut_ptr().cast::<u8>();
        let rows = (PARTS * SIDE).min(self.p.m as usize - row);
        unsafe {
            let a = self.p.a.add(row * self.p.a_stride as usize);
            let first = k.0 / self.group;
            let groups = (k.1 - k.0).div_ceil(self.group);
            let mut codes = (&raw const (*w).codes).cast::<u8>();
            // Two groups at a time: outputs are then loaded and stored half as often.
            for i in (0..groups).step_by(2) {
                let together = (groups - i).min(2);
                for half in 0..together {
                    let start = k.0 + (i + half) * self.group;
                    let pieces = (k.1 - start).min(self.group) / self.depth;
                    let (a_stride, depth) = (self.p.a_stride as usize, self.depth);
                    let second = SIDE * a_stride;
                    clear::<PARTS, BLOCKS>();
                    sum::<false, PARTS, BLOCKS>(&Operands {
                        a: a.add(start),
                        a_stride,
                        second,
                        w: codes,
                        other: size_of::<Decoded>(),
                        pieces,
                        depth,
                        next: depth,
                        ahead: 0,
                    });
                    store::<PARTS, BLOCKS>(&Place { at: sums.add(half * 4 * TILE), across: TILE, down: 2 * TILE, stride: LINE });
                    codes = codes.add(pieces * depth * SIDE);
                }
                let scale = Scale { panel: self, w, sums, outputs, a, rows, decoded: i, group: first + i };
                if self.elem == Elem::W4a {
                    scale.some::<true, BLOCKS>(together, ahead);
                } else {
                    scale.some::<false, BLOCKS>(together, ahead);
                }
            }
        }
    }
}

/// Sums to be scaled and added to the outputs.
struct Scale<'a> {
    panel: &'a Panel<'a>,
    w: *const Decoded,
    sums: *const u8,
    outputs: *mut f32,
    /// The first activation row, and how many there are.
    a: *const u8,
    rows: usize,
    /// Number of the first group, of those decoded and of all.
    decoded: usize,
    group: usize,
}

impl Scale<'_> {
    /// One or two groups.
    #[inline(always)]
    unsafe fn some<const ASYMMETRIC: bool, const BLOCKS: usize>(&self, groups: usize, ahead: &mut Ahead) {
        unsafe { if groups == 2 { self.all::<ASYMMETRIC, BLOCKS, 2>(ahead) } else { self.all::<ASYMMETRIC, BLOCKS, 1>(ahead) } }
    }

    /// `GROUPS` groups, in ascending order.
    #[inline(always)]
    unsafe fn all<const ASYMMETRIC: bool, const BLOCKS: usize, const GROUPS: usize>(&self, ahead: &mut Ahead) {
        for part in 0..PARTS {
            for block in 0..BLOCKS {
                unsafe { self.tile::<ASYMMETRIC, GROUPS>(part, block, (part * BLOCKS + block) * SIDE * BLOCK, ahead) };
            }
        }
    }

    /// A tile, whose outputs start at `at`.
    ///
    /// One function for all formats and shapes, since every kernel is in every artifact.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn tile<const ASYMMETRIC: bool, const GROUPS: usize>(&self, part: usize, block: usize, at: usize, ahead: &mut Ahead) {
        let (q8, a_stride) = (&self.panel.q8, self.panel.p.a_stride as usize);
        let rows = SIDE.min(self.rows.saturating_sub(part * SIDE));
        unsafe {
            let w = &raw const *self.w.add(block);
            let mut scale = [_mm512_setzero_ps(); GROUPS];
            let mut min = scale;
            for g in 0..GROUPS {
                scale[g] = _mm512_load_ps((&raw const (*w).scales[self.decoded + g]).cast());
                if ASYMMETRIC {
                    min[g] = _mm512_load_ps((&raw const (*w).mins[self.decoded + g]).cast());
                }
            }
            let mut a = self.a.add(part * SIDE * a_stride + self.group * 4);
            let mut sums = self.sums.add((part * 2 + block) * TILE);
            let mut out = self.outputs.add(at);
            for _ in 0..rows {
                ahead.some();
                let mut acc = _mm512_load_ps(out);
                for g in 0..GROUPS {
                    let a_scale = _mm512_set1_ps(a.add(q8.scales + g * 4).cast::<f32>().read_unaligned());
                    let total = _mm512_cvtepi32_ps(_mm512_load_si512(sums.add(g * 4 * TILE).cast()));
                    acc = _mm512_fmadd_ps(total, _mm512_mul_ps(scale[g], a_scale), acc);
                    if ASYMMETRIC {
                        let sum = _mm512_set1_ps(a.add(q8.sums + g * 4).cast::<i32>().read_unaligned() as f32);
                        acc = _mm512_fmadd_ps(_mm512_mul_ps(min[g], a_scale), sum, acc);
                    }
                }
                _mm512_store_ps(out, acc);
                sums = sums.add(LINE);
                a = a.add(a_stride);
                out = out.add(BLOCK);
            }
        }
    }
}

/// Writes the codes of a line as signed bytes; returns where the next go.
#[inline(always)]
unsafe fn line_of<T: Format<Vectors>>(x: __m512i, out: *mut u8) -> *mut u8 {
    unsafe {
        if const { matches!(T::ELEM, Elem::W8) } {
            _mm512_storeu_si512(out.cast(), _mm512_xor_si512(x, _mm512_set1_epi8(-128)));
            return out.add(64);
        }
        let zero = _mm512_set1_epi8(T::ZERO as i8);
        _mm512_storeu_si512(out.cast(), _mm512_sub_epi8(Vectors::low_nibbles(x), zero));
        _mm512_storeu_si512(out.add(64).cast(), _mm512_sub_epi8(Vectors::high_nibbles(x), zero));
        out.add(128)
    }
}
