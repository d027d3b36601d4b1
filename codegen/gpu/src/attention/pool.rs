//! Pages of the cache on their way to shared memory.

use super::codes::{self, SCALE_BYTES};
use super::shape::{Range, Shape};
use super::tiles::{PageAt, Tile};
use crate::cx::Args;
use crate::mlir::{Builder, Cache, Cmp, I32, I64, V, WARP};

/// One KV head of one sequence.
pub(super) struct Pool<'a> {
    shape: &'a Shape,
    tile: &'a Tile,
    /// Row of the block table.
    table: V,
    /// The head's keys in page 0 of the pool.
    base: V,
    /// Its scales of keys, of an int8 cache.
    scales: Option<V>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(
        b: &mut Builder,
        (shape, tile): (&'a Shape, &'a Tile),
        args: Args<'a>,
        kv_head: V,
        seq: V,
    ) -> Pool<'a> {
        let table = args.table(b, seq);
        let offset = b.mulc(kv_head, tile.k_bytes() as i64);
        let base = b.at(args.operand(shape.kv), offset);
        let scales = tile.int8.then(|| {
            let offset = b.mulc(kv_head, SCALE_BYTES as i64);
            let p = b.atc(args.operand(shape.kv), shape.page.k_scales as i64);
            b.at(p, offset)
        });
        Pool { shape, tile, table, base, scales }
    }

    /// Entry `number` (inside it) of the sequence's block table: a page of the pool.
    pub(super) fn entry(&self, b: &mut Builder, number: V) -> V {
        let offset = b.shlc(number, 2);
        let p = b.at(self.table, offset);
        b.load_const(p, I32)
    }

    /// Starts the copy of page `number` of the sequence, page `entry` of the pool, as far as it is
    /// this lane's: of every `32·warps` pieces of 16 bytes, number `piece`. Values of slots outside
    /// of `range` become zero.
    pub(super) fn copy(
        &self,
        b: &mut Builder,
        (number, entry): (V, V),
        to: PageAt,
        range: Range,
        (piece, warps): (V, usize),
    ) {
        let step = (WARP * warps) as i64;
        let wide = b.zext(entry, I64);
        let page = b.mulc(wide, self.shape.page.bytes as i64);
        if let Some(scales) = self.scales {
            self.copy_scales(b, scales, page, to, piece);
        }
        let from = b.at(self.base, page);
        let offset = b.shlc(piece, 4);
        let from = b.at(from, offset);
        let place = self.key_place(b, piece);
        let k = b.at(to.k, place);
        let v_from = b.atc(from, self.shape.page.v as i64);
        let start = b.shlc(number, 4);
        let start = b.sub(start, range.first);
        let pieces = self.tile.k_bytes() as i64 / 16;
        // Where values go would else be computed once, before the loop over the pages: registers
        // that large heads need.
        let piece = if self.tile.crowded() || self.tile.turned() {
            b.asm_volatile(I32, "mov.b32 $0, $1;", "=r,r", &[piece])
        } else {
            piece
        };
        for i in (0..pieces).step_by(step as usize) {
            // The last pieces may not be for all lanes.
            let whole = i + step <= pieces;
            let copy = |b: &mut Builder| {
                let (k, from) = (b.atc(k, i * 16), b.atc(from, i * 16));
                b.cp_async(k, from, Cache::L2);
                let piece = b.addc(piece, i);
                self.copy_values(b, (to.v, piece), (v_from, i), (start, range.count));
            };
            if whole {
                copy(b);
            } else {
                let inside = b.cmpc(Cmp::Ult, piece, pieces - i);
                b.if_(inside, copy);
            }
        }
    }

    /// Where piece `piece` of the keys goes: rows of 16 bits are two pieces, which change places in
    /// every other four rows.
    fn key_place(&self, b: &mut Builder, piece: V) -> V {
        if self.tile.int8 {
            return b.shlc(piece, 4);
        }
        let turn = b.shrc(piece, 3);
        let turn = b.andc(turn, 1);
        let place = b.xor(piece, turn);
        b.shlc(place, 4)
    }

    /// Piece `piece` of the values, `i` pieces after `from`; slot 0 of the page is position `start`
    /// of `count` that are seen.
    fn copy_values(&self, b: &mut Builder, (to, piece): (V, V), (from, i): (V, i64), (start, count): (V, V)) {
        let each = (self.tile.d * self.tile.bytes() / 16) as i64;
        let token = b.divc(piece, each);
        let skip = b.mulc(token, each);
        let column = b.sub(piece, skip);
        let row = if self.tile.int8 { codes::place(b, token) } else { token };
        let offset = b.mulc(row, self.tile.v_stride() as i64);
        let column = b.shlc(column, 4);
        let offset = b.add(offset, column);
        let (to, from) = (b.at(to, offset), b.atc(from, i * 16));
        if self.tile.int8 {
            // Any code is a number: unseen slots have weight zero.
            return b.cp_async(to, from, Cache::L2);
        }
        let slot = b.add(start, token);
        let seen = b.cmp(Cmp::Ult, slot, count);
        let (all, none) = (b.i32(16), b.i32(0));
        let bytes = b.select(seen, all, none);
        b.cp_async_some(to, from, bytes);
    }

    /// Scales of keys and values: eight pieces, one each for the first lanes.
    fn copy_scales(&self, b: &mut Builder, scales: V, page: V, to: PageAt, piece: V) {
        let mine = b.cmpc(Cmp::Ult, piece, 2 * SCALE_BYTES as i64 / 16);
        b.if_(mine, |b| {
            let from = b.at(scales, page);
            let offset = b.shlc(piece, 4);
            let (from, to) = (b.at(from, offset), b.at(to.scales, offset));
            // Scales of values are further away in the pool.
            let value = b.cmpc(Cmp::Uge, piece, SCALE_BYTES as i64 / 16);
            let apart = (self.shape.page.v_scales - self.shape.page.k_scales - SCALE_BYTES) as i64;
            let (zero, skip) = (b.i32(0), b.i32(apart));
            let skip = b.select(value, skip, zero);
            let from = b.at(from, skip);
            b.cp_async(to, from, Cache::L2);
        });
    }
}
