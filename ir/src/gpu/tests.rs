//! Valid skeletons have no findings; one change to one of them breaks each rule.

use super::program::{
    Arrivals, Atom, Buffer, Condition, Index, Op, Part, Pattern, Phase, Program, Recorder, Scope, Slot, Source, Stmt,
    Sync, Trips,
};
use super::verify::{RULES, verify_program};

fn buffer(name: &str, stages: u32, scope: Scope) -> Buffer {
    Buffer { name: name.into(), bytes: 4096, stages, scope, conflict_free: true, over: vec![] }
}

fn at(buffer: usize, stage: Index) -> Slot {
    Slot { buffer, stage, part: Part::Some }
}

fn read(slot: Slot) -> Op {
    let lanes = (0..32).map(|l| l * 16).collect();
    Op::Read { slot, pattern: Some(Pattern { lanes, width: 16 }), own: false }
}

/// A product through a ring of `cp.async` copies: `stages - 1` ahead, one barrier per turn, an
/// epilogue through shared memory.
fn pipeline(stages: u32) -> Program {
    let mut r = Recorder::new("pipeline", 4);
    let ring = r.buffer(buffer("ring", stages, Scope::Block));
    let tile = r.buffer(Buffer { conflict_free: false, ..buffer("tile", 1, Scope::Block) });
    let acc = r.registers("acc");
    let k = r.declare_loop("k");
    for s in 0..i64::from(stages) - 1 {
        r.begin_if(Condition::Within(Index::at(s), k));
        r.op(Op::CpAsync(at(ring, Index::at(s))));
        r.end_if();
        r.op(Op::CpCommit);
    }
    r.begin_loop(k, Trips::Any);
    r.op(Op::CpWait(stages - 2));
    r.op(Op::Barrier(Sync::Block));
    let ahead = Index::turn(k, i64::from(stages) - 1);
    r.begin_if(Condition::Within(ahead, k));
    r.op(Op::CpAsync(at(ring, ahead)));
    r.end_if();
    r.op(Op::CpCommit);
    r.op(read(at(ring, Index::turn(k, 0))));
    r.op(Op::Mma(Atom::M16N8K16, acc));
    r.end_loop();
    r.op(Op::CpWait(0));
    r.op(Op::RegisterRead(acc));
    r.op(Op::Write { slot: at(tile, Index::at(0)), pattern: None });
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::Read { slot: at(tile, Index::at(0)), pattern: None, own: false });
    r.finish().unwrap()
}

/// A ring of each warp for itself, waited for and read without the others.
fn private(stages: u32) -> Program {
    let mut r = Recorder::new("private", 8);
    let ring = r.buffer(buffer("ring", stages, Scope::Warp));
    let k = r.declare_loop("k");
    for s in 0..i64::from(stages) - 1 {
        r.op(Op::CpAsync(at(ring, Index::at(s))));
        r.op(Op::CpCommit);
    }
    r.begin_loop(k, Trips::Any);
    r.op(Op::CpWait(stages - 2));
    r.op(Op::Barrier(Sync::Warp));
    r.op(Op::CpAsync(at(ring, Index::turn(k, i64::from(stages) - 1))));
    r.op(Op::CpCommit);
    r.op(read(at(ring, Index::turn(k, 0))));
    r.end_loop();
    r.op(Op::CpWait(0));
    r.finish().unwrap()
}

