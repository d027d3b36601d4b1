//! States of sequences, of any kind.

use super::EvalError;
use super::kv::KvState;
use super::scalar::dot;
use crate::quant::{Format, pack_block};
use crate::state::{AdapterSpec, FixedSpec, StateSpec};

/// A state of every sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Keys and values.
    Paged(KvState),
    /// Numbers of a fixed count.
    Fixed(FixedState),
    /// A matrix of adapters.
    Adapter(AdapterState),
}

/// A state of fixed size by sequence: zeros before the first token.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedState {
    /// Shape.
    pub spec: FixedSpec,
    /// `[heads · rows · cols]` of each sequence; empty: nothing yet.
    seqs: Vec<Vec<f64>>,
}

/// A matrix of adapters by sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterState {
    /// Shape.
    pub spec: AdapterSpec,
    /// `[n · k]` of the adapter of each sequence; empty, or beyond the last: it has none.
    seqs: Vec<Vec<f64>>,
}

impl AdapterState {
    /// No sequence has an adapter.
    pub fn new(spec: AdapterSpec) -> AdapterState {
        AdapterState { spec, seqs: vec![] }
    }

    /// Gives a sequence an adapter with this matrix `[n, k]`, row by row: what bf16 holds.
    pub fn set(&mut self, seq: usize, matrix: Vec<f64>) {
        if self.seqs.len() <= seq {
            self.seqs.resize(seq + 1, vec![]);
        }
        self.seqs[seq] = matrix;
    }

    /// One more than the largest number of a sequence that has an adapter.
    pub fn sequences(&self) -> usize {
        self.seqs.len()
    }

    /// Writes the matrices into a pool of slots, `slots[s]` being that of sequence `s`, which is not
    /// 0, packed as [`Format::BF16`].
    ///
    /// # Errors
    /// A sequence with an adapter has no slot, or one outside the pool.
    pub fn to_slots(&self, slots: &[u32], pool: &mut [u8]) -> Result<(), EvalError> {
        let (AdapterSpec { n, k, .. }, bytes) = (self.spec, self.spec.bytes());
        for seq in 0..self.seqs.len() {
            let Some(matrix) = self.of(seq) else { continue };
            let slot = slots.get(seq).filter(|slot| **slot > 0).and_then(|slot| (*slot as usize).checked_mul(bytes));
            let to = slot.and_then(|at| pool.get_mut(at..at.checked_add(bytes)?)).ok_or_else(|| outside(seq))?;
            let blocks = to.chunks_exact_mut(bytes / (n / AdapterSpec::BLOCK).max(1));
            for (rows, to) in matrix.chunks_exact(AdapterSpec::BLOCK * k).zip(blocks) {
                let rows: Vec<f32> = rows.iter().map(|x| *x as f32).collect();
                pack_block(Format::BF16, &rows, k, to).map_err(|_| outside(seq))?;
            }
        }
        Ok(())
    }

    /// The matrix of a sequence, if it has one.
    pub fn of(&self, seq: usize) -> Option<&[f64]> {
        self.seqs.get(seq).map(Vec::as_slice).filter(|m| m.len() == self.spec.n * self.spec.k)
    }
}

/// A row times the matrix of its sequence's adapter by parts: see `adapter_matmul` of the graph
/// level.
pub(crate) fn adapted(state: &AdapterState, seq: usize, x: &[f64], parts: &[usize]) -> Vec<f64> {
    let AdapterSpec { n, k, .. } = state.spec;
    let Some(matrix) = state.of(seq) else { return vec![0.0; n] };
    let mut rows = matrix.chunks_exact(k);
    let inputs = x.chunks_exact(k).zip(parts);
    inputs.flat_map(|(x, part)| rows.by_ref().take(*part).map(|w| dot(x, w)).collect::<Vec<f64>>()).collect()
}

impl State {
    /// A state without tokens.
    pub fn new(spec: StateSpec) -> State {
        match spec {
            StateSpec::Paged(kv) => State::Paged(KvState::new(kv)),
            StateSpec::Fixed(fixed) => State::Fixed(FixedState::new(fixed)),
            StateSpec::Adapter(adapter) => State::Adapter(AdapterState::new(adapter)),
        }
    }

    /// What it is.
    pub fn spec(&self) -> StateSpec {
        match self {
            State::Paged(kv) => StateSpec::Paged(kv.spec),
            State::Fixed(fixed) => StateSpec::Fixed(fixed.spec),
            State::Adapter(adapter) => StateSpec::Adapter(adapter.spec),
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
