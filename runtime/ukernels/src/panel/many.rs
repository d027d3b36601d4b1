//! Many f32 rows: weights are widened to f32 once for all rows, and multiplied from the first-level
//! cache.
//!
//! A tile over the whole of `k`, as few rows have it, reads its activations from the second-level
//! cache or from beyond it, and each decodes its weights anew. Here 128 columns pass at a time: two
//! vectors' worth of blocks are widened (up to 16 KB), and the same columns of all rows, packed,
//! serve one pair after the other. Meanwhile sums wait in `c`, which costs them no bit: the chains
//! of an output are the same. All formats multiply with the same code, [`columns`], once per
//! instruction set.
//!
//! Bounds with AVX-512, on a Xeon with AMX: the loop of 12 rows × 2 vectors itself runs at 90 % of
//! the multiply-adds that registers alone allow; packing takes 4 % of the time (of panels of 128
//! columns), widening 2 to 5 % (128 rows), the ends of tiles 5 %. Weights to come are asked for a
//! few lines at a time: in a burst they wait for one another (bf16, 8 rows: 50 instead of 67 % of
//! the bandwidth).

use core::mem::MaybeUninit;

use llmcc_abi::PanelArgs;
use llmcc_abi::encoding::{Encoding, Float};
use llmcc_abi::layout::{BLOCK, CHAIN, chain_unit};

use super::float::{end_chains, end_scaled_chains, fma_row};
use super::{Kernel, Tile};
use crate::isa::Isa;

/// Columns that pass at once: whole groups of every format.
const DEPTH: usize = 128;
const _: () = assert!(DEPTH.is_multiple_of(CHAIN) && CHAIN.is_multiple_of(PIECE));
/// Bytes of the weights of a column of a block as f32.
const COLUMN: usize = BLOCK * 4;

/// Activation rows that pass together: the most that scratch has room for.
const ROWS: usize = 128;
/// Columns of a piece of a packed row: a cache line.
const PIECE: usize = 16;

/// Writes columns `from..to` of a block, which starts at `w`, as f32 `[to - from][16]`; up to 7
/// more columns are written. `from` is a multiple of [`DEPTH`]. The tile is the first of its panel.
pub(crate) type WidenFn = unsafe fn(t: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32);

/// Writes the factors of chains of a block, which starts at `w`: of its 16 rows, in the [`DEPTH`] columns from `from`
/// on. The tile is the first of its panel.
pub(crate) type FactorsFn = unsafe fn(t: &Tile, w: *const u8, from: usize, out: *mut f32);

/// A format whose weights can be widened.
pub(crate) trait Widen<I: Isa>: Kernel<I> {
    /// See [`WidenFn`].
    unsafe fn widen(t: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32);
    /// See [`FactorsFn`]; for weights with a [unit of chains](chain_unit) only.
    unsafe fn factors(_: &Tile, _: *const u8, _: usize, _: *mut f32) {}
}

/// Operands as they are multiplied.
#[repr(C, align(64))]
struct Scratch {
    /// Widened weights of the blocks of a tile.
    w: [[[f32; BLOCK]; DEPTH]; 2],
    /// Factors of chains of these blocks.
    factors: [[f32; BLOCK]; 2],
    /// Activations, tile by tile, `[DEPTH / PIECE][rows of the tile][PIECE]`: in place, rows often
    /// lie a power of two apart and drive each other from the cache.
    a: [[f32; DEPTH]; ROWS],
}

/// Columns of activation rows and of widened weights.
pub(crate) struct Columns {
    /// Weights of the first and the last vector: 64 bytes per column.
    w: [*const u8; 2],
    /// Factors of the chains of these vectors; or null, if they have none.
    factors: [*const f32; 2],
    /// The weights after these, and how many bytes of each stream to ask for in all.
    next: [*const u8; 2],
    ask: usize,
    /// Rows as they are, to be packed; or null, if they have been.
    rows: *const u8,
    row_stride: usize,
    /// Packed rows.
    a: *mut f32,
    m: usize,
    c: *mut f32,
    c_stride: usize,
    count: usize,
    /// Whether sums start here.
    first: bool,
}

