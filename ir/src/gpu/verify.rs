//! The verifier of programs: executes the skeleton of a kernel, with the values that it computes;
//! where turns are counted instead, for all trip counts up to twice its deepest ring and a few
//! more.

use super::WARP;
use super::layout::conflict_degree;
use super::program::{Arrivals, Atom, Op, Phase, Program, Slot, Source, Stmt, Trips};
use super::run::{Finding, Pass, run};
use super::unroll::{Choice, LIMIT, Step, Who, count, indices, unknowns, unroll, unroll_turns};
use super::value::Value;
use crate::diag::{Diagnostic, Place};
use crate::gpu::program::{Condition, Counter, Index, Part, Pattern, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Every rule: code and requirement.
pub const RULES: &[(&str, &str)] = &[
    (
        "bad-reference",
        "buffers, barriers, registers, loops and roles exist and are not empty; loops are run once in the text, or once in each role; roles part once, at top level",
    ),
    ("pattern-range", "a pattern has at most 32 lanes of 1 to 16 bytes, inside a stage"),
    ("bank-conflict", "accesses to a buffer that promises it have no bank conflicts"),
    ("wait-without-commit", "what is waited for by groups is committed somewhere"),
    ("read-before-write", "what is read has been written"),
    ("read-before-wait", "a copy is waited for before it is read"),
    ("read-before-barrier", "a barrier lies between the writes of other threads and a read"),
    ("overwrite-while-read", "a slot is not written while others may still read it"),
    ("overwrite-in-flight", "a slot is not written while another role, or an asynchronous copy, writes it"),
    (
        "missing-proxy-fence",
        "`fence_async` lies between ordinary writes and asynchronous accesses, on the writer's side of the barrier",
    ),
    ("accumulator-before-wait", "registers of a `wgmma` are left alone until it is waited for"),
    ("missing-wgmma-fence", "`wgmma_fence` lies between ordinary uses of registers and a `wgmma`"),
    ("barrier-not-initialized", "an `mbarrier` is initialized, and a barrier shows it, before it is used"),
    (
        "missing-init-fence",
        "`fence_init` lies between the initialization of an `mbarrier` and the barrier that shows it, where copies in bulk report to it",
    ),
    (
        "register-budget",
        "roles that change their registers are groups of four warps, have 24 to 256 in steps of 8, and together no more than the block",
    ),
    ("barrier-phase", "no phase of an `mbarrier` passes unseen by one who waits for it"),
    ("wait-never-armed", "a phase that is waited for completes"),
    ("barrier-mismatch", "all threads that share a barrier reach it"),
    ("copy-never-waited", "copies are waited for before the kernel ends"),
    ("wgmma-never-waited", "products are waited for before the kernel ends"),
    (
        "use-before-predecessors",
        "memory that kernels before write is used after the wait for them; weights, tables and the step at any time",
    ),
    ("too-long", "the unrolled program is short enough to be checked"),
];

/// Combinations of trip counts that are tried at most; beyond, loops are varied one at a time.
const TRIPS: usize = 200;
/// Turns of a loop after which every operation of the text has been run.
const FEW: i64 = 3;
/// The same of facts.
const FACTS: usize = 8;

/// Checks a program. Returns all findings, each once, with the first trip counts that show it.
pub fn verify_program(program: &Program) -> Vec<Diagnostic> {
    verify_choices(program, usize::MAX)
}

/// The same with only the first choice of trip counts and of unknown values (the last sample of
/// each), and without looking at banks.
pub fn verify_once(program: &Program) -> Vec<Diagnostic> {
    verify_choices(program, 1)
}

fn verify_choices(program: &Program, most: usize) -> Vec<Diagnostic> {
    let ops = Ops::of(program);
    let mut out = Findings { program, ops: &ops, list: vec![], seen: BTreeSet::new() };
    for text in &program.early {
        let place = Place::GpuOp { kernel: program.name.clone(), op: 0, text: text.clone() };
        let message = "it is reached without a wait for the kernels before, which write this memory";
        out.list.push(Diagnostic::error("use-before-predecessors", place, message));
    }
    check_references(program, &ops, &mut out);
    if !out.list.is_empty() {
        return out.list;
    }
    check_patterns(program, &ops, &mut out);
    check_groups(&ops, &mut out);
    check_registers(program, &mut out);
    let recorded = !program.values.is_empty();
    let passes: &[Pass] = if recorded { &[Pass::Threads] } else { &[Pass::Warps, Pass::Lanes] };
    for (number, choice) in choices(program).into_iter().take(most).enumerate() {
        let context = describe(program, &choice);
        if recorded && number == 0 && most > 1 {
            check_banks(program, &choice, &mut out);
        }
        for pass in passes.iter().copied() {
            let actors = actors(program, &choice, pass);
            if recorded {
                check_shares(program, &actors, &mut out);
            }
            if let Some(last) = actors.iter().filter(|(_, s)| s.len() >= LIMIT).filter_map(|(_, s)| s.last()).next() {
                out.add(
                    Finding {
                        code: "too-long",
                        number: last.number,
                        message: "more steps than the verifier follows".into(),
                    },
                    &context,
                );
                continue;
            }
            run(program, pass, actors).into_iter().for_each(|f| out.add(f, &context));
        }
    }
    out.list
}

/// The operations of a program, by number.
struct Ops<'a>(Vec<&'a Op>);

