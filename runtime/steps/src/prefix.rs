//! Sequences of ended requests, whose beginnings new requests share.
//!
//! A sequence stays after its request, with the pages of its tokens, until its room is needed. A request that begins
//! with the same tokens gets a fork of it, which shares the pages. Sequences are sorted by their tokens, so the one
//! with the longest common beginning is a neighbour of the place where the prompt would be (as in the radix tree of
//! SGLang, Zheng et al. 2023, arXiv 2312.07104). Models whose states are not pages have snapshots of them at the ends
//! of prompts, of chunks and of texts: a fork goes on from the last one within the common beginning.
//!
//! Tokens computed by one tenant are not found by others: a request shares with requests of its own salt and adapter.

use crate::WORTH_WAITING;

/// A sequence.
pub type SeqId = i32;

/// The sequences of a cache, and the tokens that each has.
pub trait Sequences {
    /// Why a sequence cannot be had.
    type Error;

    /// Tokens of a sequence.
    ///
    /// # Errors
    /// It does not exist.
    fn tokens(&self, seq: SeqId) -> Result<&[i32], Self::Error>;

    /// Bytes of the pages that it refers to, shared ones included.
    ///
    /// # Errors
    /// It does not exist.
    fn held_bytes(&self, seq: SeqId) -> Result<usize, Self::Error>;

    /// The most tokens, up to `len`, with which a fork of it can go on.
    ///
    /// # Errors
    /// It does not exist.
    fn reusable(&self, seq: SeqId, len: usize) -> Result<usize, Self::Error>;

    /// Ends a sequence, and releases its pages.
    ///
    /// # Errors
    /// It does not exist.
    fn free(&mut self, seq: SeqId) -> Result<(), Self::Error>;

    /// Whether some states are not pages that all tokens keep: states with windows, and of fixed size.
    fn by_chunks(&self) -> bool;
}

/// Neighbours on each side that are looked at, where states are not pages: the nearest may lack a snapshot.
const LOOK: usize = 8;

/// Who may share: a tenant's number, and an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Requests share with those of the same number.
    pub salt: u64,
    /// Adapter, 0: none.
    pub adapter: i32,
}

/// A sequence that stays.
#[derive(Debug)]
struct Kept {
    owner: Owner,
    seq: SeqId,
    /// When it was used last.
    used: u64,
    /// Bytes of the pages that it refers to, shared ones included.
    bytes: usize,
}

/// Sequences that stay, sorted by owner and tokens.
#[derive(Debug)]
pub struct Prefixes {
    all: Vec<Kept>,
    clock: u64,
    bytes: usize,
    most_bytes: usize,
}

