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
use llmcc_ir::quant::trellis::{Search, order};

/// Paths that are kept, by the bits of a code: with fewer bits, a code shows later how good it is.
const fn width(bits: u32) -> usize {
    if bits == 2 { 128 } else { 64 }
}

/// Columns after which a code stays.
const DEPTH: usize = 32;
/// States.
const STATES: usize = 4096;
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
pub(super) fn code(lanes: Lanes<'_>, feedback: &Feedback, search: &Search, rows: &mut [CodedRow]) {
    let before = error(&lanes, feedback, search, rows);
    let mut found = rows.to_vec();
    let after = search_rows(lanes, feedback, search, &mut found);
    for ((row, found), (after, before)) in rows.iter_mut().zip(found).zip(after.iter().zip(before)) {
        if *after < before {
            *row = found;
        }
    }
}

/// The squared error of the outputs of coded rows.
fn error(lanes: &Lanes<'_>, feedback: &Feedback, search: &Search, rows: &[CodedRow]) -> [f32; LANES] {
    let mut levels = vec![[0f32; LANES]; lanes.k];
    for (r, row) in rows.iter().enumerate() {
        for (group, codes) in row.codes.chunks(search.columns()).enumerate() {
            let (first, scale) = (group * search.columns(), row.factors[group].0);
            search.trellis().each_state(codes, |c, state| {
                levels[first + c][r] = f32::from(search.trellis().level(state)) * scale;
            });
        }
    }
    let (mut sums, mut errors) = ([0f32; LANES], Vec::with_capacity(lanes.k));
    for (at, column) in feedback.order().iter().enumerate() {
        let mut error = lanes.column(*column);
        (0..LANES).for_each(|r| error[r] -= levels[*column][r]);
        let mut rest = error;
        add(&mut rest, &errors, feedback.of(at));
        (0..LANES).for_each(|r| sums[r] += feedback.weight(at) * rest[r] * rest[r]);
        errors.push(error);
    }
    sums
}

/// Codes rows by the best paths. Returns the squared errors of their outputs.
fn search_rows(mut lanes: Lanes<'_>, feedback: &Feedback, search: &Search, rows: &mut [CodedRow]) -> [f32; LANES] {
    let mut scratch = Scratch::default();
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
                let mut errors = [0f32; LANES];
                for ((beam, row), error) in beams.iter_mut().zip(&mut *rows).zip(&mut errors) {
                    (row.codes[columns[stays]], *error) = beam.settle(stays % DEPTH);
                }
                lanes.errors.push(errors);
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
                beam.extend(search, &step, (own[r], target[r]), &levels[r], &mut scratch);
            }
            columns.push(column);
        }
        let left = columns.len().saturating_sub(DEPTH);
        for (n, column) in columns.iter().enumerate().skip(left) {
            let mut errors = [0f32; LANES];
            for ((beam, row), error) in beams.iter_mut().zip(&mut *rows).zip(&mut errors) {
                (row.codes[*column], *error) = beam.settle(n % DEPTH);
            }
            lanes.errors.push(errors);
        }
        beams.iter().zip(&mut sums).for_each(|(beam, sum)| *sum += beam.cost());
    }
    sums
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

/// The best way to a state.
#[derive(Clone, Copy, Debug)]
struct Way {
    cost: f32,
    state: usize,
    from: usize,
    code: u8,
    error: f32,
}

/// Memory of a step.
#[derive(Default)]
struct Scratch {
    /// For each state, one more than the place of its way; 0 if there is none.
    places: Vec<u16>,
    ways: Vec<Way>,
    paths: Vec<Path>,
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
    fn extend(
        &mut self,
        search: &Search,
        step: &Step,
        (own, target): (f32, f32),
        levels: &[f32],
        scratch: &mut Scratch,
    ) {
        let Scratch { places, ways, paths } = scratch;
        places.resize(STATES, 0);
        ways.clear();
        for (from, path) in self.paths.iter().enumerate() {
            let target = target + dot(&path.errors, &step.factors);
            for code in 0..1u8 << search.trellis().bits {
                let state = search.trellis().next(path.state, code);
                let d = target - levels[state];
                let way = Way { cost: path.cost + step.weight * d * d, state, from, code, error: own - levels[state] };
                match places[state].checked_sub(1) {
                    None => {
                        ways.push(way);
                        places[state] = ways.len() as u16;
                    }
                    Some(at) if way.cost < ways[at as usize].cost => ways[at as usize] = way,
                    Some(_) => {}
                }
            }
        }
        ways.iter().for_each(|way| places[way.state] = 0);
        let width = width(search.trellis().bits);
        if ways.len() > width {
            ways.select_nth_unstable_by(width - 1, |a, b| a.cost.total_cmp(&b.cost).then(a.state.cmp(&b.state)));
            ways.truncate(width);
            ways.sort_unstable_by_key(|way| way.state);
        }
        paths.clear();
        paths.extend(ways.iter().map(|way| {
            let mut path = self.paths[way.from];
            (path.state, path.cost) = (way.state, way.cost);
            (path.errors[step.place], path.codes[step.place]) = (way.error, way.code);
            path
        }));
        std::mem::swap(&mut self.paths, paths);
    }

    /// The code and the error in a place of the ring of the best path; paths with another code end.
    fn settle(&mut self, place: usize) -> (u8, f32) {
        let best = self.paths.iter().min_by(|a, b| a.cost.total_cmp(&b.cost).then(a.state.cmp(&b.state)));
        let Some((code, error)) = best.map(|path| (path.codes[place], path.errors[place])) else { return (0, 0.0) };
        self.paths.retain(|path| path.codes[place] == code);
        self.paths.iter_mut().for_each(|path| path.errors[place] = 0.0);
        (code, error)
    }
}

/// `Σ aᵢ·bᵢ`.
fn dot(a: &[f32; DEPTH], b: &[f32; DEPTH]) -> f32 {
    let mut sums = [0f32; SUMS];
    let (a, b) = (a.as_chunks::<SUMS>().0, b.as_chunks::<SUMS>().0);
    for (a, b) in a.iter().zip(b) {
        (0..SUMS).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum()
}
