//! Programs with the values that a kernel computes: threads follow their own numbers.

use super::program::{
    Arrivals, Atom, Buffer, Index, Op, Part, Phase, Program, Recorder, Scope, Slot, Source, Stmt, Sync,
};
use super::value::{Arith, Carry, Merge, Value, ValueId};
use super::verify::verify_program;

fn buffer(name: &str, bytes: u32, stages: u32) -> Buffer {
    Buffer { name: name.into(), bytes, stages, scope: Scope::Block, conflict_free: false, over: vec![] }
}

fn at(buffer: usize, offset: ValueId, part: Part) -> Slot {
    Slot { buffer, stage: Index::value(offset), part }
}

fn write(slot: Slot) -> Op {
    Op::Write { slot, pattern: None }
}

fn read(slot: Slot) -> Op {
    Op::Read { slot, pattern: None, own: false }
}

/// A builder's recording, with shorthands.
struct Text(Recorder);

impl Text {
    fn new(warps: u32) -> Text {
        Text(Recorder::new("k", warps))
    }

    fn c(&mut self, x: i64) -> ValueId {
        self.0.value(Value::Const(x))
    }

    fn two(&mut self, how: Arith, a: ValueId, b: ValueId) -> ValueId {
        self.0.value(Value::Two(how, a, b))
    }

    fn thread(&mut self) -> ValueId {
        self.0.value(Value::Thread)
    }

    fn finish(self) -> Program {
        self.0.finish().unwrap().sliced()
    }
}

fn codes(p: &Program) -> Vec<&'static str> {
    verify_program(p).iter().map(|d| d.code).collect()
}

/// The first warp fills a ring, the second reads it: as many turns as are asked for, guarded by the
/// parities that each computes.
fn ring(turns: i64, arrivals: u32, wrong_parity: bool) -> Program {
    let mut t = Text::new(2);
    let b = t.0.buffer(buffer("ring", 16, 2));
    let full = t.0.barrier("full", 2, Arrivals::Count(arrivals));
    let free = t.0.barrier("free", 2, Arrivals::Count(32));
    let (thread, zero, one, two, warp) = (t.thread(), t.c(0), t.c(1), t.c(2), t.c(32));
    let end = t.c(turns);
    for (barrier, stage) in [(full, zero), (full, one), (free, zero), (free, one)] {
        t.0.op(Op::BarrierInitAt(Phase { barrier, index: Index::value(stage) }));
    }
    t.0.op(Op::Barrier(Sync::Block));
    let first = t.two(Arith::Slt, thread, warp);
    t.0.begin_choose(first);
    for fills in [true, false] {
        let (turn, parity, other) = (t.0.value(Value::Carried), t.0.value(Value::Carried), t.0.value(Value::Carried));
        t.0.begin_for([zero, end, one], turn);
        let (stage, sixteen) = (t.two(Arith::RemU, turn, two), t.c(16));
        let offset = t.two(Arith::Mul, stage, sixteen);
        let phase = |barrier| Phase { barrier, index: Index::value(stage) };
        if fills {
            let empty = t.two(Arith::Xor, parity, if wrong_parity { zero } else { one });
            t.0.op(Op::WaitParity(phase(free), empty));
            t.0.op(write(at(b, offset, Part::Some)));
            t.0.op(Op::Arrive(phase(full)));
        } else {
            t.0.op(Op::WaitParity(phase(full), parity));
            t.0.op(read(at(b, offset, Part::Some)));
            t.0.op(Op::Arrive(phase(free)));
        }
        // The parity changes after the second stage.
        let up = t.two(Arith::Xor, parity, stage);
        t.0.end_for(vec![Carry { arg: parity, first: zero, next: up, last: other }], []);
        if fills {
            t.0.begin_otherwise();
        }
    }
    t.0.end_choose(vec![]);
    t.finish()
}

