//! Clipping: scales of groups that make the squared errors of products least, by all means of products of inputs.
//!
//! A smaller scale clips the largest weights of a group and rounds the others more finely. Group after group the scale
//! is taken with the least `e·H·eᵀ`, `e` being the errors of the whole row, until nothing changes: the clipping that
//! OmniQuant learns (Shao et al. 2023, arXiv 2308.13137) and AWQ searches (arXiv 2306.00978, by groups of their own),
//! without gradients. Scales of least squares come first, so that no row is worse. Codes are nearest.
//!
//! Formats whose scales are codes themselves, and trellises, are coded by least squares.

use super::job::{Job, Method, Needs, Prepared};
use super::plain::LEAST_SQUARES;
use llmcc_ir::quant::fit::{Fit, Unit};
use llmcc_ir::quant::{CodedRow, ScaleKind, round_f16};

pub(super) const CLIP: Method = Method {
    name: "clip",
    about: "scales of groups that make the squared errors of products least, by all products of inputs",
    source: "Shao et al. 2023, arXiv 2308.13137, by a search of coordinates",
    needs: Needs::Products,
    moves: None,
    prepare: Some(|_, products, prepared| Prepared { products: Some(products), ..prepared }),
    rows,
};

/// Turns through the groups of a row.
const TURNS: usize = 3;
/// Steps on either side of a scale that are tried, of so much of it each.
const STEPS: i32 = 6;
const STEP: f32 = 0.05;

fn rows(job: &Job<'_>) -> Vec<CodedRow> {
    let scales = Scales::of(job.fit);
    let (Some(h), Some(scales)) = (&job.inputs.products, scales) else { return (LEAST_SQUARES.rows)(job) };
    job.x.chunks_exact(job.k).map(|x| row(job, &scales, x, h)).collect()
}

/// How the scale and the minimum of a group are stored.
struct Scales {
    rounded: fn(f32) -> f32,
    /// Half the way from the least to the largest number of a code, where there are minima.
    middle: f32,
}

impl Scales {
    /// `None` where scales are neither f16 nor f32, or are codes.
    fn of(fit: &Fit) -> Option<Scales> {
        let e = fit.encoding();
        let ([Some(scale), None], None) = (e.scales, fit.search()) else { return None };
        let rounded = match scale.kind {
            ScaleKind::F16 => round_f16,
            ScaleKind::F32 => |x| x,
            ScaleKind::Bf16
            | ScaleKind::E8m0
            | ScaleKind::E4m3
            | ScaleKind::Unsigned { .. }
            | ScaleKind::Signed { .. }
            | ScaleKind::Six => return None,
        };
        let middle = if e.has_minimum() { ((1u32 << e.bits()) - 1) as f32 / 2.0 } else { 0.0 };
        Some(Scales { rounded, middle })
    }

    /// Scales around one, and minima that keep the middle of the group's range.
    fn around(&self, (scale, min): (f32, f32)) -> impl Iterator<Item = (f32, f32)> {
        (-STEPS..=STEPS).filter(|step| *step != 0).map(move |step| {
            let other = (self.rounded)(scale * (1.0 + STEP * step as f32));
            let min = if self.middle > 0.0 { (self.rounded)(min + (scale - other) * self.middle) } else { min };
            (other, min)
        })
    }
}

/// A row, its errors, and their products with the moments.
struct Errors {
    e: Vec<f64>,
    he: Vec<f64>,
}

