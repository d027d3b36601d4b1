//! Asynchronous copies, mbarriers and their faults.

use crate::common::{block, module};
use llmcc_ptx::{Access, Fault, FaultKind, Memory, Stats};

const REGS: &str = ".reg .b32 %r<12>; .reg .b64 %x<9>; .reg .pred %p<9>; .shared .align 128 .b8 s[8192]; .shared .align 8 .b8 bar[64];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, s; add.u32 %r3, %r2, %r1; ld.param.u64 %x0, [p]; ld.param.u64 %x1, [q];
    cvt.u64.u32 %x2, %r1; add.s64 %x3, %x0, %x2; add.s64 %x4, %x1, %x2; setp.eq.u32 %p0, %r0, 0;\n";

/// Runs `code`; p is an input of 4 KiB of counting words, q an output.
fn run(threads: u32, code: &str) -> (Result<Stats, Fault>, Vec<u32>) {
    let mut mem = Memory::new();
    let data: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    let args = [mem.alloc_from(&data), mem.alloc(4096)];
    let r = block(&module(".param .u64 p, .param .u64 q", &format!("{REGS}{code}\nret;")), threads, &args, &mut mem);
    let out = mem
        .read(args[1], 4096)
        .expect("mapped")
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("4")))
        .collect();
    (r, out)
}

fn fine(threads: u32, code: &str) -> Vec<u32> {
    let (r, out) = run(threads, code);
    r.unwrap_or_else(|f| panic!("{f}"));
    out
}

fn fault(threads: u32, code: &str) -> Fault {
    run(threads, code).0.err().unwrap_or_else(|| panic!("no fault in {code}"))
}

const READ: &str = "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%x4], {%r4, %r5, %r6, %r7};";

#[test]
fn copies_of_threads() {
    let copy = "cp.async.cg.shared.global [%r3], [%x3], 16; cp.async.commit_group;";
    let out = fine(32, &format!("{copy} cp.async.wait_group 0; {READ}"));
    assert!((0..128).all(|i| out[i] == i as u32));
    // Zero fill beyond the source size.
    let out = fine(32, &format!("cp.async.ca.shared.global [%r3], [%x3], 16, 8; cp.async.wait_all; {READ}"));
    assert!((0..128).all(|i| out[i] == if i % 4 < 2 { i as u32 } else { 0 }));
    // Two groups: the older one is there, the newer one not yet.
    let two = "cp.async.ca.shared.global [%r3], [%x3], 16; cp.async.commit_group; cp.async.ca.shared.global [%r3+1024], [%x3+1024], 16; cp.async.commit_group; cp.async.wait_group 1;";
    fine(32, &format!("{two} {READ}"));
    let f = fault(32, &format!("{two} ld.shared.b32 %r4, [%r3+1024];"));
    assert!(
        matches!(&f.kind, FaultKind::InFlight { access: Access::Read, other, .. } if other.thread == Some(0)),
        "{f}"
    );
    // Committed but not waited for; waited for but never committed.
    assert!(matches!(fault(32, &format!("{copy} {READ}")).kind, FaultKind::InFlight { .. }));
    assert!(matches!(
        fault(32, &format!("cp.async.ca.shared.global [%r3], [%x3], 16; cp.async.wait_group 0; {READ}")).kind,
        FaultKind::InFlight { .. }
    ));
    assert!(matches!(
        fault(32, &format!("{copy} st.shared.b32 [%r3], 0;")).kind,
        FaultKind::InFlight { access: Access::Write, .. }
    ));
    // Another thread's copy needs a barrier after the wait.
    let other = "xor.b32 %r8, %r1, 16; add.u32 %r8, %r2, %r8; ld.shared.b32 %r4, [%r8];";
    assert!(matches!(fault(32, &format!("{copy} cp.async.wait_group 0; {other}")).kind, FaultKind::Race { .. }));
    fine(32, &format!("{copy} cp.async.wait_group 0; bar.sync 0; {other}"));
    // The buffer is used again while others may still read it.
    let again = format!(
        "{copy} cp.async.wait_group 0; bar.sync 0; xor.b32 %r8, %r1, 512; add.u32 %r8, %r2, %r8; ld.shared.b32 %r4, [%r8];"
    );
    assert!(matches!(
        fault(64, &format!("{again} {copy}")).kind,
        FaultKind::Race { access: Access::Write, other_access: Access::Read, .. }
            | FaultKind::InFlight { access: Access::Read, .. }
    ));
    fine(64, &format!("{again} bar.sync 0; {copy}"));
    assert!(matches!(
        fault(1, "cp.async.ca.shared.global [%r3], [%x3+4], 16;").kind,
        FaultKind::Misaligned { space: "global", .. }
    ));
    assert!(matches!(fault(1, "cp.async.ca.shared.global [%r3], [%x1], 16;").kind, FaultKind::Uninitialised { .. }));
}

