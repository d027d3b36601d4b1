//! Downloads from a local server: the cache, resumed downloads, damaged ones, refusals.

use crate::server::{Asked, COMMIT, Fault, Hub, ID, TOKEN, hash_of, tree};
use llmcc_hub::{HubError, Pattern, Reference, Unwatched, Watch, Why, Wishes, cached};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// Bytes that differ from place to place.
fn weights(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// A small model, with files that nobody needs.
fn model() -> Hub {
    Hub::new(&[
        ("config.json", b"{\"model_type\": \"llama\"}"),
        ("tokenizer.json", b"{}"),
        ("README.md", b"# A model"),
        ("modeling_x.py", b"import os"),
        ("model.safetensors", &weights(100_000)),
        ("pytorch_model.bin", &weights(90_000)),
        ("onnx/model.onnx", b"onnx"),
    ])
}

/// Paths that were asked for with a method.
fn paths<'a>(asked: &'a [Asked], method: &str) -> Vec<&'a str> {
    asked.iter().filter(|a| a.method == method).map(|a| a.path.as_str()).collect()
}

#[derive(Default)]
struct Heard {
    moved: AtomicI64,
    total: AtomicI64,
    said: Mutex<Vec<String>>,
}

impl Watch for Heard {
    fn begin(&self, total: u64) {
        self.total.store(total as i64, SeqCst);
    }
    fn moved(&self, bytes: i64) {
        self.moved.fetch_add(bytes, SeqCst);
    }
    fn say(&self, line: &str) {
        self.said.lock().unwrap().push(line.to_owned());
    }
}

#[test]
fn the_needed_files_come_once() {
    let hub = model();
    let heard = Heard::default();
    let path = hub.pull_watched(ID, &heard).unwrap();
    assert_eq!(path, hub.snapshot());
    assert_eq!(tree(&hub.snapshot()), ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights(100_000));
    let blob = hash_of("model.safetensors", &weights(100_000));
    assert_eq!(fs::read_link(path.join("model.safetensors")).unwrap(), Path::new("../../blobs").join(&blob));
    assert_eq!(fs::read_to_string(hub.at("refs/main")).unwrap(), COMMIT);
    assert!(hub.at(&format!(".no_exist/{COMMIT}/generation_config.json")).is_file());
    assert!(!hub.at(&format!(".no_exist/{COMMIT}/tokenizer.json")).exists());
    assert!(hub.cache.path().join(format!("hub/.locks/models--org--model/{blob}.lock")).is_file());
    assert_eq!(heard.moved.load(SeqCst), heard.total.load(SeqCst), "everything was counted once");
    assert!(heard.total.load(SeqCst) > 100_000);
    hub.asked();
    // A second time the list alone is asked for; another program's files count, too.
    hub.pull(ID).unwrap();
    assert_eq!(paths(&hub.asked(), "GET"), [format!("/api/models/{ID}/revision/main?blobs=true")]);
    // Another revision of the same bytes.
    fs::remove_dir_all(hub.at("snapshots")).unwrap();
    hub.pull(&format!("{ID}@v1")).unwrap();
    assert_eq!(paths(&hub.asked(), "GET").len(), 1, "blobs are there");
    assert_eq!(fs::read_to_string(hub.at("refs/v1")).unwrap(), COMMIT);
    hub.pull(&format!("{ID}@refs/pr/1")).unwrap();
    assert_eq!(fs::read_to_string(hub.at("refs/refs/pr/1")).unwrap(), COMMIT);
}

