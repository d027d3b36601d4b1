//! The second level of the cache of beginnings: parts of sequences in files, which survive the process.
//!
//! A sequence that stays after its request is written in parts, each from a page border on; a part whose tokens are
//! there already is not written again. A request that begins with tokens of the files gets them from there. Reading and
//! writing are the work of one thread. Reading goes first. Where too much waits to be written, further parts are left
//! out. The files are bound to the artifact and its code: keys and values of other code may differ in their last bits.

mod folder;
mod tree;

use std::collections::VecDeque;
use std::path::Path as FilePath;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llmcc_abi::tree::Hash;

use crate::error::{Error, Result};
use crate::kv::{Group, Kv, Packed, Saved, SeqId};
use crate::reserve::Call;
use crate::spawn::Thread;
use folder::Folder;
use tree::{GRAIN, Tree, name_of};

pub use tree::Path;

/// Tokens of a part, at most.
const PART: usize = 32 * GRAIN;
/// Bytes that wait to be written, at most.
const WAITING: usize = 256 << 20;
/// Bytes that were read and not taken, at most, but for one part.
const READ: usize = 64 << 20;
/// Stack of the thread.
const STACK: usize = 1 << 20;
/// Bytes of files where the user names no other number.
pub const DEFAULT_BYTES: u64 = 8 << 30;

/// The files, and the thread that reads and writes them.
pub struct Disk {
    shared: Arc<Shared>,
    thread: Option<Thread>,
    identity: Hash,
}

struct Shared {
    state: Mutex<State>,
    groups: Vec<Group>,
    most_bytes: u64,
    /// There is work, or room.
    called: Condvar,
    /// Something was read.
    told: Condvar,
}

#[derive(Default)]
struct State {
    tree: Tree,
    reads: VecDeque<(u64, Path)>,
    writes: VecDeque<(Hash, Packed)>,
    /// Bytes of `writes`, and of the one under way.
    waiting: usize,
    done: VecDeque<Read>,
    /// Bytes of `done`.
    read: usize,
    counts: DiskCounts,
    closing: bool,
}

/// A part that was read for somebody.
pub struct Read {
    /// Who asked, as given to [`Disk::read`].
    pub ticket: u64,
    /// The part, cut nowhere, and the number of tokens at which it is to be cut; `None`: it cannot be read, and no
    /// further one of the path comes.
    pub part: Option<(Saved, usize)>,
    /// Whether it is the last one.
    pub last: bool,
}

/// Counts of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Parts that are there.
    pub parts: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Parts written since it was opened.
    pub written: u64,
    /// Parts left out since too many waited, or that could not be written or read.
    pub failed: u64,
    /// The last error.
    pub error: Option<String>,
}