/// One role copies in bulk, the other multiplies with `wgmma`, over several output tiles: full and
/// empty `mbarrier`s per stage.
fn specialised(stages: u32) -> Program {
    let mut r = Recorder::new("specialised", 8);
    let a = r.buffer(buffer("a", stages, Scope::Block));
    let b = r.buffer(buffer("b", stages, Scope::Block));
    let acc = r.registers("acc");
    let full = r.barrier("full", stages, Arrivals::One);
    let empty = r.barrier("empty", stages, Arrivals::Role(1));
    let (tile, k, tile2, k2) =
        (r.declare_loop("tile"), r.declare_loop("k"), r.declare_loop("tile'"), r.declare_loop("k'"));
    r.op(Op::BarrierInit(full));
    r.op(Op::BarrierInit(empty));
    r.op(Op::FenceInit);
    r.op(Op::Barrier(Sync::Block));
    r.begin_roles();
    r.begin_role("load", 4);
    r.op(Op::Registers(40));
    r.begin_loop(tile, Trips::Fixed(2));
    r.begin_loop(k, Trips::Fixed(5));
    let i = Index::total(k, 0);
    r.op(Op::WaitEmpty(Phase { barrier: empty, index: i }));
    r.op(Op::Expect(Phase { barrier: full, index: i }, 8192));
    r.op(Op::BulkCopy(at(a, i), Phase { barrier: full, index: i }, 4096));
    r.op(Op::BulkCopy(at(b, i), Phase { barrier: full, index: i }, 4096));
    r.end_loop();
    r.end_loop();
    r.end_role();
    r.begin_role("multiply", 4);
    r.op(Op::Registers(232));
    r.begin_loop(tile2, Trips::Fixed(2));
    r.begin_loop(k2, Trips::Fixed(5));
    let i = Index::total(k2, 0);
    r.op(Op::WaitFull(Phase { barrier: full, index: i }));
    r.op(Op::WgmmaFence);
    r.op(Op::Wgmma(Atom::M64K16(128), acc, Source::Shared(at(a, i)), at(b, i)));
    r.op(Op::WgmmaCommit);
    r.op(Op::WgmmaWait(0));
    r.op(Op::Arrive(Phase { barrier: empty, index: i }));
    r.end_loop();
    r.op(Op::RegisterRead(acc));
    r.end_loop();
    r.end_role();
    r.end_roles();
    r.finish().unwrap()
}

/// Weights in registers, input tiles in shared memory by `cp.async`, `wgmma` reading them.
fn dequantized() -> Program {
    let mut r = Recorder::new("dequantized", 4);
    let ring = r.buffer(buffer("ring", 2, Scope::Block));
    let (acc, frag) = (r.registers("acc"), r.registers("frag"));
    let k = r.declare_loop("k");
    r.begin_loop(k, Trips::Any);
    r.op(Op::CpAsync(at(ring, Index::turn(k, 0))));
    r.op(Op::CpCommit);
    r.op(Op::CpWait(0));
    r.op(Op::FenceAsync);
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::RegisterWrite(frag));
    r.op(Op::WgmmaFence);
    r.op(Op::Wgmma(Atom::M64K16(64), acc, Source::Registers(frag), at(ring, Index::turn(k, 0))));
    r.op(Op::WgmmaCommit);
    r.op(Op::WgmmaWait(0));
    r.end_loop();
    r.op(Op::RegisterRead(acc));
    r.finish().unwrap()
}

/// Replaces operation `number` by the result of `f`.
fn change(p: &Program, number: usize, f: &dyn Fn(&Op) -> Vec<Op>) -> Program {
    fn visit(body: &[Stmt], next: &mut usize, number: usize, f: &dyn Fn(&Op) -> Vec<Op>) -> Vec<Stmt> {
        let mut out = vec![];
        for stmt in body {
            match stmt {
                Stmt::Op(op) => {
                    if *next == number {
                        out.extend(f(op).into_iter().map(Stmt::Op));
                    } else {
                        out.push(stmt.clone());
                    }
                    *next += 1;
                }
                other => out.push(other.with_bodies(|b| visit(b, next, number, f))),
            }
        }
        out
    }
    Program { body: visit(&p.body, &mut 0, number, f), ..p.clone() }
}

/// The number of the operation printed as `text`.
fn number(p: &Program, text: &str) -> usize {
    let line = p.to_string().lines().find(|l| l.get(4..).is_some_and(|l| l.trim() == text)).map(String::from);
    line.unwrap_or_else(|| panic!("no `{text}` in\n{p}"))[..4].trim().parse().unwrap()
}

