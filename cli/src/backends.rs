//! The backends of this compiler, as one: each kernel goes to that of its target's family.

use crate::lowering;
use llmcc_codegen::cpu::CpuBackend;
use llmcc_codegen::{Backend, CodegenError, Object};
use llmcc_gpu::assembler::Ptxas;
use llmcc_gpu::backend::GpuBackend;
use llmcc_gpu::worker::Llvm;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::{Family, TargetSpec};
use std::path::PathBuf;

/// Whether this compiler has LLVM, and so can make PTX without `llmcc-cuda`.
pub const HAS_LLVM: bool = lowering::INSIDE;

/// All backends.
pub struct Backends {
    cpu: CpuBackend,
    /// The one for GPUs.
    pub gpu: GpuBackend,
}

impl Backends {
    /// With LLVM in children: of `llmcc-cuda`, if there is one, else of `program`, which is this command
    /// line. Without a program, LLVM runs in this process.
    pub fn new(program: Option<PathBuf>) -> Backends {
        Backends { cpu: CpuBackend::default(), gpu: GpuBackend::new(llvm(program), Ptxas::find()) }
    }

    /// LLVM in this process, and no `ptxas`: GPU kernels as PTX only, for an emulator.
    pub fn ptx() -> Backends {
        Backends { cpu: CpuBackend::default(), gpu: GpuBackend::new(llvm(None), None) }
    }

    fn of(&self, target: &TargetSpec) -> &dyn Backend {
        match target.family() {
            Family::Cpu => &self.cpu,
            Family::Nvidia => &self.gpu,
        }
    }
}

fn llvm(program: Option<PathBuf>) -> Llvm {
    match program {
        Some(program) => lowering::find().map_or_else(|| inside(Some(program)), |other| Llvm::Child(other, vec![])),
        None => inside(None),
    }
}

#[cfg(feature = "gpu")]
fn inside(program: Option<PathBuf>) -> Llvm {
    program.map_or(Llvm::Here, |program| Llvm::Child(program, vec!["llvm-worker".into()]))
}

#[cfg(not(feature = "gpu"))]
fn inside(_: Option<PathBuf>) -> Llvm {
    Llvm::Absent
}

impl Backend for Backends {
    fn name(&self) -> &str {
        "all"
    }

    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError> {
        self.of(target).lower(kernel, target)
    }

    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        self.of(target).lower_all(kernels, target)
    }
}
