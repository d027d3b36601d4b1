//! Linear recurrences: what compiler and microkernel agree on.

/// How a token changes the matrix `S` of a head, and what is read of it: `a` are its decays, `q`,
/// `k` and `v` query, key and value.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Update {
    /// `S ← a·S + k ⊗ β·v`, then `y = qᵀS`, with a rate `β`.
    Plain = 0,
    /// `S ← a·S + k ⊗ β·(v − kᵀ(a·S))`, then `y = qᵀS`: what the state holds for the key is taken
    /// off the value.
    Delta = 1,
    /// `S ← a·S + k ⊗ v − w ⊗ rᵀ(a·S)`, then `y = qᵀS`: what the state holds for a key `r` is taken
    /// off what it holds for another, `w`.
    Erase = 2,
    /// `y = qᵀ(S + (u∘k) ⊗ v)`, then `S ← a·S + k ⊗ v`: what is read is the state before, with the
    /// token itself weighted by `u`.
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
/// into. Sums over rows are chains from 0, ascending. What is erased comes before what is added:
/// `fma(k, n, fma(w, −d, a·S))`; and the bonus is `fma(q, fma(u·k, v, S), y)`. So a column has the
/// same bits whatever columns are beside it, on every instruction set. Exponentials are those of
/// [`crate::math`].
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
    /// What is computed.
    pub update: Update,
}

/// Signature of [`crate::Uk::Recur`].
pub type RecurFn = unsafe extern "C" fn(*const RecurArgs);
