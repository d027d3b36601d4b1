//! The choice of experts, one token at a time: scalar on all processors, as a token has few experts
//! beside the columns of its products.

use core::slice;

use llmcc_abi::route::{MOST_EXPERTS, RouteArgs, Score};

use crate::reference::exp_and_tail;

/// Logits of a token, their scores, and the experts excluded.
struct Experts<'a> {
    logits: &'a [f32],
    /// Scores that weights are made of.
    scores: [f32; MOST_EXPERTS],
    /// Scores that are compared.
    order: [f32; MOST_EXPERTS],
    out: [bool; MOST_EXPERTS],
}

/// See [`RouteArgs`].
///
/// # Safety
/// The pointers are to `experts` logits and biases and `2·top` results; there are no more experts
/// than [`MOST_EXPERTS`], in `groups` equal groups.
pub(crate) unsafe extern "C" fn route(a: *const RouteArgs) {
    let a = unsafe { &*a };
    let (n, top) = ((a.experts as usize).min(MOST_EXPERTS), a.top as usize);
    let (logits, bias) = unsafe { (slice::from_raw_parts(a.x, n), slice::from_raw_parts(a.bias, n)) };
    let (numbers, weights) = unsafe { slice::from_raw_parts_mut(a.out, 2 * top) }.split_at_mut(top);
    let mut all =
        Experts { logits, scores: [0.0; MOST_EXPERTS], order: [0.0; MOST_EXPERTS], out: [false; MOST_EXPERTS] };
    if a.score == Score::Mixer {
        return all.mix(a, numbers, weights);
    }
    all.score(a, bias);
    if a.groups > 1 {
        all.leave_groups_out(a);
    }
    for (number, weight) in numbers.iter_mut().zip(weights.iter_mut()) {
        let e = best(&all.order[..n], &all.out);
        all.out[e] = true;
        (*number, *weight) = (e as f32, all.scores[e]);
    }
    if a.score == Score::Chosen {
        softmax(weights);
    }
    let sum = weights.iter().fold(0.0, |sum, w| sum + w) + a.eps;
    for w in weights {
        *w = if a.normalize != 0 { *w / sum } else { *w } * a.scale;
    }
}

impl Experts<'_> {
    fn score(&mut self, a: &RouteArgs, bias: &[f32]) {
        let n = self.logits.len();
        self.scores[..n].copy_from_slice(self.logits);
        match a.score {
            Score::Softmax => softmax(&mut self.scores[..n]),
            Score::Sigmoid | Score::SigmoidOfChosen => {
                self.scores[..n].iter_mut().for_each(|z| *z = 1.0 / (exp(-*z) + 1.0))
            }
            Score::Chosen | Score::Mixer | Score::Given => {}
        }
        // A softmax keeps the order of its logits, but numbers that differ may round to one.
        let by_logit = a.score == Score::Softmax && a.groups <= 1 && bias.iter().all(|b| *b == 0.0);
        let ranked = if a.score == Score::SigmoidOfChosen { self.logits } else { &self.scores[..n] };
        for (i, order) in self.order[..n].iter_mut().enumerate() {
            *order = if by_logit { self.logits[i] } else { ranked[i] + bias[i] };
        }
    }

    /// Keeps the experts of the best groups.
    fn leave_groups_out(&mut self, a: &RouteArgs) {
        let n = self.logits.len();
        let (groups, each) = (a.groups as usize, n / a.groups as usize);
        let mut of_group = [0.0f32; MOST_EXPERTS];
        for (g, score) in of_group[..groups].iter_mut().enumerate() {
            let group = &self.order[g * each..][..each];
            let mut out = [false; MOST_EXPERTS];
            let first = best(group, &out);
            *score = group[first];
            if a.pairs != 0 {
                out[first] = true;
                *score += group[best(group, &out)];
            }
        }
        let mut left = [false; MOST_EXPERTS];
        self.out[..n].fill(true);
        for _ in 0..a.kept {
            let g = best(&of_group[..groups], &left);
            left[g] = true;
            self.out[g * each..][..each].fill(false);
        }
    }

    /// The sparse mixer.
    fn mix(&mut self, a: &RouteArgs, numbers: &mut [f32], weights: &mut [f32]) {
        for (number, weight) in numbers.iter_mut().zip(weights) {
            let top = best(self.logits, &self.out);
            let most = self.logits[top];
            let mut sum = 0.0;
            for (e, z) in self.logits.iter().enumerate() {
                let size = if z.abs() > most { z.abs() } else { most };
                if !self.out[e] && (most - z) / size <= 2.0 * a.eps {
                    sum += exp(z - most);
                }
            }
            self.out[top] = true;
            (*number, *weight) = (top as f32, 1.0 / sum * a.scale);
        }
    }
}

/// The first of the largest of those that are not out; NaN counts as smaller than all numbers.
fn best(x: &[f32], out: &[bool]) -> usize {
    let mut found: Option<(usize, f32)> = None;
    for (i, z) in x.iter().enumerate().filter(|(i, _)| !out[*i]) {
        let z = if z.is_nan() { f32::NEG_INFINITY } else { *z };
        if found.is_none_or(|(_, most)| z > most) {
            found = Some((i, z));
        }
    }
    found.map_or(0, |(i, _)| i)
}

fn softmax(x: &mut [f32]) {
    let most = x.iter().fold(f32::NEG_INFINITY, |m, z| if *z > m { *z } else { m });
    let mut sum = 0.0;
    for z in x.iter_mut() {
        *z = exp(*z - most);
        sum += *z;
    }
    x.iter_mut().for_each(|z| *z /= sum);
}

fn exp(x: f32) -> f32 {
    exp_and_tail(x, 0.0)
}