/// Multiplies all rows, in tiles of about the same size.
///
/// # Safety
/// The operands belong to a panel with two vectors of weights; there are at least 5 rows.
#[inline(always)]
pub(crate) unsafe fn columns<I: Isa>(p: &Columns) {
    let tiles = p.m.div_ceil(I::MANY);
    let share = p.ask / tiles;
    let mut row = 0;
    for i in 0..tiles {
        let rows = (p.m - row).div_ceil(tiles - i);
        unsafe {
            if !p.rows.is_null() {
                pack::<I>(p, row, rows);
            }
            macro_rules! tiles {
                ($($mr:literal)*) => {
                    match rows {
                        $( $mr if const { $mr <= I::MANY && $mr > I::MANY / 2 - 2 } => tile::<I, $mr>(p, row, i * share, share), )*
                        _ => debug_assert!(false, "no tile of {rows} rows"),
                    }
                };
            }
            // 5 rows or more are split evenly: each tile has from half a tile, less one, to a whole
            // one.
            tiles!(3 4 5 6 7 8 9 10 11 12);
        }
        row += rows;
    }
}

/// Packs `rows` rows from `row` on.
#[inline(always)]
unsafe fn pack<I: Isa>(p: &Columns, row: usize, rows: usize) {
    for m in 0..rows {
        unsafe {
            let from = p.rows.add((row + m) * p.row_stride).cast::<f32>();
            let to = p.a.add(row * DEPTH + m * PIECE);
            for piece in 0..p.count / PIECE {
                for v in (0..PIECE).step_by(I::LANES) {
                    I::store(to.add(piece * rows * PIECE + v), I::load(from.add(piece * PIECE + v).cast()));
                }
            }
            for k in p.count / PIECE * PIECE..p.count {
                to.add(k / PIECE * rows * PIECE + k % PIECE).write(from.add(k).read_unaligned());
            }
        }
    }
}

/// Multiplies `MR` rows from `row` on, and asks for `share` bytes from offset `at` of the weights
/// to come: as it goes, since many at once would wait for one another, and the multipliers for
/// them.
#[inline(always)]
unsafe fn tile<I: Isa, const MR: usize>(p: &Columns, row: usize, mut at: usize, share: usize) {
    let start = at;
    unsafe {
        let c = p.c.add(row * p.c_stride);
        let mut x = [I::splat(0.0); 2];
        let (mut acc, mut factors, scaled) = ([x; MR], x, !p.factors[0].is_null());
        if scaled {
            for v in 0..2 {
                factors[v] = I::load(p.factors[v].cast());
            }
        }
        let mut sums = acc;
        if !p.first {
            for m in 0..MR {
                for v in 0..2 {
                    sums[m][v] = I::load(c.add(m * p.c_stride + v * I::LANES).cast());
                }
            }
        }
        for from in (0..p.count).step_by(PIECE) {
            while at < start + share * (from + PIECE) / DEPTH {
                for v in (0..2).step_by(BLOCK / I::LANES) {
                    I::prefetch_far(p.next[v].wrapping_add(at));
                }
                at += 64;
            }
            let a = p.a.add(row * DEPTH + from * MR);
            for k in 0..PIECE.min(p.count - from) {
                for v in 0..2 {
                    x[v] = I::load(p.w[v].add((from + k) * COLUMN));
                }
                fma_row::<I, MR, 2>(&mut acc, &x, a.add(k).cast(), PIECE * 4);
            }
            if (from + PIECE).is_multiple_of(CHAIN) || from + PIECE >= p.count {
                match scaled {
                    true => end_scaled_chains::<I, MR, 2>(&mut sums, &mut acc, &factors),
                    false => end_chains::<I, MR, 2>(&mut sums, &mut acc),
                }
            }
        }
        for m in 0..MR {
            for v in 0..2 {
                I::store(c.add(m * p.c_stride + v * I::LANES), sums[m][v]);
            }
        }
    }
}

/// The functions and facts a panel is computed with.
pub(crate) struct Parts {
    /// Encoding of the weights; their group may be any.
    pub weights: Encoding,
    /// Blocks that two vectors of weights span.
    pub blocks: usize,
    /// [`Widen::widen`]; f32 blocks are used as they are.
    pub widen: WidenFn,
    /// [`Widen::factors`].
    pub factors: FactorsFn,
    /// [`columns`].
    pub multiply: unsafe fn(&Columns),
}