#[test]
fn threads_follow_the_values_that_they_compute() {
    // Two lanes are followed of each warp, and all of them arrive.
    let by_two = |p: Program| {
        let barriers =
            p.barriers.into_iter().map(|b| super::program::Barrier { arrivals: Arrivals::Count(2), ..b }).collect();
        Program { barriers, ..p }
    };
    for turns in [0, 1, 2, 3, 4, 9] {
        assert_eq!(codes(&by_two(ring(turns, 32, false))), [""; 0], "{turns} turns");
    }
    let stuck = codes(&by_two(ring(3, 32, true)));
    assert!(stuck.contains(&"wait-never-armed"), "{stuck:?}");
    // One more arrival than there is.
    let mut p = by_two(ring(3, 32, false));
    p.barriers[0].arrivals = Arrivals::Count(3);
    assert!(codes(&p).contains(&"wait-never-armed"));
}

/// Each thread writes a word, and reads one: its own, or that of its neighbour.
fn words(part: fn(u32) -> Part, neighbour: bool, meets: bool) -> Program {
    let mut t = Text::new(2);
    let b = t.0.buffer(buffer("words", 256, 1));
    let (thread, four, one, mask) = (t.thread(), t.c(4), t.c(1), t.c(63));
    let own = t.two(Arith::Mul, thread, four);
    t.0.op(write(at(b, own, part(4))));
    if meets {
        t.0.op(Op::Barrier(Sync::Block));
    }
    let next = t.two(Arith::Add, thread, one);
    let next = t.two(Arith::And, next, mask);
    let next = t.two(Arith::Mul, next, four);
    t.0.op(read(at(b, if neighbour { next } else { own }, part(4))));
    t.finish()
}

#[test]
fn what_a_thread_wrote_itself_it_reads_without_a_barrier() {
    assert_eq!(codes(&words(Part::Bytes, false, false)), [""; 0]);
    assert_eq!(codes(&words(Part::Bytes, true, false)), ["read-before-barrier"]);
    assert_eq!(codes(&words(Part::Bytes, true, true)), [""; 0]);
    // `ldmatrix` gives a lane the words other lanes point to.
    assert_eq!(codes(&words(Part::Lanes, false, false)), ["read-before-barrier"]);
}

/// Each thread writes a word and all are read; then each writes one further on, and reads its own.
#[test]
fn a_word_that_another_has_replaced_is_not_the_threads_own() {
    let replaced = |by: i64, meets: bool| {
        let mut t = Text::new(2);
        let b = t.0.buffer(buffer("words", 256, 1));
        let (thread, four, far, mask) = (t.thread(), t.c(4), t.c(by), t.c(63));
        let own = t.two(Arith::Mul, thread, four);
        t.0.op(write(at(b, own, Part::Bytes(4))));
        t.0.op(Op::Barrier(Sync::Block));
        t.0.op(read(at(b, own, Part::Some)));
        t.0.op(Op::Barrier(Sync::Block));
        let next = t.two(Arith::Add, thread, far);
        let next = t.two(Arith::And, next, mask);
        let next = t.two(Arith::Mul, next, four);
        t.0.op(write(at(b, next, Part::Bytes(4))));
        if meets {
            t.0.op(Op::Barrier(Sync::Block));
        }
        t.0.op(read(at(b, own, Part::Bytes(4))));
        t.finish()
    };
    // Among the followed threads, one writes the other's word, or none does.
    for by in [1, 7] {
        assert_eq!(codes(&replaced(by, false)), ["read-before-barrier"], "{by} words on");
        assert_eq!(codes(&replaced(by, true)), [""; 0], "{by} words on");
    }
}

#[test]
fn bytes_apart_do_not_meet() {
    let update = |part: fn(u32) -> Part| {
        let mut t = Text::new(2);
        let b = t.0.buffer(buffer("sums", 256, 1));
        let (thread, four) = (t.thread(), t.c(4));
        let own = t.two(Arith::Mul, thread, four);
        t.0.op(write(at(b, own, Part::Some)));
        t.0.op(Op::Barrier(Sync::Block));
        t.0.op(read(at(b, own, part(4))));
        t.0.op(write(at(b, own, part(4))));
        t.finish()
    };
    assert_eq!(codes(&update(Part::Apart)), [""; 0]);
    assert_eq!(codes(&update(Part::Bytes)), ["overwrite-while-read"]);
}

