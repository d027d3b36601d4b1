//! Computed beginnings of requests that survive the server, however it ends.

use crate::client::post;
use crate::common::{Folder, WITH_TOKENIZER, text};
use crate::served::Served;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

/// The text of a request, and the number of its tokens that were there.
fn ask(s: &Served) -> (String, u64) {
    let prompt: Vec<u32> = (0..100).map(|i| 3 + i * i % 40).collect();
    let request = json!({ "prompt": prompt, "max_tokens": 8, "temperature": 0 });
    let answer = post(s.address, "/v1/completions", &request).json();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (answer["choices"][0]["text"].as_str().expect("a text").to_owned(), cached.as_u64().unwrap_or(0))
}

/// Files of parts in the folder.
fn parts(f: &Folder) -> Vec<std::path::PathBuf> {
    let folders = fs::read_dir(f.at("cache")).into_iter().flatten().map(|e| e.expect("an entry").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    files.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "part")).collect()
}

#[test]
fn beginnings_survive_a_killed_server() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet"]);
    let args = ["--cache-dir", "cache", "--cache-dir-mib", "64"];
    let s = Served::start(&f, &args);
    let (first, none) = ask(&s);
    assert_eq!(none, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while parts(&f).is_empty() {
        assert!(Instant::now() < end, "no file");
        std::thread::sleep(Duration::from_millis(10));
    }
    s.signal(libc::SIGKILL);
    drop(s);
    let s = Served::start(&f, &args);
    let (again, there) = ask(&s);
    // Whole pages are in files.
    assert_eq!((again, there), (first.clone(), 96));
    drop(s);
    // A damaged file is one that is not there.
    for part in parts(&f) {
        let mut bytes = fs::read(&part).expect("a file");
        let at = bytes.len() - 33;
        bytes[at] ^= 1;
        fs::write(&part, bytes).expect("written");
    }
    let s = Served::start(&f, &args);
    assert_eq!(ask(&s), (first, 0));
    drop(s);
    fs::write(f.at("file"), "").expect("written");
    let refused = text(&f.llmcc(&["serve", "m.so", "--port", "0", "--cache-dir", "file"]).stderr);
    assert!(refused.contains("cannot use the cache folder file"), "{refused}");
    let refused = text(&f.llmcc(&["serve", "m.so", "--cache-dir-mib", "3"]).stderr);
    assert!(refused.contains("--cache-dir <FOLDER>"), "{refused}");
}
