//! From a program to the steps of one actor, for given trip counts, facts and values.

use super::program::{
    BufferId, Condition, Counter, Index, LoopId, Op, Part, Phase, Program, Role, Slot, Source, Stmt, Sync, Trips,
};
use super::value::{Carry, Value, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most steps of an actor that are followed.
pub(super) const LIMIT: usize = 100_000;
/// Most values that an actor computes.
const COMPUTED: usize = 2_000_000;

/// A choice of the values unknown before a kernel runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Turns of each loop.
    pub trips: Vec<u32>,
    /// Facts.
    pub facts: BTreeMap<String, bool>,
    /// Values.
    pub values: BTreeMap<ValueId, i64>,
}

/// Whose steps they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Any thread of a role (`None`: the program has no roles).
    Role(Option<usize>),
    /// The thread of this number.
    Thread(u32),
}

/// The first byte of an access, and the one after its last, from the start of the buffer.
pub(super) type Bytes = Option<(i64, i64)>;

/// One operation of an actor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// Number of the operation in the text.
    pub number: usize,
    /// The operation.
    pub op: &'a Op,
    /// Values of the indices in it, in order.
    pub index: [i64; 2],
    /// Run by one thread: whether it is this one, inside and outside of roles.
    pub in_role: bool,
    /// For an access that says its bytes: the first, from the start of the buffer.
    pub byte: i64,
    /// Whether they were written by this thread.
    pub own: bool,
    /// The bytes of an access that says them.
    pub bytes: Bytes,
    /// The same where no other thread touches them.
    pub apart: Bytes,
}

/// Every loop with its trips, and every fact, in the order of the text.
pub(super) fn unknowns(program: &Program) -> (BTreeMap<LoopId, Trips>, Vec<String>) {
    fn visit(body: &[Stmt], loops: &mut BTreeMap<LoopId, Trips>, facts: &mut Vec<String>) {
        for stmt in body {
            match stmt {
                Stmt::Op(_) => {}
                Stmt::Loop { id, trips, body } => {
                    loops.insert(*id, *trips);
                    visit(body, loops, facts);
                }
                Stmt::If { when, then, other } => {
                    if let Condition::Fact(name) = when
                        && !facts.contains(name)
                    {
                        facts.push(name.clone());
                    }
                    visit(then, loops, facts);
                    visit(other, loops, facts);
                }
                Stmt::Roles(_) | Stmt::Let(_) | Stmt::For { .. } | Stmt::Choose { .. } => {
                    stmt.bodies().into_iter().for_each(|b| visit(b, loops, facts));
                }
            }
        }
    }
    let (mut loops, mut facts) = (BTreeMap::new(), vec![]);
    visit(&program.body, &mut loops, &mut facts);
    (loops, facts)
}

/// The steps of an actor.
pub(super) fn unroll<'a>(program: &'a Program, choice: &Choice, who: Who) -> Vec<Step<'a>> {
    unroll_turns(program, choice, who, i64::MAX)
}

/// The same with at most so many turns of loops whose bounds are values: each operation of the
/// text, sooner or later.
pub(super) fn unroll_turns<'a>(program: &'a Program, choice: &Choice, who: Who, turns: i64) -> Vec<Step<'a>> {
    let loops = program.loops.len();
    let first = |(id, value): (usize, &Value)| match value {
        Value::Const(x) => *x,
        Value::Thread => {
            if let Who::Thread(t) = who {
                t.into()
            } else {
                0
            }
        }
        Value::Unknown(_) => choice.values.get(&id).copied().unwrap_or(0),
        Value::Two(..) | Value::Select(..) | Value::Carried => 0,
    };
    let values = program.values.iter().enumerate().map(first).collect();
    let (turn, total) = (vec![0; loops], vec![0; loops]);
    let mut u = Unroll {
        program,
        choice,
        who,
        turn,
        total,
        values,
        most: turns,
        computed: 0,
        phases: HashMap::new(),
        written: HashSet::new(),
        next: 0,
        steps: vec![],
    };
    u.body(&program.body, false);
    u.steps
}

struct Unroll<'a, 'c> {
    program: &'a Program,
    choice: &'c Choice,
    who: Who,
    /// Turn of each loop: current, or of the last entry once left.
    turn: Vec<i64>,
    /// Turns so far.
    total: Vec<i64>,
    /// Last value of each variable.
    values: Vec<i64>,
    /// Turns of a loop that are followed.
    most: i64,
    computed: usize,
    /// The phase of each `mbarrier` that was waited for last, by array and stage.
    phases: HashMap<(usize, i64), i64>,
    /// The thread's writes: pairs of bytes of each buffer.
    written: HashSet<(BufferId, i64)>,
    /// Number of the next operation of the text.
    next: usize,
    steps: Vec<Step<'a>>,
}

