//! Activation memory: a slot per buffer of the plan, sized by the step.

use llmcc_abi::{ATTEND_BLOCK, PAGE_TOKENS, StepDesc, rows};

use crate::error::{Error, Result, Status};
use crate::image::Image;
use crate::memory::Region;

/// Activation slots and scratch for steps of up to `tokens` tokens and `rows` rows.
pub(super) struct Arena {
    pub tokens: usize,
    pub rows: usize,
    pub region: Region,
    /// Offset of each slot in the region.
    pub offsets: Vec<usize>,
    pub scratch: Region,
    /// Bytes of scratch of a thread.
    pub scratch_stride: usize,
}

impl Arena {
    /// Nothing.
    pub fn empty() -> Arena {
        Arena {
            tokens: 0,
            rows: 0,
            region: Region::empty(),
            offsets: Vec::new(),
            scratch: Region::empty(),
            scratch_stride: 0,
        }
    }

    /// Reserves the memory of steps of that size with `threads` threads.
    pub fn new(image: &Image, tokens: usize, rows: usize, threads: usize) -> Result<Arena> {
        let overflow =
            || Error::new(Status::System, format!("a step of {tokens} tokens needs more memory than available"));
        let (offsets, bytes) = slot_offsets(image, tokens, rows).ok_or_else(overflow)?;
        let stride = scratch_stride(image, tokens, rows);
        let scratch = stride.checked_mul(threads).ok_or_else(overflow)?;
        Ok(Arena {
            tokens,
            rows,
            region: Region::reserve(bytes, "activations; use a smaller max_batch_tokens")?,
            offsets,
            scratch: Region::reserve(scratch, "scratch; use fewer threads or a smaller max_batch_tokens")?,
            scratch_stride: stride,
        })
    }
}

/// Memory through which threads exchange data within a kernel: see [`llmcc_abi::StepCtx::shared`].
/// Only pages that are written take memory.
pub(super) struct Shared {
    pub region: Region,
    /// Bytes of a slot.
    pub stride: usize,
    /// Bytes of a slot per block of context, of the kernel that needs most.
    per_block: usize,
}

impl Shared {
    /// No slots yet, for the kernels of `image`.
    pub fn new(image: &Image) -> Shared {
        let per_block = image.kernels.iter().map(|k| k.shared_per_block as usize).max().unwrap_or(0);
        Shared { region: Region::empty(), stride: 0, per_block }
    }

    /// Makes the slots large enough for contexts of `pages` pages, one slot for each boundary
    /// between `threads` threads. No step is running.
    pub fn grow(&mut self, pages: usize, threads: usize) -> Result<()> {
        let need = self.per_block;
        // A context of one block is never divided.
        let blocks = (pages * PAGE_TOKENS).div_ceil(ATTEND_BLOCK);
        if need == 0 || threads == 1 || blocks <= 1 {
            return Ok(());
        }
        let stride = |blocks: usize| need.checked_mul(blocks + 1)?.checked_add(64)?.checked_next_multiple_of(64);
        if stride(blocks).is_some_and(|s| s <= self.stride) {
            return Ok(());
        }
        // Powers of two, so that a growing context seldom allocates.
        let stride = stride(blocks.next_power_of_two());
        let bytes = stride.and_then(|s| s.checked_mul(threads - 1)).unwrap_or(usize::MAX);
        (self.region, self.stride) = (Region::empty(), 0);
        self.region = Region::reserve(bytes, "memory that threads share; use fewer threads or a smaller max_context")?;
        self.stride = stride.unwrap_or(0);
        Ok(())
    }
}

/// Offset of each activation slot in the arena, and the arena's size; `None` when it does not fit
/// the address space.
pub(crate) fn slot_offsets(image: &Image, tokens: usize, rows: usize) -> Option<(Vec<usize>, usize)> {
    let mut end = 0usize;
    let mut offsets = Vec::with_capacity(image.buffers.len());
    for b in &image.buffers {
        offsets.push(end);
        let bytes = (b.per_token as usize)
            .checked_mul(tokens)?
            .checked_add((b.per_row as usize).checked_mul(rows)?)?
            .checked_add(b.fixed as usize)?;
        // An odd number of cache lines between slots, so that the same row of two of them does not
        // fall in the same cache set.
        end = end.checked_add(bytes)?.checked_next_multiple_of(64)?.checked_add(192)?;
    }
    Some((offsets, end))
}

/// Bytes of scratch per thread: the maximum over all kernels.
pub(super) fn scratch_stride(image: &Image, tokens: usize, rows: usize) -> usize {
    let need = |step: &StepDesc| {
        let kernel = &image.kernels[step.kernel as usize];
        let m = if step.rows == rows::TOKENS { tokens } else { rows };
        (kernel.scratch as usize).saturating_add((kernel.scratch_per_m as usize).saturating_mul(m))
    };
    let bytes = image.steps.iter().map(need).max().unwrap_or(0);
    // Whole pages plus a line, so that threads share neither pages nor cache sets.
    if bytes == 0 { 0 } else { bytes.saturating_add(4095 + 64) & !4095 | 64 }
}
