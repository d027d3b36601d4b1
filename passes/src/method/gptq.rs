//! GPTQ: columns are rounded one after the other, and later ones make up for the errors of earlier ones.
//!
//! Frantar et al. 2022, arXiv 2210.17323; computed as LDLQ ([`super::cholesky`]). Scales of a group are of least
//! squares for the columns as they are when it is their turn, weighted by the parts of errors that later columns cannot make
//! up for. Where products of inputs are not known, rows are coded by least squares.

use super::{Feedback, Job, LEAST_SQUARES, Method, Needs};
use llmcc_ir::quant::CodedRow;
use llmcc_ir::quant::fit::{Fit, Unit};

pub(super) const GPTQ: Method = Method {
    name: "gptq",
    about: "columns one after the other, each making up for the rounding errors of those before it",
    source: "Frantar et al. 2022, arXiv 2210.17323",
    needs: Needs::Products,
    rows,
};

/// Rows that are coded together: a column of them is a vector.
const LANES: usize = 16;

fn rows(job: &Job<'_>) -> Vec<CodedRow> {
    let Some(feedback) = &job.inputs.feedback else { return (LEAST_SQUARES.rows)(job) };
    let coded = |x: &[f32]| Lanes { fit: job.fit, x, k: job.k, errors: Vec::with_capacity(job.k) }.code(feedback);
    job.x.chunks(LANES * job.k).flat_map(coded).collect()
}

/// Up to 16 rows, being coded.
struct Lanes<'a> {
    fit: &'a Fit,
    /// The rows.
    x: &'a [f32],
    k: usize,
    /// `w − ŵ` of the columns so far.
    errors: Vec<[f32; LANES]>,
}

impl Lanes<'_> {
    fn code(mut self, feedback: &Feedback) -> Vec<CodedRow> {
        let mut rows: Vec<CodedRow> =
            self.x.chunks(self.k).map(|_| CodedRow::new(self.fit.encoding(), self.k)).collect();
        let columns = self.fit.unit_columns(self.k);
        for (at, from) in (0..self.k).step_by(columns.max(1)).enumerate() {
            let to = (from + columns).min(self.k);
            // The columns with the errors of all units before made up for.
            let mut targets: Vec<[f32; LANES]> = (from..to).map(|c| self.column(c)).collect();
            for (c, target) in (from..to).zip(&mut targets) {
                add(target, &self.errors[..from], feedback.of(c));
            }
            let expected = self.expected(from, &targets, feedback);
            let mut units = self.units(&expected, &feedback.importance()[from..to], rows.len());
            self.round(from, &targets, &mut units, feedback);
            rows.iter_mut().zip(&units).for_each(|(row, unit)| self.fit.store(unit, row, at));
        }
        rows
    }

    /// The columns of a unit as they will be, should each be stored as it is wanted when it is its turn.
    fn expected(&self, from: usize, targets: &[[f32; LANES]], feedback: &Feedback) -> Vec<[f32; LANES]> {
        let (mut out, mut errors): (Vec<[f32; LANES]>, Vec<[f32; LANES]>) = (vec![], vec![]);
        for (i, start) in targets.iter().enumerate() {
            let mut target = *start;
            add(&mut target, &errors, &feedback.of(from + i)[from..]);
            let mut error = self.column(from + i);
            error.iter_mut().zip(&target).for_each(|(e, t)| *e -= t);
            errors.push(error);
            out.push(target);
        }
        out
    }

    /// Column `c` of the rows.
    fn column(&self, c: usize) -> [f32; LANES] {
        let mut out = [0f32; LANES];
        out.iter_mut().zip(self.x.chunks(self.k)).for_each(|(v, row)| *v = row[c]);
        out
    }

    /// The scales of each row's unit.
    fn units(&self, targets: &[[f32; LANES]], importance: &[f32], rows: usize) -> Vec<Unit> {
        let of_row = |r: usize| {
            let x: Vec<f32> = targets.iter().map(|t| t[r]).collect();
            self.fit.unit(&x, importance)
        };
        (0..rows).map(of_row).collect()
    }

    /// Rounds the columns of a unit, with its scales.
    fn round(&mut self, from: usize, targets: &[[f32; LANES]], units: &mut [Unit], feedback: &Feedback) {
        let group = self.fit.encoding().group().unwrap_or(targets.len()).max(1);
        let scales: Vec<Vec<(f32, f32)>> = units.iter().map(|u| self.fit.effective(u)).collect();
        for (i, start) in targets.iter().enumerate() {
            let mut target = *start;
            add(&mut target, &self.errors[from..], &feedback.of(from + i)[from..]);
            let mut error = self.column(from + i);
            for (r, unit) in units.iter_mut().enumerate() {
                let (scale, min) = scales[r][i / group];
                let code = self.fit.nearest(target[r], (scale, min));
                unit.codes[i] = code;
                error[r] -= scale.mul_add(self.fit.encoding().number(code), min);
            }
            self.errors.push(error);
        }
    }
}

