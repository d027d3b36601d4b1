//! [`GpuBackend`]: kernels to PTX, and to machine code where `ptxas` is installed.

use crate::assembler::Ptxas;
use crate::supported::arch;
use crate::worker::{Llvm, Stage, Worker, keep};
use crate::{Source, emit};
use llmcc_codegen::{Backend, Code, CodegenError, GpuCode, Object};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::{GpuArch, TargetSpec};
use llmcc_ir::threads::try_beside;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Compiles kernels for NVIDIA GPUs.
pub struct GpuBackend {
    llvm: Llvm,
    ptxas: Option<Ptxas>,
    /// Workers at rest.
    idle: Mutex<Vec<Worker>>,
    warnings: Mutex<Vec<String>>,
}

impl GpuBackend {
    /// A backend; without `ptxas`, objects have PTX only, which the driver translates when the
    /// model is opened; without LLVM, they have MLIR only.
    pub fn new(llvm: Llvm, ptxas: Option<Ptxas>) -> GpuBackend {
        GpuBackend { llvm, ptxas, idle: Mutex::default(), warnings: Mutex::default() }
    }

    /// Warnings of `ptxas` about the kernels so far.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }

    /// A kernel's code at some stage, as text.
    ///
    /// # Errors
    /// As [`Backend::lower`].
    pub fn text(&self, kernel: &Kernel, target: &TargetSpec, stage: Stage) -> Result<String, CodegenError> {
        let (source, arch) = (emit(kernel, target)?, arch(kernel, target)?);
        self.translate(kernel, &source, arch, stage)
    }

    fn translate(
        &self,
        kernel: &Kernel,
        source: &Source,
        arch: &GpuArch,
        stage: Stage,
    ) -> Result<String, CodegenError> {
        let idle = lock(&self.idle).pop();
        let mut worker = idle.unwrap_or_else(|| Worker::new(&self.llvm));
        let result = worker.lower(&source.mlir, arch.processor, arch.ptx_for(kernel), stage);
        lock(&self.idle).push(worker);
        result.map_err(|e| {
            let kept = match keep(&source.entry, &source.mlir) {
                Ok(path) => format!("its MLIR is in {}", path.display()),
                Err(e) => format!("its MLIR could not be kept: {e}"),
            };
            CodegenError::internal(kernel, format!("{e}; {kept}"))
        })
    }

    fn assemble(&self, kernel: &Kernel, ptx: &str, arch: &GpuArch) -> Result<Vec<u8>, CodegenError> {
        let Some(ptxas) = &self.ptxas else { return Ok(vec![]) };
        let done = ptxas.assemble(ptx, arch.processor).map_err(|e| CodegenError::internal(kernel, e))?;
        lock(&self.warnings).extend(done.warnings.iter().map(|w| format!("{}: {w}", kernel.name)));
        Ok(done.cubin)
    }
}

impl Backend for GpuBackend {
    fn name(&self) -> &str {
        "MLIR, LLVM (NVPTX)"
    }

    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError> {
        let (source, arch) = (emit(kernel, target)?, arch(kernel, target)?);
        let (ptx, cubin) = if matches!(self.llvm, Llvm::Absent) {
            Default::default()
        } else {
            let ptx = self.translate(kernel, &source, arch, Stage::Ptx)?;
            let cubin = self.assemble(kernel, &ptx, arch)?;
            (ptx, cubin)
        };
        let Source { entry, mlir, program: _, threads, shared, grid, scratch, scratch_per_m, generic } = source;
        let code = Code::Gpu(GpuCode { entry, mlir, ptx, cubin, threads, shared, grid });
        Ok(Object { code, scratch, scratch_per_m, generic })
    }

    /// In parallel: LLVM's processes and `ptxas` keep all cores busy.
    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![]));
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(kernels.len());
        let work = || {
            while let Some((i, kernel)) = {
                let i = next.fetch_add(1, Ordering::Relaxed);
                kernels.get(i).map(|k| (i, k))
            } {
                let object = self.lower(kernel, target);
                lock(&done).push((i, object));
            }
        };
        std::thread::scope(|s| {
            // As many as there are; this one in any case.
            let _others: Vec<_> = (1..workers).map_while(|_| try_beside(s, &work).ok()).collect();
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(i, _)| *i);
        done.into_iter().map(|(_, object)| object).collect()
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
