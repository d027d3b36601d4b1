//! Why each kernel was chosen: the cheapest program without it.

use crate::extract::{How, Problem, Solved};
use crate::schedule::FuncSchedule;
use crate::spec::{Spec, tiles};
use crate::{Choice, PassError};
use egg::Id;
use llmcc_ir::kernel::Kernel;
use std::collections::BTreeSet;

/// One entry per launch of the function.
///
/// # Errors
/// Errors of the solver.
pub fn explain(
    func: &str,
    regime: usize,
    problem: &Problem,
    solved: &Solved,
    schedule: &FuncSchedule,
) -> Result<Vec<Choice>, PassError> {
    let mut out = vec![];
    for step in &schedule.steps {
        let other = alternative(problem, step.origin);
        let (runner_up, gap) = match other {
            Some(other) => (difference(problem, solved, &other), other.seconds - solved.seconds),
            None => (String::new(), 0.0),
        };
        let chosen = describe(&step.kernel, step.inputs.len());
        out.push(Choice { func: func.into(), regime, chosen, seconds: step.seconds, runner_up, gap });
    }
    Ok(out)
}

/// The cheapest solution without a candidate.
fn alternative(problem: &Problem, without: (Id, usize)) -> Option<Solved> {
    problem.solve(&BTreeSet::from([without])).ok()
}

/// Kernels of `other` that `solved` does not use.
fn difference(problem: &Problem, solved: &Solved, other: &Solved) -> String {
    let mut parts = vec![];
    for (class, i) in &other.chosen {
        let c = &problem.classes[class][*i];
        if solved.chosen.get(class) != Some(i)
            && let How::Kernel(kernel) = &c.how
        {
            parts.push(describe(kernel, c.children.len()));
        }
    }
    parts.join(" + ")
}

fn describe(kernel: &Kernel, inputs: usize) -> String {
    format!("{}{}", Spec { kernel: kernel.clone(), inputs }, tiles(kernel))
}