/// Adds errors of columns, each times its factor.
fn add(to: &mut [f32; LANES], errors: &[[f32; LANES]], factors: &[f32]) {
    for (e, f) in errors.iter().zip(factors) {
        to.iter_mut().zip(e).for_each(|(t, e)| *t += e * f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Prepared;
    use llmcc_ir::quant::Format;

    fn random(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    /// Means of products of inputs whose columns have much in common.
    fn hessian(k: usize) -> Vec<f64> {
        let (mixing, noise) = (random(5, k * 8), random(6, 4 * k * (8 + k)));
        let mut h = vec![0f64; k * k];
        for sample in noise.chunks_exact(8 + k) {
            let of_column = |c: usize| {
                let common: f32 = (0..8).map(|i| mixing[c * 8 + i] * sample[i]).sum();
                f64::from(common + 0.1 * sample[8 + c])
            };
            let x: Vec<f64> = (0..k).map(of_column).collect();
            (0..k).for_each(|i| (0..k).for_each(|j| h[i * k + j] += x[i] * x[j] / (4 * k) as f64));
        }
        h
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

    /// GPTQ as it was published: the inverse of the Hessian, from which columns that are done are taken out one by one.
    fn published(fit: &Fit, w: &[f32], h: &[f64]) -> CodedRow {
        let k = w.len();
        let mut damped = h.to_vec();
        let more = 0.01 * (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        (0..k).for_each(|i| damped[i * k + i] += more);
        let mut inverse = inverse(&damped, k);
        let mut w: Vec<f64> = w.iter().map(|v| f64::from(*v)).collect();
        let mut row = CodedRow::new(fit.encoding(), k);
        let columns = fit.unit_columns(k);
        let mut unit = Unit::default();
        for i in 0..k {
            if i % columns == 0 {
                let to = (i + columns).min(k);
                let x: Vec<f32> = w[i..to].iter().map(|v| *v as f32).collect();
                // Importance of a column once all before it are done: 1 / (H⁻¹)ᵢᵢ of what is left then.
                unit = fit.unit(&x, &conditional(&inverse, k, i, to));
            }
            let scales = fit.effective(&unit);
            let (scale, min) = scales[i % columns / fit.encoding().group().unwrap_or(columns)];
            let code = fit.nearest(w[i] as f32, (scale, min));
            unit.codes[i % columns] = code;
            let error = (w[i] - f64::from(scale.mul_add(fit.encoding().number(code), min))) / inverse[i * k + i];
            (i..k).for_each(|j| w[j] -= error * inverse[i * k + j]);
            take_out(&mut inverse, k, i);
            if (i + 1) % columns == 0 || i + 1 == k {
                fit.store(&unit, &mut row, i / columns);
            }
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

    fn conditional(inverse: &[f64], k: usize, from: usize, to: usize) -> Vec<f32> {
        let mut left = inverse.to_vec();
        let of = |i: usize| {
            let own = 1.0 / left[i * k + i];
            take_out(&mut left, k, i);
            own as f32
        };
        (from..to).map(of).collect()
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
            let importance = (0..k).map(|i| h[i * k + i] as f32).collect();
            let inputs = Prepared { importance, feedback: Some(feedback) };
            let job = Job { fit: &fit, x: &x, k, inputs: &inputs };
            let (ours, plain) = (rows(&job), (LEAST_SQUARES.rows)(&job));
            let theirs: Vec<CodedRow> = x.chunks_exact(k).map(|w| published(&fit, w, &h)).collect();
            let [ours, plain, theirs] = [&ours, &plain, &theirs].map(|rows| output_error(&fit, rows, &x, &h));
            assert!((ours / theirs - 1.0).abs() < 0.01, "{name}: {ours}, as published {theirs}");
            assert!(ours < 0.7 * plain, "{name}: {ours}, least squares {plain}");
        }
    }

    /// A row is coded alike in any company.
    #[test]
    fn rows_do_not_depend_on_each_other() {
        let (k, fit) = (64, Fit::of(Format::parse("w4g32").unwrap()).unwrap());
        let x = random(2, 37 * k);
        let inputs = Prepared { importance: vec![1.0; k], feedback: Some(Feedback::new(hessian(k))) };
        let all = rows(&Job { fit: &fit, x: &x, k, inputs: &inputs });
        for (r, own) in x.chunks_exact(k).enumerate() {
            assert_eq!(rows(&Job { fit: &fit, x: own, k, inputs: &inputs }), [all[r].clone()]);
        }
    }
}
