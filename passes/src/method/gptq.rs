//! GPTQ: columns are rounded one after the other, and later ones make up for the errors of earlier ones.
//!
//! Frantar et al. 2022, arXiv 2210.17323; computed as LDLQ ([`super::cholesky`]). Columns are taken by descending mean
//! square ("act-order"), with the scales of all groups found before, by least squares ("static groups"). Codes of a
//! trellis are found by paths ([`super::path`]). Where products of inputs are not known, rows are coded by least
//! squares.

use super::cholesky::Feedback;
use super::job::{Job, Method, Needs, Prepared};
use super::lanes::{LANES, Lanes, add};
use super::path;
use super::plain::LEAST_SQUARES;
use llmcc_ir::quant::CodedRow;
use llmcc_ir::quant::fit::{Fit, Unit};

pub(super) const GPTQ: Method = Method {
    name: "gptq",
    about: "columns one after the other, each making up for the rounding errors of those before it",
    source: "Frantar et al. 2022, arXiv 2210.17323",
    needs: Needs::Products,
    moves: None,
    prepare: Some(|fit, products, prepared| Prepared { feedback: Some(feedback(fit, products)), ..prepared }),
    rows,
};

fn rows(job: &Job<'_>) -> Vec<CodedRow> {
    let Some(feedback) = &job.inputs.feedback else { return (LEAST_SQUARES.rows)(job) };
    let size = LANES * job.k;
    let coded = |(at, x): (usize, &[f32])| {
        let lanes = Lanes { x, k: job.k, errors: Vec::with_capacity(job.k) };
        let zeros = job.zeros.map(|zeros| &zeros[at * size..][..x.len()]);
        code(lanes, feedback, job, zeros)
    };
    job.x.chunks(size).enumerate().flat_map(coded).collect()
}

/// The feedback by means of products of inputs, for columns in the order in which codes of a format are found.
pub(super) fn feedback(fit: &Fit, hessian: Vec<f64>) -> Feedback {
    match fit.search() {
        Some(search) => {
            let order = path::columns(search, hessian.len().isqrt());
            Feedback::in_order(hessian, order)
        }
        None => Feedback::new(hessian),
    }
}

/// Codes rows by the errors of the columns before. Where there are `zeros`, these stay.
fn code(mut lanes: Lanes<'_>, feedback: &Feedback, job: &Job<'_>, zeros: Option<&[bool]>) -> Vec<CodedRow> {
    let (fit, importance) = (job.fit, &job.inputs.importance);
    let mut rows: Vec<Scaled> = lanes.x.chunks(lanes.k).map(|x| Scaled::new(fit, x, importance)).collect();
    if let Some(search) = fit.search() {
        let mut coded: Vec<CodedRow> = rows.into_iter().map(|row| row.coded).collect();
        path::code(lanes, feedback, (fit, search), &mut coded);
        return coded;
    }
    let group = fit.encoding().group().unwrap_or(lanes.k).max(1);
    for (k, column) in feedback.order().iter().enumerate() {
        let mut error = lanes.column(*column);
        let mut target = error;
        add(&mut target, &lanes.errors, feedback.of(k));
        for (r, row) in rows.iter_mut().enumerate() {
            let (scale, min) = row.factors[column / group];
            let code = match zeros {
                Some(zeros) if zeros[r * lanes.k + column] => fit.encoding().zero_code(),
                _ => fit.nearest(target[r], (scale, min)),
            };
            row.coded.codes[*column] = code;
            error[r] -= scale.mul_add(fit.encoding().number(code), min);
        }
        lanes.errors.push(error);
    }
    rows.into_iter().map(|row| row.coded).collect()
}

/// A row whose scales are found.
struct Scaled {
    coded: CodedRow,
    /// By group, as values are computed with them.
    factors: Vec<(f32, f32)>,
}

