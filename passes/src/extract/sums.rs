//! Sums of functions of few variables, for all values of the variables.
//!
//! All functions have their variables in the same order, and all read the last one. Sums are computed by blocks: for
//! all values of the last variables at a time. Most variables have few values, so that a block has several of them.

use rayon::prelude::*;

/// A function: its variables, the last of which changes fastest, and its values.
pub(super) type Part<'a> = (&'a [usize], &'a [f64]);

/// Sums of a block at least, where there are as many.
const BLOCK: usize = 256;
/// Sums that one thread computes at a time.
const SHARE: usize = 1 << 15;

/// Functions to be added up.
pub(super) struct Sums<'a> {
    /// The variables but for the last one, and how many values they have.
    scope: Vec<usize>,
    domains: Vec<usize>,
    /// Values of the last variable.
    own: usize,
    /// Variables of the scope that are the same in a block.
    outer: usize,
    /// By function: its values...
    costs: Vec<&'a [f64]>,
    /// ...and for each variable of the scope the distance of values that differ by one in it, 0 where the function does
    /// not read it.
    strides: Vec<Vec<usize>>,
}

/// Where a function has its values for a block, from the first one on.
pub(super) enum Offsets {
    /// Beside each other.
    Contiguous,
    /// At these distances.
    At(Vec<usize>),
}

