//! Choosing from candidates, against choosing from all logits.

use super::*;
use crate::sample::sample;

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Candidates as a GPU finds them: the best `k`, and a sum that is off by nearly as much as
/// allowed.
fn found(logits: &[f32], k: usize, want: Want, off: f64) -> Vec<f32> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| {
        let nan = logits[*b].is_nan().cmp(&logits[*a].is_nan());
        nan.then(logits[*b].partial_cmp(&logits[*a]).unwrap_or(std::cmp::Ordering::Equal))
    });
    let n = if want == Want::Best { 1 } else { k };
    let mut row = vec![f32::NAN; 2 * k + 1];
    for (i, id) in order.iter().take(n).enumerate() {
        (row[i], row[k + i]) = (logits[*id] + 0.0, *id as f32);
    }
    let (max, scale) = (f64::from(logits[order[0]]), f64::from(want.scale()));
    let sum: f64 = logits.iter().map(|x| ((f64::from(*x) - max) * scale).exp2()).sum();
    row[2 * k] = (sum * (1.0 + off)) as f32;
    row
}

/// Random parameters of all kinds, over logits with ties, of flat and steep distributions: the same
/// token as from all logits, or none.
#[test]
fn candidates_give_the_token_that_all_logits_give() {
    let mut rng = Rng(7);
    let (mut chosen, mut open, mut direct) = (0, 0, 0);
    for case in 0..20_000u64 {
        let vocab = rng.pick(&[1, 5, 64, 65, 300, 1000]);
        let k = rng.pick(&[1, 8, 64]).min(vocab);
        let spread = rng.pick(&[0.5f32, 3.0, 12.0]);
        let step = rng.pick(&[1u32, 1 << 12, 1 << 21]);
        let logits: Vec<f32> = (0..vocab)
            .map(|_| (rng.below(1 << 24) as u32 / step * step) as f32 / (1 << 23) as f32 * spread - spread)
            .collect();
        let params = Sampling {
            temperature: rng.pick(&[0.0, 1e-30, 0.3, 0.7, 1.0, 1.0, 2.0]),
            top_k: rng.pick(&[0, 0, 1, 5, 40, 64, 100]),
            top_p: rng.pick(&[0.0, 0.1, 0.5, 0.9, 0.95, 1.0]),
            min_p: rng.pick(&[0.0, 0.0, 0.02, 0.1, 1.0]),
            repetition_penalty: rng.pick(&[1.0, 1.0, 1.0, 1.05, 2.0, 0.8]),
            repetition_window: rng.pick(&[0, 0, 5]),
            seed: case,
            ..Sampling::default()
        };
        // Some seen, likely ones among them, and one that is none.
        let mut seen: Vec<i32> = (0..rng.below(40)).map(|_| rng.below(vocab) as i32).collect();
        let best = (0..vocab).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        seen.extend([best as i32, -1].iter().take(rng.below(3)));
        let all = sample(&logits, &params, &seen, case).unwrap();
        let want = want(&params, k, vocab);
        if want == Want::Logits {
            direct += 1;
            continue;
        }
        let row = found(&logits, k, want, CANDIDATE_SUM_ERROR * rng.pick(&[-0.99, 0.0, 0.99]));
        match choose(&Candidates::of(&row, want).unwrap(), &params, &seen, vocab, case).unwrap() {
            Some(token) => {
                assert_eq!(token, all, "{params:?} {want:?} of {vocab}, {k} found");
                chosen += 1;
            }
            None => open += 1,
        }
    }
    // All three ways are taken, and mostly the short one.
    assert!(chosen > 9_000 && open > 500 && direct > 2_000, "{chosen} chosen, {open} open, {direct} direct");
}

