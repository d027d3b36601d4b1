//! Prompts made shorter, against the method as it is defined.

use super::{CONTEXT, Rng, VOCAB};
use llmcc_rt::compress::{Prompt, SEGMENT, compress};
use llmcc_rt::{Engine, Status};

/// Self-information of a token after a text, which a model evaluates as a whole.
fn information(model: fn(&[i32]) -> Vec<f32>, text: &[i32], token: i32) -> f64 {
    if text.is_empty() {
        return f64::INFINITY;
    }
    let logits: Vec<f64> = model(text).into_iter().map(f64::from).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + logits.iter().map(|x| (x - max).exp()).sum::<f64>().ln() - logits[token as usize]
}

/// Which tokens are kept, and the self-information of all.
fn by_definition(model: fn(&[i32]) -> Vec<f32>, prompt: &Prompt, forced: &[bool]) -> (Vec<bool>, Vec<f64>) {
    let (tokens, n, size) = (prompt.tokens, prompt.tokens.len(), SEGMENT.min(CONTEXT / 2));
    let mut keep: Vec<bool> = (0..n).map(|i| i < prompt.context || forced[i]).collect();
    let (mut all, mut kept, mut first) = (vec![0.0; prompt.context], tokens[..prompt.context].to_vec(), 0);
    let mut start = prompt.context;
    while start < n {
        let end = n.min(start + size);
        let room = CONTEXT - (end - start);
        if kept.len() - first > room {
            first = kept.len() - room.div_ceil(2);
        }
        for i in start..end {
            let text = [&kept[first..], &tokens[start..i]].concat();
            all.push(information(model, &text, tokens[i]));
        }
        let wanted = (prompt.share * (end - prompt.context) as f64).round() as usize;
        let kept_of = |keep: &[bool]| keep[prompt.context..end].iter().filter(|k| **k).count();
        while kept_of(&keep) < wanted {
            let left = (start..end).filter(|i| !keep[*i]);
            // (The last of the largest is the first of all when they are taken from the end.)
            let Some(most) = left.rev().max_by(|a, b| all[*a].total_cmp(&all[*b])) else { break };
            keep[most] = true;
        }
        kept.extend((start..end).filter(|i| keep[*i]).map(|i| tokens[i]));
        start = end;
    }
    (keep, all)
}

/// Random prompts, also longer than the model's context, with contexts and forced tokens.
pub fn check_compression(engine: &mut Engine, model: fn(&[i32]) -> Vec<f32>, seed: u64, rounds: usize) {
    let mut rng = Rng(seed);
    for round in 0..rounds {
        let n = rng.below(if round % 3 == 0 { 700 } else { 150 });
        let tokens: Vec<i32> = (0..n).map(|_| rng.below(VOCAB) as i32).collect();
        let context = if rng.below(2) == 0 { 0 } else { rng.below(n.min(9) + 1) };
        let share = [0.5, 0.01, 1.0, (1 + rng.below(99)) as f64 / 100.0][rng.below(4)];
        let prompt = Prompt { tokens: &tokens, context, share };
        let rare = 2 + rng.below(30);
        let forced: Vec<bool> = (0..n).map(|_| rng.below(rare) == 0).collect();
        let (want, nats) = by_definition(model, &prompt, &forced);
        let mut keep = forced.clone();
        let found = compress(engine, &prompt, &mut keep).unwrap();
        let what = format!("round {round}: {n} tokens, {context} of the context, {share}");
        assert_eq!(keep, want, "{what}");
        let near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        assert!(found.len() == n && found.iter().zip(&nats).all(near), "{what}");
        let (kept, least) = (keep[context..].iter().filter(|k| **k).count(), forced[context..].iter().filter(|f| **f));
        let wanted = (share * (n - context) as f64).round() as usize;
        assert!(kept == wanted || kept > wanted && least.count() > 0, "{what}: {kept} kept, {wanted} wanted");
        assert_eq!((engine.kv().used_pages(), engine.kv().sequences()), (0, 0));
    }
    for (prompt, says) in [
        (Prompt { tokens: &[1, 2], context: 0, share: 0.0 }, "the share of tokens to keep is 0;"),
        (Prompt { tokens: &[1, 2], context: 0, share: f64::NAN }, "the share of tokens to keep is NaN;"),
        (Prompt { tokens: &[1, 2], context: 0, share: 1.5 }, "the share of tokens to keep is 1.5;"),
        (Prompt { tokens: &[1, 2], context: 3, share: 0.5 }, "the context is 3 of 2 tokens"),
        (Prompt { tokens: &[1, VOCAB as i32], context: 0, share: 0.5 }, "token 7 at index 1 is outside"),
    ] {
        let error = compress(engine, &prompt, &mut [false; 2]).unwrap_err();
        assert!(error.status == Status::Invalid && error.message.contains(says), "{error}");
    }
    assert_eq!(engine.kv().sequences(), 0);
}
