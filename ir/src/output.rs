//! What a step yields: logits, or rows that describe whole sequences.

use std::fmt;

/// The output of a step: f32 rows, one for each token that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Output {
    /// Logits of the next token, `[R, vocab]`.
    #[default]
    Logits,
    /// Rows `[R, width]`, of which the runtime makes one per sequence.
    Rows(Rows),
}

/// Rows that describe a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// What they are.
    pub name: RowsName,
    /// Columns.
    pub width: usize,
    /// How those of a sequence become one.
    pub pool: Pool,
    /// That one is scaled to length 1 (Euclidean), unless a caller wants it otherwise.
    pub normalize: bool,
}

/// What rows mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowsName {
    /// A point in a space where what means alike is near.
    Embedding,
    /// A number for each class, before any softmax.
    Scores,
}

impl RowsName {
    /// All of them with their names in text.
    pub const ALL: &'static [(RowsName, &'static str)] =
        &[(RowsName::Embedding, "embedding"), (RowsName::Scores, "scores")];
}

/// How the rows of a sequence's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Their mean.
    Mean,
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
}

impl Pool {
    /// All of them with their names in text.
    pub const ALL: &'static [(Pool, &'static str)] =
        &[(Pool::Mean, "mean"), (Pool::First, "first"), (Pool::Last, "last")];
}

/// The name of a member of such a table.
fn name<T: PartialEq>(all: &'static [(T, &'static str)], of: &T) -> &'static str {
    all.iter().find(|(t, _)| t == of).map_or("?", |(_, n)| n)
}

impl fmt::Display for Output {
    /// `logits`, or what rows are: `embedding width=384 pool=mean normalize`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Logits => f.write_str("logits"),
            Output::Rows(rows) => write!(f, "{} {rows}", rows.name),
        }
    }
}

impl fmt::Display for Rows {
    /// What they are but for their name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let normalize = if self.normalize { " normalize" } else { "" };
        write!(f, "width={} pool={}{normalize}", self.width, self.pool)
    }
}

impl fmt::Display for RowsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(Self::ALL, self))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(Self::ALL, self))
    }
}
