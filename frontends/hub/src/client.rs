//! Downloads: a plan of the files that are wanted, then the files.

use crate::cache::Cache;
use crate::choose::{self, Choice, Why, Wishes};
use crate::error::HubError;
use crate::fetch::Source;
use crate::http::{Ask, Failure, Follow, Http};
use crate::listing::{Listing, Remote, shards};
use crate::names;
use crate::reference::Reference;
use crate::refused::{Subject, explain};
use crate::settings::Settings;
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use ureq::http::Method;

/// The longest list of files that is read.
const MOST_OF_LIST: u64 = 64 << 20;
/// Files that are fetched at once.
const AT_ONCE: usize = 4;
/// Files that programs look for in every model: those that a commit lacks are remembered, so that nobody asks again.
const USUAL: [&str; 12] = [
    "adapter_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// A client of a hub, with a cache.
pub struct Client {
    settings: Settings,
    http: Http,
}

/// A file of a plan.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The file.
    pub file: Remote,
    /// Whether the cache has it.
    pub cached: bool,
}

/// A file that a plan leaves out.
#[derive(Clone, Debug)]
pub struct Left {
    /// The file.
    pub file: Remote,
    /// The reason.
    pub why: Why,
}

/// The files of a model that are fetched, and the others.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The model.
    pub id: String,
    /// The revision that was asked for.
    pub revision: String,
    /// The commit that it is.
    pub commit: String,
    /// Files to fetch, in order of their names.
    pub files: Vec<Wanted>,
    /// Files to leave.
    pub left: Vec<Left>,
    /// Names in the hub's list that no file may have, for a terminal.
    pub refused: Vec<String>,
    /// Folder or file that a compiler reads.
    pub path: PathBuf,
    /// Bytes that were fetched for the plan.
    held: BTreeMap<String, Vec<u8>>,
    absent: Vec<&'static str>,
}

impl Plan {
    /// Bytes of the files that the cache lacks, as far as the hub says.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter(|w| !w.cached).filter_map(|w| w.file.size).sum()
    }
}

impl Client {
    /// A client by these settings.
    ///
    /// # Errors
    /// The endpoint is no address; the system has no certificates of authorities.
    pub fn new(settings: Settings) -> Result<Client, HubError> {
        Ok(Client { http: Http::new(&settings)?, settings })
    }

    /// Asks for a model's files, and chooses among them. Nothing is written.
    ///
    /// # Errors
    /// The hub cannot be asked or refuses; no file fits, or too many do.
    pub fn plan(&self, what: &Reference, wishes: &Wishes, watch: &dyn Watch) -> Result<Plan, HubError> {
        let listing = self.list(what, watch)?;
        let choice = |why| HubError::Choice { id: what.id.clone(), why };
        let mut chosen = choose::choose(&listing.files, &what.part, wishes).map_err(choice)?;
        let mut held = BTreeMap::new();
        if let Some(index) = chosen.index.clone() {
            let stop = AtomicBool::new(false);
            let source = self.source(what, &listing.commit, watch, &stop);
            held = self.with_shards(&source, &listing, &mut chosen, &index, wishes)?;
        }
        Ok(self.planned(what, listing, &chosen, wishes, held))
    }

    /// Adds the shards of an index to a choice.
    fn with_shards(
        &self,
        source: &Source<'_>,
        listing: &Listing,
        chosen: &mut Choice,
        index: &str,
        wishes: &Wishes,
    ) -> Result<BTreeMap<String, Vec<u8>>, HubError> {
        let choice = |why| HubError::Choice { id: source.id.to_owned(), why };
        let Some(file) = listing.files.iter().find(|f| f.name == index) else { return Ok(BTreeMap::new()) };
        let cached = self.cache(source.id).pointer(source.commit, index);
        let (bytes, fetched) = match std::fs::read(cached) {
            Ok(bytes) => (bytes, false),
            Err(_) => (source.fetch_small(file)?, true),
        };
        let folder = index.rfind('/').map_or("", |at| &index[..=at]);
        let named = shards(&bytes).map_err(|why| choice(format!("{index}: {why}")))?;
        for name in named.iter().map(|name| format!("{folder}{name}")) {
            if !listing.files.iter().any(|f| f.name == name) {
                return Err(choice(format!("{index} names `{name}`, a file that the repository lacks")));
            }
            if !wishes.exclude.iter().any(|p| p.matches(&name)) {
                chosen.names.insert(name);
            }
        }
        Ok(if fetched { BTreeMap::from([(index.to_owned(), bytes)]) } else { BTreeMap::new() })
    }

    fn planned(
        &self,
        what: &Reference,
        listing: Listing,
        chosen: &Choice,
        wishes: &Wishes,
        held: BTreeMap<String, Vec<u8>>,
    ) -> Plan {
        let cache = self.cache(&what.id);
        let there = |name: &str| listing.files.iter().any(|f| f.name == name);
        let absent = USUAL.into_iter().filter(|name| !there(name)).collect();
        let (wanted, left): (Vec<Remote>, Vec<Remote>) =
            listing.files.into_iter().partition(|f| chosen.names.contains(&f.name));
        let cached = |f: &Remote| {
            let there = std::fs::metadata(cache.pointer(&listing.commit, &f.name));
            there.is_ok_and(|m| m.is_file() && f.size.is_none_or(|size| size == m.len()))
        };
        Plan {
            id: what.id.clone(),
            revision: what.revision().to_owned(),
            path: located(&cache, &listing.commit, chosen),
            files: wanted.into_iter().map(|file| Wanted { cached: cached(&file), file }).collect(),
            left: left.into_iter().map(|file| Left { why: choose::why(&file.name, wishes), file }).collect(),
            refused: listing.refused,
            commit: listing.commit,
            held,
            absent,
        }
    }

