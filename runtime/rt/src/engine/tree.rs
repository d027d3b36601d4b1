//! Trees of tokens: several ways in which a sequence may go on, evaluated in one ragged step.

use std::iter::successors;

use super::{Batch, Engine, Io, Sink};
use crate::candidates::Want;
use crate::error::{Error, Result};
use crate::kv::SeqId;
use crate::reserve::need;

/// Tokens that follow sequences in several ways.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    tokens: &'a [i32],
    seqs: &'a [SeqId],
    /// The path to each token that no other follows, from its first token on.
    paths: Vec<Vec<usize>>,
}

/// A way through a tree.
struct Branch<'a> {
    /// Its tokens, from the first on.
    path: &'a [usize],
    /// The sequence that has them.
    seq: SeqId,
}

impl<'a> Tree<'a> {
    /// Most tokens of a tree.
    pub const MOST_TOKENS: usize = 1 << 16;

    /// A tree of tokens, each of which follows a sequence (`seqs`), which is not changed. `parents` are the indices of
    /// the tokens before, which are earlier ones of the same sequence; -1: the sequence's last token.
    ///
    /// # Errors
    /// Lists of different lengths, or longer than [`Tree::MOST_TOKENS`]; a parent that is no earlier token of the same
    /// sequence; no memory.
    pub fn new(tokens: &'a [i32], seqs: &'a [SeqId], parents: &[i32]) -> Result<Tree<'a>> {
        let n = tokens.len();
        if seqs.len() != n || parents.len() != n || n > Self::MOST_TOKENS {
            return Err(Error::invalid(format!(
                "{n} tokens, {} sequence numbers and {} parents; give one of each for every token, and {} \
                 or fewer",
                seqs.len(),
                parents.len(),
                Self::MOST_TOKENS
            )));
        }
        need(64 * n)?;
        let (mut leaf, mut depth) = (vec![true; n], vec![1usize; n]);
        for (i, &parent) in parents.iter().enumerate().filter(|(_, p)| **p != -1) {
            let Some(parent) = usize::try_from(parent).ok().filter(|p| *p < i && seqs[*p] == seqs[i]) else {
                return Err(Error::invalid(format!(
                    "the parent of token {i} is {parent}: give -1, or the index of an earlier token of its sequence"
                )));
            };
            leaf[parent] = false;
            depth[i] = depth[parent] + 1;
        }
        let leaves = || (0..n).filter(|i| leaf[*i]);
        // (Lists grow by doubling.)
        need(16 * leaves().map(|i| depth[i]).sum::<usize>())?;
        let path = |leaf: usize| {
            let before = |at: &usize| usize::try_from(parents[*at]).ok();
            let mut path: Vec<usize> = successors(Some(leaf), before).collect();
            path.reverse();
            path
        };
        Ok(Tree { tokens, seqs, paths: leaves().map(path).collect() })
    }

    /// How many ways there are through it: tokens that no other follows.
    pub fn ways(&self) -> usize {
        self.paths.len()
    }
}

impl Engine {
    /// Evaluates a tree by entry `entry` in one step: each way through it is a copy of its sequence, so rows are bit
    /// for bit the rows of the way alone, whatever states the model has. Tokens of several ways are computed for each.
    /// `rows` gets the row of each token whose index `out_rows` has. Returns a sequence for each token that no other
    /// follows, in the order of tokens, which has the tokens up to it: the caller keeps one, and frees the others.
    ///
    /// # Errors
    /// As [`Engine::run`]. Then there are no new sequences.
    pub fn run_tree(
        &mut self,
        entry: usize,
        tree: &Tree,
        out_rows: &[u32],
        wants: &[Want],
        rows: Sink,
    ) -> Result<Vec<SeqId>> {
        let all: usize = tree.paths.iter().map(Vec::len).sum();
        need(64 * (all + out_rows.len() + tree.ways()))?;
        let mut branches = Vec::with_capacity(tree.ways());
        let done = self.fork_all(tree, &mut branches).and_then(|()| {
            let step = Ragged::of(tree, &branches, out_rows)?;
            let batch = Batch { tokens: &step.tokens, seqs: &step.seqs, out_rows: &step.out_rows, ..Batch::default() };
            self.run(entry, Io { batch: &batch, wants, rows, keep: None, taps: None })
        });
        let seqs: Vec<SeqId> = branches.iter().map(|b| b.seq).collect();
        if let Err(error) = done {
            seqs.into_iter().try_for_each(|seq| self.kv.seq_free(seq))?;
            return Err(error);
        }
        Ok(seqs)
    }

    /// A copy of its sequence for each path.
    fn fork_all<'a>(&mut self, tree: &'a Tree, branches: &mut Vec<Branch<'a>>) -> Result<()> {
        for path in &tree.paths {
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
    fn of(tree: &Tree, branches: &[Branch], wanted: &[u32]) -> Result<Ragged> {
        // Where each token of the tree is first.
        let mut first = vec![0u32; tree.tokens.len()];
        let (mut tokens, mut seqs) = (Vec::new(), Vec::new());
        for branch in branches.iter().rev() {
            for &at in branch.path {
                first[at] = tokens.len() as u32;
                tokens.push(tree.tokens[at]);
                seqs.push(branch.seq);
            }
        }
        let row = |i: &u32| first.get(*i as usize).copied();
        let out_rows: Option<Vec<u32>> = wanted.iter().map(row).collect();
        let out_rows = out_rows.ok_or_else(|| {
            let n = tree.tokens.len();
            Error::invalid(format!("out_rows has a token beyond the {n} of the tree"))
        })?;
        Ok(Ragged { tokens, seqs, out_rows })
    }
}
