//! The choice of windows of a cache by bounds of their keys: the contract of generated code and microkernels.

use crate::{PAGE_TOKENS, select_kept};

/// Arguments of [`Uk::SelectWindows`](crate::Uk::SelectWindows): the tokens that each KV head of one token selects.
///
/// A row of the cache has the least elements `[kv_heads][d]` of the keys of a window of tokens, then the largest ones.
/// The score of a window is the most that products of its keys with the queries of a KV head can add up to: one f32
/// chain of fused multiply-adds over the queries' elements, each with the largest element of the keys where it is not
/// negative, else with the least (Quest, arXiv 2406.10774). The `windows` windows with the highest scores among those
/// before the token's own are selected, of equal ones the first, NaN last; and the token's own up to the token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SelectWindowsArgs {
    /// Queries `[kv_heads][group][d]`.
    pub q: *const f32,
    /// KV heads.
    pub kv_heads: u64,
    /// Query heads of each.
    pub group: u64,
    /// Elements of a key.
    pub d: u64,
    /// Position of the token.
    pub position: u64,
    /// Tokens of a window.
    pub every: u64,
    /// Windows selected beside the token's own.
    pub windows: u64,
    /// See [`kv_dtype`](crate::kv_dtype).
    pub dtype: u64,
    /// The page pool.
    pub pool: *const u8,
    /// Page numbers of the sequence.
    pub pages: *const u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Byte offset of the rows `[16][2 · kv_heads · d]` in a page.
    pub v: u64,
    /// Offset of their scales, f32 `[16]` (int8 and int4 only).
    pub v_scales: u64,
    /// Numbers of tokens `[kv_heads][(windows + 1) · every]`, ascending, then −1.
    pub out: *mut f32,
    /// Scratch: [`select_windows_work`] bytes, 64-byte aligned.
    pub work: *mut u8,
}

/// Bytes of [`SelectWindowsArgs::work`]: a page as f32; of each KV head the windows kept, how many, and the least; and
/// the numbers of a selection.
pub const fn select_windows_work(kv_heads: usize, d: usize, windows: usize) -> usize {
    PAGE_TOKENS * 2 * kv_heads * d * 4 + kv_heads * (select_kept(windows) + 2) * 8 + windows * 4
}

/// Signature of [`Uk::SelectWindows`](crate::Uk::SelectWindows).
pub type SelectWindowsFn = unsafe extern "C" fn(*const SelectWindowsArgs);
