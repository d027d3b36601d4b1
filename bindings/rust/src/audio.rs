//! Sounds, for models that write what is said in them.

use crate::sys::{RawModel, llmcc_audio_info};
use crate::{Model, Result, Sequence, Token};
use std::ffi::c_void;

/// A sound that a model is given.
#[derive(Clone, Copy, Debug)]
pub enum Sound<'a> {
    /// The bytes of a WAV file.
    Wav(&'a [u8]),
    /// Samples, mostly from -1 to 1, so many per second.
    Samples(&'a [f32], u32),
}

/// Clips that a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip {
    /// Samples of a clip.
    pub samples: usize,
    /// Samples per second.
    pub rate: u32,
    /// Rows of the encoder that a clip becomes.
    pub rows: usize,
    /// Columns of such a row.
    pub columns: usize,
}

impl From<llmcc_audio_info> for Clip {
    fn from(info: llmcc_audio_info) -> Clip {
        Clip {
            samples: info.samples as usize,
            rate: info.rate,
            rows: info.rows as usize,
            columns: info.columns as usize,
        }
    }
}

impl Model {
    /// Sizes of the clips of sound that the model reads.
    ///
    /// # Errors
    /// It reads none.
    pub fn clip(&self) -> Result<Clip> {
        let mut info = llmcc_audio_info { size: size_of::<llmcc_audio_info>(), ..llmcc_audio_info::default() };
        // SAFETY: `info` is valid.
        self.check(unsafe { (self.api().llmcc_audio)(self.handle(), &mut info) })?;
        Ok(Clip::from(info))
    }

    /// The samples of a sound, one channel at the model's rate.
    ///
    /// # Errors
    /// The model reads no sounds; no WAV file; a rate that is too low or too high.
    pub fn samples(&self, sound: Sound<'_>) -> Result<Vec<f32>> {
        let (data, n, rate): (*const c_void, usize, u32) = match sound {
            Sound::Wav(bytes) => (bytes.as_ptr().cast(), bytes.len(), 0),
            // (A rate of 0 would be that of a file.)
            Sound::Samples(samples, rate) => (samples.as_ptr().cast(), samples.len(), rate.max(1)),
        };
        let call = self.api().llmcc_audio_samples;
        let model: *const RawModel = self.handle();
        // SAFETY: the data has this length, `out` its capacity.
        self.fetch(n, |out, capacity, needed| unsafe { call(model, data, n, rate, out, capacity, needed) })
    }
}

impl Sequence<'_> {
    /// Gives the sequence a clip as its source; it loses the tokens and the source that it had. A clip shorter than
    /// [`Clip::samples`] is followed by silence.
    ///
    /// # Errors
    /// The model reads no sounds; more samples than a clip has; a sample that is no number.
    pub fn encode_clip(&mut self, samples: &[f32]) -> Result<()> {
        let (data, n) = (samples.as_ptr(), samples.len());
        // SAFETY: the array has this length.
        self.check(unsafe { (self.model.api().llmcc_seq_encode_audio)(self.model.handle(), self.seq, data, n) })
    }

    /// The same of rows of the encoder, one after the other.
    ///
    /// # Errors
    /// The encoder reads no rows; parts of a row, or more than a step takes; a number that is not finite.
    pub fn encode_rows(&mut self, rows: &[f32]) -> Result<()> {
        let (data, n) = (rows.as_ptr(), rows.len());
        // SAFETY: the array has this length.
        self.check(unsafe { (self.model.api().llmcc_seq_encode_rows)(self.model.handle(), self.seq, data, n) })
    }

    /// The tokens that the text about the sequence's clip begins with: [`Sequence::generate`] goes on with them.
    /// `language` is a code such as `en` (empty: the most probable one), `task` is `transcribe` (or empty) or
    /// `translate`.
    ///
    /// # Errors
    /// The model does not know the language or the task; the sequence has no clip.
    pub fn clip_prompt(&mut self, language: &str, task: &str) -> Result<Vec<Token>> {
        let call = self.model.api().llmcc_audio_prompt;
        let (model, seq): (*const RawModel, i32) = (self.model.handle(), self.seq);
        // SAFETY: the texts have their lengths, `out` its capacity.
        self.model.fetch(8, |out, capacity, needed| unsafe {
            let (of_language, of_task) = (language.as_ptr().cast(), task.as_ptr().cast());
            call(model, seq, of_language, language.len(), of_task, task.len(), out, capacity, needed)
        })
    }
}
