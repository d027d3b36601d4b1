//! The cache beside Python's `huggingface_hub`: each reads what the other has written, and fetches nothing again.

use crate::server::{COMMIT, Hub, ID, tree};
use std::process::Command;

const WEIGHTS: [u8; 5000] = [7; 5000];

/// A Python with `huggingface_hub`.
fn python() -> Option<String> {
    let python = std::env::var("LLMCC_PYTHON").ok();
    let has =
        |p: &String| Command::new(p).args(["-c", "import huggingface_hub"]).output().is_ok_and(|o| o.status.success());
    let found = python.filter(has);
    if found.is_none() {
        println!("skipped: LLMCC_PYTHON does not name a Python with huggingface_hub (`make test` makes one)");
    }
    found
}

fn run(hub: &Hub, python: &str, program: &str, more: &[(&str, &str)]) -> String {
    let mut command = Command::new(python);
    command.args(["-c", program]).envs(hub.environment(more)).env("HF_HUB_DISABLE_XET", "1");
    let done = command.env_remove("HF_TOKEN").env("HF_HUB_DISABLE_TELEMETRY", "1").output().expect("Python runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn model() -> Hub {
    Hub::new(&[
        ("config.json", b"{}"),
        ("1_Pooling/config.json", b"{\"x\": 1}"),
        ("modules.json", b"[]"),
        ("model.safetensors", &WEIGHTS),
    ])
}

#[test]
fn python_finds_what_we_fetched() {
    let Some(python) = python() else { return };
    let hub = model();
    hub.pull(ID).unwrap();
    hub.asked();
    let program = "
from huggingface_hub import hf_hub_download, snapshot_download, try_to_load_from_cache, scan_cache_dir, _CACHED_NO_EXIST
print(snapshot_download('org/model'))
for name in ['config.json', '1_Pooling/config.json', 'model.safetensors']:
    print(hf_hub_download('org/model', name))
print(len(open(hf_hub_download('org/model', 'model.safetensors'), 'rb').read()))
assert try_to_load_from_cache('org/model', 'generation_config.json') is _CACHED_NO_EXIST
report = scan_cache_dir()
assert not report.warnings, report.warnings
print(report.size_on_disk, [r.refs for r in next(iter(report.repos)).revisions])";
    let said = run(&hub, &python, program, &[("HF_HUB_OFFLINE", "1")]);
    let snapshot = hub.snapshot().display().to_string();
    let files = ["config.json", "1_Pooling/config.json", "model.safetensors"].map(|f| format!("{snapshot}/{f}"));
    let want = [&[snapshot][..], &files, &["5000".into(), "5012 [frozenset({'main'})]".into()]].concat();
    assert_eq!(said.lines().collect::<Vec<_>>(), want);
    assert!(hub.asked().is_empty());
    // With a network, files are looked up and not fetched.
    let program = "
from huggingface_hub import hf_hub_download
print(hf_hub_download('org/model', 'model.safetensors'))";
    run(&hub, &python, program, &[]);
    let asked = hub.asked();
    assert!(asked.iter().all(|a| !a.path.starts_with("/cdn/")), "{asked:?}");
}

#[test]
fn we_find_what_python_fetched() {
    let Some(python) = python() else { return };
    let hub = model();
    let program = "
from huggingface_hub import hf_hub_download
for name in ['config.json', '1_Pooling/config.json', 'modules.json', 'model.safetensors']:
    print(hf_hub_download('org/model', name))";
    run(&hub, &python, program, &[]);
    let before = tree(hub.cache.path());
    hub.asked();
    let path = hub.pull(ID).unwrap();
    assert_eq!((path.as_path(), hub.asked().len()), (hub.snapshot().as_path(), 1), "the list alone");
    let after = tree(hub.cache.path());
    let new: Vec<&String> = after.iter().filter(|n| !before.contains(n)).collect();
    assert!(new.iter().all(|n| n.contains(".no_exist")), "{new:?}");
    assert_eq!(std::fs::read_to_string(hub.at("refs/main")).unwrap(), COMMIT);
}
