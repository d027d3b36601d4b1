//! Decisions about steps that many requests share: who takes part, with how many tokens, and whose computed tokens a
//! request goes on from.
//!
//! The engine inside artifacts decides by this crate, and `llmcc simulate` predicts by it: the same code, once over the
//! engine's sequences and pages, once over simulated ones. So it knows neither engine nor clock: times come in as
//! durations, sequences and pages through [`prefix::Sequences`] and [`plan::Room`].
#![warn(missing_docs)]

pub mod pace;
pub mod plan;
pub mod prefix;
pub mod rank;

/// Most requests in a step by default.
pub const RUNNING: usize = 64;
/// A request waits for another one that computes so many more tokens of its beginning than are there already.
pub const WORTH_WAITING: usize = 64;
