//! Convolutions over time and recurrences, token by token.

use crate::graph::Update;
use crate::state::FixedState;

/// An input of a recurrence.
pub(crate) enum Each {
    /// A row for each token.
    Rows(Vec<Vec<f64>>),
    /// The same for all.
    Same(Vec<f64>),
}

impl Each {
    /// That of a token.
    pub fn of(&self, token: usize) -> &[f64] {
        match self {
            Each::Rows(rows) => &rows[token],
            Each::Same(row) => row,
        }
    }
}

/// Inputs of a recurrence: queries, keys and values; decays, one per head or per row of each, or
/// steps of each column; and the further inputs of the update.
pub(crate) struct Inputs {
    pub q: Each,
    pub k: Each,
    pub v: Each,
    pub decay: Each,
    pub with: Each,
    /// Keys of [`Update::Erase`].
    pub write: Each,
}

/// Each row's channels convolved with the rows before it in its sequence. `taps`: `[width,
/// channels]`; the last row belongs to the token itself. The state has the last inputs, the oldest
/// first.
pub(crate) fn convolve(state: &mut FixedState, seqs: &[usize], x: &[Vec<f64>], taps: &[f64]) -> Vec<Vec<f64>> {
    let channels = state.spec.cols;
    let token = |(row, seq): (&Vec<f64>, &usize)| {
        let kept = state.of(*seq);
        let inputs = || kept.iter().chain(row);
        let out = (0..channels).map(|c| inputs().zip(taps).skip(c).step_by(channels).map(|(x, w)| x * w).sum());
        let out: Vec<f64> = out.collect();
        kept.copy_within(channels.., 0);
        let last = kept.len() - channels;
        kept[last..].copy_from_slice(row);
        out
    };
    x.iter().zip(seqs).map(token).collect()
}

/// A linear recurrence over matrices `S` `[rows, cols]`, one per head, with its group's queries and
/// keys: the update, token by token.
pub(crate) fn recur(state: &mut FixedState, seqs: &[usize], x: &Inputs, update: Update) -> Vec<Vec<f64>> {
    let size = state.spec.rows * state.spec.cols;
    let heads = state.spec.heads;
    let token = |(t, seq): (usize, &usize)| {
        let matrices = state.of(*seq).chunks_mut(size).enumerate();
        matrices.flat_map(|(h, s)| step(s, x, update, (t, h, heads))).collect()
    };
    seqs.iter().enumerate().map(token).collect()
}

/// The matrix of a head after a token, and the token's result.
fn step(s: &mut [f64], x: &Inputs, update: Update, (t, h, heads): (usize, usize, usize)) -> Vec<f64> {
    let cols = x.v.of(t).len() / heads;
    let rows = s.len() / cols;
    let group = h / (heads / (x.q.of(t).len() / rows));
    let of_group = |x: &'_ Each, i: usize| x.of(t)[group * rows + i];
    let (decay, with) = (x.decay.of(t), x.with.of(t));
    let a = |i: usize, j: usize| match update {
        Update::Scan => (with[(h * rows + i) * cols + j] * decay[h * cols + j]).exp(),
        Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
            if decay.len() == heads {
                decay[h]
            } else {
                decay[h * rows + i]
            }
        }
    };
    let mut out = vec![];
    for j in 0..cols {
        let v = x.v.of(t)[h * cols + j];
        let mut column: Vec<f64> = (0..rows).map(|i| s[i * cols + j]).collect();
        let before = column.clone();
        (0..rows).for_each(|i| column[i] *= a(i, j));
        let held = |keys: &Each| (0..rows).map(|i| of_group(keys, i) * column[i]).sum::<f64>();
        let (new, erased) = match update {
            Update::Plain => (with[h] * v, 0.0),
            Update::Delta => (with[h] * (v - held(&x.k)), 0.0),
            Update::Erase => (v, held(&x.with)),
            Update::Bonus | Update::Scan => (v, 0.0),
        };
        for (i, column) in column.iter_mut().enumerate() {
            let write = if update == Update::Erase { of_group(&x.write, i) } else { 0.0 };
            *column += of_group(&x.k, i) * new - write * erased;
            s[i * cols + j] = *column;
        }
        let read = |i: usize| match update {
            Update::Bonus => before[i] + with[h * rows + i] * of_group(&x.k, i) * v,
            Update::Plain | Update::Delta | Update::Erase | Update::Scan => column[i],
        };
        out.push((0..rows).map(|i| of_group(&x.q, i) * read(i)).sum());
    }
    out
}

