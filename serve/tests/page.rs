//! The page at `/`: its headers, and its behaviour in headless Chromium where that is installed.

use crate::client::get;
use crate::stand_in::{Running, StandIn, wait_for};
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_page_is_strict() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.keys = vec!["secret".into()]);
    let (page, again) = (get(s.address, "/"), get(s.address, "/"));
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-") && !policy.contains("unsafe"), "{policy}");
    assert_ne!(Some(&*policy), again.header("content-security-policy"), "each page has another nonce");
    let nonce = policy.split('\'').find_map(|part| part.strip_prefix("nonce-")).expect("a nonce");
    assert_eq!(page.text().matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.text().contains("secret\n") && page.header("x-content-type-options") == Some("nosniff"));
    assert_eq!(get(s.address, "/certificate").status, 401, "the page has no secrets, all else has a key");
    let none = Running::start(StandIn::new(4, Duration::ZERO), |s| s.page = false);
    assert_eq!(get(none.address, "/").status, 404);
}

#[test]
fn certificates_are_summaries() {
    let s = Running::plain();
    let want = json!({
        "model": "letters", "served_name": "letters", "llmcc": "0", "weights": { "bytes": 5 },
        "options": { "weights": "w4" }, "chat_template": true,
    });
    assert_eq!(get(s.address, "/certificate").json(), want);
    assert_eq!(get(s.address, "/certificate?model=letters").json(), want);
    assert_eq!(get(s.address, "/certificate?model=other").status, 404);
    assert_eq!(get(s.address, "/certificate?name=letters").status, 400);
}

/// The script says itself whether there is a Chromium; LLMCC_TEST_SCREENSHOTS names a folder for pictures.
#[test]
fn the_page_works_in_a_browser() {
    let python = std::env::var("LLMCC_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", ""]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: Python is not installed");
        return;
    }
    let open = Running::start(StandIn::new(4, Duration::from_millis(2)), |_| {});
    let closed = Running::start(StandIn::new(4, Duration::from_millis(2)), |s| s.keys = vec!["secret key".into()]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page.py");
    let mut command = Command::new(python);
    command.args([script, &format!("http://{}/", open.address), &format!("http://{}/", closed.address), "secret key"]);
    if let Ok(folder) = std::env::var("LLMCC_TEST_SCREENSHOTS") {
        command.args(["--screenshots", &folder]);
    }
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    if said.starts_with("skipped") {
        eprintln!("{said}");
        return;
    }
    assert_eq!(said.trim(), "all right");
    wait_for("stopped answers end", || open.model.live() == 0);
    assert_eq!(open.model.cancelled(), 2, "both that were stopped");
}
