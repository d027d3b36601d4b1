//! Models that write what is said in clips of sound: samples to the rows of the encoder, and the tokens that a text
//! begins with.

use llmcc_media::audio::{Hearing, read_wav, resampled, resampling_bytes};

use crate::engine::{Batch, Engine, STEP};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kv::SeqId;
use crate::reserve::need;

/// Memory of a spectrogram beside its rows, in its samples.
const SAMPLE_BYTES: usize = 16;

/// The knowledge that a model has of sounds.
pub struct Ears(Hearing);

/// Sizes of clips and their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip {
    /// Samples per second.
    pub rate: u32,
    /// Samples of a clip.
    pub samples: usize,
    /// Rows of a clip.
    pub rows: usize,
    /// Columns of a row.
    pub columns: usize,
}

fn wrong(e: llmcc_media::Error) -> Error {
    Error::invalid(e.0)
}

impl Ears {
    /// The knowledge of the model of `image`; `None`: it does not hear.
    ///
    /// # Errors
    /// The configuration is not the JSON that the compiler writes, or of another encoder.
    pub fn of(image: &Image) -> Result<Option<Ears>> {
        let Some(hearing) = Hearing::parse(image.text_config()).map_err(|e| Error::artifact(e.0))? else {
            return Ok(None);
        };
        let source = image.source().map(|entry| &image.entries[entry]);
        let spectrogram = &hearing.spectrogram;
        match source.is_some_and(|e| e.given == spectrogram.columns() && e.context >= spectrogram.rows()) {
            true => Ok(Some(Ears(hearing))),
            false => {
                Err(Error::artifact("the artifact describes sounds that its encoder does not read; compile it again"))
            }
        }
    }

    /// Sizes of clips.
    pub fn clip(&self) -> Clip {
        let s = &self.0.spectrogram;
        Clip { rate: s.rate, samples: s.samples, rows: s.rows(), columns: s.columns() }
    }

    /// The samples of a WAV file, at the model's rate.
    ///
    /// # Errors
    /// It is none, or one that cannot be read.
    pub fn of_file(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        // A sample of 8 bits becomes one of 32, in memory that grows, and samples of all channels are there at once.
        need(bytes.len().saturating_mul(16))?;
        let sound = read_wav(bytes).map_err(wrong)?;
        self.of_samples(&sound.samples, sound.rate)
    }

    /// The samples of a sound of `rate` samples per second, at the model's.
    ///
    /// # Errors
    /// The rate is too low or too high.
    pub fn of_samples(&self, samples: &[f32], rate: u32) -> Result<Vec<f32>> {
        let own = self.0.spectrogram.rate;
        need(resampling_bytes(samples.len(), rate, own))?;
        resampled(samples, rate, own).map_err(wrong)
    }

    /// The rows of a clip, `[rows, columns]`.
    ///
    /// # Errors
    /// It has more samples than a clip, or one that is no number.
    pub fn rows(&self, clip: &[f32]) -> Result<Vec<f32>> {
        let Clip { samples, rows, columns, .. } = self.clip();
        need(rows.saturating_mul(columns).saturating_mul(12).saturating_add(samples.saturating_mul(SAMPLE_BYTES)))?;
        self.0.spectrogram.rows_of(clip).map_err(wrong)
    }

    /// The tokens that the text about the clip of a sequence begins with. Where the model knows several languages and
    /// none is given, the most probable one after the start token.
    ///
    /// # Errors
    /// An unknown language or task; a sequence without a clip; errors of a step.
    pub fn prompt(
        &self,
        engine: &mut Engine,
        seq: SeqId,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Vec<i32>> {
        let own = &self.0.transcription;
        own.prompt(None, task).map_err(wrong)?;
        let language = match language {
            Some(name) => Some(own.language(name).map_err(wrong)?),
            None if own.languages.is_empty() => None,
            None => Some(self.detected(engine, seq)?),
        };
        own.prompt(language, task).map_err(wrong)
    }

    /// The most probable language of a sequence's clip: by the logits after the start token, of a text that is
    /// forgotten again.
    fn detected(&self, engine: &mut Engine, seq: SeqId) -> Result<i32> {
        let own = &self.0.transcription;
        engine.kv_mut().truncate_track(seq, 0, 0)?;
        let batch = Batch { tokens: &[own.start], seqs: &[seq], out_rows: &[0], ..Batch::default() };
        let mut best: Option<(f32, i32)> = None;
        let mut choose = |_: usize, logits: &[f32]| {
            let mut tokens: Vec<i32> = own.languages.values().copied().collect();
            tokens.sort_unstable();
            for token in tokens {
                let logit = usize::try_from(token).ok().and_then(|t| logits.get(t)).copied();
                // The first of equal ones, as in Transformers.
                if let Some(logit) = logit.filter(|x| best.is_none_or(|(most, _)| *x > most)) {
                    best = Some((logit, token));
                }
            }
        };
        engine.run_each(STEP, &batch, &mut choose, None)?;
        engine.kv_mut().truncate_track(seq, 0, 0)?;
        best.map(|(_, token)| token)
            .ok_or_else(|| Error::artifact("the artifact names languages that it has no tokens for"))
    }
}