fn without(p: &Program, text: &str) -> Program {
    change(p, number(p, text), &|_| vec![])
}

fn instead(p: &Program, text: &str, op: Op) -> Program {
    change(p, number(p, text), &|_| vec![op.clone()])
}

/// The rule is broken, at the operation printed as `text`.
fn expect(p: &Program, code: &str, text: &str) {
    let found = verify_program(p);
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    let hit = found.iter().any(|d| d.code == code && d.place.to_string().contains(&format!("`{text}`")));
    assert!(hit, "no `{code}` at `{text}` among {all:#?} in\n{p}");
}

#[test]
fn valid_programs_have_no_findings() {
    for p in
        [pipeline(2), pipeline(3), pipeline(5), private(3), private(4), specialised(1), specialised(4), dequantized()]
    {
        assert_eq!(verify_program(&p), [], "{p}");
    }
}

#[test]
fn copies_are_waited_for() {
    let p = pipeline(4);
    expect(&instead(&p, "cp_wait 2", Op::CpWait(3)), "read-before-wait", "read ring[k]");
    expect(&without(&p, "cp_wait 2"), "read-before-wait", "read ring[k]");
    expect(&without(&private(3), "cp_wait 1"), "read-before-wait", "read ring[k]");
    expect(&without(&private(3), "cp_wait 0"), "copy-never-waited", "cp_async ring[k + 2]");
    let mut r = Recorder::new("none", 1);
    r.op(Op::CpWait(0));
    expect(&r.finish().unwrap(), "wait-without-commit", "cp_wait 0");
    let unseen = verify_program(&without(&specialised(2), "wait_full full[all k']"));
    assert!(
        unseen.iter().any(|d| d.code == "read-before-wait" && d.place.to_string().contains("`wgmma ")),
        "{unseen:?}"
    );
}

#[test]
fn threads_meet_between_writing_and_reading() {
    let p = pipeline(4);
    let barrier = number(&p, "barrier");
    let bare = change(&p, barrier, &|_| vec![]);
    expect(&bare, "read-before-barrier", "read ring[k]");
    expect(&bare, "overwrite-while-read", "cp_async ring[k + 3]");
    // A warp's own ring needs its lanes to meet, not the warps.
    expect(&without(&private(3), "barrier warp"), "read-before-barrier", "read ring[k]");
    expect(&instead(&p, "barrier", Op::Barrier(Sync::Warp)), "read-before-barrier", "read ring[k]");
    // Copying before the barrier overwrites data that slow warps still read.
    let early = change(&p, number(&p, "cp_wait 2"), &|op| vec![Op::CpAsync(at(0, Index::turn(0, 3))), op.clone()]);
    expect(&early, "overwrite-while-read", "cp_async ring[k + 3]");
}

#[test]
fn nothing_is_read_that_was_not_written() {
    let p = pipeline(4);
    expect(&instead(&p, "read ring[k]", read(at(0, Index::turn(0, 5)))), "read-before-write", "read ring[k + 5]");
    let own = |text: &str| {
        change(&p, number(&p, text), &|op| match op {
            Op::Read { slot, pattern, .. } => vec![Op::Read { slot: *slot, pattern: pattern.clone(), own: true }],
            op => vec![op.clone()],
        })
    };
    let p = own("read tile[0]");
    assert_eq!(
        verify_program(&change(&p, number(&p, "write tile[0]") + 1, &|_| vec![])),
        [],
        "no barrier between a thread and itself"
    );
}