impl<'a> Ops<'a> {
    fn of(program: &'a Program) -> Ops<'a> {
        Ops::in_body(&program.body)
    }

    fn in_body(body: &'a [Stmt]) -> Ops<'a> {
        fn visit<'a>(body: &'a [Stmt], out: &mut Vec<&'a Op>) {
            for stmt in body {
                if let Stmt::Op(op) = stmt {
                    out.push(op);
                }
                stmt.bodies().into_iter().for_each(|b| visit(b, out));
            }
        }
        let mut out = Vec::with_capacity(count(body));
        visit(body, &mut out);
        Ops(out)
    }
}

struct Findings<'a> {
    program: &'a Program,
    ops: &'a Ops<'a>,
    list: Vec<Diagnostic>,
    seen: BTreeSet<(&'static str, usize)>,
}

impl Findings<'_> {
    fn add(&mut self, f: Finding, context: &str) {
        if self.seen.insert((f.code, f.number)) {
            let text = self.ops.0.get(f.number).map_or_else(String::new, |op| self.program.op_text(op));
            let place = Place::GpuOp { kernel: self.program.name.clone(), op: f.number, text };
            self.list.push(Diagnostic::error(f.code, place, format!("{}{context}", f.message)));
        }
    }

    fn op(&mut self, code: &'static str, number: usize, message: impl Into<String>) {
        self.add(Finding { code, number, message: message.into() }, "");
    }
}

/// ` (turns of k: 3)`
fn describe(program: &Program, choice: &Choice) -> String {
    let mut parts: Vec<String> =
        program.loops.iter().zip(&choice.trips).map(|(n, t)| format!("{t} turns of {n}")).collect();
    parts.extend(choice.facts.iter().map(|(name, holds)| format!("{}{name}", if *holds { "" } else { "not " })));
    parts.extend(choice.values.iter().map(|(v, x)| format!("%{v} = {x}")));
    if parts.is_empty() { String::new() } else { format!(" (with {})", parts.join(", ")) }
}

