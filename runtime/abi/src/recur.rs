//! Linear recurrences: the contract of compiler and microkernel.

/// How a token changes the matrix `S` of a head, and the result it reads: `a` are its decays, `q`,
/// `k` and `v` query, key and value.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Update {
    /// `S ← a·S + k ⊗ β·v`, then `y = qᵀS`, with a rate `β`.
    Plain = 0,
    /// `S ← a·S + k ⊗ β·(v − kᵀ(a·S))`, then `y = qᵀS`: the state's value for the key is subtracted
    /// from the new one.
    Delta = 1,
    /// `S ← a·S + k ⊗ v − w ⊗ rᵀ(a·S)`, then `y = qᵀS`: the state's value for a key `r` is
    /// subtracted at another key, `w`.
    Erase = 2,
    /// `y = qᵀ(S + (u∘k) ⊗ v)`, then `S ← a·S + k ⊗ v`: the result reads the state before the
    /// token, plus the token itself weighted by `u`.
    Bonus = 3,
    /// `S ← e^(A·a)∘S + k ⊗ v`, then `y = qᵀS`: a matrix `A` of rates, and a step `a` per column.
    Scan = 4,
}

impl Update {
    /// Every update.
    pub const ALL: [Update; 5] = [Update::Plain, Update::Delta, Update::Erase, Update::Bonus, Update::Scan];
}

/// Arguments of [`crate::Uk::Recur`]: one token and some columns of the matrix `S` of a head.
///
/// All products with `a` and rates are rounded, all others are fused with the sum that they go
/// into. Sums over rows are chains from 0, ascending. Erasure comes before addition: `fma(k, n,
/// fma(w, −d, a·S))`; and the bonus is `fma(q, fma(u·k, v, S), y)`. So a column has the same bits
/// whatever columns are beside it, on every instruction set. Exponentials are computed as in
/// [`crate::math`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RecurArgs {
    /// f32 `[rows]`, rows `stride` columns apart; only the first `cols` columns count.
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
    /// f32 `[rows]`, or one for all; of [`Update::Scan`] `[cols]`.
    pub decay: *const f32,
    /// From the decay of a row to that of the next: 1, or 0 if there is one for all.
    pub decays: u64,
    /// The rate of [`Update::Plain`] and [`Update::Delta`]; f32 `[rows]`, `r` of [`Update::Erase`]
    /// or `u` of [`Update::Bonus`]; `A` of [`Update::Scan`], laid out as `state`.
    pub with: *const f32,
    /// f32 `[rows]`, `w` of [`Update::Erase`]; not read by others.
    pub write: *const f32,
    /// f32 `[cols]`, apart from all else.
    pub out: *mut f32,
    /// The computation.
    pub update: Update,
}

/// Signature of [`crate::Uk::Recur`].
pub type RecurFn = unsafe extern "C" fn(*const RecurArgs);
