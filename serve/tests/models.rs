//! Servers of several models, which come and go while requests are under way.

use crate::client::{get, post, reply, send};
use crate::stand_in::{Running, StandIn, expected, wait_for};
use llmcc_model::{Error, Result, Status};
use llmcc_serve::{Model, Source};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";

/// A folder of stand-ins.
#[derive(Default)]
struct Folder {
    names: Option<Vec<String>>,
    opened: AtomicU64,
    /// The last model that was opened.
    last: Mutex<Option<Arc<StandIn>>>,
}

impl Folder {
    fn of(names: &[&str]) -> Arc<Folder> {
        let names = Some(names.iter().map(|name| name.to_string()).collect());
        Arc::new(Folder { names, ..Folder::default() })
    }
}

impl Source for Folder {
    fn loadable(&self) -> Option<Vec<String>> {
        self.names.clone()
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

fn two(source: Option<Arc<dyn Source>>) -> (Running, Arc<StandIn>) {
    let [first, second] = [(); 2].map(|()| Arc::new(StandIn::new(64, Duration::from_millis(1))));
    let models: Vec<(String, Arc<dyn Model>)> =
        vec![("first".into(), first.clone()), ("sec\"ond".into(), second.clone())];
    (Running::of(first, models, source, |_| {}), second)
}

fn names(s: &Running) -> Vec<String> {
    let models = get(s.address, "/v1/models").json();
    models["data"].as_array().expect("a list").iter().map(|m| m["id"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn models_are_chosen_by_name() {
    let (s, second) = two(None);
    assert_eq!(names(&s), ["first", "sec\"ond"]);
    let ask = |model: Value| post(s.address, COMPLETIONS, &json!({ "prompt": "hi", "model": model, "max_tokens": 2 }));
    for (model, counts) in [("first", (1, 0)), ("sec\"ond", (1, 1))] {
        assert_eq!(ask(model.into()).json()["model"], model);
        assert_eq!((s.model.all(), second.all()), counts);
    }
    let other = ask("third".into());
    assert_eq!((other.status, &other.json()["error"]["code"]), (404, &json!("model_not_found")));
    let none = ask(Value::Null);
    assert_eq!((none.status, &none.json()["error"]["param"]), (400, &json!("model")), "{}", none.text());
    let page = get(s.address, "/metrics").text();
    for line in [
        "vllm:request_success_total{model_name=\"first\",finished_reason=\"length\"} 1",
        "vllm:request_success_total{model_name=\"sec\\\"ond\",finished_reason=\"length\"} 1",
        "vllm:generation_tokens_total{model_name=\"sec\\\"ond\"} 2",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
    let heads: Vec<&str> = page.lines().filter(|l| l.starts_with("# TYPE")).collect();
    let mut unique = heads.clone();
    unique.dedup();
    assert_eq!(heads, unique, "a metric's lines stand together");
}

#[test]
fn clients_load_names_of_a_folder_only() {
    let (s, _) = two(None);
    for path in ["/models/load", "/models/unload"] {
        let refused = post(s.address, path, &json!({ "model": "first" }));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("loading_disabled")));
    }
    let folder = Folder::of(&["first", "third", "broken"]);
    let (s, _) = two(Some(folder.clone()));
    let states = get(s.address, "/models").json();
    let state = |name: &str| {
        let all = states["data"].as_array().expect("a list");
        all.iter().find(|m| m["id"] == name).map(|m| m["status"]["value"].clone())
    };
    assert_eq!((state("first"), state("third")), (Some(json!("loaded")), Some(json!("unloaded"))));
    for path in ["../third", "/etc/passwd", "third.so", "", "third\u{0}", "sec\"ond"] {
        assert_eq!(post(s.address, "/models/load", &json!({ "model": path })).status, 404, "{path}");
    }
    assert_eq!(folder.opened.load(Ordering::SeqCst), 0);
    let broken = post(s.address, "/models/load", &json!({ "model": "broken" }));
    assert!(broken.status == 500 && broken.json()["error"]["code"] == "model_not_opened", "{}", broken.text());
    let loaded = |name: &str| post(s.address, "/models/load", &json!({ "model": name }));
    assert_eq!(loaded("third").json()["already_loaded"], false);
    assert_eq!(loaded("third").json()["already_loaded"], true);
    let ask = json!({ "prompt": "hi", "model": "third", "max_tokens": 3, "seed": 0 });
    assert_eq!(post(s.address, COMPLETIONS, &ask).json()["choices"][0]["text"], expected("hi", 0, 3));
    assert_eq!(post(s.address, "/models/unload", &json!({ "model": "third" })).status, 200);
    assert_eq!(post(s.address, COMPLETIONS, &ask).status, 404);
    assert_eq!(post(s.address, "/models/unload", &json!({ "model": "third" })).status, 404);
    assert_eq!(names(&s), ["first", "sec\"ond"]);
}

/// The model of requests under way stays until they have ended, and then goes.
#[test]
fn unloaded_models_end_their_requests() {
    let folder = Folder::of(&["third"]);
    let (s, _) = two(Some(folder.clone()));
    assert_eq!(post(s.address, "/models/load", &json!({ "model": "third" })).status, 200);
    let ask = json!({ "prompt": "hi", "model": "third", "max_tokens": 300, "seed": 0 });
    let running = send(s.address, "POST", COMPLETIONS, &[], ask.to_string().as_bytes());
    let model = folder.last.lock().expect("sound").take().expect("opened");
    wait_for("begins", || model.live() == 1);
    assert_eq!(post(s.address, "/models/unload", &json!({ "model": "third" })).status, 200);
    assert_eq!(reply(running).json()["choices"][0]["text"], expected("hi", 0, 300));
    wait_for("the model is closed", || Arc::strong_count(&model) == 1);
}

#[test]
fn only_so_many_models_are_loaded() {
    let first = Arc::new(StandIn::new(64, Duration::ZERO));
    let s = Running::of(first.clone(), vec![("first".into(), first)], Some(Folder::of(&["first", "second"])), |s| {
        s.max_models = 1
    });
    let load = || post(s.address, "/models/load", &json!({ "model": "second" }));
    assert_eq!((load().status, &load().json()["error"]["code"]), (409, &json!("too_many_models")));
    assert_eq!(post(s.address, "/models/unload", &json!({ "model": "first" })).status, 200);
    assert_eq!(get(s.address, "/v1/models").json()["data"], json!([]));
    assert_eq!(post(s.address, COMPLETIONS, &json!({ "prompt": "hi" })).status, 404);
    assert_eq!(load().status, 200);
    assert_eq!(post(s.address, COMPLETIONS, &json!({ "prompt": "hi" })).status, 200, "the only one needs no name");
}
