//! Sizes a model gets room for: tokens and rows of a chunk, tokens of the cache, memory of a step's
//! arrays.

use llmcc_abi::pools::CACHE_TOKENS;
pub use llmcc_abi::pools::{GPU_OUTPUT_BYTES, OUTPUT_BYTES};

use super::options::{Limits, Options};
use crate::error::{Error, Result};
use crate::image::{Entry, Image};
use crate::kv::Layout;
use crate::limits::memory;
use llmcc_abi::output::kind;

/// Most rows of an image, where it has more patches: room for as many logits comes with them.
const IMAGE_ROWS: usize = 1024;
/// Largest [`Options::max_batch_tokens`].
const MOST_BATCH_TOKENS: usize = 1 << 20;

/// The limits by the options, or by default: tokens, and bytes of output.
///
/// # Errors
/// More tokens than there may be.
pub fn limits(image: &Image, options: &Options, (default, output): (usize, usize)) -> Result<Limits> {
    let whole = || image.entries.iter().filter(|e| e.whole);
    let default = whole().map(|e| e.context).fold(default, usize::max);
    let tokens = if options.max_batch_tokens == 0 { default.min(MOST_BATCH_TOKENS) } else { options.max_batch_tokens };
    if tokens > MOST_BATCH_TOKENS {
        return Err(Error::invalid(format!("max_batch_tokens is {tokens}; use 1 to {MOST_BATCH_TOKENS}")));
    }
    let columns = image.entries.iter().map(|e| e.columns()).max().unwrap_or(1);
    let rows = (output / (4 * columns.max(1))).max(1);
    // A step is computed as one chunk. (An image has fewer rows than patches.)
    let of = |e: &Entry| if e.kind() == kind::IMAGE { e.context.min(IMAGE_ROWS) } else { tokens };
    let at_once = whole().filter(|e| e.output.is_some()).map(of).max().unwrap_or(0);
    let rows = rows.max(at_once).min(tokens);
    Ok(Limits { tokens, rows })
}

/// The cache has room for at least this many tokens, a typical prompt, where memory allows.
pub const LEAST_TOKENS: usize = 2048;
/// And for so many whatever the memory.
const FEWEST_TOKENS: usize = 128;

/// Tokens the cache holds by default: one sequence of the longest context, or several short ones,
/// within half of the memory that the process may have. (Where groups of states have windows of their own, for a
/// usual number of sequences: see [`Layout::allocated`].)
pub fn default_cache(image: &Image, limits: Limits) -> usize {
    let memory = memory().unwrap_or(8 << 30);
    let fit = |most: usize, bytes: u64| Layout::fit(&image.states, most, limits.tokens, bytes as usize);
    let most = (image.desc().max_context as usize).max(CACHE_TOKENS);
    // A short cache is of little use: a prompt may take more than half.
    let least = fit(LEAST_TOKENS, memory / 4 * 3).max(FEWEST_TOKENS);
    fit(most, memory / 2).max(least)
}
