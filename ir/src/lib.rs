//! The intermediate representation of llmcc.
//!
//! Three levels, each with text (`.lir`), a verifier and a plain evaluator that serves as the
//! oracle of everything else:
//!
//! 1. [`graph`]: typed SSA tensor operations; the *meaning* of the model.
//! 2. [`kernel`]: scheduled, fused kernels with operand layouts and tiles; the *executed* work.
//! 3. [`plan`]: the order of kernels, buffers with their lifetimes, packed weights; how a *step*
//!    runs.
//!
//! # Semantics
//!
//! A step processes `T` tokens of any number of sequences. Token `i` has an id, a position `p` and
//! a sequence; its row of every activation depends only on tokens of the same sequence at positions
//! `≤ p`. `R ≤ T` rows are selected for the [`output`]: logits, or rows about whole sequences. Activations are f32 matrices with a row per
//! token; heads are runs of columns. Weights are read-only. What sequences keep
//! between steps are their states ([`state`]), and nothing else changes: the key/value cache ([`kv`]),
//! and states of fixed size. `kv_append` of a step comes before its `attention`, so tokens of one step
//! see each other (causally); a recurrence takes the tokens of a sequence in order.
//!
//! Arithmetic is that of real numbers rounded to f32 in any order the level does not fix: [`eval`]
//! computes in f64; an implementation may differ from it by the rounding of f32, and the tests
//! bound the difference by the model's own f32 error. Quantization is explicit: a quantized matrix
//! *is* the matrix its codes decode to ([`quant`]).
//!
//! # Rooms
//!
//! An operation, a kind of state and a family of kernels have a file each, with text, rules and
//! meaning, so that adding one is a file and a line. Such a file uses [`text`], [`verify`] and
//! [`eval`], which know the tables of all of them: the one circle of files here, and wanted
//! (`tests/tests/circles.rs`).

pub mod diag;
pub mod eval;
pub mod gpu;
pub mod graph;
pub mod kernel;
pub mod kv;
pub mod output;
pub mod plan;
pub mod quant;
pub mod state;
pub mod tap;
pub mod target;
pub mod text;
pub mod threads;
pub mod ty;
pub mod verify;

/// Items for the newcomers of the closed tables, which live in the tests (`kernel/dummy.rs`,
/// `state/dummy.rs`): with the feature `dummies` of this crate, its tables and the tables of all
/// crates above have the newcomers too.
#[cfg(any(test, feature = "dummies"))]
#[macro_export]
macro_rules! dummies {
    ($($item:item)*) => { $($item)* };
}

/// Items for the newcomers of the closed tables, which live in the tests: none here.
#[cfg(not(any(test, feature = "dummies")))]
#[macro_export]
macro_rules! dummies {
    ($($item:item)*) => {};
}

/// `match_family! { match body { arms } in tests { arms } }`: a match over families of kernels, with
/// an arm for those that live in the tests where these are.
#[cfg(any(test, feature = "dummies"))]
#[macro_export]
macro_rules! match_family {
    (match $body:ident { $($arms:tt)* } in tests { $($dummies:tt)* }) => {
        match $body { $($arms)* $($dummies)* }
    };
}

/// `match_family! { match body { arms } in tests { arms } }`: a match over families of kernels.
#[cfg(not(any(test, feature = "dummies")))]
#[macro_export]
macro_rules! match_family {
    (match $body:ident { $($arms:tt)* } in tests { $($dummies:tt)* }) => {
        match $body { $($arms)* }
    };
}