impl<'a> Sums<'a> {
    /// The sum of functions of the variables in `scope`, which have so many values; all read the last one.
    pub(super) fn new(domains: &[usize], mut scope: Vec<usize>, parts: Vec<Part<'a>>) -> Sums<'a> {
        let own = scope.pop().map_or(1, |v| domains[v]);
        let after = |of: &[usize]| of.iter().map(|v| domains[*v]).product();
        let stride = |of: &[usize], v: &usize| of.iter().position(|w| w == v).map_or(0, |at| after(&of[at + 1..]));
        let strides = scope.iter().map(|v| parts.iter().map(|(of, _)| stride(of, v)).collect()).collect();
        let domains: Vec<usize> = scope.iter().map(|v| domains[*v]).collect();
        let (mut outer, mut block) = (scope.len(), own);
        while outer > 0 && block < BLOCK {
            outer -= 1;
            block *= domains[outer];
        }
        Sums { scope, domains, own, outer, costs: parts.into_iter().map(|(_, costs)| costs).collect(), strides }
    }

    /// Values of the last variable.
    pub(super) fn values(&self) -> std::ops::Range<usize> {
        0..self.own
    }

    /// The sum where the functions' entries are `at` for the other variables, and the last one is `x`.
    pub(super) fn of(&self, at: &[usize], x: usize) -> f64 {
        self.costs.iter().zip(at).map(|(costs, at)| costs[at + x]).sum()
    }

    /// The value of one function.
    pub(super) fn one(&self, function: usize, entry: usize) -> f64 {
        self.costs[function][entry]
    }

    /// Entries of the functions where variables have these values, the last one being 0.
    pub(super) fn entries(&self, values: &[usize]) -> Vec<usize> {
        let mut at = vec![0; self.costs.len()];
        for (v, strides) in self.scope.iter().zip(&self.strides) {
            at.iter_mut().zip(strides).for_each(|(at, stride)| *at += stride * values[*v]);
        }
        at
    }

    /// Visits all values of the variables but for the last one: their number, and the functions' entries.
    pub(super) fn visit(&self, mut each: impl FnMut(usize, &[usize])) {
        let mut places = Places::new(self, self.domains.len(), 0);
        for number in 0..self.domains.iter().product() {
            each(number, &places.at);
            places.advance();
        }
    }

    /// The least sum over the last variable, for all values of the others.
    pub(super) fn least(&self) -> Vec<f64> {
        self.by_blocks(self.rows(), |sums, out| {
            sums.chunks_exact(self.own.max(1)).zip(out).for_each(|(row, out)| *out = least(row));
        })
    }

    /// The sums for all values.
    pub(super) fn all(&self) -> Vec<f64> {
        self.by_blocks(self.block(), |sums, out| out.copy_from_slice(sums))
    }

    /// Visits all blocks: the number of the values of all but the last variable at which it begins, the entries of
    /// other functions of the same variables, and the sums.
    pub(super) fn visit_blocks(&self, others: &Sums<'_>, mut each: impl FnMut(usize, &[usize], &[f64])) {
        let (mut own, mut other) = (Places::new(self, self.outer, 0), Places::new(others, self.outer, 0));
        let offsets = self.offsets();
        let mut sums = vec![0.0; self.block()];
        for block in 0..self.blocks() {
            self.add(&offsets, &own.at, &mut sums);
            each(block * self.rows(), &other.at, &sums);
            own.advance();
            other.advance();
        }
    }

    /// Where each function has its values for a block.
    pub(super) fn offsets(&self) -> Vec<Offsets> {
        let mut places = Places::new(self, self.domains.len(), 0);
        let mut at: Vec<Vec<usize>> = vec![Vec::with_capacity(self.block()); self.costs.len()];
        for _ in 0..self.rows() {
            at.iter_mut().zip(&places.at).for_each(|(of, at)| of.extend(*at..at + self.own));
            places.advance();
        }
        let of_function = |at: Vec<usize>| match at.iter().enumerate().all(|(i, at)| *at == i) {
            true => Offsets::Contiguous,
            false => Offsets::At(at),
        };
        at.into_iter().map(of_function).collect()
    }

    /// Results of `size` numbers for each block, in their order.
    fn by_blocks(&self, size: usize, result: impl Fn(&[f64], &mut [f64]) + Sync) -> Vec<f64> {
        let offsets = self.offsets();
        let share = (SHARE / self.block().max(1)).max(1);
        let mut out = vec![0.0; self.blocks() * size];
        let of_share = |(i, out): (usize, &mut [f64])| {
            let mut places = Places::new(self, self.outer, i * share);
            let mut sums = vec![0.0; self.block()];
            for out in out.chunks_exact_mut(size.max(1)) {
                self.add(&offsets, &places.at, &mut sums);
                result(&sums, out);
                places.advance();
            }
        };
        match self.blocks() <= share {
            true => of_share((0, &mut out)),
            false => out.par_chunks_mut((share * size).max(1)).enumerate().for_each(of_share),
        }
        out
    }

    /// Adds up a block.
    fn add(&self, offsets: &[Offsets], at: &[usize], sums: &mut [f64]) {
        sums.fill(0.0);
        for ((costs, offsets), at) in self.costs.iter().zip(offsets).zip(at) {
            match offsets {
                Offsets::Contiguous => sums.iter_mut().zip(&costs[*at..]).for_each(|(sum, cost)| *sum += cost),
                Offsets::At(places) => {
                    let costs = &costs[*at..];
                    sums.iter_mut().zip(places).for_each(|(sum, place)| *sum += costs[*place]);
                }
            }
        }
    }

    fn blocks(&self) -> usize {
        self.domains[..self.outer].iter().product()
    }

    /// Values, in a block, of all but the last variable.
    fn rows(&self) -> usize {
        self.domains[self.outer..].iter().product()
    }

    /// Sums of a block.
    fn block(&self) -> usize {
        self.rows() * self.own
    }
}

/// The entries of functions while the values of the first `values.len()` variables are counted.
struct Places<'a> {
    sums: &'a Sums<'a>,
    values: Vec<usize>,
    at: Vec<usize>,
}

impl<'a> Places<'a> {
    /// Begins at the values of a number.
    fn new(sums: &'a Sums<'a>, variables: usize, mut number: usize) -> Places<'a> {
        let (mut values, mut at) = (vec![0; variables], vec![0; sums.costs.len()]);
        for (v, value) in values.iter_mut().enumerate().rev() {
            (*value, number) = (number % sums.domains[v], number / sums.domains[v]);
            at.iter_mut().zip(&sums.strides[v]).for_each(|(at, stride)| *at += stride * *value);
        }
        Places { sums, values, at }
    }

    /// The next values; the last variable changes fastest.
    fn advance(&mut self) {
        for (v, value) in self.values.iter_mut().enumerate().rev() {
            let full = *value + 1 == self.sums.domains[v];
            for (at, stride) in self.at.iter_mut().zip(&self.sums.strides[v]) {
                *at = if full { *at - stride * *value } else { *at + stride };
            }
            *value = if full { 0 } else { *value + 1 };
            if !full {
                break;
            }
        }
    }
}

/// The least of some numbers, of which none is NaN.
fn least(of: &[f64]) -> f64 {
    of.iter().fold(f64::INFINITY, |least, x| if *x < least { *x } else { least })
}