#[test]
fn asynchronous_accesses_are_fenced() {
    let fence = without(&dequantized(), "fence_async");
    expect(&fence, "missing-proxy-fence", "wgmma m64n64k16 acc frag ring[k]");
    // On the reader's side of the barrier it is too late for the other warps' writes.
    let late = change(&fence, number(&fence, "barrier"), &|op| vec![op.clone(), Op::FenceAsync]);
    expect(&late, "missing-proxy-fence", "wgmma m64n64k16 acc frag ring[k]");
    // The next bulk copy over the epilogue's stores.
    let p = specialised(2);
    let stored = change(&p, number(&p, "register_read acc"), &|op| {
        vec![op.clone(), Op::Write { slot: at(0, Index::total(3, 0)), pattern: None }]
    });
    let found = verify_program(&stored);
    assert!(found.iter().any(|d| ["missing-proxy-fence", "overwrite-in-flight"].contains(&d.code)), "{found:?}");
}

#[test]
fn accumulators_are_left_alone_until_the_wait() {
    let p = dequantized();
    let wgmma = "wgmma m64n64k16 acc frag ring[k]";
    expect(&without(&p, "wgmma_wait 0"), "accumulator-before-wait", "register_read acc");
    expect(&without(&p, "wgmma_wait 0"), "overwrite-while-read", "cp_async ring[k]");
    expect(&instead(&p, "wgmma_wait 0", Op::WgmmaWait(1)), "accumulator-before-wait", "register_write frag");
    expect(&without(&p, "wgmma_fence"), "missing-wgmma-fence", wgmma);
    expect(&without(&p, "wgmma_commit"), "wait-without-commit", "wgmma_wait 0");
    let last = change(&p, number(&p, "wgmma_wait 0"), &|_| vec![Op::WgmmaWait(1)]);
    expect(&last, "wgmma-never-waited", wgmma);
    expect(&without(&specialised(2), "wgmma_wait 0"), "accumulator-before-wait", "register_read acc");
    expect(&without(&specialised(2), "wgmma_wait 0"), "overwrite-while-read", "bulk_copy a[all k] on full[all k] 4096");
}

#[test]
fn phases_are_armed_and_complete() {
    let p = specialised(3);
    let wait = "wait_full full[all k']";
    expect(&without(&p, "expect full[all k] 8192"), "wait-never-armed", wait);
    expect(
        &instead(&p, "expect full[all k] 8192", Op::Expect(Phase { barrier: 0, index: Index::total(1, 0) }, 9000)),
        "wait-never-armed",
        wait,
    );
    expect(&without(&p, "arrive empty[all k']"), "wait-never-armed", "wait_empty empty[all k]");
    expect(&without(&p, "wait_empty empty[all k]"), "overwrite-while-read", "bulk_copy a[all k] on full[all k] 4096");
    // Waiting for the phase after: its parity is the one before's.
    let wrong = Op::WaitFull(Phase { barrier: 0, index: Index::total(3, 3) });
    expect(&instead(&p, wait, wrong), "barrier-phase", "wait_full full[all k' + 3]");
    expect(&without(&p, "init full"), "barrier-not-initialized", "expect full[all k] 8192");
    expect(&without(&p, "barrier"), "barrier-not-initialized", wait);
    // A copy that nobody waits for.
    let copies = change(&p, number(&p, wait), &|_| vec![]);
    assert!(verify_program(&copies).iter().any(|d| d.code == "read-before-wait"));
}

#[test]
fn initialized_barriers_are_shown_to_the_asynchronous_proxy() {
    let p = specialised(3);
    let copies = ["bulk_copy a[all k] on full[all k] 4096", "bulk_copy b[all k] on full[all k] 4096"];
    let unfenced = verify_program(&without(&p, "fence_init"));
    assert!(unfenced.iter().all(|d| d.code == "missing-init-fence"), "{unfenced:?}");
    assert_eq!(unfenced.len(), copies.len());
    // Before the initialization it fences nothing.
    let early = change(&without(&p, "fence_init"), number(&p, "init full"), &|op| vec![Op::FenceInit, op.clone()]);
    expect(&early, "missing-init-fence", copies[0]);
}

