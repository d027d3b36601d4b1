//! Draft heads in GGUF files: layers after the last, as the converter writes them (`tests/goldens/gguf_drafts.py`).

use super::families::{converted, numbers, original};
use super::open;
use crate::checkpoint::Checkpoint;
use crate::testing::{Folder, Left, golden};
use crate::{DraftHeads, Options, arch, lift};
use llmcc_ir::eval::Batch;
use llmcc_ir::graph::{STEP, draft_entry};
use llmcc_ir::kv::KvDType;
use serde_json::Value;

/// Each with the number of its heads.
const NAMES: [(&str, usize); 4] = [("bailing_hybrid", 1), ("deepseek_v3", 2), ("glm4_moe", 1), ("qwen3_5", 1)];

fn about(name: &str) -> Value {
    let table: Value = serde_json::from_slice(&std::fs::read(golden("gguf/drafts.json")).unwrap()).unwrap();
    table[name].clone()
}

/// The results of the model or a head.
fn step(ckpt: &Checkpoint, head: Option<usize>, batch: &Batch) -> Left {
    let options = Options { kv_dtype: KvDType::F32, draft_heads: DraftHeads::All, ..Options::default() };
    let module = lift(ckpt, &options).unwrap();
    assert_eq!(crate::unused::find(ckpt, &module).unwrap(), None);
    let weights = |i: usize| numbers(ckpt, &module.weights[i].name);
    Left::of(&module, &head.map_or(STEP.to_string(), draft_entry), &weights, batch)
}

/// Numbers are rounded once where they were changed.
#[track_caller]
fn same(ours: &[f64], theirs: &[f64], what: &str) {
    let most = theirs.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let error = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(ours.len() == theirs.len() && error <= 1e-5 * most, "{what}: off by {error:e} of {most:e}");
}

/// Model and heads compute the same as from safetensors: logits and hidden states.
#[test]
fn heads_of_files_are_those_of_checkpoints() {
    for (name, heads) in NAMES {
        let (before, folder) = (open(&golden(&format!("drafts/{name}"))), Folder::new());
        folder.write("m.gguf", converted(&before, &about(name)));
        let (file, original) = (open(&folder.0.join("m.gguf")), original(&before, name, &folder));
        let model = arch::config(&file).unwrap();
        assert_eq!((model.draft_heads(&file), model.unread), (heads, vec![]), "{name}");
        let expected = open(&golden(&format!("drafts/{name}/golden.safetensors")));
        let data = expected.tensor("tokens").unwrap().data;
        let tokens: Vec<i32> = data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let mut hidden: Vec<f32> = vec![];
        for head in std::iter::once(None).chain((0..heads).map(Some)) {
            let mut batch = Batch::single(&tokens[head.map_or(0, |k| k + 1)..], 0);
            batch.hidden.clone_from(&hidden);
            let (ours, theirs) = (step(&file, head, &batch), step(&original, head, &batch));
            let what = format!("{name} {head:?}");
            same(&ours.output, &theirs.output, &what);
            same(&ours.hidden, &theirs.hidden, &what);
            let width = theirs.hidden.len() / batch.tokens.len();
            hidden = theirs.hidden[..theirs.hidden.len() - width].iter().map(|x| *x as f32).collect();
        }
    }
}
