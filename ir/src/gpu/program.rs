//! The skeleton of a GPU kernel: its operations on shared memory, barriers and accumulators, in
//! order. Arithmetic is left out.
//!
//! The builder that prints a kernel records a [`Program`] with a [`Recorder`] as it prints, and
//! [`verify_program`](super::verify::verify_program) executes it: races, missing waits and fences,
//! deadlocks and bank conflicts are found without a GPU. A [`Slot`] is one stage of a buffer:
//! accesses of different threads in one turn of a slot are taken to be of different parts of it
//! when they write, and of any part when they read.
//!
//! # Two ways to say when and where
//!
//! Recorded programs have the integers that the kernel itself computes ([`Program::values`],
//! [`Stmt::Let`], [`Stmt::For`], [`Stmt::Choose`]): every thread that is followed computes its own
//! stages, parities and trip counts, and nobody has to say them a second time. Programs written by
//! hand, as in the tests of the rules, count turns of loops instead ([`Index::turn`],
//! [`Stmt::Loop`], [`Stmt::If`], [`Stmt::Roles`]), of any number; there every thread of the block
//! runs the body, and operations marked *elected* are run by one thread of the block, or of the
//! role.

use super::layout::conflict_degree;
use super::value::{Carry, Merge, Value, ValueId};

pub use super::recorder::Recorder;

/// Number of a buffer: index in [`Program::buffers`].
pub type BufferId = usize;
/// Number of an array of `mbarrier`s: index in [`Program::barriers`].
pub type BarrierId = usize;
/// Number of a set of registers: index in [`Program::registers`].
pub type RegisterId = usize;
/// Number of a loop, unique in a program; roles that share one turn equally often.
pub type LoopId = usize;

/// A kernel's skeleton.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Name of the kernel.
    pub name: String,
    /// Warps of a block.
    pub warps: u32,
    /// Shared memory.
    pub buffers: Vec<Buffer>,
    /// `mbarrier`s.
    pub barriers: Vec<Barrier>,
    /// Names of accumulators and of operand fragments that asynchronous instructions read.
    pub registers: Vec<String>,
    /// Loops: names, by number.
    pub loops: Vec<String>,
    /// Integers that the kernel computes.
    pub values: Vec<Value>,
    /// Statements.
    pub body: Vec<Stmt>,
    /// Operations on memory that kernels before write, as text, which the wait for those kernels does
    /// not dominate.
    pub early: Vec<String>,
}

/// Who shares a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All threads of the block.
    #[default]
    Block,
    /// The threads of one warp; every warp has its own.
    Warp,
}

/// A ring of equal pieces of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Name.
    pub name: String,
    /// Bytes of a stage.
    pub bytes: u32,
    /// Stages.
    pub stages: u32,
    /// Who shares it.
    pub scope: Scope,
    /// Accesses are promised to be free of bank conflicts.
    pub conflict_free: bool,
    /// Buffers whose place it takes: all their stages.
    pub over: Vec<BufferId>,
}

/// An array of `mbarrier`s, as many as the ring they guard has stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Name.
    pub name: String,
    /// Barriers.
    pub stages: u32,
    /// Who arrives in each phase.
    pub arrivals: Arrivals,
}

/// Threads that must arrive for a phase of an `mbarrier` to complete (with all bytes it expects).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// One elected thread.
    One,
    /// Every warp of the role with this number (one arrival per warp or per thread, as
    /// initialized).
    Role(usize),
    /// Every warp of the block.
    All,
    /// So many threads.
    Count(u32),
}

/// A number that follows a loop: `counter + plus`. A ring's stage is this modulo its stages; the
/// phase of an `mbarrier` is this divided by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    /// The loop whose turns are counted; `None` counts none.
    pub follows: Option<Counter>,
    /// Added.
    pub plus: i64,
}

/// Turns of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Turns since the loop was entered.
    Turn(LoopId),
    /// Turns since the kernel began: goes on where an inner loop is entered again. After the loop,
    /// all its turns.
    Total(LoopId),
    /// A value: of a [`Slot`] the byte offset from the buffer's start, of a [`Phase`] the stage.
    Value(ValueId),
}

impl Index {
    /// A constant.
    pub const fn at(plus: i64) -> Index {
        Index { follows: None, plus }
    }

