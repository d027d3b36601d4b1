//! Draft heads in a row, each with a sequence of its own.

use super::sequence::{Judge, Sequence};
use crate::Error;
use crate::loaded::{GenOptions, Model};

/// Entry `i` of the `k`-th is token `i + 1 + k` with the hidden state of entry `i` of the one before it (of the
/// first: of the model). The sequences have known tokens only: guesses are made on copies.
pub struct Guesser<'a> {
    sequences: Vec<Sequence<'a>>,
}

impl<'a> Guesser<'a> {
    /// The heads among models that take hidden states.
    pub fn new(models: &'a [Model]) -> Result<Guesser<'a>, Error> {
        Ok(Guesser { sequences: models.iter().map(Sequence::new).collect::<Result<_, _>>()? })
    }

    /// `n` tokens after `tokens`; `target` has seen all but the last.
    pub fn guess(&mut self, target: &mut Judge<'a>, tokens: &[i32], n: usize) -> Result<Vec<i32>, Error> {
        let known = target.sequence().len();
        let Some(mut guesses) = self.catch_up(target, tokens)?.map(|token| vec![token]) else { return Ok(vec![]) };
        let mut copies: Vec<Sequence> = vec![];
        while guesses.len() < n {
            let before = copies.last().unwrap_or(&self.sequences[0]);
            let (copy, given) = match self.sequences.get(guesses.len()) {
                Some(head) => (Some(head.fork()?), before.hidden(head.len()..known)),
                // Past the last head, which goes on with its own hidden states.
                None => {
                    let copy = if copies.is_empty() { Some(before.fork()?) } else { None };
                    (copy, before.hidden(before.len() - 1..before.len()))
                }
            };
            let given = given.to_vec();
            copies.extend(copy);
            let Some(copy) = copies.last_mut() else { break };
            let own: Vec<i32> = tokens.iter().chain(&guesses).copied().collect();
            let logits = copy.append(&own[own.len() - given.len() / copy.width()..], &given)?;
            guesses.push(likely(copy, &logits)?);
        }
        // The next round begins behind the known tokens, less one for each head.
        let needed = known.saturating_sub(self.sequences.len() + 1);
        target.sequence().forget_before(needed);
        self.sequences.iter_mut().for_each(|s| s.forget_before(needed));
        Ok(guesses)
    }

    /// Lets the heads see the known tokens; the token that the first expects then.
    fn catch_up(&mut self, target: &mut Judge<'a>, tokens: &[i32]) -> Result<Option<i32>, Error> {
        let (known, mut first) = (target.sequence().len(), None);
        for k in 0..self.sequences.len() {
            let (start, end) = (self.sequences[k].len(), known.saturating_sub(k));
            if start >= end {
                continue;
            }
            let before = if k == 0 { &*target.sequence() } else { &self.sequences[k - 1] };
            let given = before.hidden(start..end).to_vec();
            let head = &mut self.sequences[k];
            let logits = head.append(&tokens[start + 1 + k..end + 1 + k], &given)?;
            if k == 0 {
                first = Some(likely(head, &logits)?);
            }
        }
        Ok(first)
    }
}

/// The most probable token.
fn likely(of: &Sequence, logits: &[f32]) -> Result<i32, Error> {
    of.model().sample(logits, &GenOptions::default(), &[], 0)
}
