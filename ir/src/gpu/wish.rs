//! Wishes for schedules: parts of them that are given, and what they must guarantee.

/// Parts of the schedule of a product that are given instead of derived: how others than the one
/// that is chosen are tried. `None`: derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Blocks on a multiprocessor.
    pub resident: Option<usize>,
    /// Warps of a block that compute.
    pub warps: Option<usize>,
    /// Units in a ring, of the phase that has the most.
    pub stages: Option<usize>,
    /// Where a block that streams weights finds its input.
    pub place: Option<InputPlace>,
    /// Whether output tiles are cut between blocks wherever they may be, or nowhere.
    pub cut: Option<bool>,
    /// Tiles of rows whose output tiles are cut, the first ones: at most as many as there are counters for.
    pub counted: Option<usize>,
    /// Whether a row's bits may depend on nothing but the row, and a token's on nothing but its
    /// sequence: kernels sum alike in steps of any size.
    pub invariant: bool,
}

impl Wish {
    /// Nothing.
    pub const NONE: Wish =
        Wish { resident: None, warps: None, stages: None, place: None, cut: None, counted: None, invariant: false };
}

/// Where a block with streamed weights is to find its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPlace {
    /// [`Input::Whole`](super::schedule::Input::Whole).
    Whole,
    /// [`Input::Fitting`](super::schedule::Input::Fitting), with as many rows as fit.
    Fitting,
    /// [`Input::Global`](super::schedule::Input::Global).
    Global,
}
