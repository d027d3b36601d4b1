//! An emulator of PTX: runs the kernels that llmcc emits without a GPU, and reports whatever a GPU
//! would leave undefined.
//!
//! ```
//! # use llmcc_ptx::{Memory, Module, Options, launch};
//! let text = "
//! .version 8.0
//! .target sm_90
//! .address_size 64
//! .visible .entry twice(.param .u64 x) {
//!     .reg .b32 %r<3>;
//!     .reg .b64 %rd<4>;
//!     ld.param.b64 %rd1, [x];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.b32 %r2, [%rd3];
//!     add.rn.f32 %r2, %r2, %r2;
//!     st.global.b32 [%rd3], %r2;
//!     ret;
//! }";
//! let module = Module::parse(text).unwrap();
//! let mut memory = Memory::new();
//! let x = memory.alloc_from(&1.5f32.to_le_bytes().repeat(32));
//! launch(&module, "twice", [1, 1, 1], [32, 1, 1], 0, &[x], &mut memory, &Options::default()).unwrap();
//! assert_eq!(memory.read(x, 4).unwrap(), 3f32.to_le_bytes());
//! ```
//!
//! # What is exact
//! Integer arithmetic, conversions, f32, f64, f16 and bf16 addition, multiplication, fma, division
//! and roots give the bits that PTX defines. Approximations (`ex2.approx` and the like) are
//! computed in f64 and rounded once. Matrix products add exact products to the accumulator in f64
//! and round once; the hardware differs in the last bits, which PTX leaves open.
//!
//! # What is reported
//! Every fault has the kernel, the line, the block and the thread:
//! - accesses outside of a buffer, misaligned ones, writes to constants;
//! - reads of shared or global bytes that nobody wrote (the registers never written hold NaN);
//! - races on shared memory. Threads are ordered by `bar.sync`, `bar.warp.sync` and mbarriers,
//!   tracked with vector clocks; also lanes of one warp need `bar.warp.sync` to exchange values
//!   through memory;
//! - races between blocks on global memory, where no fences and atomics order them (they run one
//!   after another here, at the same time on a GPU);
//! - `ld.global.nc` of memory that the same launch wrote;
//! - in launches that overlap ([`Options::overlaps`]), uses of earlier launches' results before
//!   `griddepcontrol.wait`;
//! - use of bytes that an asynchronous copy has not delivered (copies land at the wait, not
//!   before), or overwriting bytes that one still reads;
//! - asynchronous reads (wgmma, bulk stores) of bytes that threads wrote with no
//!   `fence.proxy.async` between;
//! - registers of a wgmma used before `wgmma.wait_group`, or without `wgmma.fence`;
//! - `.aligned` instructions and barriers that only a part of a warp reaches, shuffles from lanes
//!   that do not take part, deadlocks, endless loops.
//!
//! Bank conflicts of shared memory are counted per instruction ([`Stats::conflicts`]).
//!
//! # Limits
//! Blocks run one after another, so blocks that wait for each other never end (see
//! [`Options::instruction_limit`]). Clusters have one block. Lanes of a warp run in lock step and
//! meet again at the immediate post-dominator of a branch: code in which one lane of a warp waits
//! for another on a different path is reported as a deadlock. Not emulated: calls, indirect
//! branches, tensor maps (`cp.async.bulk.tensor`), sparse and block-scaled products. Buffers beyond
//! 32 MiB are not watched for races between blocks.
//!
//! The files of this crate use each other (`tests/tests/circles.rs`): instructions are closures over the
//! machine, whose state is made of what they need.

mod access;
mod ast;
mod asyncs;
mod blocks;
mod build;
mod clocks;
mod decode;
mod element;
mod error;
mod fault;
mod flow;
mod lex;
mod machine;
mod mbarrier;
mod memory;
mod module;
mod run;
mod shared;
mod value;
mod wgmma;

use std::collections::BTreeMap;

pub use error::Error;
pub use fault::{Access, Fault, FaultKind, Other};
pub use memory::Memory;
pub use module::{Kernel, Module, Param};

/// Extents in x, y and z.
pub type Dim = [u32; 3];

