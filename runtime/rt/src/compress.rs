//! Prompts made shorter: tokens that a model foresees are left out (LLMLingua, Jiang et al., arXiv 2310.05736,
//! section 4.2: iterative compression by tokens).
//!
//! A text is taken in segments. The model says for each token of a segment how little it foresaw it after the tokens
//! *kept* so far and the segment's tokens before it: its self-information, `-ln p`. Of each segment those with the most
//! are kept, as many as the share says. LLMLingua's budget controller gives parts of a prompt (instruction,
//! demonstrations, question) shares of their own; here a text has one share, and a caller compresses the parts it wants
//! to.

use std::ops::Range;

use crate::candidates::Want;
use crate::engine::{Batch, Engine, Row};
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use crate::logprob::LogProbs;
use crate::reserve::need;

/// Tokens of a segment, as in LLMLingua's code.
pub const SEGMENT: usize = 200;

/// A text to compress.
pub struct Prompt<'a> {
    /// Its tokens.
    pub tokens: &'a [i32],
    /// The first so many stand before the text: they are kept, and count as none of it.
    pub context: usize,
    /// The share of the text's tokens to keep, above 0 and up to 1. Kept are this share of the first tokens up to the
    /// end of each segment, rounded to the nearest number (a half up), and more where more are forced.
    pub share: f64,
}

/// Decides which tokens of a prompt are kept: `keep[i]`, which is true before where a token must be. Returns the
/// self-information of each token in nats, infinite for a first one, which nothing stands before; 0 for those of the
/// context.
///
/// Where the model's longest context has no room for the kept tokens and a segment, the last ones of the kept are its
/// context, at least half as many as there is room for.
///
/// # Errors
/// The share is not one; a token outside the vocabulary; the model writes no text, or writes it about sources; the
/// cache is full; the machine fails.
pub fn compress(engine: &mut Engine, prompt: &Prompt, keep: &mut [bool]) -> Result<Vec<f64>> {
    let n = prompt.tokens.len();
    engine.need_text()?;
    if engine.has_source() {
        return Err(Error::new(
            Status::Unsupported,
            "this model writes about sources: prompts are scored by one that \
            goes on with them",
        ));
    }
    if !(prompt.share > 0.0 && prompt.share <= 1.0) {
        let message = format!("the share of tokens to keep is {}; use a number above 0 and up to 1", prompt.share);
        return Err(Error::invalid(message));
    }
    if prompt.context > n || keep.len() != n {
        return Err(Error::invalid(format!("the context is {} of {n} tokens", prompt.context)));
    }
    let (vocab, longest) = (engine.image().desc().vocab, engine.kv().max_context());
    if let Some((i, token)) = prompt.tokens.iter().enumerate().find(|(_, t)| **t < 0 || **t as u64 >= vocab) {
        return Err(Error::invalid(format!("token {token} at index {i} is outside the vocabulary of {vocab}")));
    }
    if longest < 2 {
        return Err(Error::new(Status::Unsupported, "the model has no room for two tokens"));
    }
    need(64 * n + 64 * vocab as usize)?;
    let seq = engine.kv_mut().seq_new()?;
    let scorer = Scorer { seq, seen: 0, longest };
    let done = segments(engine, scorer, prompt, keep);
    engine.kv_mut().seq_free(seq)?;
    done
}

/// Scores and chooses segment by segment.
fn segments(engine: &mut Engine, mut scorer: Scorer, prompt: &Prompt, keep: &mut [bool]) -> Result<Vec<f64>> {
    let (n, start) = (prompt.tokens.len(), prompt.context);
    let mut information = vec![0.0; start];
    information.reserve(n - start);
    keep[..start].fill(true);
    let mut kept = prompt.tokens[..start].to_vec();
    kept.reserve(n - start);
    let size = SEGMENT.min(scorer.longest / 2);
    for from in (start..n).step_by(size) {
        let part = from..n.min(from + size);
        scorer.score(engine, &kept, &prompt.tokens[part.clone()], &mut information)?;
        let wanted = (prompt.share * (part.end - start) as f64).round() as usize;
        choose(&information, part.clone(), wanted.saturating_sub(kept.len() - start), keep);
        kept.extend(part.filter(|i| keep[*i]).map(|i| prompt.tokens[i]));
    }
    Ok(information)
}

/// Keeps `most` tokens of a segment: the forced ones, and of the others those with the most information, the first ones
/// of equals.
fn choose(information: &[f64], part: Range<usize>, most: usize, keep: &mut [bool]) {
    let (forced, mut others): (Vec<usize>, Vec<usize>) = part.partition(|i| keep[*i]);
    others.sort_by(|a, b| information[*b].total_cmp(&information[*a]));
    others.into_iter().take(most.saturating_sub(forced.len())).for_each(|i| keep[i] = true);
}

/// The kept tokens in a sequence of the model.
struct Scorer {
    seq: SeqId,
    /// Index of the first kept token that the sequence has.
    seen: usize,
    /// Tokens that a sequence may have.
    longest: usize,
}

impl Scorer {
    /// Appends the self-information of a segment's tokens after the kept ones.
    fn score(&mut self, engine: &mut Engine, kept: &[i32], part: &[i32], information: &mut Vec<f64>) -> Result<()> {
        let room = self.longest.saturating_sub(part.len());
        if kept.len() - self.seen > room {
            engine.kv_mut().truncate(self.seq, 0)?;
            self.seen = kept.len() - room.div_ceil(2);
        }
        let Some((last, before)) = kept[self.seen..].split_last() else {
            // Nothing stands before the first token.
            information.push(f64::INFINITY);
            return self.follow(engine, part, &part[1..], information);
        };
        let there = engine.kv().tokens(self.seq)?.len();
        let new = &before[there..];
        if !new.is_empty() {
            let seqs = vec![self.seq; new.len()];
            engine.step(&Batch { tokens: new, seqs: &seqs, ..Batch::default() }, &mut |_, _| ())?;
        }
        let text = [&[*last], part].concat();
        self.follow(engine, &text, part, information)
    }

    /// Appends the self-information of tokens, the last ones of `text`, each after the sequence and those before it.
    fn follow(&self, engine: &mut Engine, text: &[i32], tokens: &[i32], information: &mut Vec<f64>) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let fork = engine.kv_mut().fork(self.seq)?;
        let (text, seqs) = (&text[..text.len() - 1], vec![fork; text.len() - 1]);
        let out_rows: Vec<u32> = (0..tokens.len() as u32).map(|i| (text.len() - tokens.len()) as u32 + i).collect();
        let mut failed = Ok(());
        let mut judge = |i: usize, mut row: Row| {
            let judged = row.values().and_then(LogProbs::new).map(|all| -all.of(tokens[i]).unwrap_or(f64::NAN));
            match judged {
                Ok(nats) => information.push(nats),
                Err(error) => failed = Err(error),
            }
        };
        let batch = Batch { tokens: text, seqs: &seqs, out_rows: &out_rows, ..Batch::default() };
        let done = engine.step_for(&batch, &vec![Want::Logits; out_rows.len()], &mut judge);
        engine.kv_mut().seq_free(fork)?;
        done.and(failed)
    }
}
