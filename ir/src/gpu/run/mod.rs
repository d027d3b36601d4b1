//! Executes the unrolled steps of a few threads and finds unordered accesses.
//!
//! Actors stand for threads: in recorded programs, two lanes of every warp, by their numbers; in
//! programs that count turns, two warps of every role (or of the block), which find races between
//! warps, and two lanes of a warp, which find races inside one. Order is kept by vector clocks:
//! every actor counts, and learns others' counts where it synchronizes with them, so a finding does
//! not depend on the order in which actors happen to run. Operations that complete later have
//! counts of their own: groups of `cp.async` and of `wgmma` one per actor, bulk copies one per
//! `mbarrier`; an actor learns them by waiting.

mod barriers;
mod phases;
mod slots;

use super::program::{Arrivals, Op, Program, RegisterId, Slot, Source, Sync};
use super::unroll::Step;
use std::collections::BTreeMap;

/// Identity of the two actors of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Two warps.
    Warps,
    /// Two lanes of a warp.
    Lanes,
    /// Two lanes of every warp, whose number is that of their role.
    Threads,
}

/// A broken rule at an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub code: &'static str,
    /// Number of the operation.
    pub number: usize,
    pub message: String,
}

/// Something that happened: the count it raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    clock: usize,
    tick: u32,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// Kind of the operation.
    by: Kind,
    /// Its bytes, where they are said.
    bytes: Option<(i64, i64)>,
    /// The same where no other thread touches them.
    apart: Option<(i64, i64)>,
    event: Event,
    actor: usize,
    number: usize,
    /// Through the generic proxy: not seen by asynchronous accesses without a fence.
    generic: bool,
    /// The writer's count at its fence.
    fence: Option<u32>,
}

/// Kinds of writes. Several of one kind fill different parts of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Store,
    Copy,
    Bulk,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    event: Event,
    number: usize,
    /// Its bytes, where no other thread touches them.
    apart: Option<(i64, i64)>,
    /// The buffer it was of: the slot's own, or one that takes the slot's place.
    of: usize,
}

/// Whether accesses may touch the same bytes.
fn may_overlap(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a.0 < b.1 && b.0 < a.1)
}

/// A named barrier: the actors that have arrived since it last completed, and their knowledge.
#[derive(Clone, Debug, Default)]
struct NamedState {
    threads: u32,
    clock: Vec<u32>,
    waiting: Vec<usize>,
}

/// One stage of a buffer: the writes of its contents, and their reads.
#[derive(Clone, Debug, Default)]
struct SlotState {
    writes: Vec<Write>,
    reads: Vec<Read>,
}

/// One `mbarrier`.
#[derive(Clone, Debug, Default)]
struct BarrierState {
    /// Phases completed.
    done: u32,
    /// Arrivals that the current phase still needs.
    pending: u32,
    /// Bytes expected and not yet copied.
    bytes: i64,
    /// Counts of those who arrived in the current phase, and in completed ones.
    arriving: Vec<u32>,
    completed: Vec<u32>,
}

/// Registers that asynchronous instructions use.
#[derive(Clone, Copy, Debug)]
struct RegisterState {
    /// Last group that accumulates into them, and that reads them.
    written: u32,
    read: u32,
    /// Touched since the last `wgmma.fence`.
    dirty: bool,
}

/// Groups of asynchronous operations of an actor.
#[derive(Clone, Copy, Debug, Default)]
struct Groups {
    committed: u32,
    /// Last group with an operation in it.
    used: u32,
    last: usize,
}

struct Actor<'a> {
    role: Option<usize>,
    steps: Vec<Step<'a>>,
    at: usize,
    /// Elected: in its role, and in the block.
    first: [bool; 2],
    clock: Vec<u32>,
    copies: Groups,
    products: Groups,
    registers: Vec<RegisterState>,
    /// The barrier it stands at.
    meets: Option<Sync>,
}