/// Trip counts and facts to try: all combinations if they are few; else all loops alike, and one at
/// a time.
fn choices(program: &Program) -> Vec<Choice> {
    let stages =
        program.buffers.iter().map(|b| b.stages).chain(program.barriers.iter().map(|b| b.stages)).max().unwrap_or(1);
    let cap = 2 * stages + 3;
    let (loops, facts) = unknowns(program);
    let range = |trips: Trips| match trips {
        Trips::Fixed(n) => vec![n.min(cap)],
        Trips::Any => (0..=cap).collect(),
        Trips::Some => (1..=cap).collect(),
    };
    let options: Vec<Vec<u32>> =
        (0..program.loops.len()).map(|id| loops.get(&id).map_or(vec![0], |t| range(*t))).collect();
    let mut trips = product(&options, TRIPS);
    if trips.is_empty() {
        let pick = |v: &Vec<u32>, n: u32| v.iter().copied().find(|x| *x >= n).or(v.last().copied()).unwrap_or(0);
        trips = (0..=cap).map(|n| options.iter().map(|v| pick(v, n)).collect()).collect();
        for one in 0..options.len() {
            for n in options[one].iter().take(2) {
                let mut t: Vec<u32> = options.iter().map(|v| pick(v, stages + 1)).collect();
                t[one] = *n;
                trips.push(t);
            }
        }
    }
    let mut sides = product(&vec![vec![0, 1]; facts.len()], FACTS);
    if sides.is_empty() {
        sides = [vec![0; facts.len()], vec![1; facts.len()]].to_vec();
        sides.extend((0..facts.len()).map(|i| (0..facts.len()).map(|j| u32::from(i == j)).collect()));
    }
    let values = samples(program);
    let choice = |trips: &Vec<u32>, side: &Vec<u32>, values: &BTreeMap<usize, i64>| Choice {
        trips: trips.clone(),
        facts: facts.iter().cloned().zip(side.iter().map(|s| *s == 1)).collect(),
        values: values.clone(),
    };
    let of_trips = |t: &Vec<u32>| sides.iter().flat_map(|s| values.iter().map(|v| choice(t, s, v))).collect::<Vec<_>>();
    trips.iter().flat_map(of_trips).collect()
}

/// Values to try for unknowns: all combinations if they are few; else the last of all, the first of
/// all, and then one other at a time.
fn samples(program: &Program) -> Vec<BTreeMap<usize, i64>> {
    let unknown = |(id, v): (usize, &Value)| if let Value::Unknown(s) = v { Some((id, s.clone())) } else { None };
    let all: Vec<(usize, Vec<i64>)> =
        program.values.iter().enumerate().filter_map(unknown).filter(|(_, s)| !s.is_empty()).collect();
    let size = all.iter().try_fold(1usize, |n, (_, s)| n.checked_mul(s.len())).filter(|n| *n <= FACTS);
    if size.is_some() {
        return all.iter().fold(vec![BTreeMap::new()], |maps, (id, samples)| {
            let with = |m: &BTreeMap<usize, i64>, x: i64| m.iter().map(|(k, v)| (*k, *v)).chain([(*id, x)]).collect();
            samples.iter().rev().flat_map(|x| maps.iter().map(|m| with(m, *x)).collect::<Vec<_>>()).collect()
        });
    }
    let last: BTreeMap<usize, i64> = all.iter().map(|(id, s)| (*id, s[s.len() - 1])).collect();
    let mut out = vec![last.clone(), all.iter().map(|(id, s)| (*id, s[0])).collect()];
    for (id, samples) in &all {
        for x in &samples[..samples.len() - 1] {
            let mut one = last.clone();
            one.insert(*id, *x);
            out.push(one);
        }
    }
    out
}

/// All combinations; none if there are more than `most`.
fn product(options: &[Vec<u32>], most: usize) -> Vec<Vec<u32>> {
    let size = options.iter().try_fold(1usize, |n, o| n.checked_mul(o.len())).filter(|n| *n <= most);
    if size.is_none() {
        return vec![];
    }
    options.iter().fold(vec![vec![]], |all, option| {
        all.iter().flat_map(|head| option.iter().map(move |x| head.iter().copied().chain([*x]).collect())).collect()
    })
}

/// The actors of a pass: the first two lanes of every warp; or two of every role, or of the block,
/// one where a role has one warp and warps are compared.
fn actors<'a>(program: &'a Program, choice: &Choice, pass: Pass) -> Vec<(Option<usize>, Vec<Step<'a>>)> {
    if pass == Pass::Threads {
        let of_warp = |warp: u32| {
            (0..lanes(program, choice, warp))
                .map(move |lane| (Some(warp as usize), unroll(program, choice, Who::Thread(WARP as u32 * warp + lane))))
        };
        return (0..program.warps).flat_map(of_warp).collect();
    }
    let copies = |warps: u32| if pass == Pass::Warps && warps < 2 { 1 } else { 2 };
    let roles = program.body.iter().find_map(|s| if let Stmt::Roles(r) = s { Some(r) } else { None });
    let all: Vec<(Option<usize>, u32)> = match roles {
        Some(roles) => roles.iter().enumerate().map(|(i, r)| (Some(i), r.warps)).collect(),
        None => vec![(None, program.warps)],
    };
    let steps = |role| unroll(program, choice, Who::Role(role));
    all.into_iter()
        .flat_map(|(role, warps)| (0..copies(warps)).map(move |_| role))
        .map(|role| (role, steps(role)))
        .collect()
}

