//! The whole way to a GPU without one: the driver is a library on top of the PTX emulator, opened
//! as the real one is, and the hand-made model's kernels are PTX.

mod common;
#[path = "common/gpu_model.rs"]
mod gpu_model;

use common::*;
use gpu_model::Toy;
use llmcc_rt::cuda::ffi::LIBRARY_VARIABLE;
use llmcc_rt::{Engine, Options, Result, select};

/// Fields of the context in registers, the operands in `%x0` and following.
fn kernel(name: &str, operands: usize, body: &str) -> String {
    let parameters: Vec<String> = (0..operands + 2).map(|i| format!(".param .u64 a{i}")).collect();
    let loads: String = (0..operands).map(|i| format!("ld.param.u64 %x{i}, [a{i}];\n")).collect();
    let fields = ["tokens", "positions", "seqs", "out_rows", "tables", "stride", "n_tokens", "n_rows"];
    let context: String =
        fields.iter().enumerate().map(|(i, f)| format!("ld.global.u64 %{f}, [%ctx+{}];\n", 8 * i)).collect();
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k_{name}({})\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n.reg .b64 %x<24>;\n.reg .b64 %ctx;\n.reg .b64 %{};\n\
         {loads}ld.param.u64 %ctx, [a{operands}];\n{context}{body}\nDONE:\nret;\n}}\n",
        parameters.join(", "),
        fields.join(", %"),
    )
}

/// `%x20`: address in pool `pool` of position `p` (32 bits) of batch token `i` (64 bits).
fn cell(pool: &str, i: &str, p: &str) -> String {
    format!(
        "shl.b64 %x18, {i}, 2;\nadd.s64 %x18, %seqs, %x18;\nld.global.u32 %r10, [%x18];\ncvt.u64.u32 %x19, %r10;\n\
         mul.lo.s64 %x19, %x19, %stride;\nshr.u32 %r11, {p}, 4;\ncvt.u64.u32 %x20, %r11;\nadd.s64 %x19, %x19, %x20;\n\
         shl.b64 %x19, %x19, 2;\nadd.s64 %x19, %tables, %x19;\nld.global.u32 %r12, [%x19];\nmul.wide.u32 %x20, %r12, 128;\n\
         add.s64 %x20, {pool}, %x20;\nand.b32 %r11, {p}, 15;\nmul.wide.u32 %x19, %r11, 4;\nadd.s64 %x20, %x20, %x19;\n"
    )
}

/// `%x9`: row `block * rows + thread`, of this many rows per block; done if there is none below
/// `limit`.
fn row(block: &str, rows: u32, limit: &str) -> String {
    format!(
        "mov.u32 %r0, %tid.x;\nsetp.ge.u32 %p0, %r0, {rows};\n@%p0 bra DONE;\nmov.u32 %r1, {block};\nmad.lo.s32 %r2, %r1, {rows}, %r0;\n\
         cvt.u64.u32 %x9, %r2;\nsetp.ge.u64 %p1, %x9, {limit};\n@%p1 bra DONE;\nshl.b64 %x10, %x9, 2;\n"
    )
}

fn embed() -> String {
    let row = row("%ctaid.x", 8, "%n_tokens");
    kernel(
        "embed",
        1,
        &format!(
            "{row}add.s64 %x11, %tokens, %x10;\nld.global.u32 %r3, [%x11];\ncvt.rn.f32.s32 %f0, %r3;\nadd.s64 %x12, %x0, %x10;\nst.global.f32 [%x12], %f0;"
        ),
    )
}

/// Two blocks per token, one per pool.
fn append() -> String {
    let body = format!(
        "mov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra DONE;\nmov.u32 %r1, %ctaid.x;\nshr.u32 %r2, %r1, 1;\ncvt.u64.u32 %x9, %r2;\n\
         setp.ge.u64 %p1, %x9, %n_tokens;\n@%p1 bra DONE;\nand.b32 %r3, %r1, 1;\nsetp.eq.u32 %p2, %r3, 0;\nselp.b64 %x3, %x1, %x2, %p2;\n\
         shl.b64 %x10, %x9, 2;\nadd.s64 %x11, %positions, %x10;\nld.global.u32 %r4, [%x11];\n{}\
         add.s64 %x12, %x0, %x10;\nld.global.f32 %f0, [%x12];\nst.global.f32 [%x20], %f0;",
        cell("%x3", "%x9", "%r4")
    );
    kernel("append", 3, &body)
}

