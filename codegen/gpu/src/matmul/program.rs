//! What the kernels do to shared memory, as data: the skeleton that [`verify_program`] executes.
//!
//! Copies, waits, barriers, fences and products in the order in which the emitters place them. A block's units are one loop here; that a unit ends an output tile
//! is a fact of a run, so that both orders of the epilogue and the next unit are tried. Sums that take the place of stages are a buffer of their own, behind
//! the wait and the barrier that make room for them.

use super::{PhaseCx, Plan, input};
use llmcc_ir::diag::Diagnostic;
use llmcc_ir::gpu::program::{
    Arrivals, Atom, BarrierId, Buffer, BufferId, Condition, Index, LoopId, Op, Pattern, Phase, Program, Recorder, RegisterId, Scope, Slot,
    Source, Sync, Trips,
};
use llmcc_ir::gpu::schedule::{self, Input, Variant};
use llmcc_ir::gpu::verify::verify_program;
use llmcc_ir::kernel::RowElem;

/// What the verifier finds in the kernel of a plan; a finding is a bug of the emitter.
pub fn check(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Vec<Diagnostic> {
    // Whether a block's input is in shared memory.
    let staged = match plan.schedule.input {
        Input::Whole => &[true][..],
        Input::Fitting(_) => &[true, false],
        Input::Global | Input::Tiles => &[false],
    };
    phases.iter().flat_map(|p| staged.iter().flat_map(move |staged| verify_program(&program(plan, p, *staged)))).collect()
}

/// The skeleton of a phase; `staged`: in blocks whose input is in shared memory.
pub fn program(plan: &Plan<'_>, p: &PhaseCx<'_>, staged: bool) -> Program {
    let mut r = Recorder::new(&plan.cx.kernel.name, (plan.schedule.warps + plan.schedule.producers) as u32);
    match plan.schedule.variant {
        Variant::Gemv | Variant::Fma => stream(&mut r, plan, p, staged),
        Variant::Mma => tiles(&mut r, plan, p),
        Variant::Wgmma | Variant::WgmmaFp8 => wgmma(&mut r, plan, p),
    }
    // Loops and branches are closed where they are opened.
    r.finish().unwrap_or_default()
}

fn slot(buffer: BufferId, stage: Index) -> Slot {
    Slot { buffer, stage }
}

fn pattern(width: u32, of: impl Fn(u32) -> u32) -> Option<Pattern> {
    Some(Pattern { lanes: (0..32).map(of).collect(), width })
}

/// A warp's ring of weights.
fn ring(r: &mut Recorder, p: &PhaseCx<'_>, bytes: usize) -> BufferId {
    let stages = p.phase.stages as u32;
    r.buffer(Buffer { name: "ring".into(), bytes: bytes as u32, stages, scope: Scope::Warp, conflict_free: true })
}

fn has_scales(p: &PhaseCx<'_>) -> bool {
    p.formats.iter().any(|f| schedule::unit_scales(*f) > 0)
}

/// Copies ahead of a loop of units.
fn start(r: &mut Recorder, k: LoopId, copies: &[BufferId], stages: i64) {
    for i in 0..stages - 1 {
        ahead(r, k, copies, Index::at(i));
    }
}

/// Copies of one unit, and their group.
fn ahead(r: &mut Recorder, k: LoopId, copies: &[BufferId], index: Index) {
    r.begin_if(Condition::Within(index, k));
    copies.iter().for_each(|c| r.op(Op::CpAsync(slot(*c, index))));
    r.end_if();
    r.op(Op::CpCommit);
}

/// A lane's pieces of a unit, and the scales that other lanes copied.
fn read_weights(r: &mut Recorder, p: &PhaseCx<'_>, ring: BufferId, index: Index) {
    r.op(Op::Read { slot: slot(ring, index), pattern: pattern(16, |l| 16 * l), own: !has_scales(p) });
}

/// Sums to shared memory and what becomes of them.
fn finish(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>, acc: RegisterId, sums: BufferId) {
    r.op(Op::RegisterRead(acc));
    let stride = schedule::sums_stride(&p.segments[0]) as u32;
    // Lane (g, t) has column g of rows 2t and 2t + 1; with f32 arithmetic, one lane of a quad has all rows.
    let lanes = match plan.schedule.variant {
        Variant::Fma => Some(Pattern { lanes: (0..8).map(|g| 4 * g).collect(), width: 4 }),
        _ => pattern(4, |l| 4 * (l % 4 * 2 * stride + l / 4)),
    };
    r.op(Op::Write { slot: slot(sums, Index::at(0)), pattern: lanes });
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::Read { slot: slot(sums, Index::at(0)), pattern: None, own: false });
    r.op(Op::Barrier(Sync::Block));
}

