//! States of fixed size.

use super::kind::{Kept, Lifetime, NewKept, ReadState, StateKind, outside, slot};
use crate::eval::EvalError;
use crate::text::{Parsed, Parser};
use std::fmt;

/// A state of fixed size: f32 `[heads, rows, cols]`, zero before the first token. The matrices of a
/// recurrence, or the last inputs of a convolution (one head, a row per input). Text:
/// `state<f32, 4x64x128>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FixedSpec {
    /// Matrices.
    pub heads: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub cols: usize,
}

impl FixedSpec {
    /// Most numbers in one.
    pub const MOST: usize = 1 << 28;

    /// Numbers in it; all there can be if there were more.
    pub const fn len(&self) -> usize {
        self.heads.saturating_mul(self.rows).saturating_mul(self.cols)
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a slot: whole cache lines.
    pub const fn bytes(&self) -> usize {
        self.len().saturating_mul(4).div_ceil(64).saturating_mul(64)
    }
}

impl StateKind for FixedSpec {
    fn lifetime(&self) -> Lifetime {
        Lifetime::Last
    }

    fn bytes(&self) -> usize {
        FixedSpec::bytes(self)
    }

    fn columns(&self) -> usize {
        self.cols
    }

    /// It holds something, and no more than memory can be asked for.
    fn verify(&self) -> Vec<(&'static str, String)> {
        let wrong = self.is_empty() || self.len() > FixedSpec::MOST;
        let message = || format!("{self} does not have between 1 and {} numbers", FixedSpec::MOST);
        if wrong { vec![("state-spec", message())] } else { vec![] }
    }
}

impl ReadState for FixedSpec {
    /// `state<f32, 4x64x128>`
    fn read(p: &mut Parser<'_>) -> Parsed<FixedSpec> {
        p.expect_word("state")?;
        p.expect(b'<')?;
        p.expect_word("f32")?;
        p.expect(b',')?;
        let heads = p.size("`heads x rows x columns`, as in `4x64x128`")?;
        // `4x64x128` is the number 4 and the word `x64x128`.
        let rest = p.peek_word().strip_prefix('x').and_then(|rest| rest.split_once('x'));
        let sizes = rest.and_then(|(rows, cols)| Some((rows.parse().ok()?, cols.parse().ok()?)));
        let Some((rows, cols)) = sizes else {
            return Err(p.unexpected("`x`, rows, `x` and columns, as in `4x64x128`"));
        };
        p.next();
        p.expect(b'>')?;
        Ok(FixedSpec { heads, rows, cols })
    }
}

impl fmt::Display for FixedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state<f32, {}x{}x{}>", self.heads, self.rows, self.cols)
    }
}

/// A state of fixed size by sequence: zeros before the first token.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedState {
    /// Shape.
    pub spec: FixedSpec,
    /// `[heads · rows · cols]` of each sequence; empty: nothing yet.
    seqs: Vec<Vec<f64>>,
}

impl FixedState {
    /// A state without tokens.
    pub fn new(spec: FixedSpec) -> FixedState {
        FixedState { spec, seqs: vec![] }
    }

    /// One more than the largest number of a sequence that has had a token.
    pub fn sequences(&self) -> usize {
        self.seqs.len()
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
}

impl Kept for FixedState {
    fn sequences(&self) -> usize {
        FixedState::sequences(self)
    }

    fn round(&mut self) {
        self.seqs.iter_mut().flatten().for_each(|x| *x = f64::from(*x as f32));
    }

    /// Sequences without a token have zeros.
    fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
        for seq in 0..tables.len().max(self.seqs.len()) {
            let numbers = self.seqs.get(seq).filter(|n| !n.is_empty());
            let Some(to) = slot(tables, seq, self.spec.bytes()).and_then(|at| pool.get_mut(at)) else {
                if numbers.is_some() {
                    return Err(outside(seq));
                }
                continue;
            };
            let at = |i: usize| numbers.and_then(|n| n.get(i)).map_or(0.0, |x| *x as f32);
            let numbers = to.as_chunks_mut().0.iter_mut().take(self.spec.len()).enumerate();
            numbers.for_each(|(i, to)| *to = at(i).to_le_bytes());
        }
        Ok(())
    }
}

impl NewKept<FixedSpec> for FixedState {
    fn empty(spec: FixedSpec) -> FixedState {
        FixedState::new(spec)
    }

    fn from_pool(spec: FixedSpec, tables: &[Vec<u32>], _: &[usize], pool: &[u8]) -> Result<FixedState, EvalError> {
        let mut state = FixedState::new(spec);
        // A sequence without a page has had no token.
        for seq in (0..tables.len()).filter(|seq| !tables[*seq].is_empty()) {
            let from = slot(tables, seq, spec.bytes()).and_then(|at| pool.get(at)).ok_or_else(|| outside(seq))?;
            let numbers = state.of(seq).iter_mut().zip(from.as_chunks().0);
            numbers.for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes).into());
        }
        Ok(state)
    }
}