#[test]
fn a_plan_says_what_is_left_and_writes_nothing() {
    let hub = model();
    let plan = hub.plan(ID, &Wishes::default()).unwrap();
    let left: Vec<(&str, Why)> = plan.left.iter().map(|l| (l.file.name.as_str(), l.why)).collect();
    assert_eq!(
        left,
        [
            ("README.md", Why::Unread),
            ("modeling_x.py", Why::Unread),
            ("onnx/model.onnx", Why::Again),
            ("pytorch_model.bin", Why::Again)
        ]
    );
    assert_eq!(plan.bytes(), 100_000 + 23 + 2);
    assert!(tree(hub.cache.path()).is_empty());
    assert!(hub.asked().iter().all(|a| a.method == "GET" && a.path.starts_with("/api/")));
    let pattern = |text: &str| vec![Pattern::new(text).unwrap()];
    let names = |wishes: &Wishes| -> Vec<String> {
        hub.plan(ID, wishes).unwrap().files.into_iter().map(|w| w.file.name).collect()
    };
    assert_eq!(names(&Wishes { include: pattern("*.bin"), ..Wishes::default() }), ["pytorch_model.bin"]);
    assert_eq!(names(&Wishes { include: pattern("onnx/*"), ..Wishes::default() }), ["onnx/model.onnx"]);
    assert_eq!(
        names(&Wishes { exclude: pattern("*.safetensors"), ..Wishes::default() }),
        ["config.json", "tokenizer.json"]
    );
    assert_eq!(names(&Wishes { weights: false, ..Wishes::default() }), ["config.json", "tokenizer.json"]);
    let none = hub.plan(ID, &Wishes { include: pattern("*.h5"), ..Wishes::default() }).unwrap_err();
    assert!(none.to_string().contains("no file has a name"), "{none}");
}