/// Lanes of a warp that are followed: two, and all that start copies in bulk, whose bytes are
/// counted. A power of two.
fn lanes(program: &Program, choice: &Choice, warp: u32) -> u32 {
    let copies = |steps: &[Step<'_>]| steps.iter().any(|s| matches!(s.op, Op::BulkCopy(..)));
    if !Ops::of(program).0.iter().any(|op| matches!(op, Op::BulkCopy(..))) {
        return 2;
    }
    let last = (2..WARP as u32)
        .rev()
        .find(|lane| copies(&unroll_turns(program, choice, Who::Thread(WARP as u32 * warp + lane), FEW)));
    last.map_or(2, |lane| (lane + 1).next_power_of_two())
}

fn check_references(program: &Program, ops: &Ops<'_>, out: &mut Findings<'_>) {
    let bad = |out: &mut Findings<'_>, number, what: String| out.op("bad-reference", number, what);
    for b in program.buffers.iter().filter(|b| b.stages == 0 || b.bytes == 0) {
        bad(out, 0, format!("buffer `{}` is empty", b.name));
    }
    for b in program.barriers.iter().filter(|b| b.stages == 0) {
        bad(out, 0, format!("barrier `{}` has no stages", b.name));
    }
    if program.warps == 0 {
        bad(out, 0, "there are no warps".into());
    }
    let slot = |s: Slot| s.buffer < program.buffers.len();
    let phase = |p: Phase| p.barrier < program.barriers.len();
    let register = |r: usize| r < program.registers.len();
    for (number, op) in ops.0.iter().enumerate() {
        let fine = match op {
            Op::CpAsync(s) | Op::Read { slot: s, .. } | Op::Write { slot: s, .. } => slot(*s),
            Op::BulkCopy(s, p, _) => slot(*s) && phase(*p),
            Op::Expect(p, _)
            | Op::Arrive(p)
            | Op::WaitFull(p)
            | Op::WaitEmpty(p)
            | Op::WaitParity(p, _)
            | Op::BarrierInitAt(p) => phase(*p),
            Op::BarrierInit(b) => *b < program.barriers.len(),
            Op::Mma(atom, r) => register(*r) && matches!(atom, Atom::M16N8K16 | Atom::M16N8K32),
            Op::RegisterRead(r) | Op::RegisterWrite(r) => register(*r),
            Op::Wgmma(atom, r, from, b) => {
                let from = match from {
                    Source::Shared(s) => slot(*s),
                    Source::Registers(r) => register(*r),
                };
                register(*r) && from && slot(*b) && matches!(atom, Atom::M64K16(_) | Atom::M64K32(_))
            }
            _ => true,
        };
        if !fine || indices(op).any(|x| !known_loop(program, x)) {
            bad(out, number, "names something that does not exist".into());
        }
    }
    let mut seen = vec![false; program.loops.len()];
    let shape = check_shape(program, &program.body, true, &mut seen);
    let roles = program.body.iter().filter(|s| matches!(s, Stmt::Roles(_))).count();
    let arrivals = program.barriers.iter().all(|b| match b.arrivals {
        Arrivals::Role(r) => program.body.iter().any(|s| matches!(s, Stmt::Roles(roles) if r < roles.len())),
        Arrivals::One | Arrivals::All => true,
        Arrivals::Count(n) => n > 0,
    });
    let over = program.buffers.iter().flat_map(|b| &b.over).all(|b| *b < program.buffers.len());
    if !over {
        bad(out, 0, "a buffer takes the place of one that does not exist".into());
    }
    if !shape || roles > 1 || !arrivals {
        bad(
            out,
            0,
            "loops are declared and run once in the text; roles part once, at top level, and have warps".into(),
        );
    }
}

fn known_loop(program: &Program, x: Index) -> bool {
    x.follows.is_none_or(|counter| match counter {
        Counter::Turn(l) | Counter::Total(l) => l < program.loops.len(),
        Counter::Value(v) => v < program.values.len(),
    })
}

fn check_shape(program: &Program, body: &[Stmt], top: bool, seen: &mut [bool]) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::Op(_) => true,
        Stmt::Let(v) => *v < program.values.len(),
        Stmt::For { .. } | Stmt::Choose { .. } => {
            stmt.bodies().into_iter().all(|b| check_shape(program, b, false, seen))
        }
        Stmt::Loop { id, body, .. } => {
            let fresh = seen.get_mut(*id).is_some_and(|s| !std::mem::replace(s, true));
            fresh && check_shape(program, body, false, seen)
        }
        Stmt::If { when, then, other } => {
            let fine = match when {
                Condition::Within(x, l) => known_loop(program, *x) && *l < program.loops.len(),
                Condition::AtLeast(x, _) | Condition::Even(x) => known_loop(program, *x),
                Condition::Fact(_) => true,
            };
            fine && check_shape(program, then, false, seen) && check_shape(program, other, false, seen)
        }
        Stmt::Roles(roles) => {
            // Each role may run a loop that others run too: all turn equally often.
            let before = seen.to_vec();
            let mut fine = |r: &Role| {
                let mut own = before.clone();
                let fine = r.warps > 0 && check_shape(program, &r.body, false, &mut own);
                seen.iter_mut().zip(own).for_each(|(all, own)| *all |= own);
                fine
            };
            top && !roles.is_empty() && roles.iter().all(&mut fine)
        }
    })
}

