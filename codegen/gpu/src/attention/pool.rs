//! Pages of the cache on their way to shared memory.

use super::Shape;
use super::tiles::{PageAt, Range, k_bytes, v_stride};
use crate::cx::Args;
use crate::mlir::{Builder, Cache, Cmp, I32, I64, V};

/// One KV head of one sequence.
pub(super) struct Pool<'a> {
    shape: &'a Shape,
    /// Row of the block table.
    table: V,
    /// The head's keys in page 0 of the pool.
    base: V,
}

impl<'a> Pool<'a> {
    pub(super) fn new(b: &mut Builder, shape: &'a Shape, args: Args<'a>, kv_head: V, seq: V) -> Pool<'a> {
        let table = args.table(b, seq);
        let offset = b.mulc(kv_head, k_bytes(shape.spec.head_dim) as i64);
        Pool { shape, table, base: b.at(args.operand(shape.kv), offset) }
    }

    /// Entry `number` (inside it) of the sequence's block table: a page of the pool.
    pub(super) fn entry(&self, b: &mut Builder, number: V) -> V {
        let offset = b.shlc(number, 2);
        let p = b.at(self.table, offset);
        b.load_const(p, I32)
    }

    /// Starts the copy of page `number` of the sequence, page `entry` of the pool, as far as it is this lane's: of every `32·warps` pieces of 16 bytes, number
    /// `piece`. Values of slots outside of `range` become zero.
    pub(super) fn copy(&self, b: &mut Builder, (number, entry): (V, V), to: PageAt, range: Range, (piece, warps): (V, usize)) {
        let d = self.shape.spec.head_dim as i64;
        let step = 32 * warps as i64;
        let wide = b.zext(entry, I64);
        let offset = b.mulc(wide, self.shape.page.bytes as i64);
        let from = b.at(self.base, offset);
        let offset = b.shlc(piece, 4);
        let from = b.at(from, offset);
        // Rows of keys are two pieces, which change places in every other four rows.
        let turn = b.shrc(piece, 3);
        let turn = b.andc(turn, 1);
        let place = b.xor(piece, turn);
        let place = b.shlc(place, 4);
        let k = b.at(to.k, place);
        let v_from = b.atc(from, self.shape.page.v as i64);
        let start = b.shlc(number, 4);
        let start = b.sub(start, range.first);
        let pieces = 2 * d;
        for i in (0..pieces).step_by(step as usize) {
            // The last pieces may not be for all lanes.
            let whole = i + step <= pieces;
            let copy = |b: &mut Builder| {
                let (k, from) = (b.atc(k, i * 16), b.atc(from, i * 16));
                b.cp_async(k, from, Cache::L2);
                let piece = b.addc(piece, i);
                let token = b.divc(piece, d / 8);
                let skip = b.mulc(token, d / 8);
                let column = b.sub(piece, skip);
                let offset = b.mulc(token, v_stride(d as usize) as i64);
                let column = b.shlc(column, 4);
                let offset = b.add(offset, column);
                let (to, from) = (b.at(to.v, offset), b.atc(v_from, i * 16));
                let slot = b.add(start, token);
                let seen = b.cmp(Cmp::Ult, slot, range.count);
                let (all, none) = (b.i32(16), b.i32(0));
                let bytes = b.select(seen, all, none);
                b.cp_async_some(to, from, bytes);
            };
            if whole {
                copy(b);
            } else {
                let inside = b.cmpc(Cmp::Ult, piece, pieces - i);
                b.if_(inside, copy);
            }
        }
    }
}