#[test]
fn shards_are_those_of_the_index() {
    let index =
        br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    let hub = Hub::new(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-00001-of-00002.safetensors", &weights(10)),
        ("model-00002-of-00002.safetensors", &weights(20)),
        ("model-00001-of-00009.safetensors", &weights(30)),
        ("consolidated.safetensors", &weights(40)),
    ]);
    let path = hub.pull(ID).unwrap();
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    assert_eq!(tree(&path), [&["config.json"], &shards[..], &["model.safetensors.index.json"]].concat());
    let of_index = |a: &&Asked| a.method == "GET" && a.path.ends_with("index.json");
    assert_eq!(hub.asked().iter().filter(of_index).count(), 1, "its bytes are kept");
    let bad = Hub::new(&[("config.json", b"{}"), ("model.safetensors.index.json", br#"{"weight_map": {"a": "x"}}"#)]);
    assert!(bad.pull(ID).unwrap_err().to_string().contains("names `x`, a file that the repository lacks"));
    let bad =
        Hub::new(&[("config.json", b"{}"), ("model.safetensors.index.json", br#"{"weight_map": {"a": "../../x"}}"#)]);
    assert!(bad.pull(ID).unwrap_err().to_string().contains("which no file may be called"));
}

#[test]
fn broken_downloads_go_on() {
    let hub = model();
    let blob = hash_of("model.safetensors", &weights(100_000));
    // Within a download: cut twice, and silent once.
    hub.trap("GET", "/cdn/", 1, Fault::Cut(30_000));
    hub.trap("GET", "/cdn/", 1, Fault::Silent(20_000));
    let heard = Heard::default();
    let path = hub.pull_watched(ID, &heard).unwrap();
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights(100_000));
    let from: Vec<_> = hub.asked().iter().filter(|a| a.path.starts_with("/cdn/")).map(|a| a.from).collect();
    assert_eq!(from, [None, Some(30_000), Some(50_000)]);
    assert_eq!(heard.moved.load(SeqCst), heard.total.load(SeqCst));
    assert_eq!(heard.said.lock().unwrap().iter().filter(|line| line.contains("going on in")).count(), 2);
    // Between two runs: another program's beginning, a damaged one, one that is too long.
    let again = |bytes: &[u8]| {
        fs::remove_dir_all(hub.snapshot()).unwrap();
        fs::remove_file(hub.at("blobs").join(&blob)).unwrap();
        fs::write(hub.at("blobs").join(format!("{blob}.incomplete")), bytes).unwrap();
        hub.asked();
        let heard = Heard::default();
        let path = hub.pull_watched(ID, &heard).unwrap();
        assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), weights(100_000));
        assert_eq!(heard.moved.load(SeqCst), heard.total.load(SeqCst));
        assert!(!hub.at("blobs").join(format!("{blob}.incomplete")).exists());
        hub.asked().iter().filter(|a| a.path.starts_with("/cdn/")).map(|a| a.from).collect::<Vec<_>>()
    };
    assert_eq!(again(&weights(70_000)), [Some(70_000)]);
    assert_eq!(again(&weights(100_000)), [], "nothing is missing but the name");
    assert_eq!(again(&[9; 70_000]), [Some(70_000), None], "a damaged beginning is thrown away");
    assert_eq!(again(&[9; 200_000]), [None]);
    hub.trap("GET", "/cdn/", 1, Fault::Whole);
    assert_eq!(again(&weights(70_000)), [Some(70_000)], "a server may ignore the range");
}

#[test]
fn connections_that_always_break_end() {
    let hub = model();
    hub.trap("GET", "/cdn/", 1, Fault::Cut(30_000));
    hub.trap("GET", "/cdn/", 100, Fault::Cut(0));
    let e = hub.pull(ID).unwrap_err();
    assert!(matches!(&e, HubError::Network { why, .. } if why.contains("the connection broke")), "{e}");
    assert!(e.is_unreachable() && e.to_string().contains("/resolve/"), "{e}");
    assert!(!hub.snapshot().join("model.safetensors").exists());
    let blob = hash_of("model.safetensors", &weights(100_000));
    assert_eq!(fs::metadata(hub.at("blobs").join(format!("{blob}.incomplete"))).unwrap().len(), 30_000);
    let asked = hub.asked().iter().filter(|a| a.path.starts_with("/cdn/")).count();
    assert_eq!(asked, 6, "one that brings bytes, and five that do not");
}

#[test]
fn bytes_with_another_hash_are_refused() {
    for (part, name) in [("/cdn/", "model.safetensors"), ("tokenizer.json", "tokenizer.json")] {
        let hub = model();
        hub.trap("GET", part, 100, Fault::Damaged);
        let e = hub.pull(ID).unwrap_err();
        assert!(
            matches!(&e, HubError::Untrusted { place, why } if place.ends_with(name) && why.contains("have the hash")),
            "{e}"
        );
        assert!(!hub.snapshot().join(name).exists());
        let blob = if name == "tokenizer.json" { hash_of(name, b"{}") } else { hash_of(name, &weights(100_000)) };
        assert!(tree(&hub.at("blobs")).iter().all(|n| !n.starts_with(&blob)), "nothing of it stays");
    }
    let hub = model();
    hub.trap("GET", "/cdn/", 100, Fault::Longer);
    let e = hub.pull(ID).unwrap_err();
    assert!(e.to_string().contains("sends more than the 100000 bytes"), "{e}");
    let hub = Hub::new(&[("config.json", b"{}"), ("model.safetensors.index.json", b"{\"weight_map\": {}}")]);
    hub.trap("GET", "index.json", 100, Fault::Damaged);
    assert!(hub.pull(ID).unwrap_err().to_string().contains("have the hash"));
}

#[test]
fn answers_that_contradict_each_other_are_refused() {
    let other = "f".repeat(64);
    for (headers, says) in [
        (vec![("X-Linked-Etag", format!("\"{other}\""))], "two different hashes"),
        (vec![("X-Linked-Size", "7".to_owned())], "two different sizes"),
        (vec![("X-Repo-Commit", "f".repeat(40))], "two different commits"),
        (vec![("X-Linked-Etag", "\"../../../x\"".to_owned())], "does not say its hash"),
        (vec![("X-Linked-Etag", String::new()), ("ETag", String::new())], "does not say its hash"),
    ] {
        let hub = model();
        hub.trap("HEAD", "model.safetensors", 1, Fault::Headers(headers));
        let e = hub.pull(ID).unwrap_err();
        assert!(
            matches!(&e, HubError::Untrusted { why, .. } | HubError::Network { why, .. } if why.contains(says)),
            "{says}: {e:?}"
        );
    }
    let hub = model();
    hub.trap("GET", "/api/", 1, Fault::Headers(vec![("Content-Type", "text/html".into())]));
    hub.pull(ID).unwrap();
    let e = model().pull(&format!("{ID}@{}", "f".repeat(40))).unwrap_err();
    assert!(matches!(e, HubError::NoRevision { .. }), "{e}");
}

/// Names of a server never leave the cache's folder.
#[test]
fn odd_names_are_left_out() {
    let hub = model();
    let odd =
        ["../../../evil.json", "/tmp/evil.json", "a/../../evil.json", "..", "evil\\\\..\\\\x.json", "C:evil.json"];
    odd.iter().for_each(|name| hub.list_odd(name));
    let plan = hub.plan(ID, &Wishes { include: vec![Pattern::new("*").unwrap()], ..Wishes::default() }).unwrap();
    assert_eq!(plan.refused.len(), odd.len());
    hub.client().fetch(&plan, &Unwatched).unwrap();
    assert_eq!(tree(&hub.snapshot()).len(), 7);
    let all = tree(hub.cache.path());
    assert!(all.iter().all(|n| !n.contains("evil")), "{all:?}");
}

/// A link that someone put into the cache is not written through.
#[test]
fn links_in_place_of_bytes_are_not_followed() {
    let hub = model();
    let target = hub.cache.path().join("target");
    fs::write(&target, "mine").unwrap();
    fs::create_dir_all(hub.at("blobs")).unwrap();
    let blob = hash_of("model.safetensors", &weights(100_000));
    std::os::unix::fs::symlink(&target, hub.at("blobs").join(format!("{blob}.incomplete"))).unwrap();
    assert!(matches!(hub.pull(ID).unwrap_err(), HubError::Io { .. }));
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
}

#[test]
fn busy_servers_are_asked_again() {
    let hub = model();
    hub.trap("GET", "/api/", 2, Fault::Answer(429, vec![("Retry-After", "0".into())]));
    hub.trap("HEAD", "config.json", 1, Fault::Answer(503, vec![]));
    hub.trap("GET", "/cdn/", 1, Fault::Answer(500, vec![]));
    let heard = Heard::default();
    hub.pull_watched(ID, &heard).unwrap();
    let said = heard.said.lock().unwrap().join("\n");
    assert!(said.contains("answers 429; trying again") && said.contains("503") && said.contains("500"), "{said}");
    hub.trap("GET", "/api/", 1, Fault::Answer(429, vec![("Retry-After", "3600".into())]));
    let e = hub.pull(ID).unwrap_err();
    assert!(matches!(&e, HubError::Busy { wait, .. } if wait.as_secs() == 3600) && e.is_unreachable(), "{e}");
    hub.asked();
    hub.trap("GET", "/api/", 100, Fault::Answer(502, vec![]));
    let e = hub.pull(ID).unwrap_err();
    assert!(e.to_string().contains("answers 502, also when asked 6 times"), "{e}");
    assert_eq!(hub.asked().len(), 6);
}

#[test]
fn refusals_say_what_to_do() {
    let said = |code: u16, headers: &[(&'static str, &str)], more: &[(&str, &str)]| {
        let hub = model();
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        hub.trap("GET", "/api/", 1, Fault::Answer(code, headers));
        let client = llmcc_hub::Client::new(hub.settings(more)).unwrap();
        let e = client.plan(&Reference::parse(ID).unwrap(), &Wishes::default(), &Unwatched).unwrap_err().to_string();
        assert!(!e.contains(TOKEN) && e.lines().count() == 1, "{e}");
        e
    };
    let with = &[("HF_TOKEN", TOKEN)][..];
    let gated = &[("X-Error-Code", "GatedRepo")][..];
    let e = said(401, gated, &[]);
    assert!(
        e.contains("org/model is gated") && e.contains("agree to its terms, at http://127") && e.contains("HF_TOKEN"),
        "{e}"
    );
    assert!(said(403, gated, with).contains("the token from HF_TOKEN must be of an account that was let in"));
    let none = &[("X-Error-Code", "RepoNotFound")][..];
    assert!(said(401, none, &[]).contains("has no model of this name, or it is private: check the name"));
    assert!(said(404, none, with).contains("the token from HF_TOKEN does not open it"));
    let bad = &[("X-Error-Message", "Invalid credentials in Authorization header")][..];
    assert!(said(401, bad, with).contains("refuses the token from HF_TOKEN: make a new one"));
    assert!(said(403, &[("X-Error-Message", "Not\u{20}today")], &[]).contains("answers 403: Not today; it may let in"));
    assert!(said(404, &[], &[]).contains("has no model of this name"));
    let hub = model();
    let e = hub.pull("org/other").unwrap_err();
    assert!(matches!(e, HubError::NoModel { .. }), "{e}");
    let e = hub.pull(&format!("{ID}@v9")).unwrap_err().to_string();
    assert!(e.contains("org/model has no revision `v9`"), "{e}");
    let e = hub.pull(&format!("{ID}/sub/Config.json")).unwrap_err().to_string();
    assert!(e.contains("it has no file `sub/Config.json`; it has config.json"), "{e}");
    hub.trap("HEAD", "tokenizer.json", 1, Fault::Answer(404, vec![("X-Error-Code", "EntryNotFound".into())]));
    assert!(matches!(hub.pull(ID).unwrap_err(), HubError::NoFile { .. }));
}

/// The token goes to the hub, and not to the host that the hub sends to.
#[test]
fn tokens_stay_on_the_hub() {
    let hub = model();
    hub.gate();
    assert!(matches!(hub.pull(ID).unwrap_err(), HubError::Gated { token: None, .. }));
    hub.asked();
    let client = llmcc_hub::Client::new(hub.settings(&[("HF_TOKEN", TOKEN)])).unwrap();
    let plan = client.plan(&Reference::parse(ID).unwrap(), &Wishes::default(), &Unwatched).unwrap();
    client.fetch(&plan, &Unwatched).unwrap();
    let asked = hub.asked();
    let cdn = |a: &&Asked| a.path.starts_with("/cdn/");
    assert_eq!(asked.iter().filter(cdn).count(), 1);
    assert!(asked.iter().filter(cdn).all(|a| a.token.is_none() && a.host.starts_with("localhost")), "{asked:?}");
    let ours = asked.iter().filter(|a| !cdn(a));
    assert!(ours.into_iter().all(|a| a.token.as_deref() == Some("Bearer hf_secret")), "{asked:?}");
    // A model that has moved: the hub sends to itself.
    let hub = model();
    let moved = |to: &str| vec![("Location", to.to_owned())];
    hub.trap("GET", "/api/", 1, Fault::Answer(307, moved(&format!("/api/models/{ID}/revision/v1?blobs=true"))));
    hub.trap("HEAD", "config.json", 1, Fault::Answer(307, moved(&format!("/{ID}/resolve/v1/config.json"))));
    hub.pull(ID).unwrap();
    for to in ["ftp://x/y", "http://", "/api/models/org/model/revision/main"] {
        hub.trap("GET", "/api/", 20, Fault::Answer(302, moved(to)));
        let e = hub.pull(ID).unwrap_err().to_string();
        assert!(e.contains("the server sends"), "{to}: {e}");
        hub.asked();
        // (The traps that are left belong to this address.)
        while hub.plan(ID, &Wishes::default()).is_err() {}
    }
}

#[test]
fn servers_that_are_not_there() {
    let hub = model();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = llmcc_hub::Client::new(hub.settings(&[("HF_ENDPOINT", &nobody)])).unwrap();
    let what = Reference::parse(ID).unwrap();
    let e = client.plan(&what, &Wishes::default(), &Unwatched).unwrap_err();
    assert!(e.is_unreachable() && e.to_string().contains("it cannot be reached"), "{e}");
    let client = llmcc_hub::Client::new(hub.settings(&[("HF_ENDPOINT", "https://nobody.invalid")])).unwrap();
    let e = client.plan(&what, &Wishes::default(), &Unwatched).unwrap_err();
    assert!(e.is_unreachable() && e.to_string().starts_with("https://nobody.invalid/api/models/org/model"), "{e}");
    // An encrypted connection to a server without encryption.
    let plain = hub.endpoint().replace("http://", "https://");
    let client = llmcc_hub::Client::new(hub.settings(&[("HF_ENDPOINT", &plain)])).unwrap();
    let e = client.plan(&what, &Wishes::default(), &Unwatched).unwrap_err();
    assert!(e.is_unreachable(), "{e}");
}

#[test]
fn the_cache_serves_without_a_network() {
    let hub = model();
    let settings = hub.settings(&[("HF_HUB_OFFLINE", "1")]);
    assert!(settings.offline);
    let of = |what: &str| cached(&settings, &Reference::parse(what).unwrap(), &Wishes::default());
    let e = of(ID).unwrap_err().to_string();
    assert!(e.contains("org/model: revision `main` is not in the cache"), "{e}");
    hub.pull(ID).unwrap();
    assert_eq!(of(ID).unwrap(), hub.snapshot());
    assert_eq!(of(&format!("{ID}@{COMMIT}")).unwrap(), hub.snapshot());
    assert!(of(&format!("{ID}@v1")).is_err());
    fs::remove_file(hub.snapshot().join("model.safetensors")).unwrap();
    let e = of(ID).unwrap_err().to_string();
    assert!(e.contains("the cache has a part only"), "{e}");
}

#[test]
fn one_model_of_gguf() {
    let hub = Hub::new(&[
        ("README.md", b"x"),
        ("x-Q4_K_M.gguf", &weights(10)),
        ("x-Q8_0.gguf", &weights(20)),
        ("mmproj-x-Q8_0.gguf", &weights(30)),
        ("BF16/x-BF16-00001-of-00002.gguf", &weights(40)),
        ("BF16/x-BF16-00002-of-00002.gguf", &weights(50)),
        ("Q2_K/x-Q2_K-00001-of-00002.gguf", &weights(60)),
    ]);
    assert_eq!(hub.pull("org/model:q4_k_m").unwrap(), hub.snapshot().join("x-Q4_K_M.gguf"));
    assert_eq!(hub.pull("org/model/x-Q8_0.gguf").unwrap(), hub.snapshot().join("x-Q8_0.gguf"));
    let first = hub.snapshot().join("BF16/x-BF16-00001-of-00002.gguf");
    assert_eq!(hub.pull("org/model:BF16").unwrap(), first);
    assert_eq!(hub.pull("org/model/BF16/x-BF16-00002-of-00002.gguf").unwrap(), first);
    assert_eq!(tree(&hub.snapshot()).len(), 4);
    for (what, says) in [
        (ID, "it has 4 models in GGUF: give the format of one"),
        ("org/model:Q3_K", "none of its models in GGUF is `Q3_K`: BF16/x-BF16, Q2_K/x-Q2_K, x-Q4_K_M, x-Q8_0"),
        ("org/model:Q2_K", "is split into 2 files, and 1 are there"),
    ] {
        let e = hub.pull(what).unwrap_err();
        assert!(matches!(e, HubError::Choice { .. }) && e.to_string().contains(says), "{what}: {e}");
    }
    let only = Hub::new(&[("x-Q4_K_M.gguf", &weights(10)), ("config.json", b"{}")]);
    assert_eq!(only.pull(ID).unwrap(), only.snapshot().join("x-Q4_K_M.gguf"));
}

#[test]
fn models_of_every_layout() {
    let chosen = |files: &[&str]| -> Result<Vec<String>, String> {
        let all: Vec<(&str, &[u8])> = files.iter().map(|name| (*name, &b"x"[..])).collect();
        let plan = Hub::new(&all).plan(ID, &Wishes::default()).map_err(|e| e.to_string())?;
        Ok(plan.files.into_iter().map(|w| w.file.name).collect())
    };
    let all = |files: &[&str]| assert_eq!(chosen(files).unwrap(), files);
    all(&["chat_template.jinja", "config.json", "merges.txt", "pytorch_model.bin", "tokenizer.model", "vocab.json"]);
    all(&["consolidated.00.pth", "consolidated.01.pth", "params.json", "tokenizer.model"]);
    all(&["consolidated.safetensors", "params.json", "tekken.json", "tokenizer.model.v3"]);
    all(&["adapter_config.json", "adapter_model.safetensors"]);
    all(&["original/consolidated.00.pth", "original/params.json", "original/tokenizer.model"]);
    all(&["RWKV-x7-World.pth"]);
    let embedder = [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "vocab.txt",
    ];
    let more =
        [&embedder[..], &["2_Dense/pytorch_model.bin", "openvino/openvino_model.bin", "train_script.txt"]].concat();
    assert_eq!(chosen(&more).unwrap(), embedder);
    let e = chosen(&["config.json", "onnx/model.onnx"]).unwrap_err();
    assert!(e.contains("it has no weights that can be compiled") && e.contains("onnx/model.onnx"), "{e}");
    let e = chosen(&["a.pth", "b.pth"]).unwrap_err();
    assert!(e.contains("several files of weights: give one behind the model's name, of a.pth, b.pth"), "{e}");
}