fn row(job: &Job<'_>, scales: &Scales, x: &[f32], h: &[f64]) -> CodedRow {
    let (fit, k) = (job.fit, job.k);
    let mut units: Vec<Unit> = fit.units(x, &job.inputs.importance).collect();
    let columns = units.first().map_or(1, |u| u.codes.len()).max(1);
    let coded = fit.joined(k, units.iter().cloned());
    let mut back = vec![0f32; k];
    coded.decode(fit.encoding(), &mut back);
    let e: Vec<f64> = back.iter().zip(x).map(|(q, w)| f64::from(*q) - f64::from(*w)).collect();
    let he = h.chunks_exact(k).map(|h| dot(h, &e)).collect();
    let mut errors = Errors { e, he };
    for _ in 0..TURNS {
        let mut changed = false;
        for (at, unit) in units.iter_mut().enumerate() {
            let [own] = unit.factors[..] else { continue };
            let x = &x[at * columns..][..unit.codes.len()];
            let tried = scales.around(own).filter(|f| f.0.is_finite() && f.1.is_finite() && f.0 != 0.0);
            let tried = tried.filter_map(|f| Try::new(fit, x, f, at * columns, &errors, h));
            if let Some(best) = tried.reduce(|a, b| if b.gain > a.gain { b } else { a }) {
                errors.add(&best, at * columns, h);
                *unit = best.unit;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    fit.joined(k, units)
}

/// A group with another scale.
struct Try {
    unit: Unit,
    /// By how much the errors of its columns change.
    change: Vec<f64>,
    /// By how much the squared error is less.
    gain: f64,
}

impl Try {
    /// `None` where the squared error is not less.
    fn new(fit: &Fit, x: &[f32], factors: (f32, f32), first: usize, errors: &Errors, h: &[f64]) -> Option<Try> {
        let codes: Vec<u8> = x.iter().map(|w| fit.nearest(*w, factors)).collect();
        let mut change = vec![0f64; x.len()];
        let (scale, min) = (f64::from(factors.0), f64::from(factors.1));
        fit.encoding().decode_each(&codes, |c, n| {
            change[c] = scale * f64::from(n) + min - f64::from(x[c]) - errors.e[first + c];
        });
        let k = errors.e.len();
        let of_column = |(c, d): (usize, &f64)| {
            let h = &h[(first + c) * k + first..][..change.len()];
            d * (2.0 * errors.he[first + c] + dot(h, &change))
        };
        let gain = -change.iter().enumerate().map(of_column).sum::<f64>();
        let unit = Unit { codes, factors: vec![factors], above: (0.0, 0.0) };
        (gain > 0.0).then_some(Try { unit, change, gain })
    }
}

impl Errors {
    fn add(&mut self, to: &Try, first: usize, h: &[f64]) {
        let k = self.e.len();
        self.e[first..].iter_mut().zip(&to.change).for_each(|(e, d)| *e += d);
        // (The moments are symmetric.)
        for (c, d) in to.change.iter().enumerate() {
            let h = &h[(first + c) * k..][..k];
            self.he.iter_mut().zip(h).for_each(|(he, h)| *he += h * d);
        }
    }
}

/// Partial sums of a loop.
const SUMS: usize = 8;

/// `Σ aᵢ·bᵢ`.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0f64; SUMS];
    let ((a, left), (b, right)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    for (a, b) in a.iter().zip(b) {
        (0..SUMS).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum::<f64>() + left.iter().zip(right).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::testing::{hessian, random};
    use llmcc_ir::quant::Format;

    fn squared(fit: &Fit, row: &CodedRow, x: &[f32], h: &[f64]) -> f64 {
        let mut back = vec![0f32; x.len()];
        row.decode(fit.encoding(), &mut back);
        let e: Vec<f64> = back.iter().zip(x).map(|(q, w)| f64::from(*q) - f64::from(*w)).collect();
        h.chunks_exact(x.len()).zip(&e).map(|(h, e2)| e2 * h.iter().zip(&e).map(|(h, e)| h * e).sum::<f64>()).sum()
    }

    /// The same search with the squared error of the whole row for each scale.
    fn plain(fit: &Fit, x: &[f32], importance: &[f32], h: &[f64]) -> CodedRow {
        let scales = Scales::of(fit).unwrap();
        let mut units: Vec<Unit> = fit.units(x, importance).collect();
        let columns = units[0].codes.len();
        for _ in 0..TURNS {
            for at in 0..units.len() {
                let of = |units: &[Unit]| squared(fit, &fit.joined(x.len(), units.iter().cloned()), x, h);
                let (mut best, mut least) = (units.clone(), of(&units));
                for factors in scales.around(units[at].factors[0]) {
                    let mut other = units.clone();
                    let own = x[at * columns..].iter().take(columns);
                    let codes = own.map(|w| fit.nearest(*w, factors)).collect();
                    other[at] = Unit { codes, factors: vec![factors], above: (0.0, 0.0) };
                    let error = of(&other);
                    if error < least {
                        (best, least) = (other, error);
                    }
                }
                units = best;
            }
        }
        fit.joined(x.len(), units)
    }

    #[test]
    fn rows_are_those_of_the_plain_search() {
        for (name, k) in [("w4g32", 96), ("w4ag32", 64), ("w2zg64", 128), ("w8g32", 40)] {
            let fit = Fit::of(Format::parse(name).unwrap()).unwrap();
            let (x, h) = (random(9, 12 * k), hessian(k, 0.3));
            let importance: Vec<f32> = (0..k).map(|i| h[i * k + i] as f32).collect();
            let inputs = Prepared { products: Some(h.clone()), ..Prepared::of(importance.clone()) };
            let found = rows(&Job::new(&fit, &x, k, &inputs));
            let (mut ours, mut first, mut theirs) = (0.0, 0.0, 0.0);
            for (x, row) in x.chunks_exact(k).zip(&found) {
                ours += squared(&fit, row, x, &h);
                theirs += squared(&fit, &plain(&fit, x, &importance, &h), x, &h);
                first += squared(&fit, &fit.row(x, &importance), x, &h);
            }
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{name}: {ours}, plain {theirs}");
            assert!(ours < 0.95 * first, "{name}: {ours}, least squares {first}");
        }
    }
}
