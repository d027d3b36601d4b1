//! Images: a tower makes rows of their patches, which steps take in place of tokens.

use super::{Batch, Engine, Io, STEP, Sink};
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use crate::reserve::need;
use llmcc_abi::output::kind;
use std::mem::MaybeUninit;

/// The number that a sequence has in its list of tokens for a row of an image, in place of the token that stands for
/// it: negative, and another one for another row (but for some in a thousand million), so that prompts begin alike only
/// where their images do.
pub fn mark(row: &[f32]) -> i32 {
    // FNV-1a.
    let hash = row.iter().flat_map(|x| x.to_bits().to_le_bytes());
    let hash = hash.fold(0x811c_9dc5_u32, |h, byte| (h ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    -1 - (hash & 0x7fff_ffff) as i32
}

impl Engine {
    /// The token that stands for a row of an image, of a model that takes some.
    pub fn placeholder(&self) -> Option<i32> {
        self.image().entries[STEP].placeholder
    }

    /// The index of the entry that makes rows of images.
    ///
    /// # Errors
    /// The model has none.
    pub fn tower(&self) -> Result<usize> {
        self.image().entries.iter().position(|e| e.kind() == kind::IMAGE).ok_or_else(|| {
            Error::new(
                Status::Unsupported,
                "this artifact sees no images (LLMCC_SEES): compile a model that does with --with-image",
            )
        })
    }

    /// The rows of an image, `[chosen.len(), hidden]`, by the rows of its patches, of which those of numbers `chosen` are
    /// asked for.
    ///
    /// # Errors
    /// The model sees no images, or others; no room in the cache; the machine fails.
    pub fn see(&mut self, patches: &[f32], chosen: &[u32]) -> Result<Vec<f32>> {
        let at = self.tower()?;
        let entry = &self.image().entries[at];
        let (tokens, columns) = (patches.len() / entry.given.max(1), entry.columns());
        need(4 * (patches.len() + chosen.len() * columns) + 8 * tokens)?;
        let mut rows = vec![MaybeUninit::new(0.0); chosen.len() * columns];
        let seq = self.kv_mut().seq_new()?;
        let done = self.run_tower(at, (seq, tokens), patches, (chosen, &mut rows));
        self.kv_mut().seq_free(seq)?;
        done?;
        // SAFETY: all were written, before the step and by it.
        Ok(rows.into_iter().map(|x| unsafe { x.assume_init() }).collect())
    }

    fn run_tower(
        &mut self,
        entry: usize,
        (seq, tokens): (SeqId, usize),
        patches: &[f32],
        (chosen, rows): (&[u32], &mut [MaybeUninit<f32>]),
    ) -> Result<()> {
        let (zeros, seqs) = (vec![0; tokens], vec![seq; tokens]);
        let batch = Batch { tokens: &zeros, seqs: &seqs, out_rows: chosen, types: &[], hidden: patches };
        self.run(entry, Io { batch: &batch, wants: &[], rows: Sink::Memory(rows), keep: None, taps: None })
    }
}
