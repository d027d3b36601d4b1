//! Discrete Fourier transforms of any length, by its prime factors (Cooley and Tukey, 1965).

use std::f64::consts::TAU;

/// A complex number.
pub(super) type Complex = (f64, f64);

/// Roots of unity of one length.
pub(super) struct Fourier {
    /// `e^(-2πi·k/n)`.
    roots: Vec<Complex>,
    scratch: Vec<Complex>,
}

impl Fourier {
    /// Transforms of `n` numbers.
    pub(super) fn new(n: usize) -> Fourier {
        let root = |k: usize| {
            let angle = TAU * k as f64 / n as f64;
            (libm::cos(angle), -libm::sin(angle))
        };
        Fourier { roots: (0..n).map(root).collect(), scratch: vec![(0.0, 0.0); n] }
    }

    /// Replaces `x`, as many numbers as there are roots, by its transform `X_k = Σ x_j·e^(-2πi·jk/n)`.
    pub(super) fn transform(&mut self, x: &mut [Complex]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.part(x, &mut scratch, 1);
        self.scratch = scratch;
    }

    /// The transform of a part of the input, whose roots are each `step`th.
    fn part(&self, x: &mut [Complex], scratch: &mut [Complex], step: usize) {
        let n = x.len();
        if n < 2 {
            return;
        }
        let p = smallest_factor(n);
        let m = n / p;
        for (i, v) in x.iter().enumerate() {
            scratch[i % p * m + i / p] = *v;
        }
        for (part, scratch) in scratch.chunks_exact_mut(m).zip(x.chunks_exact_mut(m)) {
            self.part(part, scratch, step * p);
        }
        for k in 0..n {
            let at = |r: usize| times(self.roots[r * k % n * step], scratch[r * m + k % m]);
            x[k] = (0..p).map(at).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        }
    }
}

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// The smallest prime factor of `n`, which is at least 2.
fn smallest_factor(n: usize) -> usize {
    (2..).take_while(|p| p * p <= n).find(|p| n.is_multiple_of(*p)).unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_sums_over_all_inputs() {
        for n in [1, 2, 5, 7, 12, 25, 400] {
            let x: Vec<Complex> = (0..n).map(|i| ((i * i % 11) as f64 - 5.0, (i * 7 % 5) as f64)).collect();
            let mut got = x.clone();
            Fourier::new(n).transform(&mut got);
            for (k, got) in got.iter().enumerate() {
                let term = |(j, v): (usize, &Complex)| {
                    let angle = -TAU * (j * k % n) as f64 / n as f64;
                    times((libm::cos(angle), libm::sin(angle)), *v)
                };
                let want = x.iter().enumerate().map(term).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
                assert!((got.0 - want.0).hypot(got.1 - want.1) < 1e-11 * n as f64, "{n}, {k}: {got:?} {want:?}");
            }
        }
    }
}
