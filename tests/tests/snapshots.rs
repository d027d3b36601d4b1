//! Every stage of a two-layer model, as text. Read the diff before you accept one
//! (`cargo insta review`).

use llmcc_cli::args::Stage;
use llmcc_cli::cmd::compile::emit;
use llmcc_cli::session::{self, CompileOptions};
use llmcc_codegen::cpu::CpuBackend;
use llmcc_frontends::fixtures::{random_tensors, write_checkpoint};
use llmcc_passes::ActPolicy;
use llmcc_tests::{golden, options, quantized};

#[test]
fn stages_of_a_two_layer_llama_in_w4() {
    let mut o = quantized(&golden("llama3"), "w4g32", ActPolicy::Int8);
    // Not `native`: snapshots are the same on every machine.
    o.targets = vec![session::find_target("x86-64-v3").expect("a target")];
    o.explain.egraph = true;
    let l = session::lower(&o, &CpuBackend::default()).unwrap_or_else(|e| panic!("{e}"));
    insta::assert_snapshot!("w4_graph", emit(Stage::Graph, &l));
    insta::assert_snapshot!("w4_egraph", emit(Stage::Egraph, &l));
    insta::assert_snapshot!("w4_kernels", emit(Stage::Kernels, &l));
    insta::assert_snapshot!("w4_plan", emit(Stage::Plan, &l));
    let clif = emit(Stage::Clif, &l);
    // Whole listings would change with every compiler release; only the shape of each kernel
    // matters.
    insta::assert_snapshot!("w4_clif_summary", summary(&clif));
    assert!(emit(Stage::Asm, &l).contains("vmulps"), "AVX is used on x86-64-v3");
}

#[test]
fn plan_of_a_two_layer_qwen3_in_f32() {
    let mut o = options(&golden("qwen3"));
    o.targets = vec![session::find_target("x86-64").expect("a target")];
    let l = session::lower(&o, &CpuBackend::default()).unwrap_or_else(|e| panic!("{e}"));
    insta::assert_snapshot!("f32_graph", emit(Stage::Graph, &l));
    insta::assert_snapshot!("f32_kernels", emit(Stage::Kernels, &l));
    insta::assert_snapshot!("f32_plan", emit(Stage::Plan, &l));
}

/// Per kernel: how many instructions of each kind, vector types included.
fn summary(clif: &str) -> String {
    use std::collections::BTreeMap;
    let mut out = String::new();
    for part in clif.split("; ").skip(1) {
        let name = part.lines().next().unwrap_or_default();
        if !name.contains('.') {
            continue;
        }
        let mut ops: BTreeMap<&str, usize> = BTreeMap::new();
        for line in part.lines() {
            if let Some((_, op)) = line.split_once(" = ") {
                *ops.entry(op.split_whitespace().next().unwrap_or_default()).or_default() += 1;
            }
        }
        let calls = part.matches("call_indirect").count();
        let vectors = part.matches("f32x4").count() > 0;
        out += &format!("{name}: {} kinds of instructions, vectors {vectors}, {calls} microkernel calls\n", ops.len());
    }
    out
}

/// A layer takes five launches in decode: QKV, attention, output, gate/up, down.
#[test]
fn decode_takes_five_launches_per_layer() {
    let o = quantized(&golden("llama3"), "w4g32", ActPolicy::Int8);
    assert_eq!(most_launches_per_layer(&o), 5);
}

/// Launches of a decoded token per layer, at most.
fn most_launches_per_layer(o: &CompileOptions) -> usize {
    let l = session::lower(o, &CpuBackend::default()).unwrap_or_else(|e| panic!("{e}"));
    let decode = &l.preferred().compiled.plan.regimes[0];
    let of_layer =
        |call: usize| l.module.entries[0].calls[call].args.iter().any(|a| matches!(a, llmcc_ir::graph::Arg::State(_)));
    let of_call = |call: usize| decode.launches.iter().filter(|x| x.call == call).count();
    (0..l.module.entries[0].calls.len()).filter(|call| of_layer(*call)).map(of_call).max().unwrap_or(0)
}

/// Rows too wide for the tile of an epilogue: each norm after a block is one launch with the
/// residual stream, and nothing is left for generic kernels.
#[test]
fn norms_after_the_blocks_take_a_launch_each() {
    for (name, most) in [("gemma3", 7), ("olmo2", 7)] {
        let config = std::fs::read(golden(name).join("config.json")).expect("a config");
        let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        config["hidden_size"] = 384.into();
        // Norms of whole rows of queries and keys fit a tile.
        config["head_dim"] = 32.into();
        let folder = tempfile::tempdir().expect("temporary folder");
        write_checkpoint(folder.path(), &config, &random_tensors(&config, 1)).expect("written");
        let o = CompileOptions { deny_fallback: true, ..options(folder.path()) };
        let launches = most_launches_per_layer(&o);
        assert!(launches <= most, "{name}: {launches} launches");
    }
}