impl<'a> Unroll<'a, '_> {
    fn trips(&self, id: LoopId) -> i64 {
        self.choice.trips.get(id).copied().unwrap_or(0).into()
    }

    fn value(&self, x: Index) -> i64 {
        let counted = match x.follows {
            None => 0,
            Some(Counter::Turn(l)) => self.turn.get(l).copied().unwrap_or(0),
            Some(Counter::Total(l)) => self.total.get(l).copied().unwrap_or(0),
            Some(Counter::Value(v)) => self.values.get(v).copied().unwrap_or(0),
        };
        counted + x.plus
    }

    /// The number of a slot's stage.
    fn stage(&self, s: Slot) -> i64 {
        let value = self.value(s.stage);
        match s.stage.follows {
            Some(Counter::Value(_)) => {
                value.div_euclid(self.program.buffers.get(s.buffer).map_or(1, |b| i64::from(b.bytes.max(1))))
            }
            _ => value,
        }
    }

    /// The phase that a wait for a parity means: the first of that parity that is not before the
    /// last one.
    fn waited(&mut self, p: Phase, parity: i64) -> i64 {
        let stage = self.value(p.index);
        let stages = self.program.barriers.get(p.barrier).map_or(1, |b| i64::from(b.stages.max(1)));
        let turn = self.phases.entry((p.barrier, stage)).or_insert(-1);
        *turn += i64::from((*turn - parity).rem_euclid(2) != 0);
        *turn * stages + stage
    }

    fn indices(&mut self, op: &Op) -> [i64; 2] {
        if let Op::WaitParity(p, parity) = op {
            return [self.waited(*p, self.values.get(*parity).copied().unwrap_or(0)), 0];
        }
        let mut out = [0; 2];
        for (place, x) in out.iter_mut().zip(places(op)) {
            *place = match x {
                Place::Slot(s) => self.stage(s),
                Place::Other(x) => self.value(x),
            };
        }
        out
    }

    /// The first byte of an access; of one that says its bytes whether they are the thread's own, which
    /// they are, and the same if they are apart.
    fn part(&mut self, op: &Op) -> (i64, bool, Bytes, Bytes) {
        let (slot, writes) = match op {
            Op::CpAsync(s) | Op::Write { slot: s, .. } => (*s, true),
            Op::Read { slot: s, .. } => (*s, false),
            _ => return (0, false, None, None),
        };
        let from = self.value(slot.stage);
        let (bytes, apart) = match slot.part {
            Part::Some | Part::Lanes(_) => return (from, false, None, None),
            Part::Bytes(n) => (n, false),
            Part::Apart(n) => (n, true),
        };
        let end = from + i64::from(bytes);
        let mut pairs = (from.div_euclid(2)..=(end - 1).div_euclid(2)).map(|i| (slot.buffer, i));
        let own = if writes {
            self.written.extend(pairs);
            false
        } else {
            pairs.all(|p| self.written.contains(&p))
        };
        (from, own, Some((from, end)), apart.then_some((from, end)))
    }

    fn holds(&self, when: &Condition) -> bool {
        match when {
            Condition::Within(x, l) => self.value(*x) < self.trips(*l),
            Condition::AtLeast(x, n) => self.value(*x) >= *n,
            Condition::Even(x) => self.value(*x).rem_euclid(2) == 0,
            Condition::Fact(name) => self.choice.facts.get(name).copied().unwrap_or(false),
        }
    }

    fn body(&mut self, body: &'a [Stmt], in_role: bool) {
        for stmt in body {
            match stmt {
                Stmt::Op(op) => {
                    if self.steps.len() < LIMIT {
                        let (index, (byte, own, bytes, apart)) = (self.indices(op), self.part(op));
                        let step = Step { number: self.next, op, index, in_role, byte, own, bytes, apart };
                        if !self.repeats(&step) {
                            self.steps.push(step);
                        }
                    }
                    self.next += 1;
                }
                Stmt::Loop { id, body, .. } => self.turns(*id, body, in_role),
                Stmt::If { when, then, other } => {
                    let holds = self.holds(when);
                    self.maybe(holds, then, in_role);
                    self.maybe(!holds, other, in_role);
                }
                Stmt::Roles(roles) => self.roles(roles),
                Stmt::Let(id) => self.compute(*id),
                Stmt::For { bounds, turn, carried, body } => self.count(*bounds, *turn, carried, body),
                Stmt::Choose { when, then, other, results } => {
                    let holds = self.values[*when] != 0;
                    self.maybe(holds, then, in_role);
                    self.maybe(!holds, other, in_role);
                    results
                        .iter()
                        .for_each(|m| self.values[m.result] = self.values[if holds { m.then } else { m.other }]);
                }
            }
        }
    }

    /// Whether a step accesses a slot in the same way as one just before: of several pieces, one is
    /// enough.
    fn repeats(&self, step: &Step<'_>) -> bool {
        let access = |s: &Step<'_>| match s.op {
            Op::CpAsync(slot) => Some((0, slot.buffer)),
            Op::Read { slot, .. } => Some((1, slot.buffer)),
            Op::Write { slot, .. } => Some((2, slot.buffer)),
            _ => None,
        };
        let same =
            |s: &Step<'_>| access(s) == access(step) && (s.index, s.own, s.apart) == (step.index, step.own, step.apart);
        let counted = access(step).filter(|_| !self.program.values.is_empty());
        counted.is_some()
            && self.most == i64::MAX
            && self.steps.iter().rev().take_while(|s| access(s).is_some()).take(8).any(same)
    }

    fn compute(&mut self, id: ValueId) {
        self.computed += 1;
        self.values[id] = match self.program.values[id] {
            Value::Two(how, a, b) => how.of(self.values[a], self.values[b]),
            Value::Select(when, a, b) => self.values[if self.values[when] != 0 { a } else { b }],
            _ => self.values[id],
        };
    }

    /// A loop with bounds that are values. One without an end is cut where the steps are.
    fn count(&mut self, bounds: [ValueId; 3], turn: ValueId, carried: &[Carry], body: &'a [Stmt]) {
        let [mut at, end, step] = bounds.map(|v| self.values[v]);
        let mut now: Vec<i64> = carried.iter().map(|c| self.values[c.first]).collect();
        let first = self.next;
        let mut turns = 0;
        while at < end && step > 0 && turns < self.most && self.steps.len() < LIMIT {
            turns += 1;
            if self.computed > COMPUTED {
                // As if there were too many steps.
                let last = self.steps.last().copied();
                self.steps.extend(last.into_iter().flat_map(|s| std::iter::repeat_n(s, LIMIT)));
                break;
            }
            self.computed += 1;
            self.next = first;
            self.values[turn] = at;
            carried.iter().zip(&now).for_each(|(c, v)| self.values[c.arg] = *v);
            self.body(body, true);
            now = carried.iter().map(|c| self.values[c.next]).collect();
            at += step;
        }
        carried.iter().zip(&now).for_each(|(c, v)| self.values[c.last] = *v);
        self.next = first + count(body);
    }

    fn maybe(&mut self, runs: bool, body: &'a [Stmt], in_role: bool) {
        if runs { self.body(body, in_role) } else { self.next += count(body) }
    }

    fn turns(&mut self, id: LoopId, body: &'a [Stmt], in_role: bool) {
        let first = self.next;
        let trips = self.trips(id);
        self.turn[id] = 0;
        for t in 0..trips {
            (self.next, self.turn[id]) = (first, t);
            self.body(body, in_role);
            self.total[id] += 1;
        }
        self.turn[id] = trips;
        self.next = first + count(body);
    }

    fn roles(&mut self, roles: &'a [Role]) {
        for (i, role) in roles.iter().enumerate() {
            self.maybe(self.who == Who::Role(Some(i)), &role.body, true);
        }
    }
}