fn sums(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>) -> BufferId {
    let bytes = schedule::sums_bytes(p.phase.parts, plan.schedule.rows, &p.segments[0]) as u32;
    r.buffer(Buffer { name: "sums".into(), bytes, stages: 1, scope: Scope::Block, conflict_free: true })
}

fn stream(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>, whole: bool) {
    let stages = p.phase.stages as i64;
    let ring = ring(r, p, p.unit_bytes());
    let sums = sums(r, plan, p);
    let (stride, rows) = (input::stride(plan) as u32, input::staged_rows(plan));
    let x = whole.then(|| {
        let bytes = input::bytes(plan) as u32;
        r.buffer(Buffer { name: "input".into(), bytes, stages: 1, scope: Scope::Block, conflict_free: rows == schedule::GEMV_ROWS })
    });
    let acc = r.registers("sums");
    let k = r.declare_loop("units");
    let copied = x.filter(|_| input::is_copy(plan));
    if let Some(x) = copied {
        r.op(Op::CpAsync(slot(x, Index::at(0))));
        r.op(Op::CpCommit);
    }
    start(r, k, &[ring], stages);
    if copied.is_some() {
        r.op(Op::CpWait(stages as u32 - 1));
        r.op(Op::Barrier(Sync::Block));
    } else if let Some(x) = x {
        r.op(Op::Write { slot: slot(x, Index::at(0)), pattern: None });
        r.op(Op::Barrier(Sync::Block));
    }
    r.begin_loop(k, Trips::Any);
    r.op(Op::CpWait(stages as u32 - 2));
    r.op(Op::Barrier(Sync::Warp));
    ahead(r, k, &[ring], Index::turn(k, stages - 1));
    if let Some(x) = x {
        let lanes = match plan.schedule.variant {
            Variant::Fma => pattern(16, |l| l % 4 * 64),
            _ => pattern(16, |l| (l / 4).min(rows as u32 - 1) * stride + l % 4 * 32),
        };
        // Of f32 input, the lanes of a quad read columns 64 bytes apart: two of them meet in the banks, which costs little beside the arithmetic.
        let lanes = lanes.filter(|_| plan.schedule.variant != Variant::Fma);
        r.op(Op::Read { slot: slot(x, Index::at(0)), pattern: lanes, own: false });
    }
    read_weights(r, p, ring, Index::turn(k, 0));
    r.op(Op::Mma(Atom::M16N8K16, acc));
    r.begin_if(Condition::Fact("the unit is the last of its output tile".into()));
    finish(r, plan, p, acc, sums);
    r.end_if();
    r.end_loop();
}

fn tiles(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>) {
    let (stages, rows) = (p.phase.stages as i64, plan.schedule.rows);
    let ring = ring(r, p, p.unit_bytes());
    let sums = sums(r, plan, p);
    let line = super::tiles::line(plan) as u32;
    let bytes = (plan.schedule.depth * rows) as u32 * line;
    let x = r.buffer(Buffer { name: "input".into(), bytes, stages: stages as u32, scope: Scope::Block, conflict_free: true });
    let acc = r.registers("sums");
    let k = r.declare_loop("units");
    start(r, k, &[x, ring], stages);
    r.begin_loop(k, Trips::Any);
    r.op(Op::CpWait(stages as u32 - 2));
    r.op(Op::Barrier(Sync::Block));
    ahead(r, k, &[x, ring], Index::turn(k, stages - 1));
    read_weights(r, p, ring, Index::turn(k, 0));
    if plan.elem == RowElem::Fp8 {
        let lanes = |piece: u32| pattern(4, |l| l / 4 * line + 16 * (piece ^ ((l / 8) & 3)) + l % 4 * 4);
        (0..4).for_each(|piece| r.op(Op::Read { slot: slot(x, Index::turn(k, 0)), pattern: lanes(piece), own: false }));
    } else {
        for swap in [0, 1] {
            let lanes = pattern(16, |l| {
                let (g, t) = (l / 4, l % 4);
                g * line + 32 * t + 16 * ((g & 1) ^ swap)
            });
            r.op(Op::Read { slot: slot(x, Index::turn(k, 0)), pattern: lanes, own: false });
        }
    }
    r.op(Op::Mma(if super::tiles::multiplies_bytes(plan) { Atom::M16N8K32 } else { Atom::M16N8K16 }, acc));
    if plan.schedule.apart {
        r.begin_if(Condition::Fact("the unit is the last of its output tile".into()));
        finish(r, plan, p, acc, sums);
        r.end_if();
        r.end_loop();
    } else {
        r.end_loop();
        r.op(Op::CpWait(0));
        r.op(Op::Barrier(Sync::Block));
        finish(r, plan, p, acc, sums);
    }
}

