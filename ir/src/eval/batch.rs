//! The tokens of a step, and the arrays that come with them.

use super::{EvalError, Tensor, Value, Wanted};
use crate::graph::Input;
use crate::ty::Env;
use llmcc_abi::AXES;
use std::collections::HashMap;

/// Tokens of one step: any number of sequences, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// `[T]` token ids.
    pub tokens: Vec<i32>,
    /// `[T]` sequence of each token: row of the block table, index in a [`State`](super::State).
    pub seqs: Vec<usize>,
    /// `[T]` position of each token in its sequence.
    pub positions: Vec<i32>,
    /// `[T]` type of each token; tokens beyond the last are of type 0.
    pub types: Vec<i32>,
    /// `[T, hidden]` a row of each token, of a model that takes rows; else nothing.
    pub hidden: Vec<f32>,
    /// `[T, AXES]` positions of each token along the axes; nothing: along all of them its place.
    pub axes: Vec<i32>,
    /// `[T]` where what each token sees ends, in attention that is not causal; nothing: with its sequence.
    pub sees: Vec<usize>,
    /// `[R]` token rows whose logits are wanted.
    pub out_rows: Vec<usize>,
    /// `[R]` candidates requested for each row; rows beyond the last request all, at temperature 1.
    pub wanted: Vec<Wanted>,
}

impl Batch {
    /// Tokens of sequence 0 from position `start`, logits for all of them.
    pub fn single(tokens: &[i32], start: i32) -> Batch {
        let n = tokens.len();
        Batch {
            tokens: tokens.to_vec(),
            seqs: vec![0; n],
            positions: (start..).take(n).collect(),
            out_rows: (0..n).collect(),
            ..Batch::default()
        }
    }

    /// Appends tokens of sequence `seq` from position `start`, with logits for the last one.
    pub fn push(&mut self, seq: usize, tokens: &[i32], start: i32) {
        self.tokens.extend_from_slice(tokens);
        self.seqs.extend(tokens.iter().map(|_| seq));
        self.positions.extend((start..).take(tokens.len()));
        self.out_rows.extend(self.tokens.len().checked_sub(1));
    }

    /// The same batch, in which tokens see no later ones, but all of the tokens `of` that stand together: the rows of
    /// an image see each other.
    pub fn with_runs(self, of: i32) -> Batch {
        let mut sees = vec![0; self.tokens.len()];
        // The token after one, of its sequence: where its run ends, if it is in one.
        let mut after: HashMap<usize, usize> = HashMap::new();
        for (i, seq) in self.seqs.iter().enumerate().rev() {
            let own = self.positions[i].max(0) as usize + 1;
            let inside = self.tokens.get(i) == Some(&of);
            sees[i] = if inside { after.get(seq).copied().unwrap_or(own) } else { own };
            if inside {
                after.insert(*seq, sees[i])
            } else {
                after.remove(seq)
            };
        }
        Batch { sees, ..self }
    }

    /// The type of token `i`.
    pub fn type_of(&self, i: usize) -> i32 {
        self.types.get(i).copied().unwrap_or(0)
    }

    /// The positions of token `i` along the axes.
    pub fn axes_of(&self, i: usize) -> [i32; AXES] {
        match self.axes.get(i * AXES..).and_then(|own| own.first_chunk()) {
            Some(own) => *own,
            None => [self.positions.get(i).copied().unwrap_or(0); AXES],
        }
    }

    /// Columns of the rows that tokens have; 0: they have none.
    pub fn hidden_cols(&self) -> usize {
        self.hidden.len() / self.tokens.len().max(1)
    }

    /// The row of token `i`.
    pub fn hidden_of(&self, i: usize) -> &[f32] {
        let cols = self.hidden_cols();
        self.hidden.get(i * cols..(i + 1) * cols).unwrap_or_default()
    }

    /// `[T]` how long each token's sequence is after the step: one more than the largest position
    /// that any of its tokens here has.
    pub fn ends(&self) -> Vec<i32> {
        let largest = |seq: &usize| {
            let of = self.seqs.iter().zip(&self.positions).filter(|(s, _)| *s == seq);
            of.map(|(_, p)| p.saturating_add(1)).max().unwrap_or(0)
        };
        self.seqs.iter().map(largest).collect()
    }

    /// Values of the symbolic dimensions.
    pub fn env(&self) -> Env {
        Env { tokens: self.tokens.len(), rows: self.out_rows.len() }
    }

    /// Checks that the arrays fit together.
    ///
    /// # Errors
    /// Names the array that does not.
    pub fn check(&self) -> Result<(), EvalError> {
        let t = self.tokens.len();
        if self.seqs.len() != t || self.positions.len() != t {
            return Err(EvalError::batch(format!(
                "{t} tokens, {} sequences, {} positions",
                self.seqs.len(),
                self.positions.len()
            )));
        }
        if !self.axes.is_empty() && self.axes.len() != t * AXES {
            return Err(EvalError::batch(format!("{t} tokens, {} positions along {AXES} axes", self.axes.len())));
        }
        if let Some(p) = self.positions.iter().chain(&self.axes).find(|p| **p < 0) {
            return Err(EvalError::batch(format!("negative position {p}")));
        }
        if let Some(r) = self.out_rows.iter().find(|r| **r >= t) {
            return Err(EvalError::batch(format!("logits row {r} of {t} tokens")));
        }
        Ok(())
    }

    /// The values of an input array.
    pub fn input(&self, input: Input) -> Value {
        Value::tensor(match input {
            Input::Tokens => Tensor::ints(self.tokens.iter().copied()),
            Input::Positions => Tensor::ints(self.positions.iter().copied()),
            Input::Types => Tensor::ints((0..self.tokens.len()).map(|i| self.type_of(i))),
            Input::Axes => Tensor {
                shape: vec![self.tokens.len(), AXES],
                data: (0..self.tokens.len()).flat_map(|i| self.axes_of(i).map(f64::from)).collect(),
            },
            Input::OutRows => Tensor::ints(self.out_rows.iter().map(|r| *r as i32)),
            Input::Given => Tensor {
                shape: vec![self.tokens.len(), self.hidden_cols()],
                data: self.hidden.iter().map(|x| f64::from(*x)).collect(),
            },
        })
    }
}
