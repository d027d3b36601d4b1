//! Draft heads against what Transformers' classes compute of the rows that they are given.

use super::*;

const NAMES: [&str; 2] = ["deepseek_v3", "glm4_moe"];

fn opened(name: &str) -> Checkpoint {
    Checkpoint::open(&golden(&format!("drafts/{name}"))).unwrap()
}

fn draft(number: usize) -> Options {
    Options { draft_head: Some(number), ..EXACT }
}

/// The evaluated graph is closer to the f64 reference than that in f32 is; rows of other tokens, or none,
/// give other logits.
#[test]
fn logits_of_draft_heads() {
    for name in NAMES {
        let ckpt = opened(name);
        let module = lift(&ckpt, &draft(0)).unwrap();
        assert_eq!(verify_module(&module), vec![], "{name}");
        let expected = Checkpoint::open(&golden(&format!("drafts/{name}/golden.safetensors"))).unwrap();
        let data = |t: &str| expected.tensor(t).unwrap().data;
        let doubles = |t: &str| -> Vec<f64> { data(t).as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect() };
        let tokens: Vec<i32> = data("tokens").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let batch = Batch { hidden: expected.to_f32("hidden").unwrap(), ..Batch::single(&tokens, 0) };
        let weights = |i: usize| ckpt.to_f32(&module.weights[i].name).unwrap();
        let eval = |batch: &Batch| {
            let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
            eval_module(&module, &weights, &mut states, batch)
        };
        let f64s = doubles("logits_f64");
        let error = |ours: &[f64]| ours.iter().zip(&f64s).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let entitled = doubles("error_f32").into_iter().fold(0.0, f64::max);
        let ours = eval(&batch).unwrap();
        assert_eq!(ours.len(), f64s.len());
        assert!(error(&ours) <= entitled, "{name}: off by {:e}, Transformers in f32 by {entitled:e}", error(&ours));
        let mut other = batch.clone();
        other.hidden.rotate_left(module.info.hidden);
        assert!(error(&eval(&other).unwrap()) > 0.1);
        assert!(eval(&Batch { hidden: vec![], ..batch }).is_err());
    }
}

/// What cannot be had is refused in words.
#[test]
fn draft_heads_that_are_not_there() {
    let message = |ckpt: &Checkpoint, number| lift(ckpt, &draft(number)).unwrap_err().to_string();
    let text = message(&opened("deepseek_v3"), 1);
    assert!(text.contains("there is no draft head 1: `num_nextn_predict_layers` says that 1 layers"), "{text}");
    let (_folder, ckpt) = checkpoint(&config("llama"), |_| ());
    let text = message(&ckpt, 0);
    assert!(
        text.contains("draft heads of LlamaForCausalLM are not compiled, but those of glm4_moe, deepseek_v3"),
        "{text}"
    );
    let says = with(config("deepseek_v3"), json!({ "num_nextn_predict_layers": 1 }));
    let (_folder, ckpt) = checkpoint(&says, |_| ());
    let text = message(&ckpt, 0);
    assert!(text.contains("draft head 0 is not in the checkpoint: there is no tensor `model.layers."), "{text}");
}
