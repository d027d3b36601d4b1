//! Probabilities of tokens, before sampling and after it.

use crate::llama::native::Native;
use crate::logprobs::LEAST;
use crate::model::Model;
use llmcc_model::{Event, Sampling, Token};
use serde_json::{Value, json};

/// The token of an event with its probability, and with the most probable tokens in its place.
pub(crate) fn entry(event: &Event, native: &Native, model: &dyn Model) -> Option<Value> {
    let token = event.token.filter(|_| native.probs > 0)?;
    let most = native.probs as usize;
    if !native.after_sampling {
        let one = |token: Token, logprob: f64| with(token, model, "logprob", logprob.max(LEAST));
        let top: Vec<Value> = event.top.iter().take(most).map(|(token, logprob)| one(*token, *logprob)).collect();
        let mut entry = one(token, event.logprob);
        entry["top_logprobs"] = top.into();
        return Some(entry);
    }
    let left = sampled(&event.top, &native.ask.params.sampling);
    let prob = left.iter().find(|(known, _)| *known == token).map_or(0.0, |(_, prob)| *prob);
    let top = left.iter().filter(|(_, prob)| *prob > 0.0).take(most);
    let top: Vec<Value> = top.map(|(token, prob)| with(*token, model, "prob", *prob)).collect();
    let mut entry = with(token, model, "prob", prob);
    entry["top_probs"] = top.into();
    Some(entry)
}

fn with(token: Token, model: &dyn Model, member: &str, value: f64) -> Value {
    let bytes = model.token_bytes(token).unwrap_or_default();
    json!({ "id": token, "token": String::from_utf8_lossy(&bytes), "bytes": bytes, member: value })
}

/// The probabilities of the tokens that sampling leaves, of the most probable tokens with their log-probabilities.
fn sampled(top: &[(Token, f64)], sampling: &Sampling) -> Vec<(Token, f64)> {
    let Some((best, most)) = top.first().copied() else { return vec![] };
    if sampling.temperature == 0.0 || sampling.top_k == 1 {
        return vec![(best, 1.0)];
    }
    let kept = if sampling.top_k == 0 { top.len() } else { sampling.top_k as usize };
    let weight = |logprob: f64| ((logprob - most) / f64::from(sampling.temperature)).exp();
    let mut left: Vec<(Token, f64)> = top.iter().take(kept).map(|(token, l)| (*token, weight(*l))).collect();
    if sampling.top_p < 1.0 {
        let enough = f64::from(sampling.top_p) * left.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut sum = 0.0;
        let missing = |(_, weight): &&(Token, f64)| {
            let before = sum;
            sum += weight;
            before < enough
        };
        let count = left.iter().take_while(missing).count();
        left.truncate(count.max(1));
    }
    // (The most probable token has the weight 1.)
    left.retain(|(_, weight)| *weight >= f64::from(sampling.min_p));
    let total: f64 = left.iter().map(|(_, weight)| weight).sum();
    left.iter_mut().for_each(|(_, weight)| *weight /= total);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_among_tokens_that_are_left() {
        let top: Vec<(Token, f64)> =
            [(7, 0.5), (8, 0.25), (9, 0.125), (10, 0.125)].map(|(token, p): (Token, f64)| (token, p.ln())).into();
        let all = Sampling { temperature: 1.0, ..Sampling::OWN };
        let shares = |sampling: Sampling| sampled(&top, &sampling).iter().map(|(_, p)| (p * 24.0).round()).collect();
        let expect = |sampling: Sampling, wanted: &[f64]| {
            let got: Vec<f64> = shares(sampling);
            assert_eq!(got, wanted, "{sampling:?}");
        };
        expect(all, &[12.0, 6.0, 3.0, 3.0]);
        expect(Sampling { top_k: 2, ..all }, &[16.0, 8.0]);
        expect(Sampling { top_p: 0.7, ..all }, &[16.0, 8.0]);
        expect(Sampling { min_p: 0.4, ..all }, &[16.0, 8.0]);
        expect(Sampling { temperature: 0.5, top_k: 2, ..all }, &[19.0, 5.0]);
        expect(Sampling { temperature: 0.0, ..all }, &[24.0]);
    }
}