fn check_patterns(program: &Program, ops: &Ops<'_>, out: &mut Findings<'_>) {
    for (number, op) in ops.0.iter().enumerate() {
        let (Op::Read { slot, pattern: Some(p), .. } | Op::Write { slot, pattern: Some(p) }) = op else { continue };
        let buffer = &program.buffers[slot.buffer];
        let Pattern { lanes, width } = p;
        let inside = lanes.iter().all(|o| o.checked_add(*width).is_some_and(|end| end <= buffer.bytes));
        if lanes.is_empty() || lanes.len() > WARP || !(1..=16).contains(width) || !inside {
            out.op(
                "pattern-range",
                number,
                format!("{} lanes of {width} bytes do not fit a stage of {} bytes", lanes.len(), buffer.bytes),
            );
        } else if buffer.conflict_free && p.conflicts() > 1 {
            let message =
                format!("`{}` promises no bank conflicts, but this access has {} ways", buffer.name, p.conflicts());
            out.op("bank-conflict", number, message);
        }
    }
}

/// The lanes of the first and the last warp at once, by the addresses they compute, the first time
/// that they come to an access.
fn check_banks(program: &Program, choice: &Choice, out: &mut Findings<'_>) {
    if program.buffers.iter().all(|b| !b.conflict_free) {
        return;
    }
    let mut lanes: BTreeMap<usize, (Vec<u32>, u32)> = BTreeMap::new();
    for warp in [0, program.warps - 1] {
        let mut of_warp: BTreeMap<usize, (Vec<u32>, u32)> = BTreeMap::new();
        for lane in 0..WARP as u32 {
            let mut seen = BTreeSet::new();
            for step in unroll_turns(program, choice, Who::Thread(WARP as u32 * warp + lane), FEW) {
                let (Op::Read { slot, .. } | Op::Write { slot, .. }) = step.op else { continue };
                let (Part::Bytes(width) | Part::Apart(width) | Part::Lanes(width)) = slot.part else { continue };
                if program.buffers[slot.buffer].conflict_free
                    && !lanes.contains_key(&step.number)
                    && seen.insert(step.number)
                {
                    of_warp.entry(step.number).or_insert((vec![], width)).0.push(step.byte as u32);
                }
            }
        }
        lanes.extend(of_warp);
    }
    for (number, (offsets, width)) in lanes {
        let degree = conflict_degree(&offsets, width);
        if degree > 1 {
            out.op(
                "bank-conflict",
                number,
                format!("the buffer promises no bank conflicts, but this access has {degree} ways"),
            );
        }
    }
}

