//! Finding the most probable tokens on the machine that has the logits.
//!
//! On a GPU each regime of an entry with logits ends with a launch of [`TopK`]: the runtime then fetches some hundred
//! bytes per row and not all logits. There is nothing to choose, so this comes after the choices. On a
//! CPU the runtime reads the logits where they are.

use crate::cost::seconds;
use crate::memory::{Kind, ResultBuffers};
use llmcc_ir::graph::{Entry, Module};
use llmcc_ir::kernel::{Body, Kernel, Param, ParamKind, RowElem, TopK};
use llmcc_ir::output::Output;
use llmcc_ir::plan::{Buffer, Launch, Operand, Plan};
use llmcc_ir::target::{Family, TargetSpec};
use llmcc_ir::ty::{Dim, Env};

/// Candidates per row. The usual top-k of 40 or 50 is among them, and nearly always the tokens that
/// a top-p of 0.95 keeps.
pub const CANDIDATES: usize = 64;

/// Adds the launch to every regime with logits of a plan for a GPU, and its buffer to the results.
pub fn add(plan: &mut Plan, module: &Module, target: &TargetSpec, results: &mut ResultBuffers) {
    let vocab = plan.info.vocab;
    if target.family() != Family::Nvidia || vocab == 0 || vocab >= TopK::MOST_COLUMNS {
        return;
    }
    let mut kernel = None;
    for (regime, results) in plan.regimes.iter_mut().zip(&mut results.by_regime) {
        let logits = results.iter().find(|(kind, _)| *kind == Kind::Output(Output::Logits));
        let (Some((_, logits)), Some(entry)) = (logits, module.entries.get(regime.entry)) else { continue };
        let index = *kernel.get_or_insert_with(|| {
            plan.kernels.push(top_k(module, entry, vocab));
            plan.kernels.len() - 1
        });
        let cols = TopK::columns(CANDIDATES.min(vocab));
        regime.buffers.push(Buffer { rows: Dim::Rows, cols, elem: RowElem::F32, slot: 0 });
        let out = regime.buffers.len() - 1;
        regime.launches.push(Launch {
            kernel: index,
            operands: vec![Operand::Buffer(*logits), Operand::Buffer(out)],
            call: entry.calls.len().saturating_sub(1),
        });
        results.push((Kind::Candidates, out));
    }
}

/// The kernel, named after the last function of `entry`.
fn top_k(module: &Module, entry: &Entry, vocab: usize) -> Kernel {
    let func = entry.calls.last().and_then(|c| module.funcs.get(c.func)).map_or(&*entry.name, |f| f.name.as_str());
    kernel(format!("{func}.top_k0"), vocab, CANDIDATES.min(vocab))
}

fn kernel(name: String, vocab: usize, k: usize) -> Kernel {
    let param = |name: &str, cols| Param {
        name: name.into(),
        kind: ParamKind::Rows { rows: Dim::Rows, cols, elem: RowElem::F32 },
    };
    let params = vec![param("x", vocab), param("out", TopK::columns(k))];
    Kernel { name, rows: Dim::Rows, params, body: Body::TopK(TopK { x: 0, k, out: 1 }) }
}

/// Predicted seconds of the launch in a regime of `entry`, if it has one.
pub fn cost(plan: &Plan, entry: &Entry, target: &TargetSpec, env: Env) -> Option<f64> {
    let kernel = plan.kernels.iter().find(|k| matches!(k.body, Body::TopK(_)))?;
    let has_logits = entry.outputs.iter().any(|o| o.output == Output::Logits);
    has_logits.then(|| seconds(kernel, target, env))
}
