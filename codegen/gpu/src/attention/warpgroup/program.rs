//! What the kernel does to shared memory, barriers and registers, as data: the skeleton that [`verify_program`] executes, in the order in which the emitter places things.

use super::{LINE, PRODUCERS, Plan, REGISTERS, TILE, WARPS};
use llmcc_ir::diag::Diagnostic;
use llmcc_ir::gpu::layout::Swizzle;
use llmcc_ir::gpu::program::{
    Arrivals, Atom, BarrierId, Buffer, BufferId, Condition, Index, LoopId, Op, Pattern, Phase, Program, Recorder, Scope, Slot, Source,
    Sync, Trips,
};
use llmcc_ir::gpu::verify::verify_program;

/// Numbers of the roles.
const BRING: usize = 0;
const MULTIPLY: usize = 1;

/// A ring with its `mbarrier`s.
#[derive(Clone, Copy)]
struct Ring {
    buffer: BufferId,
    there: BarrierId,
    free: BarrierId,
}

struct Rings {
    keys: Ring,
    values: Ring,
    walk: LoopId,
    tile: LoopId,
}

/// What the verifier finds in the kernel of a plan; a finding is a bug of the emitter.
pub(super) fn check(name: &str, plan: &Plan) -> Vec<Diagnostic> {
    verify_program(&program(name, plan))
}

/// The skeleton.
pub(super) fn program(name: &str, plan: &Plan) -> Program {
    let mut r = Recorder::new(name, (WARPS + PRODUCERS) as u32);
    let stages = plan.stages as u32;
    let queries = r.buffer(Buffer {
        name: "queries".into(),
        bytes: 2 * plan.query_bytes() as u32,
        stages: 1,
        scope: Scope::Block,
        conflict_free: true,
    });
    let ring = |r: &mut Recorder, name: &str| {
        let bytes = plan.tile_bytes() as u32;
        Ring {
            buffer: r.buffer(Buffer { name: name.into(), bytes, stages, scope: Scope::Block, conflict_free: false }),
            there: r.barrier(format!("{name} there"), stages, Arrivals::Role(BRING)),
            free: r.barrier(format!("{name} free"), stages, Arrivals::Role(MULTIPLY)),
        }
    };
    let (keys, values) = (ring(&mut r, "keys"), ring(&mut r, "values"));
    let rings = Rings { keys, values, walk: r.declare_loop("walks"), tile: r.declare_loop("tiles") };
    [keys.there, values.there, keys.free, values.free].into_iter().for_each(|b| r.op(Op::BarrierInit(b)));
    r.op(Op::FenceInit);
    r.begin_roles();
    r.begin_role("bring", PRODUCERS as u32);
    r.op(Op::Note("the first warp lists the walks".into()));
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::Registers(REGISTERS.0 as u32));
    r.begin_loop(rings.walk, Trips::Fixed(2));
    bring(&mut r, &rings, plan);
    r.end_loop();
    r.end_role();
    r.begin_role("multiply", WARPS as u32);
    multiply(&mut r, &rings, plan, queries);
    r.end_role();
    r.end_roles();
    // Loops and branches are closed where they are opened.
    r.finish().unwrap_or_default()
}

fn at(buffer: BufferId, stage: Index) -> Slot {
    Slot { buffer, stage }
}

/// Keys of a tile, then values of the tile before; what was started `late` turns ago is announced first.
fn bring(r: &mut Recorder, rings: &Rings, plan: &Plan) {
    let late = plan.late() as i64;
    let announce = |r: &mut Recorder, ring: Ring, turn: Index, tile: Index, late: i64| {
        r.begin_if(Condition::AtLeast(turn, late));
        r.op(Op::CpWait(2 * plan.late() as u32 - 1));
        r.op(Op::FenceAsync);
        r.op(Op::Barrier(Sync::Warp));
        r.op(Op::Arrive(Phase { barrier: ring.there, index: tile }));
        r.end_if();
    };
    let copy = |r: &mut Recorder, ring: Ring, tile: Index| {
        r.op(Op::WaitEmpty(Phase { barrier: ring.free, index: tile }));
        r.op(Op::CpAsync(at(ring.buffer, tile)));
    };
    let (turn, total) = (|plus| Index::turn(rings.tile, plus), |plus| Index::total(rings.tile, plus));
    r.begin_loop(rings.tile, Trips::Some);
    announce(r, rings.keys, turn(0), total(-late), late);
    copy(r, rings.keys, total(0));
    r.op(Op::CpCommit);
    announce(r, rings.values, turn(0), total(-late - 1), late + 1);
    r.begin_if(Condition::AtLeast(turn(0), 1));
    copy(r, rings.values, total(-1));
    r.end_if();
    r.op(Op::CpCommit);
    r.end_loop();
    // The turns after the last tile.
    for after in 0..=late {
        if after < late {
            announce(r, rings.keys, turn(after), total(after - late), late);
        }
        r.op(Op::CpCommit);
        announce(r, rings.values, turn(after), total(after - late - 1), late + 1);
        if after == 0 {
            copy(r, rings.values, total(-1));
        }
        r.op(Op::CpCommit);
    }
}