    /// Fetches the files of a plan that the cache lacks.
    ///
    /// # Errors
    /// The hub refuses, or sends other bytes than it should; the disk is full.
    pub fn fetch(&self, plan: &Plan, watch: &dyn Watch) -> Result<(), HubError> {
        let cache = self.cache(&plan.id);
        cache.prepare(&plan.revision, &plan.commit)?;
        self.check_room(&cache, plan)?;
        plan.absent.iter().for_each(|name| cache.mark_absent(&plan.commit, name));
        let wanted: Vec<&Remote> = plan.files.iter().filter(|w| !w.cached).map(|w| &w.file).collect();
        watch.begin(plan.bytes());
        let (next, stop, failed) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
        let what = Reference {
            id: plan.id.clone(),
            revision: Some(plan.revision.clone()),
            part: crate::reference::Part::Model,
        };
        let work = || {
            let source = self.source(&what, &plan.commit, watch, &stop);
            while let Some(file) = wanted.get(next.fetch_add(1, Relaxed)).filter(|_| !stop.load(Relaxed)) {
                let done = match plan.held.get(&file.name) {
                    Some(bytes) => source.keep(&cache, file, bytes),
                    None => source.fetch(&cache, file),
                };
                if let Err(e) = done {
                    stop.store(true, Relaxed);
                    // The first error counts: it is the reason why the others stopped.
                    let mut first = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    first.get_or_insert(e);
                }
            }
        };
        std::thread::scope(|s| {
            (1..AT_ONCE.min(wanted.len())).for_each(|_| {
                // Where the system refuses a thread, the others do its work.
                let _ = std::thread::Builder::new().spawn_scoped(s, work);
            });
            work();
        });
        match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// The files of a revision.
    fn list(&self, what: &Reference, watch: &dyn Watch) -> Result<Listing, HubError> {
        let endpoint = &self.settings.endpoint;
        let url = format!("{endpoint}/api/models/{}/revision/{}?blobs=true", what.id, names::in_part(what.revision()));
        let ask = Ask { method: Method::GET, url: &url, from: 0, follow: Follow::Everywhere };
        let answer = self.http.ask(&ask, watch).map_err(|e| self.explained(what, e))?;
        let mut bytes = vec![];
        let place = url.split('?').next().unwrap_or_default().to_owned();
        let broken =
            |e: std::io::Error| HubError::Network { url: place.clone(), why: format!("the connection broke ({e})") };
        answer.body.into_with_config().limit(MOST_OF_LIST).reader().read_to_end(&mut bytes).map_err(broken)?;
        let listing = Listing::read(&bytes).map_err(|why| HubError::Untrusted { place, why })?;
        // A commit is no other commit.
        match names::is_commit(what.revision()) && what.revision() != listing.commit {
            true => Err(HubError::Untrusted { place: url, why: "the answer is of another commit".into() }),
            false => Ok(listing),
        }
    }

    fn explained(&self, what: &Reference, e: Failure) -> HubError {
        let (token, revision) = (self.http.token_from(), what.revision());
        explain(e, &Subject { endpoint: &self.settings.endpoint, id: &what.id, revision, file: None, token })
    }

    fn source<'a>(
        &'a self,
        what: &'a Reference,
        commit: &'a str,
        watch: &'a dyn Watch,
        stop: &'a AtomicBool,
    ) -> Source<'a> {
        let (http, endpoint) = (&self.http, &*self.settings.endpoint);
        Source { http, endpoint, id: &what.id, revision: what.revision(), commit, watch, stop }
    }

    fn cache(&self, id: &str) -> Cache {
        Cache::new(&self.settings.cache, id, self.settings.links)
    }

    /// Refuses a download that the disk has no room for.
    fn check_room(&self, cache: &Cache, plan: &Plan) -> Result<(), HubError> {
        let rest = |w: &Wanted| {
            let have = w.file.hash.as_ref().and_then(|hash| std::fs::metadata(cache.incomplete(hash)).ok());
            w.file.size.unwrap_or(0).saturating_sub(have.map_or(0, |m| m.len()))
        };
        let needed: u64 = plan.files.iter().filter(|w| !w.cached).map(rest).sum();
        let Ok(disk) = rustix::fs::statvfs(cache.root()) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match needed > free {
            true => Err(HubError::Full { folder: cache.root().to_owned(), needed, free }),
            false => Ok(()),
        }
    }
}

/// The folder or file that stands for a choice.
fn located(cache: &Cache, commit: &str, chosen: &Choice) -> PathBuf {
    match &chosen.main {
        Some(main) => cache.pointer(commit, main),
        None => cache.snapshot(commit),
    }
}

/// A model as far as the cache has it, without asking the hub: folder or file that a compiler reads.
///
/// # Errors
/// The cache lacks the model, or the wanted part of it.
pub fn cached(settings: &Settings, what: &Reference, wishes: &Wishes) -> Result<PathBuf, HubError> {
    let offline = |why: String| HubError::Offline { id: what.id.clone(), why };
    let cache = Cache::new(&settings.cache, &what.id, settings.links);
    let nothing =
        || offline(format!("revision `{}` is not in the cache ({})", what.revision(), settings.cache.display()));
    let commit = cache.commit_of(what.revision()).ok_or_else(nothing)?;
    let files: Vec<Remote> =
        cache.files(&commit).into_iter().map(|(name, size)| Remote { name, size: Some(size), hash: None }).collect();
    if files.is_empty() {
        return Err(nothing());
    }
    let chosen = choose::choose(&files, &what.part, wishes)
        .map_err(|why| offline(format!("of revision `{}` the cache has a part only: {why}", what.revision())))?;
    Ok(located(&cache, &commit, &chosen))
}
