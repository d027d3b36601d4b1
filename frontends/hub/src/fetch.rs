//! A file, from the hub into the cache: its bytes have the size and the hash that the hub says, or it is not there.

use crate::cache::{self, Cache};
use crate::digest::Digest;
use crate::error::HubError;
use crate::http::{Answer, Ask, Failure, Follow, Http, LINKED_ETAG, TRIES};
use crate::listing::Remote;
use crate::refused::{Subject, explain};
use crate::watch::Watch;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ureq::http::Method;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 18;
/// The largest file that is held in memory.
const MOST_IN_MEMORY: u64 = 64 << 20;
/// Name of the header with the commit that an answer belongs to.
const COMMIT: &str = "x-repo-commit";
const LINKED_SIZE: &str = "x-linked-size";

/// A model's commit, and the means to fetch its files.
pub(crate) struct Source<'a> {
    pub http: &'a Http,
    pub endpoint: &'a str,
    pub id: &'a str,
    pub revision: &'a str,
    pub commit: &'a str,
    pub watch: &'a dyn Watch,
    /// Another file's error ends this one, too.
    pub stop: &'a AtomicBool,
}

/// Facts about a file, as the server says.
struct Facts {
    hash: String,
    size: u64,
}

/// Why an attempt at a file ended early.
enum Cut {
    /// The connection ended; the bytes so far are good.
    Broken(HubError),
    /// Everything else.
    Other(HubError),
}

impl From<HubError> for Cut {
    fn from(e: HubError) -> Cut {
        Cut::Other(e)
    }
}

