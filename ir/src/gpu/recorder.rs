//! A recorder of a [`Program`]: its calls nest like the emitted code or the written text.

use super::program::{
    Arrivals, Barrier, BarrierId, Buffer, BufferId, Condition, LoopId, Op, Program, RegisterId, Role, Stmt, Trips,
};
use super::value::{Carry, Merge, Value, ValueId};

/// Something being recorded.
#[derive(Clone, Debug)]
enum Frame {
    Loop(LoopId, Trips),
    Then(Condition),
    Else(Condition, Vec<Stmt>),
    Roles(Vec<Role>),
    Role(String, u32),
    For([ValueId; 3], ValueId),
    Choose(ValueId),
    Otherwise(ValueId, Vec<Stmt>),
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

    /// Makes a buffer's stages at least so large.
    pub fn grow(&mut self, buffer: BufferId, bytes: u32) {
        if let Some(b) = self.program.buffers.get_mut(buffer) {
            b.bytes = b.bytes.max(bytes);
        }
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
            (Some((Frame::Role(name, warps), body)), Some((Frame::Roles(roles), _))) => {
                roles.push(Role { name, warps, body })
            }
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

    /// A value; one that is computed from others is computed here.
    pub fn value(&mut self, value: Value) -> ValueId {
        let (id, computed) = (self.program.values.len(), matches!(value, Value::Two(..) | Value::Select(..)));
        self.program.values.push(value);
        if computed {
            self.push(Stmt::Let(id));
        }
        id
    }

    /// Values to try for a number that is not known before the kernel runs. A known value stays.
    pub fn assume(&mut self, id: ValueId, samples: &[i64]) {
        if let Some(Value::Unknown(all)) = self.program.values.get_mut(id) {
            *all = samples.to_vec();
        }
    }

    /// The program recorded so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Opens a loop with bounds that the kernel computes; `turn` is the body's view of them.
    pub fn begin_for(&mut self, bounds: [ValueId; 3], turn: ValueId) {
        self.open.push((Frame::For(bounds, turn), vec![]));
    }

    /// Closes it, with its carried values, and operations before it that were known only now.
    pub fn end_for(&mut self, carried: Vec<Carry>, before: impl IntoIterator<Item = Op>) {
        match self.open.pop() {
            Some((Frame::For(bounds, turn), body)) => {
                before.into_iter().for_each(|op| self.op(op));
                self.push(Stmt::For { bounds, turn, carried, body });
            }
            _ => self.unbalanced = true,
        }
    }

    /// Opens a branch on a value.
    pub fn begin_choose(&mut self, when: ValueId) {
        self.open.push((Frame::Choose(when), vec![]));
    }

    /// Goes on to its other side.
    pub fn begin_otherwise(&mut self) {
        match self.open.pop() {
            Some((Frame::Choose(when), then)) => self.open.push((Frame::Otherwise(when, then), vec![])),
            _ => self.unbalanced = true,
        }
    }

    /// Closes it, with its results.
    pub fn end_choose(&mut self, results: Vec<Merge>) {
        match self.open.pop() {
            Some((Frame::Choose(when), then)) => self.push(Stmt::Choose { when, then, other: vec![], results }),
            Some((Frame::Otherwise(when, then), other)) => self.push(Stmt::Choose { when, then, other, results }),
            _ => self.unbalanced = true,
        }
    }

    /// The program; `None` if opened and closed parts do not match (a bug of the emitter).
    pub fn finish(self) -> Option<Program> {
        (!self.unbalanced && self.open.is_empty()).then_some(self.program)
    }

    fn push(&mut self, stmt: Stmt) {
        let body = match self.open.last_mut() {
            Some((_, body)) => body,
            None => &mut self.program.body,
        };
        // Once is enough.
        if body.last() != Some(&stmt) || !matches!(stmt, Stmt::Op(Op::RegisterRead(_))) {
            body.push(stmt);
        }
    }
}
