//! The memory a model needs on a GPU, known before anything is loaded.

use llmcc_abi::pools::CACHE_TOKENS;
use llmcc_abi::{KernelDesc, StepDesc, rows};

use super::device::Facts;
use crate::engine::{LEAST_TOKENS, Limits, slot_offsets};
use crate::error::{Error, Result, Status};
use crate::image::Image;
use crate::kv::Layout;

/// Left free by default: for code, the driver's own needs and others.
const SPARE: usize = 256 << 20;

/// Bytes of device memory, but for the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Packed weights.
    pub weights: usize,
    /// Pages of the cache.
    pub cache: Layout,
    /// Activations of the largest step.
    pub activations: usize,
    /// Workspaces of the kernels.
    pub workspace: usize,
}

/// Where each kernel's workspace lies, and how much they are together.
pub(crate) struct Workspace {
    /// Offset per kernel, a multiple of 256.
    pub offsets: Vec<usize>,
    /// Bytes of all.
    pub bytes: usize,
}

impl Budget {
    /// The memory `image` needs for steps within `limits` and a cache of `max_tokens` tokens; 0
    /// means as many tokens as the model asks for and `free` bytes hold.
    pub(crate) fn new(image: &Image, limits: Limits, max_tokens: usize, free: usize) -> Result<Budget> {
        let too_large = || {
            Error::new(Status::System, "the model's buffers do not fit into any memory; use a smaller max_batch_tokens")
        };
        let (_, activations) = slot_offsets(image, limits.tokens, limits.rows).ok_or_else(too_large)?;
        let workspace = workspace(image, limits).ok_or_else(too_large)?.bytes;
        let weights = image.weights_len() as usize;
        let wanted = if max_tokens > 0 {
            max_tokens
        } else {
            let others = [activations, workspace, SPARE].iter().fold(weights, |sum, x| sum.saturating_add(*x));
            // The cache shrinks so far before a model is refused.
            let most = (image.desc().max_context as usize).max(CACHE_TOKENS);
            Layout::fit(&image.states, most, limits.tokens, free.saturating_sub(others)).max(LEAST_TOKENS)
        };
        Ok(Budget { weights, cache: Layout::allocated(&image.states, wanted, limits.tokens)?, activations, workspace })
    }

    /// Bytes in all.
    pub fn total(&self) -> usize {
        [self.activations, self.workspace, self.cache.bytes()]
            .iter()
            .fold(self.weights, |sum, x| sum.saturating_add(*x))
    }

    /// Fails when the model does not fit into `free` of `total` bytes.
    pub fn check(&self, facts: &Facts, free: usize, total: usize) -> Result<()> {
        if self.total() <= free {
            return Ok(());
        }
        let message = format!(
            "the model needs {} of GPU memory ({} for weights, {} for the cache of {} tokens, {} for \
                activations and workspace); GPU {}, {}, has {} free of {}. Open it with a smaller max_tokens or \
                max_batch_tokens, free memory on the GPU, or use another GPU",
            gib(self.total()),
            gib(self.weights),
            gib(self.cache.bytes()),
            self.cache.max_tokens,
            gib(self.activations.saturating_add(self.workspace)),
            facts.ordinal,
            facts.name,
            gib(free),
            gib(total)
        );
        Err(Error::new(Status::System, message))
    }
}

/// Each kernel has a workspace of its own, so that its contents (zeroed counters, say) survive
/// until its next launch. `None`: more than the address space holds.
pub(crate) fn workspace(image: &Image, limits: Limits) -> Option<Workspace> {
    let mut need = vec![0usize; image.kernels.len()];
    for regime in &image.regimes {
        let first = regime.first_step as usize;
        for step in &image.steps[first..first + regime.steps as usize] {
            let m = largest(step, regime.max_tokens, limits);
            let kernel: &KernelDesc = &image.kernels[step.kernel as usize];
            let bytes = (kernel.scratch_per_m as usize).checked_mul(m)?.checked_add(kernel.scratch as usize)?;
            let need = &mut need[step.kernel as usize];
            *need = bytes.max(*need);
        }
    }
    let mut bytes = 0usize;
    let mut offsets = Vec::with_capacity(need.len());
    for n in need {
        offsets.push(bytes);
        bytes = bytes.checked_add(n)?.checked_next_multiple_of(256)?;
    }
    Some(Workspace { offsets, bytes })
}

/// Most rows a step of a regime for up to `max_tokens` tokens can have.
pub(crate) fn largest(step: &StepDesc, max_tokens: u32, limits: Limits) -> usize {
    let most = if step.rows == rows::TOKENS { limits.tokens } else { limits.rows };
    most.min(max_tokens as usize)
}

fn gib(bytes: usize) -> String {
    if bytes < 100 << 20 {
        return format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    }
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}
