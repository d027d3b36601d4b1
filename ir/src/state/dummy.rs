//! The cost of a new kind of state: a line of the table, and this file. It lives as long as a state
//! of fixed size, so the runtime, the artifact and the manifest have it already. Not part of
//! shipped code.

use super::kind::{Kept, Lifetime, NewKept, ReadState, StateKind, outside, slot};
use crate::eval::EvalError;
use crate::text::{Parsed, Parser};
use std::fmt;

/// How many tokens the sequence has had: a u32, zero before the first one, which goes back to zero
/// when it reaches `most`. Text: `tally<u32, most 7>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TallySpec {
    /// One more than the largest number it becomes.
    pub most: usize,
}

impl StateKind for TallySpec {
    fn lifetime(&self) -> Lifetime {
        Lifetime::Last
    }

    fn bytes(&self) -> usize {
        64
    }

    fn columns(&self) -> usize {
        1
    }

    fn verify(&self) -> Vec<(&'static str, String)> {
        let fine = (1..=1 << 20).contains(&self.most);
        if fine { vec![] } else { vec![("state-spec", format!("{self} does not count to 1 up to {}", 1 << 20))] }
    }
}

impl ReadState for TallySpec {
    fn read(p: &mut Parser<'_>) -> Parsed<TallySpec> {
        p.expect_word("tally")?;
        p.expect(b'<')?;
        p.expect_word("u32")?;
        p.expect(b',')?;
        p.expect_word("most")?;
        let most = p.size("how far it counts")?;
        p.expect(b'>')?;
        Ok(TallySpec { most })
    }
}

impl fmt::Display for TallySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tally<u32, most {}>", self.most)
    }
}

/// The numbers of all sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct TallyState {
    /// Shape.
    pub spec: TallySpec,
    seqs: Vec<u32>,
}

impl TallyState {
    /// Counts a token; how many there were before it.
    pub fn count(&mut self, seq: usize) -> u32 {
        if self.seqs.len() <= seq {
            self.seqs.resize(seq + 1, 0);
        }
        let before = self.seqs[seq];
        self.seqs[seq] = if before as usize + 1 >= self.spec.most { 0 } else { before + 1 };
        before
    }
}

impl Kept for TallyState {
    fn sequences(&self) -> usize {
        self.seqs.len()
    }

    fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
        for seq in 0..tables.len() {
            let to = slot(tables, seq, 64).and_then(|at| pool.get_mut(at)).ok_or_else(|| outside(seq))?;
            to[..4].copy_from_slice(&self.seqs.get(seq).copied().unwrap_or(0).to_le_bytes());
        }
        Ok(())
    }
}

impl NewKept<TallySpec> for TallyState {
    fn empty(spec: TallySpec) -> TallyState {
        TallyState { spec, seqs: vec![] }
    }

    fn from_pool(spec: TallySpec, tables: &[Vec<u32>], _: &[usize], pool: &[u8]) -> Result<TallyState, EvalError> {
        let mut seqs = vec![];
        for seq in 0..tables.len() {
            let from = slot(tables, seq, 64).and_then(|at| pool.get(at)).ok_or_else(|| outside(seq))?;
            let number = from.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            seqs.extend(number);
        }
        Ok(TallyState { spec, seqs })
    }
}