    /// Turn of a loop, plus a constant.
    pub const fn turn(id: LoopId, plus: i64) -> Index {
        Index { follows: Some(Counter::Turn(id)), plus }
    }

    /// A value.
    pub const fn value(id: ValueId) -> Index {
        Index { follows: Some(Counter::Value(id)), plus: 0 }
    }

    /// All turns of a loop so far, plus a constant.
    pub const fn total(id: LoopId, plus: i64) -> Index {
        Index { follows: Some(Counter::Total(id)), plus }
    }
}

/// One stage of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The buffer.
    pub buffer: BufferId,
    /// Which stage, modulo their number.
    pub stage: Index,
    /// The accessed part.
    pub part: Part,
}

/// Part of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// Not said.
    #[default]
    Some,
    /// So many bytes from the offset on. A thread may read its own writes there without a barrier.
    Bytes(u32),
    /// So many bytes from the offset on, which no other thread touches before the next barrier.
    Apart(u32),
    /// So many bytes from the offset on, which other lanes of the warp get (`ldmatrix`).
    Lanes(u32),
}

/// One `mbarrier` of an array, in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Phase {
    /// The array.
    pub barrier: BarrierId,
    /// Stage and phase: barrier `index mod stages`, parity `index / stages mod 2`.
    pub index: Index,
}

/// Which bytes of a slot the lanes of a warp touch at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Byte offset of each lane (for `ldmatrix`: of each row pointer).
    pub lanes: Vec<u32>,
    /// Bytes per lane.
    pub width: u32,
}

impl Pattern {
    /// Ways in which the lanes collide, see [`conflict_degree`].
    pub fn conflicts(&self) -> u32 {
        conflict_degree(&self.lanes, self.width)
    }
}

/// Instructions of tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atom {
    /// `mma.m16n8k16`, 16-bit floats.
    M16N8K16,
    /// `mma.m16n8k32`, 8 bits.
    M16N8K32,
    /// `wgmma.m64nNk16`, 16-bit floats, with this `N`.
    M64K16(u32),
    /// `wgmma.m64nNk32`, 8 bits, with this `N`.
    M64K32(u32),
}

/// The A operand of a `wgmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In shared memory.
    Shared(Slot),
    /// In registers.
    Registers(RegisterId),
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `cp.async` of this thread's part of a slot.
    CpAsync(Slot),
    /// `cp.async.commit_group`.
    CpCommit,
    /// `cp.async.wait_group`: all but the last so many groups of this thread have landed.
    CpWait(u32),
    /// `bar.sync` of all threads of the block, or `bar.sync id` of the role's threads, as [`Sync`]
    /// says.
    Barrier(Sync),
    /// Loads from a slot into registers; `own`: only this thread's own stores.
    Read {
        /// From.
        slot: Slot,
        /// Access pattern of the lanes.
        pattern: Option<Pattern>,
        /// Only the thread's own.
        own: bool,
    },
    /// Stores from registers into a slot.
    Write {
        /// To.
        slot: Slot,
        /// Access pattern of the lanes.
        pattern: Option<Pattern>,
    },
    /// `fence.proxy.async`: orders this thread's earlier accesses to shared memory before
    /// asynchronous ones that follow.
    FenceAsync,
    /// `mbarrier.init` of an array. Elected.
    BarrierInit(BarrierId),
    /// The same of one of its stages.
    BarrierInitAt(Phase),
    /// `fence.mbarrier_init` (with `fence.proxy.async`): shows this thread's initialized barriers
    /// to the asynchronous proxy. Elected.
    FenceInit,
    /// `setmaxnreg`: the threads of the role have so many registers from here on.
    Registers(u32),
    /// `mbarrier.arrive.expect_tx` of so many bytes. Elected.
    Expect(Phase, u32),
    /// `cp.async.bulk` (tensor or not) of so many bytes of a slot, which completes on an
    /// `mbarrier`. Elected.
    BulkCopy(Slot, Phase, u32),
    /// `mbarrier.arrive`, of every warp that runs it.
    Arrive(Phase),
    /// Waits for the phase to complete.
    WaitFull(Phase),
    /// Waits for the phase before to complete: true at once in the first turn of the ring.
    WaitEmpty(Phase),
    /// Waits for the next phase of this parity to complete.
    WaitParity(Phase, ValueId),
    /// `bar.arrive`: counts at a named barrier, without waiting there.
    BarrierArrive(Sync),
    /// `mma.sync` into an accumulator, operands in registers.
    Mma(Atom, RegisterId),
    /// `wgmma.fence`.
    WgmmaFence,
    /// `wgmma.mma_async`: accumulator, A, B.
    Wgmma(Atom, RegisterId, Source, Slot),
    /// `wgmma.commit_group`.
    WgmmaCommit,
    /// `wgmma.wait_group`: all but the last so many groups are done.
    WgmmaWait(u32),
    /// Reads registers named in the program.
    RegisterRead(RegisterId),
    /// Writes registers named in the program.
    RegisterWrite(RegisterId),
    /// Something to know that is not checked: cache hints, the share of the grid, split K.
    Note(String),
}

