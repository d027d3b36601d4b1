//! Logarithms of mel spectrograms, as Whisper's encoder reads them (arXiv 2212.04356; `WhisperFeatureExtractor` of
//! Transformers): magnitudes of short-time Fourier transforms, squared, by triangular filters of Slaney's mel scale.

use super::fourier::{Complex, Fourier};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::f64::consts::TAU;

/// Frames of a row: those that a token of the encoder is made of.
pub const WINDOW_FRAMES: usize = 5;
/// Frames per row.
const STRIDE: usize = 2;
/// Highest frequency of the filters, in Hz.
const HIGHEST: f64 = 8000.0;
/// Least power.
const FLOOR: f64 = 1e-10;
/// The most samples of a clip, and of a transform: sizes of a description are bounded.
const MOST_SAMPLES: usize = 1 << 24;

/// The spectrogram that a model reads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spectrogram {
    /// Filters: numbers of a frame.
    pub mels: usize,
    /// Samples per second.
    pub rate: u32,
    /// Samples of a transform.
    pub fft: usize,
    /// Samples from a frame to the next.
    pub hop: usize,
    /// Samples of a clip.
    pub samples: usize,
}

impl Spectrogram {
    /// Checks the sizes.
    ///
    /// # Errors
    /// One of them is 0 or too large, or a clip is shorter than a transform.
    pub fn check(&self) -> Result<()> {
        let sizes = [self.mels, self.rate as usize, self.fft, self.hop, self.samples];
        let large = self.mels > 4096 || self.fft > 1 << 16 || self.hop > self.samples || self.samples > MOST_SAMPLES;
        match sizes.contains(&0) || large || self.fft >= self.samples || !self.frames().is_multiple_of(STRIDE) {
            true => Err(Error(format!("a spectrogram of these sizes cannot be made: {self:?}"))),
            false => Ok(()),
        }
    }

    /// Frames of a clip.
    pub fn frames(&self) -> usize {
        self.samples / self.hop
    }

    /// Rows of a clip: tokens of the encoder.
    pub fn rows(&self) -> usize {
        self.frames() / STRIDE
    }

    /// Columns of a row.
    pub fn columns(&self) -> usize {
        WINDOW_FRAMES * self.mels
    }

    /// The frames of a clip, `[frames, mels]`: of at most [`Spectrogram::samples`] samples, followed by silence.
    ///
    /// # Errors
    /// More samples, or one that is no number.
    pub fn frames_of(&self, clip: &[f32]) -> Result<Vec<f32>> {
        if clip.len() > self.samples {
            return Err(Error(format!("a clip has at most {} samples, not {}", self.samples, clip.len())));
        }
        if let Some(i) = clip.iter().position(|x| !x.is_finite()) {
            return Err(Error(format!(
                "sample {i} of the sound is {}; samples are numbers, mostly from -1 to 1",
                clip[i]
            )));
        }
        let mut logs = self.logs(clip);
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs.iter_mut().for_each(|x| *x = (x.max(most - 8.0) + 4.0) / 4.0);
        Ok(logs.into_iter().map(|x| x as f32).collect())
    }

    /// The rows of a clip, `[rows, columns]`: row `i` has the frames `2i - 2` to `2i + 2`, zeros for those before and
    /// after the clip.
    ///
    /// # Errors
    /// As for [`Spectrogram::frames_of`].
    pub fn rows_of(&self, clip: &[f32]) -> Result<Vec<f32>> {
        let frames = self.frames_of(clip)?;
        let mut rows = vec![0.0; self.rows() * self.columns()];
        for (i, row) in rows.chunks_exact_mut(self.columns()).enumerate() {
            for (j, to) in row.chunks_exact_mut(self.mels).enumerate() {
                let frame = (STRIDE * i + j).checked_sub(WINDOW_FRAMES / 2);
                let from = frame.and_then(|at| frames.get(at * self.mels..(at + 1) * self.mels));
                from.into_iter().for_each(|from| to.copy_from_slice(from));
            }
        }
        Ok(rows)
    }

    /// Decimal logarithms of the filters' sums, `[frames, mels]`.
    fn logs(&self, clip: &[f32]) -> Vec<f64> {
        let (filters, mut fourier) = (self.filters(), Fourier::new(self.fft));
        let window: Vec<f64> = (0..self.fft).map(|i| 0.5 - 0.5 * libm::cos(TAU * i as f64 / self.fft as f64)).collect();
        let (half, bins, last) = (self.fft / 2, self.fft / 2 + 1, self.samples - 1);
        // Before the clip and after it, samples go backwards.
        let sample = |at: usize| {
            let at = at.abs_diff(half);
            let at = if at > last { 2 * last - at } else { at };
            clip.get(at).map_or(0.0, |x| f64::from(*x))
        };
        let mut frame: Vec<Complex> = vec![];
        let mut logs = Vec::with_capacity(self.frames() * self.mels);
        for i in 0..self.frames() {
            frame.clear();
            frame.extend(window.iter().enumerate().map(|(j, w)| (w * sample(i * self.hop + j), 0.0)));
            fourier.transform(&mut frame);
            let power: Vec<f64> = frame[..bins].iter().map(|(re, im)| re * re + im * im).collect();
            let sum = |(first, weights): &(usize, Vec<f64>)| {
                let sum: f64 = weights.iter().zip(&power[*first..]).map(|(w, p)| w * p).sum();
                libm::log10(sum.max(FLOOR))
            };
            logs.extend(filters.iter().map(sum));
        }
        logs
    }

    /// For each filter, the first bin that it does not leave out, and the weights of the bins from there on.
    fn filters(&self) -> Vec<(usize, Vec<f64>)> {
        let most = to_mel(HIGHEST);
        let corner = |i: usize| to_hertz(most * i as f64 / (self.mels + 1) as f64);
        let (bins, top) = (self.fft / 2 + 1, (self.rate / 2) as f64);
        let hertz = |bin: usize| top * bin as f64 / (bins - 1) as f64;
        let filter = |i: usize| {
            let [low, middle, high] = [corner(i), corner(i + 1), corner(i + 2)];
            let weight = |bin: usize| {
                let up = (hertz(bin) - low) / (middle - low);
                let down = (high - hertz(bin)) / (high - middle);
                up.min(down).max(0.0) * 2.0 / (high - low)
            };
            let weights: Vec<f64> = (0..bins).map(weight).collect();
            let first = weights.iter().position(|w| *w > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|w| *w > 0.0).map_or(first, |last| last + 1);
            (first, weights[first..end].to_vec())
        };
        (0..self.mels).map(filter).collect()
    }
}

/// The border of Slaney's scale between a line and a logarithm, in Hz and in mels.
const BORDER: (f64, f64) = (1000.0, 15.0);

fn to_mel(hertz: f64) -> f64 {
    let per_mel = libm::log(6.4) / 27.0;
    if hertz < BORDER.0 { 3.0 * hertz / 200.0 } else { BORDER.1 + libm::log(hertz / BORDER.0) / per_mel }
}

fn to_hertz(mel: f64) -> f64 {
    let per_mel = libm::log(6.4) / 27.0;
    if mel < BORDER.1 { 200.0 * mel / 3.0 } else { BORDER.0 * libm::exp(per_mel * (mel - BORDER.1)) }
}