#[test]
fn registers_are_only_moved() {
    let p = specialised(2);
    let set = |text: &str, n| instead(&p, text, Op::Registers(n));
    // 8 warps have 256 each, so that there is nothing to gain; 16 would have 128.
    assert_eq!(verify_program(&set("registers 232", 256)), []);
    expect(&set("registers 232", 236), "register-budget", "registers 236");
    expect(&set("registers 40", 16), "register-budget", "registers 16");
    let many = Program { warps: 16, ..p.clone() };
    assert_eq!(verify_program(&many), []);
    let mut greedy = set("registers 40", 240);
    if let Some(Stmt::Roles(roles)) = greedy.body.last_mut() {
        roles.iter_mut().for_each(|r| r.warps = 8);
    }
    expect(&Program { warps: 16, ..greedy.clone() }, "register-budget", "registers 232");
    if let Some(Stmt::Roles(roles)) = greedy.body.last_mut() {
        roles[0].warps = 2;
    }
    expect(&greedy, "register-budget", "registers 240");
    let outside = change(&p, 0, &|op| vec![op.clone(), Op::Registers(64)]);
    expect(&outside, "register-budget", "registers 64");
}

/// Roles that share a loop agree on its turns, odd or even.
#[test]
fn roles_share_loops() {
    let build = |late: i64| {
        let mut r = Recorder::new("shared", 8);
        let ring = r.buffer(buffer("ring", 3, Scope::Block));
        let (full, empty) = (r.barrier("full", 3, Arrivals::Role(0)), r.barrier("empty", 3, Arrivals::Role(1)));
        let k = r.declare_loop("k");
        r.op(Op::BarrierInit(full));
        r.op(Op::BarrierInit(empty));
        r.op(Op::Barrier(Sync::Block));
        let i = Index::total(k, 0);
        r.begin_roles();
        r.begin_role("store", 4);
        r.begin_loop(k, Trips::Any);
        r.op(Op::WaitEmpty(Phase { barrier: empty, index: i }));
        r.op(Op::Write { slot: at(ring, i), pattern: None });
        r.op(Op::Arrive(Phase { barrier: full, index: i }));
        r.end_loop();
        r.end_role();
        r.begin_role("load", 4);
        r.begin_loop(k, Trips::Any);
        for odd in [false, true] {
            r.begin_if(Condition::Even(Index::turn(k, i64::from(odd))));
            r.op(Op::WaitFull(Phase { barrier: full, index: i }));
            r.op(Op::Read { slot: at(ring, i), pattern: None, own: false });
            r.end_if();
        }
        r.begin_if(Condition::AtLeast(Index::turn(k, 0), late));
        r.op(Op::Arrive(Phase { barrier: empty, index: Index::total(k, -late) }));
        r.end_if();
        r.end_loop();
        r.end_role();
        r.end_roles();
        r.finish().unwrap()
    };
    assert_eq!(verify_program(&build(0)), []);
    assert_eq!(verify_program(&build(2)), []);
    // Room is made for the store that it waits for.
    expect(&build(3), "wait-never-armed", "wait_full full[all k]");
}

#[test]
fn roles_do_not_write_over_each_other() {
    let p = specialised(3);
    let both = change(&p, number(&p, "wgmma_fence"), &|op| {
        vec![Op::Write { slot: at(0, Index::total(3, 1)), pattern: None }, op.clone()]
    });
    expect(&both, "overwrite-in-flight", "write a[all k' + 1]");
    let stuck = change(&p, number(&p, "wgmma_fence"), &|op| vec![Op::Barrier(Sync::Block), op.clone()]);
    expect(&stuck, "barrier-mismatch", "barrier");
    let role = change(&p, number(&p, "wgmma_fence"), &|op| vec![Op::Barrier(Sync::Role), op.clone()]);
    assert_eq!(verify_program(&role), []);
}

