//! The description of the paths: it names each of them and no other, and the server does as it says.

use crate::client::get;
use crate::stand_in::{Running, StandIn, wait_for};
use llmcc_serve::{Model, Source};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const DESCRIPTION: &str = include_str!("../openapi.yaml");
const ROUTES: &str = include_str!("../src/routes.rs");
const METHODS: [&str; 3] = ["get", "post", "delete"];

/// Methods and paths of the description.
fn described() -> BTreeSet<(String, String)> {
    let paths = DESCRIPTION.lines().skip_while(|l| *l != "paths:").skip(1).take_while(|l| l.starts_with(' '));
    let (mut found, mut path) = (BTreeSet::new(), String::new());
    for line in paths {
        let name = line.trim().trim_end_matches(':');
        match line.len() - line.trim_start().len() {
            2 => name.clone_into(&mut path),
            4 => drop(found.insert((name.to_owned(), path.clone()))),
            _ => {}
        }
    }
    found
}

/// Methods and paths of the server, by its source.
fn routed() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for route in ROUTES.split(".route(\"").skip(1) {
        let (path, rest) = route.split_once('"').expect("a path");
        let handlers = rest.split(';').next().expect("some").split("\n        .").next().expect("some");
        let methods = METHODS.iter().filter(|method| handlers.contains(&format!("{method}(")));
        found.extend(methods.map(|method| (method.to_string(), path.replace("{*", "{"))));
    }
    found
}

#[test]
fn each_path_is_described() {
    assert!(routed().len() > 25, "{:?}", routed());
    assert_eq!(routed(), described());
    let s = Running::plain();
    assert_eq!(get(s.address, "/openapi.yaml").text(), DESCRIPTION);
}

struct Folder;

impl Source for Folder {
    fn loadable(&self) -> Option<Vec<String>> {
        Some(vec!["letters".into(), "other".into()])
    }
    fn open(&self, _: &str) -> llmcc_model::Result<Arc<dyn Model>> {
        Ok(Arc::new(StandIn::new(64, Duration::ZERO)))
    }
}

/// The description for the stand-in: with its name and its vocabulary, and enough time for each request.
fn for_letters() -> String {
    let pairs = [
        ("model: {type: [string, \"null\"]", "model: {enum: [letters, null]"),
        ("Token: {type: integer, minimum: 0, maximum: 2147483647}", "Token: {type: integer, minimum: 0, maximum: 255}"),
        ("timeout: {type: [number, \"null\"], minimum: 0,", "timeout: {type: [number, \"null\"], minimum: 60,"),
    ];
    pairs.into_iter().fold(DESCRIPTION.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// Requests by the description and against it, by schemathesis, where that is installed beside LLMCC_TEST_PYTHON.
#[test]
fn the_server_is_as_described() {
    let Some(python) = std::env::var_os("LLMCC_TEST_PYTHON").map(PathBuf::from) else {
        eprintln!("skipped: LLMCC_TEST_PYTHON names no Python (pip install schemathesis)");
        return;
    };
    let program = python.with_file_name("schemathesis");
    if !program.is_file() {
        eprintln!("skipped: there is no {} (pip install schemathesis)", program.display());
        return;
    }
    let mut model = StandIn::new(64, Duration::ZERO);
    // (Its texts have no end of their own.)
    model.usual = 20;
    let model = Arc::new(model);
    let s = Running::of(model.clone(), vec![("letters".into(), model.clone())], Some(Arc::new(Folder)), |_| {});
    let folder = std::env::temp_dir().join(format!("llmcc-openapi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("created");
    let description = folder.join("openapi.yaml");
    std::fs::write(&description, for_letters()).expect("written");
    let url = format!("http://{}", s.address);
    // A value may be as its type says and still name no token, or be too long: its refusal is no fault.
    let args = ["--exclude-checks", "positive_data_acceptance", "--max-examples", "25", "--seed", "1", "--no-color"];
    let mut command = Command::new(program);
    command.arg("run").arg(&description).args(["--url", &url]).args(args).current_dir(&folder);
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(done.status.success(), "{said}");
    assert_eq!(get(s.address, "/health").status, 200);
    wait_for("all requests end", || s.model.live() == 0);
}