impl Source<'_> {
    /// Fetches a file, unless its bytes are in the cache already.
    pub(crate) fn fetch(&self, cache: &Cache, file: &Remote) -> Result<(), HubError> {
        let facts = self.facts(file)?;
        let blob = cache.blob(&facts.hash);
        let known = |path: &std::path::Path| std::fs::metadata(path).is_ok_and(|m| m.len() == facts.size);
        let mut fresh = false;
        if !known(&blob) {
            let waiting = || self.watch.say(&format!("{}: another process fetches it; waiting", file.name));
            let _lock = cache.lock(&facts.hash, &waiting)?;
            fresh = !known(&blob);
            match fresh {
                true => self.fetch_blob(cache, file, &facts)?,
                false => self.watch.moved(facts.size as i64),
            }
        } else {
            self.watch.moved(facts.size as i64);
        }
        cache.link(self.commit, &file.name, &facts.hash, fresh)
    }

    /// A small file's bytes.
    pub(crate) fn fetch_small(&self, file: &Remote) -> Result<Vec<u8>, HubError> {
        let facts = self.facts(file)?;
        if facts.size > MOST_IN_MEMORY {
            return Err(self.untrusted(file, format!("it has {} bytes, too many for a file of its kind", facts.size)));
        }
        let mut broken = 0;
        loop {
            let mut bytes = vec![];
            let answer = self.get(file, 0)?;
            match answer.body.into_reader().take(MOST_IN_MEMORY + 1).read_to_end(&mut bytes) {
                Ok(_) if bytes.len() as u64 >= facts.size => return self.checked(file, &facts, bytes),
                Ok(_) => self.wait(&mut broken, self.network(file, "the connection broke before the end".into()))?,
                Err(e) => self.wait(&mut broken, self.network(file, e.to_string()))?,
            }
        }
    }

    /// Puts a small file's bytes, which were fetched before, into the cache.
    pub(crate) fn keep(&self, cache: &Cache, file: &Remote, bytes: &[u8]) -> Result<(), HubError> {
        let facts = self.facts(file)?;
        let blob = cache.blob(&facts.hash);
        let _lock = cache.lock(&facts.hash, &|| {})?;
        let fresh = !blob.exists();
        if fresh {
            let path = cache.incomplete(&facts.hash);
            let mut out = cache::open_incomplete(&path)?;
            out.set_len(0).and_then(|()| out.write_all(bytes)).map_err(HubError::io("write", &path))?;
            cache::complete(&mut out, &path, &blob)?;
        }
        self.watch.moved(bytes.len() as i64);
        cache.link(self.commit, &file.name, &facts.hash, fresh)
    }

    /// Asks for a file's hash and size.
    fn facts(&self, file: &Remote) -> Result<Facts, HubError> {
        let url = self.url(file);
        let ask = Ask { method: Method::HEAD, url: &url, from: 0, follow: Follow::Hub };
        let answer = self.http.ask(&ask, self.watch).map_err(|e| self.explained(file, e))?;
        let hash = answer.header(LINKED_ETAG).or_else(|| answer.header("etag")).map(normal).unwrap_or_default();
        if !Digest::is_name(hash) {
            return Err(self.untrusted(file, "the server does not say its hash, without which no file is taken".into()));
        }
        let redirected = (300..400).contains(&answer.status);
        let length = answer.header(LINKED_SIZE).or_else(|| answer.header("content-length").filter(|_| !redirected));
        let size = length.and_then(|text| text.parse().ok()).or(file.size);
        let Some(size) = size else {
            return Err(self.untrusted(file, "the server does not say its size".into()));
        };
        let contradicts = |what: &str| Err(self.untrusted(file, format!("the server says two different {what} of it")));
        if answer.header(COMMIT).is_some_and(|commit| commit != self.commit) {
            return contradicts("commits");
        }
        if file.hash.as_deref().is_some_and(|listed| listed != hash) {
            return contradicts("hashes");
        }
        if file.size.is_some_and(|listed| listed != size) {
            return contradicts("sizes");
        }
        Ok(Facts { hash: hash.to_owned(), size })
    }

    fn url(&self, file: &Remote) -> String {
        let name = crate::names::in_path(&file.name);
        format!("{}/{}/resolve/{}/{name}", self.endpoint, self.id, self.commit)
    }

    /// A file's bytes from one on.
    fn get(&self, file: &Remote, from: u64) -> Result<Answer, HubError> {
        let url = self.url(file);
        let ask = Ask { method: Method::GET, url: &url, from, follow: Follow::Everywhere };
        self.http.ask(&ask, self.watch).map_err(|e| self.explained(file, e))
    }

    /// Fetches a blob, going on where an earlier download ended.
    fn fetch_blob(&self, cache: &Cache, file: &Remote, facts: &Facts) -> Result<(), HubError> {
        let path = cache.incomplete(&facts.hash);
        let (mut broken, mut wrong) = (0, 0);
        let before = cache::open_incomplete(&path)?.metadata().map_or(0, |m| m.len());
        self.watch.moved(if before > facts.size { 0 } else { before as i64 });
        loop {
            let mut out = cache::open_incomplete(&path)?;
            let had = out.metadata().map_or(0, |m| m.len());
            let found = match self.attempt(&mut out, file, facts) {
                Ok(found) => found,
                Err(Cut::Other(e)) => return Err(e),
                Err(Cut::Broken(e)) => {
                    // Bytes have come: the server is worth asking again.
                    if out.metadata().is_ok_and(|m| m.len() > had) {
                        broken = 0;
                    }
                    self.wait(&mut broken, e)?;
                    continue;
                }
            };
            if found == facts.hash {
                return cache::complete(&mut out, &path, &cache.blob(&facts.hash));
            }
            let length = out.metadata().map_or(0, |m| m.len());
            self.watch.moved(-(length as i64));
            std::fs::remove_file(&path).map_err(HubError::io("remove", &path))?;
            wrong += 1;
            if wrong == 2 || had == 0 {
                return Err(self.wrong_hash(file, facts, &found));
            }
            self.watch.say(&format!("{}: the bytes of an earlier download are damaged; fetching it anew", file.name));
        }
    }

    /// Fetches the rest of a blob; its hash.
    fn attempt(&self, out: &mut File, file: &Remote, facts: &Facts) -> Result<String, Cut> {
        let write = |e| HubError::Io { action: "write", path: file.name.clone().into(), source: e };
        let named = || Digest::named(&facts.hash, facts.size).ok_or(HubError::Stopped);
        let mut digest = named()?;
        let mut have = out.metadata().map_err(write)?.len();
        if have > facts.size {
            out.set_len(0).map_err(write)?;
            have = 0;
        }
        self.hash_known(out, have, &mut digest)?;
        if have < facts.size || facts.size == 0 {
            let answer = self.get(file, have)?;
            if have > 0 && !goes_on(&answer, have, facts.size) {
                out.set_len(0).map_err(write)?;
                out.seek(SeekFrom::Start(0)).map_err(write)?;
                self.watch.moved(-(have as i64));
                digest = named()?;
                have = 0;
            }
            self.stream(answer, out, (&mut have, facts.size), &mut digest, file)?;
        }
        Ok(digest.finish())
    }

    /// Hashes the bytes that are there.
    fn hash_known(&self, out: &mut File, have: u64, digest: &mut Digest) -> Result<(), HubError> {
        let read = |e| HubError::Io { action: "read", path: "an earlier download".into(), source: e };
        out.seek(SeekFrom::Start(0)).map_err(read)?;
        let (mut left, mut buffer) = (have, vec![0; CHUNK]);
        while left > 0 {
            self.go_on()?;
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = out.read(&mut buffer[..most]).map_err(read)?;
            if n == 0 {
                break;
            }
            digest.update(&buffer[..n]);
            left -= n as u64;
        }
        Ok(())
    }

    /// Writes an answer's bytes, up to the size of the file.
    fn stream(
        &self,
        answer: Answer,
        out: &mut File,
        (have, size): (&mut u64, u64),
        digest: &mut Digest,
        file: &Remote,
    ) -> Result<(), Cut> {
        let mut body = answer.body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            self.go_on()?;
            match body.read(&mut buffer) {
                Ok(0) if *have < size => {
                    return Err(Cut::Broken(self.network(file, "the connection broke before the end".into())));
                }
                Ok(0) => return Ok(()),
                Ok(n) => {
                    if *have + n as u64 > size {
                        return Err(Cut::Other(self.too_long(file, size)));
                    }
                    let write = |source| HubError::Io { action: "write", path: file.name.clone().into(), source };
                    out.write_all(&buffer[..n]).map_err(write)?;
                    digest.update(&buffer[..n]);
                    *have += n as u64;
                    self.watch.moved(n as i64);
                }
                Err(e) => return Err(Cut::Broken(self.network(file, format!("the connection broke ({e})")))),
            }
        }
    }

    /// Waits before a file is asked for again, or gives up.
    fn wait(&self, broken: &mut u32, e: HubError) -> Result<(), HubError> {
        *broken += 1;
        if *broken == TRIES {
            return Err(e);
        }
        let pause = self.http.pause(*broken);
        self.watch.say(&format!("{e}; going on in {pause:.0?}"));
        std::thread::sleep(pause);
        self.go_on()
    }

    fn go_on(&self) -> Result<(), HubError> {
        if self.stop.load(Relaxed) { Err(HubError::Stopped) } else { Ok(()) }
    }

    /// A small file's bytes, if they are right.
    fn checked(&self, file: &Remote, facts: &Facts, bytes: Vec<u8>) -> Result<Vec<u8>, HubError> {
        if bytes.len() as u64 > facts.size {
            return Err(self.too_long(file, facts.size));
        }
        let mut digest = Digest::named(&facts.hash, facts.size).ok_or(HubError::Stopped)?;
        digest.update(&bytes);
        let found = digest.finish();
        if found == facts.hash { Ok(bytes) } else { Err(self.wrong_hash(file, facts, &found)) }
    }

    fn wrong_hash(&self, file: &Remote, facts: &Facts, found: &str) -> HubError {
        let why = format!(
            "its bytes have the hash {found}, and the hub says {}: they were changed on their way; try again, or from \
             another network",
            facts.hash
        );
        self.untrusted(file, why)
    }

    fn too_long(&self, file: &Remote, size: u64) -> HubError {
        self.untrusted(file, format!("the server sends more than the {size} bytes that it says"))
    }

    fn untrusted(&self, file: &Remote, why: String) -> HubError {
        HubError::Untrusted { place: format!("{}/{}", self.id, file.name), why }
    }

    fn network(&self, file: &Remote, why: String) -> HubError {
        HubError::Network { url: self.url(file), why }
    }

    fn explained(&self, file: &Remote, e: Failure) -> HubError {
        let token = self.http.token_from();
        let Source { endpoint, id, revision, .. } = *self;
        explain(e, &Subject { endpoint, id, revision, file: Some(&file.name), token })
    }
}

/// Whether an answer goes on from byte `have` of a file.
fn goes_on(answer: &Answer, have: u64, size: u64) -> bool {
    let range = answer.header("content-range").unwrap_or_default();
    let from = range.trim().strip_prefix("bytes ").and_then(|r| r.split('-').next()?.parse().ok());
    let total = range.rsplit('/').next().and_then(|t| t.parse().ok());
    answer.status == 206 && from == Some(have) && total.is_none_or(|t: u64| t == size)
}

/// An entity tag without its marks.
fn normal(tag: &str) -> &str {
    tag.trim().trim_start_matches("W/").trim_matches('"')
}
