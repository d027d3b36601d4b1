//! Sizes of the choice of rows, and where things lie in shared memory.

use crate::cx::Cx;
use crate::nth::{THREADS, WARPS};
use crate::piece;
use llmcc_abi::layout::Page;
use llmcc_ir::kernel::Select;
use llmcc_ir::kv::KvSpec;

/// Rows of a tile: the first for which there is room.
const ROWS: [usize; 2] = [64, 32];
/// Most heads whose products a warp has in registers at once.
const TOGETHER: usize = 8;
/// Ranks of each thread that are read at once from other blocks' results.
pub(super) const JOINED: usize = 8;
/// Bytes of a part's result before its ranks.
pub(super) const HEAD: usize = 16;

/// Bytes of the warps' counts, two sets of them, of their totals, and of a word.
const COUNTS: usize = 3 * 4 * WARPS + 16;

/// Sizes of the kernel.
pub(super) struct Plan<'k> {
    pub(super) select: &'k Select,
    pub(super) spec: KvSpec,
    pub(super) page: Page,
    /// Elements of a row.
    pub(super) d: usize,
    /// Elements that are loaded at once.
    pub(super) step: usize,
    /// Rows of a tile.
    pub(super) rows: usize,
    /// Heads whose products a warp has at once.
    pub(super) together: usize,
    /// Ranks that each thread has of those kept.
    pub(super) held: usize,
}

impl<'k> Plan<'k> {
    /// The first that has room, else the smallest.
    pub(super) fn new(cx: &Cx<'_>, select: &'k Select) -> Plan<'k> {
        let spec = cx.kernel.kv(select.kv);
        let (d, floats) = (spec.value_dim, spec.dtype.float().is_some());
        // An odd number, so that threads find theirs in different banks.
        let held = (2 * select.top).div_ceil(THREADS).max(select.top.div_ceil(THREADS) + JOINED) | 1;
        let together = select.heads.div_ceil(WARPS).min(TOGETHER);
        let step = if floats { piece::widest(4, [d]) } else { 1 };
        let plan = |rows| Plan { select, spec, page: spec.page(), d, step, rows, together, held };
        let [large, small] = ROWS.map(plan);
        if large.bytes() <= cx.shared_limit() { large } else { small }
    }

    /// Ranks for which there is room.
    pub(super) fn kept(&self) -> usize {
        self.held * THREADS
    }

    /// Where the parts of shared memory begin: queries, weights, a tile, sums of the warps, ranks and their counts.
    pub(super) fn places(&self) -> [usize; 6] {
        let heads = self.select.heads;
        let sizes = [heads * self.d * 4, heads * 4, self.d * self.pitch() * 4, WARPS * self.rows * 4, 8 * self.kept()];
        let mut places = [0; 6];
        for (i, size) in sizes.into_iter().enumerate() {
            places[i + 1] = places[i] + size.next_multiple_of(16);
        }
        places
    }

    /// Bytes of shared memory.
    pub(super) fn bytes(&self) -> usize {
        self.places()[5] + COUNTS
    }

    /// Floats from a column of a tile to the next: lanes that store four rows' pieces find different banks.
    pub(super) fn pitch(&self) -> usize {
        self.rows + 2
    }

    /// Blocks on a multiprocessor.
    pub(super) fn resident(&self, cx: &Cx<'_>) -> u32 {
        (cx.gpu.shared_per_sm as usize / (self.bytes() + 1024)).clamp(1, 2) as u32
    }

    /// Bytes of a part's result.
    pub(super) fn record(&self) -> usize {
        HEAD + (8 * self.select.top).next_multiple_of(16)
    }
}
