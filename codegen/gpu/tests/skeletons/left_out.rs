//! Whether a skeleton needs all that it has: programs without one of their operations, which the
//! verifier must refuse.

use llmcc_ir::gpu::program::{Op, Program, Stmt};
use llmcc_ir::gpu::verify::{verify_once, verify_program};

/// Ordering operations that may be left out without a finding, as `number operation`; and buffers
/// whose copies may all be left out.
pub fn unnoticed(whole: &Program) -> Vec<String> {
    let missed = |gone: &dyn Fn(usize, &Op) -> bool| {
        let body = without(&whole.body, &mut 0, gone);
        let rest = Program { body, ..whole.clone() };
        // Most is found at once.
        verify_once(&rest).is_empty() && verify_program(&rest).is_empty()
    };
    let mut all = vec![];
    list(&whole.body, &mut all);
    let mut out = vec![];
    for (number, op) in all.iter().enumerate().filter(|(_, op)| orders(op)) {
        if missed(&|n, _| n == number) {
            out.push(format!("{number} {op:?}"));
        }
    }
    for (buffer, b) in whole.buffers.iter().enumerate() {
        let copies = |op: &Op| matches!(op, Op::CpAsync(s) | Op::BulkCopy(s, ..) if s.buffer == buffer);
        if all.iter().any(copies) && missed(&|_, op| copies(op)) {
            out.push(format!("copies to {}", b.name));
        }
    }
    out
}

fn list(body: &[Stmt], out: &mut Vec<Op>) {
    for stmt in body {
        if let Stmt::Op(op) = stmt {
            out.push(op.clone());
        }
        stmt.bodies().into_iter().for_each(|b| list(b, out));
    }
}

/// A body without the operations that are gone, by their numbers.
fn without(body: &[Stmt], next: &mut usize, gone: &dyn Fn(usize, &Op) -> bool) -> Vec<Stmt> {
    let mut out = vec![];
    for stmt in body {
        if let Stmt::Op(op) = stmt {
            *next += 1;
            if !gone(*next - 1, op) {
                out.push(stmt.clone());
            }
        } else {
            out.push(stmt.with_bodies(|b| without(b, next, gone)));
        }
    }
    out
}

/// Whether an operation orders accesses. Not ordering: the accesses, several of which fill a slot;
/// and a group of no copies.
fn orders(op: &Op) -> bool {
    let rest = matches!(
        op,
        Op::Registers(_)
            | Op::Read { .. }
            | Op::Write { .. }
            | Op::CpAsync(_)
            | Op::BulkCopy(..)
            | Op::Wgmma(..)
            | Op::RegisterRead(_)
            | Op::RegisterWrite(_)
            | Op::Note(_)
    );
    !rest && *op != Op::CpCommit
}
