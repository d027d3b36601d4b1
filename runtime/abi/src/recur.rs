//! Linear recurrences: what compiler and microkernel agree on.

/// Arguments of [`crate::Uk::Recur`]: one token and some columns of the matrix `S` of a head.
///
/// `S ← a·S` row by row; `n = rate·(v − d)`, where `d` of a column is the chain of fused
/// multiply-adds of the keys with its rows, from 0 and ascending, and 0 without `delta`; then
/// `S ← fma(k, n, S)`; and `out` is the chain of the queries with the rows. So a column has the
/// same bits whatever columns are beside it, on every instruction set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RecurArgs {
    /// f32 `[rows]`, from row to row `stride` columns, of which the first `cols` are meant.
    pub state: *mut f32,
    /// See `state`.
    pub stride: u64,
    /// Rows of the matrix, at least 1.
    pub rows: u64,
    /// Columns.
    pub cols: u64,
    /// f32 `[rows]`.
    pub q: *const f32,
    /// f32 `[rows]`.
    pub k: *const f32,
    /// f32 `[cols]`.
    pub v: *const f32,
    /// f32 `[rows]`, or one for all.
    pub decay: *const f32,
    /// From the decay of a row to that of the next: 1, or 0 if there is one for all.
    pub decays: u64,
    /// A number.
    pub rate: *const f32,
    /// f32 `[cols]`, apart from all else.
    pub out: *mut f32,
    /// 1: what the state holds for the key is taken off the value; 0: it is not.
    pub delta: u64,
}

/// Signature of [`crate::Uk::Recur`].
pub type RecurFn = unsafe extern "C" fn(*const RecurArgs);
