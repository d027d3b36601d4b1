//! Trees of tokens: several ways in which a sequence may go on, evaluated in one ragged step.

use super::{Batch, Engine, Io, Sink};
use crate::candidates::Want;
use crate::engine::Row;
use crate::error::{Error, Result};
use crate::kv::SeqId;
use crate::reserve::need;

/// Most tokens of a tree.
pub const MOST_TOKENS: usize = 1 << 16;

/// Tokens that follow sequences in several ways.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// Token ids.
    pub tokens: &'a [i32],
    /// The sequence that each of them follows. It is not changed.
    pub seqs: &'a [SeqId],
    /// Index of the token before each, which is an earlier one of the same sequence; -1: the sequence's last token.
    pub parents: &'a [i32],
    /// Indices of the tokens whose rows are wanted.
    pub out_rows: &'a [u32],
}

/// A way through a tree.
struct Branch {
    /// Its tokens, from the first on.
    path: Vec<usize>,
    /// The sequence that has them.
    seq: SeqId,
}

impl Tree<'_> {
    /// How many ways there are through it: tokens that no other follows.
    ///
    /// # Errors
    /// A malformed tree.
    pub fn leaves(&self) -> Result<usize> {
        Ok(self.paths()?.len())
    }

    /// The paths to all tokens that no other follows.
    ///
    /// # Errors
    /// Lists of different lengths; a parent that is no earlier token of the same sequence.
    fn paths(&self) -> Result<Vec<Vec<usize>>> {
        let n = self.tokens.len();
        if self.seqs.len() != n || self.parents.len() != n || n > MOST_TOKENS {
            return Err(Error::invalid(format!(
                "{n} tokens, {} sequence numbers and {} parents; give one of each for every token, and {MOST_TOKENS} \
                 or fewer",
                self.seqs.len(),
                self.parents.len()
            )));
        }
        let mut leaf = vec![true; n];
        for (i, &parent) in self.parents.iter().enumerate().filter(|(_, p)| **p != -1) {
            match usize::try_from(parent).ok().filter(|p| *p < i && self.seqs[*p] == self.seqs[i]) {
                Some(parent) => leaf[parent] = false,
                None => {
                    return Err(Error::invalid(format!(
                        "the parent of token {i} is {parent}: give -1, or the index of an earlier token of its \
                         sequence"
                    )));
                }
            }
        }
        let path = |mut at: usize| {
            let mut path = vec![at];
            while let Ok(parent) = usize::try_from(self.parents[at]) {
                path.push(parent);
                at = parent;
            }
            path.reverse();
            path
        };
        Ok((0..n).filter(|i| leaf[*i]).map(path).collect())
    }
}

impl Engine {
    /// Evaluates a tree by entry `entry` in one step: each way through it is a copy of its sequence, so rows are bit
    /// for bit the rows of the way alone, whatever states the model has. Tokens of several ways are computed for each.
    /// `sink(i, row)` gets the row of each `out_rows[i]`. Returns a sequence for each token that no other follows, in
    /// the order of tokens, which has the tokens up to it: the caller keeps one, and frees the others.
    ///
    /// # Errors
    /// A malformed tree; as [`Engine::run`]. Then there are no new sequences.
    pub fn run_tree(
        &mut self,
        entry: usize,
        tree: &Tree,
        wants: &[Want],
        sink: &mut dyn FnMut(usize, Row),
    ) -> Result<Vec<SeqId>> {
        let paths = tree.paths()?;
        let all: usize = paths.iter().map(Vec::len).sum();
        need(64 * (all + tree.out_rows.len() + paths.len()))?;
        let mut branches = Vec::with_capacity(paths.len());
        let done = self.fork_all(tree, paths, &mut branches).and_then(|()| {
            let step = Ragged::of(tree, &branches)?;
            let batch =
                Batch { tokens: &step.tokens, seqs: &step.seqs, out_rows: &step.out_rows, types: &[], hidden: &[] };
            self.run(entry, Io { batch: &batch, wants, rows: Sink::Each(sink), keep: None, taps: None })
        });
        let seqs: Vec<SeqId> = branches.iter().map(|b| b.seq).collect();
        if let Err(error) = done {
            seqs.into_iter().try_for_each(|seq| self.kv.seq_free(seq))?;
            return Err(error);
        }
        Ok(seqs)
    }

    /// A copy of its sequence for each path.
    fn fork_all(&mut self, tree: &Tree, paths: Vec<Vec<usize>>, branches: &mut Vec<Branch>) -> Result<()> {
        for path in paths {
            let seq = self.kv.fork(tree.seqs[path[0]])?;
            branches.push(Branch { path, seq });
        }
        Ok(())
    }
}

/// A tree as a step of several sequences.
struct Ragged {
    tokens: Vec<i32>,
    seqs: Vec<SeqId>,
    out_rows: Vec<u32>,
}

impl Ragged {
    fn of(tree: &Tree, branches: &[Branch]) -> Result<Ragged> {
        // Where each token of the tree is first.
        let mut first = vec![0u32; tree.tokens.len()];
        let (mut tokens, mut seqs) = (Vec::new(), Vec::new());
        for branch in branches.iter().rev() {
            for &at in branch.path.iter() {
                first[at] = tokens.len() as u32;
                tokens.push(tree.tokens[at]);
                seqs.push(branch.seq);
            }
        }
        let row = |i: &u32| first.get(*i as usize).copied();
        let out_rows: Option<Vec<u32>> = tree.out_rows.iter().map(row).collect();
        let out_rows = out_rows.ok_or_else(|| {
            let n = tree.tokens.len();
            Error::invalid(format!("out_rows has a token beyond the {n} of the tree"))
        })?;
        Ok(Ragged { tokens, seqs, out_rows })
    }
}
