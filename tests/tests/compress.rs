//! Prompts that a compiled model makes shorter, against the method over logits of whole evaluations.

use llmcc_cli::loaded::Model;
use llmcc_tests::{Artifact, golden, options};

/// Self-information of each token of a segment after the kept tokens, all of which are evaluated anew.
fn information(model: &Model, kept: &[i32], segment: &[i32]) -> Vec<f64> {
    let text = [kept, segment].concat();
    let seq = model.seq_new().unwrap();
    let wanted: Vec<u32> = (0..text.len() as u32).collect();
    let (logits, _) = model.run(0, (&text, &[]), &vec![seq; text.len()], &wanted).unwrap();
    model.seq_free(seq).unwrap();
    let rows: Vec<&[f32]> = logits.chunks(model.info().vocab).collect();
    let nats = |i: usize| {
        let Some(row) = i.checked_sub(1).map(|before| rows[before]) else { return f64::INFINITY };
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        sum.ln() - f64::from(row[text[i] as usize])
    };
    (kept.len()..text.len()).map(nats).collect()
}

/// The tokens that LLMLingua's iteration keeps: `share` of each segment with the most self-information. A segment has
/// 200 tokens, or half of the longest context.
fn by_definition(model: &Model, tokens: &[i32], context: usize, share: f64, forced: &[bool]) -> Vec<bool> {
    let mut keep: Vec<bool> = (0..tokens.len()).map(|i| i < context || forced[i]).collect();
    let mut kept = tokens[..context].to_vec();
    let size = 200.min(model.info().max_context / 2);
    for start in (context..tokens.len()).step_by(size) {
        let end = tokens.len().min(start + size);
        let nats = information(model, &kept, &tokens[start..end]);
        let wanted = (share * (end - context) as f64).round() as usize;
        let mut order: Vec<usize> = (start..end).filter(|i| !forced[*i]).collect();
        order.sort_by(|a, b| nats[b - start].total_cmp(&nats[a - start]).then(a.cmp(b)));
        let are_forced = (start..end).filter(|i| forced[*i]).count();
        let left = (wanted + context).saturating_sub(kept.len() + are_forced);
        order.into_iter().take(left).for_each(|i| keep[i] = true);
        kept.extend((start..end).filter(|i| keep[*i]).map(|i| tokens[i]));
    }
    keep
}

/// Attention, and a recurrence; several segments, a context before the text, and forced tokens.
#[test]
fn kept_tokens_are_those_of_whole_evaluations() {
    for name in ["llama3", "qwen3_next"] {
        let artifact = Artifact::compile(&options(&golden(name)));
        let model = artifact.open(2);
        let vocab = model.info().vocab as u64;
        let tokens: Vec<i32> = (0..450u64).map(|i| (i * i * 7 + i / 5 + 3) % vocab).map(|t| t as i32).collect();
        // (The kept tokens have room in the context.)
        for (n, context, share) in [(450, 0, 0.25), (450, 4, 0.2), (230, 1, 0.5), (5, 0, 0.5), (1, 0, 0.1), (0, 0, 0.5)]
        {
            let forced: Vec<bool> = (0..n).map(|i| i % 37 == 5 && context > 0).collect();
            let mut keep = forced.clone();
            let information = model.compress(&tokens[..n], context, share, &mut keep).unwrap();
            let want = by_definition(&model, &tokens[..n], context, share, &forced);
            assert_eq!(keep, want, "{name}: {n} tokens, {context} of the context, {share}");
            let kept = keep.iter().filter(|k| **k).count();
            assert_eq!(kept - context, (share * (n - context) as f64).round() as usize, "{name}: {n}, {share}");
            assert_eq!(information.len(), n);
            assert!(n == 0 || (information[0] == f32::INFINITY) == (context == 0));
        }
    }
}
