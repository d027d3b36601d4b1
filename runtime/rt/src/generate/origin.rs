//! Where guesses come from, and how many there may be.

/// Where guesses of a step come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// The guesser.
    #[default]
    Guesser,
    /// The form of the text.
    Form,
    /// The caller, who expects them.
    Expected,
}

/// Most guesses of a generation for a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Guesses of its guesser and of its form.
    pub guesses: usize,
    /// Tokens that are expected.
    pub expected: usize,
}