/// Bulk copies through a ring of two stages: a producer warp and a consumer warp, mbarriers for
/// full and empty.
#[test]
fn a_ring_of_mbarriers() {
    let code = "
        mov.u32 %r2, s; mov.u32 %r10, bar; shr.u32 %r11, %r0, 5;
        @!%p0 bra READY;
        mbarrier.init.shared::cta.b64 [%r10], 1; mbarrier.init.shared::cta.b64 [%r10+8], 1;
        mbarrier.init.shared::cta.b64 [%r10+16], 32; mbarrier.init.shared::cta.b64 [%r10+24], 32;
        fence.mbarrier_init.release.cluster;
        READY: bar.sync 0;
        mov.u32 %r4, 0; setp.ne.u32 %p1, %r11, 0; @%p1 bra CONSUME;
        @!%p0 bra DONE;
        PRODUCE:
        and.b32 %r5, %r4, 1; shr.u32 %r6, %r4, 1; and.b32 %r6, %r6, 1; xor.b32 %r7, %r6, 1;
        mad.lo.u32 %r8, %r5, 8, %r10; mad.lo.u32 %r9, %r5, 512, %r2;
        EMPTY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8+16], %r7; @!%p2 bra EMPTY;
        mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r8], 512;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%x0], 512, [%r8];
        add.s64 %x0, %x0, 512; add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 8; @%p3 bra PRODUCE;
        bra DONE;
        CONSUME:
        and.b32 %r5, %r4, 1; shr.u32 %r6, %r4, 1; and.b32 %r6, %r6, 1;
        mad.lo.u32 %r8, %r5, 8, %r10; mad.lo.u32 %r9, %r5, 512, %r2;
        FULL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], %r6; @!%p2 bra FULL;
        and.b32 %r7, %r0, 31; mad.lo.u32 %r9, %r7, 16, %r9; ld.shared.b32 %r6, [%r9];
        mad.lo.u32 %r5, %r4, 32, %r7; mad.wide.u32 %x5, %r5, 4, %x1; st.global.b32 [%x5], %r6;
        RELEASE
        add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 8; @%p3 bra CONSUME;
        DONE:";
    let release = "mbarrier.arrive.release.cta.shared::cta.b64 %x6, [%r8+16];";
    let out = fine(64, &code.replace("RELEASE", release));
    assert!((0..256).all(|i| out[i] == 4 * i as u32), "{out:?}");
    // Without the arrivals the producer waits for ever.
    let f = fault(64, &code.replace("RELEASE", ""));
    assert!(
        matches!(&f.kind, FaultKind::Deadlock { waiting } if waiting.contains("phase 0 awaits 32 of 32 arrivals")),
        "{f}"
    );
    // A producer that does not wait for empty stages overwrites data in flight or being read.
    let careless = code
        .replace("RELEASE", release)
        .replace("EMPTY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8+16], %r7; @!%p2 bra EMPTY;", "");
    let f = fault(64, &careless);
    assert!(
        matches!(&f.kind, FaultKind::Operand(what) if what.contains("1 arrivals at an mbarrier that awaits 0")),
        "{f}"
    );
    // A consumer that does not wait for full stages.
    let hasty = code
        .replace("RELEASE", release)
        .replace("FULL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], %r6; @!%p2 bra FULL;", "");
    let f = fault(64, &hasty);
    assert!(
        matches!(f.kind, FaultKind::InFlight { .. } | FaultKind::Race { .. } | FaultKind::Uninitialised { .. }),
        "{f}"
    );
    // The wrong number of bytes.
    let short = code.replace("RELEASE", release).replace("[%r8], 512;\n", "[%r8], 528;\n");
    let f = fault(64, &short);
    assert!(matches!(&f.kind, FaultKind::Deadlock { waiting } if waiting.contains("16 bytes")), "{f}");
}

#[test]
fn mbarriers_need_their_init() {
    let f = fault(32, "mbarrier.arrive.shared::cta.b64 %x5, [bar];");
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("no mbarrier")), "{f}");
    let init = "@%p0 mbarrier.init.shared::cta.b64 [bar], 32;";
    assert!(matches!(
        fault(32, &format!("{init} mbarrier.arrive.shared::cta.b64 %x5, [bar];")).kind,
        FaultKind::Race { .. }
    ));
    let wait = "mbarrier.arrive.shared::cta.b64 %x5, [bar]; L: mbarrier.test_wait.shared::cta.b64 %p1, [bar], %x5; @!%p1 bra L;";
    fine(32, &format!("{init} bar.sync 0; {wait}"));
    let f = fault(64, &format!("{init} bar.sync 0; mbarrier.arrive.shared::cta.b64 %x5, [bar], 33;"));
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("33 arrivals")), "{f}");
    // Waiting on an mbarrier orders memory like a barrier.
    let ordered =
        "st.shared.b32 [%r3], %r0; bar.sync 0; xor.b32 %r8, %r1, 512; add.u32 %r8, %r2, %r8; st.shared.b32 [%r3], 1;";
    let init = "@%p0 mbarrier.init.shared::cta.b64 [bar], 64;";
    fine(64, &format!("{init} {ordered} {wait} ld.shared.b32 %r4, [%r8];"));
    assert!(matches!(
        fault(64, &format!("{init} {ordered} mbarrier.arrive.shared::cta.b64 %x5, [bar]; ld.shared.b32 %r4, [%r8];"))
            .kind,
        FaultKind::Race { .. }
    ));
    // cp.async reports to an mbarrier.
    let copy = "cp.async.ca.shared.global [%r3], [%x3], 16; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar]; L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra L;";
    let out = fine(64, &format!("{init} bar.sync 0; {copy} {READ}"));
    assert!((0..256).all(|i| out[i] == i as u32));
}

