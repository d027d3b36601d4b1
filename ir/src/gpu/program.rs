//! The skeleton of a GPU kernel: what it does to shared memory, barriers and accumulators, and in which order. Arithmetic is left out.
//!
//! An emitter records a [`Program`] with a [`Recorder`] while it emits code, and [`verify_program`](super::verify::verify_program) executes it: races, missing
//! waits and fences, deadlocks and bank conflicts are found without a GPU, for every trip count that matters.
//!
//! Every thread of the block runs the body; operations marked *elected* are run by one thread of the block, or of the role. A [`Slot`] is one stage of a buffer:
//! accesses of different threads in one turn of a slot are taken to be of different parts of it when they write, and of any part when they read.

use super::layout::conflict_degree;

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
    /// What is done.
    pub body: Vec<Stmt>,
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
    /// Every warp of the role with this number (one arrival per warp or per thread, as initialized).
    Role(usize),
    /// Every warp of the block.
    All,
}

/// A number that follows a loop: `counter + plus`. A ring's stage is this modulo its stages; the phase of an `mbarrier` is this divided by them.
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
    /// Turns since the kernel began: goes on where an inner loop is entered again. After the loop, all its turns.
    Total(LoopId),
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
    /// `bar.sync` of all threads of the block, or `bar.sync id` of those of the role, as [`Sync`] says.
    Barrier(Sync),
    /// Loads from a slot into registers; `own`: only what this thread stored itself.
    Read {
        /// From.
        slot: Slot,
        /// Of the lanes.
        pattern: Option<Pattern>,
        /// Only the thread's own.
        own: bool,
    },
    /// Stores from registers into a slot.
    Write {
        /// To.
        slot: Slot,
        /// Of the lanes.
        pattern: Option<Pattern>,
    },
    /// `fence.proxy.async`: orders this thread's earlier accesses to shared memory before asynchronous ones that follow.
    FenceAsync,
    /// `mbarrier.init` of an array. Elected.
    BarrierInit(BarrierId),
    /// `fence.mbarrier_init` (with `fence.proxy.async`): shows this thread's initialized barriers to the asynchronous proxy. Elected.
    FenceInit,
    /// `setmaxnreg`: the threads of the role have so many registers from here on.
    Registers(u32),
    /// `mbarrier.arrive.expect_tx` of so many bytes. Elected.
    Expect(Phase, u32),
    /// `cp.async.bulk` (tensor or not) of so many bytes of a slot, which completes on an `mbarrier`. Elected.
    BulkCopy(Slot, Phase, u32),
    /// `mbarrier.arrive`, of every warp that runs it.
    Arrive(Phase),
    /// Waits for the phase to complete.
    WaitFull(Phase),
    /// Waits for the phase before to complete: true at once in the first turn of the ring.
    WaitEmpty(Phase),
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
    /// The index is even: what alternates between two sets of registers.
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
        /// What.
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
}

/// Warps with a body of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Name.
    pub name: String,
    /// Warps.
    pub warps: u32,
    /// What they do.
    pub body: Vec<Stmt>,
}

/// Something being recorded.
#[derive(Clone, Debug)]
enum Frame {
    Loop(LoopId, Trips),
    Then(Condition),
    Else(Condition, Vec<Stmt>),
    Roles(Vec<Role>),
    Role(String, u32),
}

/// Records a [`Program`] while a kernel is emitted: the calls nest as the emitted code does.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    program: Program,
    open: Vec<(Frame, Vec<Stmt>)>,
    unbalanced: bool,
}

impl Recorder {
    /// An empty program for blocks of so many warps.
    pub fn new(name: impl Into<String>, warps: u32) -> Recorder {
        Recorder { program: Program { name: name.into(), warps, ..Program::default() }, ..Recorder::default() }
    }

    /// Declares a buffer.
    pub fn buffer(&mut self, buffer: Buffer) -> BufferId {
        self.program.buffers.push(buffer);
        self.program.buffers.len() - 1
    }

    /// Declares an array of `mbarrier`s.
    pub fn barrier(&mut self, name: impl Into<String>, stages: u32, arrivals: Arrivals) -> BarrierId {
        self.program.barriers.push(Barrier { name: name.into(), stages, arrivals });
        self.program.barriers.len() - 1
    }

    /// Declares an accumulator, or a fragment that asynchronous instructions read.
    pub fn registers(&mut self, name: impl Into<String>) -> RegisterId {
        self.program.registers.push(name.into());
        self.program.registers.len() - 1
    }

    /// Appends an operation.
    pub fn op(&mut self, op: Op) {
        self.push(Stmt::Op(op));
    }

    /// Declares a loop, before conditions name it.
    pub fn declare_loop(&mut self, name: impl Into<String>) -> LoopId {
        self.program.loops.push(name.into());
        self.program.loops.len() - 1
    }

    /// Opens a declared loop.
    pub fn begin_loop(&mut self, id: LoopId, trips: Trips) {
        self.open.push((Frame::Loop(id, trips), vec![]));
    }

    /// Closes the loop opened last.
    pub fn end_loop(&mut self) {
        match self.open.pop() {
            Some((Frame::Loop(id, trips), body)) => self.push(Stmt::Loop { id, trips, body }),
            _ => self.unbalanced = true,
        }
    }

    /// Opens a branch.
    pub fn begin_if(&mut self, when: Condition) {
        self.open.push((Frame::Then(when), vec![]));
    }

    /// Goes on to the other side of the branch opened last.
    pub fn begin_else(&mut self) {
        match self.open.pop() {
            Some((Frame::Then(when), then)) => self.open.push((Frame::Else(when, then), vec![])),
            _ => self.unbalanced = true,
        }
    }

    /// Closes the branch opened last.
    pub fn end_if(&mut self) {
        match self.open.pop() {
            Some((Frame::Then(when), then)) => self.push(Stmt::If { when, then, other: vec![] }),
            Some((Frame::Else(when, then), other)) => self.push(Stmt::If { when, then, other }),
            _ => self.unbalanced = true,
        }
    }

    /// Opens a parting of warps.
    pub fn begin_roles(&mut self) {
        self.open.push((Frame::Roles(vec![]), vec![]));
    }

    /// Opens the next role.
    pub fn begin_role(&mut self, name: impl Into<String>, warps: u32) {
        self.open.push((Frame::Role(name.into(), warps), vec![]));
    }

    /// Closes the role opened last.
    pub fn end_role(&mut self) {
        match (self.open.pop(), self.open.last_mut()) {
            (Some((Frame::Role(name, warps), body)), Some((Frame::Roles(roles), _))) => roles.push(Role { name, warps, body }),
            _ => self.unbalanced = true,
        }
    }

    /// Closes the parting.
    pub fn end_roles(&mut self) {
        match self.open.pop() {
            Some((Frame::Roles(roles), _)) => self.push(Stmt::Roles(roles)),
            _ => self.unbalanced = true,
        }
    }

    /// The program; `None` if what was opened and what was closed do not match (a bug of the emitter).
    pub fn finish(self) -> Option<Program> {
        (!self.unbalanced && self.open.is_empty()).then_some(self.program)
    }

    fn push(&mut self, stmt: Stmt) {
        match self.open.last_mut() {
            Some((_, body)) => body.push(stmt),
            None => self.program.body.push(stmt),
        }
    }
}