impl Disk {
    /// Opens the folder `path` for the states of a model, whose files may take `most_bytes`.
    ///
    /// # Errors
    /// The folder cannot be written; the system has no thread to give.
    pub fn open(path: &FilePath, identity: Hash, groups: &[Group], most_bytes: u64) -> Result<Disk> {
        let folder = Folder::open(path, &identity)?;
        let mut state = State::default();
        let found = folder.list();
        for found in &found {
            if !state.tree.add(found.name, &found.packed, groups, found.bytes) {
                folder.delete(&found.name);
            }
        }
        let mut times: Vec<_> = found.iter().map(|found| (found.when, found.name)).collect();
        times.sort_unstable();
        times.iter().for_each(|(_, name)| state.tree.touch(name));
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            groups: groups.to_vec(),
            most_bytes,
            called: Condvar::new(),
            told: Condvar::new(),
        });
        shared.shrink(&folder);
        let own = shared.clone();
        let thread = Thread::spawn("llmcc-cache", STACK, move || own.work(folder))
            .map_err(|cause| Error::system("cannot start the thread of the cache's files", cause))?;
        Ok(Disk { shared, thread: Some(thread), identity })
    }

    /// The files with the beginning of a sequence of these tokens, if they have so many more than `there` tokens of it
    /// that reading is worth it.
    pub fn find(&self, salt: u64, tokens: &[i32], there: usize) -> Option<Path> {
        let found = self.shared.lock().tree.find(salt, tokens);
        found.filter(|path| path.tokens >= there + GRAIN)
    }

    /// Reads the parts of a path, in their order: [`Disk::take`] has them as they come.
    pub fn read(&self, ticket: u64, path: Path) {
        self.shared.lock().reads.push_back((ticket, path));
        self.shared.called.notify_one();
    }

    /// Reads for a ticket are not wanted any more.
    pub fn forget(&self, ticket: u64) {
        let mut state = self.shared.lock();
        state.reads.retain(|(own, _)| *own != ticket);
        state.done.retain(|read| read.ticket != ticket);
        state.read = state.done.iter().map(Read::bytes).sum();
        drop(state);
        self.shared.called.notify_one();
    }

    /// The next part that was read; waits for one up to `timeout`.
    pub fn take(&self, timeout: Duration) -> Option<Read> {
        let mut state = self.shared.lock();
        if state.done.is_empty() && !timeout.is_zero() {
            let waited = self.shared.told.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let read = state.done.pop_front()?;
        state.read -= read.bytes();
        drop(state);
        self.shared.called.notify_one();
        Some(read)
    }

    /// Writes what is new of a sequence, without its last tokens where these do not fill a page.
    ///
    /// # Errors
    /// The cache cannot be read; there is no memory.
    pub fn write(&self, kv: &mut Kv, seq: SeqId, salt: u64) -> Result<()> {
        let (whole, len) = (kv.by_chunks(0), kv.tokens(seq)?.len());
        let to = if whole { len } else { len / GRAIN * GRAIN };
        let Some((mut parent, from)) = self.shared.lock().tree.place(salt, &kv.tokens(seq)?[..to]) else {
            return Ok(());
        };
        for from in (from..to).step_by(PART) {
            let end = to.min(from + PART);
            let mut state = self.shared.lock();
            if state.waiting > WAITING {
                state.fail("parts are written more slowly than sequences end".into());
                return Ok(());
            }
            drop(state);
            let part = kv.save(seq, (from, end), whole && end == len)?;
            let packed = Packed { identity: self.identity, parent, salt, part };
            parent = name_of(&packed);
            let mut state = self.shared.lock();
            state.waiting += packed.part.bytes();
            state.writes.push_back((parent, packed));
            drop(state);
            self.shared.called.notify_one();
        }
        Ok(())
    }

    /// Counts since it was opened.
    pub fn counts(&self) -> DiskCounts {
        let state = self.shared.lock();
        DiskCounts { parts: state.tree.len(), bytes: state.tree.bytes(), ..state.counts.clone() }
    }

    /// Waits until all is written: for tests, and before the end.
    pub fn settle(&self) {
        let mut state = self.shared.lock();
        while state.waiting > 0 || !state.writes.is_empty() {
            state = self.shared.told.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.settle();
        self.shared.lock().closing = true;
        self.shared.called.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Read {
    fn bytes(&self) -> usize {
        self.part.as_ref().map_or(0, |(part, _)| part.bytes())
    }
}

impl State {
    fn fail(&mut self, error: String) {
        self.counts.failed += 1;
        self.counts.error = Some(error);
    }
}

/// Work for the thread.
enum Work {
    Read(u64, Path),
    Write(Hash, Box<Packed>),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's work.
    fn work(&self, folder: Folder) {
        while let Some(work) = self.next() {
            let Some(_memory) = Call::begin() else {
                self.refuse(work);
                continue;
            };
            match work {
                Work::Read(ticket, path) => self.read(&folder, ticket, path),
                Work::Write(name, packed) => self.write(&folder, name, &packed),
            }
        }
    }

    /// The next work; `None`: there will be none.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if state.read <= READ
                && let Some((ticket, path)) = state.reads.pop_front()
            {
                return Some(Work::Read(ticket, path));
            }
            if let Some((name, packed)) = state.writes.pop_front() {
                return Some(Work::Write(name, Box::new(packed)));
            }
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The system has no memory for some work.
    fn refuse(&self, work: Work) {
        let mut state = self.lock();
        state.fail("out of memory".into());
        match work {
            Work::Read(ticket, _) => state.done.push_back(Read { ticket, part: None, last: true }),
            Work::Write(_, packed) => state.waiting -= packed.part.bytes(),
        }
        drop(state);
        self.told.notify_all();
    }

    /// Reads the first part of a path; the others wait for their turn.
    fn read(&self, folder: &Folder, ticket: u64, mut path: Path) {
        let (name, cut) = path.parts.remove(0);
        let read = folder.read(&name);
        let mut state = self.lock();
        let last = path.parts.is_empty() || read.is_err();
        let mut gone = Vec::new();
        let part = match read {
            Ok(packed) => {
                state.tree.touch(&name);
                Some((packed.part, cut))
            }
            Err(error) => {
                state.fail(error.message);
                gone = state.tree.remove(&name);
                None
            }
        };
        let read = Read { ticket, part, last };
        state.read += read.bytes();
        state.done.push_back(read);
        if !last {
            state.reads.push_front((ticket, path));
        }
        drop(state);
        self.told.notify_all();
        gone.iter().for_each(|name| folder.delete(name));
    }

    fn write(&self, folder: &Folder, name: Hash, packed: &Packed) {
        let known = self.lock().tree.has(&name);
        let written = if known { Ok(0) } else { folder.write(&name, packed) };
        let mut state = self.lock();
        match written {
            Ok(_) if known => state.tree.touch(&name),
            Ok(bytes) if state.tree.add(name, packed, &self.groups, bytes) => state.counts.written += 1,
            // The part before it is gone meanwhile.
            Ok(_) => folder.delete(&name),
            Err(error) => state.fail(error.message),
        }
        drop(state);
        self.shrink(folder);
        self.lock().waiting -= packed.part.bytes();
        self.told.notify_all();
    }

    /// Deletes files until they take no more than they may. (Steps of the engine wait for the lock, and not for files.)
    fn shrink(&self, folder: &Folder) {
        let mut state = self.lock();
        let mut gone = Vec::new();
        while state.tree.bytes() > self.most_bytes {
            gone.extend(state.tree.oldest());
        }
        drop(state);
        gone.iter().for_each(|name| folder.delete(name));
    }
}

#[cfg(test)]
mod tests;
