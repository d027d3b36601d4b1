//! Experts in stacks, as Transformers 5 has them in memory, and writes them if it is told to.

use super::EXACT;
use super::renamed::{Renamings, means_the_same, renamed};
use crate::checkpoint::Checkpoint;
use crate::fixtures::{Tensor, random_tensors, write_checkpoint};
use crate::lift;
use crate::testing::{Folder, config, golden, with};
use llmcc_ir::eval::{Batch, State, eval_module};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Names of an expert's gate, up and down.
const OWN: [[&str; 3]; 2] = [["gate_proj", "up_proj", "down_proj"], ["w1", "w3", "w2"]];

/// The same tensors with the experts of each layer in stacks: gates and up in one, or, where there are
/// no gates, up alone, and down.
fn stacked(tensors: Vec<Tensor>) -> Vec<Tensor> {
    // The parts of each expert of each stack, in order.
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

/// Transformers writes the taps of OLMo-Hybrid's convolutions, which it has joined, in three equal parts, though
/// values are wider than keys.
#[test]
fn convolutions_cut_in_equal_parts() {
    let config = with(config("olmo_hybrid"), json!({ "linear_key_head_dim": 7, "linear_value_head_dim": 10 }));
    let mut tensors = random_tensors(&config, 1);
    let own = logits(&config, &tensors);
    let layers: Vec<String> =
        tensors.iter().filter_map(|t| t.name.strip_suffix("q_conv1d.weight")).map(String::from).collect();
    for layer in layers {
        let at = ["q", "k", "v"].map(|part| {
            let name = format!("{layer}{part}_conv1d.weight");
            tensors.iter().position(|t| t.name == name).unwrap()
        });
        let rows: usize = at.iter().map(|i| tensors[*i].shape[0]).sum();
        let data: Vec<u8> = at.iter().flat_map(|i| tensors[*i].data.clone()).collect();
        let (most, row) = (rows.div_ceil(3), data.len() / rows);
        assert_ne!(tensors[at[0]].shape[0], most);
        for (i, part) in at.into_iter().zip(data.chunks(most * row)) {
            tensors[i].shape[0] = part.len() / row;
            tensors[i].data = part.to_vec();
        }
    }
    assert_eq!(logits(&config, &tensors), own);
}

/// The matrices of queries, keys and values of linear attention, which are joined, need not be
/// stored alike.
#[test]
fn rows_of_several_formats() {
    for name in ["olmo_hybrid", "kimi_linear", "gla"] {
        let config = config(name);
        let mut tensors = random_tensors(&config, 1);
        let own = logits(&config, &tensors);
        for t in tensors.iter_mut().filter(|t| t.name.ends_with("attn.k_proj.weight")) {
            assert_eq!(t.dtype, "BF16");
            t.dtype = "F32";
            t.data = t.data.as_chunks::<2>().0.iter().flat_map(|b| [0, 0, b[0], b[1]]).collect();
        }
        assert_eq!(logits(&config, &tensors), own, "{name}");
    }
}

/// The logits of a short prompt.
fn logits(config: &Value, tensors: &[Tensor]) -> Vec<f64> {
    let folder = Folder::new();
    write_checkpoint(&folder.0, config, tensors).unwrap();
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    let module = lift(&ckpt, &EXACT).unwrap();
    let weights = |i: usize| ckpt.to_f32(&module.weights[i].name).unwrap();
    let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
    eval_module(&module, &weights, &mut states, &Batch::single(&[3, 5, 4, 9, 11], 0)).unwrap()
}
