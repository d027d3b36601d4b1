//! The warps that multiply.

use super::super::decode;
use super::super::warpgroup::{self, Step, Sums};
use super::super::work::{self, Room, Share};
use super::operand::Reader;
use super::parts::Multiplier;
use super::{Event, Part, Product, STAGES_AT};
use crate::mlir::{Builder, Cmp, Elem, F32, V};
use crate::ring::Turn;
use llmcc_ir::gpu::program::Atom;

/// A thread.
struct Thread {
    place: Multiplier,
    reader: Reader,
}

/// Whether there was a unit before in the same output tile.
#[derive(Clone, Copy)]
enum Before {
    Never,
    Always,
    If(V),
}

impl Product<'_> {
    pub(super) fn consume(&self, b: &mut Builder, at: &mut Turn) {
        let tid = b.sreg("tid.x");
        let thread = |b: &mut Builder, tid: V| {
            let (warp, lane) = b.warp_and_lane(tid);
            Thread { place: Multiplier { warp, lane }, reader: self.reader(b, warp, lane) }
        };
        // Joining parts takes the registers that a thread's place would keep for the next one.
        let kept = (!self.p.phase.cut).then(|| thread(b, tid));
        let share = work::share(b, self.plan, self.p, &self.block);
        self.each_tile(b, (share, at), |b, tile, part, turn| match &kept {
            Some(th) => self.tile(b, (th, share), (tile, part), turn),
            None => {
                let tid = b.anew(tid);
                let th = thread(b, tid);
                self.tile(b, (&th, share), (tile, part), turn)
            }
        });
    }

    /// Two units per turn of the loop, so that each has its own registers for weights.
    fn tile(
        &self,
        b: &mut Builder,
        (th, share): (&Thread, Share),
        (tile, part): (V, Option<Part>),
        turn: Turn,
    ) -> Turn {
        let all = self.turns();
        // The last stages are apart: nothing is decoded after the last.
        let tail = if all.is_multiple_of(2) { 2 } else { 1 };
        let (zero, one) = (b.i32(0), b.i32(1));
        // A part has an even number of stages, at least four.
        let turns = b.i32((part.map_or(all - tail, |part| part.count - 2) / 2) as i64);
        // Hidden, as where units are brought.
        let turns = if part.is_some() { b.anew(turns) } else { turns };
        let nothing = b.f32(0.0);
        let mut init = turn.values().to_vec();
        init.extend(self.decode(b, th, turn));
        init.extend(vec![nothing; self.accumulators()]);
        let out = b.for_((zero, turns, one), &init, |b, i, carried| {
            let (turn, a, sums) = (Turn::of(carried), &carried[2..18], &carried[18..]);
            let before = b.cmpc(Cmp::Ne, i, 0);
            let (turn, a, sums) = self.unit(b, th, turn, a, sums, Before::If(before));
            let (turn, a, sums) = self.unit(b, th, turn, &a, &sums, Before::Always);
            [turn.values().to_vec(), a, sums].concat()
        });
        let (mut turn, mut a, mut sums) = (Turn::of(&out), out[2..18].to_vec(), out[18..].to_vec());
        let looped = if all > 2 { Before::Always } else { Before::Never };
        if tail == 2 {
            (turn, a, sums) = self.unit(b, th, turn, &a, &sums, looped);
        }
        let started = self.start(b, turn, &a, &sums);
        let sums = if self.promotes() {
            self.promote(b, &a, &started, &sums)
        } else {
            self.release(b, th, turn, if tail == 2 { Before::Always } else { looped });
            b.wait_products(0, &started, &a)
        };
        let next = turn.next(b, self.map.stages);
        self.free(b, th, turn.stage, Before::Always);
        // Both groups have read the stages: sums take their place.
        b.barrier();
        self.finish(b, (th, share), (tile, part), &sums[..self.rows() / 2]);
        // Earlier stores there come before the copies that follow.
        b.fence_proxy_async();
        b.barrier_all();
        next
    }

    /// Makes the results of an output tile of the sums.
    fn finish(&self, b: &mut Builder, (th, share): (&Thread, Share), (tile, part): (V, Option<Part>), sums: &[V]) {
        if let Some(part) = part {
            let room = self.room(b);
            // Nothing but this number is kept beside the sums.
            let piece = b.anew(part.piece);
            let tile = b.divc(piece, self.plan.body.k_parts as i64);
            let mine = self.join_parts(b, th.place, &room, piece, sums);
            return b.if_(mine, |b| {
                b.barrier();
                work::result(b, self.args, self.plan, self.p, &self.block, &room, tile);
            });
        }
        self.store(b, th.place, 0, sums);
        let room = self.room(b);
        work::finish(b, self.args, self.plan, self.p, (&self.block, share, &room), tile, 1);
    }

    /// The room in shared memory where results are made.
    fn room(&self, b: &mut Builder) -> Room {
        Room {
            sums: b.shared_in("sums", STAGES_AT),
            spare: b.shared_in("spare", self.map.spare),
            flag: b.shared_in("flag", STAGES_AT - 16),
        }
    }

    /// Registers of a lane for sums: where a stage's products are added to others, both sets, first
    /// the finished ones.
    fn accumulators(&self) -> usize {
        self.rows() / 2 * if self.promotes() { 2 } else { 1 }
    }

    /// Starts the products of a unit, frees the stage of the one before (if there is one:
    /// `before`), and decodes the weights of the next. Products that are added to other sums are
    /// waited for, and the stage is their own.
    fn unit(
        &self,
        b: &mut Builder,
        th: &Thread,
        turn: Turn,
        a: &[V],
        sums: &[V],
        before: Before,
    ) -> (Turn, Vec<V>, Vec<V>) {
        let started = self.start(b, turn, a, sums);
        if !self.promotes() {
            self.release(b, th, turn, before);
        }
        let next = turn.next(b, self.map.stages);
        let words = self.decode(b, th, next);
        if !self.promotes() {
            return (next, words, started);
        }
        let sums = self.promote(b, a, &started, sums);
        self.free(b, th, turn.stage, Before::Always);
        (next, words, sums)
    }

    /// Waits for the products of a stage, which started afresh, and adds them to the sums, in f32
    /// as it is. Returns the sums, and then the registers of the products.
    fn promote(&self, b: &mut Builder, a: &[V], started: &[V], sums: &[V]) -> Vec<V> {
        let fresh = b.wait_products(0, started, a);
        // Not `fadd`: LLVM would move it behind the start of the next products, whose registers
        // would then be a third set.
        let add = |(s, f): (&V, &V)| b.asm_volatile(F32, "add.rn.f32 $0, $1, $2;", "=f,0,f", &[*s, *f]);
        let sums: Vec<V> = sums.iter().zip(&fresh).map(add).collect();
        [sums, fresh].concat()
    }

    /// Starts the products of a stage, once its input is there; returns their accumulators.
    fn start(&self, b: &mut Builder, turn: Turn, a: &[V], sums: &[V]) -> Vec<V> {
        let there = Event::Input.barrier(b, self.map, turn.stage);
        b.mbarrier_wait(&there, turn.parity);
        let sums = if self.promotes() { Sums::Fresh(&sums[self.rows() / 2..]) } else { Sums::Onto(sums) };
        self.multiply(b, turn.stage, a, sums)
    }

    /// Waits for the weights of a unit and decodes them.
    fn decode(&self, b: &mut Builder, th: &Thread, turn: Turn) -> Vec<V> {
        let there = Event::Weights.barrier(b, self.map, turn.stage);
        b.mbarrier_wait(&there, turn.parity);
        self.operands(b, &th.reader, turn.stage)
    }

    /// Waits for the products of the unit before that of `turn`, and frees its stage.
    fn release(&self, b: &mut Builder, th: &Thread, turn: Turn, before: Before) {
        if matches!(before, Before::Never) {
            return;
        }
        b.wait_products(1, &[], &[]);
        let first = b.cmpc(Cmp::Eq, turn.stage, 0);
        let (last, down) = (b.i32(self.map.stages as i64 - 1), b.addc(turn.stage, -1));
        let stage = b.select(first, last, down);
        self.free(b, th, stage, before);
    }

    /// A lane of the warp arrives for it.
    fn free(&self, b: &mut Builder, th: &Thread, stage: V, when: Before) {
        let mut one = b.cmpc(Cmp::Eq, th.place.lane, 0);
        if let Before::If(when) = when {
            one = b.and(one, when);
        }
        b.if_(one, |b| {
            let free = Event::Free.barrier(b, self.map, stage);
            b.mbarrier_arrive(&free);
        });
    }

    /// Starts the products of a stage.
    fn multiply(&self, b: &mut Builder, stage: V, a: &[V], sums: Sums<'_>) -> Vec<V> {
        let input = self.input_at(b, stage);
        // Steps of 32 bytes of a line.
        let n = self.rows() as u32;
        let (atom, shape, order) = if self.plan.is_fp8() {
            (Atom::M64K32(n), "k32.f32.e4m3.e4m3", "")
        } else if decode::half(self.plan.elem) == Elem::Bf16 {
            (Atom::M64K16(n), "k16.f32.bf16.bf16", ", 0")
        } else {
            (Atom::M64K16(n), "k16.f32.f16.f16", ", 0")
        };
        warpgroup::start(b, &Step { atom, shape, order }, input, a, sums)
    }
}