fn multiply(r: &mut Recorder, rings: &Rings, plan: &Plan, queries: BufferId) {
    let (scores, words, sums) = (r.registers("scores"), r.registers("probabilities"), r.registers("weighted values"));
    let queries = at(queries, Index::at(0));
    // Eight lanes write the pieces of one or two lines.
    let each = plan.d as u32 / 8;
    let piece = |l: u32| l / each * LINE as u32 + l % each % 8 * 16 + l % each / 8 * 64 * LINE as u32;
    let pattern = Pattern { lanes: (0..32).map(|l| Swizzle::B128.apply(piece(l).into()) as u32).collect(), width: 16 };
    // Heads whose lines are no multiple of eight pieces meet in the banks, once per block.
    r.op(Op::Write { slot: queries, pattern: plan.d.is_multiple_of(64).then_some(pattern) });
    r.op(Op::FenceAsync);
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::Registers(REGISTERS.1 as u32));
    let index = |plus| Index::total(rings.tile, plus);
    let weigh = |r: &mut Recorder| {
        r.op(Op::WgmmaFence);
        r.op(Op::Wgmma(Atom::M64K16(plan.d as u32), sums, Source::Registers(words), at(rings.values.buffer, index(-1))));
        r.op(Op::WgmmaCommit);
    };
    let weighed = |r: &mut Recorder| {
        r.op(Op::WgmmaWait(0));
        r.op(Op::Arrive(Phase { barrier: rings.values.free, index: index(-1) }));
    };
    r.begin_loop(rings.walk, Trips::Fixed(2));
    r.begin_loop(rings.tile, Trips::Some);
    r.op(Op::WaitFull(Phase { barrier: rings.keys.there, index: index(0) }));
    r.op(Op::WgmmaFence);
    r.op(Op::Wgmma(Atom::M64K16(TILE as u32), scores, Source::Shared(queries), at(rings.keys.buffer, index(0))));
    r.op(Op::WgmmaCommit);
    let later = || Condition::AtLeast(Index::turn(rings.tile, 0), 1);
    r.begin_if(later());
    weigh(r);
    r.op(Op::WgmmaWait(1));
    r.begin_else();
    r.op(Op::WgmmaWait(0));
    r.end_if();
    r.op(Op::Arrive(Phase { barrier: rings.keys.free, index: index(0) }));
    r.op(Op::RegisterRead(scores));
    r.op(Op::WaitFull(Phase { barrier: rings.values.there, index: index(0) }));
    r.begin_if(later());
    weighed(r);
    r.end_if();
    r.op(Op::RegisterWrite(sums));
    r.op(Op::RegisterWrite(words));
    r.end_loop();
    weigh(r);
    weighed(r);
    r.end_loop();
    r.op(Op::RegisterRead(sums));
    results(r, rings, plan);
}

/// The results take the place of the stages, a warp's rows for itself.
fn results(r: &mut Recorder, rings: &Rings, plan: &Plan) {
    let bytes = (16 * (plan.d + 8) * 4) as u32;
    let own = r.buffer(Buffer { name: "results".into(), bytes, stages: 1, scope: Scope::Warp, conflict_free: false });
    r.op(Op::Barrier(Sync::Role));
    for ring in [rings.keys, rings.values] {
        (0..plan.stages as i64).for_each(|i| r.op(Op::Write { slot: at(ring.buffer, Index::at(i)), pattern: None }));
    }
    r.op(Op::Write { slot: at(own, Index::at(0)), pattern: None });
    r.op(Op::Barrier(Sync::Warp));
    r.op(Op::Read { slot: at(own, Index::at(0)), pattern: None, own: false });
}

#[cfg(test)]
mod tests {
    use super::{Plan, check, program};
    use crate::left_out::unnoticed;
    use crate::mlir::Elem;

    fn plans() -> impl Iterator<Item = Plan> {
        (1..=8).flat_map(|i| [2, 4].map(|stages| Plan { elem: Elem::Bf16, d: 16 * i, tokens: 32, stages }))
    }

    #[test]
    fn skeletons_are_in_order() {
        for plan in plans() {
            let found = check("k", &plan);
            assert!(found.is_empty(), "heads of {}, {} stages: {found:?}", plan.d, plan.stages);
        }
    }

    /// Whatever orders something in the pipeline, the verifier misses it when it is left out.
    #[test]
    fn nothing_can_be_left_out() {
        for plan in plans().filter(|p| p.d == 64) {
            let missed = unnoticed(&program("k", &plan));
            // Nothing is copied in bulk; and nothing happens to the registers between a turn's two products.
            let known = missed.len() == 2 && missed[0].ends_with(" FenceInit") && missed[1].ends_with(" WgmmaFence");
            assert!(known, "{} stages: {}\n{}", plan.stages, missed.join("\n"), program("k", &plan));
        }
    }
}