/// Bulk stores read shared memory through the async proxy.
#[test]
fn bulk_stores() {
    let fill = "st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};";
    let store = "@!%p0 bra END; cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r2], 512; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:";
    let out = fine(32, &format!("{fill} fence.proxy.async.shared::cta; bar.sync 0; {store}"));
    assert!((0..128).all(|i| out[i] == i as u32 / 4));
    let f = fault(32, &format!("{fill} bar.sync 0; {store}"));
    assert!(matches!(&f.kind, FaultKind::ProxyFence { other, .. } if other.thread == Some(0)), "{f}");
    let early = "@!%p0 bra END; cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r2], 512; cp.async.bulk.commit_group; END: st.shared.b32 [%r3], 0;";
    assert!(matches!(
        fault(32, &format!("{fill} fence.proxy.async; bar.sync 0; {early}")).kind,
        FaultKind::InFlight { .. }
    ));
    let kept = early.replace("END:", "cp.async.bulk.wait_group.read 0; END: bar.sync 0;");
    let out = fine(32, &format!("{fill} fence.proxy.async; bar.sync 0; {kept}"));
    assert!((0..128).all(|i| out[i] == i as u32 / 4));
    // A block must not end while its memory is read.
    let f = fault(
        32,
        &format!("{fill} fence.proxy.async; bar.sync 0; {}", early.replace("END: st.shared.b32 [%r3], 0;", "END:")),
    );
    assert!(matches!(f.kind, FaultKind::InFlight { .. }), "{f}");
    let f = fault(1, "mov.u32 %r4, 24; cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r2], %r4;");
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("multiple of 16")), "{f}");
}

/// Registers only move between warps of a block of 384 threads, which have 168 each.
#[test]
fn registers_move_between_warps() {
    let roles =
        |many: &str, few: &str| format!("setp.lt.u32 %p1, %r0, 256; @!%p1 bra FEW; {many} bra END; FEW: {few} END:");
    let (inc, dec) = ("setmaxnreg.inc.sync.aligned.u32 224;", "setmaxnreg.dec.sync.aligned.u32 56;");
    fine(384, &roles(inc, dec));
    // One who waits for registers that nobody gives up.
    let f = fault(384, &roles("setmaxnreg.inc.sync.aligned.u32 232;", dec));
    assert!(matches!(&f.kind, FaultKind::Deadlock { waiting } if waiting.contains("polls")), "{f}");
    let f = fault(384, &roles("setmaxnreg.dec.sync.aligned.u32 176;", dec));
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("to 176 registers, of 168")), "{f}");
    let f = fault(384, &roles(inc, &format!("{dec} setmaxnreg.inc.sync.aligned.u32 40;")));
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("inc to 40 registers, of 56")), "{f}");
    // Three of four warps of a group.
    let f = fault(384, &format!("setp.lt.u32 %p1, %r0, 96; @!%p1 bra END; {dec} END:"));
    assert!(matches!(&f.kind, FaultKind::Operand(what) if what.contains("56 and 168 registers")), "{f}");
}

/// A bulk copy reports to an mbarrier whose initialisation the async proxy must know of.
#[test]
fn bulk_copies_need_fenced_mbarriers() {
    let code = "@%p0 mbarrier.init.shared::cta.b64 [bar], 1; FENCE bar.sync 0; @!%p0 bra END;
        mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 512; mov.u32 %r10, bar;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%x0], 512, [%r10];
        END: WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra WAIT;";
    let with = |fence: &str| format!("{} {READ}", code.replace("FENCE", fence));
    for fence in ["fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;"] {
        let out = fine(32, &with(fence));
        assert!((0..128).all(|i| out[i] == i as u32));
    }
    let f = fault(32, &with(""));
    assert!(matches!(&f.kind, FaultKind::ProxyFence { other, .. } if other.thread == Some(0)), "{f}");
    // By a warp that does not know of it yet.
    let f = fault(64, &with("setp.ge.u32 %p2, %r0, 32; @%p2 fence.proxy.async.shared::cta;"));
    assert!(matches!(&f.kind, FaultKind::ProxyFence { .. }), "{f}");
}
