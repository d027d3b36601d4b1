//! States of sequences, of any kind.

use super::EvalError;
use super::kv::KvState;
use crate::state::{FixedSpec, StateSpec};

/// A state of every sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Keys and values.
    Paged(KvState),
    /// Numbers of a fixed count.
    Fixed(FixedState),
}

/// A state of fixed size by sequence: zeros before the first token.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedState {
    /// Shape.
    pub spec: FixedSpec,
    /// `[heads · rows · cols]` of each sequence; empty: nothing yet.
    seqs: Vec<Vec<f64>>,
}

impl State {
    /// A state without tokens.
    pub fn new(spec: StateSpec) -> State {
        match spec {
            StateSpec::Paged(kv) => State::Paged(KvState::new(kv)),
            StateSpec::Fixed(fixed) => State::Fixed(FixedState::new(fixed)),
        }
    }

    /// What it is.
    pub fn spec(&self) -> StateSpec {
        match self {
            State::Paged(kv) => StateSpec::Paged(kv.spec),
            State::Fixed(fixed) => StateSpec::Fixed(fixed.spec),
        }
    }
}

impl FixedState {
    /// A state without tokens.
    pub fn new(spec: FixedSpec) -> FixedState {
        FixedState { spec, seqs: vec![] }
    }

    /// The numbers of a sequence, to change them.
    pub fn of(&mut self, seq: usize) -> &mut [f64] {
        if self.seqs.len() <= seq {
            self.seqs.resize(seq + 1, vec![]);
        }
        let numbers = &mut self.seqs[seq];
        numbers.resize(self.spec.len(), 0.0);
        numbers
    }

    /// One more than the largest number of a sequence that has had a token.
    pub fn sequences(&self) -> usize {
        self.seqs.len()
    }

    /// Rounds every number to f32, as memory holds them.
    pub(super) fn round(&mut self) {
        self.seqs.iter_mut().flatten().for_each(|x| *x = f64::from(*x as f32));
    }

    /// Writes the state into a pool of slots, `slots[s]` being that of sequence `s`.
    ///
    /// # Errors
    /// A sequence has no slot, or one outside the pool.
    pub fn to_slots(&self, slots: &[u32], pool: &mut [u8]) -> Result<(), EvalError> {
        for (seq, numbers) in self.seqs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let to = self.place(seq, slots).and_then(|at| pool.get_mut(at)).ok_or_else(|| outside(seq))?;
            for (to, x) in to.as_chunks_mut().0.iter_mut().zip(numbers) {
                *to = (*x as f32).to_le_bytes();
            }
        }
        Ok(())
    }

    /// Reads the states of as many sequences as there are `slots` from a pool.
    ///
    /// # Errors
    /// A slot outside the pool.
    pub fn from_slots(spec: FixedSpec, slots: &[u32], pool: &[u8]) -> Result<FixedState, EvalError> {
        let mut state = FixedState::new(spec);
        for seq in 0..slots.len() {
            let from = state.place(seq, slots).and_then(|at| pool.get(at)).ok_or_else(|| outside(seq))?;
            let numbers = state.of(seq).iter_mut().zip(from.as_chunks().0);
            numbers.for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes).into());
        }
        Ok(state)
    }

    fn place(&self, seq: usize, slots: &[u32]) -> Option<std::ops::Range<usize>> {
        let start = (*slots.get(seq)? as usize).checked_mul(self.spec.bytes())?;
        Some(start..start.checked_add(self.spec.bytes())?)
    }
}

fn outside(seq: usize) -> EvalError {
    EvalError::batch(format!("sequence {seq} has no slot in the pool"))
}
