//! How to run a model.

/// How to run a model. Zero means: choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; by default one per physical core. On a GPU up to eight copy to it and from it, and
    /// fewer only if fewer are given here.
    pub threads: usize,
    /// Tokens the KV cache holds for all sequences together; by default the model's longest
    /// context, at least 16384, or what fits in half of the memory it may have (on a GPU: in what is
    /// free).
    pub max_tokens: usize,
    /// Most tokens taken through the kernels at once; by default 512, on a GPU 2048, and at least a
    /// longest sequence where those are computed in one step. Larger batches are cut.
    pub max_batch_tokens: usize,
    /// Measure every kernel.
    pub profile: bool,
    /// Keep each thread on a processor of its own, the calling one while it computes.
    pub pin: bool,
    /// Sum products of bf16 rows as processors without AMX do, so that logits have the same bits on
    /// every processor.
    pub portable: bool,
}

/// Default of [`Options::max_batch_tokens`].
pub const DEFAULT_BATCH_TOKENS: usize = llmcc_abi::pools::STEP_TOKENS;

/// Default of [`Options::max_batch_tokens`] on a GPU, which needs more tokens at once to be busy.
pub const DEFAULT_GPU_BATCH_TOKENS: usize = llmcc_abi::pools::GPU_STEP_TOKENS;

/// How much goes through the kernels at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Tokens.
    pub tokens: usize,
    /// Rows of output; at most `tokens`.
    pub rows: usize,
}
