//! Beginnings that are being read from files, part by part.

use llmcc_steps::prefix::{Owner, Prefixes};

use super::disk::Read;
use crate::error::{Result, Status};
use crate::kv::{Kv, Saved, SeqId};

/// The beginnings that requests wait for.
#[derive(Default)]
pub struct Fetches(Vec<Fetch>);

struct Fetch {
    request: u64,
    owner: Owner,
    /// The sequence so far.
    seq: Option<SeqId>,
    /// Parts that go on from it, and lack the states at their ends.
    parts: Vec<Saved>,
}

impl Fetches {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request waits.
    pub fn has(&self, request: u64) -> bool {
        self.0.iter().any(|fetch| fetch.request == request)
    }

    /// A request waits from now on.
    pub fn begin(&mut self, request: u64, owner: Owner) {
        self.0.push(Fetch { request, owner, seq: None, parts: Vec::new() });
    }

    /// A request waits no more, since it has ended.
    pub fn end(&mut self, request: u64, kv: &mut Kv) {
        if let Some(at) = self.0.iter().position(|fetch| fetch.request == request)
            && let Some(seq) = self.0.swap_remove(at).seq
        {
            // (It fails for a sequence that does not exist alone.)
            let _ = kv.seq_free(seq);
        }
    }

    /// Takes up a part. With the last one, or without room for more, the sequence is among those that stay. Returns
    /// whether all went well.
    pub fn take(&mut self, read: Read, prefixes: &mut Prefixes, kv: &mut Kv) -> bool {
        let Some(at) = self.0.iter().position(|fetch| fetch.request == read.ticket) else { return true };
        let fetch = &mut self.0[at];
        let taken = match read.part {
            Some((mut part, cut)) => kv
                .cut_saved(&mut part, cut)
                .map(|()| fetch.parts.push(part))
                .and_then(|()| if fetch.waits(kv) { Ok(()) } else { fetch.append(prefixes, kv) }),
            // (The thread has counted the error.)
            None => Ok(()),
        };
        if !read.last && taken.is_ok() {
            return true;
        }
        let fetch = self.0.swap_remove(at);
        let kept = fetch.seq.map_or(Ok(()), |seq| prefixes.keep(kv, fetch.owner, seq));
        taken.and(kept).is_ok()
    }
}

impl Fetch {
    /// Whether the parts so far are of use only with one that follows.
    fn waits(&self, kv: &Kv) -> bool {
        kv.by_chunks(0) && self.parts.last().is_some_and(|part| !part.ends)
    }

    /// Puts the parts into the cache. Sequences that stay yield where it is full.
    fn append(&mut self, prefixes: &mut Prefixes, kv: &mut Kv) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let seq = match self.seq {
            Some(seq) => seq,
            None => kv.seq_new()?,
        };
        self.seq = None;
        loop {
            match kv.restore(seq, &parts) {
                Ok(()) => break,
                Err(error) if error.status == Status::CacheFull && prefixes.reclaim(kv)? => {}
                Err(error) => {
                    kv.seq_free(seq)?;
                    return Err(error);
                }
            }
        }
        self.seq = Some(seq);
        Ok(())
    }
}
