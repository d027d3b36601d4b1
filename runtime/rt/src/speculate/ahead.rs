//! Guesses of heads that look further ahead from one row (Medusa, arXiv 2401.10774), which are entries of the same
//! artifact.
//!
//! Head `k` takes the row that the model leaves of its last token but one of the text, and predicts the token `k + 2`
//! places after that token. Heads know nothing of each other's guesses and have no states.

use llmcc_abi::output::kind;

use super::course::Course;
use super::heads::{Wanted, step};
use crate::engine::{Engine, Row};
use crate::error::Result;
use crate::image::{Entry, Image};
use crate::kv::SeqId;
use crate::reserve::need_for_now;

/// The heads of a model, in order, for one sequence.
pub struct Ahead {
    entries: Vec<usize>,
    /// Columns of a row.
    width: usize,
    /// The row of the last token that the model has seen; empty: none is known.
    last: Vec<f32>,
    /// Tokens up to it.
    end: usize,
}

impl Ahead {
    /// The heads of a model; `None` where it has none.
    pub fn of(image: &Image) -> Option<Ahead> {
        let width = image.step().kept();
        let is_head = |e: &Entry| !e.remembers && e.given == width && e.kind() == kind::LOGITS;
        let entries: Vec<usize> = (0..image.entries.len()).filter(|i| is_head(&image.entries[*i])).collect();
        (width > 0 && !entries.is_empty()).then_some(Ahead { entries, width, last: Vec::new(), end: 0 })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Forgets the row.
    pub fn restart(&mut self) {
        self.last.clear();
    }

    /// Takes the model's rows of the tokens from `at` on.
    pub fn take(&mut self, (at, rows): (usize, &[f32])) -> Result<()> {
        let tokens = rows.len() / self.width;
        let Some(first) = rows.len().checked_sub(self.width).filter(|_| tokens > 0) else { return Ok(()) };
        let _memory = need_for_now(size_of::<f32>() * self.width)?;
        self.last.clear();
        self.last.extend_from_slice(&rows[first..]);
        self.end = at + tokens;
        Ok(())
    }

    /// Up to `n` guesses after a course. The model has seen all its tokens but the last.
    pub fn guess(&mut self, engine: &mut Engine, seq: SeqId, course: &Course, n: usize) -> Result<Vec<i32>> {
        let mut guesses = Vec::new();
        let Some(&token) = course.history.last().filter(|_| self.end + 1 == course.history.len()) else {
            return Ok(guesses);
        };
        if self.last.is_empty() {
            return Ok(guesses);
        }
        let _memory = need_for_now(size_of::<f32>() * 2 * self.width)?;
        for &entry in self.entries.iter().take(n) {
            let mut choose = |row: Row| (course.choose)(row, &guesses);
            let wanted = Some(Wanted { want: course.want, choose: &mut choose });
            let (next, _) = step(engine, seq, entry, (&[token], &self.last), wanted)?;
            let Some(next) = next else { break };
            guesses.push(next);
        }
        Ok(guesses)
    }
}
