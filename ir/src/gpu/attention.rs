//! Which attention kernels run on the pipeline between warps, and its tiles: the emitter follows
//! this.

use crate::kv::KvSpec;
use crate::target::GpuArch;

/// Prompts by `wgmma`, where the target has it. Set it to false, and all prompts go back to
/// `mma.sync`: for whoever finds a fault on a machine.
const WARPGROUPS: bool = true;
/// Query rows of a block: two groups of four warps.
pub const ROWS: usize = 128;
/// Tokens of the cache that are multiplied together.
pub const TILE: usize = 128;
/// Largest head: scores, probabilities and values of 64 rows must fit the registers of four warps.
const MAX_D: usize = 128;

/// Attention by `wgmma` (sm_90a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warpgroups {
    /// Tokens of a block: with the query heads of one KV head at most [`ROWS`] rows.
    pub tokens: usize,
}

/// The schedule for a cache, query heads per KV head and tokens of a block; `None` if another
/// kernel does it.
pub fn warpgroups(kv: &KvSpec, group: usize, tile_m: usize, gpu: &GpuArch) -> Option<Warpgroups> {
    let half = kv.dtype.is_half();
    let suits = WARPGROUPS
        && gpu.processor == "sm_90a"
        && half
        && kv.uniform()
        && kv.key_dim.is_multiple_of(16)
        && kv.key_dim <= MAX_D;
    let tokens = tile_m.min(ROWS / group.max(1));
    // With less, one of the two groups would have nothing to do.
    (suits && tile_m > 1 && tokens * group > ROWS / 2).then_some(Warpgroups { tokens })
}
