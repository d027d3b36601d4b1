//! Models of the Hugging Face hub in place of checkpoints: fetched, or found in the hub's cache.

use crate::args::CompileArgs;
use crate::args::Place;
use crate::report::message;
use crate::units::{bytes, count};
use crate::{Error, advice, progress};
use indicatif::ProgressBar;
use llmcc_hub::{Client, HubError, Left, Plan, Reference, Settings, Watch, Why, Wishes, cached};
use std::path::{Path, PathBuf};

/// Names that are listed at most.
const MOST_NAMES: usize = 6;

/// The arguments of `compile` with paths in place of models of the hub.
///
/// # Errors
/// A model is not on the hub, or may not be fetched.
pub fn resolved(mut args: CompileArgs) -> Result<CompileArgs, Error> {
    let wishes = Wishes { weights: args.weights != Place::Absent, ..Wishes::default() };
    let downloads = Downloads { offline: args.offline, quiet: args.quiet, wishes };
    let adapters = args.lora.iter_mut().map(|adapter| &mut adapter.path);
    for path in adapters.chain([&mut args.checkpoint]).chain(&mut args.base) {
        if let Some(found) = downloads.find(path)? {
            *path = found;
        }
    }
    Ok(args)
}

/// How models are fetched.
struct Downloads {
    offline: bool,
    quiet: bool,
    wishes: Wishes,
}

impl Downloads {
    /// The path of a model that `path` names on the hub; `None`: it is a path of its own.
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        if path.exists() || path.is_symlink() {
            return Ok(None);
        }
        let Some(what) = advice::on_hub(path) else { return Ok(None) };
        let settings = Settings::from_env()?;
        if self.offline || settings.offline {
            let there = cached(&settings, &what, &self.wishes);
            return there.map(Some).map_err(|e| Error::Usage(not_here(path, &what, &e)));
        }
        match self.fetch(&settings, &what) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.is_unreachable() => {
                let Ok(found) = cached(&settings, &what, &self.wishes) else { return Err(e.into()) };
                eprintln!("warning: {}; the files in the cache are used", message(&e.to_string()));
                Ok(Some(found))
            }
            Err(e @ HubError::NoModel { .. }) => Err(Error::Nowhere { path: path.to_owned(), source: e }),
            Err(e) => Err(e.into()),
        }
    }

    fn fetch(&self, settings: &Settings, what: &Reference) -> Result<PathBuf, HubError> {
        let (client, shown) = (Client::new(settings.clone())?, Shown::new(self.quiet));
        let plan = client.plan(what, &self.wishes, &shown)?;
        fetch(&client, &plan, &shown)?;
        Ok(plan.path)
    }
}

/// Why a model is not compiled without a network.
fn not_here(path: &Path, what: &Reference, e: &HubError) -> String {
    format!(
        "{}: there is no such file or folder, and nothing is fetched (--offline, HF_HUB_OFFLINE). {e}; with a network \
         `llmcc pull {what}` fetches it",
        path.display()
    )
}

/// Fetches the files of a plan, and says so unless `quiet`.
///
/// # Errors
/// As [`Client::fetch`].
pub fn fetch(client: &Client, plan: &Plan, shown: &Shown) -> Result<(), HubError> {
    let missing = plan.files.iter().filter(|wanted| !wanted.cached).count();
    if missing > 0 {
        let of = format!("{} (commit {})", plan.id, &plan.commit.get(..12).unwrap_or_default());
        shown.say(&format!("fetching {} of {of}: {}", count(missing, "file"), bytes(plan.bytes() as f64)));
        left(plan).iter().for_each(|line| shown.say(line));
    }
    let done = client.fetch(plan, shown);
    shown.bar.finish_and_clear();
    done
}

/// Lines about the files that a plan leaves out.
pub fn left(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> =
        [Why::Again, Why::Unread, Why::Pattern].iter().filter_map(|why| group(plan, *why)).collect();
    if !plan.refused.is_empty() {
        let names: Vec<String> = plan.refused.iter().take(MOST_NAMES).map(|name| format!("{name:?}")).collect();
        lines.push(format!(
            "left out: {} with names that lead out of the model's folder, or are no names of files: {}",
            count(plan.refused.len(), "file"),
            names.join(", ")
        ));
    }
    lines
}

fn group(plan: &Plan, why: Why) -> Option<String> {
    let files: Vec<&Left> = plan.left.iter().filter(|left| left.why == why).collect();
    if files.is_empty() {
        return None;
    }
    let size: u64 = files.iter().filter_map(|left| left.file.size).sum();
    let mut names: Vec<&str> = files.iter().take(MOST_NAMES).map(|left| left.file.name.as_str()).collect();
    let more = format!("{} more", files.len().saturating_sub(MOST_NAMES));
    if files.len() > MOST_NAMES {
        names.push(&more);
    }
    Some(format!(
        "left out: {}, {} ({}: {})",
        count(files.len(), "file"),
        bytes(size as f64),
        why.said(),
        names.join(", ")
    ))
}

/// Shows a download on standard error.
pub struct Shown {
    bar: ProgressBar,
    quiet: bool,
}

impl Shown {
    /// Nothing is shown yet; with `quiet`, nothing will be.
    pub fn new(quiet: bool) -> Shown {
        Shown { bar: if quiet { ProgressBar::hidden() } else { progress::bytes("fetch") }, quiet }
    }
}

impl Watch for Shown {
    fn begin(&self, total: u64) {
        self.bar.set_length(total);
    }

    fn moved(&self, bytes: i64) {
        match u64::try_from(bytes) {
            Ok(more) => self.bar.inc(more),
            Err(_) => self.bar.dec(bytes.unsigned_abs()),
        }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{}", message(line)));
        }
    }
}
