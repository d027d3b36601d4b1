//! `llmcc pull` and `llmcc compile OWNER/NAME`, with a hub of this machine.

use crate::common::{Folder, fixture, text};
use crate::server::{self, COMMIT, Fault, Hub, ID, tree};
use serde_json::Value;
use std::process::{Command, Output};

/// A hub with a small model, beside files that nobody needs.
fn hub() -> Hub {
    let read = |name: &str| std::fs::read(fixture("llama3").join(name)).expect("fixture");
    let (config, weights) = (read("config.json"), read("model.safetensors"));
    Hub::new(&[
        ("config.json", &config),
        ("model.safetensors", &weights),
        ("pytorch_model.bin", b"the same again"),
        ("README.md", b"# A model"),
    ])
}

/// A command with a network, which ends at the hub.
fn online(f: &Folder, hub: &Hub, args: &[&str], more: &[(&str, &str)]) -> Output {
    let mut command: Command = f.command(args);
    command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN").env_remove("HF_HUB_CACHE");
    command.envs(hub.environment(more)).output().expect("llmcc runs")
}

fn said(done: &Output) -> String {
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

#[test]
fn models_are_pulled_once() {
    let (f, hub) = (Folder::new(), hub());
    let dry = said(&online(&f, &hub, &["pull", ID, "--dry-run"], &[]));
    for part in [
        "org/model: commit 0123456789",
        "model.safetensors\n",
        "to fetch: ",
        "left out: 1 file, 14 B (weights in another format: pytorch_model.bin)",
        "not needed to compile: README.md",
    ] {
        assert!(dry.contains(part), "{part}: {dry}");
    }
    assert!(tree(hub.cache.path()).is_empty(), "nothing is fetched");
    let done = online(&f, &hub, &["pull", ID], &[]);
    assert_eq!(said(&done).trim(), hub.snapshot().display().to_string());
    let log = text(&done.stderr);
    assert!(log.contains("fetching 2 files of org/model (commit 0123456789ab)") && log.contains("left out: "), "{log}");
    hub.asked();
    let again = online(&f, &hub, &["pull", ID, "--json"], &[]);
    let document: Value = serde_json::from_str(&said(&again)).expect("JSON");
    assert_eq!((&document["commit"], &document["revision"]), (&COMMIT.into(), &"main".into()));
    assert!(document["files"].as_array().expect("a list").iter().all(|file| file["cached"] == true), "{document}");
    assert!(again.stderr.is_empty() && hub.asked().len() == 1, "{}", text(&again.stderr));
    let one = online(&f, &hub, &["pull", ID, "--include", "README*", "--exclude", "*.json", "-q"], &[]);
    assert!(one.stderr.is_empty() && said(&one).trim() == hub.snapshot().display().to_string());
    assert!(hub.snapshot().join("README.md").exists() && !hub.snapshot().join("pytorch_model.bin").exists());
    let offline = online(&f, &hub, &["pull", ID], &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(said(&offline).trim(), hub.snapshot().display().to_string());
}

#[test]
fn models_of_the_hub_compile() {
    let (f, hub) = (Folder::new(), hub());
    let done = online(&f, &hub, &["compile", ID, "--no-golden"], &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("fetching 2 files of org/model"), "{}", text(&done.stderr));
    assert_eq!(f.names(""), ["model.so"]);
    hub.asked();
    // From the cache: without a network, and with one that is down.
    let offline = online(&f, &hub, &["compile", ID, "--offline", "--no-golden", "-q", "-o", "a.so"], &[]);
    assert!(offline.status.success() && hub.asked().is_empty(), "{}", text(&offline.stderr));
    hub.trap("GET", "/api/", 1, Fault::Answer(429, vec![("Retry-After", "900".into())]));
    let busy = online(&f, &hub, &["compile", ID, "--no-golden", "-q", "-o", "b.so"], &[]);
    let log = text(&busy.stderr);
    assert!(
        busy.status.success() && log.contains("wait for 900 seconds") && log.contains("the cache are used"),
        "{log}"
    );
    let same = |a: &str, b: &str| std::fs::read(f.at(a)).expect("written") == std::fs::read(f.at(b)).expect("written");
    assert!(same("a.so", "b.so") && same("a.so", "model.so"));
    // A folder of the same name comes first.
    std::fs::create_dir(f.at("org")).expect("made");
    hub.asked();
    let own = online(&f, &hub, &["compile", ID, "-q", "-o", "c.so"], &[]);
    assert!(text(&own.stderr).contains("org/model: there is no such file or folder") && hub.asked().is_empty());
}

#[test]
fn refusals_are_one_message() {
    let (f, hub) = (Folder::new(), hub());
    let refused = |args: &[&str], more: &[(&str, &str)], code: i32, says: &[&str]| {
        let done = online(&f, &hub, args, more);
        let log = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {log}");
        assert!(log.matches("error:").count() == 1 && done.stdout.is_empty(), "{args:?}: {log}");
        says.iter().for_each(|part| assert!(log.contains(part), "{part}: {log}"));
        assert!(f.names("").is_empty());
    };
    refused(
        &["compile", "org/none"],
        &[],
        1,
        &["org/none: there is no such file or folder, and no such model on the hub", "HF_TOKEN"],
    );
    refused(
        &["compile", ID],
        &[("HF_HUB_OFFLINE", "1")],
        2,
        &["no such file or folder", "`main` is not in the cache", "`llmcc pull org/model`"],
    );
    refused(&["compile", ID, "--offline"], &[], 2, &["nothing is fetched"]);
    refused(&["pull", ID], &[("HF_HUB_OFFLINE", "1")], 2, &["HF_HUB_OFFLINE is set"]);
    refused(&["compile", "org/model@v9"], &[], 1, &["has no revision `v9`"]);
    refused(&["compile", "org/model:Q4_K_M"], &[], 1, &["it has no models in GGUF"]);
    refused(&["pull", "model"], &[], 2, &["`model` is no name of a model", "OWNER/NAME"]);
    refused(&["pull", ID, "--include", "a**b"], &[], 2, &["--include"]);
    refused(&["pull", ID], &[("HF_ENDPOINT", "hub")], 2, &["HF_ENDPOINT is `hub`"]);
    refused(&["run", ID, "-p", "x"], &[], 1, &["`llmcc compile org/model -o model.so`"]);
    hub.gate();
    refused(&["compile", ID], &[], 1, &["org/model is gated", "agree to its terms, at http://127.0.0.1"]);
    let done = online(&f, &hub, &["compile", ID, "--json"], &[]);
    let document: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(document["error"]["kind"], "download", "{document}");
    // With the token it goes on; the token is in no message.
    let done = online(&f, &hub, &["pull", ID], &[("HF_TOKEN", server::TOKEN)]);
    assert!(done.status.success() && !text(&done.stderr).contains(server::TOKEN));
}

/// A download that is damaged on its way leaves neither a model nor an artifact.
#[test]
fn damaged_downloads_are_not_compiled() {
    let (f, hub) = (Folder::new(), hub());
    hub.trap("GET", "/cdn/", 9, Fault::Damaged);
    let done = online(&f, &hub, &["compile", ID, "-q"], &[]);
    let log = text(&done.stderr);
    assert!(!done.status.success() && log.contains("org/model/model.safetensors: its bytes have the hash"), "{log}");
    assert!(f.names("").is_empty() && !hub.snapshot().join("model.safetensors").exists());
}
