//! Rates and latencies of GPUs, which [`super::cost`] applies to counts: one table for each GPU.

/// Figures of a GPU, beside the vendor's in [`crate::target::GpuArch`] and
/// [`crate::target::TargetSpec`].
///
/// The figures of [`H200`] were fitted to `benches/gpu` by `tools/gpu-check/fit.py`, unless they
/// say otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Cycles per second of a multiprocessor. (Read from the driver while kernels ran.)
    pub clock: f64,
    /// Share of the memory's bandwidth that reading reaches. Multiprocessors that have no block leave
    /// theirs to the others.
    pub memory: f64,
    /// The same where weights go straight to registers. (Fitted to ten products of
    /// `benches/gpu/h200-direct.tsv`.)
    pub memory_direct: f64,
    /// Share of the vendor's peak that `wgmma` reaches with 16-bit operands.
    pub tensor: f64,
    /// The same with fp8 operands, whose sums are added in f32 every 128 columns.
    pub tensor_fp8: f64,
    /// Cycles of a scheduler's tensor core for an `mma.sync` of 16×8×16. (Vendor's peak of
    /// `mma.sync`.)
    pub mma_cycles: f64,
    /// Bytes per cycle of a multiprocessor's shared memory. (Vendor.)
    pub shared: f64,
    /// Seconds from a launch to the first turn of a product's loop, and from the last turn to the
    /// end: reading the step, addresses, the epilogue.
    pub start: f64,
    /// Bytes per second that a multiprocessor's blocks copy to shared memory before they start.
    pub stage: f64,
    /// Seconds of a prologue's normalization.
    pub prologue: f64,
    /// Seconds from the start of a copy to its end, with little else under way.
    pub latency: f64,
    /// Seconds of latency more for each byte that a multiprocessor asks for at once by bulk copies.
    pub latency_byte: f64,
    /// Cycles of a scheduler to start a copy of a warp's unit before the loop.
    pub fetch: f64,
    /// Cycles that a turn's instructions depend on each other, one after the other: of a turn with
    /// streamed weights; more for each strip; more where the input comes from global memory.
    pub chain: f64,
    /// See [`Rates::chain`].
    pub chain_strip: f64,
    /// See [`Rates::chain`].
    pub chain_global: f64,
    /// The same of a turn of `mma.sync` tiles: with the block's barrier.
    pub chain_mma: f64,
    /// The same of a turn of `wgmma` tiles: decoding, and handing the stage back.
    pub chain_wgmma: f64,
    /// Seconds to add the sums of one of the warps that share a tile.
    pub part: f64,
    /// Seconds of joining a cut tile: two trips to memory and a counter.
    pub join: f64,
    /// Seconds more for each sum of a thread.
    pub join_sum: f64,
}

/// NVIDIA H200. An H100 has the same multiprocessors, and another memory.
pub const H200: Rates = Rates {
    clock: 1.98e9,
    memory: 0.864,
    memory_direct: 0.978,
    tensor: 1.017,
    tensor_fp8: 0.494,
    mma_cycles: 6.0,
    shared: 128.0,
    start: 1.81e-6,
    stage: 1.52e10,
    prologue: 0.785e-6,
    latency: 0.462e-6,
    latency_byte: 1.53e-11,
    fetch: 89.0,
    chain: 40.0,
    chain_strip: 90.0,
    chain_global: 48.0,
    chain_mma: 230.0,
    chain_wgmma: 551.0,
    part: 4.3e-9,
    join: 2.24e-6,
    join_sum: 0.66e-6,
};

/// GPUs that nobody measured: an H200's cycles at their own clock.
const fn at(clock: f64) -> Rates {
    Rates { clock, ..H200 }
}

/// NVIDIA A100. (Vendor's clock.)
pub const A100: Rates = at(1.41e9);
/// NVIDIA RTX 3090. (Vendor's clock.)
pub const RTX_3090: Rates = at(1.70e9);
/// NVIDIA RTX 4090. (Vendor's clock.)
pub const RTX_4090: Rates = at(2.52e9);
/// NVIDIA B200. (Vendor's clock.)
pub const B200: Rates = at(1.85e9);
