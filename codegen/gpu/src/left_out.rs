//! Whether a skeleton needs all that it has: programs without one of their operations, which the verifier must refuse.

use llmcc_ir::gpu::program::{Op, Program, Role, Stmt, Sync};
use llmcc_ir::gpu::verify::verify_program;

/// What orders something and may still be left out without a finding, as `number operation`.
pub fn unnoticed(whole: &Program) -> Vec<String> {
    let mut missed = vec![];
    for number in 0.. {
        let mut gone = None;
        let body = without(&whole.body, &mut 0, number, &mut gone);
        let Some(op) = gone else { break };
        if orders(&op) && verify_program(&Program { body, ..whole.clone() }).is_empty() {
            missed.push(format!("{number} {op:?}"));
        }
    }
    missed
}

/// A body without its operation number `number`, which is returned too.
fn without(body: &[Stmt], next: &mut usize, number: usize, gone: &mut Option<Op>) -> Vec<Stmt> {
    let mut out = vec![];
    for stmt in body {
        let mut inner = |body: &[Stmt]| without(body, next, number, gone);
        out.push(match stmt {
            Stmt::Op(op) => {
                *next += 1;
                if *next - 1 == number {
                    *gone = Some(op.clone());
                    continue;
                }
                stmt.clone()
            }
            Stmt::Loop { id, trips, body } => Stmt::Loop { id: *id, trips: *trips, body: inner(body) },
            Stmt::If { when, then, other } => Stmt::If { when: when.clone(), then: inner(then), other: inner(other) },
            Stmt::Roles(roles) => Stmt::Roles(roles.iter().map(|r| Role { body: inner(&r.body), ..r.clone() }).collect()),
        });
    }
    out
}

/// What orders accesses. Not so: the barriers of a warp, one lane of which arrives for all (here each lane arrives), and a group of no copies.
fn orders(op: &Op) -> bool {
    let rest = matches!(
        op,
        Op::Registers(_) | Op::Read { .. } | Op::Write { .. } | Op::Wgmma(..) | Op::RegisterRead(_) | Op::RegisterWrite(_) | Op::Note(_)
    );
    !rest && !matches!(op, Op::Barrier(Sync::Warp) | Op::CpCommit)
}
