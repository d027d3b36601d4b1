//! GPTQ for trellis codes: paths through the states, each making up for its own rounding errors.
//!
//! A code of a trellis has a part in the numbers of several columns, so that columns can't be rounded one by one.
//! Columns are taken in the order of the trellis. The paths of the least error are kept, one for a state ([`width`] of
//! them; a beam search, or M-algorithm: Anderson and Mohan 1984). Each goes on from the targets of LDLQ
//! ([`super::cholesky`]) by its own errors. When [`DEPTH`] columns after it are rounded, the best path's code stays,
//! and paths with another one end.
//!
//! QTIP (Tseng et al. 2024, arXiv 2406.11235) searches all states instead, over blocks of 16 columns of 16 rows in
//! which no column makes up for another. With inputs that have much in common, that costs more than a narrow beam does;
//! with others a row keeps the codes of all states' search, where its output's error by them is less.

use super::cholesky::Feedback;
use super::lanes::{LANES, Lanes, add};
use llmcc_ir::quant::CodedRow;
use llmcc_ir::quant::fit::Fit;
use llmcc_ir::quant::trellis::{STATES, Search, order};
use std::cmp::Ordering;

/// Paths that are kept, by the bits of a code: with fewer bits, a code shows later how good it is. At most 256.
const fn width(bits: u32) -> usize {
    if bits == 2 { 128 } else { 64 }
}

/// Columns after which a code stays.
const DEPTH: usize = 32;
/// Partial sums of a loop: vector code on every target, and the same sums.
const SUMS: usize = 8;

/// The columns of a row of `k` in the order of the trellis.
pub(super) fn columns(search: &Search, k: usize) -> Vec<usize> {
    (0..k).step_by(search.columns()).flat_map(|first| of_group(search, k, first)).flatten().collect()
}

/// The columns of the group from column `first` on, in the order of the trellis; `None`: padding.
fn of_group(search: &Search, k: usize, first: usize) -> impl Iterator<Item = Option<usize>> {
    let count = search.columns().min(k - first);
    order(count).map(move |c| (c < count).then_some(first + c))
}

/// Codes rows whose scales are found. A row keeps the codes that it has where these are better.
pub(super) fn code(lanes: Lanes<'_>, feedback: &Feedback, (fit, search): (&Fit, &Search), rows: &mut [CodedRow]) {
    let before = error(&lanes, feedback, fit, rows);
    let mut found = rows.to_vec();
    let after = search_rows(lanes, feedback, search, &mut found);
    for ((row, found), (after, before)) in rows.iter_mut().zip(found).zip(after.iter().zip(before)) {
        if *after < before {
            *row = found;
        }
    }
}

/// The squared error of the outputs of coded rows.
fn error(lanes: &Lanes<'_>, feedback: &Feedback, fit: &Fit, rows: &[CodedRow]) -> [f32; LANES] {
    let mut values = vec![0f32; rows.len() * lanes.k];
    let each = rows.iter().zip(values.chunks_mut(lanes.k));
    each.for_each(|(row, out)| row.decode(fit.encoding(), out));
    let coded = Lanes { x: &values, k: lanes.k, errors: vec![] };
    let (mut sums, mut errors) = ([0f32; LANES], Vec::with_capacity(lanes.k));
    for (at, column) in feedback.order().iter().enumerate() {
        let (mut error, coded) = (lanes.column(*column), coded.column(*column));
        error.iter_mut().zip(coded).for_each(|(w, q)| *w -= q);
        let mut rest = error;
        add(&mut rest, &errors, feedback.of(at));
        (0..LANES).for_each(|r| sums[r] += feedback.weight(at) * rest[r] * rest[r]);
        errors.push(error);
    }
    sums
}

/// Codes rows by the best paths. Returns the squared errors of their outputs.
fn search_rows(lanes: Lanes<'_>, feedback: &Feedback, search: &Search, rows: &mut [CodedRow]) -> [f32; LANES] {
    match search.trellis().bits {
        2 => wide::<4>(lanes, feedback, search, rows),
        _ => wide::<8>(lanes, feedback, search, rows),
    }
}

/// The search by `N` codes for a column, with vectors of 8 numbers where the processor has them: the same sums.
fn wide<const N: usize>(lanes: Lanes<'_>, feedback: &Feedback, search: &Search, rows: &mut [CodedRow]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<const N: usize>(
            lanes: Lanes<'_>,
            feedback: &Feedback,
            search: &Search,
            rows: &mut [CodedRow],
        ) -> [f32; LANES] {
            groups::<N>(lanes, feedback, search, rows)
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has this feature.
            return unsafe { avx2::<N>(lanes, feedback, search, rows) };
        }
    }
    groups::<N>(lanes, feedback, search, rows)
}