/// What the warps of a [`wgmma`](super::wgmma) kernel share.
struct Ring {
    weights: BufferId,
    input: BufferId,
    /// Its `mbarrier`s: weights are there, input is there, all have been read.
    weights_there: BarrierId,
    input_there: BarrierId,
    free: BarrierId,
    tile: LoopId,
    k: LoopId,
}

/// Numbers of the roles.
const BRING: usize = 0;
const MULTIPLY: usize = 1;

fn wgmma(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>) {
    let stages = p.phase.stages as u32;
    let strip = schedule::wgmma_strip_bytes(p.formats[0], plan.schedule.variant.stage_units());
    // 16-bit weights are read in two ways.
    let conflict_free = p.formats[0].is_quantized();
    let bytes = (plan.schedule.warps * strip) as u32;
    let weights = r.buffer(Buffer { name: "weights".into(), bytes, stages, scope: Scope::Block, conflict_free });
    let bytes = (plan.schedule.rows * super::tiles::ROW) as u32;
    let input = r.buffer(Buffer { name: "input".into(), bytes, stages, scope: Scope::Block, conflict_free: true });
    let ring = Ring {
        weights,
        input,
        weights_there: r.barrier("weights there", stages, Arrivals::One),
        input_there: r.barrier("input there", stages, Arrivals::Role(BRING)),
        free: r.barrier("free", stages, Arrivals::Role(MULTIPLY)),
        tile: r.declare_loop("tiles"),
        k: r.declare_loop("units"),
    };
    [ring.weights_there, ring.input_there, ring.free].into_iter().for_each(|b| r.op(Op::BarrierInit(b)));
    r.op(Op::FenceInit);
    r.op(Op::Barrier(Sync::Block));
    r.begin_roles();
    r.begin_role("bring", plan.schedule.producers as u32);
    r.op(Op::Registers(super::wgmma::REGISTERS.0 as u32));
    r.begin_loop(ring.tile, Trips::Fixed(2));
    bring(r, &ring, plan, p);
    r.op(Op::Barrier(Sync::Block));
    r.end_loop();
    r.end_role();
    r.begin_role("multiply", plan.schedule.warps as u32);
    r.op(Op::Registers(super::wgmma::REGISTERS.1 as u32));
    multiply(r, &ring, plan, p);
    r.end_role();
    r.end_roles();
}

/// The units of an output tile, brought.
fn bring(r: &mut Recorder, ring: &Ring, plan: &Plan<'_>, p: &PhaseCx<'_>) {
    let ahead = super::wgmma::ahead(p.phase.stages) as i64;
    let format = p.formats[0];
    let bytes = (plan.schedule.warps * plan.schedule.variant.stage_units() * schedule::unit_bytes(format)) as u32;
    let announce = |r: &mut Recorder, index: Index| {
        r.op(Op::CpWait(ahead as u32 - 1));
        r.op(Op::FenceAsync);
        r.op(Op::Barrier(Sync::Warp));
        r.op(Op::Arrive(Phase { barrier: ring.input_there, index }));
    };
    let now = Index::total(ring.k, 0);
    r.begin_loop(ring.k, Trips::Some);
    r.begin_if(Condition::AtLeast(Index::turn(ring.k, 0), ahead));
    announce(r, Index::total(ring.k, -ahead));
    r.end_if();
    r.op(Op::WaitEmpty(Phase { barrier: ring.free, index: now }));
    let there = Phase { barrier: ring.weights_there, index: now };
    r.op(Op::Expect(there, bytes));
    r.op(Op::BulkCopy(slot(ring.weights, now), there, bytes));
    r.op(Op::CpAsync(slot(ring.input, now)));
    r.op(Op::CpCommit);
    r.end_loop();
    for late in 0..ahead {
        r.begin_if(Condition::AtLeast(Index::turn(ring.k, late), ahead));
        announce(r, Index::total(ring.k, late - ahead));
        r.end_if();
        r.op(Op::CpCommit);
    }
}