impl Scaled {
    fn new(fit: &Fit, x: &[f32], importance: &[f32]) -> Scaled {
        let units: Vec<Unit> = fit.units(x, importance).collect();
        let factors = units.iter().flat_map(|unit| fit.effective(unit)).collect();
        Scaled { coded: fit.joined(x.len(), units), factors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::testing::{self, normal, random};
    use llmcc_ir::quant::Format;

    fn hessian(k: usize) -> Vec<f64> {
        testing::hessian(k, 0.1)
    }

    fn output_error(fit: &Fit, coded: &[CodedRow], x: &[f32], h: &[f64]) -> f64 {
        let k = h.len().isqrt();
        let (mut back, mut sum) = (vec![0f32; k], 0f64);
        for (row, w) in coded.iter().zip(x.chunks_exact(k)) {
            row.decode(fit.encoding(), &mut back);
            let e: Vec<f64> = w.iter().zip(&back).map(|(w, q)| f64::from(q - w)).collect();
            sum += (0..k).map(|i| (0..k).map(|j| e[i] * h[i * k + j] * e[j]).sum::<f64>()).sum::<f64>();
        }
        sum
    }

    /// GPTQ as it was published, with act-order and static groups: the inverse of the Hessian, from which columns that
    /// are done are taken out one by one.
    fn published(fit: &Fit, x: &[f32], h: &[f64], importance: &[f32]) -> CodedRow {
        let k = x.len();
        let mut damped = h.to_vec();
        let more = 0.01 * (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        (0..k).for_each(|i| damped[i * k + i] += more);
        let mut inverse = inverse(&damped, k);
        let mut w: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let Scaled { coded: mut row, factors } = Scaled::new(fit, x, importance);
        let mut left: Vec<usize> = (0..k).collect();
        while !left.is_empty() {
            let best = (0..left.len()).max_by(|a, b| h[left[*a] * (k + 1)].total_cmp(&h[left[*b] * (k + 1)])).unwrap();
            let i = left.remove(best);
            let (scale, min) = factors[i / fit.encoding().group().unwrap_or(k)];
            let code = fit.nearest(w[i] as f32, (scale, min));
            row.codes[i] = code;
            let error = (w[i] - f64::from(scale.mul_add(fit.encoding().number(code), min))) / inverse[i * k + i];
            left.iter().for_each(|j| w[*j] -= error * inverse[i * k + j]);
            take_out(&mut inverse, k, i);
        }
        row
    }

    /// Removes row and column `i` from the inverse, by elimination.
    fn take_out(inverse: &mut [f64], k: usize, i: usize) {
        let pivot = inverse[i * k + i];
        for a in (0..k).filter(|a| *a != i) {
            let f = inverse[a * k + i] / pivot;
            (0..k).for_each(|b| inverse[a * k + b] -= f * inverse[i * k + b]);
        }
        (0..k).for_each(|b| (inverse[i * k + b], inverse[b * k + i]) = (0.0, 0.0));
        inverse[i * k + i] = 1.0;
    }

    /// Gauss and Jordan.
    fn inverse(a: &[f64], k: usize) -> Vec<f64> {
        let mut a = a.to_vec();
        let mut out = vec![0f64; k * k];
        (0..k).for_each(|i| out[i * k + i] = 1.0);
        for i in 0..k {
            let pivot = a[i * k + i];
            (0..k).for_each(|j| (a[i * k + j], out[i * k + j]) = (a[i * k + j] / pivot, out[i * k + j] / pivot));
            for r in (0..k).filter(|r| *r != i) {
                let f = a[r * k + i];
                (0..k).for_each(|j| {
                    a[r * k + j] -= f * a[i * k + j];
                    out[r * k + j] -= f * out[i * k + j];
                });
            }
        }
        out
    }

    #[test]
    fn errors_are_those_of_the_published_algorithm_and_below_least_squares() {
        for (name, k) in [("w4g32", 96), ("w3zg32", 80), ("w2zg32", 64), ("q3k", 300), ("iq4nl", 64), ("ternaryr", 64)]
        {
            let fit = Fit::of(Format::parse(name).unwrap()).unwrap();
            let (x, h) = (random(9, 20 * k), hessian(k));
            let feedback = Feedback::new(h.clone());
            let importance: Vec<f32> = (0..k).map(|i| h[i * k + i] as f32).collect();
            let inputs = Prepared { feedback: Some(feedback), ..Prepared::of(importance) };
            let job = Job::new(&fit, &x, k, &inputs);
            let (ours, plain) = (rows(&job), (LEAST_SQUARES.rows)(&job));
            let theirs: Vec<CodedRow> = x.chunks_exact(k).map(|w| published(&fit, w, &h, &inputs.importance)).collect();
            let [ours, plain, theirs] = [&ours, &plain, &theirs].map(|rows| output_error(&fit, rows, &x, &h));
            assert!((ours / theirs - 1.0).abs() < 0.01, "{name}: {ours}, as published {theirs}");
            assert!(ours < 0.7 * plain, "{name}: {ours}, least squares {plain}");
        }
    }

    /// On a trellis, errors are below those of least squares, and below those of any other format of its bits.
    #[test]
    fn paths_make_up_for_errors() {
        let k = 512;
        let (x, h) = (normal(9, 16 * k), hessian(k));
        let importance: Vec<f32> = (0..k).map(|i| h[i * k + i] as f32).collect();
        let error = |name: &str, method: fn(&Job<'_>) -> Vec<CodedRow>| {
            let fit = Fit::of(Format::parse(name).unwrap()).unwrap();
            let feedback = Some(feedback(&fit, h.clone()));
            let inputs = Prepared { feedback, ..Prepared::of(importance.clone()) };
            output_error(&fit, &method(&Job::new(&fit, &x, k, &inputs)), &x, &h)
        };
        for (trellis, other) in [("t3", "c3"), ("t2", "w2zg128")] {
            let (found, plain, other) = (error(trellis, rows), error(trellis, LEAST_SQUARES.rows), error(other, rows));
            println!("{trellis}: {found}, least squares {plain}, another format {other}");
            assert!(found < 0.75 * plain && found < other, "{trellis}: {found}, {plain}, {other}");
        }
    }

    /// A row is coded alike in any company.
    #[test]
    fn rows_do_not_depend_on_each_other() {
        for (name, k) in [("w4g32", 64), ("t2", 40)] {
            let fit = Fit::of(Format::parse(name).unwrap()).unwrap();
            let x = random(2, 37 * k);
            let inputs = Prepared { feedback: Some(feedback(&fit, hessian(k))), ..Prepared::equal(k) };
            let all = rows(&Job::new(&fit, &x, k, &inputs));
            for (r, own) in x.chunks_exact(k).enumerate() {
                assert_eq!(rows(&Job::new(&fit, own, k, &inputs)), [all[r].clone()]);
            }
        }
    }
}