#[test]
fn usual_parameters_need_no_logits() {
    // A distribution as of text: the first token has a fifth of the weight, the rest falls off as a
    // power law.
    let logits: Vec<f32> = (0..50_000u32).map(|i| 12.0 - 1.6 * ((1 + i * 7919 % 50_000) as f32).ln()).collect();
    for (temperature, top_k, top_p, min_p) in [
        (0.7, 40, 0.95, 0.05),
        (0.8, 50, 1.0, 0.0),
        (0.6, 0, 0.9, 0.0),
        (1.0, 0, 1.0, 0.05),
        (0.7, 0, 0.8, 0.01),
        (0.9, 0, 0.0, 0.0),
    ] {
        for draw in 0..50 {
            let params = Sampling { temperature, top_k, top_p, min_p, seed: 3, ..Sampling::default() };
            let want = want(&params, 64, logits.len());
            let row = found(&logits, 64, want, 1e-5);
            let chosen = choose(&Candidates::of(&row, want).unwrap(), &params, &[], logits.len(), draw).unwrap();
            assert_eq!(chosen, Some(sample(&logits, &params, &[], draw).unwrap()), "{params:?}");
            // As several models ask for by themselves.
            let params = Sampling { repetition_penalty: 1.05, top_k: top_k.clamp(1, 20), ..params };
            let (want, seen) = (super::want(&params, 64, logits.len()), [0, 7, 42, 7]);
            let row = found(&logits, 64, want, 1e-5);
            let chosen = choose(&Candidates::of(&row, want).unwrap(), &params, &seen, logits.len(), draw).unwrap();
            assert_eq!(chosen, Some(sample(&logits, &params, &seen, draw).unwrap()), "{params:?}");
        }
    }
}

/// A goal that lies on the sum of the first few: which side it falls on cannot be known.
#[test]
fn a_goal_within_the_error_is_left_open() {
    let logits: Vec<f32> = (0..100).map(|i| if i < 2 { 0.0 } else { -4.0 }).collect();
    let sum = 2.0 + 98.0 * f64::from(-4.0f32).exp();
    let params =
        |shift: f64| Sampling { temperature: 1.0, top_p: (2.0 / sum * (1.0 + shift)) as f32, ..Sampling::default() };
    let open = |shift: f64, off: f64| {
        let params = params(shift);
        let want = want(&params, 8, logits.len());
        let row = found(&logits, 8, want, off);
        choose(&Candidates::of(&row, want).unwrap(), &params, &[], logits.len(), 0).unwrap().is_none()
    };
    assert!(open(1e-5, 0.0) && open(-1e-5, 0.0) && open(0.0, 2e-5));
    assert!(!open(-1e-3, 2e-5));
    // The goal is surely beyond two; the third and its equals do not fill the gap before the
    // candidates end, or do.
    assert!(!open(1e-3, 0.0));
}

#[test]
fn bad_numbers_are_refused_as_from_all_logits() {
    for logits in [
        &[1.0, f32::NAN, 2.0][..],
        &[f32::INFINITY, 0.0, f32::NAN],
        &[f32::INFINITY, 0.0, 1.0],
        &[f32::NEG_INFINITY; 3],
    ] {
        for temperature in [0.0, 1.0] {
            let params = Sampling { temperature, top_k: 2, ..Sampling::default() };
            let want = want(&params, 2, 3);
            let row = found(logits, 2, want, 0.0);
            let error = choose(&Candidates::of(&row, want).unwrap(), &params, &[], 3, 0).unwrap_err();
            let same = sample(logits, &params, &[], 0).unwrap_err();
            assert_eq!((error.status, error.message), (same.status, same.message), "{logits:?}");
        }
    }
    let out_of_range = Candidates::new(&[1.0], &[7.0], 1.0);
    assert_eq!(choose(&out_of_range, &Sampling::default(), &[], 7, 0).unwrap_err().status, Status::Internal);
}

#[test]
fn wants_combine() {
    let top = |scale| Want::Top { scale };
    assert_eq!(Want::Best.both(Want::Best), Want::Best);
    assert_eq!(Want::Best.both(top(2.0)), top(2.0));
    assert_eq!(top(2.0).both(top(2.0)), top(2.0));
    assert_eq!(top(2.0).both(top(1.0)), Want::Logits);
    assert_eq!(Want::Best.both(Want::Logits), Want::Logits);
}