/// Registers that warps take and leave, where they are counted by thread.
fn check_shares(program: &Program, actors: &[(Option<usize>, Vec<Step<'_>>)], out: &mut Findings<'_>) {
    let all = registers_of(program.warps * WARP as u32);
    let last = |steps: &[Step<'_>]| {
        steps.iter().rev().find_map(|s| if let Op::Registers(n) = s.op { Some((s.number, *n)) } else { None })
    };
    let of_warp = |warp: u32| actors.iter().find(|(w, _)| *w == Some(warp as usize)).and_then(|(_, steps)| last(steps));
    let shares: Vec<Option<(usize, u32)>> = (0..program.warps).map(of_warp).collect();
    for (number, n) in shares.iter().flatten() {
        if !n.is_multiple_of(8) || !(24..=256).contains(n) {
            out.op("register-budget", *number, format!("{n} registers of a thread"));
        }
    }
    let sum: u32 = shares.iter().map(|s| s.map_or(all, |(_, n)| n)).sum();
    if let Some((number, _)) = shares.iter().flatten().next_back().filter(|_| sum > program.warps * all) {
        out.op(
            "register-budget",
            *number,
            format!("{} registers where the block has {}", sum * WARP as u32, program.warps * all * WARP as u32),
        );
    }
}

/// Groups that are waited for are committed somewhere.
fn check_groups(ops: &Ops<'_>, out: &mut Findings<'_>) {
    let has = |f: fn(&Op) -> bool| ops.0.iter().any(|op| f(op));
    let (copies, products) = (has(|op| matches!(op, Op::CpCommit)), has(|op| matches!(op, Op::WgmmaCommit)));
    for (number, op) in ops.0.iter().enumerate() {
        if matches!(op, Op::CpWait(_)) && !copies || matches!(op, Op::WgmmaWait(_)) && !products {
            out.op("wait-without-commit", number, "waits for groups, but none is committed");
        }
    }
}

/// Registers of a multiprocessor, for each of so many threads of its only block: a multiple of 8.
fn registers_of(threads: u32) -> u32 {
    (65_536 / threads.max(1) / 8 * 8).min(256)
}

/// Registers that roles take and leave.
fn check_registers(program: &Program, out: &mut Findings<'_>) {
    if !program.values.is_empty() {
        return;
    }
    let all = registers_of(program.warps * WARP as u32);
    let mut number = 0;
    for stmt in &program.body {
        let Stmt::Roles(roles) = stmt else {
            check_no_registers(std::slice::from_ref(stmt), &mut number, out);
            continue;
        };
        let (mut sum, mut last) = (0, None);
        for role in roles {
            let mut most = None;
            for (i, op) in Ops::in_body(&role.body).0.into_iter().enumerate() {
                let Op::Registers(n) = op else { continue };
                last = Some(number + i);
                most = most.max(Some(*n));
                if !n.is_multiple_of(8) || !(24..=256).contains(n) || !role.warps.is_multiple_of(4) {
                    let message = format!("{n} registers for the {} warps of `{}`", role.warps, role.name);
                    out.op("register-budget", number + i, message);
                }
            }
            sum += role.warps * most.unwrap_or(all);
            number += count(&role.body);
        }
        if let Some(last) = last.filter(|_| sum > program.warps * all) {
            let message =
                format!("{} registers where the block has {}", sum * WARP as u32, program.warps * all * WARP as u32);
            out.op("register-budget", last, message);
        }
    }
}

/// Outside of roles, registers stay as they are.
fn check_no_registers(body: &[Stmt], number: &mut usize, out: &mut Findings<'_>) {
    for (i, op) in Ops::in_body(body).0.into_iter().enumerate() {
        if matches!(op, Op::Registers(_)) {
            out.op("register-budget", *number + i, "all warps of the block change their registers");
        }
    }
    *number += count(body);
}