#[test]
fn buffers_in_the_place_of_others_are_ordered_with_them() {
    let build = |over: Vec<usize>, meets: bool| {
        let mut t = Text::new(2);
        let ring = t.0.buffer(buffer("ring", 16, 3));
        let sums = t.0.buffer(Buffer { over, ..buffer("sums", 48, 1) });
        let (zero, last) = (t.c(0), t.c(32));
        t.0.op(write(at(ring, last, Part::Some)));
        t.0.op(Op::Barrier(Sync::Block));
        t.0.op(read(at(ring, last, Part::Some)));
        if meets {
            t.0.op(Op::Barrier(Sync::Block));
        }
        t.0.op(write(at(sums, zero, Part::Some)));
        t.finish()
    };
    assert_eq!(codes(&build(vec![], false)), [""; 0]);
    assert_eq!(codes(&build(vec![0], false)), ["overwrite-while-read"]);
    assert_eq!(codes(&build(vec![0], true)), [""; 0]);
    assert_eq!(codes(&build(vec![7], true)), ["bad-reference"]);
}

#[test]
fn lanes_that_collide_are_found_by_their_addresses() {
    let build = |apart: i64| {
        let mut t = Text::new(1);
        let b = t.0.buffer(Buffer { conflict_free: true, ..buffer("rows", 4096, 1) });
        let (thread, by) = (t.thread(), t.c(apart));
        let own = t.two(Arith::Mul, thread, by);
        t.0.op(write(at(b, own, Part::Bytes(4))));
        t.finish()
    };
    assert_eq!(codes(&build(4)), [""; 0]);
    assert_eq!(codes(&build(128)), ["bank-conflict"]);
}

#[test]
fn what_is_unknown_is_tried() {
    let build = |samples: &[i64]| {
        let mut t = Text::new(2);
        let b = t.0.buffer(buffer("word", 4, 1));
        let (some, zero) = (t.0.value(Value::Unknown(vec![0, 1])), t.c(0));
        t.0.assume(some, samples);
        t.0.op(write(at(b, zero, Part::Some)));
        t.0.begin_choose(some);
        t.0.op(Op::Barrier(Sync::Block));
        t.0.end_choose(vec![]);
        t.0.op(read(at(b, zero, Part::Some)));
        t.finish()
    };
    assert_eq!(codes(&build(&[1])), [""; 0]);
    assert_eq!(codes(&build(&[0, 1])), ["read-before-barrier"]);
}

/// Groups of warps that take turns: each waits for the other to have counted.
#[test]
fn named_barriers_count_threads() {
    let build = |counts: bool| {
        let mut t = Text::new(2);
        let b = t.0.buffer(buffer("word", 4, 1));
        let (thread, warp, zero, id) = (t.thread(), t.c(32), t.c(0), t.c(2));
        let first = t.two(Arith::Slt, thread, warp);
        t.0.begin_choose(first);
        t.0.op(write(at(b, zero, Part::Some)));
        if counts {
            t.0.op(Op::BarrierArrive(Sync::Threads(id, 64)));
        }
        t.0.begin_otherwise();
        t.0.op(Op::Barrier(Sync::Threads(id, 64)));
        t.0.op(read(at(b, zero, Part::Some)));
        t.0.end_choose(vec![]);
        t.finish()
    };
    assert_eq!(codes(&build(true)), [""; 0]);
    assert!(codes(&build(false)).contains(&"barrier-mismatch"));
}

