//! Exchange between lanes, and divergence.

use crate::common::{self, map, module};
use llmcc_ptx::{FaultKind, Memory};

fn lane(t: usize) -> usize {
    t % 32
}

#[test]
fn shuffles() {
    let value = |t: usize| (t * 3 + 5) as u64;
    let run = |code: &str| map(code, "%oa", &[&value]);
    let expect = |code: &str, from: &dyn Fn(usize) -> usize| {
        for (t, got) in run(code).into_iter().enumerate() {
            assert_eq!(got, value(t / 32 * 32 + from(lane(t))), "{code} in thread {t}");
        }
    };
    expect("shfl.sync.bfly.b32 %oa, %a0, 5, 31, -1;", &|l| l ^ 5);
    expect("shfl.sync.down.b32 %oa, %a0, 3, 31, -1;", &|l| if l + 3 < 32 { l + 3 } else { l });
    expect("shfl.sync.up.b32 %oa, %a0, 3, 0, -1;", &|l| if l >= 3 { l - 3 } else { l });
    expect("shfl.sync.idx.b32 %oa, %a0, 7, 31, -1;", &|_| 7);
    // Segments of eight lanes: the mask of the segment is in bits 8 to 12.
    expect("shfl.sync.idx.b32 %oa, %a0, 2, 0x181f, -1;", &|l| l / 8 * 8 + 2);
    expect("shfl.sync.down.b32 %oa, %a0, 3, 0x181f, -1;", &|l| if l % 8 + 3 < 8 { l + 3 } else { l });
    let inside = map("shfl.sync.down.b32 %a1|%op, %a0, 3, 31, -1;", "%op", &[&value]);
    assert!(inside.iter().enumerate().all(|(t, p)| (*p == 1) == (lane(t) < 29)));
}

#[test]
fn votes_and_reductions() {
    let odd = |t: usize| (t % 2) as u64;
    let value = |t: usize| (t / 4) as u64;
    assert!(map("vote.sync.ballot.b32 %oa, %p0, -1;", "%oa", &[&odd]).iter().all(|v| *v == 0xaaaa_aaaa));
    assert!(map("vote.sync.any.pred %op, !%p0, -1;", "%op", &[&odd]).iter().all(|v| *v == 1));
    assert!(map("vote.sync.all.pred %op, %p0, -1;", "%op", &[&odd]).iter().all(|v| *v == 0));
    assert!(map("activemask.b32 %oa;", "%oa", &[]).iter().all(|v| *v == 0xffff_ffff));
    let sums = map("redux.sync.add.s32 %oa, %a0, -1;", "%oa", &[&value]);
    for (t, s) in sums.iter().enumerate() {
        let first = t / 32 * 32;
        assert_eq!(*s, (first..first + 32).map(value).sum::<u64>());
    }
    let same = map("match.any.sync.b32 %oa, %a0, -1;", "%oa", &[&value]);
    assert!(same.iter().enumerate().all(|(t, m)| *m == 0xf << (lane(t) / 4 * 4)));
    let leaders = map("elect.sync %a1|%op, -1;", "%op", &[]);
    assert!(leaders.iter().enumerate().all(|(t, p)| (*p == 1) == (lane(t) == 0)));
}

/// Loops of different lengths, nested branches and early returns.
#[test]
fn divergence_joins_again() {
    let n = |t: usize| (t * 7 % 13) as u64;
    // Collatz-like: the number of steps differs in every lane.
    let code = "
        mov.u32 %oa, 0;
        LOOP: setp.eq.u32 %p1, %a0, 0; @%p1 bra DONE;
        and.b32 %a1, %a0, 1; setp.eq.u32 %p2, %a1, 1; @%p2 bra ODD;
        add.u32 %oa, %oa, 10; shr.u32 %a0, %a0, 1; bra.uni LOOP;
        ODD: add.u32 %oa, %oa, 1; sub.u32 %a0, %a0, 1; bra.uni LOOP;
        DONE: shfl.sync.bfly.b32 %oa, %oa, 1, 31, -1;";
    let steps = |mut v: u64| {
        let mut sum = 0;
        while v > 0 {
            if v % 2 == 1 {
                sum += 1;
                v -= 1;
            } else {
                sum += 10;
                v /= 2;
            }
        }
        sum
    };
    for (t, got) in map(code, "%oa", &[&n]).into_iter().enumerate() {
        assert_eq!(got, steps(n(t ^ 1)), "thread {t}");
    }
    // Predicated instructions and exits of single lanes.
    let body = "
        .reg .b32 %r<4>; .reg .b64 %x<3>; .reg .pred %p<3>;
        ld.param.u64 %x0, [p]; mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %x0;
        mov.u32 %r1, 1; setp.gt.u32 %p0, %r0, 9; @%p0 mov.u32 %r1, 2; @!%p0 add.u32 %r1, %r1, 4;
        st.global.b32 [%x0], %r1;
        @%p0 ret;
        activemask.b32 %r2; st.global.b32 [%x0], %r2; bar.sync 0; exit;";
    let mut mem = Memory::new();
    let p = mem.alloc(160);
    common::block(&module(".param .u64 p", body), 40, &[p], &mut mem).unwrap_or_else(|f| panic!("{f}"));
    let words: Vec<u32> =
        mem.read(p, 160).expect("mapped").chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4"))).collect();
    assert!(words.iter().enumerate().all(|(t, w)| *w == if t > 9 { 2 } else { 0x3ff }), "{words:x?}");
}

#[test]
fn lanes_that_are_missing_are_reported() {
    let run = |code: &str| {
        let body =
            format!(".reg .b32 %r<4>; .reg .pred %p; mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 7;\n{code}\nret;");
        common::block(&module("", &body), 64, &[], &mut Memory::new()).expect_err(code)
    };
    let f = run("@%p shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;");
    assert_eq!(f.kind, FaultKind::Diverged { active: 0x7f, expected: 0xffff_ffff });
    assert_eq!((f.line, f.thread), (7, [0, 0, 0]));
    let f = run("@%p shfl.sync.bfly.b32 %r1, %r0, 8, 31, 0x7f;");
    assert_eq!(f.kind, FaultKind::InactiveLane { source: 8 });
    let f = run("@%p bar.sync 0;");
    assert!(matches!(f.kind, FaultKind::Diverged { active: 0x7f, .. }), "{f}");
    let f = run("bar.sync 1, 96;");
    assert!(matches!(&f.kind, FaultKind::Deadlock { waiting } if waiting.contains("warp 1 waits at barrier 1")), "{f}");
    let f = run("setp.lt.u32 %p, %r0, 32; @%p bar.sync 1; @!%p bar.sync 2;");
    assert!(matches!(f.kind, FaultKind::Deadlock { .. }), "{f}");
}
