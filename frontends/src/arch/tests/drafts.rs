//! Models and their draft heads against Transformers' `MtpModel`.

use super::renamed::{Renamings, renamed};
use super::*;
use crate::error::FrontendError;
use crate::testing::Left;
use llmcc_ir::graph::{STEP, draft_entry};

/// Each with the number of its heads.
const NAMES: [(&str, usize); 6] =
    [("bailing_hybrid", 1), ("deepseek_v3", 2), ("glm4_moe", 1), ("mellum", 1), ("mimo", 1), ("qwen3_5", 1)];

fn opened(name: &str) -> Checkpoint {
    Checkpoint::open(&golden(&format!("drafts/{name}"))).unwrap()
}

/// Options with so many draft heads beside the model.
fn drafts(heads: usize) -> Options {
    Options { draft_heads: DraftHeads::First(heads), ..EXACT }
}

/// The entry `step` of the lifted module, evaluated.
fn step(ckpt: &Checkpoint, options: &Options, batch: &Batch) -> Left {
    entry(ckpt, options, STEP, batch)
}

/// Draft head `number`, evaluated.
fn draft(ckpt: &Checkpoint, number: usize, batch: &Batch) -> Left {
    entry(ckpt, &drafts(number + 1), &draft_entry(number), batch)
}

fn entry(ckpt: &Checkpoint, options: &Options, name: &str, batch: &Batch) -> Left {
    let module = lift(ckpt, options).unwrap();
    assert_eq!(verify_module(&module), vec![]);
    let weights = |i: usize| ckpt.to_f32(&module.weights[i].name).unwrap();
    Left::of(&module, name, &weights, batch)
}

/// Logits and hidden states of the model, and of each head given the golden ones before it, are
/// closer to the f64 reference than f32's are.
#[test]
fn logits_and_hidden_states() {
    for (name, heads) in NAMES {
        let ckpt = opened(name);
        let expected = Checkpoint::open(&golden(&format!("drafts/{name}/golden.safetensors"))).unwrap();
        let data = |t: &str| expected.tensor(t).unwrap().data;
        let floats =
            |t: &str| -> Vec<f64> { expected.tensor(t).unwrap().to_f32().into_iter().map(f64::from).collect() };
        let tokens: Vec<i32> = data("tokens").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let width = floats("model.hidden").len() / tokens.len();
        let near = |of: &str, what: &str, ours: &[f64]| {
            let (wanted, own) = (floats(&format!("{of}.{what}")), floats(&format!("{of}.{what}_error_f32")));
            let (entitled, error) = (own.into_iter().fold(0.0, f64::max), furthest(ours, &wanted));
            assert!(error <= entitled, "{name}, {what} of {of}: off by {error:e}, Transformers in f32 by {entitled:e}");
        };
        assert_eq!(crate::arch::config(&ckpt).unwrap().draft_heads(&ckpt), heads);
        let mut batch = Batch::single(&tokens, 0);
        let left = step(&ckpt, &Options { hidden_states: true, ..EXACT }, &batch);
        near("model", "logits", &left.output);
        near("model", "hidden", &left.hidden);
        assert!(step(&ckpt, &EXACT, &batch).hidden.is_empty());
        let mut before = "model".to_string();
        for head in 0..heads {
            let hidden: Vec<f32> = floats(&format!("{before}.hidden")).iter().map(|x| *x as f32).collect();
            batch = Batch::single(&tokens[1 + head..], 0);
            batch.hidden = hidden[..hidden.len() - width].to_vec();
            let left = draft(&ckpt, head, &batch);
            before = format!("head{head}");
            near(&before, "logits", &left.output);
            near(&before, "hidden", &left.hidden);
            batch.hidden.rotate_left(width);
            let other = draft(&ckpt, head, &batch);
            assert!(furthest(&other.output, &left.output) > 0.1, "{name}: hidden states do not count");
        }
    }
}

