//! Finding the most probable tokens on the machine that has the logits.
//!
//! On a GPU each regime ends with a launch of [`TopK`]: the runtime then fetches some hundred bytes
//! per row and not all logits. There is nothing to choose, so this comes after the choices. On a
//! CPU the runtime reads the logits where they are.

use crate::cost::seconds;
use llmcc_ir::graph::Module;
use llmcc_ir::kernel::{Body, Kernel, Param, ParamKind, RowElem, TopK};
use llmcc_ir::output::Output;
use llmcc_ir::plan::{Buffer, Launch, Operand, Plan};
use llmcc_ir::target::{Family, TargetSpec};
use llmcc_ir::ty::{Dim, Env};

/// Candidates per row. The usual top-k of 40 or 50 is among them, and nearly always the tokens that
/// a top-p of 0.95 keeps.
pub const CANDIDATES: usize = 64;

/// Adds the launch to every regime of a plan for a GPU. Returns the candidates' buffer in each
/// regime; none where there is no launch.
pub fn add(plan: &mut Plan, module: &Module, target: &TargetSpec, logits: &[usize]) -> Vec<usize> {
    let vocab = plan.info.vocab;
    if plan.info.output != Output::Logits
        || target.family() != Family::Nvidia
        || vocab == 0
        || vocab >= TopK::MOST_COLUMNS
    {
        return vec![];
    }
    let call = module.step.len().saturating_sub(1);
    let func = module.step.last().and_then(|c| module.funcs.get(c.func)).map_or("step", |f| f.name.as_str());
    let kernel = kernel(format!("{func}.top_k0"), vocab, CANDIDATES.min(vocab));
    let index = plan.kernels.len();
    let mut buffers = vec![];
    for (regime, logits) in plan.regimes.iter_mut().zip(logits) {
        let cols = TopK::columns(CANDIDATES.min(vocab));
        regime.buffers.push(Buffer { rows: Dim::Rows, cols, elem: RowElem::F32, slot: 0 });
        let out = regime.buffers.len() - 1;
        regime.launches.push(Launch {
            kernel: index,
            operands: vec![Operand::Buffer(*logits), Operand::Buffer(out)],
            call,
        });
        buffers.push(out);
    }
    plan.kernels.push(kernel);
    buffers
}

fn kernel(name: String, vocab: usize, k: usize) -> Kernel {
    let param = |name: &str, cols| Param {
        name: name.into(),
        kind: ParamKind::Rows { rows: Dim::Rows, cols, elem: RowElem::F32 },
    };
    let params = vec![param("x", vocab), param("out", TopK::columns(k))];
    Kernel { name, rows: Dim::Rows, params, body: Body::TopK(TopK { x: 0, k, out: 1 }) }
}

/// Predicted seconds of the launch, if the plan has it.
pub fn cost(plan: &Plan, target: &TargetSpec, env: Env) -> Option<f64> {
    plan.kernels.iter().find(|k| matches!(k.body, Body::TopK(_))).map(|k| seconds(k, target, env))
}
