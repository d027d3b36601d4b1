//! Every fault of memory, provoked.

use crate::common::{block, module, parse};
use llmcc_ptx::{Access, Fault, FaultKind, Memory, Options, launch};

const REGS: &str = ".reg .b32 %r<9>; .reg .b64 %x<9>; .reg .b16 %h<4>; .reg .pred %p<4>; .shared .align 16 .b8 s[4096];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;\n";

fn run(threads: u32, code: &str) -> Result<llmcc_ptx::Stats, Fault> {
    let mut mem = Memory::new();
    let p = mem.alloc_from(&[0; 256]);
    mem.poison(p + 128, 64).expect("inside");
    block(&module(".param .u64 p", &format!("{REGS}ld.param.u64 %x0, [p];\n{code}\nret;")), threads, &[p], &mut mem)
}

fn fault(threads: u32, code: &str) -> Fault {
    run(threads, code).err().unwrap_or_else(|| panic!("no fault in {code}"))
}

fn fine(threads: u32, code: &str) {
    run(threads, code).unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn addresses_outside_and_misaligned() {
    let f = fault(65, "cvt.u64.u32 %x1, %r1; add.s64 %x0, %x0, %x1;\nst.global.b32 [%x0], %r0;");
    assert!(
        matches!(&f.kind, FaultKind::OutOfBounds { space: "global", access: Access::Write, bytes: 4, nearest, .. } if nearest.contains("0 bytes beyond the end of the 256-byte buffer")),
        "{f}"
    );
    assert_eq!((f.thread, &*f.text), ([64, 0, 0], "st.global.b32 [%x0], %r0"));
    assert!(f.to_string().contains("kernel k, line "), "{f}");
    let f = fault(1, "ld.global.b32 %r4, [%x0+-4];");
    assert!(matches!(&f.kind, FaultKind::OutOfBounds { nearest, .. } if nearest.contains("4 bytes before")), "{f}");
    // An access across the end.
    assert!(matches!(fault(1, "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%x0+248];").kind, FaultKind::Misaligned { .. }));
    assert!(matches!(
        fault(1, "ld.global.b32 %r4, [%x0+2];").kind,
        FaultKind::Misaligned { space: "global", bytes: 4, .. }
    ));
    // An address cut to 32 bits.
    assert!(matches!(
        fault(1, "cvt.u32.u64 %r4, %x0; cvt.u64.u32 %x1, %r4; ld.global.b32 %r4, [%x1];").kind,
        FaultKind::OutOfBounds { .. }
    ));
    assert!(matches!(fault(1, "st.shared.b32 [s+4096], %r0;").kind, FaultKind::OutOfBounds { space: "shared", .. }));
    assert!(matches!(
        fault(1, "mov.u32 %r4, 0; st.shared.b32 [%r4], %r0;").kind,
        FaultKind::OutOfBounds { space: "shared", .. }
    ));
    assert!(matches!(
        fault(1, ".local .align 4 .b8 l[8]; st.local.b32 [l+8], %r0;").kind,
        FaultKind::OutOfBounds { space: "local", .. }
    ));
    assert!(matches!(fault(1, "ld.param.b64 %x1, [p+8];").kind, FaultKind::OutOfBounds { space: "parameter", .. }));
}

#[test]
fn bytes_that_nobody_wrote() {
    let f = fault(1, "ld.global.v2.b32 {%r4, %r5}, [%x0+128];");
    assert!(matches!(f.kind, FaultKind::Uninitialised { space: "global", address } if address % 256 == 128), "{f}");
    fine(1, "st.global.b32 [%x0+128], %r0; ld.global.b32 %r4, [%x0+128];");
    // Half of a word.
    assert!(matches!(
        fault(1, "st.global.b16 [%x0+130], %h0; ld.global.b32 %r4, [%x0+128];").kind,
        FaultKind::Uninitialised { .. }
    ));
    let f = fault(32, "st.shared.b16 [%r3], %h0; bar.sync 0; ld.shared.b32 %r4, [%r3];");
    assert!(matches!(f.kind, FaultKind::Uninitialised { space: "shared", .. }), "{f}");
    let mut mem = Memory::new();
    let text = module("", &format!("{REGS} ld.shared.b32 %r4, [%r3]; ret;"));
    let lax = Options { check_uninitialised: false, ..Options::default() };
    launch(&parse(&text), "k", [1, 1, 1], [32, 1, 1], 0, &[], &mut mem, &lax).unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn constants_are_constant() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.const .align 4 .b8 c[4] = {1, 2, 3, 4};
        .visible .entry k() { .reg .b64 %x; .reg .b32 %r; mov.b64 %x, c; ld.global.b32 %r, [%x]; st.global.b32 [%x], %r; ret; }";
    let f = block(text, 1, &[], &mut Memory::new()).expect_err("a write to a constant");
    assert!(matches!(f.kind, FaultKind::Constant { .. }), "{f}");
}

/// Each thread writes its word; then a word of another warp is read or overwritten.
#[test]
fn races_between_warps() {
    let other = "xor.b32 %r4, %r1, 128; add.u32 %r4, %r2, %r4;";
    let f = fault(64, &format!("st.shared.b32 [%r3], %r0;\n{other}\nld.shared.b32 %r5, [%r4];"));
    // The first warp runs to its end before the second wrote: it sees nothing written.
    assert!(matches!(f.kind, FaultKind::Uninitialised { .. } | FaultKind::Race { .. }), "{f}");
    let init = "st.shared.b32 [%r3], %r0; bar.sync 0;";
    let f = fault(
        64,
        &format!("{init}\nld.shared.b32 %r5, [%r3]; st.shared.b32 [%r3], %r5;\n{other} ld.shared.b32 %r5, [%r4];"),
    );
    let FaultKind::Race { access: Access::Write, other_access: Access::Read, other: by, .. } = &f.kind else {
        panic!("{f}")
    };
    assert_eq!(by.thread, None, "threads of both warps read it");
    fine(
        64,
        &format!(
            "{init} ld.shared.b32 %r5, [%r3]; st.shared.b32 [%r3], %r5; bar.sync 0; {other} ld.shared.b32 %r5, [%r4];"
        ),
    );
    // Overwriting data that other warps still read.
    let f = fault(64, &format!("{init} {other} ld.shared.b32 %r5, [%r4]; st.shared.b32 [%r3], %r5;"));
    assert!(matches!(f.kind, FaultKind::Race { .. }), "{f}");
    fine(64, &format!("{init} {other} ld.shared.b32 %r5, [%r4]; bar.sync 0; st.shared.b32 [%r3], %r5;"));
    // Many readers, then a writer, without and with a barrier.
    let f =
        fault(96, &format!("{init} ld.shared.b32 %r5, [s]; setp.eq.u32 %p0, %r0, 64; @%p0 st.shared.b32 [s], %r5;"));
    assert!(matches!(f.kind, FaultKind::Race { access: Access::Write, other_access: Access::Read, .. }), "{f}");
    fine(
        96,
        &format!("{init} ld.shared.b32 %r5, [s]; bar.sync 0; setp.eq.u32 %p0, %r0, 64; @%p0 st.shared.b32 [s], %r5;"),
    );
    // Two warps write the same word.
    let f =
        fault(64, "setp.eq.u32 %p0, %r1, 0; and.b32 %r4, %r1, 127; add.u32 %r4, %r2, %r4; st.shared.b32 [%r4], %r0;");
    assert!(matches!(f.kind, FaultKind::Race { access: Access::Write, other_access: Access::Write, .. }), "{f}");
    // A barrier of some warps orders those only.
    let named = "shr.u32 %r6, %r0, 5; setp.lt.u32 %p0, %r6, 2;";
    fine(
        96,
        &format!(
            "{init} {named} @!%p0 bra END; st.shared.b32 [%r3], %r0; bar.sync 1, 64; {other} ld.shared.b32 %r5, [%r4]; END:"
        ),
    );
    let f = fault(
        96,
        &format!(
            "{init} {named} @!%p0 bra LAST; st.shared.b32 [%r3], %r0; bar.sync 1, 64; bra END; LAST: ld.shared.b32 %r5, [s]; END:"
        ),
    );
    assert!(matches!(f.kind, FaultKind::Race { .. }), "{f}");
    // One arrives, one waits.
    fine(
        64,
        "shr.u32 %r6, %r0, 5; setp.eq.u32 %p0, %r6, 0; @%p0 bra A; bar.sync 1, 64; ld.shared.b32 %r5, [s]; bra END; A: st.shared.b32 [%r3], %r0; bar.arrive 1, 64; END:",
    );
}

#[test]
fn races_inside_of_a_warp() {
    let next = "add.u32 %r4, %r1, 4; and.b32 %r4, %r4, 127; add.u32 %r4, %r2, %r4;";
    let f = fault(32, &format!("st.shared.b32 [%r3], %r0; {next} ld.shared.b32 %r5, [%r4];"));
    assert!(matches!(&f.kind, FaultKind::Race { access: Access::Read, other_access: Access::Write, .. }), "{f}");
    fine(32, &format!("st.shared.b32 [%r3], %r0; bar.warp.sync -1; {next} ld.shared.b32 %r5, [%r4];"));
    fine(32, "st.shared.b32 [%r3], %r0; ld.shared.b32 %r5, [%r3];");
    // Lanes of one store to one word: the same value does no harm, different ones do.
    fine(32, "mov.u32 %r4, 7; st.shared.b32 [s], %r4;");
    assert!(matches!(fault(32, "st.shared.b32 [s], %r0;").kind, FaultKind::Race { .. }));
    // Bytes beside each other are different words.
    fine(
        32,
        "add.u32 %r4, %r2, %r0; cvt.u16.u32 %h0, %r0; st.shared.b8 [%r4], %h0; bar.warp.sync -1; ld.shared.b32 %r5, [s];",
    );
    // Atomics do not race with each other, but with plain accesses.
    let zero = "st.shared.b32 [%r3], 0; bar.sync 0;";
    fine(64, &format!("{zero} atom.shared.add.u32 %r5, [s], 1; bar.sync 0; ld.shared.b32 %r6, [s];"));
    assert!(matches!(
        fault(64, &format!("{zero} red.shared.add.u32 [s], 1; ld.shared.b32 %r6, [s];")).kind,
        FaultKind::Race { .. }
    ));
    let lax = Options { check_races: false, ..Options::default() };
    let text = module("", &format!("{REGS} st.shared.b32 [s], %r0; ld.shared.b32 %r4, [s]; ret;"));
    launch(&parse(&text), "k", [1, 1, 1], [32, 1, 1], 0, &[], &mut Memory::new(), &lax)
        .unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn bank_conflicts_are_counted() {
    let conflicts = |stride: u32, access: &str| {
        let s = run(32, &format!("mad.lo.u32 %r4, %r0, {stride}, %r2;\n{access}")).unwrap_or_else(|f| panic!("{f}"));
        s.conflicts.first().map_or((1, 0), |c| (c.degree, c.extra))
    };
    let store = "st.shared.b32 [%r4], %r0;";
    assert_eq!(conflicts(4, store), (1, 0));
    assert_eq!(conflicts(8, store), (2, 1));
    assert_eq!(conflicts(128, store), (32, 31));
    assert_eq!(conflicts(132, store), (1, 0));
    // A broadcast is none. Eight lanes of 16 bytes are one pass.
    assert_eq!(conflicts(4, "st.shared.b32 [%r4], %r0; bar.warp.sync -1; ld.shared.b32 %r5, [s];"), (1, 0));
    let wide = "st.shared.v4.b32 [%r4], {%r0, %r0, %r0, %r0};";
    assert_eq!(conflicts(16, wide), (1, 0));
    assert_eq!(conflicts(32, wide), (2, 4));
    assert_eq!(conflicts(128, wide), (8, 28));
}

#[test]
fn launches_are_checked() {
    let m = parse(&format!("{}\n", module(".param .u64 p", "ret;").replace(")\n{", ")\n.maxntid 64, 1, 1\n{")));
    let mut mem = Memory::new();
    let mut go = |name: &str, grid, block, shared, args: &[u64]| {
        launch(&m, name, grid, block, shared, args, &mut mem, &Options::default())
            .map(drop)
            .map_err(|f| f.kind.to_string())
    };
    assert_eq!(go("k", [1, 1, 1], [64, 1, 1], 0, &[0]), Ok(()));
    for (name, grid, block, shared, args, what) in [
        ("j", [1, 1, 1], [1, 1, 1], 0, &[0][..], "no such kernel"),
        ("k", [0, 1, 1], [1, 1, 1], 0, &[0], "grid"),
        ("k", [1, 1, 1], [65, 1, 1], 0, &[0], ".maxntid"),
        ("k", [1, 1, 1], [0, 1, 1], 0, &[0], "0 threads"),
        ("k", [1, 1, 1], [1, 1, 1], 300_000, &[0], "shared memory"),
        ("k", [1, 1, 1], [1, 1, 1], 0, &[], "arguments"),
    ] {
        let e = go(name, grid, block, shared, args).expect_err(what);
        assert!(e.contains(what), "{e}");
    }
}

#[test]
fn endless_loops_end() {
    let m = parse(&module("", "L: bra.uni L;"));
    let options = Options { instruction_limit: 10_000, ..Options::default() };
    let f = launch(&m, "k", [1, 1, 1], [32, 1, 1], 0, &[], &mut Memory::new(), &options).expect_err("an endless loop");
    assert_eq!(f.kind, FaultKind::Budget { limit: 10_000 });
}

/// Atomics between blocks, and counts of executed instructions.
#[test]
fn grids_and_counts() {
    let body = ".reg .b32 %r<5>; .reg .b64 %x<4>; .reg .pred %p;
        ld.param.u64 %x0, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mad.lo.u32 %r0, %r1, 3, %r0;
        atom.global.add.u32 %r2, [%x0], %r0;
        atom.global.inc.u32 %r3, [%x0+4], 5;
        red.global.max.u32 [%x0+8], %r0;
        atom.global.cas.b32 %r4, [%x0+12], 0, 77;
        red.global.add.f32 [%x0+16], 0f3F000000;
        ret;";
    let m = parse(&module(".param .u64 p", body));
    let mut mem = Memory::new();
    let p = mem.alloc_from(&[0; 20]);
    let s =
        launch(&m, "k", [3, 2, 1], [4, 1, 1], 0, &[p], &mut mem, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    let words: Vec<u32> =
        mem.read(p, 20).expect("mapped").chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4"))).collect();
    assert_eq!(words, [4 * 15, 24 % 6, 5, 77, 12f32.to_bits()]);
    assert_eq!((s.instructions, s.warp_instructions), (10 * 24, 10 * 6));
    assert_eq!((s.classes["atom.global"], s.classes["ld.param"]), (3 * 24, 24));
    assert_eq!((s.read, s.written), (5 * 4 * 24, 5 * 4 * 24));
}

#[test]
fn the_read_only_cache_is_read_only() {
    fine(1, "ld.global.nc.b32 %r4, [%x0+4]; st.global.b32 [%x0], %r0; ld.global.b32 %r4, [%x0];");
    let f = fault(1, "st.global.b32 [%x0], %r0; ld.global.nc.v2.b32 {%r4, %r5}, [%x0];");
    assert!(matches!(f.kind, FaultKind::Stale { line, .. } if line > 0), "{f}");
}

/// Blocks that write data others read or write, with the fences and atomics that make it right, and
/// without.
#[test]
fn races_between_blocks() {
    let head = ".reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p<4>; .shared .align 4 .b8 last[4];
        ld.param.u64 %x0, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r0, 32, %r1; mad.wide.u32 %x1, %r2, 4, %x0;\n";
    let run = |code: &str| {
        let mut mem = Memory::new();
        let p = mem.alloc_from(&[0; 1024]);
        let m = parse(&module(".param .u64 p", &format!("{head}{code}\nret;")));
        let r = launch(&m, "k", [4, 1, 1], [32, 1, 1], 0, &[p], &mut mem, &Options::default());
        r.map(|_| u32::from_le_bytes(mem.read(p + 1000, 4).expect("mapped").try_into().expect("4")))
    };
    let race = |code: &str| match run(code).expect_err(code).kind {
        FaultKind::BlockRace { access, other_access, block, .. } => (access, other_access, block),
        k => panic!("{code}: {k}"),
    };
    run("ld.global.b32 %r3, [%x1]; st.global.b32 [%x1], %r3; ld.global.b32 %r3, [%x0+768];")
        .unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(race("st.global.b32 [%x0], %r0;"), (Access::Write, Access::Write, Some(0)));
    assert_eq!(race("st.global.b32 [%x1], %r0; ld.global.b32 %r3, [%x0+4];"), (Access::Read, Access::Write, Some(0)));
    assert_eq!(race("ld.global.b32 %r3, [%x0+260]; st.global.b32 [%x1], %r3;"), (Access::Write, Access::Read, None));
    // The last block adds up all blocks' results.
    let reduce = "st.global.b32 [%x1], %r2; bar.sync 0; setp.ne.u32 %p0, %r1, 0; @%p0 bra WAIT;
        FENCE atom.ORDER.gpu.global.inc.u32 %r3, [%x0+1020], 3; FENCE st.shared.b32 [last], %r3;
        WAIT: bar.sync 0; ld.shared.b32 %r3, [last]; setp.ne.u32 %p1, %r3, 3; @%p1 bra END; @%p0 bra END;
        mov.u32 %r4, 0; mov.u32 %r5, 0;
        SUM: mad.wide.u32 %x3, %r5, 4, %x0; ld.global.b32 %r6, [%x3]; add.u32 %r4, %r4, %r6; add.u32 %r5, %r5, 1;
        setp.lt.u32 %p2, %r5, 128; @%p2 bra SUM; st.global.b32 [%x0+1000], %r4; END:";
    let variant = |fence: &str, order: &str| reduce.replace("FENCE", fence).replace("ORDER", order);
    assert_eq!(run(&variant("fence.acq_rel.gpu;", "relaxed")), Ok((0..128).sum()));
    assert_eq!(run(&variant("membar.gl;", "relaxed")), Ok((0..128).sum()));
    assert_eq!(run(&variant("", "acq_rel")), Ok((0..128).sum()));
    assert_eq!(race(&variant("", "relaxed")), (Access::Read, Access::Write, Some(0)));
    assert_eq!(race(&variant("fence.acq_rel.cta;", "relaxed")), (Access::Read, Access::Write, Some(0)));
    // A fence on one side only.
    assert_eq!(
        race(&variant("", "relaxed").replacen("atom", "membar.gl; atom", 1)),
        (Access::Read, Access::Write, Some(0))
    );
    assert_eq!(race(&variant("", "acquire")), (Access::Read, Access::Write, Some(0)));
}

/// Launches that overlap: earlier launches' results are used after the wait, and someone waits.
#[test]
fn overlapping_launches_wait_before_they_use_results() {
    let two = |first_overlaps: bool, code: &str| {
        let m = parse(&module(".param .u64 p", &format!("{REGS}ld.param.u64 %x0, [p];\n{code}\nret;")));
        let writes = parse(&module(
            ".param .u64 p",
            ".reg .b64 %x0; griddepcontrol.wait; ld.param.u64 %x0, [p]; st.global.b32 [%x0], 7; ret;",
        ));
        let mut mem = Memory::new();
        let p = mem.alloc_from(&[0; 256]);
        let mut run = |m, overlaps| {
            let options = Options { overlaps, ..Options::default() };
            launch(m, "k", [1; 3], [32, 1, 1], 0, &[p], &mut mem, &options)
        };
        run(&writes, first_overlaps).unwrap_or_else(|f| panic!("{f}"));
        run(&m, true).map(drop)
    };
    for overlaps in [false, true] {
        // Bytes that no launch writes are read at any time.
        two(
            overlaps,
            "ld.global.b32 %r4, [%x0+8]; griddepcontrol.wait; ld.global.b32 %r4, [%x0]; st.global.b32 [%x0+8], %r4;",
        )
        .unwrap_or_else(|f| panic!("{f}"));
        let early = |access, code: &str| {
            let f = two(overlaps, code).err().unwrap_or_else(|| panic!("no fault in {code}"));
            assert!(matches!(f.kind, FaultKind::Early { access: a, .. } if a == access), "{f}");
        };
        early(Access::Read, "ld.global.b32 %r4, [%x0]; griddepcontrol.wait;");
        early(Access::Write, "st.global.b32 [%x0+8], %r0; griddepcontrol.wait;");
        early(Access::Atomic, "red.global.add.u32 [%x0+8], %r0; griddepcontrol.wait;");
        // Each lane waits for itself.
        early(Access::Read, "setp.lt.u32 %p0, %r0, 16; @%p0 griddepcontrol.wait; ld.global.b32 %r4, [%x0];");
        let f = two(overlaps, "ld.global.b32 %r4, [%x0+8];").expect_err("nobody waits");
        assert!(f.to_string().contains("no thread waits for the launches before"), "{f}");
    }
}
