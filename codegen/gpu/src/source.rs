//! A kernel as the emitters hand it over: text, skeleton, and how to launch it.

use llmcc_abi::GpuDim;
use llmcc_ir::gpu::program::Program;

/// A kernel as MLIR, and how to launch it.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Symbol of the entry.
    pub entry: String,
    /// The MLIR module.
    pub mlir: String,
    /// Its skeleton.
    pub program: Program,
    /// Threads per block.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
    /// Blocks in x, y, z.
    pub grid: [GpuDim; 3],
    /// Bytes of workspace.
    pub scratch: u64,
    /// Further bytes of workspace per row.
    pub scratch_per_m: u64,
    /// Set when the kernel takes a slow generic path: the reason.
    pub generic: Option<&'static str>,
}

/// First bytes of a kernel's workspace, where [`Source::scratch`] is not 0: counters of blocks,
/// zero between launches. What follows holds anything.
pub const COUNTER_BYTES: usize = 16 << 10;

/// `n` blocks, whatever the number of rows.
pub const fn blocks(n: usize) -> GpuDim {
    GpuDim { fixed: n as u32, per_m: 0 }
}

/// One block for every `rows` rows.
pub const fn per_rows(rows: usize) -> GpuDim {
    GpuDim { fixed: 1, per_m: rows as u32 }
}

impl Source {
    /// A kernel without shared memory, workspace or a slow path: its text and skeleton, the threads of
    /// a block, and the blocks.
    pub fn new(entry: String, (mlir, program): (String, Program), threads: u32, grid: [GpuDim; 3]) -> Source {
        Source { entry, mlir, program, threads, shared: 0, grid, scratch: 0, scratch_per_m: 0, generic: None }
    }
}
