//! The part of a recording that decides accesses and their times: values without an effect on these
//! are dropped, and so are branches and loops without any.

use super::program::{Counter, Index, Op, Program, Stmt, Sync};
use super::unroll::indices;
use super::value::{Value, ValueId};

impl Program {
    /// The program without values that decide nothing.
    pub fn sliced(mut self) -> Program {
        let mut needed = vec![false; self.values.len()];
        // A value carried by a loop may be needed earlier in the text.
        loop {
            let before = needed.clone();
            need(&self, &self.body, &mut needed);
            if needed == before {
                break;
            }
        }
        self.body = keep(&self.body, &needed);
        let unused = |(id, v): (usize, &mut Value)| {
            if !needed[id] && matches!(v, Value::Unknown(_)) {
                *v = Value::Carried;
            }
        };
        self.values.iter_mut().enumerate().for_each(unused);
        self
    }
}

/// Whether there is anything but values in a body.
fn acts(body: &[Stmt]) -> bool {
    body.iter().any(|s| matches!(s, Stmt::Op(_)) || s.bodies().into_iter().any(acts))
}

fn of_op(op: &Op, needed: &mut [bool]) {
    let mut note = |v: ValueId| needed[v] = true;
    for x in indices(op) {
        if let Index { follows: Some(Counter::Value(v)), .. } = x {
            note(v);
        }
    }
    match op {
        Op::WaitParity(_, v) | Op::Barrier(Sync::Threads(v, _)) | Op::BarrierArrive(Sync::Threads(v, _)) => note(*v),
        _ => {}
    }
}

fn need(program: &Program, body: &[Stmt], needed: &mut [bool]) {
    for stmt in body.iter().rev() {
        match stmt {
            Stmt::Op(op) => of_op(op, needed),
            Stmt::Let(v) if needed[*v] => match program.values[*v] {
                Value::Two(_, a, b) => [a, b].into_iter().for_each(|v| needed[v] = true),
                Value::Select(c, a, b) => [c, a, b].into_iter().for_each(|v| needed[v] = true),
                _ => {}
            },
            Stmt::For { bounds, carried, body, .. } => {
                for c in carried {
                    if needed[c.arg] || needed[c.last] {
                        [c.arg, c.first, c.next].into_iter().for_each(|v| needed[v] = true);
                    }
                }
                if acts(body) || carried.iter().any(|c| needed[c.last]) {
                    bounds.iter().for_each(|v| needed[*v] = true);
                }
            }
            Stmt::Choose { when, then, other, results } => {
                for m in results {
                    if needed[m.result] {
                        [m.then, m.other].into_iter().for_each(|v| needed[v] = true);
                    }
                }
                if acts(then) || acts(other) || results.iter().any(|m| needed[m.result]) {
                    needed[*when] = true;
                }
            }
            _ => {}
        }
        stmt.bodies().into_iter().for_each(|b| need(program, b, needed));
    }
}

fn keep(body: &[Stmt], needed: &[bool]) -> Vec<Stmt> {
    let mut out = vec![];
    for stmt in body {
        let mut new = stmt.with_bodies(|b| keep(b, needed));
        let stays = match &mut new {
            Stmt::Let(v) => needed[*v],
            Stmt::For { carried, body, .. } => {
                carried.retain(|c| needed[c.arg] || needed[c.last]);
                !body.is_empty() || !carried.is_empty()
            }
            Stmt::Choose { then, other, results, .. } => {
                results.retain(|m| needed[m.result]);
                !then.is_empty() || !other.is_empty() || !results.is_empty()
            }
            _ => true,
        };
        if stays {
            out.push(new);
        }
    }
    out
}
