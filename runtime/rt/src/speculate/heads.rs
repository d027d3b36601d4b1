//! Guesses of a model's own draft heads (DeepSeek-V3, arXiv 2412.19437, section 2.2), which are entries of the same
//! artifact.
//!
//! The model leaves a hidden state, a *row*, of each token. Entry `j` of head 0 is row `j` with the token after it, and
//! predicts the token after that one. Entry `j` of head `k` is the row that head `k - 1` left of its entry `j` with the
//! token `k + 1` places after the row's. Each head has a track of its own in the sequence, in which entries of known
//! tokens stay; entries of guesses are taken back.

use llmcc_abi::output::kind;

use super::course::Course;
use crate::candidates::Want;
use crate::engine::{Batch, Engine, Io, Keep, Row, Sink};
use crate::error::Result;
use crate::image::{Entry, Image};
use crate::kv::SeqId;
use crate::reserve::need_for_now;

/// Rows of the model that may wait before the first head takes them.
const WAITING: usize = 256;

/// The draft heads of a model, in order, for one sequence.
pub struct Heads {
    heads: Vec<Head>,
    /// Columns of a row.
    width: usize,
    /// Index in the text of the token that the first row is of.
    first: usize,
    /// Rows of the model so far.
    seen: usize,
}

/// A draft head.
struct Head {
    entry: usize,
    track: usize,
    /// Entries in its track.
    len: usize,
    /// Rows of entry `len` and those behind, which it has not taken.
    rows: Vec<f32>,
    /// The row of the first entry that it took with a guess.
    again: Vec<f32>,
}

impl Heads {
    /// The draft heads of a model; `None` where it has none.
    pub fn of(image: &Image) -> Option<Heads> {
        let takes_kept = |e: &Entry| e.given > 0 && e.given == e.kept();
        let is_head = |e: &Entry| takes_kept(e) && e.kind() == kind::LOGITS && e.track > 0;
        let entries = image.entries.iter().enumerate().filter(|(_, e)| is_head(e));
        let heads: Vec<Head> = entries
            .map(|(entry, e)| Head { entry, track: e.track, len: 0, rows: Vec::new(), again: Vec::new() })
            .collect();
        let width = image.step().kept();
        (width > 0 && !heads.is_empty()).then_some(Heads { heads, width, first: 0, seen: 0 })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.heads.len()
    }

    /// Forgets everything: the heads begin anew with the next rows.
    pub fn restart(&mut self, engine: &mut Engine, seq: SeqId) -> Result<()> {
        self.seen = 0;
        for head in &mut self.heads {
            head.len = 0;
            head.rows.clear();
            head.again.clear();
            engine.kv_mut().truncate_track(seq, head.track, 0)?;
        }
        Ok(())
    }

