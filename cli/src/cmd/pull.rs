//! `llmcc pull`: fetches a model from the Hugging Face hub.

use crate::args::PullArgs;
use crate::hub::{Shown, fetch, left};
use crate::units::bytes;
use crate::{Error, json, stdout};
use llmcc_hub::{Client, HubError, Plan, Reference, Settings, Wishes, cached};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Fetches the files that compiling needs, and prints the path for `compile`.
///
/// # Errors
/// The hub refuses, or cannot be asked; the disk is full.
pub fn run(args: &PullArgs) -> Result<(), Error> {
    let settings = Settings::from_env()?;
    let wishes = Wishes { include: args.include.clone(), exclude: args.exclude.clone(), weights: true };
    if settings.offline {
        let path = cached(&settings, &args.model, &wishes).map_err(without_network)?;
        return done(args, &path, None);
    }
    let (client, shown) = (Client::new(settings)?, Shown::new(args.quiet || args.json));
    let plan = client.plan(&args.model, &wishes, &shown)?;
    if args.dry_run {
        return if args.json { json::print(&document(&plan)) } else { stdout::print(&table(&plan, &args.model)) };
    }
    fetch(&client, &plan, &shown)?;
    done(args, &plan.path, Some(&plan))
}

/// Nothing is fetched, and the cache does not suffice.
fn without_network(e: HubError) -> Error {
    match e {
        HubError::Offline { .. } => Error::Usage(format!("{e}; nothing is fetched while HF_HUB_OFFLINE is set")),
        other => other.into(),
    }
}

fn done(args: &PullArgs, path: &Path, plan: Option<&Plan>) -> Result<(), Error> {
    match (args.json, plan) {
        (true, Some(plan)) => json::print(&document(plan)),
        (true, None) => json::print(&json!({ "model": args.model.id, "path": path })),
        (false, _) => stdout::print(&format!("{}\n", path.display())),
    }
}

/// The files of a plan, for people.
fn table(plan: &Plan, model: &Reference) -> String {
    let mut s = format!("{model}: commit {}\n", plan.commit);
    for wanted in &plan.files {
        let size = wanted.file.size.map_or_else(|| "?".into(), |n| bytes(n as f64));
        let _ = writeln!(s, "  {size:>10}  {}{}", wanted.file.name, if wanted.cached { "  (cached)" } else { "" });
    }
    let _ = writeln!(s, "to fetch: {}", bytes(plan.bytes() as f64));
    left(plan).iter().for_each(|line| s.push_str(&format!("{line}\n")));
    s
}

/// The same as a document.
fn document(plan: &Plan) -> Value {
    let files = plan.files.iter().map(|w| json!({ "file": w.file.name, "bytes": w.file.size, "cached": w.cached }));
    let left = plan.left.iter().map(|l| json!({ "file": l.file.name, "bytes": l.file.size, "why": l.why.said() }));
    json!({
        "model": plan.id,
        "revision": plan.revision,
        "commit": plan.commit,
        "path": plan.path,
        "files": files.collect::<Vec<_>>(),
        "left_out": left.collect::<Vec<_>>(),
        "refused": plan.refused,
    })
}
