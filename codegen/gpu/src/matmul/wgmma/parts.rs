//! Output tiles of which several blocks have a part of the columns of the input each.
//!
//! Where a product has fewer output tiles than there are multiprocessors, the others would wait. So the
//! kernel's `k_parts` blocks share each tile: each stores its sums in the workspace as its threads hold
//! them, 16 bytes of a thread beside those of the next, and counts itself; the last of them adds all in
//! the order of the parts and finishes the tile. Which block is last changes no bit. In tiles of rows
//! beyond the counters, one block takes all parts of an output tile, one after the other, and the sums are the same.

use super::super::warpgroup;
use super::super::work::{self, Room};
use super::{Part, Product, STAGES_AT};
use crate::COUNTER_BYTES;
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, Ty, V, WARP};
use llmcc_ir::gpu::schedule::{self, PART_ROWS};

/// Sums of a thread that lie together: of 8 rows.
const TOGETHER: usize = 4;

/// The place of a thread that multiplies.
#[derive(Clone, Copy)]
pub(super) struct Multiplier {
    pub(super) warp: V,
    pub(super) lane: V,
}

impl Product<'_> {
    /// The output tile of part number `piece` of all, and which part of it that is.
    pub(super) fn part(&self, b: &mut Builder, piece: V) -> (V, Option<Part>) {
        let parts = self.plan.body.k_parts;
        let count = self.turns() / parts;
        let (tile, number) = (b.divc(piece, parts as i64), b.remc(piece, parts as i64));
        (tile, Some(Part { piece, first: b.mulc(number, count as i64), count }))
    }

    /// Writes a thread's sums of rows from `row` on to shared memory.
    pub(super) fn store(&self, b: &mut Builder, th: Multiplier, row: usize, sums: &[V]) {
        let at = b.shared_in("sums", STAGES_AT);
        let skip = row * schedule::sums_stride(&self.p.segments[0]) * 4;
        let at = b.atc(at, skip as i64);
        warpgroup::store_sums(b, self.p, at, (th.warp, th.lane), sums);
    }

    /// Runs `body` for every [`PART_ROWS`] rows of a tile, if the step has some of them.
    fn each_rows(&self, b: &mut Builder, body: impl Fn(&mut Builder, usize)) {
        for row in (0..self.rows()).step_by(PART_ROWS) {
            if row == 0 {
                body(b, row);
                continue;
            }
            let some = b.cmpc(Cmp::Sge, self.block.rows, row as i64 + 1);
            b.if_(some, |b| body(b, row));
        }
    }

    /// Where thread `tid` has its sums in a slot.
    fn slot(&self, b: &mut Builder, tid: V, number: V) -> V {
        let base = b.atc(self.args.workspace(), COUNTER_BYTES as i64);
        let number = b.zext(number, I64);
        let skip = b.mulc(number, work::slot_bytes(self.plan) as i64);
        let slot = b.at(base, skip);
        let own = b.shlc(tid, 4);
        b.at(slot, own)
    }

    /// Bytes from sums of a thread to those of the next 8 rows.
    fn apart(&self) -> usize {
        self.plan.schedule.warps * WARP * TOGETHER * size_of::<f32>()
    }

    /// Stores the block's part, number `piece` of all, and counts it; the last block of the tile adds all, and
    /// brings the sums to shared memory. Returns whether this is the last (for all threads).
    pub(super) fn join_parts(&self, b: &mut Builder, th: Multiplier, room: &Room, piece: V, sums: &[V]) -> V {
        let parts = self.plan.body.k_parts;
        let (tid, y) = (b.sreg("tid.x"), b.anew(self.block.y));
        let tid = b.anew(tid);
        let line = b.mulc(y, self.plan.schedule.blocks as i64);
        let (own, number) = (b.add(line, piece), b.remc(piece, parts as i64));
        let first = b.sub(own, number);
        let to = self.slot(b, tid, own);
        self.each_rows(b, |b, row| {
            for (i, four) in sums.chunks(TOGETHER).enumerate().skip(row / 8).take(PART_ROWS / 8) {
                let (v, to) = (b.pack(four), b.atc(to, (i * self.apart()) as i64));
                b.store(v, to);
            }
        });
        let one_thread = b.cmpc(Cmp::Eq, tid, 0);
        // A tile of rows beyond the counters is one block's, which takes the parts in their order.
        let counted = b.cmpc(Cmp::Ult, y, work::counted(self.plan));
        let counts = b.and(one_thread, counted);
        b.barrier();
        b.if_(one_thread, |b| b.store(number, room.flag));
        b.if_(counts, |b| {
            let (one, counter) = (b.i32(1), self.counter(b, first));
            let before = b.atomic_add(counter, one);
            b.store(before, room.flag);
        });
        b.barrier();
        let before = b.load(room.flag, I32);
        let last = b.cmpc(Cmp::Eq, before, parts as i64 - 1);
        b.if_(last, |b| {
            let slots: Vec<V> = (0..parts)
                .map(|part| {
                    let number = b.addc(first, part as i64);
                    self.slot(b, tid, number)
                })
                .collect();
            self.each_rows(b, |b, row| {
                let sums = self.add(b, &slots, row);
                self.store(b, th, row, &sums);
            });
            b.if_(counts, |b| {
                let (zero, counter) = (b.i32(0), self.counter(b, first));
                b.store(zero, counter);
            });
        });
        last
    }

    /// The counter of a tile: that of the slot of its first part.
    fn counter(&self, b: &mut Builder, first: V) -> V {
        let offset = b.shlc(first, 2);
        b.at(self.args.workspace(), offset)
    }

    /// The sums of a thread over all parts, of [`PART_ROWS`] rows from `row` on.
    fn add(&self, b: &mut Builder, slots: &[V], row: usize) -> Vec<V> {
        let four = Ty::Vec(TOGETHER as u8, Elem::F32);
        let mut sums: Vec<V> = vec![];
        for (part, slot) in slots.iter().enumerate() {
            let mut these = vec![];
            for i in 0..PART_ROWS / 8 {
                let at = b.atc(*slot, ((row / 8 + i) * self.apart()) as i64);
                let v = b.load(at, four);
                these.extend(b.unpack(v));
            }
            sums = if part == 0 { these } else { sums.iter().zip(&these).map(|(a, v)| b.fadd(*a, *v)).collect() };
        }
        debug_assert!(sums.iter().all(|v| v.ty == F32), "sums are f32");
        sums
    }
}
