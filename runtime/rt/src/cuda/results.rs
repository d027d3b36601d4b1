//! What comes back from a step: of each row its candidates or its output (logits, or others),
//! whichever is wanted; the output also later, as long as no other step has run.

use std::sync::Arc;

use llmcc_abi::layout::candidate_cols;

use super::device::{Device, Pinned};
use crate::candidates::Want;
use crate::engine::Limits;
use crate::error::Result;
use crate::image::Image;

/// Rows of f32 on the device and their place on the host.
struct Rows {
    host: Pinned,
    device: u64,
    /// Columns; 0: there are no such rows.
    cols: usize,
    /// Most rows.
    limit: usize,
}

/// Results of the last step.
pub(crate) struct Results {
    output: Rows,
    candidates: Rows,
    /// Hidden states, a row for each token.
    kept: Rows,
    candidate_count: usize,
    /// Which rows of the output are on the host.
    present: Vec<bool>,
    fetched_bytes: u64,
}

impl Results {
    /// Host memory for the results of steps within `limits`; `address` tells where an activation
    /// slot lies on the device.
    pub fn new(device: &Arc<Device>, image: &Image, limits: Limits, address: impl Fn(u64) -> u64) -> Result<Results> {
        let desc = image.desc();
        let rows = |cols: usize, (slot, limit): (u64, usize), purpose: &str| {
            let host = Pinned::new(device, 4 * cols * limit, purpose)?;
            Ok(Rows { host, device: if cols > 0 { address(slot) } else { 0 }, cols, limit })
        };
        let count = desc.candidates as usize;
        let cols = if count > 0 { candidate_cols(count) } else { 0 };
        Ok(Results {
            output: rows(desc.columns as usize, (desc.output_buffer, limits.rows), "the output of steps")?,
            candidates: rows(cols, (desc.candidates_buffer, limits.rows), "candidates")?,
            kept: rows(desc.kept as usize, (desc.kept_buffer, limits.tokens), "hidden states")?,
            candidate_count: count,
            present: Vec::new(),
            fetched_bytes: 0,
        })
    }

    /// Candidates of a row; 0: the model finds none.
    pub fn candidate_count(&self) -> usize {
        self.candidate_count
    }

    /// Bytes fetched so far.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }

    /// Starts fetching what is wanted of each row of the step under way. The device's context is
    /// current.
    pub fn fetch(&mut self, device: &Device, wants: &[Want]) -> Result<()> {
        self.present.clear();
        self.present.extend(wants.iter().map(|w| *w == Want::Logits));
        let mut row = 0;
        for run in wants.chunk_by(|a, b| (*a == Want::Logits) == (*b == Want::Logits)) {
            let rows = if run[0] == Want::Logits { &self.output } else { &self.candidates };
            self.fetched_bytes += rows.fetch(device, row, run.len())?;
            row += run.len();
        }
        Ok(())
    }

    /// A row of the output, fetched now if it was not wanted before.
    pub fn output(&mut self, device: &Arc<Device>, row: usize) -> Result<&[f32]> {
        if !self.present.get(row).copied().unwrap_or(true) {
            let _current = device.current()?;
            self.fetched_bytes += self.output.fetch(device, row, 1)?;
            device.synchronize("cannot fetch the output from the GPU")?;
            self.present[row] = true;
        }
        Ok(self.output.row(row))
    }

    /// The hidden states of the step's tokens.
    pub fn hidden(&mut self, device: &Arc<Device>, tokens: usize) -> Result<&[f32]> {
        let _current = device.current()?;
        self.fetched_bytes += self.kept.fetch(device, 0, tokens)?;
        device.synchronize("cannot fetch the hidden states from the GPU")?;
        Ok(self.kept.rows(0, tokens))
    }

    /// The candidates of a row of which they were wanted.
    pub fn candidates(&self, row: usize) -> &[f32] {
        self.candidates.row(row)
    }
}

impl Rows {
    /// Starts copying `n` rows to the host. Returns their bytes.
    fn fetch(&self, device: &Device, first: usize, n: usize) -> Result<u64> {
        let (at, bytes) = (4 * self.cols * first, 4 * self.cols * n);
        debug_assert!(first + n <= self.limit && bytes > 0);
        // SAFETY: the pinned block has room for the most rows there can be, and is read after the
        // stream has been waited for.
        let code = unsafe {
            (device.api().copy_to_host)(self.host.ptr().add(at).cast(), self.device + at as u64, bytes, device.stream())
        };
        device.check(code, "cannot fetch the results of a step from the GPU")?;
        Ok(bytes as u64)
    }

    fn row(&self, row: usize) -> &[f32] {
        self.rows(row, 1)
    }

    fn rows(&self, first: usize, n: usize) -> &[f32] {
        debug_assert!(first + n <= self.limit);
        // SAFETY: within the block, which is page aligned and initialised; no copy to it is under
        // way.
        unsafe { std::slice::from_raw_parts(self.host.ptr().cast::<f32>().add(first * self.cols), n * self.cols) }
    }
}
