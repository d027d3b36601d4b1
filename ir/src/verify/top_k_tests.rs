//! Rules of candidates, in kernels and plans.

use super::{verify_kernel, verify_plan, verify_target};
use crate::eval::fixture;
use crate::kernel::{Body, Kernel, Param, ParamKind, RowElem, TopK};
use crate::kv::KvDType;
use crate::plan::{Buffer, Candidates, Launch, Operand, Slot};
use crate::quant::Format;
use crate::ty::Dim;

fn kernel(vocab: usize, k: usize) -> Kernel {
    let rows = |cols| ParamKind::Rows { rows: Dim::Rows, cols, elem: RowElem::F32 };
    let param = |name: &str, cols| Param { name: name.into(), kind: rows(cols) };
    let params = vec![param("x", vocab), param("out", TopK::columns(k))];
    Kernel { name: "h.top_k0".into(), rows: Dim::Rows, params, body: Body::TopK(TopK { x: 0, k, out: 1 }) }
}

#[test]
fn kernels_have_logits_and_room_for_candidates() {
    let codes = |k: &Kernel| verify_kernel(k).iter().map(|d| d.code).collect::<Vec<_>>();
    assert!(codes(&kernel(100, 64)).is_empty() && codes(&kernel(1, 1)).is_empty());
    for (vocab, k) in [(10, 11), (10, 0), (1 << 24, 64)] {
        assert_eq!(codes(&kernel(vocab, k)), ["top-k"], "{k} of {vocab}");
    }
    assert_eq!(codes(&Kernel { rows: Dim::Tokens, ..kernel(10, 2) })[0], "kernel-rows");
    let mut narrow = kernel(10, 2);
    narrow.params[1].kind = ParamKind::Rows { rows: Dim::Rows, cols: 4, elem: RowElem::F32 };
    assert_eq!(codes(&narrow), ["param-columns"]);
}

/// A plan's candidates live to the end of the step, in a slot of their own; only GPUs have them.
#[test]
fn candidates_are_results_of_plans_for_gpus() {
    let mut plan = fixture::plan(fixture::spec(KvDType::F32, None), Format::F32);
    let (vocab, slot) = (plan.info.vocab, plan.slots.len());
    plan.kernels.push(kernel(vocab, 4));
    plan.slots.push(Slot { per_token: 0, per_row: 4 * TopK::columns(4) });
    plan.entries[0].candidates = Some(Candidates { slot, k: 4 });
    for regime in &mut plan.regimes {
        let logits = regime.buffers.iter().position(|b| b.slot == plan.entries[0].outputs[0].at).unwrap();
        regime.buffers.push(Buffer { rows: Dim::Rows, cols: TopK::columns(4), elem: RowElem::F32, slot });
        let operands = vec![Operand::Buffer(logits), Operand::Buffer(regime.buffers.len() - 1)];
        regime.launches.push(Launch { kernel: plan.kernels.len() - 1, operands, call: 0 });
    }
    let codes = |p: &crate::plan::Plan| verify_plan(p).iter().map(|d| d.code).collect::<Vec<_>>();
    assert!(codes(&plan).is_empty(), "{:?}", verify_plan(&plan));
    let target = |name| verify_target(&plan, crate::target::find(name).unwrap());
    assert!(target("x86-64-v3").iter().any(|d| d.code == "target-kernel"));
    assert!(target("sm90").iter().all(|d| d.code != "target-kernel"));
    let mut wrong = plan.clone();
    wrong.entries[0].candidates = Some(Candidates { slot, k: 5 });
    assert_eq!(codes(&wrong), ["candidates", "candidates"]);
    wrong = plan.clone();
    wrong.regimes[1].launches.pop();
    assert!(codes(&wrong).contains(&"candidates"));
    let text = crate::text::print_plan(&plan);
    assert!(text.contains("  candidates slot 7 k=4\n"), "{text}");
}