fn attend() -> String {
    let body = format!(
        "{}add.s64 %x11, %positions, %x10;\nld.global.u32 %r4, [%x11];\nmov.u32 %r5, 0;\nmov.f32 %f0, 0f00000000;\nLOOP:\n{}\
         ld.global.f32 %f1, [%x20];\nadd.u32 %r5, %r5, 1;\ncvt.rn.f32.u32 %f2, %r5;\nfma.rn.f32 %f0, %f1, %f2, %f0;\n\
         setp.le.u32 %p2, %r5, %r4;\n@%p2 bra LOOP;\nadd.s64 %x12, %x1, %x10;\nst.global.f32 [%x12], %f0;",
        row("%ctaid.y", 3, "%n_tokens"),
        cell("%x0", "%x9", "%r5")
    );
    kernel("attend", 2, &body)
}

/// A block per column and row.
fn head(name: &str, regime: u32) -> String {
    let body = format!(
        "mov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra DONE;\nmov.u32 %r1, %ctaid.z;\ncvt.u64.u32 %x9, %r1;\nsetp.ge.u64 %p1, %x9, %n_rows;\n\
         @%p1 bra DONE;\nshl.b64 %x10, %x9, 2;\nadd.s64 %x11, %out_rows, %x10;\nld.global.u32 %r2, [%x11];\nmul.wide.u32 %x12, %r2, 4;\n\
         add.s64 %x12, %x0, %x12;\nld.global.f32 %f0, [%x12];\nmov.u32 %r3, %ctaid.x;\nmul.wide.u32 %x13, %r3, 4;\nadd.s64 %x14, %x1, %x13;\n\
         ld.global.f32 %f1, [%x14];\nmul.rn.f32 %f0, %f0, %f1;\nsetp.eq.u32 %p2, %r3, {};\nmov.u32 %r4, {regime};\ncvt.rn.f32.u32 %f2, %r4;\n\
         selp.f32 %f0, %f2, %f0, %p2;\nmul.lo.s64 %x15, %x9, {};\nadd.s64 %x15, %x15, %x13;\nadd.s64 %x15, %x2, %x15;\nst.global.f32 [%x15], %f0;",
        VOCAB - 1,
        4 * VOCAB
    );
    kernel(name, 3, &body)
}

fn ptx(index: usize) -> String {
    match index {
        0 => embed(),
        1 => append(),
        2 => attend(),
        3 => head("head_few", 1),
        _ => head("head_many", 2),
    }
}

/// No text the driver takes.
fn no_ptx(_kernel: usize) -> String {
    ".version 1".into()
}

/// Machine code for the emulated GPU.
fn cubin(index: usize) -> Vec<u8> {
    llmcc_fake_cuda::cubin(90, &ptx(index))
}

/// Machine code for another of its family.
fn other_cubin(index: usize) -> Vec<u8> {
    llmcc_fake_cuda::cubin(80, &no_ptx(index))
}

fn open(options: Options, ptx: fn(usize) -> String, cubin: fn(usize) -> Vec<u8>) -> Result<Engine> {
    let toy = Toy { gpus: &[80], cpu: false, cubin: true, candidates: 0 };
    select::open(gpu_model::images_with(toy, ptx, cubin)?, &options)
}

#[test]
fn a_model_runs_on_an_emulated_gpu() {
    let library = std::env::current_exe().unwrap().with_file_name("libllmcc_fake_cuda.so");
    assert!(library.exists(), "{}", library.display());
    // SAFETY: the only test of this program; no other thread reads the environment.
    unsafe { std::env::set_var(LIBRARY_VARIABLE, &library) };
    for (max_batch_tokens, profile) in [(0, false), (7, false), (16, true)] {
        let options = || Options { max_tokens: 9 * CONTEXT + 800, max_batch_tokens, profile, ..Options::default() };
        // PTX where the cubins are for another GPU; and cubins alone.
        for (ptx, cubin) in [(ptx as fn(usize) -> String, other_cubin as fn(usize) -> Vec<u8>), (no_ptx, cubin)] {
            let mut engine = open(options(), ptx, cubin).unwrap();
            check_random_steps(&mut engine, 5 + max_batch_tokens as u64, 40);
            assert_ne!(engine.device(), "CPU");
        }
    }
    let error = open(Options::default(), no_ptx, other_cubin).err().unwrap();
    assert!(error.message.contains("cannot compile kernel `embed`"), "{error}");
}