/// See [`search_rows`]: one group after the other.
#[inline(always)]
fn groups<const N: usize>(
    mut lanes: Lanes<'_>,
    feedback: &Feedback,
    search: &Search,
    rows: &mut [CodedRow],
) -> [f32; LANES] {
    let mut scratch = Scratch::<N>::new();
    let mut sums = [0f32; LANES];
    for (group, first) in (0..lanes.k).step_by(search.columns()).enumerate() {
        let levels: Vec<Vec<f32>> = rows.iter().map(|row| search.scaled(row.factors[group].0)).collect();
        let mut beams = vec![Beam::start(); rows.len()];
        // Columns of the group so far, without padding.
        let mut columns: Vec<usize> = vec![];
        for column in of_group(search, lanes.k, first) {
            let Some(column) = column else {
                beams.iter_mut().for_each(|beam| beam.pad(search));
                continue;
            };
            if let Some(stays) = columns.len().checked_sub(DEPTH) {
                lanes.errors.push(settle(&mut beams, rows, stays, columns[stays]));
            }
            let at = first + columns.len();
            let (before, within) = feedback.of(at).split_at(lanes.errors.len());
            let mut target = lanes.column(column);
            let own = target;
            add(&mut target, &lanes.errors, before);
            let step = Step {
                place: columns.len() % DEPTH,
                factors: ring(within, columns.len()),
                weight: feedback.weight(at),
            };
            for (r, beam) in beams.iter_mut().enumerate() {
                beam.extend::<N>(&step, (own[r], target[r]), levels[r].as_chunks().0, &mut scratch);
            }
            columns.push(column);
        }
        let left = columns.len().saturating_sub(DEPTH);
        for (n, column) in columns.iter().enumerate().skip(left) {
            lanes.errors.push(settle(&mut beams, rows, n, *column));
        }
        beams.iter().zip(&mut sums).for_each(|(beam, sum)| *sum += beam.cost());
    }
    sums
}

/// Writes the codes of a column, the `n`-th one of its group, that stay. Returns their errors.
#[inline(always)]
fn settle(beams: &mut [Beam], rows: &mut [CodedRow], n: usize, column: usize) -> [f32; LANES] {
    let mut errors = [0f32; LANES];
    for ((beam, row), error) in beams.iter_mut().zip(rows).zip(&mut errors) {
        (row.codes[column], *error) = beam.settle(n % DEPTH);
    }
    errors
}

/// The factors of the columns before the `n`-th one of a group whose codes may change, by their places in a ring.
fn ring(factors: &[f32], n: usize) -> [f32; DEPTH] {
    let mut out = [0f32; DEPTH];
    let first = n - factors.len();
    factors.iter().enumerate().for_each(|(i, f)| out[(first + i) % DEPTH] = *f);
    out
}

/// A column, for all rows.
struct Step {
    /// Its place in a ring.
    place: usize,
    factors: [f32; DEPTH],
    weight: f32,
}

/// A path: its last codes and their errors, in a ring.
#[derive(Clone, Copy, Debug)]
struct Path {
    state: usize,
    cost: f32,
    errors: [f32; DEPTH],
    codes: [u8; DEPTH],
}

/// The paths of a row.
#[derive(Clone, Debug)]
struct Beam {
    paths: Vec<Path>,
}

/// Memory of a step.
struct Scratch<const N: usize> {
    /// For the lower bits of each state, one more than the place of its ways; 0 if there are none.
    places: Vec<u16>,
    ways: Ways<N>,
    paths: Vec<Path>,
}

impl<const N: usize> Scratch<N> {
    fn new() -> Scratch<N> {
        let ways = Ways { costs: vec![], from: vec![], lower: vec![] };
        Scratch { places: vec![0; STATES / N], ways, paths: vec![] }
    }
}

impl Beam {
    /// The only path before the first column.
    fn start() -> Beam {
        Beam { paths: vec![Path { state: 0, cost: 0.0, errors: [0.0; DEPTH], codes: [0; DEPTH] }] }
    }

    /// The error of the best path.
    fn cost(&self) -> f32 {
        self.paths.iter().map(|path| path.cost).fold(f32::INFINITY, f32::min)
    }

    /// Goes on by padding.
    fn pad(&mut self, search: &Search) {
        self.paths.iter_mut().for_each(|path| path.state = search.trellis().next(path.state, 0));
    }

