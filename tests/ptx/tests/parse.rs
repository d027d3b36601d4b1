//! Texts the parser reads and refuses.

use crate::common::{module, parse};
use llmcc_ptx::{Memory, Module, Options, launch};

/// Text as LLVM 22 prints it: constants, demoted shared variables, local memory, inline assembly
/// with a scope, byte parameters.
const LLVM: &str = include_str!("llvm.ptx");

#[test]
fn reads_what_llvm_prints() {
    let m = parse(LLVM);
    assert_eq!(m.target(), "sm_90a");
    let k = m.kernel("k").expect("the kernel");
    assert_eq!(k.params().iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>(), [(0, 8), (8, 8), (16, 4), (20, 24)]);
    assert_eq!(k.static_shared(), 256);
    assert_eq!(k.max_threads(), Some(256));
}

#[test]
fn errors_name_the_line_and_its_text() {
    for (body, what, text) in [
        ("ret;\nfrobnicate.b32 %r1;", "frobnicate", "frobnicate.b32 %r1;"),
        (".reg .b32 %r<3>;\nadd.frob.s32 %r0, %r1, %r2;", "frob", "add.frob.s32 %r0, %r1, %r2;"),
        (".reg .b32 %r<3>;\nadd.s32 %r0, %r1, %r3;", "%r3 is not declared", "add.s32 %r0, %r1, %r3;"),
        (".reg .b32 %r<3>;\nadd.s32 %r0, %r1, %r2, %r1;", "1 operands too many", "add.s32 %r0, %r1, %r2, %r1;"),
        (".reg .b16 %r<3>;\nadd.s32 %r0, %r1, %r2;", "16 bits where 32", "add.s32 %r0, %r1, %r2;"),
        (".reg .f32 %r<3>;\nadd.f32 %r0, %r1, 1;", "an integer where a float", "add.f32 %r0, %r1, 1;"),
        ("bra $L1;\nbra $L2;\n$L1:", "$L2 is not defined", "bra $L2;"),
        ("{\n$L1:\n}\nbra $L1;", "$L1 is not defined", "bra $L1;"),
        ("$L1:\n$L1:", "defined twice", "$L1:"),
        (".reg .b32 %r<2>;\nld.global.b32 %r0, %r1;", "not an address", "ld.global.b32 %r0, %r1;"),
        ("call.uni foo;", "call", "call.uni foo;"),
    ] {
        let e = Module::parse(&module("", body)).map(drop).expect_err(body);
        assert!(e.to_string().contains(what), "{body}: {e}");
        assert_eq!(e.text, text);
        let line = module("", body).lines().position(|l| l == text).expect("the line") + 1;
        assert!(e.line as usize >= line, "{e}");
    }
    assert!(Module::parse(".version 8.0\n.target sm_90\n.address_size 32\n").is_err());
    assert!(Module::parse(".func f() {}").is_err());
    let large = Module::parse(&module("", ".shared .align 4 .b8 s[49153];")).map(drop).expect_err("too much");
    assert!(large.what.contains("49153 bytes of shared variables"), "{large}");
    assert!(Module::parse(".visible .entry k() {").is_err());
}

#[test]
fn constants_globals_and_scopes() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n
        .const .align 4 .b8 c[8] = {0, 0, 128, 63, 0, 0, 0, 64};
        .visible .global .align 4 .u32 counter = 5;
        .visible .entry k(.param .u64 out) {
            .reg .b32 %r<4>; .reg .b64 %rd<4>;
            ld.param.u64 %rd0, [out];
            mov.b64 %rd1, c;
            ld.const.b32 %r0, [%rd1+4];
            mov.b32 %r1, 7;
            { .reg .b32 %r1; mov.b32 %r1, 9; { .reg .pred p; setp.eq.s32 p, %r1, 9; @!p bra SKIP; add.s32 %r1, %r1, 1; SKIP: } st.global.b32 [%rd0+8], %r1; }
            st.global.v2.b32 [%rd0], {%r0, %r1};
            mov.b64 %rd2, counter;
            atom.global.add.u32 %r2, [%rd2], 1;
            ld.global.b32 %r3, [counter];
            st.global.b32 [%rd0+12], %r3;
            ret;
        }";
    let (m, mut mem) = (parse(text), Memory::new());
    let out = mem.alloc(16);
    for round in 0..2 {
        launch(&m, "k", [1, 1, 1], [1, 1, 1], 0, &[out], &mut mem, &Options::default())
            .unwrap_or_else(|f| panic!("{f}"));
        let words: Vec<u32> = mem
            .read(out, 16)
            .expect("mapped")
            .chunks(4)
            .map(|c| u32::from_le_bytes(c.try_into().expect("4")))
            .collect();
        // The module's variables keep their values between launches.
        assert_eq!(words, [2f32.to_bits(), 7, 10, 6 + round]);
    }
}
