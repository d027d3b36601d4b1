//! Quantized weights × int8 rows by AMX: the matrix unit sums the products of a group, vector code
//! scales them.
//!
//! The same chain as everywhere: per group an exact integer sum, then one f32 fused multiply-add.
//! So the bits equal the other levels', and rows may be cut anywhere between this code and theirs.
//!
//! Weights are decoded to signed bytes first, in the first-level cache: [`many`] for pairs of tiles
//! of rows, [`few`] for the rest.

use core::arch::x86_64::*;

use llmcc_abi::PanelArgs;
use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{self, Block, Q8Row};

use crate::isa::avx512::Avx512;

use super::super::slice::{Coded, W4, W4a, W8};
use super::{configure, passes, release};

mod few;
mod many;
mod rows;

/// Vector code beside the matrix unit.
type Vectors = Avx512<false>;

/// Columns of a tile of activations or weights, unless groups are shorter.
const DEPTH: usize = 64;
/// Columns in the smallest group.
const LEAST: usize = 32;
/// Fewest rows worth it: up to 4 are multiplied by vector code as fast as memory brings their
/// weights.
const FEWEST: usize = 5;

/// A panel.
struct Panel<'a> {
    p: &'a PanelArgs,
    weights: Encoding,
    group: usize,
    kp: usize,
    /// Columns of a tile.
    depth: usize,
    block: Block,
    q8: Q8Row,
}

/// Whether there are enough rows and groups are whole tiles: otherwise other code does it.
#[inline(always)]
pub(crate) fn suits(p: &PanelArgs) -> bool {
    let (k, group) = (p.k as usize, p.group as usize);
    p.m as usize >= FEWEST
        && group >= LEAST
        && many::STEP.is_multiple_of(group)
        && k > 0
        && layout::padded_k(k).is_multiple_of(group.min(DEPTH))
}

/// Computes a panel of `weights`: W8, W4 or W4A, of any group.
///
/// # Safety
/// As [`llmcc_abi::PanelFn`]; the processor has AVX-512 and AMX-INT8, this process may use tiles,
/// and [`suits`].
#[inline(always)]
pub(crate) unsafe fn run(p: &PanelArgs, weights: Encoding) {
    let (k, group) = (p.k as usize, p.group as usize);
    let panel = Panel {
        p,
        weights,
        group,
        kp: layout::padded_k(k),
        depth: group.min(DEPTH),
        block: layout::block(&weights.in_groups(group), k),
        q8: layout::q8_row(k, group),
    };
    unsafe {
        for pass in passes(p.m as usize).into_iter().filter(|pass| pass.rows > 0) {
            if pass.tiles.1 > 0 {
                configure(pass.tiles, panel.depth);
                many::run(&panel, pass.first, pass.rows);
            } else {
                configure((pass.rows, pass.rows), panel.depth);
                match (weights.bits(), weights.has_minimum()) {
                    (8, _) => few::run::<W8>(&panel, pass.first, pass.rows),
                    (_, false) => few::run::<W4>(&panel, pass.first, pass.rows),
                    (_, true) => few::run::<W4a>(&panel, pass.first, pass.rows),
                }
            }
        }
        release();
    }
}

/// Writes the codes of a line as signed bytes; returns where the next go.
#[inline(always)]
unsafe fn line_of<T: Coded>(x: __m512i, out: *mut u8) -> *mut u8 {
    unsafe {
        if const { T::ENCODING.bits() == 8 } {
            _mm512_storeu_si512(out.cast(), _mm512_xor_si512(x, _mm512_set1_epi8(-128)));
            return out.add(64);
        }
        // Signed bytes from nibbles in one instruction: without minimum the fourth bit, inverted,
        // is the sign, so that 8 becomes 0.
        const SIGNED: i64 = 0x0102_0408_0808_0808;
        const UNSIGNED: i64 = 0x0102_0408_0000_0000;
        let (low, high) = if const { !T::ENCODING.has_minimum() } {
            let bits = |shift: i64| _mm512_set1_epi64(SIGNED << shift);
            (_mm512_gf2p8affine_epi64_epi8::<0xf8>(x, bits(0)), _mm512_gf2p8affine_epi64_epi8::<0xf8>(x, bits(4)))
        } else {
            let bits = |shift: i64| _mm512_set1_epi64(UNSIGNED << shift);
            (_mm512_gf2p8affine_epi64_epi8::<0>(x, bits(0)), _mm512_gf2p8affine_epi64_epi8::<0>(x, bits(4)))
        };
        _mm512_storeu_si512(out.cast(), low);
        _mm512_storeu_si512(out.add(64).cast(), high);
        out.add(128)
    }
}