/// A lane frees a stage for its warp: the others have read it when all wait for the products.
#[test]
fn lanes_wait_for_products_together() {
    let build = |waits: bool| {
        let mut t = Text::new(4);
        let b = t.0.buffer(buffer("stage", 16, 1));
        let (acc, a) = (t.0.registers("sums"), t.0.registers("a"));
        let (zero, lanes) = (t.c(0), t.c(31));
        let thread = t.thread();
        let slot = at(b, zero, Part::Some);
        t.0.op(write(slot));
        t.0.op(Op::FenceAsync);
        t.0.op(Op::Barrier(Sync::Block));
        t.0.op(Op::WgmmaFence);
        t.0.op(Op::Wgmma(Atom::M64K16(8), acc, Source::Registers(a), slot));
        t.0.op(Op::WgmmaCommit);
        t.0.op(Op::WgmmaWait(u32::from(!waits)));
        let lane = t.two(Arith::And, thread, lanes);
        let first = t.two(Arith::Eq, lane, zero);
        let free = t.0.barrier("free", 1, Arrivals::Count(4));
        let phase = Phase { barrier: free, index: Index::value(zero) };
        t.0.op(Op::BarrierInitAt(phase));
        t.0.op(Op::Barrier(Sync::Block));
        t.0.begin_choose(first);
        t.0.op(Op::Arrive(phase));
        t.0.end_choose(vec![]);
        t.0.op(Op::WaitParity(phase, zero));
        t.0.op(write(slot));
        t.0.op(Op::WgmmaWait(0));
        t.finish()
    };
    assert_eq!(codes(&build(true)), [""; 0]);
    assert!(codes(&build(false)).contains(&"overwrite-while-read"));
}

#[test]
fn registers_are_those_of_warps() {
    let build = |more: u32| {
        let mut t = Text::new(8);
        let (thread, half) = (t.thread(), t.c(128));
        let first = t.two(Arith::Slt, thread, half);
        t.0.begin_choose(first);
        t.0.op(Op::Registers(40));
        t.0.begin_otherwise();
        t.0.op(Op::Registers(more));
        t.0.end_choose(vec![]);
        t.finish()
    };
    assert_eq!(codes(&build(216)), [""; 0]);
    assert_eq!(codes(&build(260)), ["register-budget"]);
    let many = Program { warps: 16, ..build(216) };
    assert!(codes(&many).contains(&"register-budget"), "12 warps with 216 and 4 with 40 are more than 16 with 128");
}

#[test]
fn values_that_decide_nothing_are_dropped() {
    let mut t = Text::new(1);
    let b = t.0.buffer(buffer("words", 4, 4));
    let (thread, one, unused) = (t.thread(), t.c(1), t.0.value(Value::Unknown(vec![0, 1])));
    let address = t.two(Arith::Mul, thread, one);
    t.two(Arith::Add, thread, unused);
    t.0.begin_choose(unused);
    t.two(Arith::Sub, thread, one);
    t.0.begin_otherwise();
    let (x, result) = (t.two(Arith::Xor, thread, one), t.0.value(Value::Carried));
    t.0.end_choose(vec![Merge { result, then: one, other: x }]);
    t.0.op(write(at(b, address, Part::Bytes(4))));
    let p = t.finish();
    assert_eq!(p.body.len(), 2, "{p}");
    assert!(matches!(p.body[0], Stmt::Let(v) if v == address), "{p}");
    assert!(!p.values.iter().any(|v| matches!(v, Value::Unknown(_))));
}

#[test]
fn arithmetic_is_that_of_32_bits() {
    let big = i64::from(i32::MIN);
    assert_eq!(Arith::Add.of(i64::from(i32::MAX), 1), big);
    assert_eq!(Arith::DivU.of(-1, 2), i64::from(i32::MAX));
    assert_eq!(Arith::MinU.of(-1, 3), 3);
    assert_eq!(Arith::MaxS.of(-1, 3), 3);
    assert_eq!((Arith::Slt.of(-1, 0), Arith::Ult.of(-1, 0)), (1, 0));
    assert_eq!(Arith::ShrU.of(-1, 28), 15);
    assert_eq!((Arith::DivU.of(1, 0), Arith::Shl.of(1, 40)), (0, 0));
    assert!(Arith::ALL.iter().all(|(name, how)| Arith::named(name) == Some(*how)));
}
