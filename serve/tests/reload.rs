//! SIGHUP, which all servers of a process hear: a test of its own.

use crate::client::{post, reply, send};
use crate::stand_in::{Running, StandIn, expected, wait_for};
use llmcc_model::{Error, Result, Status};
use llmcc_serve::{Model, Source};
use serde_json::json;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";

#[derive(Default)]
struct Folder {
    opened: AtomicU64,
    /// The last model that was opened.
    last: Mutex<Option<Arc<StandIn>>>,
}

impl Folder {
    fn last(&self) -> Option<Arc<StandIn>> {
        self.last.lock().expect("sound").clone()
    }
}

impl Source for Folder {
    fn loadable(&self) -> Option<Vec<String>> {
        None
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Model>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        if name == "broken" {
            return Err(Error::new(Status::Artifact, "no artifact"));
        }
        let model = Arc::new(StandIn::new(64, Duration::from_millis(1)));
        *self.last.lock().expect("sound") = Some(model.clone());
        Ok(model)
    }
}

/// SIGHUP opens the models anew; requests under way are answered by those that they began with.
#[test]
fn hangups_lose_no_request() {
    let first = Arc::new(StandIn::new(64, Duration::from_millis(2)));
    let broken = Arc::new(StandIn::new(64, Duration::ZERO));
    let folder = Arc::new(Folder::default());
    let models: Vec<(String, Arc<dyn Model>)> = vec![("first".into(), first.clone()), ("broken".into(), broken)];
    let s = Running::of(first.clone(), models, Some(folder.clone()), |_| {});
    let ask =
        |model: &str, n: u64| json!({ "prompt": "hi", "model": model, "max_tokens": n, "seed": 0, "stream": true });
    let before = send(s.address, "POST", COMPLETIONS, &[], ask("first", 400).to_string().as_bytes());
    wait_for("begins", || first.live() == 1);
    let id = std::process::id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().expect("it runs").success());
    wait_for("opens both", || folder.opened.load(Ordering::SeqCst) == 2);
    wait_for("serves the new one", || {
        post(s.address, COMPLETIONS, &ask("first", 1));
        folder.last().is_some_and(|model| model.all() > 0)
    });
    let text: String = reply(before)
        .events()
        .iter()
        .filter_map(|e| e.pointer("/choices/0/text")?.as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, expected("hi", 0, 400));
    assert_eq!(post(s.address, COMPLETIONS, &ask("broken", 1)).status, 200, "it stays as it is");
}
