//! Experts in stacks, as Transformers 5 has them in memory, and writes them if it is told to.

use super::renamed::{Renamings, means_the_same, renamed};
use crate::checkpoint::Checkpoint;
use crate::fixtures::Tensor;
use crate::testing::golden;
use std::collections::BTreeMap;

/// Names of an expert's gate, up and down.
const OWN: [[&str; 3]; 2] = [["gate_proj", "up_proj", "down_proj"], ["w1", "w3", "w2"]];

/// The same tensors with the experts of each layer in stacks: gates and up in one, or, where there are
/// no gates, up alone, and down.
fn stacked(tensors: Vec<Tensor>) -> Vec<Tensor> {
    // Of each stack the parts of each expert in order.
    let mut stacks: BTreeMap<String, BTreeMap<(usize, usize), Tensor>> = BTreeMap::new();
    let mut others = vec![];
    let gated = tensors.iter().any(|t| t.name.contains(".experts.0.gate_proj.") || t.name.contains(".experts.0.w1."));
    for t in tensors {
        let Some((before, rest)) = t.name.split_once(".experts.") else {
            others.push(t);
            continue;
        };
        let [number, name, _] = rest.split('.').collect::<Vec<_>>()[..] else { panic!("{}", t.name) };
        let at = OWN.iter().find_map(|names| names.iter().position(|n| *n == name)).unwrap();
        let stack = match (at, gated) {
            (2, _) => "down_proj",
            (_, true) => "gate_up_proj",
            (_, false) => "up_proj",
        };
        let stack = format!("{before}.experts.{stack}");
        stacks.entry(stack).or_default().insert((number.parse().unwrap(), at), t);
    }
    let joined = stacks.into_iter().map(|(name, parts)| {
        let count = parts.keys().map(|(e, _)| e + 1).max().unwrap();
        let Tensor { dtype, ref shape, .. } = *parts.values().next().unwrap();
        let columns = shape[1];
        let rows = parts.values().map(|t| t.shape[0]).sum::<usize>() / count;
        let data = parts.into_values().flat_map(|t| t.data).collect();
        Tensor { name, dtype, shape: vec![count, rows, columns], data }
    });
    joined.chain(others).collect()
}

#[test]
fn families() {
    const MIXTRAL: Renamings = &[(".block_sparse_moe.", ".mlp.")];
    let all: [(&str, Renamings); 22] = [
        ("mixtral", MIXTRAL),
        ("minimax_m2", MIXTRAL),
        ("phimoe", &[(".block_sparse_moe.gate.", ".mlp.router."), (".block_sparse_moe.", ".mlp.")]),
        ("ernie4_5_moe", &[(".mlp.moe_statics.", ".mlp.gate.moe_statics.")]),
        ("qwen2_moe", &[]),
        ("qwen3_moe", &[]),
        ("olmoe", &[]),
        ("flex_olmo", &[]),
        ("afmoe", &[]),
        ("lfm2_moe", &[]),
        ("hunyuan_v1_moe", &[]),
        ("glm4_moe", &[]),
        ("deepseek_v2", &[]),
        ("deepseek_v3", &[]),
        ("deepseek_v32", &[]),
        ("glm_moe_dsa", &[]),
        ("glm4_moe_lite", &[]),
        ("longcat_flash", &[]),
        ("nemotron_h", &[("backbone.", "model.")]),
        ("nemotron_h", &[]),
        ("mimo_v2_flash", &[("attention_sink_bias", "sinks")]),
        ("laguna", &[(".mlp.experts.e_score", ".mlp.gate.e_score"), (".shared_expert.", ".shared_experts.")]),
    ];
    for (name, names) in all {
        let config = Checkpoint::open(&golden(name)).unwrap().config().clone();
        means_the_same(name, &config, &stacked(renamed(name, names, &[])));
    }
}
