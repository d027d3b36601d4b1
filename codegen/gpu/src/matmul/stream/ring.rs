//! The ring of units that a warp of a stream has in shared memory.
//!
//! With copies in bulk (sm90) each slot has an `mbarrier` that counts the bytes of a unit, which one
//! lane announces and starts; how many stages there are depends on the rows of input that take the
//! end of the rings' place. Without, each lane copies the 16-byte pieces of a unit that it will read
//! itself (`cp.async`), in as many groups as the ring has stages.
//!
//! Slot `s` of warp `w` is number `s · warps + w`.

use super::{Stream, Thread};
use crate::matmul::input;
use crate::matmul::work;
use crate::matmul::{PhaseCx, Plan};
use crate::mlir::{Builder, Cmp, Mbarrier, V};
use crate::ring::{Ring, Turn, initialize_by_warps};
use llmcc_ir::gpu::schedule::{Input, MOST_STAGES};

/// Bytes of a stage of a phase: a unit of every warp.
fn stage_bytes(plan: &Plan<'_>, p: &PhaseCx<'_>) -> usize {
    plan.schedule.warps * p.unit_bytes()
}

/// Bytes of the rings and of the rows of input at their end.
pub(super) fn room(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> usize {
    let rings = work::most(phases, |p| p.phase.stages * stage_bytes(plan, p));
    plan.schedule.room.max(rings + if plan.schedule.bulk { 0 } else { input::bytes(plan) })
}

/// Stages of a phase where the fewest rows of input are staged.
pub(super) fn most_stages(plan: &Plan<'_>, p: &PhaseCx<'_>) -> usize {
    if !plan.schedule.bulk {
        return p.phase.stages;
    }
    let least = match plan.schedule.input {
        Input::Whole => input::stride(plan),
        _ => 0,
    };
    ((plan.schedule.room - least) / stage_bytes(plan, p)).min(MOST_STAGES)
}

/// Slots of all warps.
fn slots(plan: &Plan<'_>, p: &PhaseCx<'_>) -> usize {
    plan.schedule.warps * most_stages(plan, p)
}

/// Bytes of a phase's `mbarrier`s.
pub(super) fn barrier_bytes(plan: &Plan<'_>, p: &PhaseCx<'_>) -> usize {
    if plan.schedule.bulk { 8 * slots(plan, p) } else { 0 }
}

/// Initializes the `mbarrier`s of all phases, which begin at `places`.
pub(super) fn initialize(b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>], places: &[usize]) {
    if plan.schedule.bulk {
        let of = |(p, at): (&PhaseCx<'_>, &usize)| Ring { at: *at, stages: slots(plan, p) };
        let rings: Vec<Ring> = phases.iter().zip(places).map(of).collect();
        initialize_by_warps(b, &rings, "unit there", plan.schedule.warps);
    }
}

impl Stream<'_> {
    fn is_bulk(&self) -> bool {
        self.plan.schedule.bulk
    }

    /// Stages of the ring for the rows at hand, an `i32`; `fits` where they may be staged or not.
    pub(super) fn stages(&self, b: &mut Builder, fits: Option<V>) -> V {
        if !self.is_bulk() {
            return b.i32(self.p.phase.stages as i64);
        }
        let staged = match self.plan.schedule.input {
            Input::Whole => self.block.rows,
            Input::Fitting(_) => {
                let zero = b.i32(0);
                fits.map_or(zero, |fits| b.select(fits, self.block.rows, zero))
            }
            Input::Global | Input::Tiles => b.i32(0),
        };
        let bytes = b.mulc(staged, input::stride(self.plan) as i64);
        let room = b.i32(self.plan.schedule.room as i64);
        let left = b.sub(room, bytes);
        let stages = b.divc(left, stage_bytes(self.plan, self.p) as i64);
        let most = b.i32(MOST_STAGES as i64);
        b.min(stages, most)
    }

    /// Address of a stage of the warp's ring.
    pub(super) fn slot(&self, b: &mut Builder, th: &Thread<'_>, stage: V) -> V {
        let number = self.number(b, th, stage);
        let rings = b.shared_in(&work::ring_name(self.p), self.map.rings);
        let skip = b.mulc(number, self.p.unit_bytes() as i64);
        b.at(rings, skip)
    }

    fn number(&self, b: &mut Builder, th: &Thread<'_>, stage: V) -> V {
        let line = b.mulc(stage, self.plan.schedule.warps as i64);
        b.add(line, th.warp)
    }

    fn barrier(&self, b: &mut Builder, th: &Thread<'_>, stage: V) -> Mbarrier {
        let number = self.number(b, th, stage);
        Ring { at: self.barriers, stages: slots(self.plan, self.p) }.barrier(b, 0, number)
    }

    /// Starts copying the first units from `q0` on, as many as there are stages.
    pub(super) fn fill(&self, b: &mut Builder, th: &Thread<'_>, q0: V) {
        let parts = self.p.phase.parts as i64;
        if self.is_bulk() {
            // A lane each.
            let some = b.cmp(Cmp::Slt, th.lane, th.stages);
            let skip = b.mulc(th.lane, parts);
            let q = b.add(q0, skip);
            return self.fetch_in_bulk(b, th, q, th.lane, some);
        }
        for i in 0..self.p.phase.stages as i64 {
            let (q, stage) = (b.addc(q0, i * parts), b.i32(i));
            self.fetch_by_lanes(b, th, q, stage);
        }
    }

    /// Starts copying unit `q` to a stage whose unit all lanes have read.
    pub(super) fn refill(&self, b: &mut Builder, th: &Thread<'_>, q: V, stage: V) {
        if self.is_bulk() {
            let first = b.cmpc(Cmp::Eq, th.lane, 0);
            self.fetch_in_bulk(b, th, q, stage, first);
        } else {
            self.fetch_by_lanes(b, th, q, stage);
        }
    }

    /// Waits for the unit of a turn.
    pub(super) fn await_unit(&self, b: &mut Builder, th: &Thread<'_>, turn: Turn) {
        if self.is_bulk() {
            let there = self.barrier(b, th, turn.stage);
            return b.mbarrier_wait(&there, turn.parity);
        }
        b.cp_wait(self.p.phase.stages - 1);
        // Scales were copied by other lanes.
        b.sync_warp();
    }

    /// Output tile of unit `q`, and the unit's number in it.
    fn place(&self, b: &mut Builder, q: V) -> (V, V) {
        let tile = b.divc(q, self.plan.kt() as i64);
        let skip = b.mulc(tile, self.plan.kt() as i64);
        (tile, b.sub(q, skip))
    }

    fn fetch_in_bulk(&self, b: &mut Builder, th: &Thread<'_>, q: V, stage: V, who: V) {
        let inside = b.cmp(Cmp::Slt, q, th.share.hi);
        let both = b.and(inside, who);
        b.if_(both, |b| {
            let at = self.place(b, q);
            let there = self.barrier(b, th, stage);
            let slot = self.slot(b, th, stage);
            b.mbarrier_expect(&there, self.p.unit_bytes());
            th.weights.fetch_in_bulk(b, at, slot, &there);
        });
    }

    /// Always one group of copies, empty where the unit is not one of this block's.
    fn fetch_by_lanes(&self, b: &mut Builder, th: &Thread<'_>, q: V, stage: V) {
        let inside = b.cmp(Cmp::Slt, q, th.share.hi);
        b.if_(inside, |b| {
            let (tile, kt) = self.place(b, q);
            let slot = self.slot(b, th, stage);
            th.weights.fetch(b, tile, kt, slot);
        });
        b.cp_commit();
    }
}
