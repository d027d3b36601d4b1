//! From a program to what one actor does, step by step, for given trip counts and facts.

use super::program::{Condition, Counter, Index, LoopId, Op, Program, Role, Stmt, Trips};
use std::collections::BTreeMap;

/// Most steps of an actor that are followed.
pub(super) const LIMIT: usize = 20_000;

/// What is not known before a kernel runs, chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Turns of each loop.
    pub trips: Vec<u32>,
    /// Facts.
    pub facts: BTreeMap<String, bool>,
}

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
                Stmt::Roles(roles) => roles.iter().for_each(|r| visit(&r.body, loops, facts)),
            }
        }
    }
    let (mut loops, mut facts) = (BTreeMap::new(), vec![]);
    visit(&program.body, &mut loops, &mut facts);
    (loops, facts)
}

/// The steps of an actor of role number `role` (`None`: the program has no roles).
pub(super) fn unroll<'a>(program: &'a Program, choice: &Choice, role: Option<usize>) -> Vec<Step<'a>> {
    let loops = program.loops.len();
    let mut u = Unroll { choice, role, turn: vec![0; loops], total: vec![0; loops], next: 0, steps: vec![] };
    u.body(&program.body, false);
    u.steps
}

struct Unroll<'a, 'c> {
    choice: &'c Choice,
    role: Option<usize>,
    /// Turn of each loop: current, or of the last entry once left.
    turn: Vec<i64>,
    /// Turns so far.
    total: Vec<i64>,
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
        };
        counted + x.plus
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
                    let mut index = [0; 2];
                    indices(op).zip(&mut index).for_each(|(x, v)| *v = self.value(x));
                    if self.steps.len() < LIMIT {
                        self.steps.push(Step { number: self.next, op, index, in_role });
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
            }
        }
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
            self.maybe(self.role == Some(i), &role.body, true);
        }
    }
}

/// Operations of a body.
pub(super) fn count(body: &[Stmt]) -> usize {
    let one = |s: &Stmt| match s {
        Stmt::Op(_) => 1,
        Stmt::Loop { body, .. } => count(body),
        Stmt::If { then, other, .. } => count(then) + count(other),
        Stmt::Roles(roles) => roles.iter().map(|r| count(&r.body)).sum(),
    };
    body.iter().map(one).sum()
}

/// Indices of an operation: of slots, then of barriers; at most two.
pub(super) fn indices(op: &Op) -> impl Iterator<Item = Index> {
    use super::program::Source;
    let list = match op {
        Op::CpAsync(s) | Op::Read { slot: s, .. } | Op::Write { slot: s, .. } => [Some(s.stage), None],
        Op::Wgmma(_, _, Source::Shared(a), b) => [Some(a.stage), Some(b.stage)],
        Op::Wgmma(_, _, Source::Registers(_), b) => [Some(b.stage), None],
        Op::BulkCopy(s, p, _) => [Some(s.stage), Some(p.index)],
        Op::Expect(p, _) | Op::Arrive(p) | Op::WaitFull(p) | Op::WaitEmpty(p) => [Some(p.index), None],
        Op::CpCommit
        | Op::CpWait(_)
        | Op::Barrier(_)
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