/// Heads of a text model that is a part of a larger one, whose layers have other names.
#[test]
fn draft_heads_of_a_part() {
    const PARTS: [Renamings; 2] = [
        &[("model.", "model.language_model.")],
        &[("model.", "language_model.MODEL."), ("lm_head", "language_model.lm_head"), ("MODEL", "model")],
    ];
    for name in ["glm4_moe", "qwen3_5"] {
        let ckpt = opened(name);
        let part = ckpt.config().clone();
        let whole = json!({ "model_type": "a", "architectures": ["AForConditionalGeneration"], "text_config": part });
        let mut batch = Batch::single(&[5, 9, 31], 0);
        batch.hidden = (0..120).map(|i| (i as f32).sin()).collect();
        let alone = draft(&ckpt, 0, &batch);
        for names in PARTS {
            let folder = Folder::new();
            write_checkpoint(&folder.0, &whole, &renamed(&format!("drafts/{name}"), names, &[])).unwrap();
            let inside = Checkpoint::open(&folder.0).unwrap();
            assert_eq!(crate::arch::config(&inside).unwrap().draft_heads(&inside), 1, "{name}");
            assert_eq!(draft(&inside, 0, &batch).output, alone.output, "{name}");
        }
    }
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Missing draft heads are refused with a message.
#[test]
fn draft_heads_that_are_not_there() {
    let message = |ckpt: &Checkpoint, number: usize| lift(ckpt, &drafts(number + 1)).unwrap_err().to_string();
    let text = message(&opened("glm4_moe"), 1);
    assert!(text.contains("there is no draft head 1: by `num_nextn_predict_layers`, 1 layers"), "{text}");
    let text = message(&opened("qwen3_5"), 1);
    assert!(text.contains("there is no tensor `mtp.layers.1.post_attention_layernorm.weight`"), "{text}");
    let (_folder, ckpt) = checkpoint(&config("llama"), |_| ());
    let text = message(&ckpt, 0);
    assert!(
        text.contains("draft heads of LlamaForCausalLM are not supported; supported are those of DeepSeek-V3"),
        "{text}"
    );
    let says = with(config("deepseek_v3"), json!({ "num_nextn_predict_layers": 1 }));
    let (_folder, ckpt) = checkpoint(&says, |_| ());
    let text = message(&ckpt, 0);
    assert!(text.contains("draft head 0 is not in the checkpoint: there is no tensor `model.layers."), "{text}");
}

/// A head reads all its tensors in a file.
#[test]
fn tensors_of_heads_are_used() {
    for (name, heads) in NAMES {
        let ckpt = opened(name);
        let all = lift(&ckpt, &Options { draft_heads: DraftHeads::All, ..EXACT }).unwrap();
        assert_eq!((crate::unused::find(&ckpt, &all).unwrap(), all.entries.len()), (None, 1 + heads), "{name}");
        // As if the module had the head.
        let (module, model) = (lift(&ckpt, &EXACT).unwrap(), crate::arch::config(&ckpt).unwrap());
        let unused = crate::unused::of_head(&ckpt, &model, &module, 0);
        let layer = format!("model.layers.{}.", model.facts().layers);
        let of_head = |t: &str| t.starts_with("mtp.") || t.starts_with("model.mtp_layers.") || t.starts_with(&layer);
        assert!(unused.len() > 9 && unused.iter().all(|t| of_head(t)), "{name}: {unused:?}");
    }
}

/// Hidden states are of models that write text, and whose heads leave them.
#[test]
fn hidden_states_that_are_not_there() {
    let refused = |name: &str| {
        let ckpt = Checkpoint::open(&golden(name)).unwrap();
        let error: FrontendError = lift(&ckpt, &Options { hidden_states: true, ..EXACT }).unwrap_err();
        error.to_string()
    };
    assert!(refused("bert").contains("without hidden states beside them"), "{}", refused("bert"));
    assert!(refused("gemma3n").contains("does not return hidden states"), "{}", refused("gemma3n"));
}
