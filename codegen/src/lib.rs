//! Code generation: from kernels to machine code, and from machine code and weights to an artifact.
//!
//! A [`Backend`] sees one [`Kernel`] and the [`TargetSpec`], nothing else, and returns
//! position-independent bytes. It may rely on the kernel verifier: a verified kernel is either
//! compiled or refused with a [`CodegenError`], never a panic.

pub mod artifact;
pub mod cpu;
mod descriptor;
pub mod link;
pub mod locate;
pub mod sealed;
pub mod tables;

use llmcc_ir::diag::Diagnostic;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::TargetSpec;

/// Makes machine code for one family of targets.
pub trait Backend {
    /// Name in reports.
    fn name(&self) -> &str;

    /// Compiles a verified kernel.
    ///
    /// # Errors
    /// An unsupported kernel, or an internal error.
    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError>;

    /// Compiles the kernels of a plan, in order. A backend may work on several at once.
    ///
    /// # Errors
    /// Errors of [`Backend::lower`], for the first kernel that has one.
    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        kernels.iter().map(|k| self.lower(k, target)).collect()
    }
}

/// One kernel, compiled.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its code, with the parts only that kind of code has.
    pub code: Code,
    /// Bytes of memory of its own that it needs, a multiple of 64: of native code scratch for each
    /// thread, of a GPU's the workspace in device memory.
    pub scratch: u64,
    /// Further such bytes per row of the step, a multiple of 64.
    pub scratch_per_m: u64,
    /// Set when the kernel takes a slow generic path: the reason.
    pub generic: Option<&'static str>,
}

/// Code of a kernel, by the kind of machine.
#[derive(Clone, Debug)]
pub enum Code {
    /// For a processor.
    Native(NativeCode),
    /// For a GPU.
    Gpu(GpuCode),
}

/// A kernel for a processor: an [`llmcc_abi::KernelFn`].
#[derive(Clone, Debug, Default)]
pub struct NativeCode {
    /// Code and its constants: position independent, without relocations, entry at offset 0, to be
    /// placed at a multiple of 64 bytes.
    pub bytes: Vec<u8>,
    /// See [`llmcc_abi::KernelDesc::shared_per_block`].
    pub shared_per_block: u64,
    /// Cranelift's intermediate code, for `--emit=clif`.
    pub clif: String,
    /// Disassembly, for `--emit=asm`.
    pub listing: String,
}

/// A kernel for a GPU: its code and how to launch it.
#[derive(Clone, Debug)]
pub struct GpuCode {
    /// Symbol of the entry.
    pub entry: String,
    /// The MLIR it was made of, for `--emit=mlir`.
    pub mlir: String,
    /// PTX text, without a NUL; empty when there is no LLVM to make it.
    pub ptx: String,
    /// Machine code from `ptxas`, empty when there is none.
    pub cubin: Vec<u8>,
    /// Threads per block, 1 to [`llmcc_abi::GPU_MAX_THREADS`].
    pub threads: u32,
    /// Bytes of dynamic shared memory per block, at most [`llmcc_abi::GPU_MAX_SHARED`].
    pub shared: u32,
    /// Blocks in x, y, z.
    pub grid: [llmcc_abi::GpuDim; 3],
}

impl Object {
    /// The code of a kernel for a processor.
    pub fn native(&self) -> Option<&NativeCode> {
        match &self.code {
            Code::Native(code) => Some(code),
            Code::Gpu(_) => None,
        }
    }

    /// The code of a kernel for a GPU.
    pub fn gpu(&self) -> Option<&GpuCode> {
        match &self.code {
            Code::Native(_) => None,
            Code::Gpu(code) => Some(code),
        }
    }

    /// The backend's intermediate code: CLIF, or MLIR.
    pub fn intermediate(&self) -> &str {
        match &self.code {
            Code::Native(code) => &code.clif,
            Code::Gpu(code) => &code.mlir,
        }
    }

    /// The machine's code as text: a disassembly, or PTX.
    pub fn listing(&self) -> &str {
        match &self.code {
            Code::Native(code) => &code.listing,
            Code::Gpu(code) => &code.ptx,
        }
    }
}

/// Why a kernel was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// The backend has no lowering for this kernel on this target.
    #[error("kernel `{kernel}`: {what}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// The unsupported part, and the remedy.
        what: String,
    },
    /// A bug in the backend.
    #[error(
        "internal error while compiling kernel `{kernel}`: {what}; please report it with the output of --emit=kernels"
    )]
    Internal {
        /// Name of the kernel.
        kernel: String,
        /// The failure.
        what: String,
    },
}

impl CodegenError {
    /// The error for an unsupported part of a kernel: `what`, and the remedy.
    pub fn unsupported(kernel: &Kernel, what: String) -> CodegenError {
        CodegenError::Unsupported { kernel: kernel.name.clone(), what }
    }

    /// A bug of a backend.
    pub fn internal(kernel: &Kernel, what: String) -> CodegenError {
        CodegenError::Internal { kernel: kernel.name.clone(), what }
    }

    /// A kernel that breaks the rules of its level, as the verifier says.
    pub fn unverified(kernel: &Kernel, errors: &[Diagnostic]) -> CodegenError {
        CodegenError::internal(kernel, errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
