//! Sounds for an open model.

use super::Model;
use crate::Error;
use llmcc_model::Clip;
use llmcc_model::sys::*;

impl Model {
    /// Sizes of the clips of sound that the model reads.
    ///
    /// # Errors
    /// It reads none.
    pub fn clip(&self) -> Result<Clip, Error> {
        let mut info = llmcc_audio_info { size: size_of::<llmcc_audio_info>(), ..llmcc_audio_info::default() };
        // SAFETY: the model is open; `info` is valid.
        self.check(unsafe { (self.api.llmcc_audio)(self.model, &mut info) })?;
        Ok(Clip::from(info))
    }

    /// The samples of a WAV file, one channel at the model's rate.
    ///
    /// # Errors
    /// Errors of the artifact: no WAV file, say.
    pub fn samples_of(&self, wav: &[u8]) -> Result<Vec<f32>, Error> {
        self.made_samples(wav.as_ptr().cast(), wav.len(), 0)
    }

    /// Samples of a sound that has `rate` in a second, at the model's rate.
    ///
    /// # Errors
    /// Errors of the artifact: a rate that is too low, say.
    pub fn resampled(&self, samples: &[f32], rate: u32) -> Result<Vec<f32>, Error> {
        // (A rate of 0 would be that of a file.)
        self.made_samples(samples.as_ptr().cast(), samples.len(), rate.max(1))
    }

    fn made_samples(&self, data: *const std::ffi::c_void, n: usize, rate: u32) -> Result<Vec<f32>, Error> {
        // SAFETY: the data has this length, `out` its capacity.
        self.fetch(n, |out, capacity, needed| unsafe {
            (self.api.llmcc_audio_samples)(self.model, data, n, rate, out, capacity, needed)
        })
    }

    /// Gives a sequence a clip as its source; it loses all that it had.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_encode_audio(&self, seq: i32, samples: &[f32]) -> Result<(), Error> {
        // SAFETY: the array has this length.
        self.check(unsafe { (self.api.llmcc_seq_encode_audio)(self.model, seq, samples.as_ptr(), samples.len()) })
    }

    /// The same of rows of the encoder.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_encode_rows(&self, seq: i32, rows: &[f32]) -> Result<(), Error> {
        // SAFETY: the array has this length.
        self.check(unsafe { (self.api.llmcc_seq_encode_rows)(self.model, seq, rows.as_ptr(), rows.len()) })
    }

    /// The tokens that the text about a sequence's clip begins with; an empty language is the most probable one, an
    /// empty task a transcription.
    ///
    /// # Errors
    /// Errors of the artifact: an unknown language, say.
    pub fn clip_prompt(&self, seq: i32, language: &str, task: &str) -> Result<Vec<i32>, Error> {
        let (of_language, of_task) = (language.as_ptr().cast(), task.as_ptr().cast());
        let call = self.api.llmcc_audio_prompt;
        // SAFETY: the texts have their lengths, `out` its capacity.
        self.fetch(8, |out, capacity, needed| unsafe {
            call(self.model, seq, of_language, language.len(), of_task, task.len(), out, capacity, needed)
        })
    }
}
