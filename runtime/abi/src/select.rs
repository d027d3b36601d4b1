//! The choice of rows of a cache by an indexer: the contract of generated code and microkernels.

use crate::{ATTEND_BLOCK, PAGE_TOKENS};

/// Arguments of [`Uk::Select`](crate::Uk::Select): the rows of a cache that one token selects.
///
/// The score of a row is the sum over heads of a head's weight times its query's product with the
/// row, or times 0 where that is negative: a product is one f32 chain of fused multiply-adds
/// (ascending element; codes are multiplied by their scale first), a score is one over heads. The
/// `top` rows with the highest scores are selected: of equal ones the first, NaN last. So the
/// selection does not depend on the tokens of the step, nor on the instruction set. Where there are no
/// more than `top` rows all of them are, and nothing is computed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SelectArgs {
    /// Queries `[heads][d]`.
    pub q: *const f32,
    /// Weights `[heads]`.
    pub weights: *const f32,
    /// Heads.
    pub heads: u64,
    /// Elements of a row.
    pub d: u64,
    /// Rows of the cache that the token sees.
    pub rows: u64,
    /// Rows selected.
    pub top: u64,
    /// See [`kv_dtype`](crate::kv_dtype).
    pub dtype: u64,
    /// The page pool.
    pub pool: *const u8,
    /// Page numbers of the sequence.
    pub pages: *const u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Byte offset of the rows `[16][d]` in a page.
    pub v: u64,
    /// Offset of their scales, f32 `[16]` (int8 and int4 only).
    pub v_scales: u64,
    /// `top` numbers of rows, ascending; −1 in place of those that are not there.
    pub out: *mut f32,
    /// Scratch: [`select_work`] bytes, 64-byte aligned.
    pub work: *mut u8,
    /// The part of the context to go through, as [`AttendArgs::part_from`](crate::AttendArgs::part_from) says.
    pub part_from: u64,
    /// See `part_from`.
    pub part_to: u64,
    /// Where the threads that share a context leave the best rows of their parts: [`SELECT_SHARED`] bytes for
    /// each of its blocks, after the first 64, which are zero before and after. Not accessed by who has all
    /// blocks.
    pub shared: *mut u8,
}

/// Bytes of [`SelectArgs::shared`] for a block of [`ATTEND_BLOCK`] rows: a score and a number for each.
pub const SELECT_SHARED: usize = ATTEND_BLOCK * 8;

/// Rows whose scores and numbers are kept until the best of them are sorted out.
pub const fn select_kept(top: usize) -> usize {
    2 * top + PAGE_TOKENS
}

/// Bytes of [`SelectArgs::work`]: a page as f32, and the rows kept, 8 bytes each.
pub const fn select_work(d: usize, top: usize) -> usize {
    PAGE_TOKENS * d * 4 + select_kept(top) * 8
}

/// Signature of [`Uk::Select`](crate::Uk::Select). 1: the result is in place; 0: another thread will put it there.
pub type SelectFn = unsafe extern "C" fn(*const SelectArgs) -> u64;