/// Means of the values so far, channel by channel, with weights `e^key` that decay: see
/// `wkv` of the graph level. The state has the sum of weighted values and that of the weights, both
/// over the `e^m` of its third row; no weight has been seen where their sum is 0.
pub(crate) fn weighted_means(
    state: &mut FixedState,
    seqs: &[usize],
    [k, v]: [&[Vec<f64>]; 2],
    [decay, bonus]: [&[f64]; 2],
) -> Vec<Vec<f64>> {
    let channels = state.spec.cols;
    let mut out = vec![];
    for (t, seq) in seqs.iter().enumerate() {
        let s = state.of(*seq);
        let mut mean = |c: usize| {
            let (kept, k, v) = (Mean::of(s, [0, channels, c]), k[t][c], v[t][c]);
            let y = kept.with(k + bonus[c], v).value();
            Mean { most: kept.most + decay[c], ..kept }.with(k, v).keep(s, [0, channels, c]);
            y
        };
        out.push((0..channels).map(&mut mean).collect());
    }
    out
}

/// Means of the values of a window so far: see `window_means` of the graph level. The state has three
/// rows, as for [`weighted_means`], for the window of the last token, and where the first of two series
/// counts in the next window, three for that.
pub(crate) fn means_of_windows(
    state: &mut FixedState,
    (seqs, positions): (&[usize], &[i32]),
    [k, v]: [&[Vec<f64>]; 2],
    places: &[f64],
) -> Vec<Vec<f64>> {
    let (channels, series) = (state.spec.cols, state.spec.rows / 3);
    let all = channels * series;
    let width = places.len() / all.max(1);
    let token = |(t, seq): (usize, &usize)| {
        let s = state.of(*seq);
        let place = positions[t].max(0) as usize % width.max(1);
        if place == 0 {
            // The window begins with the numbers kept for it.
            s.copy_within(3 * channels.., 0);
            let kept = 3 * channels * (series - 1);
            s[kept..].fill(0.0);
        }
        let mean = |c: usize| {
            let mut of_series = |i: usize, row: usize| {
                let from = i * channels + c;
                let mean = Mean::of(s, [row, channels, c]);
                let mean = mean.with(k[t][from] + places[place * all + from], v[t][from]);
                mean.keep(s, [row, channels, c]);
                mean.value()
            };
            if series > 1 {
                of_series(0, 3);
            }
            of_series(series - 1, 0)
        };
        (0..channels).map(mean).collect()
    };
    seqs.iter().enumerate().map(token).collect()
}

/// A sum of weighted values and that of the weights, both over `e^most`.
#[derive(Clone, Copy)]
struct Mean {
    sum: f64,
    weights: f64,
    most: f64,
}

impl Mean {
    /// That of column `c` in the three rows from `row` on, of `channels` columns.
    fn of(s: &[f64], [row, channels, c]: [usize; 3]) -> Mean {
        let at = |i: usize| s[(row + i) * channels + c];
        let most = if at(1) > 0.0 { at(2) } else { f64::NEG_INFINITY };
        Mean { sum: at(0), weights: at(1), most }
    }

    fn keep(&self, s: &mut [f64], [row, channels, c]: [usize; 3]) {
        for (i, x) in [self.sum, self.weights, self.most].into_iter().enumerate() {
            s[(row + i) * channels + c] = x;
        }
    }

    /// With one more value, of weight `e^key`.
    fn with(&self, key: f64, value: f64) -> Mean {
        let most = self.most.max(key);
        let (old, new) = ((self.most - most).exp(), (key - most).exp());
        Mean { sum: old * self.sum + new * value, weights: old * self.weights + new, most }
    }

    fn value(&self) -> f64 {
        self.sum / self.weights
    }
}