/// Who meets at a [`Op::Barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// All threads of the block.
    Block,
    /// All threads of the role (a named barrier).
    Role,
    /// The threads of a warp (`bar.warp.sync`).
    Warp,
    /// So many threads (a named barrier of this number).
    Threads(ValueId, u32),
}

/// How often a loop turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trips {
    /// So often.
    Fixed(u32),
    /// Known when running: any number, 0 included.
    Any,
    /// Known when running, at least 1.
    Some,
}

/// When a branch is taken; all threads that run it agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The index is less than the turns the loop makes: guards of copies ahead.
    Within(Index, LoopId),
    /// The index is at least this.
    AtLeast(Index, i64),
    /// The index is even: for alternation between two sets of registers.
    Even(Index),
    /// Some fact that does not change while the kernel runs; equal names are equal facts.
    Fact(String),
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// An operation.
    Op(Op),
    /// A loop.
    Loop {
        /// Its number.
        id: LoopId,
        /// How often.
        trips: Trips,
        /// Statements.
        body: Vec<Stmt>,
    },
    /// A branch.
    If {
        /// When.
        when: Condition,
        /// Then.
        then: Vec<Stmt>,
        /// Else.
        other: Vec<Stmt>,
    },
    /// Warps part: each role runs its own body, and all meet again at the end of the kernel.
    Roles(Vec<Role>),
    /// Computes a value from others.
    Let(ValueId),
    /// A loop with bounds that the kernel computes.
    For {
        /// First turn, the one after the last, and from one to the next.
        bounds: [ValueId; 3],
        /// The turn.
        turn: ValueId,
        /// Values carried from turn to turn.
        carried: Vec<Carry>,
        /// Statements.
        body: Vec<Stmt>,
    },
    /// A branch on a value.
    Choose {
        /// The condition.
        when: ValueId,
        /// Then.
        then: Vec<Stmt>,
        /// Else.
        other: Vec<Stmt>,
        /// Its results.
        results: Vec<Merge>,
    },
}

impl Stmt {
    /// The statements in it.
    pub fn bodies(&self) -> Vec<&[Stmt]> {
        match self {
            Stmt::Op(_) | Stmt::Let(_) => vec![],
            Stmt::Loop { body, .. } | Stmt::For { body, .. } => vec![body],
            Stmt::If { then, other, .. } | Stmt::Choose { then, other, .. } => vec![then, other],
            Stmt::Roles(roles) => roles.iter().map(|r| &r.body[..]).collect(),
        }
    }

    /// The same statement with other statements in it: `change` gets each body in the order of
    /// [`Stmt::bodies`].
    pub fn with_bodies(&self, mut change: impl FnMut(&[Stmt]) -> Vec<Stmt>) -> Stmt {
        let mut new = self.clone();
        match &mut new {
            Stmt::Op(_) | Stmt::Let(_) => {}
            Stmt::Loop { body, .. } | Stmt::For { body, .. } => *body = change(body),
            Stmt::If { then, other, .. } | Stmt::Choose { then, other, .. } => {
                *then = change(then);
                *other = change(other);
            }
            Stmt::Roles(roles) => roles.iter_mut().for_each(|r| r.body = change(&r.body)),
        }
        new
    }
}

/// Warps with a body of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Name.
    pub name: String,
    /// Warps.
    pub warps: u32,
    /// Their statements.
    pub body: Vec<Stmt>,
}