pub(super) struct Machine<'a> {
    program: &'a Program,
    pass: Pass,
    actors: Vec<Actor<'a>>,
    slots: Vec<Vec<SlotState>>,
    barriers: Vec<Vec<BarrierState>>,
    /// Initialization of each barrier, and the fence after it.
    ready: Vec<Vec<Option<Event>>>,
    fenced: Vec<Vec<Option<Event>>>,
    /// Operations and last bulk copy of each barrier: `(clock, phase, operation)`.
    bulk: Vec<(usize, u32, usize)>,
    /// Named barriers by their number.
    named: BTreeMap<i64, NamedState>,
    found: Vec<Finding>,
}

fn join(a: &mut [u32], b: &[u32]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

/// Runs actors given as `(role, steps)`, the actors of a role side by side. Returns the findings.
pub(super) fn run<'a>(program: &'a Program, pass: Pass, actors: Vec<(Option<usize>, Vec<Step<'a>>)>) -> Vec<Finding> {
    let mut m = Machine::new(program, pass, actors);
    loop {
        // Every actor takes its step: in lock step, findings read best.
        let moved = (0..m.actors.len()).filter(|a| m.step(*a)).count();
        if moved == 0 {
            break;
        }
    }
    m.finish();
    m.found
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, pass: Pass, list: Vec<(Option<usize>, Vec<Step<'a>>)>) -> Machine<'a> {
        let stages: usize = program.barriers.iter().map(|b| b.stages as usize).sum();
        let clocks = 3 * list.len() + stages;
        let registers = vec![RegisterState { written: 0, read: 0, dirty: true }; program.registers.len()];
        let roles: Vec<Option<usize>> = list.iter().map(|(role, _)| *role).collect();
        let actor = |(i, (role, steps)): (usize, (Option<usize>, Vec<Step<'a>>))| {
            let mut clock = vec![0; clocks];
            clock[3 * i] = 1;
            let first = [roles[..i].iter().all(|r| *r != role), i == 0];
            let (copies, products) = (Groups::default(), Groups::default());
            Actor { role, steps, at: 0, first, clock, copies, products, registers: registers.clone(), meets: None }
        };
        let barrier = |arrivals: Arrivals| {
            let all = list.len();
            let pending = match arrivals {
                Arrivals::One => 1,
                Arrivals::All => all,
                Arrivals::Role(r) => roles.iter().filter(|x| **x == Some(r)).count(),
                Arrivals::Count(n) => n as usize,
            };
            BarrierState {
                pending: pending as u32,
                arriving: vec![0; clocks],
                completed: vec![0; clocks],
                ..BarrierState::default()
            }
        };
        Machine {
            program,
            pass,
            slots: program.buffers.iter().map(|b| vec![SlotState::default(); b.stages as usize]).collect(),
            barriers: program.barriers.iter().map(|b| vec![barrier(b.arrivals); b.stages as usize]).collect(),
            ready: program.barriers.iter().map(|b| vec![None; b.stages as usize]).collect(),
            fenced: program.barriers.iter().map(|b| vec![None; b.stages as usize]).collect(),
            bulk: vec![],
            named: BTreeMap::new(),
            found: vec![],
            actors: list.into_iter().enumerate().map(actor).collect(),
        }
    }

    fn find(&mut self, code: &'static str, number: usize, message: String) {
        if !self.found.iter().any(|f| f.code == code && f.number == number) {
            self.found.push(Finding { code, number, message });
        }
    }

    /// Runs the next operation of an actor; false if it cannot go on.
    fn step(&mut self, a: usize) -> bool {
        let Some(step) = self.actors[a].steps.get(self.actors[a].at).copied() else { return false };
        let goes_on = match step.op {
            Op::Barrier(Sync::Threads(_, threads)) => return self.meet_named(a, step.index[0], *threads),
            Op::Barrier(sync) => return self.meet(a, *sync),
            Op::WaitParity(p, _) => self.wait(a, *p, step, true),
            // The lanes of a warp run it together, when all have the operands they read before.
            Op::WgmmaWait(pending) if self.pass == Pass::Threads => {
                self.actors[a].learn(3 * a + 2, |g| g.products, *pending);
                return self.meet(a, Sync::Warp);
            }
            Op::WaitFull(p) => self.wait(a, *p, step, true),
            Op::WaitEmpty(p) => self.wait(a, *p, step, false),
            _ => {
                self.simple(a, step);
                true
            }
        };
        self.actors[a].at += usize::from(goes_on);
        goes_on
    }

    /// Operations that never wait for others.
    fn simple(&mut self, a: usize, step: Step<'a>) {
        let number = step.number;
        // Recorded threads run their own steps.
        let elected = self.pass == Pass::Threads || self.actors[a].first[usize::from(!step.in_role)];
        match *step.op {
            Op::CpAsync(slot) => {
                let group = self.actors[a].copies.join_group(number);
                self.write(a, slot, step, Event { clock: 3 * a + 1, tick: group }, Kind::Copy);
            }
            Op::CpCommit => self.actors[a].copies.committed += 1,
            Op::CpWait(pending) => self.actors[a].learn(3 * a + 1, |g| g.copies, pending),
            Op::Read { slot, own, .. } => {
                self.visible(a, slot, step, 0, own || step.own, false);
                let event = self.now(a);
                self.read(slot, step.index[0], Read { event, number, apart: step.apart, of: slot.buffer });
            }
            Op::BarrierArrive(Sync::Threads(_, threads)) => self.come(a, step.index[0], threads, false),
            Op::Write { slot, .. } => {
                let event = self.now(a);
                self.write(a, slot, step, event, Kind::Store);
            }
            Op::FenceAsync => self.fence(a),
            Op::BarrierInit(b) if elected => {
                let now = Some(self.now(a));
                self.ready[b].fill(now);
            }
            Op::BarrierInitAt(p) if elected => {
                let stage = self.phase(p, step.index[0]).1;
                self.ready[p.barrier][stage] = Some(self.now(a));
            }
            Op::Expect(p, bytes) if elected => self.arrive(a, p, step, i64::from(bytes), step.index[0]),
            Op::BulkCopy(slot, p, bytes) if elected => self.bulk_copy(a, slot, p, i64::from(bytes), step),
            Op::FenceInit if elected => {
                let now = self.now(a);
                let ready = self.ready.iter().flatten().map(|r| r.filter(|e| e.clock == now.clock));
                self.fenced
                    .iter_mut()
                    .flatten()
                    .zip(ready)
                    .filter(|(f, r)| f.is_none() && r.is_some())
                    .for_each(|(f, _)| *f = Some(now));
            }
            Op::BarrierInit(_)
            | Op::BarrierInitAt(_)
            | Op::FenceInit
            | Op::Expect(..)
            | Op::BulkCopy(..)
            | Op::Registers(_) => {}
            Op::Arrive(p) => self.arrive(a, p, step, 0, step.index[0]),
            Op::Mma(_, r) | Op::RegisterRead(r) => self.register(a, r, number, false),
            Op::RegisterWrite(r) => self.register(a, r, number, true),
            Op::WgmmaFence => self.actors[a].registers.iter_mut().for_each(|r| r.dirty = false),
            Op::Wgmma(_, acc, from, b) => self.wgmma(a, acc, from, b, step),
            Op::WgmmaCommit => self.actors[a].products.committed += 1,
            Op::WgmmaWait(pending) => self.actors[a].learn(3 * a + 2, |g| g.products, pending),
            Op::Barrier(_)
            | Op::BarrierArrive(_)
            | Op::WaitFull(_)
            | Op::WaitEmpty(_)
            | Op::WaitParity(..)
            | Op::Note(_) => {}
        }
    }

    fn now(&self, a: usize) -> Event {
        Event { clock: 3 * a, tick: self.actors[a].clock[3 * a] }
    }

    fn knows(&self, a: usize, e: Event) -> bool {
        self.actors[a].clock[e.clock] >= e.tick
    }

    fn fence(&mut self, a: usize) {
        let clock = self.actors[a].clock.clone();
        for w in self.slots.iter_mut().flatten().flat_map(|s| &mut s.writes) {
            if w.actor == a && w.generic && w.fence.is_none() && clock[w.event.clock] >= w.event.tick {
                w.fence = Some(clock[3 * a]);
            }
        }
    }

    fn register(&mut self, a: usize, r: RegisterId, number: usize, writes: bool) {
        let known = self.actors[a].clock[3 * a + 2];
        let state = &mut self.actors[a].registers[r];
        state.dirty = true;
        let pending = if state.written > known {
            Some(("accumulator-before-wait", "are still accumulated into"))
        } else if writes && state.read > known {
            Some(("accumulator-before-wait", "are still read"))
        } else {
            None
        };
        if let Some((code, what)) = pending {
            let program = self.program;
            let name = &program.registers[r];
            self.find(code, number, format!("`{name}` {what} by a `wgmma` that has not been waited for"));
        }
    }

    fn wgmma(&mut self, a: usize, acc: RegisterId, from: Source, b: Slot, step: Step<'a>) {
        let number = step.number;
        let group = self.actors[a].products.join_group(number);
        let event = Event { clock: 3 * a + 2, tick: group };
        let registers = match from {
            Source::Registers(r) => vec![acc, r],
            Source::Shared(slot) => {
                self.visible(a, slot, step, 0, false, true);
                self.read(slot, step.index[0], Read { event, number, apart: None, of: slot.buffer });
                vec![acc]
            }
        };
        let which = usize::from(matches!(from, Source::Shared(_)));
        self.visible(a, b, step, which, false, true);
        self.read(b, step.index[which], Read { event, number, apart: None, of: b.buffer });
        for r in registers {
            if self.actors[a].registers[r].dirty {
                let program = self.program;
                let name = &program.registers[r];
                let message = format!("`{name}` was used by ordinary instructions after the last `wgmma_fence`");
                self.find("missing-wgmma-fence", number, message);
            }
        }
        self.actors[a].registers[acc].written = group;
        if let Source::Registers(r) = from {
            self.actors[a].registers[r].read = group;
        }
    }

    /// Conditions when no actor can go on.
    fn finish(&mut self) {
        let stuck: Vec<(usize, Step<'a>)> =
            self.actors.iter().enumerate().filter_map(|(i, x)| Some((i, *x.steps.get(x.at)?))).collect();
        for (_, step) in &stuck {
            let (code, message) = match step.op {
                Op::WaitFull(p) | Op::WaitEmpty(p) | Op::WaitParity(p, _) => {
                    let (_, stage, turn) = self.phase(*p, step.index[0]);
                    let turn = turn - i64::from(matches!(step.op, Op::WaitEmpty(_)));
                    let s = &self.barriers[p.barrier][stage];
                    let what = format!(
                        "phase {turn} never completes: {} arrivals and {} bytes are missing",
                        s.pending, s.bytes
                    );
                    ("wait-never-armed", what)
                }
                _ => ("barrier-mismatch", "not all threads that share the barrier reach it".into()),
            };
            self.find(code, step.number, message);
        }
        if !stuck.is_empty() {
            return;
        }
        for a in 0..self.actors.len() {
            for (clock, groups, code) in [
                (3 * a + 1, self.actors[a].copies, "copy-never-waited"),
                (3 * a + 2, self.actors[a].products, "wgmma-never-waited"),
            ] {
                if groups.used > self.actors[a].clock[clock] {
                    self.find(code, groups.last, "the kernel ends before it is waited for".into());
                }
            }
        }
        for (clock, tick, number) in std::mem::take(&mut self.bulk) {
            if self.actors.iter().all(|x| x.clock[clock] < tick) {
                self.find("copy-never-waited", number, "the kernel ends before it is waited for".into());
            }
        }
    }
}

impl Groups {
    /// The group an operation issued now belongs to.
    fn join_group(&mut self, number: usize) -> u32 {
        (self.used, self.last) = (self.committed + 1, number);
        self.used
    }
}

impl Actor<'_> {
    /// All but the last `pending` committed groups are done.
    fn learn(&mut self, clock: usize, groups: impl Fn(&Self) -> Groups, pending: u32) {
        let done = groups(self).committed.saturating_sub(pending);
        self.clock[clock] = self.clock[clock].max(done);
    }
}
