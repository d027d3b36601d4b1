//! Text of programs, for `--emit` and for messages. Operations are numbered in the order of the
//! text.

use super::program::{
    Arrivals, Atom, Condition, Counter, Index, Op, Phase, Program, Scope, Slot, Source, Stmt, Sync, Trips,
};
use super::value::{Merge, Value, ValueId};
use std::fmt;

/// A name of a table; its number if there is none.
fn name<T>(table: &[T], i: usize, get: impl Fn(&T) -> &str) -> String {
    table.get(i).map_or_else(|| format!("?{i}"), |t| get(t).to_string())
}

impl Program {
    fn index(&self, x: Index) -> String {
        let counter = match x.follows {
            None => return x.plus.to_string(),
            Some(Counter::Turn(l)) => name(&self.loops, l, |n| n),
            Some(Counter::Total(l)) => format!("all {}", name(&self.loops, l, |n| n)),
            Some(Counter::Value(v)) => self.value_name(v),
        };
        match x.plus {
            0 => counter,
            p if p < 0 => format!("{counter} - {}", p.unsigned_abs()),
            p => format!("{counter} + {p}"),
        }
    }

    fn slot(&self, s: Slot) -> String {
        format!("{}[{}]", name(&self.buffers, s.buffer, |b| &b.name), self.index(s.stage))
    }

    fn phase(&self, p: Phase) -> String {
        format!("{}[{}]", name(&self.barriers, p.barrier, |b| &b.name), self.index(p.index))
    }

    /// A value's number, or its definition where that is shorter.
    fn value_name(&self, v: ValueId) -> String {
        match self.values.get(v) {
            Some(Value::Const(x)) => x.to_string(),
            Some(Value::Thread) => "thread".into(),
            _ => format!("%{v}"),
        }
    }

    fn sync(&self, sync: Sync) -> String {
        match sync {
            Sync::Block => String::new(),
            Sync::Role => " role".into(),
            Sync::Warp => " warp".into(),
            Sync::Threads(id, threads) => format!(" {} of {threads} threads", self.value_name(id)),
        }
    }

    fn let_text(&self, v: ValueId) -> String {
        let text = match &self.values[v] {
            Value::Two(how, a, b) => format!("{how:?} {} {}", self.value_name(*a), self.value_name(*b)).to_lowercase(),
            Value::Select(c, a, b) => {
                format!("select {} {} {}", self.value_name(*c), self.value_name(*a), self.value_name(*b))
            }
            other => format!("{other:?}"),
        };
        format!("%{v} = {text}")
    }

    fn register(&self, r: usize) -> String {
        name(&self.registers, r, |n| n)
    }

    /// An operation as printed.
    pub(super) fn op_text(&self, op: &Op) -> String {
        let degree = |p: &Option<super::program::Pattern>| match p {
            Some(p) if p.conflicts() > 1 => format!(" {}-way", p.conflicts()),
            _ => String::new(),
        };
        match op {
            Op::CpAsync(s) => format!("cp_async {}", self.slot(*s)),
            Op::CpCommit => "cp_commit".into(),
            Op::CpWait(n) => format!("cp_wait {n}"),
            Op::Barrier(sync) => format!("barrier{}", self.sync(*sync)),
            Op::BarrierArrive(sync) => format!("barrier_arrive{}", self.sync(*sync)),
            Op::WaitParity(p, parity) => format!("wait {} parity {}", self.phase(*p), self.value_name(*parity)),
            Op::Read { slot, pattern, own } => {
                format!("read {}{}{}", self.slot(*slot), if *own { " own" } else { "" }, degree(pattern))
            }
            Op::Write { slot, pattern } => format!("write {}{}", self.slot(*slot), degree(pattern)),
            Op::FenceAsync => "fence_async".into(),
            Op::BarrierInit(b) => format!("init {}", name(&self.barriers, *b, |b| &b.name)),
            Op::BarrierInitAt(p) => format!("init {}", self.phase(*p)),
            Op::FenceInit => "fence_init".into(),
            Op::Registers(n) => format!("registers {n}"),
            Op::Expect(p, bytes) => format!("expect {} {bytes}", self.phase(*p)),
            Op::BulkCopy(s, p, bytes) => format!("bulk_copy {} on {} {bytes}", self.slot(*s), self.phase(*p)),
            Op::Arrive(p) => format!("arrive {}", self.phase(*p)),
            Op::WaitFull(p) => format!("wait_full {}", self.phase(*p)),
            Op::WaitEmpty(p) => format!("wait_empty {}", self.phase(*p)),
            Op::Mma(atom, acc) => format!("mma {atom} {}", self.register(*acc)),
            Op::WgmmaFence => "wgmma_fence".into(),
            Op::Wgmma(atom, acc, a, b) => {
                let a = match a {
                    Source::Shared(s) => self.slot(*s),
                    Source::Registers(r) => self.register(*r),
                };
                format!("wgmma {atom} {} {a} {}", self.register(*acc), self.slot(*b))
            }
            Op::WgmmaCommit => "wgmma_commit".into(),
            Op::WgmmaWait(n) => format!("wgmma_wait {n}"),
            Op::RegisterRead(r) => format!("register_read {}", self.register(*r)),
            Op::RegisterWrite(r) => format!("register_write {}", self.register(*r)),
            Op::Note(text) => format!("note {text}"),
        }
    }

