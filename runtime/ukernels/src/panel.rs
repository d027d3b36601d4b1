//! Panels: `c[m, 16 * blocks] = a[m, k] · w[16 * blocks, k]ᵀ`, cut into register tiles.
//!
//! [`run`] walks the tiles; a [`Kernel`] computes one tile over the whole of `k`, so that every output element is one chain of accumulation
//! in registers, whatever the tile it falls into.

pub(crate) mod decode;
pub(crate) mod float;
pub(crate) mod int8;

use llmcc_abi::PanelArgs;
use llmcc_abi::layout::{self, BLOCK, Block, Elem, Q8Row};

use crate::isa::{Isa, Shape};

/// The inner loops of one weight format.
pub(crate) trait Kernel<I: Isa> {
    /// Weight format.
    const ELEM: Elem;
    /// Largest tile.
    const SHAPE: Shape;
    /// Computes `MR` rows × `NV` vectors of `c`.
    ///
    /// # Safety
    /// The tile lies within the panel.
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile);
}

/// A tile to compute, and the layout of the panel it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Block of the first vector.
    w: *const u8,
    w_stride: usize,
    /// Row of its block at which the first vector starts.
    row: usize,
    /// First activation row.
    a: *const u8,
    a_stride: usize,
    /// First output.
    c: *mut f32,
    c_stride: usize,
    k: usize,
    /// `k` with padding.
    kp: usize,
    group: usize,
    block: Block,
    q8: Q8Row,
}

impl Tile {
    /// The first tile of a panel.
    #[inline(always)]
    fn new(p: &PanelArgs, elem: Elem) -> Tile {
        let (k, group) = (p.k as usize, p.group as usize);
        let quantized = matches!(elem, Elem::W8 | Elem::W4 | Elem::W4a);
        Tile {
            w: p.w,
            w_stride: p.w_stride as usize,
            row: 0,
            a: p.a,
            a_stride: p.a_stride as usize,
            c: p.c,
            c_stride: p.c_stride as usize,
            k,
            kp: layout::padded_k(k),
            group,
            block: layout::block(elem, k, group),
            q8: if quantized { layout::q8_row(k, group) } else { Q8Row { scales: 0, sums: 0, bytes: 0 } },
        }
    }

    /// The tile that starts at vector `vector` and activation row `token` of the panel whose first tile this is.
    #[inline(always)]
    unsafe fn at<I: Isa>(&self, vector: usize, token: usize) -> Tile {
        let row = vector * I::LANES;
        unsafe {
            Tile {
                w: self.w.add(row / BLOCK * self.w_stride),
                row: row % BLOCK,
                a: self.a.add(token * self.a_stride),
                c: self.c.add(token * self.c_stride + row),
                ..*self
            }
        }
    }

    /// Address of the first element of each vector in a part of the block at byte `offset` that holds `row_bytes` bytes per row.
    #[inline(always)]
    unsafe fn vectors<I: Isa, const NV: usize>(&self, offset: usize, row_bytes: usize) -> [*const u8; NV] {
        // An even number of vectors starts at a block: knowing it makes the offsets within a block constants.
        let first = if (NV * I::LANES).is_multiple_of(BLOCK) { 0 } else { self.row };
        let mut p = [self.w; NV];
        for v in 0..NV {
            let row = first + v * I::LANES;
            p[v] = unsafe { self.w.add(row / BLOCK * self.w_stride + offset + row % BLOCK * row_bytes) };
        }
        p
    }

    /// Writes the finished tile.
    #[inline(always)]
    unsafe fn store<I: Isa, const MR: usize, const NV: usize>(&self, acc: &[[I::F; NV]; MR]) {
        for m in 0..MR {
            for v in 0..NV {
                unsafe { I::store(self.c.add(m * self.c_stride + v * I::LANES), acc[m][v]) };
            }
        }
    }
}

/// Loads words of weights, and asks for what the tile will read some time later: with several rows there is so much arithmetic per byte
/// that the processor does not look far enough ahead by itself (6 rows of 4-bit weights from DRAM: +30 %). With fewer rows it does, and prefetching only costs.
#[inline(always)]
unsafe fn stream_words<I: Isa, const MR: usize>(p: *const u8) -> I::I {
    unsafe {
        ahead::<I, MR>(p);
        I::load_words(p)
    }
}

/// See [`stream_words`].
#[inline(always)]
unsafe fn ahead<I: Isa, const MR: usize>(p: *const u8) {
    if const { MR >= 4 } {
        unsafe { I::prefetch(p.wrapping_add(2048)) }
    }
}

/// Computes a panel.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn run<I: Isa, K: Kernel<I>>(p: &PanelArgs) {
    let (m, vectors) = (p.m as usize, p.blocks as usize * (BLOCK / I::LANES));
    let first = Tile::new(p, K::ELEM);
    let mut v = 0;
    unsafe {
        if m == 1 {
            macro_rules! tiles {
                ($($nv:literal)*) => { $(
                    if const { $nv <= K::SHAPE.single } {
                        while vectors - v >= $nv {
                            K::tile::<1, $nv>(&first.at::<I>(v, 0));
                            v += $nv;
                        }
                    }
                )* };
            }
            tiles!(4 2);
        }
        if const { K::SHAPE.vectors >= 2 } {
            while vectors - v >= 2 {
                strip::<I, K, 2>(&first, m, v);
                v += 2;
            }
        }
        while v < vectors {
            strip::<I, K, 1>(&first, m, v);
            v += 1;
        }
    }
}

/// Computes all `m` rows of `NV` vectors, in the largest tiles that fit.
#[inline(always)]
unsafe fn strip<I: Isa, K: Kernel<I>, const NV: usize>(first: &Tile, m: usize, vector: usize) {
    let mut i = 0;
    macro_rules! tiles {
        ($($mr:literal)*) => { $(
            if const { has_tile($mr, NV, K::SHAPE) } {
                while m - i >= $mr {
                    unsafe { K::tile::<$mr, NV>(&first.at::<I>(vector, i)) };
                    i += $mr;
                }
            }
        )* };
    }
    tiles!(12 8 6 4 3 2 1);
}

/// Whether tiles of `mr` rows × `nv` vectors exist. What remains when the vectors are odd in number is not worth all of them.
const fn has_tile(mr: usize, nv: usize, shape: Shape) -> bool {
    mr <= shape.tokens && (nv == shape.vectors || matches!(mr, 1 | 4 | 12))
}
