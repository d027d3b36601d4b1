//! Sequences of a model or a head, with the hidden states that the next head takes.

use crate::Error;
use crate::loaded::Model;
use std::ops::Range;

/// A sequence that is freed with its last use.
struct Owned<'a> {
    model: &'a Model,
    seq: i32,
}

impl<'a> Owned<'a> {
    fn new(model: &'a Model) -> Result<Owned<'a>, Error> {
        Ok(Owned { model, seq: model.seq_new()? })
    }

    fn fork(&self) -> Result<Owned<'a>, Error> {
        Ok(Owned { model: self.model, seq: self.model.seq_fork(self.seq)? })
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // The sequence exists, and nothing else can be wrong with freeing it.
        let _ = self.model.seq_free(self.seq);
    }
}

/// A sequence of a model, and the hidden states of its last tokens.
pub struct Sequence<'a> {
    own: Owned<'a>,
    length: usize,
    /// Hidden states of the last tokens, `[tokens, hidden]`.
    hidden: Vec<f32>,
}

impl<'a> Sequence<'a> {
    /// One without tokens.
    pub fn new(model: &'a Model) -> Result<Sequence<'a>, Error> {
        Ok(Sequence { own: Owned::new(model)?, length: 0, hidden: vec![] })
    }

    /// A copy that goes its own way.
    pub fn fork(&self) -> Result<Sequence<'a>, Error> {
        Ok(Sequence { own: self.own.fork()?, length: self.length, hidden: self.hidden.clone() })
    }

    /// Its model.
    pub fn model(&self) -> &'a Model {
        self.own.model
    }

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Appends tokens, each with a hidden state if it takes one; the logits after the last.
    pub fn append(&mut self, tokens: &[i32], given: &[f32]) -> Result<Vec<f32>, Error> {
        let n = tokens.len();
        self.step((tokens, given), &vec![self.own.seq; n], n.saturating_sub(1)..n, 0..n)
    }

    /// A step of this sequence and maybe another: the tokens `new` are new to this one; the logits
    /// after the tokens `rows`.
    fn step(
        &mut self,
        given: (&[i32], &[f32]),
        seqs: &[i32],
        rows: Range<usize>,
        new: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        let rows: Vec<u32> = rows.map(|i| i as u32).collect();
        let (logits, left) = self.model().step_given(given, seqs, &rows)?;
        let width = self.width();
        self.length += new.len();
        self.hidden.extend(&left[new.start * width..new.end * width]);
        Ok(logits)
    }

    /// Columns of a hidden state.
    pub fn width(&self) -> usize {
        self.model().info().hidden
    }

    /// Index of the first token whose hidden state is kept.
    fn first(&self) -> usize {
        self.length - self.hidden.len() / self.width().max(1)
    }

    /// The hidden states of tokens, all still kept.
    pub fn hidden(&self, tokens: Range<usize>) -> &[f32] {
        let (first, width) = (self.first(), self.width());
        &self.hidden[(tokens.start - first) * width..(tokens.end - first) * width]
    }

    /// Hidden states that nothing reads any more.
    pub fn forget_before(&mut self, token: usize) {
        let forgotten = token.saturating_sub(self.first());
        self.hidden.drain(..forgotten * self.width());
    }
}

/// The sequence of the model: one that can go back, whatever its states are.
pub struct Judge<'a> {
    sequence: Sequence<'a>,
    /// A copy of the sequence before the tokens of the last step that were new.
    before: Option<Owned<'a>>,
    /// Tokens that the sequence has to see again, since it went back to that copy.
    again: Vec<i32>,
    /// Tokens that were new in the last step that had guesses.
    judged: usize,
}

impl<'a> Judge<'a> {
    /// One without tokens, with an adapter (0: none).
    pub fn new(model: &'a Model, adapter: i32) -> Result<Judge<'a>, Error> {
        let sequence = Sequence::new(model)?;
        if adapter != 0 {
            model.seq_set_adapter(sequence.own.seq, adapter)?;
        }
        Ok(Judge { sequence, before: None, again: vec![], judged: 0 })
    }

    /// The sequence, with its kept states.
    pub fn sequence(&mut self) -> &mut Sequence<'a> {
        &mut self.sequence
    }

    /// Appends known tokens; the logits after the last.
    pub fn append(&mut self, tokens: &[i32]) -> Result<Vec<f32>, Error> {
        let again = std::mem::take(&mut self.again);
        let all = [&again, tokens].concat();
        let (n, seqs) = (all.len(), vec![self.sequence.own.seq; all.len()]);
        self.sequence.step((&all, &[]), &seqs, n.saturating_sub(1)..n, again.len()..n)
    }

    /// Appends tokens, some of them guesses; the logits after each. Then [`Judge::keep`] says which
    /// are right.
    pub fn look(&mut self, tokens: &[i32]) -> Result<Vec<f32>, Error> {
        let before = self.sequence.own.fork()?;
        let again = std::mem::take(&mut self.again);
        // The copy sees those tokens again, too, so that they are never more than one step's.
        let n = again.len() + tokens.len();
        let seqs = [vec![self.sequence.own.seq; n], vec![before.seq; again.len()]].concat();
        let all = [&again, tokens, &again].concat();
        self.before = Some(before);
        self.judged = tokens.len();
        self.sequence.step((&all, &[]), &seqs, again.len()..n, again.len()..n)
    }

    /// Forgets all tokens of the last step but these, its first that were new.
    pub fn keep(&mut self, tokens: &[i32]) {
        let Some(before) = self.before.take() else { return };
        let sequence = &mut self.sequence;
        let kept = sequence.length - (self.judged - tokens.len());
        if kept == sequence.length {
            return;
        }
        if sequence.model().seq_truncate(sequence.own.seq, kept).is_err() {
            // A recurrent state, or a window that has moved on: the state before the step is at
            // hand.
            sequence.own = before;
            self.again = tokens.to_vec();
        }
        let forgotten = (sequence.length - kept) * sequence.width();
        sequence.hidden.truncate(sequence.hidden.len() - forgotten);
        sequence.length = kept;
    }
}
