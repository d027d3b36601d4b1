//! Choosing experts: the contract of compiler and microkernel.

/// Most experts of a layer.
pub const MOST_EXPERTS: usize = 1024;
/// Most experts chosen for a token.
pub const MOST_CHOSEN: usize = 64;

/// Function from an expert's logit to its score.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Score {
    /// Their softmax: choice by score and bias, weights are the scores.
    Softmax = 0,
    /// Nothing: choice by logit and bias, weights are the softmax of the chosen logits.
    Chosen = 1,
    /// `1/(1+e⁻ᶻ)`: choice by score and bias, weights are the scores.
    Sigmoid = 2,
    /// The sparse mixer (arXiv 2409.12136): the best expert by its logit, weighted by its share in
    /// the softmax of those experts whose distance to it, over the larger of it and their own
    /// magnitude, is at most `2·eps`; then the same without it.
    Mixer = 3,
    /// `1/(1+e⁻ᶻ)` of the chosen: choice by logit and bias, weights are those.
    SigmoidOfChosen = 4,
    /// Nothing, they are scores: choice by score and bias, weights are the scores.
    Given = 5,
}

impl Score {
    /// Every score.
    pub const ALL: [Score; 6] =
        [Score::Softmax, Score::Chosen, Score::Sigmoid, Score::Mixer, Score::SigmoidOfChosen, Score::Given];
}

/// Arguments of [`crate::Uk::Route`]: the choice for one token.
///
/// The `top` best of `experts` (by score and bias, equal ones by number, NaN last; of the `kept`
/// best of `groups` equal groups), their numbers as f32, then their weights: scores, divided by
/// `sum + eps` if `normalize`, times `scale`. Sums are f32 chains in ascending order; exponentials
/// are computed as in [`crate::math`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RouteArgs {
    /// Logits.
    pub x: *const f32,
    /// Added for the choice only.
    pub bias: *const f32,
    /// `2·top` numbers.
    pub out: *mut f32,
    /// Experts, at most [`MOST_EXPERTS`].
    pub experts: u64,
    /// Chosen ones, at most [`MOST_CHOSEN`].
    pub top: u64,
    /// Groups of adjacent experts.
    pub groups: u64,
    /// Number of groups whose experts may be chosen.
    pub kept: u64,
    /// Whether a group counts as much as its two best experts together.
    pub pairs: u64,
    /// Whether weights are divided by their sum.
    pub normalize: u64,
    /// The function of the logits.
    pub score: Score,
    /// Added to the sum; the width of the sparse mixer's band.
    pub eps: f32,
    /// Multiplies the weights.
    pub scale: f32,
}

/// Signature of [`crate::Uk::Route`].
pub type RouteFn = unsafe extern "C" fn(*const RouteArgs);
