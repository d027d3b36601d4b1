//! Every kernel of a model for every GPU target, assembled by `ptxas`: registers, no spills, as many blocks on a multiprocessor as its schedule counts on, tensor-core instructions
//! where they are promised, no warnings.

use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::session::{self, CompileOptions};
use llmcc_gpu::assembler::{Ptxas, disassemble, wanted_resident};
use llmcc_ir::kernel::{Body, Kernel, RowElem};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{Family, TARGETS, TargetSpec};
use llmcc_tests::{golden, options};
use std::fmt::Write;

/// `ptxas`, where this build can make PTX and it is installed; `make test` installs it and names it.
fn ptxas() -> Option<Ptxas> {
    if !HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return None;
    }
    let found = Ptxas::find();
    if found.is_none() {
        eprintln!("skipped: no ptxas");
    }
    found
}

fn gpu_options(target: &'static TargetSpec, format: &str) -> CompileOptions {
    CompileOptions {
        target,
        weights: Some(Format::parse(format).expect("a format")),
        kv: Some(KvDType::F16),
        act: (format == "fp8").then_some(llmcc_passes::ActPolicy::Fp8),
        ..options(&golden("llama3"))
    }
}

/// Whether the kernel multiplies rows of 16 or 8 bits.
fn multiplies_halves(k: &Kernel) -> bool {
    use llmcc_ir::kernel::ParamKind;
    let half = |p: usize| matches!(&k.params[p].kind, ParamKind::Rows { elem: RowElem::F16 | RowElem::Bf16 | RowElem::Fp8, .. });
    match &k.body {
        Body::Matmul(m) => half(m.x) || m.prologue.is_some_and(|p| p.elem.is_half()),
        _ => false,
    }
}

/// One line per kernel: threads and registers, shared memory, blocks on a multiprocessor (and how many the schedule counts on), instructions.
fn table(ptxas: &Ptxas, target: &'static TargetSpec, format: &str, wrong: &mut Vec<String>) -> String {
    let lowered =
        session::lower(&gpu_options(target, format), &Backends::new(None)).unwrap_or_else(|e| panic!("{} {format}: {e}", target.name));
    let mut out = String::new();
    for (k, o) in lowered.compiled.plan.kernels.iter().zip(&lowered.objects) {
        let gpu = o.gpu.as_ref().expect("a GPU kernel");
        let arch = target.gpu().expect("a GPU");
        let done = ptxas.assemble(&gpu.ptx, arch.processor).unwrap_or_else(|e| panic!("{} {format} {}: {e}", target.name, k.name));
        let place = || format!("{} for {} in {format}", k.name, target.name);
        if done.spills != [0; 3] {
            wrong.push(format!("{} spills (stack, stores, loads): {:?}", place(), done.spills));
        }
        if !done.warnings.is_empty() {
            wrong.push(format!("{}: {:?}", place(), done.warnings));
        }
        let (resident, wanted) = (done.resident(arch, gpu.threads, gpu.shared), wanted_resident(&gpu.ptx));
        if resident < wanted.max(1) {
            wrong.push(format!("{}: {resident} blocks fit where {wanted} should, {} registers", place(), done.registers));
        }
        let sass = disassemble(&done.cubin).unwrap_or_else(|e| panic!("{e}"));
        let matrix: Vec<&str> = ["HGMMA", "HMMA", "QGMMA", "QMMA", "IMMA"].into_iter().filter(|i| sass.contains(i)).collect();
        if multiplies_halves(k) && matrix.is_empty() {
            wrong.push(format!("{} has no tensor-core instruction", place()));
        }
        let _ = writeln!(
            out,
            "{:<28} {:>4} threads {:>4} registers {:>7} shared {:>3} blocks of {:>2}  {}",
            k.name,
            gpu.threads,
            done.registers,
            gpu.shared,
            resident,
            wanted,
            matrix.join(" ")
        );
    }
    out
}

#[test]
fn every_kernel_assembles_for_every_target() {
    let Some(ptxas) = ptxas() else { return };
    let (mut all, mut wrong) = (String::new(), vec![]);
    for target in TARGETS.iter().filter(|t| t.family() == Family::Gpu) {
        let fp8 = target.gpu().is_some_and(|g| g.fp8_flops > 0.0);
        for format in ["w4g32", "bf16"].into_iter().chain(fp8.then_some("fp8")) {
            let _ = write!(all, "{} {format}\n{}\n", target.name, table(&ptxas, target, format, &mut wrong));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!(all);
}
