//! From a stage of weights to A operands, with the columns of a unit in their order.
//!
//! In fragment order, lane `t` of a quad has columns `16t…16t+15` of a unit; step `s` of `wgmma`
//! has columns `16s + 2t`, `+1`, `+8`, `+9` in lane `t`, which are the pairs `t mod 2` of the steps
//! `t/2` and `2 + t/2` of the fragments of lane `s`.

use super::super::decode::{self, Fragments, Scaling};
use super::super::table;
use super::Product;
use crate::mlir::{Builder, Cmp, Elem, Ty, V, V4I32};
use llmcc_abi::layout::{by_fours, fragment_bits};
use llmcc_ir::gpu::schedule::{self, WGMMA_PIECE};

/// The facts by which a lane finds its weights.
pub(super) struct Reader {
    /// Offset of the warp's strip in a stage.
    strip: V,
    lane: V,
    /// Row of the quad.
    g: V,
    /// Lanes 1 and 3 of a quad, and 2 and 3.
    odd: V,
    high: V,
    /// Selectors of the bytes of the pairs that the lane keeps, and of those it gives to its
    /// neighbour (4-bit codes).
    keep: V,
    give: V,
}

impl Product<'_> {
    pub(super) fn reader(&self, b: &mut Builder, warp: V, lane: V) -> Reader {
        let strip = b.mulc(warp, self.strip_bytes() as i64);
        let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
        let (low, high) = (b.andc(t, 1), b.andc(t, 2));
        let (odd, high) = (b.cmpc(Cmp::Ne, low, 0), b.cmpc(Cmp::Ne, high, 0));
        // Bytes of pair 0 of two words, and of pair 1.
        let (first, second) = (b.i32(0x6240), b.i32(0x7351));
        let (keep, give) = (b.select(odd, second, first), b.select(odd, first, second));
        Reader { strip, lane, g, odd, high, keep, give }
    }

    /// The A operands of a warp in a stage.
    pub(super) fn operands(&self, b: &mut Builder, r: &Reader, stage: V) -> Vec<V> {
        let slot = self.weights_at(b, stage);
        let slot = b.at(slot, r.strip);
        if self.plan.is_fp8() {
            // A piece is the operand of a step, and the input lies in the same order.
            return self.pieces(b, r, slot);
        }
        let (half, format) = (decode::half(self.plan.elem), self.p.formats[0]);
        let e = format.packed_encoding();
        let words = match fragment_bits(&e) {
            4 => self.words4(b, r, slot),
            8 if !by_fours(&e) => {
                let words = self.pieces(b, r, slot);
                words8(b, r, &words)
            }
            // As other 8-bit codes, and back.
            8 => {
                let words = self.pieces(b, r, slot);
                let words = decode::exchange_halves(b, &words);
                let words = words8(b, r, &words);
                decode::exchange_halves(b, &words)
            }
            _ => self.words16(b, r, slot),
        };
        let mut a = decode::fragments(b, format, half, &words);
        if decode::scaling(format, false) == Scaling::Weights {
            self.scale(b, r, slot, &mut a, half);
        }
        a.concat()
    }

    /// Step `s` lies in one group, whatever the lane.
    fn scale(&self, b: &mut Builder, r: &Reader, slot: V, a: &mut Fragments, half: Elem) {
        let format = self.p.formats[0];
        let at = b.atc(slot, format.tile_bytes() as i64);
        let load =
            if schedule::has_f32_factors(format) { decode::load_group_factors } else { decode::load_group_scales };
        let scales = load(b, format, at, r.g);
        let steps = a.len() / scales.len();
        for (a, s) in a.chunks_mut(steps).zip(scales) {
            decode::scale_weights(b, format, a, s, half);
        }
    }

    /// 16-bit weights: two pieces of 8 bytes per step, from where they lie.
    fn words16(&self, b: &mut Builder, r: &Reader, slot: V) -> Vec<V> {
        // Row g of step s is in lane 4g + s; pair t mod 2 is half of its 16 bytes.
        let line = b.shlc(r.g, 6);
        let (zero, half, piece) = (b.i32(0), b.i32(8), b.i32(WGMMA_PIECE as i64));
        let (half, piece) = (b.select(r.odd, half, zero), b.select(r.high, piece, zero));
        let offset = b.add(line, half);
        let offset = b.add(offset, piece);
        let at = b.at(slot, offset);
        let mut out = vec![];
        for step in 0..4 {
            for second in 0..2 {
                let p = b.atc(at, 16 * step + second * 2 * WGMMA_PIECE as i64);
                let v = b.load(p, Ty::Vec(2, Elem::I32));
                out.extend(b.unpack(v));
            }
        }
        out
    }

    /// A lane's pieces of 16 bytes.
    fn pieces(&self, b: &mut Builder, r: &Reader, slot: V) -> Vec<V> {
        let own = b.shlc(r.lane, 4);
        let own = b.at(slot, own);
        let mut words = vec![];
        for piece in 0..(self.units() * self.p.formats[0].tile_bytes()) as i64 / 512 {
            let p = b.atc(own, 512 * piece);
            let v = b.load(p, V4I32);
            words.extend(b.unpack(v));
        }
        words
    }

    /// 4-bit codes: a pair of pairs is two bytes of two words.
    fn words4(&self, b: &mut Builder, r: &Reader, slot: V) -> Vec<V> {
        let w = self.pieces(b, r, slot);
        let [keep, give] =
            [r.keep, r.give].map(|which| [0, 1].map(|h| vec![table::permute_bytes(b, w[h], w[2 + h], which)]));
        exchange(b, r, keep, give)
    }
}

/// 8-bit codes: a pair is a word.
fn words8(b: &mut Builder, r: &Reader, w: &[V]) -> Vec<V> {
    let pick = |b: &mut Builder, h: usize, odd: bool| {
        // Pairs 0 and 1 of steps h and 2 + h.
        [h, 2 + h]
            .map(
                |s| if odd { b.select(r.odd, w[2 * s + 1], w[2 * s]) } else { b.select(r.odd, w[2 * s], w[2 * s + 1]) },
            )
            .to_vec()
    };
    let keep = [0, 1].map(|h| pick(b, h, true));
    let give = [0, 1].map(|h| pick(b, h, false));
    exchange(b, r, keep, give)
}

/// Transposes in a quad: every lane has something for each lane and gets something from each, in
/// their order. `keep[h]` is for lane `2h` in even lanes, `2h + 1` in odd ones; `give[h]` is for
/// the other of the two.
fn exchange(b: &mut Builder, r: &Reader, keep: [Vec<V>; 2], give: [Vec<V>; 2]) -> Vec<V> {
    let words = keep[0].len();
    // For lane 2h or 2h + 1, as the lane itself is even or odd: from the even and the odd lane of
    // its pair.
    let mut pairs = vec![];
    for h in 0..2 {
        for (k, g) in keep[h].iter().zip(&give[h]) {
            let got = b.shuffle_xor(*g, 1);
            pairs.push([b.select(r.odd, got, *k), b.select(r.odd, *k, got)]);
        }
    }
    let mut out = vec![vec![]; 4];
    for i in 0..words {
        for from in 0..2 {
            let (low, high) = (pairs[i][from], pairs[words + i][from]);
            let (own, other) = (b.select(r.high, high, low), b.select(r.high, low, high));
            let got = b.shuffle_xor(other, 2);
            out[from].push(b.select(r.high, got, own));
            out[2 + from].push(b.select(r.high, own, got));
        }
    }
    out.concat()
}