    /// Whether the sequence has the entries of all heads: else it was cut meanwhile.
    fn is_there(&self, engine: &Engine, seq: SeqId) -> Result<bool> {
        for head in &self.heads {
            if engine.kv().track_len(seq, head.track)? != head.len {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Most bytes that the heads take for `tokens` more rows: the lists of rows that wait, which grow by doubling, a
    /// copy of the rows that a head takes, and the rows that it leaves.
    fn bytes(&self, tokens: usize) -> usize {
        let waiting: usize = self.heads.iter().map(|head| head.rows.len()).sum();
        let floats = waiting + (tokens + 1) * self.width;
        size_of::<f32>() * 2 * (self.heads.len() + 1) * floats
    }

    /// Takes the model's rows of the tokens from `at` on.
    pub fn take(
        &mut self,
        engine: &mut Engine,
        seq: SeqId,
        (at, rows): (usize, &[f32]),
        history: &[i32],
    ) -> Result<()> {
        if self.seen == 0 || at != self.first + self.seen || !self.is_there(engine, seq)? {
            self.restart(engine, seq)?;
            self.first = at;
        }
        let tokens = rows.len() / self.width;
        let _memory = need_for_now(self.bytes(tokens))?;
        self.seen += tokens;
        self.heads[0].rows.extend_from_slice(rows);
        if self.seen - self.heads[0].len <= WAITING {
            return Ok(());
        }
        // Heads have to see long prompts, and texts that are not guessed; nothing is chosen then. The last entry waits
        // for a guess.
        let known = history.len().saturating_sub(self.first + 1).min(self.seen).saturating_sub(1);
        for k in 0..self.heads.len() {
            self.run(engine, seq, (k, known.saturating_sub(k)), history, None)?;
        }
        Ok(())
    }

    /// Up to `n` guesses after a course. The model has seen all its tokens but the last.
    pub fn guess(&mut self, engine: &mut Engine, seq: SeqId, course: &Course, n: usize) -> Result<Vec<i32>> {
        let (known, start) = (self.seen, course.history.len());
        if known == 0 || self.first + known + 1 != start || !self.is_there(engine, seq)? {
            return Ok(Vec::new());
        }
        // (The copy of the text grows by doubling.)
        let _memory = need_for_now(self.bytes(n) + 16 * start)?;
        let (mut text, mut own) = (course.history.to_vec(), Vec::new());
        for k in 0..n {
            let mut choose = |row: Row| (course.choose)(row, &text[start..]);
            let wanted = Some(Wanted { want: course.want, choose: &mut choose });
            let (next, left) = match k < self.heads.len() {
                true => self.run(engine, seq, (k, known), &text, wanted)?,
                false => self.go_on(engine, seq, (text[text.len() - 1], &own), wanted)?,
            };
            let Some(token) = next else { break };
            text.push(token);
            own = left;
        }
        self.forget_guesses(engine, seq)?;
        Ok(text.split_off(start))
    }

    /// Takes head `k` to `to` entries. Returns the token that it expects after the last one, if that is wanted and
    /// there was an entry to take; and the row that it left of it.
    fn run(
        &mut self,
        engine: &mut Engine,
        seq: SeqId,
        (k, to): (usize, usize),
        text: &[i32],
        wanted: Option<Wanted>,
    ) -> Result<(Option<i32>, Vec<f32>)> {
        let (shift, width, known) = (self.first + 1 + k, self.width, self.seen.saturating_sub(k));
        let head = &mut self.heads[k];
        let count = to.saturating_sub(head.len);
        let tokens = text.get(shift + head.len..shift + to).unwrap_or_default();
        if tokens.is_empty() || head.rows.len() < count * width {
            return Ok((None, Vec::new()));
        }
        let rows: Vec<f32> = head.rows.drain(..count * width).collect();
        // The row of the first entry that is to be taken back: its token is a guess.
        let guessed = (known.max(head.len) - head.len) * width;
        head.again = rows.get(guessed..guessed + width).map(<[f32]>::to_vec).unwrap_or_default();
        let (next, mut left) = step(engine, seq, head.entry, (tokens, &rows), wanted)?;
        head.len += count;
        let last = left.len() - width;
        if let Some(after) = self.heads.get_mut(k + 1) {
            after.rows.extend_from_slice(&left);
        }
        Ok((next, left.split_off(last)))
    }

    /// One more entry of the last head: a guess with the row that the head left before it.
    fn go_on(
        &mut self,
        engine: &mut Engine,
        seq: SeqId,
        (token, row): (i32, &[f32]),
        wanted: Option<Wanted>,
    ) -> Result<(Option<i32>, Vec<f32>)> {
        let last = self.heads.len() - 1;
        let head = &mut self.heads[last];
        let done = step(engine, seq, head.entry, (&[token], row), wanted)?;
        head.len += 1;
        Ok(done)
    }

    /// Takes back the entries and rows that follow from guesses.
    fn forget_guesses(&mut self, engine: &mut Engine, seq: SeqId) -> Result<()> {
        let mut before = self.seen;
        for (k, head) in self.heads.iter_mut().enumerate() {
            let known = self.seen.saturating_sub(k);
            if head.len > known {
                engine.kv_mut().truncate_track(seq, head.track, known)?;
                (head.len, head.rows) = (known, std::mem::take(&mut head.again));
            }
            // Rows of entries that the head before has for good.
            head.rows.truncate((before - head.len) * self.width);
            before = head.len;
        }
        Ok(())
    }
}

/// The row after a step's last token, and the choice from it.
pub(super) struct Wanted<'a> {
    /// The request for it.
    pub want: Want,
    /// The choice.
    pub choose: &'a mut dyn FnMut(Row) -> Result<i32>,
}

/// Takes tokens with their rows through a head. Returns the choice after the last one, if it is wanted, and the rows
/// that the head leaves, if it leaves any.
pub(super) fn step(
    engine: &mut Engine,
    seq: SeqId,
    entry: usize,
    (tokens, rows): (&[i32], &[f32]),
    wanted: Option<Wanted>,
) -> Result<(Option<i32>, Vec<f32>)> {
    let (mut next, mut left) = (None, Vec::with_capacity(rows.len()));
    let mut keep = |_: usize, rows: &[f32]| left.extend_from_slice(rows);
    let (seqs, last) = (vec![seq; tokens.len()], [tokens.len() as u32 - 1]);
    let out_rows = if wanted.is_some() { &last[..] } else { &[] };
    let batch = Batch { tokens, seqs: &seqs, out_rows, hidden: rows, ..Batch::default() };
    let wants: Vec<Want> = wanted.iter().map(|w| w.want).collect();
    let mut choose = wanted.map(|w| w.choose);
    let mut take = |_: usize, row: Row| next = choose.as_mut().map(|choose| choose(row));
    let leaves = engine.image().entries.get(entry).is_some_and(|e| e.hidden.is_some());
    let keep: Option<Keep> = if leaves { Some(&mut keep) } else { None };
    engine.run(entry, Io { batch: &batch, wants: &wants, rows: Sink::Each(&mut take), keep, taps: None })?;
    Ok((next.transpose()?, left))
}