/// Byte of a block around which column `k` begins, `k` a multiple of [`DEPTH`], and bytes per
/// column.
fn place(t: &Tile, weights: Encoding, k: usize) -> (usize, usize) {
    let b = &t.block;
    match weights.float() {
        Some(Float::F32) => (k * COLUMN, COLUMN),
        Some(Float::F16 | Float::Bf16) => (k * COLUMN / 2, COLUMN / 2),
        Some(Float::E4m3) | None => {
            let column = BLOCK / 8 * weights.bits() as usize;
            (b.codes_of(k / t.group) - b.codes + k % t.group * column, b.record.div_ceil(b.groups * t.group))
        }
    }
}

/// Computes whole tiles of two vectors, as many as there are. Returns the number of blocks.
///
/// # Safety
/// As [`super::run`], for the operands `parts` were made for.
pub(super) unsafe fn run(p: &PanelArgs, parts: &Parts) -> usize {
    let first = Tile::new(p, parts.weights);
    let end = p.blocks as usize / parts.blocks * parts.blocks;
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let (all, mut row) = (p.m as usize, 0);
    while row < all {
        // Passes of about the same size: the last one is no single row.
        let rows = (all - row).div_ceil((all - row).div_ceil(ROWS));
        for from in (0..p.k as usize).step_by(DEPTH) {
            for block in (0..end).step_by(parts.blocks) {
                unsafe { some(p, parts, &first, scratch.as_mut_ptr(), (row, rows), (from, block, end)) };
            }
        }
        row += rows;
    }
    end
}

/// Multiplies `rows` rows from `row` on, [`DEPTH`] columns from `from` on, with the blocks of a
/// tile, the last of which ends at block `end`.
#[inline(always)]
unsafe fn some(
    p: &PanelArgs,
    parts: &Parts,
    first: &Tile,
    scratch: *mut Scratch,
    (row, rows): (usize, usize),
    (from, block, end): (usize, usize, usize),
) {
    let (k, stride) = (p.k as usize, p.w_stride as usize);
    let to = k.min(from + DEPTH);
    let after = block + parts.blocks;
    // Where the walk goes on: the next blocks, or the next columns of the first ones.
    let (next, next_k) = match (after < end, to < k) {
        (true, _) => (after, from),
        (false, true) => (0, to),
        (false, false) => (after, 0),
    };
    let ((at, step), (next_at, _)) = (place(first, parts.weights, from), place(first, parts.weights, next_k));
    unsafe {
        let mut w = [p.w.add(block * stride + at), p.w.add((block + parts.blocks - 1) * stride + at)];
        let mut factors: [*const f32; 2] = [core::ptr::null(); 2];
        if chain_unit(&parts.weights).is_some() {
            for b in 0..parts.blocks {
                let out = (&raw mut (*scratch).factors[b]).cast::<f32>();
                (parts.factors)(first, p.w.add((block + b) * stride), from, out);
            }
            factors =
                [(&raw const (*scratch).factors[0]).cast(), (&raw const (*scratch).factors[parts.blocks - 1]).cast()];
        }
        if parts.weights.float() != Some(Float::F32) {
            for b in 0..parts.blocks {
                let out = (&raw mut (*scratch).w[b]).cast::<f32>();
                (parts.widen)(first, p.w.add((block + b) * stride), from, to, out);
            }
            w = [(&raw const (*scratch).w[0]).cast(), (&raw const (*scratch).w[parts.blocks - 1]).cast()];
        }
        if parts.blocks == 1 {
            w[1] = w[0].add(COLUMN / 2);
            factors[1] = factors[0].wrapping_add(BLOCK / 2);
        }
        let next = p.w.wrapping_add(next * stride + next_at);
        (parts.multiply)(&Columns {
            w,
            factors,
            next: [next, next.wrapping_add(stride)],
            ask: step * DEPTH,
            rows: if block == 0 { p.a.add(row * p.a_stride as usize + from * 4) } else { core::ptr::null() },
            row_stride: p.a_stride as usize,
            a: (&raw mut (*scratch).a).cast(),
            m: rows,
            c: p.c.add(row * p.c_stride as usize + block * BLOCK),
            c_stride: p.c_stride as usize,
            count: to - from,
            first: from == 0,
        });
    }
}
