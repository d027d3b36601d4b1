//! Code generation: from kernels to machine code, and from machine code and weights to an artifact.
//!
//! A [`Backend`] sees one [`Kernel`] and the [`TargetSpec`], nothing else, and returns position-independent bytes. It may rely on the kernel
//! verifier: a verified kernel is either compiled or refused with a [`CodegenError`], never a panic.

pub mod artifact;
pub mod cpu;
pub mod link;
pub mod locate;
pub mod sealed;

use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::TargetSpec;

/// Makes machine code for one family of targets.
pub trait Backend {
    /// Name in reports.
    fn name(&self) -> &str;

    /// Compiles a verified kernel to an [`llmcc_abi::KernelFn`].
    ///
    /// # Errors
    /// What the backend does not support, or an internal error.
    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError>;

    /// Compiles the kernels of a plan, in order. A backend that gains by it works on several at once.
    ///
    /// # Errors
    /// Those of [`Backend::lower`], for the first kernel that has one.
    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        kernels.iter().map(|k| self.lower(k, target)).collect()
    }
}

/// Machine code of one kernel.
#[derive(Clone, Debug)]
pub struct Object {
    /// Code and its constants: position independent, without relocations, entry at offset 0, to be placed at a multiple of 64 bytes.
    pub code: Vec<u8>,
    /// Scratch bytes each thread needs, a multiple of 64.
    pub scratch: u64,
    /// Further scratch bytes per row of the step, a multiple of 64.
    pub scratch_per_m: u64,
    /// See [`llmcc_abi::KernelDesc::shared_per_block`]; 0 on GPUs.
    pub shared_per_block: u64,
    /// The backend's intermediate code, for `--emit=clif`.
    pub clif: String,
    /// Disassembly, for `--emit=asm`.
    pub listing: String,
    /// Set when the kernel takes a slow generic path: the reason.
    pub generic: Option<&'static str>,
    /// What a GPU kernel has instead of `code`, which is empty then. `scratch` and `scratch_per_m` are bytes of the whole device's workspace, see
    /// [`llmcc_abi::GpuKernelDesc`].
    pub gpu: Option<GpuObject>,
}

/// A GPU kernel: its code and how to launch it.
#[derive(Clone, Debug)]
pub struct GpuObject {
    /// Symbol of the entry.
    pub entry: String,
    /// PTX text, without a NUL.
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

/// Why a kernel was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// The backend has no lowering for this kernel on this target.
    #[error("kernel `{kernel}`: {what}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// What is not supported, and what to do.
        what: String,
    },
    /// A bug in the backend.
    #[error("internal error while compiling kernel `{kernel}`: {what}; please report it with the output of --emit=kernels")]
    Internal {
        /// Name of the kernel.
        kernel: String,
        /// What went wrong.
        what: String,
    },
}
