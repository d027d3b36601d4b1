//! Where diverged lanes meet again: the immediate post-dominator of each branch.

use crate::module::{Inst, Step};

/// Successors of the instruction at `pc`; `end` is the exit.
fn successors(code: &[Inst], pc: u32) -> impl Iterator<Item = u32> {
    let end = code.len() as u32;
    let i = &code[pc as usize];
    let (a, falls) = match i.step {
        Step::Run(_) => (None, true),
        Step::Jump { target, .. } => (Some(target), i.guard.is_some()),
        Step::Exit => (Some(end), i.guard.is_some()),
    };
    a.into_iter().chain(falls.then_some(pc + 1))
}

/// Nearest common post-dominator of `a` and `b` in the tree built so far; `order` numbers nodes so
/// that the exit has the largest.
fn meet(idom: &[u32], order: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while order[a as usize] < order[b as usize] {
            a = idom[a as usize];
        }
        while order[b as usize] < order[a as usize] {
            b = idom[b as usize];
        }
    }
    a
}

/// Instructions in an order in which every one comes after those that it can reach, as far as loops
/// allow: post-order of the reversed graph, from the exit.
fn reverse_postorder(pred: &[Vec<u32>], end: u32) -> Vec<u32> {
    let mut seen = vec![false; pred.len()];
    let mut out = Vec::with_capacity(pred.len());
    let mut stack = vec![(end, 0)];
    seen[end as usize] = true;
    while let Some((n, i)) = stack.pop() {
        match pred[n as usize].get(i) {
            Some(&p) => {
                stack.push((n, i + 1));
                if !seen[p as usize] {
                    seen[p as usize] = true;
                    stack.push((p, 0));
                }
            }
            None => out.push(n),
        }
    }
    out
}

/// Fills in the `join` of every jump: the iterative method of Cooper, Harvey and Kennedy on the
/// reversed graph of single instructions.
pub(crate) fn joins(code: &mut [Inst]) {
    const NONE: u32 = u32::MAX;
    let end = code.len() as u32;
    let mut pred = vec![Vec::new(); code.len() + 1];
    for pc in 0..end {
        for s in successors(code, pc) {
            pred[s.min(end) as usize].push(pc);
        }
    }
    let post = reverse_postorder(&pred, end);
    let mut order = vec![0; code.len() + 1];
    for (i, &n) in post.iter().enumerate() {
        order[n as usize] = i as u32 + 1;
    }
    let mut idom = vec![NONE; code.len() + 1];
    idom[end as usize] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &n in post.iter().rev().filter(|n| **n != end) {
            let known = successors(code, n).map(|s| s.min(end)).filter(|s| idom[*s as usize] != NONE);
            let new = known.reduce(|a, b| meet(&idom, &order, a, b)).unwrap_or(NONE);
            if new != idom[n as usize] {
                idom[n as usize] = new;
                changed = true;
            }
        }
    }
    for (pc, inst) in code.iter_mut().enumerate() {
        if let Step::Jump { join, .. } = &mut inst.step {
            // A loop that never ends has no post-dominator: its lanes do not meet again.
            *join = if idom[pc] == NONE { end } else { idom[pc] };
        }
    }
}
