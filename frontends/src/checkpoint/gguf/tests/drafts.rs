//! Draft heads in GGUF files: layers after the last, as the converter writes them (`tests/goldens/gguf_drafts.py`).

use super::families::{converted, numbers, original};
use super::open;
use crate::checkpoint::Checkpoint;
use crate::testing::{Folder, Left, golden};
use crate::{Options, arch, lift};
use llmcc_ir::eval::Batch;
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
    let options =
        Options { kv_dtype: KvDType::F32, draft_head: head, hidden_states: head.is_none(), ..Options::default() };
    let module = lift(ckpt, &options).unwrap();
    let unused = match head {
        Some(number) => crate::unused::find_of_head(ckpt, &module, number),
        None => crate::unused::find(ckpt, &module),
    };
    assert_eq!(unused.unwrap(), None);
    let weights = |i: usize| numbers(ckpt, &module.weights[i].name);
    Left::of(&module, &weights, batch)
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

/// A file of a head alone, with table, norm and head of the model, which the converter writes with `--mtp`.
#[test]
fn files_of_heads_alone() {
    for (name, heads) in NAMES {
        let (before, folder) = (open(&golden(&format!("drafts/{name}"))), Folder::new());
        let about = about(name);
        folder.write("whole.gguf", converted(&before, &about));
        let layers = before.config()["num_hidden_layers"].as_u64().unwrap();
        let of_model = |name: &str| (0..layers).any(|i| name.starts_with(&format!("model.layers.{i}.")));
        folder.write("head.gguf", super::families::converted_without(&before, &about, of_model));
        let (whole, alone) = (open(&folder.0.join("whole.gguf")), open(&folder.0.join("head.gguf")));
        for head in 0..heads {
            let mut batch = Batch::single(&[5, 9, 3, 17, 30, 8], 0);
            let width = before.config()["hidden_size"].as_u64().unwrap() as usize;
            batch.hidden = (0..6 * width).map(|i| (i as f32 * 0.7).sin()).collect();
            let (a, b) = (step(&alone, Some(head), &batch), step(&whole, Some(head), &batch));
            assert!((a.output, a.hidden) == (b.output, b.hidden), "{name} {head}");
        }
    }
}