    /// Goes on by a column, `own` being its number, `target` that with the errors of columns whose codes stay.
    #[inline(always)]
    fn extend<const N: usize>(
        &mut self,
        step: &Step,
        (own, target): (f32, f32),
        levels: &[[f32; N]],
        scratch: &mut Scratch<N>,
    ) {
        let Scratch { places, ways, paths } = scratch;
        ways.fill(&self.paths, places, step, target, levels);
        let (most, mut equal) = ways.most(width(N.ilog2()));
        paths.clear();
        for (at, costs) in ways.costs.iter().enumerate() {
            let mut some = 0u32;
            (0..N).for_each(|code| some |= u32::from(costs[code] <= most) << code);
            while some != 0 {
                let code = some.trailing_zeros() as usize;
                some &= some - 1;
                if costs[code] == most {
                    if equal == 0 {
                        continue;
                    }
                    equal -= 1;
                }
                let lower = ways.lower[at] as usize;
                let mut path = self.paths[ways.from[at][code] as usize];
                (path.state, path.cost) = (lower * N + code, costs[code]);
                (path.errors[step.place], path.codes[step.place]) = (own - levels[lower][code], code as u8);
                paths.push(path);
            }
        }
        std::mem::swap(&mut self.paths, paths);
    }

    /// The code and the error in a place of the ring of the best path; paths with another code end.
    #[inline(always)]
    fn settle(&mut self, place: usize) -> (u8, f32) {
        let best = self.paths.iter().min_by(|a, b| a.cost.total_cmp(&b.cost).then(a.state.cmp(&b.state)));
        let Some((code, error)) = best.map(|path| (path.codes[place], path.errors[place])) else { return (0, 0.0) };
        if self.paths.iter().any(|path| path.codes[place] != code) {
            self.paths.retain(|path| path.codes[place] == code);
        }
        self.paths.iter_mut().for_each(|path| path.errors[place] = 0.0);
        (code, error)
    }
}

/// The best ways to the states after a column. States that share their lower bits lead to the same `N` states.
struct Ways<const N: usize> {
    /// By code.
    costs: Vec<[f32; N]>,
    /// The paths that lead there.
    from: Vec<[u8; N]>,
    /// The lower bits.
    lower: Vec<u16>,
}

impl<const N: usize> Ways<N> {
    /// The ways of paths to the values nearest to their targets. All `places` are 0, before and after.
    #[inline(always)]
    fn fill(&mut self, paths: &[Path], places: &mut [u16], step: &Step, target: f32, levels: &[[f32; N]]) {
        self.costs.clear();
        self.from.clear();
        self.lower.clear();
        for (from, path) in paths.iter().enumerate() {
            let target = target + dot(&path.errors, &step.factors);
            let lower = path.state % (STATES / N);
            let mut costs = [0f32; N];
            for code in 0..N {
                let d = target - levels[lower][code];
                costs[code] = path.cost + step.weight * d * d;
            }
            match (places[lower] as usize).checked_sub(1) {
                None => {
                    self.costs.push(costs);
                    self.from.push([from as u8; N]);
                    self.lower.push(lower as u16);
                    places[lower] = self.costs.len() as u16;
                }
                Some(at) => {
                    let (known, of) = (&mut self.costs[at], &mut self.from[at]);
                    for code in 0..N {
                        let less = costs[code] < known[code];
                        known[code] = if less { costs[code] } else { known[code] };
                        of[code] = if less { from as u8 } else { of[code] };
                    }
                }
            }
        }
        self.lower.iter().for_each(|lower| places[*lower as usize] = 0);
    }

    /// The largest of the `width` least costs, and how many that equal it are among these.
    #[inline(always)]
    fn most(&self, width: usize) -> (f32, usize) {
        let all = self.costs.as_flattened();
        if all.len() <= width {
            return (f32::INFINITY, usize::MAX);
        }
        // No cost is negative: their bits have the same order. It is in `low..=high`.
        let (mut low, mut high) = (u32::MAX, 0);
        all.iter().for_each(|cost| (low, high) = (low.min(cost.to_bits()), high.max(cost.to_bits())));
        while low < high {
            let middle = low + (high - low) / 2;
            let count: u32 = all.iter().map(|cost| u32::from(cost.to_bits() <= middle)).sum();
            match (count as usize).cmp(&width) {
                Ordering::Equal => return (f32::from_bits(middle), usize::MAX),
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
            }
        }
        let less = all.iter().filter(|cost| cost.to_bits() < low).count();
        (f32::from_bits(low), width - less)
    }
}

/// `Σ aᵢ·bᵢ`.
#[inline(always)]
fn dot(a: &[f32; DEPTH], b: &[f32; DEPTH]) -> f32 {
    let mut sums = [0f32; SUMS];
    let (a, b) = (a.as_chunks::<SUMS>().0, b.as_chunks::<SUMS>().0);
    for (a, b) in a.iter().zip(b) {
        (0..SUMS).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum()
}
