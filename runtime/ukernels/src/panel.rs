//! Panels: `c[m, 16 * blocks] = a[m, k] · w[16 * blocks, k]ᵀ`, cut into register tiles.
//!
//! [`run`] walks the tiles; a [`Kernel`] computes one tile over the whole of `k`, so that every
//! output element is accumulated in the same order in registers, whatever the tile it falls into.
//! Many f32 rows are an exception: [`many`].
//!
//! The files of this folder use each other (`tests/tests/circles.rs`): tiles and panels are generic over
//! each other.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod decode;
pub(crate) mod e4m3;
pub(crate) mod float;
pub(crate) mod int8;
mod levels;
pub(crate) mod many;
mod slice;
mod supers;
mod trellis;

#[cfg(target_arch = "x86_64")]
pub(crate) use slice::TRELLISES;

use llmcc_abi::PanelArgs;
use llmcc_abi::encoding::{Code, Encoding};
use llmcc_abi::layout::{self, BLOCK, Block, Q8Row};

use crate::isa::{Apart, Isa, Shape};

/// The inner loops of one weight format.
pub(crate) trait Kernel<I: Isa> {
    /// Encoding of the weights; their group may be any.
    const ENCODING: Encoding;
    /// Largest tile.
    const SHAPE: Shape;
    /// Whether a tile takes so much code that that of 3 rows is left out: every tile is in every
    /// artifact.
    const LONG: bool = false;
    /// Whether tiles of 1, 4 and 8 rows must do, for the same reason, of 2 by one vector, and of 6 by more.
    const SOME: bool = false;
    /// Computes `MR` rows × `NV` vectors of `c`.
    ///
    /// # Safety
    /// The tile lies within the panel.
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile);
}

/// A tile as a function of its own: all of a panel in one took the compiler many times as long. Its arguments are the
/// first tile of the panel, and its vector and row: a tile at each call would be more code than the call.
struct OneTile<I, K, const MR: usize, const NV: usize>(core::marker::PhantomData<(I, K)>);

impl<I: Isa, K: Kernel<I>, const MR: usize, const NV: usize> Apart<(&Tile, usize, usize)> for OneTile<I, K, MR, NV> {
    #[inline(always)]
    unsafe fn run((first, vector, row): (&Tile, usize, usize)) {
        unsafe {
            let tile = first.at::<I>(vector, row);
            // The first rows bring the next weights, the others find theirs in the cache.
            K::tile::<MR, NV>(&if row == 0 { tile.ahead::<I, NV>() } else { tile })
        }
    }
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
    /// Bytes from the sum of a group of an int8 row to the next.
    sum_bytes: usize,
    /// Bytes from the read position to the prefetched one, see [`Tile::ahead`].
    ahead: usize,
}

