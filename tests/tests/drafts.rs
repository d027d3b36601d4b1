//! Compiled models that leave hidden states, and their draft heads, against Transformers'
//! `MtpModel`: in pieces and in batches; and their refusals.

use llmcc_cli::loaded::{GenOptions, Model};
use llmcc_cli::options::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_tests::{Artifact, golden, options};

/// Each with the number of its heads.
const NAMES: [(&str, usize); 6] =
    [("bailing_hybrid", 1), ("deepseek_v3", 2), ("glm4_moe", 1), ("mellum", 1), ("mimo", 1), ("qwen3_5", 1)];

/// The reference's results.
struct Golden {
    name: &'static str,
    file: Checkpoint,
}

impl Golden {
    fn tokens(&self) -> Vec<i32> {
        self.file.tensor("tokens").unwrap().data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    fn floats(&self, tensor: &str) -> Vec<f64> {
        self.file.tensor(tensor).unwrap().to_f32().into_iter().map(f64::from).collect()
    }

    /// `ours` of the model or a head is at most twice as far off as Transformers in f32.
    #[track_caller]
    fn near(&self, of: &str, what: &str, ours: &[f32]) {
        let wanted = self.floats(&format!("{of}.{what}"));
        let allowed = 2.0 * self.floats(&format!("{of}.{what}_error_f32")).into_iter().fold(0.0, f64::max);
        let error = ours.iter().zip(&wanted).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        println!("{} {of}: error of {what} {error:.2e}, allowed {allowed:.2e}", self.name);
        assert!(ours.len() == wanted.len() && error <= allowed, "{}: {what} of {of} off by {error:.2e}", self.name);
    }
}

/// Logits and hidden states of a sequence in pieces of so many tokens, each with a hidden state if there are any.
fn in_pieces(model: &Model, tokens: &[i32], hidden: &[f32], piece: usize) -> (Vec<f32>, Vec<f32>) {
    let (seq, width) = (model.seq_new().unwrap(), model.info().hidden);
    let (mut logits, mut left) = (vec![], vec![]);
    for (i, tokens) in tokens.chunks(piece).enumerate() {
        let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
        let from = i * piece * width;
        let given = hidden.get(from..from + tokens.len() * width).unwrap_or_default();
        let made = model.step_given((tokens, given), &vec![seq; tokens.len()], &wanted).unwrap();
        logits.extend(made.0);
        left.extend(made.1);
    }
    model.seq_free(seq).unwrap();
    (logits, left)
}

#[test]
fn logits_and_hidden_states() {
    for (name, heads) in NAMES {
        let folder = golden(&format!("drafts/{name}"));
        let golden = Golden { name, file: Checkpoint::open(&folder.join("golden.safetensors")).unwrap() };
        let plain = options(&folder);
        let whole = CompileOptions { hidden_states: true, ..plain.clone() };
        let head = |k| CompileOptions { draft_head: Some(k), ..plain.clone() };
        let all =
            std::iter::once(("model".to_string(), whole)).chain((0..heads).map(|k| (format!("head{k}"), head(k))));
        let mut hidden: Vec<f32> = vec![];
        for (i, (of, options)) in all.enumerate() {
            let artifact = Artifact::compile(&options);
            let model = artifact.open(2);
            let tokens = &golden.tokens()[i..];
            let (logits, left) = in_pieces(&model, tokens, &hidden, tokens.len());
            golden.near(&of, "logits", &logits);
            golden.near(&of, "hidden", &left);
            for piece in [1, 7] {
                let again = in_pieces(&model, tokens, &hidden, piece);
                assert!(again == (logits.clone(), left.clone()), "{name} {of}: pieces of {piece} change bits");
            }
            // Hidden states come to the token behind, for the head that is next.
            hidden = left[..left.len() - model.info().hidden].to_vec();
        }
    }
}

/// Logits equal those of an artifact that leaves nothing else.
#[test]
fn hidden_states_change_no_bits() {
    let folder = golden("drafts/mellum");
    let golden = Golden { name: "mellum", file: Checkpoint::open(&folder.join("golden.safetensors")).unwrap() };
    let [with, without] = [true, false].map(|hidden_states| {
        let artifact = Artifact::compile(&CompileOptions { hidden_states, ..options(&folder) });
        in_pieces(&artifact.open(2), &golden.tokens(), &[], 24)
    });
    assert!(!with.1.is_empty() && without.1.is_empty());
    assert_eq!(with.0, without.0);
}

#[test]
fn what_is_refused() {
    let head = CompileOptions { draft_head: Some(0), ..options(&golden("drafts/glm4_moe")) };
    let artifact = Artifact::compile(&head);
    let model = artifact.open(1);
    let seq = model.seq_new().unwrap();
    let refused = model.step(&[1], &[seq], &[0]).unwrap_err().to_string();
    assert!(
        refused.contains("this model is a draft head, which takes a hidden state of its model with each token"),
        "{refused}"
    );
    let refused = model.generate(None, &[1], &GenOptions::default()).err().map(|e| e.to_string());
    assert!(refused.is_some_and(|e| e.contains("generate by itself")));
    let model = Artifact::compile(&options(&golden("qwen3"))).open(1);
    let (seq, rows) = (model.seq_new().unwrap(), vec![0.0; model.info().hidden]);
    let refused = model.step_given((&[1], &rows), &[seq], &[0]).unwrap_err().to_string();
    assert!(refused.contains("this model does not take hidden states with its tokens"), "{refused}");
}
