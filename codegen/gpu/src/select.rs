//! The rows of a cache that an indexer selects: those with the highest scores of all that a token sees.
//!
//! A token is cut into **parts**, adjacent rows of its context, as many as there are blocks for each. A block goes
//! through its part in tiles ([`scores`]): it brings rows to shared memory as f32, every warp multiplies them with
//! some of the heads' queries, and the sums of the warps become **ranks**, 64 bits that are ordered as the rows are. At
//! most twice as many ranks as rows are selected are kept, in the order of their rows: where there is no room for more,
//! the better half stays ([`best`]). Where a token has several parts, each leaves its best ranks in the workspace, and
//! the block that ends last goes through these in the same way, part by part. Ranks are kept in the order of rows, so
//! that the numbers that are stored ascend without being sorted.
//!
//! A score is a sum of products in f32: of a head one chain of fused multiply-adds in the order of the elements; of the
//! heads of a warp one chain, and of the warps another. Ranks differ pairwise. So a selection depends neither on how
//! a token is cut nor on the other tokens.
//!
//! # What it costs
//!
//! 64 heads of 128, 2,048 of 163,840 rows on an H200, one token: 128 parts of 20 tiles. A tile of 64 rows takes 524,288
//! multiply-adds, 4,096 cycles, beside the wait for its rows, and two blocks share a multiprocessor. The last block
//! reads 128 times 1,280 ranks, those of a part at once. Nothing of this has been measured.

mod best;
mod plan;
mod results;
mod scores;
mod token;

use crate::cx::Cx;
use crate::nth::THREADS;
use crate::{COUNTER_BYTES, Source, blocks};
use best::Ranks;
use llmcc_ir::kernel::Select;
use plan::Plan;
use token::{Share, Token};

/// Bytes of shared memory without which there is no kernel.
pub fn shared_bytes(cx: &Cx<'_>, k: &Select) -> usize {
    Plan::new(cx, k).bytes()
}

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Select) -> Source {
    let plan = Plan::new(cx, k);
    let resident = plan.resident(cx);
    let all = ((cx.gpu.sms * resident) as usize).min(COUNTER_BYTES / 4);
    let (mlir, program) = cx.function(THREADS as u32, resident, |b, args| {
        let m = cx.row_count(b, args);
        let ranks = Ranks::new(b, &plan);
        let share = Share::new(b, m, all as i64);
        b.for_((share.first, m, share.step), &[], |b, token, _| {
            Token::new(b, (&plan, args), &ranks, &share, token).emit(b);
            vec![]
        });
    });
    Source {
        shared: plan.bytes() as u32,
        scratch: (COUNTER_BYTES + all * plan.record()) as u64,
        ..Source::new(cx.entry(), (mlir, program), THREADS as u32, [blocks(all), blocks(1), blocks(1)])
    }
}