/// The checks of a launch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Report reads of bytes that nobody wrote.
    pub check_uninitialised: bool,
    /// Report races on shared memory and between blocks, and asynchronous reads without
    /// `fence.proxy.async`.
    pub check_races: bool,
    /// Most instructions of threads.
    pub instruction_limit: u64,
    /// `wgmma` of 8-bit floats keeps of a step's terms (its products and the accumulator) 13 bits
    /// below the largest one's first, and cuts off the rest, as Hopper's tensor cores were found to
    /// do (DeepSeek-V3 Technical Report, 2024, section 3.5.2; SageAttention2, 2024, section 3.3).
    /// Else sums are exact, and rounded once per step.
    pub short_fp8_sums: bool,
    /// The launch may begin before those before it have ended (programmatic dependent launch).
    /// Before `griddepcontrol.wait` it must not read the results of launches since the last one
    /// that began after all before, and write nothing; and some thread must wait, so that later
    /// launches may rely on its end.
    pub overlaps: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            check_uninitialised: true,
            check_races: true,
            instruction_limit: 20_000_000_000,
            short_fp8_sums: false,
            overlaps: false,
        }
    }
}

/// Bank conflicts of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Line of the PTX text.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// Most different words that one bank gave at once; 1 would be no conflict.
    pub degree: u32,
    /// Extra passes in all.
    pub extra: u64,
    /// How often a warp executed it.
    pub accesses: u64,
}

/// Counts of a launch.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Instructions, each lane counted.
    pub instructions: u64,
    /// Instructions, each warp counted.
    pub warp_instructions: u64,
    /// Lane instructions by opcode; memory accesses with their space, as in `ld.global`.
    pub classes: BTreeMap<String, u64>,
    /// Extra passes over shared memory because of bank conflicts.
    pub bank_conflicts: u64,
    /// The instructions with bank conflicts.
    pub conflicts: Vec<Conflict>,
    /// Bytes read from global memory.
    pub read: u64,
    /// Bytes written to global memory.
    pub written: u64,
    /// Bytes that `cp.async` reads from the line of 128 bytes it reads most: all multiprocessors
    /// that read one line wait for the same slice of the second-level cache.
    pub hottest: u64,
}

/// Runs kernel `name` with 64-bit arguments, one for each parameter.
///
/// # Errors
/// The first fault.
pub fn launch(
    module: &Module,
    name: &str,
    grid: Dim,
    block: Dim,
    dynamic_shared: u64,
    args: &[u64],
    memory: &mut Memory,
    options: &Options,
) -> Result<Stats, Fault> {
    let kernel = find(module, name)?;
    let mut bytes = vec![0; kernel.param_bytes()];
    if args.len() != kernel.params().len() {
        return Err(bad_launch(name, format!("{} arguments for {} parameters", args.len(), kernel.params().len())));
    }
    for (p, a) in kernel.params().iter().zip(args) {
        let n = p.size.min(8);
        bytes[p.offset..p.offset + n].copy_from_slice(&a.to_le_bytes()[..n]);
    }
    run::launch(module, kernel, grid, block, dynamic_shared, &bytes, memory, options)
}

/// Runs kernel `name` with its parameter block as bytes ([`Kernel::params`] gives the layout).
///
/// # Errors
/// The first fault.
pub fn launch_bytes(
    module: &Module,
    name: &str,
    grid: Dim,
    block: Dim,
    dynamic_shared: u64,
    params: &[u8],
    memory: &mut Memory,
    options: &Options,
) -> Result<Stats, Fault> {
    run::launch(module, find(module, name)?, grid, block, dynamic_shared, params, memory, options)
}

fn find<'a>(module: &'a Module, name: &str) -> Result<&'a Kernel, Fault> {
    module.kernel(name).ok_or_else(|| bad_launch(name, "the module has no such kernel".into()))
}

fn bad_launch(name: &str, what: String) -> Fault {
    Fault {
        kernel: name.into(),
        line: 0,
        text: Box::default(),
        block: [0; 3],
        thread: [0; 3],
        kind: FaultKind::Launch(what),
    }
}