/// Operations of a body.
pub(super) fn count(body: &[Stmt]) -> usize {
    body.iter().map(|s| usize::from(matches!(s, Stmt::Op(_))) + s.bodies().into_iter().map(count).sum::<usize>()).sum()
}

/// An index of an operation.
enum Place {
    Slot(Slot),
    Other(Index),
}

/// Indices of an operation: of slots, then of barriers; at most two.
pub(super) fn indices(op: &Op) -> impl Iterator<Item = Index> {
    places(op).map(|x| match x {
        Place::Slot(s) => s.stage,
        Place::Other(x) => x,
    })
}

fn places(op: &Op) -> impl Iterator<Item = Place> {
    let slot = |s: &Slot| Some(Place::Slot(*s));
    let phase = |p: &Phase| Some(Place::Other(p.index));
    let list = match op {
        Op::CpAsync(s) | Op::Read { slot: s, .. } | Op::Write { slot: s, .. } => [slot(s), None],
        Op::Wgmma(_, _, Source::Shared(a), b) => [slot(a), slot(b)],
        Op::Wgmma(_, _, Source::Registers(_), b) => [slot(b), None],
        Op::BulkCopy(s, p, _) => [slot(s), phase(p)],
        Op::Expect(p, _)
        | Op::Arrive(p)
        | Op::WaitFull(p)
        | Op::WaitEmpty(p)
        | Op::WaitParity(p, _)
        | Op::BarrierInitAt(p) => [phase(p), None],
        Op::Barrier(Sync::Threads(id, _)) | Op::BarrierArrive(Sync::Threads(id, _)) => {
            [Some(Place::Other(Index::value(*id))), None]
        }
        Op::CpCommit
        | Op::CpWait(_)
        | Op::Barrier(_)
        | Op::BarrierArrive(_)
        | Op::FenceAsync
        | Op::BarrierInit(_)
        | Op::FenceInit
        | Op::Registers(_)
        | Op::Mma(..)
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait(_)
        | Op::RegisterRead(_)
        | Op::RegisterWrite(_)
        | Op::Note(_) => [None, None],
    };
    list.into_iter().flatten()
}