/// Output tiles: products, then the sums in place of the stages.
fn multiply(r: &mut Recorder, ring: &Ring, plan: &Plan<'_>, p: &PhaseCx<'_>) {
    let n = plan.schedule.rows as u32;
    let atom = if plan.elem == RowElem::Fp8 { Atom::M64K32(n) } else { Atom::M64K16(n) };
    // Products of fp8 are added to other sums, stage by stage.
    let promotes = plan.schedule.variant == Variant::WgmmaFp8;
    let acc = r.registers(if promotes { "products" } else { "sums" });
    let sums = if promotes { r.registers("sums") } else { acc };
    let a = [r.registers("weights of even units"), r.registers("weights of odd units")];
    let decode = |r: &mut Recorder, index: Index, a: RegisterId| {
        r.op(Op::WaitFull(Phase { barrier: ring.weights_there, index }));
        for pattern in weight_patterns(p) {
            r.op(Op::Read { slot: slot(ring.weights, index), pattern, own: false });
        }
        r.op(Op::RegisterWrite(a));
    };
    let now = Index::total(ring.k, 0);
    r.begin_loop(ring.tile, Trips::Fixed(2));
    decode(r, now, a[0]);
    r.begin_loop(ring.k, Trips::Some);
    r.op(Op::WaitFull(Phase { barrier: ring.input_there, index: now }));
    for odd in [0, 1] {
        r.begin_if(Condition::Even(Index::turn(ring.k, odd as i64)));
        r.op(Op::WgmmaFence);
        for _ in 0..4 {
            r.op(Op::Wgmma(atom, acc, Source::Registers(a[odd]), slot(ring.input, now)));
        }
        r.op(Op::WgmmaCommit);
        if !promotes {
            r.op(Op::WgmmaWait(1));
            r.begin_if(Condition::AtLeast(Index::turn(ring.k, 0), 1));
            r.op(Op::Arrive(Phase { barrier: ring.free, index: Index::total(ring.k, -1) }));
            r.end_if();
        }
        r.begin_if(Condition::Within(Index::turn(ring.k, 1), ring.k));
        decode(r, Index::total(ring.k, 1), a[1 - odd]);
        r.end_if();
        if promotes {
            r.op(Op::WgmmaWait(0));
            r.op(Op::RegisterRead(acc));
            r.op(Op::RegisterWrite(sums));
            r.op(Op::Arrive(Phase { barrier: ring.free, index: now }));
        }
        r.end_if();
    }
    r.end_loop();
    if !promotes {
        r.op(Op::WgmmaWait(0));
        r.op(Op::Arrive(Phase { barrier: ring.free, index: Index::total(ring.k, -1) }));
    }
    r.op(Op::Barrier(Sync::Role));
    epilogue(r, ring, plan, p, sums);
    r.op(Op::FenceAsync);
    r.op(Op::Barrier(Sync::Block));
    r.end_loop();
}

/// The sums take the place of all stages.
fn epilogue(r: &mut Recorder, ring: &Ring, plan: &Plan<'_>, p: &PhaseCx<'_>, acc: RegisterId) {
    r.op(Op::RegisterRead(acc));
    let stride = schedule::sums_stride(&p.segments[0]) as u32;
    let lanes = pattern(4, |l| 4 * (l % 4 * 2 * stride + l / 4));
    let inside = |bytes: usize| lanes.clone().filter(|p| p.lanes.iter().all(|l| l + 4 <= bytes as u32));
    let input = inside(plan.schedule.rows * super::tiles::ROW);
    let all = || (0..p.phase.stages as i64).map(Index::at);
    for i in all() {
        r.op(Op::Write { slot: slot(ring.input, i), pattern: input.clone() });
        r.op(Op::Write { slot: slot(ring.weights, i), pattern: None });
    }
    r.op(Op::Barrier(Sync::Role));
    for buffer in [ring.input, ring.weights] {
        all().for_each(|i| r.op(Op::Read { slot: slot(buffer, i), pattern: None, own: false }));
    }
    r.op(Op::Barrier(Sync::Role));
}

