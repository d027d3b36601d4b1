//! Faults of kernels, and their places.

use std::fmt;

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Access {
    Read,
    Write,
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic",
        })
    }
}

/// A thread and a line, as in "written by thread 3 at line 120".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Index of the thread in its block, or none where there were several.
    pub thread: Option<u32>,
    /// Line of the PTX text.
    pub line: u32,
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thread {
            Some(t) => write!(f, "thread {t} at line {}", self.line),
            None => write!(f, "several threads, last at line {}", self.line),
        }
    }
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FaultKind {
    /// An address that is not mapped.
    OutOfBounds { space: &'static str, access: Access, address: u64, bytes: u64, nearest: Box<str> },
    /// An address that is not a multiple of the access size.
    Misaligned { space: &'static str, address: u64, bytes: u64 },
    /// A read of a byte that nobody wrote.
    Uninitialised { space: &'static str, address: u64 },
    /// A write to constant memory.
    Constant { address: u64 },
    /// Two accesses of shared memory, one a write, with nothing that orders them.
    Race { access: Access, address: u64, other_access: Access, other: Other },
    /// Two blocks access global memory, one of them writes, and no fences and atomics order them.
    /// `block` is the other one's linear index, or none for several.
    BlockRace { access: Access, address: u64, other_access: Access, block: Option<u32>, line: u32 },
    /// `ld.global.nc` of bytes that this launch wrote: the read-only cache may hold the old ones.
    Stale { address: u64, line: u32 },
    /// An access in a launch that overlaps with launches before it, not preceded by
    /// `griddepcontrol.wait`: a read of their results, or a write.
    Early { access: Access, address: u64 },
    /// An access of bytes that an asynchronous copy or product, not yet waited for, writes or
    /// reads.
    InFlight { access: Access, address: u64, other: Other },
    /// The async proxy reads a thread's write, with no `fence.proxy.async` between.
    ProxyFence { address: u64, other: Other },
    /// A register of a wgmma used before `wgmma.wait_group`.
    Accumulator { register: String },
    /// wgmma with registers written after the last `wgmma.fence`.
    WgmmaFence { register: String },
    /// Threads of one warp stand at different places, at an instruction that all of them must
    /// execute together.
    Diverged { active: u32, expected: u32 },
    /// A shuffle reads a lane that does not take part.
    InactiveLane { source: u32 },
    /// No warp can go on.
    Deadlock { waiting: String },
    /// More instructions than the limit.
    Budget { limit: u64 },
    /// Operands that the instruction does not accept.
    Operand(String),
    /// The launch itself is wrong.
    Launch(String),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::OutOfBounds { space, access, address, bytes, nearest } => {
                write!(f, "{access} of {bytes} bytes at {address:#x} is outside of {space} memory: {nearest}")
            }
            FaultKind::Misaligned { space, address, bytes } => {
                write!(f, "{space} address {address:#x} is not a multiple of {bytes}")
            }
            FaultKind::Uninitialised { space, address } => {
                write!(f, "{space} memory at {address:#x} was never written")
            }
            FaultKind::Constant { address } => write!(f, "write to constant memory at {address:#x}"),
            FaultKind::Race { access, address, other_access, other } => {
                write!(
                    f,
                    "race on shared address {address:#x}: this {access} and the {other_access} of {other} are not ordered"
                )
            }
            FaultKind::BlockRace { access, address, other_access, block, line } => {
                let by = block.map_or("several blocks".to_owned(), |b| format!("block number {b}"));
                write!(
                    f,
                    "race between blocks on global address {address:#x}: this {access} and the {other_access} of {by} at line {line} are not ordered"
                )
            }
            FaultKind::Stale { address, line } => {
                write!(f, "ld.global.nc of global address {address:#x}, which the same launch wrote at line {line}")
            }
            FaultKind::Early { access, address } => {
                write!(f, "{access} of global address {address:#x} before griddepcontrol.wait")
            }
            FaultKind::InFlight { access, address, other } => {
                write!(
                    f,
                    "{access} of shared address {address:#x}, which the asynchronous operation of {other} still uses"
                )
            }
            FaultKind::ProxyFence { address, other } => {
                write!(
                    f,
                    "shared address {address:#x} was written by {other} and is read asynchronously without fence.proxy.async between"
                )
            }
            FaultKind::Accumulator { register } => {
                write!(f, "register {register} of a wgmma is used before wgmma.wait_group")
            }
            FaultKind::WgmmaFence { register } => {
                write!(f, "register {register} was written after the last wgmma.fence")
            }
            FaultKind::Diverged { active, expected } => {
                write!(f, "lanes {active:#010x} of the warp are here, but {expected:#010x} must be")
            }
            FaultKind::InactiveLane { source } => {
                write!(f, "lane {source}, which is read, does not execute the instruction")
            }
            FaultKind::Deadlock { waiting } => write!(f, "no warp can go on: {waiting}"),
            FaultKind::Budget { limit } => write!(f, "more than {limit} instructions: an endless loop?"),
            FaultKind::Operand(what) | FaultKind::Launch(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for FaultKind {}

/// A fault and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the kernel.
    pub kernel: Box<str>,
    /// Line of the PTX text; 0 where the launch itself is wrong.
    pub line: u32,
    /// That instruction.
    pub text: Box<str>,
    /// Block, in the grid.
    pub block: [u32; 3],
    /// Thread, in the block.
    pub thread: [u32; 3],
    /// The kind.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel)?;
        if self.line > 0 {
            write!(f, ", line {}, block {:?}, thread {:?}", self.line, self.block, self.thread)?;
        }
        write!(f, ": {}", self.kind)?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// A fault of one lane, before its place is known.
#[derive(Debug)]
pub(crate) struct Trap {
    pub lane: u32,
    pub kind: FaultKind,
}

/// Boxed, because it is rare and results are returned everywhere.
pub(crate) type Trapped = Box<Trap>;

pub(crate) fn trap(lane: u32, kind: FaultKind) -> Trapped {
    Box::new(Trap { lane, kind })
}