    fn stmts(&self, f: &mut fmt::Formatter<'_>, body: &[Stmt], depth: usize, next: &mut usize) -> fmt::Result {
        let pad = "  ".repeat(depth);
        for stmt in body {
            match stmt {
                Stmt::Op(op) => {
                    writeln!(f, "{:>4} {pad}{}", *next, self.op_text(op))?;
                    *next += 1;
                }
                Stmt::Loop { id, trips, body } => {
                    let trips = match trips {
                        Trips::Fixed(n) => n.to_string(),
                        Trips::Any => "any".into(),
                        Trips::Some => "some".into(),
                    };
                    writeln!(f, "     {pad}loop {} {trips} {{", name(&self.loops, *id, |n| n))?;
                    self.stmts(f, body, depth + 1, next)?;
                    writeln!(f, "     {pad}}}")?;
                }
                Stmt::If { when, then, other } => {
                    let when = match when {
                        Condition::Within(x, l) => {
                            format!("{} < turns of {}", self.index(*x), name(&self.loops, *l, |n| n))
                        }
                        Condition::AtLeast(x, n) => format!("{} >= {n}", self.index(*x)),
                        Condition::Even(x) => format!("{} is even", self.index(*x)),
                        Condition::Fact(text) => text.clone(),
                    };
                    writeln!(f, "     {pad}if {when} {{")?;
                    self.stmts(f, then, depth + 1, next)?;
                    if !other.is_empty() {
                        writeln!(f, "     {pad}}} else {{")?;
                        self.stmts(f, other, depth + 1, next)?;
                    }
                    writeln!(f, "     {pad}}}")?;
                }
                Stmt::Let(v) => writeln!(f, "     {pad}{}", self.let_text(*v))?,
                Stmt::For { bounds, turn, carried, body } => {
                    let [lo, hi, step] = bounds.map(|v| self.value_name(v));
                    let carried: Vec<String> = carried
                        .iter()
                        .map(|c| {
                            format!(
                                ", %{} = {}, {}; %{}",
                                c.arg,
                                self.value_name(c.first),
                                self.value_name(c.next),
                                c.last
                            )
                        })
                        .collect();
                    writeln!(f, "     {pad}for %{turn} = {lo} to {hi} by {step}{} {{", carried.concat())?;
                    self.stmts(f, body, depth + 1, next)?;
                    writeln!(f, "     {pad}}}")?;
                }
                Stmt::Choose { when, then, other, results } => {
                    let merge = |m: &Merge| {
                        format!(", %{} = {}, {}", m.result, self.value_name(m.then), self.value_name(m.other))
                    };
                    let results: Vec<String> = results.iter().map(merge).collect();
                    writeln!(f, "     {pad}if {}{} {{", self.value_name(*when), results.concat())?;
                    self.stmts(f, then, depth + 1, next)?;
                    if !other.is_empty() {
                        writeln!(f, "     {pad}}} else {{")?;
                        self.stmts(f, other, depth + 1, next)?;
                    }
                    writeln!(f, "     {pad}}}")?;
                }
                Stmt::Roles(roles) => {
                    for role in roles {
                        writeln!(f, "     {pad}role {} of {} warps {{", role.name, role.warps)?;
                        self.stmts(f, &role.body, depth + 1, next)?;
                        writeln!(f, "     {pad}}}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    /// Declarations, then the body with an operation per line, numbered as in findings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} of {} warps", self.name, self.warps)?;
        for b in &self.buffers {
            let scope = if b.scope == Scope::Warp { " per warp" } else { "" };
            let promise = if b.conflict_free { ", no bank conflicts" } else { "" };
            let over: Vec<String> =
                b.over.iter().map(|o| format!(", over {}", name(&self.buffers, *o, |b| &b.name))).collect();
            writeln!(f, "     buffer {}: {} x {} bytes{scope}{promise}{}", b.name, b.stages, b.bytes, over.concat())?;
        }
        for b in &self.barriers {
            let arrivals = match b.arrivals {
                Arrivals::One => "one thread".into(),
                Arrivals::All => "all warps".into(),
                Arrivals::Role(r) => format!("role {r}"),
                Arrivals::Count(n) => format!("{n} threads"),
            };
            writeln!(f, "     barrier {}: {} for {arrivals}", b.name, b.stages)?;
        }
        for (i, v) in self.values.iter().enumerate() {
            if let Value::Unknown(samples) = v {
                writeln!(f, "     %{i}: one of {samples:?}")?;
            }
        }
        for r in &self.registers {
            writeln!(f, "     registers {r}")?;
        }
        self.stmts(f, &self.body, 0, &mut 0)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::M16N8K16 => f.write_str("m16n8k16"),
            Atom::M16N8K32 => f.write_str("m16n8k32"),
            Atom::M64K16(n) => write!(f, "m64n{n}k16"),
            Atom::M64K32(n) => write!(f, "m64n{n}k32"),
        }
    }
}
