//! Tokens of texts, tokens that are expected, and the trace of streams, for routers that go on with them elsewhere.

use crate::client::{post, reply, send};
use crate::stand_in::{Running, StandIn, expected};
use llmcc_turns::Format;
use serde_json::{Value, json};
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn tokens(text: &str) -> Vec<u8> {
    text.bytes().collect()
}

#[test]
fn choices_have_their_tokens() {
    let s = Running::plain();
    let mut ask = json!({ "prompt": "hi", "max_tokens": 5, "seed": 3, "n": 2, "return_token_ids": true });
    let whole = post(s.address, COMPLETIONS, &ask).json();
    for (i, seed) in [(0, 3), (1, 4)] {
        assert_eq!(whole["choices"][i]["token_ids"], json!(tokens(&expected("hi", seed, 5))), "{whole}");
    }
    ask["stream"] = true.into();
    let events = post(s.address, COMPLETIONS, &ask).events();
    let of = |choice: u64| -> Vec<Value> {
        let mine = events.iter().filter(|event| event["choices"][0]["index"] == choice);
        mine.flat_map(|event| event["choices"][0]["token_ids"].as_array().cloned().expect("a list")).collect()
    };
    assert_eq!(json!(of(1)), json!(tokens(&expected("hi", 4, 5))));
    ask["return_token_ids"] = false.into();
    assert!(!post(s.address, COMPLETIONS, &ask).text().contains("token_ids"));
    let chat = json!({ "messages": [{ "role": "user", "content": "x" }], "return_token_ids": true });
    let s = Running::start(StandIn::saying(Format::default(), &[], |_| "abc".into()), |_| {});
    assert_eq!(post(s.address, CHAT, &chat).json()["choices"][0]["token_ids"], json!([97, 98, 99]));
    let message =
        json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 9, "return_token_ids": true });
    assert_eq!(post(s.address, "/v1/messages", &message).status, 400);
}

#[test]
fn expected_tokens_change_no_text() {
    let s = Running::plain();
    let ask = |expected: Value| {
        let ask = json!({ "prompt": "hi", "max_tokens": 8, "seed": 3, "n": 2, "expected_token_ids": expected });
        post(s.address, COMPLETIONS, &ask)
    };
    let texts = |reply: crate::client::Reply| -> Vec<Value> {
        let document = reply.json();
        document["choices"].as_array().expect("a list").iter().map(|choice| choice["text"].clone()).collect()
    };
    let want = texts(ask(Value::Null));
    let first = tokens(&expected("hi", 3, 5));
    assert_eq!(texts(ask(json!([first, []]))), want);
    assert_eq!(s.model.foreseen(), (5, 0));
    // A list for the second choice is of the first one's text.
    assert_eq!(texts(ask(json!([first, first]))), want);
    assert_eq!(s.model.foreseen(), (10, 1));
    let message = json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 3, "seed": 1 });
    let mut resumed = message.clone();
    resumed["expected_token_ids"] = json!([[1, 2]]);
    let content = |ask: &Value| post(s.address, "/v1/messages", ask).json()["content"].clone();
    assert_eq!(content(&message), content(&resumed));
    for (wrong, says) in [
        (json!([[1], [2], [3]]), "3 lists for 2 choices"),
        (json!([[256]]), "vocabulary"),
        (json!([1]), "expected_token_ids"),
        (json!("a"), "expected_token_ids"),
    ] {
        let refused = ask(wrong.clone());
        assert_eq!(refused.json()["error"]["param"], "expected_token_ids", "{wrong}");
        assert!(refused.status == 400 && refused.text().contains(says), "{wrong}: {}", refused.text());
    }
}

/// With the trace, a stream is the same but for comments.
#[test]
fn streams_say_whose_their_events_are() {
    let s = Running::start(StandIn::new(64, Duration::from_millis(1)), |_| {});
    let traced = |path: &str, ask: &Value| {
        let headers = [("x-llmcc-trace", "1")];
        reply(send(s.address, "POST", path, &headers, ask.to_string().as_bytes()))
    };
    let ask = json!({ "prompt": "hi", "max_tokens": 3, "seed": 3, "stream": true, "echo": true });
    let got = traced(COMPLETIONS, &ask);
    let fingerprint = got.header("x-llmcc-trace").expect("a fingerprint").to_owned();
    let text = got.text();
    assert!(text.contains(&fingerprint), "{text}");
    let marks: Vec<&str> = text.split("\n\n").map(|event| event.lines().next().unwrap_or_default()).collect();
    let letters = expected("hi", 3, 3).into_bytes();
    let of = |i: usize| format!(": tokens 0 {}", letters[i]);
    assert!(marks[0].starts_with("data: {"), "{text}");
    assert_eq!(marks[1..5], [of(0), of(1), of(2), ": tokens 0".into()]);
    assert_eq!(marks[5..], [": end", ""]);
    let plain = post(s.address, COMPLETIONS, &ask);
    assert!(!plain.text().contains("tokens 0") && plain.header("x-llmcc-trace").is_none());
    let lines = |text: &str| text.lines().filter(|line| !line.starts_with(": ")).count();
    assert_eq!(lines(&plain.text()), lines(&text));
    let late = json!({ "prompt": "hi", "max_tokens": 100_000, "stream": true, "timeout": 0.05 });
    assert!(traced(COMPLETIONS, &late).text().contains(": failed 504\ndata: {\"error\""));
    for (path, ask) in [
        ("/v1/messages", json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 2, "stream": true })),
        ("/completion", json!({ "prompt": "hi", "n_predict": 2, "stream": true })),
    ] {
        let text = traced(path, &ask).text();
        assert!(text.contains(": tokens 0 ") && text.contains(": end\n"), "{text}");
    }
}