impl Prefixes {
    /// None yet, of up to `most_bytes`.
    pub fn new(most_bytes: usize) -> Prefixes {
        Prefixes { all: Vec::new(), clock: 0, bytes: 0, most_bytes }
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes of the pages that they refer to, each counted for every sequence that shares it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The sequence from which a request that begins with `prompt` goes on, and how many of its tokens are there.
    pub fn find<S: Sequences>(&mut self, kv: &S, owner: Owner, prompt: &[i32]) -> Option<(SeqId, usize)> {
        let at = self.place(kv, owner, prompt);
        let look = if kv.by_chunks() { LOOK } else { 1 };
        let near = at.saturating_sub(look)..(at + look).min(self.all.len());
        let shared = |kept: &Kept| if kept.owner == owner { shared(kv, kept.seq, prompt) } else { 0 };
        let best = near.max_by_key(|i| shared(&self.all[*i]))?;
        let found = shared(&self.all[best]);
        if found == 0 {
            return None;
        }
        self.clock += 1;
        self.all[best].used = self.clock;
        Some((self.all[best].seq, found))
    }

    /// Keeps a sequence, which is this table's from now on. Sequences that it makes superfluous are freed.
    ///
    /// # Errors
    /// It does not exist.
    pub fn keep<S: Sequences>(&mut self, kv: &mut S, owner: Owner, seq: SeqId) -> Result<(), S::Error> {
        let bytes = kv.held_bytes(seq)?;
        if kv.tokens(seq)?.is_empty() || bytes > self.most_bytes {
            return kv.free(seq);
        }
        let mut at = self.place(kv, owner, kv.tokens(seq)?);
        // States that are not pages are at the ends of sequences, so the shorter ones are of use.
        let ends = kv.by_chunks();
        if self.all.get(at).is_some_and(|next| self.covers(kv, next, owner, seq, ends)) {
            self.clock += 1;
            self.all[at].used = self.clock;
            return kv.free(seq);
        }
        while !ends && at > 0 && begins(kv, &self.all[at - 1], owner, kv.tokens(seq)?) {
            at -= 1;
            self.free(kv, at)?;
        }
        self.clock += 1;
        self.bytes += bytes;
        self.all.insert(at, Kept { owner, seq, used: self.clock, bytes });
        while self.bytes > self.most_bytes && self.reclaim(kv)? {}
        Ok(())
    }

    /// Whether a kept sequence has all that a new one would give; with `ends` it has to end where the new one does.
    fn covers<S: Sequences>(&self, kv: &S, kept: &Kept, owner: Owner, seq: SeqId, ends: bool) -> bool {
        let (Ok(own), Ok(new)) = (kv.tokens(kept.seq), kv.tokens(seq)) else { return false };
        kept.owner == owner && if ends { own == new } else { own.starts_with(new) }
    }

    /// Frees the sequence that was not used for the longest time. Returns whether there was one.
    ///
    /// # Errors
    /// A bug in the runtime.
    pub fn reclaim<S: Sequences>(&mut self, kv: &mut S) -> Result<bool, S::Error> {
        match (0..self.all.len()).min_by_key(|i| self.all[*i].used) {
            Some(oldest) => self.free(kv, oldest).map(|()| true),
            None => Ok(false),
        }
    }

    /// Frees all.
    ///
    /// # Errors
    /// A bug in the runtime.
    pub fn clear<S: Sequences>(&mut self, kv: &mut S) -> Result<(), S::Error> {
        while !self.all.is_empty() {
            self.free(kv, self.all.len() - 1)?;
        }
        Ok(())
    }

    fn free<S: Sequences>(&mut self, kv: &mut S, at: usize) -> Result<(), S::Error> {
        let kept = self.all.remove(at);
        self.bytes -= kept.bytes;
        kv.free(kept.seq)
    }

    /// The place of these tokens.
    fn place<S: Sequences>(&self, kv: &S, owner: Owner, tokens: &[i32]) -> usize {
        self.all.partition_point(|k| (k.owner, kv.tokens(k.seq).unwrap_or_default()) < (owner, tokens))
    }
}

/// Tokens of `prompt` that a fork of `seq` need not compute. The last one is computed in any case.
pub fn shared<S: Sequences>(kv: &S, seq: SeqId, prompt: &[i32]) -> usize {
    let Ok(tokens) = kv.tokens(seq) else { return 0 };
    let same = common(tokens, prompt).min(prompt.len().saturating_sub(1));
    kv.reusable(seq, same).unwrap_or(0)
}

/// The one of the `running` requests (each with its tokens, and how many of them are computed) that is about to compute
/// most of a prompt's beginning, and how many tokens they have in common; `None` where none computes
/// [`WORTH_WAITING`] more than the tokens `there`.
pub fn coming<'a>(
    prompt: &[i32],
    there: usize,
    running: impl Iterator<Item = (usize, &'a [i32], usize)>,
) -> Option<(usize, usize)> {
    let last = prompt.len().saturating_sub(1);
    let worth = |(at, tokens, computed): (usize, &[i32], usize)| {
        let same = common(tokens, prompt).min(last);
        (computed < same && same >= there + WORTH_WAITING).then_some((at, same))
    };
    running.filter_map(worth).max_by_key(|(_, same)| *same)
}

/// Tokens that two lists have in common from the first on.
pub fn common(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn begins<S: Sequences>(kv: &S, kept: &Kept, owner: Owner, tokens: &[i32]) -> bool {
    kept.owner == owner && kv.tokens(kept.seq).is_ok_and(|own| tokens.starts_with(own))
}