impl Tile {
    /// The first tile of a panel.
    #[inline(always)]
    fn new(p: &PanelArgs, weights: Encoding) -> Tile {
        let (k, group) = (p.k as usize, p.group as usize);
        // All columns, where rows have one scale and f32 rows none.
        let columns = if weights.by_row() && group == 0 { layout::padded_k(k).max(1) } else { group };
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
            group: columns,
            block: layout::block(&weights.in_groups(group), k),
            sum_bytes: layout::q8_sum_bytes(group),
            q8: if group > 0 { layout::q8_row(k, group) } else { Q8Row { scales: 0, sums: 0, bytes: 0 } },
            ahead: 0,
        }
    }

    /// The tile that starts at vector `vector` and activation row `token` of the panel whose first
    /// tile this is.
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

    /// The same tile of `NV` vectors, which asks for the weights of the next one while it reads its
    /// own, line by line.
    ///
    /// The blocks of a tile are as many streams, each of some kilobytes: too short for the
    /// processor's own prefetchers, which start anew at every block and every page. The next tile
    /// follows in memory, so that each line is asked for once, a whole tile before it is used.
    #[inline(always)]
    fn ahead<I: Isa, const NV: usize>(self) -> Tile {
        let next = (NV * I::LANES).div_ceil(BLOCK) * self.w_stride;
        Tile { ahead: if next <= AHEAD { next } else { NEAR }, ..self }
    }

    /// Asks for weights in advance: `p`, which vector `v` is about to read, stands for the line
    /// some way on. The first vector of those that share a line asks.
    #[inline(always)]
    unsafe fn prefetch<I: Isa, const MR: usize, const NV: usize>(&self, v: usize, p: *const u8) {
        if const { NV * I::LANES <= BLOCK } {
            // One stream. The processor's own prefetchers start anew at every page, and lose track
            // where factors and codes alternate: on Zen 5 they reached 44 to 76 % of the memory's
            // bandwidth, and 85 to 93 % with these. With more rows there is so much arithmetic per
            // byte that one stage is enough.
            if const { MR <= ASKED } && v == 0 {
                unsafe { I::prefetch_far(p.wrapping_add(LATER)) }
            } else if v == 0 {
                unsafe { I::prefetch(p.wrapping_add(NEAR)) }
            }
            // Nor does that reach memory in time when a line takes longer to multiply than to read.
            if const { MR >= 6 } && v == 0 {
                unsafe { I::prefetch_far(p.wrapping_add(self.ahead)) }
            }
        } else if (v * I::LANES).is_multiple_of(BLOCK) {
            unsafe { I::prefetch_far(p.wrapping_add(self.ahead)) }
        }
    }

    /// Asks for the first level, too, for few rows of codes in several planes: their streams are
    /// more than the prefetchers of that level follow.
    #[inline(always)]
    unsafe fn prefetch_planes<I: Isa, const MR: usize, const NV: usize>(&self, v: usize, p: *const u8) {
        if const { NV * I::LANES <= BLOCK && MR <= ASKED } && v == 0 {
            unsafe { I::prefetch(p.wrapping_add(SOON)) }
        }
    }

    /// Address of the first element of each vector in a part of the block at byte `offset` that
    /// holds `row_bytes` bytes per row.
    #[inline(always)]
    unsafe fn vectors<I: Isa, const NV: usize>(&self, offset: usize, row_bytes: usize) -> [*const u8; NV] {
        // An even number of vectors starts at a block: knowing it makes the offsets within a block
        // constants.
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

/// Bytes of weights that may be on their way into the second-level cache before they are used: a
/// part of it that leaves room for the activations.
const AHEAD: usize = 256 << 10;
/// Most rows with which weights come from memory faster than they are multiplied.
const ASKED: usize = 4;
/// How far to look ahead where not even one tile of the weights fits in [`AHEAD`].
const NEAR: usize = 2048;
/// How far few rows look ahead into memory: the lines that a core can wait for at the second level,
/// and some more, so that there is always one to ask for next. More of them would wait in the first
/// level, where they are in the way of the lines at hand.
const LATER: usize = 6144;
/// And how far codes in several planes look ahead into the second level, at lines that have come
/// from memory meanwhile. Where there is one plane, the processor's own prefetchers bring it to the
/// first level, and asking is in their way (Zen 5, one row from memory of 60 to 80 GB/s: 81 to 90
/// instead of 89 to 95 % of it); with several, 5 and 6 bits lose 5 to 15 % without it.
const SOON: usize = 1024;

/// Where the walk through the records of quantized blocks is: [`Block::scales_of`] and
/// [`Block::codes_of`] without divisions.
struct Place {
    /// Groups in a record.
    together: usize,
    record: usize,
    /// Offset of the next codes.
    codes: usize,
}

impl Place {
    #[inline(always)]
    const fn new(weights: Encoding) -> Place {
        Place { together: layout::groups_per_record(&weights), record: 0, codes: 0 }
    }

    /// Enters `group`, after all codes of those before. Returns the offset of its scales.
    #[inline(always)]
    fn enter(&mut self, t: &Tile, group: usize) -> usize {
        let within = group % self.together;
        if within == 0 {
            self.record = self.codes;
            self.codes += t.block.codes;
        }
        self.record + t.block.scales + within * t.block.step
    }
}

/// Computes a panel.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn run<I: Isa, K: Kernel<I>>(p: &PanelArgs) {
    let (m, vectors) = (p.m as usize, p.blocks as usize * (BLOCK / I::LANES));
    let first = Tile::new(p, K::ENCODING);
    let mut v = 0;
    unsafe {
        let one_stream = m <= K::SHAPE.few && const { K::SHAPE.single * I::LANES <= BLOCK };
        if m == 1 || one_stream {
            macro_rules! strips {
                ($($nv:literal)*) => { $(
                    if const { $nv <= K::SHAPE.single && has_tile(1, $nv, &K::SHAPE) } {
                        while vectors - v >= $nv {
                            strip::<I, K, $nv>(&first, m, v);
                            v += $nv;
                        }
                    }
                )* };
            }
            strips!(4 2);
        }
        if const { K::SHAPE.vectors >= 2 } && !one_stream {
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

/// Computes a panel with int8 rows. For 8-bit weights some instruction sets multiply −128 by other
/// instructions ([`Isa::dot8_any`]), which takes longer: rows with scales of their own have no
/// −128, integer rows may.
///
/// # Safety
/// As [`run`].
#[inline(always)]
pub(crate) unsafe fn run_int8<I: Isa, const F: usize>(p: &PanelArgs) {
    unsafe {
        if const { slice::PanelWeights::<F>::ENCODING.has_integer_scales() } {
            return run::<I, supers::Supers<F>>(p);
        }
        if const { matches!(slice::PanelWeights::<F>::ENCODING.code, Code::Trellis(_)) } && levels::suits(p) {
            return levels::run::<I, F>(p);
        }
        if const { !I::DOT8_LEAST && slice::PanelWeights::<F>::ENCODING.bits() == 8 } && has_least(p) {
            return run::<I, int8::Int8<F, true>>(p);
        }
        run::<I, int8::Int8<F, false>>(p)
    }
}

/// Whether a code of int8 rows is −128.
#[inline(always)]
unsafe fn has_least(p: &PanelArgs) -> bool {
    let mut found = 0;
    for row in 0..p.m as usize {
        let row = p.a.wrapping_add(row * p.a_stride as usize);
        for at in (0..layout::padded_k(p.k as usize)).step_by(layout::K_PAD) {
            // Without leaving early, so that the compiler makes vectors of it.
            for i in 0..layout::K_PAD {
                found |= u8::from(unsafe { row.add(at + i).read() } == 0x80);
            }
        }
    }
    found != 0
}

/// Computes a panel with f32 rows: many by [`many`], few as all others.
///
/// # Safety
/// As [`run`]; `parts` belong to `I` and `K`.
#[inline(always)]
pub(crate) unsafe fn run_f32<I: Isa, K: many::Widen<I>>(p: &PanelArgs, parts: &many::Parts) {
    let mut rest = *p;
    unsafe {
        if p.m as usize > K::SHAPE.tokens && p.k > 0 {
            let done = many::run(p, parts);
            rest.w = p.w.add(done * p.w_stride as usize);
            rest.c = p.c.add(done * BLOCK);
            rest.blocks -= done as u64;
        }
        run::<I, K>(&rest)
    }
}

/// Computes all `m` rows of `NV` vectors, in the largest tiles that fit.
#[inline(always)]
unsafe fn strip<I: Isa, K: Kernel<I>, const NV: usize>(first: &Tile, m: usize, vector: usize) {
    let mut i = 0;
    macro_rules! tiles {
        ($($mr:literal)*) => { $(
            if const { has_tile($mr, NV, &K::SHAPE) && !left_out($mr, NV, K::LONG, K::SOME) } {
                while m - i >= $mr {
                    unsafe { I::apart::<_, OneTile<I, K, $mr, NV>>((first, vector, i)) };
                    i += $mr;
                }
            }
        )* };
    }
    tiles!(12 8 6 4 3 2 1);
}

/// Whether tiles of `mr` rows are left out, see [`Kernel::LONG`] and [`Kernel::SOME`].
const fn left_out(mr: usize, nv: usize, long: bool, some: bool) -> bool {
    long && mr == 3 || some && !(matches!(mr, 1 | 4 | 8) || mr == if nv == 1 { 2 } else { 6 })
}

/// Whether tiles of `mr` rows × `nv` vectors exist. An odd remainder of vectors does not justify
/// all shapes, nor do vectors that serve few rows only.
const fn has_tile(mr: usize, nv: usize, shape: &Shape) -> bool {
    (nv == shape.vectors && mr <= shape.tokens)
        || (nv == shape.single && mr <= if nv > 2 { 1 } else { shape.few })
        || (nv == 1 && matches!(mr, 1 | 4))
}