#[test]
fn promised_accesses_do_not_collide() {
    let p = pipeline(3);
    let collide = |width, step: u32| Op::Read {
        slot: at(0, Index::turn(0, 0)),
        pattern: Some(Pattern { lanes: (0..32).map(|l| l * step).collect(), width }),
        own: false,
    };
    expect(&instead(&p, "read ring[k]", collide(4, 64)), "bank-conflict", "read ring[k] 16-way");
    expect(&instead(&p, "read ring[k]", collide(16, 200)), "pattern-range", "read ring[k] 2-way");
    let mut free = instead(&p, "read ring[k]", collide(4, 64));
    free.buffers[0].conflict_free = false;
    assert_eq!(verify_program(&free), []);
}

#[test]
fn references_and_nesting_are_checked() {
    let p = pipeline(3);
    for op in [
        Op::CpAsync(at(9, Index::at(0))),
        Op::Arrive(Phase { barrier: 0, index: Index::at(0) }),
        Op::RegisterRead(7),
        Op::CpAsync(at(0, Index::turn(4, 0))),
    ] {
        let bad = change(&p, 0, &|_| vec![op.clone()]);
        assert!(verify_program(&bad).iter().all(|d| d.code == "bad-reference"), "{op:?}");
        assert!(!verify_program(&bad).is_empty());
    }
    assert!(verify_program(&Program { warps: 0, ..p.clone() }).iter().any(|d| d.code == "bad-reference"));
    let mut twice = p.clone();
    twice.body.extend(p.body.iter().filter(|s| matches!(s, Stmt::Loop { .. })).cloned());
    assert!(verify_program(&twice).iter().any(|d| d.code == "bad-reference"));
    let mut r = Recorder::new("open", 1);
    let l = r.declare_loop("l");
    r.begin_loop(l, Trips::Any);
    assert_eq!(r.clone().finish(), None);
    r.end_if();
    assert_eq!(r.finish(), None);
}

#[test]
fn very_long_programs_are_refused() {
    let mut r = Recorder::new("long", 1);
    let loops = [0; 6].map(|_| r.declare_loop("l"));
    loops.iter().for_each(|l| r.begin_loop(*l, Trips::Fixed(8)));
    (0..10).for_each(|_| r.op(Op::Note("again".into())));
    loops.iter().for_each(|_| r.end_loop());
    expect(&r.finish().unwrap(), "too-long", "note again");
}

#[test]
fn facts_are_tried_both_ways() {
    let mut r = Recorder::new("facts", 2);
    let b = r.buffer(buffer("b", 1, Scope::Block));
    let slot = at(b, Index::at(0));
    r.begin_if(Condition::Fact("has a norm".into()));
    r.op(Op::Write { slot, pattern: None });
    r.begin_else();
    r.op(Op::CpAsync(slot));
    r.op(Op::CpCommit);
    r.end_if();
    r.op(Op::CpWait(0));
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::Read { slot, pattern: None, own: false });
    let p = r.finish().unwrap();
    assert_eq!(verify_program(&p), []);
    let found = verify_program(&without(&p, "cp_wait 0"));
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["read-before-wait", "copy-never-waited"]);
    assert!(found[0].message.ends_with("(with not has a norm)"), "{}", found[0]);
}

#[test]
fn programs_print() {
    insta::assert_snapshot!(specialised(2));
}

/// A use of memory that kernels before write, not dominated by their wait.
#[test]
fn early_uses_are_refused() {
    let p = Program { early: vec!["llvm.load %1".into()], ..pipeline(3) };
    let found = verify_program(&p);
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["use-before-predecessors"]);
    assert!(found[0].to_string().contains("llvm.load %1"), "{}", found[0]);
}

#[test]
fn every_rule_has_a_failing_case() {
    let tests = include_str!("tests.rs");
    let run = [
        include_str!("run/mod.rs"),
        include_str!("run/phases.rs"),
        include_str!("run/slots.rs"),
        include_str!("run/barriers.rs"),
    ];
    let sources = [run.concat(), include_str!("verify.rs").into()].concat();
    for (code, _) in RULES {
        assert!(tests.contains(&format!("\"{code}\"")), "`{code}` has no test");
        assert!(sources.matches(&format!("\"{code}\"")).count() > 1, "`{code}` is not checked");
    }
}
