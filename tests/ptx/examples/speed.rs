//! How fast the emulator is: lane instructions per second of processor time, of arithmetic, of
//! global and shared memory, and of mma. Linux only.

use llmcc_ptx::{Memory, Module, Options, launch};

/// Nanoseconds of processor time of this thread, so that other programs do not disturb.
fn now() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() {
    let loops = [
        (
            "arithmetic",
            "fma.rn.f32 %r4, %r4, %r5, %r6; mad.lo.s32 %r7, %r7, %r8, %r0; xor.b32 %r9, %r7, %r9; add.rn.f32 %r5, %r5, %r6;",
        ),
        ("global", "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%x0]; st.global.b32 [%x0], %r4;"),
        (
            "shared",
            "st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7}; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; ld.shared.b32 %r8, [%r3];",
        ),
        ("ldmatrix", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3];"),
        ("half", "fma.rn.f16x2 %r4, %r4, %r5, %r6; cvt.rn.f16x2.f32 %r5, %r6, %r7;"),
        (
            "mma",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r4, %r5, %r6, %r7}, {%r8, %r8, %r9, %r9}, {%r8, %r9}, {%r4, %r5, %r6, %r7};",
        ),
    ];
    for (name, body) in loops {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p) {{
            .reg .b32 %r<12>; .reg .b64 %x<4>; .reg .pred %p; .shared .align 16 .b8 s[8192];
            ld.param.u64 %x0, [p]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; cvt.u64.u32 %x1, %r1; add.s64 %x0, %x0, %x1;
            mov.u32 %r2, s; add.u32 %r3, %r2, %r1; mov.u32 %r10, 0;
            mov.b32 %r4, 0f3F800000; mov.b32 %r5, %r4; mov.b32 %r6, %r4; mov.b32 %r7, %r4; mov.b32 %r8, 0; mov.b32 %r9, 0;
            st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
            L: {body} add.u32 %r10, %r10, 1; setp.lt.u32 %p, %r10, 2000; @%p bra L; ret; }}"
        );
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut memory = Memory::new();
        let p = memory.alloc_from(&[0; 4096]);
        let start = now();
        let stats = launch(&module, "k", [1, 1, 1], [256, 1, 1], 0, &[p], &mut memory, &Options::default())
            .unwrap_or_else(|f| panic!("{f}"));
        let s = (now() - start) as f64 * 1e-9;
        println!("{name:12} {:8.1} M lane instructions/s", stats.instructions as f64 / s / 1e6);
    }
}