/// What the lanes of a warp read of its strip's weights at once.
fn weight_patterns(p: &PhaseCx<'_>) -> Vec<Option<Pattern>> {
    if p.formats[0].is_quantized() {
        return vec![pattern(16, |l| 16 * l), None];
    }
    let piece = schedule::WGMMA_PIECE as u32;
    vec![pattern(8, |l| l / 4 * 64 + l % 2 * 8 + l / 2 % 2 * piece)]
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::{check, program};
    use crate::cx::Cx;
    use crate::left_out::unnoticed;
    use llmcc_ir::gpu::schedule::{self, Variant};
    use llmcc_ir::kernel::{Body, Expr, Kernel, Matmul, Param, ParamKind, RowElem, Segment, Store};
    use llmcc_ir::quant::{Format, Packing};
    use llmcc_ir::target::{TargetSpec, find};
    use llmcc_ir::ty::Dim;

    fn kernel(format: &str, elem: RowElem, tile_m: usize, k: usize) -> Kernel {
        let format = Format::parse(format).unwrap().with_packing(Packing::Fragment);
        let rows = |cols, elem| ParamKind::Rows { rows: Dim::Tokens, cols, elem };
        let kinds = [rows(k, elem), ParamKind::Matrix { n: 1024, k, format }, rows(1024, RowElem::F32)];
        let params = kinds.into_iter().enumerate().map(|(i, kind)| Param { name: format!("p{i}"), kind }).collect();
        let tile_n = if tile_m > 8 { 128 } else { 32 };
        let store = Store::Rows { param: 2, start: 0 };
        let segments = vec![Segment { n: 1024, weights: vec![1], tile_n, expr: Expr::Acc(0), store }];
        Kernel { name: "k".into(), rows: Dim::Tokens, params, body: Body::Matmul(Matmul { x: 0, prologue: None, segments, tile_m }) }
    }

    fn findings(kernel: &Kernel, target: &TargetSpec) -> (Variant, usize) {
        let cx = Cx::new(kernel, target).unwrap();
        let Body::Matmul(body) = &kernel.body else { unreachable!() };
        let schedule = schedule::matmul(kernel, target).unwrap();
        let (k, elem) = cx.rows(0).unwrap();
        let plan = Plan { cx: &cx, body, schedule: &schedule, k, elem };
        let found = check(&plan, &plan.phases().unwrap());
        found.iter().for_each(|d| eprintln!("{d}"));
        (schedule.variant, found.len())
    }

    /// The skeleton of every variant is in order, whether lanes copy for themselves or, scales, for each other.
    #[test]
    fn skeletons_are_in_order() {
        let mut seen = vec![];
        for (format, elem) in [
            ("w4g32", RowElem::F16),
            ("w4ag64", RowElem::Bf16),
            ("bf16", RowElem::Bf16),
            ("fp8", RowElem::Bf16),
            ("f32", RowElem::F32),
            ("fp8", RowElem::Fp8),
        ] {
            for (tile_m, k) in [(8, 256), (8, 14336), (32, 512), (128, 512), (256, 512)] {
                for target in ["sm80", "sm86", "sm89", "sm90"] {
                    // fp8 rows are multiplied in tiles, where there is an instruction for them.
                    let fp8 = elem == RowElem::Fp8;
                    if tile_m == 256 && (target != "sm90" || fp8) || fp8 && (tile_m == 8 || ["sm80", "sm86"].contains(&target)) {
                        continue;
                    }
                    let (variant, findings) = findings(&kernel(format, elem, tile_m, k), find(target).unwrap());
                    assert_eq!(findings, 0, "{format} {tile_m} {target}");
                    seen.push(variant);
                }
            }
        }
        assert!([Variant::Gemv, Variant::Fma, Variant::Mma, Variant::Wgmma, Variant::WgmmaFp8].iter().all(|v| seen.contains(v)));
    }

    /// Whatever orders something in the pipeline of a `wgmma` kernel, the verifier misses it when it is left out.
    #[test]
    fn nothing_can_be_left_out_of_the_pipeline() {
        for (format, elem, rows) in [("w4g32", RowElem::F16, 256), ("fp8", RowElem::Fp8, 128)] {
            nothing_can_be_left_out(format, elem, rows);
        }
    }

    fn nothing_can_be_left_out(format: &str, elem: RowElem, rows: usize) {
        let kernel = kernel(format, elem, rows, 1024);
        let (cx, target) = (Cx::new(&kernel, find("sm90").unwrap()).unwrap(), find("sm90").unwrap());
        let Body::Matmul(body) = &kernel.body else { unreachable!() };
        let schedule = schedule::matmul(&kernel, target).unwrap();
        let plan = Plan { cx: &cx, body, schedule: &schedule, k: 1024, elem };
        let whole = program(&plan, &plan.phases().unwrap()[0], false);
        let missed = unnoticed(&whole);
        // The epilogue ends with a barrier of its own, before that of the block.
        assert!(missed.len() == 1 && missed[0].ends_with(" Barrier(Role)"), "{whole}{}", missed.join("\n"));
    }
}
