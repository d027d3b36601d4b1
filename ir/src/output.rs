//! Outputs of entries: logits, rows that describe whole sequences, hidden states.

use std::fmt;

/// An output of an entry: f32 rows that the caller gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Output {
    /// Logits of the next token, `[R, vocab]`.
    #[default]
    Logits,
    /// Rows `[R, width]`, from which the runtime makes one per sequence.
    Rows(Rows),
    /// Hidden states of all tokens, `[T, hidden]`.
    Hidden,
    /// Rows of an image, `[R, hidden]`, which a step takes in place of tokens.
    Image,
}

impl Output {
    /// Its word in text.
    pub fn word(self) -> &'static str {
        match self {
            Output::Logits => "logits",
            Output::Rows(rows) => name(RowsName::ALL, &rows.name),
            Output::Hidden => "hidden",
            Output::Image => "image",
        }
    }

    /// Whether it has a row for each token that the caller asks for. An entry has one such output at most.
    pub fn is_requested(self) -> bool {
        !matches!(self, Output::Hidden)
    }
}

/// An output of an entry and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryOutput {
    /// The output.
    pub output: Output,
    /// Its place: the index of a value of the entry in a module, of a slot in a plan.
    pub at: usize,
}

/// The output that has a row for each token that the caller asks for.
pub fn requested(outputs: &[EntryOutput]) -> Option<EntryOutput> {
    outputs.iter().copied().find(|o| o.output.is_requested())
}

/// Rows that describe a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Their meaning.
    pub name: RowsName,
    /// Columns.
    pub width: usize,
    /// How a sequence's rows become one.
    pub pool: Pool,
    /// That one is scaled to length 1 (Euclidean), unless a caller wants it otherwise.
    pub normalize: bool,
}

/// Meaning of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowsName {
    /// A vector near the vectors of texts of similar meaning.
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
    /// The largest of each column.
    Max,
    /// Their sum over the root of their number.
    Root,
    /// Their mean, the first weighing 1, the second 2, and so on.
    Weighted,
}

impl Pool {
    /// All of them with their names in text.
    pub const ALL: &'static [(Pool, &'static str)] = &[
        (Pool::Mean, "mean"),
        (Pool::First, "first"),
        (Pool::Last, "last"),
        (Pool::Max, "max"),
        (Pool::Root, "root"),
        (Pool::Weighted, "weighted"),
    ];

    /// The pooled row of a sequence, from its rows (f64, each of `width`) in the order of its
    /// tokens.
    pub fn of(self, rows: &[f64], width: usize) -> Vec<f64> {
        let n = rows.len() / width;
        let sum = |j: usize, weight: &dyn Fn(usize) -> f64| -> f64 {
            rows.iter().skip(j).step_by(width).enumerate().map(|(i, x)| weight(i) * x).sum()
        };
        let column = |j: usize| match self {
            Pool::First => rows[j],
            Pool::Last => rows[(n - 1) * width + j],
            Pool::Max => rows.iter().skip(j).step_by(width).copied().reduce(larger).unwrap_or(f64::NEG_INFINITY),
            Pool::Mean => sum(j, &|_| 1.0) / n as f64,
            Pool::Root => sum(j, &|_| 1.0) / (n as f64).sqrt(),
            Pool::Weighted => sum(j, &|i| (i + 1) as f64) / (n * (n + 1) / 2) as f64,
        };
        (0..width).map(column).collect()
    }
}

/// The larger of two numbers; NaN stays NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The name of a member of such a table.
fn name<T: PartialEq>(all: &'static [(T, &'static str)], of: &T) -> &'static str {
    all.iter().find(|(t, _)| t == of).map_or("?", |(_, n)| n)
}

impl fmt::Display for Output {
    /// Its word, and the properties of rows: `embedding width=384 pool=mean normalize`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Rows(rows) => write!(f, "{} {rows}", rows.name),
            Output::Logits | Output::Hidden | Output::Image => f.write_str(self.word()),
        }
    }
}

impl fmt::Display for Rows {
    /// Their properties except the name.
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
