//! `llmcc serve` with several artifacts, a folder of them, and files that are replaced while it runs.

use crate::client::{get, post, reply, send};
use crate::common::{Folder, WITH_TOKENIZER};
use crate::served::Served;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";

/// Two models that differ in their longest context.
fn two() -> Folder {
    let f = Folder::new();
    for (name, context) in [("m.so", "256"), ("n.so", "128")] {
        f.compile(WITH_TOKENIZER, name, &["--no-golden", "--quiet", "--max-context", context]);
    }
    f
}

/// Names and contexts of the served models.
fn served(s: &Served) -> Vec<(String, u64)> {
    let models = get(s.address, "/v1/models").json();
    let model =
        |m: &Value| (m["id"].as_str().expect("a text").to_owned(), m["max_model_len"].as_u64().expect("a count"));
    models["data"].as_array().expect("a list").iter().map(model).collect()
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn models_come_and_go() {
    let f = two();
    let mut s = Served::of(&f, &["m.so", "n.so", "--served-name", "one", "--served-name", "two", "--log", "json"]);
    assert_eq!(served(&s), [("one".into(), 256), ("two".into(), 128)]);
    let ask = |model: &str| json!({ "model": model, "prompt": "Once", "max_tokens": 8, "temperature": 0 });
    let text = |model: &str| post(s.address, COMPLETIONS, &ask(model)).json()["choices"][0]["text"].clone();
    assert_eq!(text("one"), text("two"), "the weights are the same");
    let facts = get(s.address, "/certificate?model=two").json();
    assert_eq!((&facts["info"]["max_context"], &facts["chat_template"]), (&json!(128), &json!(true)), "{facts}");
    replaced(&f, &s);
    let refused = post(s.address, "/models/unload", &json!({ "model": "one" }));
    assert_eq!(refused.status, 403, "{}", refused.text());
    s.terminate();
    let mut said = String::new();
    s.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("read");
    let lines: Vec<Value> =
        said.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    let has = |name: &str, value: Value| lines.iter().any(|line| line[name] == value);
    assert!(
        has("path", json!(COMPLETIONS)) && has("message", json!("reloaded one")) && has("status", json!(403)),
        "{said}"
    );
}

/// A new file takes the place of `m.so`; a broken one that of `n.so`.
fn replaced(f: &Folder, s: &Served) {
    let long = json!({ "model": "one", "prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true });
    let running = send(s.address, "POST", COMPLETIONS, &[], long.to_string().as_bytes());
    running.peek(&mut [0; 1]).expect("begins");
    for context in ["192", "160"] {
        f.compile(WITH_TOKENIZER, "new.so", &["--no-golden", "--quiet", "--max-context", context]);
        fs::rename(f.at("new.so"), f.at("m.so")).expect("renamed");
        s.signal(libc::SIGHUP);
        let now = ("one".to_owned(), context.parse().expect("a count"));
        wait_until("the new file is served", || served(s)[0] == now);
    }
    fs::write(f.at("new.so"), "no artifact").expect("written");
    fs::rename(f.at("new.so"), f.at("n.so")).expect("renamed");
    s.signal(libc::SIGHUP);
    let events = reply(running).events();
    let finish = events.iter().filter_map(|e| e.pointer("/choices/0/finish_reason")?.as_str()).next();
    assert_eq!(finish, Some("length"), "no request is lost: {events:?}");
    let ask = json!({ "model": "two", "prompt": "Once", "max_tokens": 1 });
    assert_eq!(post(s.address, COMPLETIONS, &ask).status, 200, "it stays as it was");
}

#[test]
fn folders_have_models_to_load() {
    let f = two();
    fs::create_dir(f.at("models")).expect("created");
    for name in ["m.so", "n.so"] {
        fs::rename(f.at(name), f.at("models").join(name)).expect("moved");
    }
    fs::write(f.at("models").join("bad.so"), "no artifact").expect("written");
    fs::write(f.at("models").join("text.txt"), "no artifact").expect("written");
    let s = Served::of(&f, &["--model-dir", "models", "--max-models", "1"]);
    let known = get(s.address, "/models").json();
    let names: Vec<&Value> = known["data"].as_array().expect("a list").iter().map(|m| &m["id"]).collect();
    assert_eq!(names, ["bad", "m", "n"]);
    let change =
        |what: &str, model: &str| post(s.address, &format!("/models/{what}"), &json!({ "model": model })).status;
    assert_eq!((change("load", "bad"), change("load", "../models/m"), change("load", "text")), (500, 404, 404));
    assert_eq!((change("load", "m"), change("load", "n")), (200, 409));
    assert_eq!(served(&s), [("m".into(), 256)]);
    let ask = json!({ "prompt": "Once", "max_tokens": 4 });
    assert_eq!(post(s.address, COMPLETIONS, &ask).status, 200);
    assert_eq!((change("unload", "m"), change("load", "n")), (200, 200));
    assert_eq!(served(&s), [("n".into(), 128)]);
}

/// A model that compares texts, whose pairs have the scores that they have alone.
#[test]
fn pairs_are_scored() {
    let f = Folder::new();
    f.compile("bert_pairs", "m.so", &["--no-golden", "--quiet"]);
    let s = Served::of(&f, &["m.so"]);
    let documents = ["b c", "c", "a"];
    let score = |ask: Value| -> Vec<f64> {
        let got = post(s.address, "/score", &ask).json();
        let data = got["data"].as_array().unwrap_or_else(|| panic!("{got}"));
        data.iter().map(|d| d["score"].as_f64().expect("a number")).collect()
    };
    let raw = score(json!({ "text_1": "a", "text_2": documents, "use_activation": false }));
    let alone = documents.map(|d| score(json!({ "text_1": "a", "text_2": d, "use_activation": false }))[0]);
    assert_eq!(raw, alone);
    let activated = score(json!({ "text_1": "a", "text_2": documents }));
    assert!(
        raw.iter().zip(&activated).all(|(x, y)| (1.0 / (1.0 + (-x).exp()) - y).abs() < 1e-6),
        "{raw:?} {activated:?}"
    );
    let ranking = post(s.address, "/rerank", &json!({ "query": "a", "documents": documents })).json();
    let results = ranking["results"].as_array().unwrap_or_else(|| panic!("{ranking}"));
    for (result, next) in results.iter().zip(&results[1..]) {
        assert!(result["relevance_score"].as_f64() >= next["relevance_score"].as_f64(), "{ranking}");
    }
    assert!(results.iter().all(|r| r["relevance_score"] == activated[r["index"].as_u64().expect("an index") as usize]));
    let refused = post(s.address, COMPLETIONS, &json!({ "prompt": "a" }));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("unsupported")), "{}", refused.text());
}
