//! Streams whose replicas die: clients get what they would have got, byte for byte.

use crate::client::Reply;
use crate::fuse::Plan;
use crate::routed::{Routed, constant};
use crate::stand_in::{StandIn, expected};
use llmcc_turns::{Calls, Form, Format, Piece, Span};
use serde_json::{Value, json};
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";

/// Events of a stream, each choice's together: several choices come in any order.
fn by_choices(reply: &Reply) -> Vec<String> {
    let text = constant(&reply.text());
    let mut events: Vec<String> = text.split_inclusive("\n\n").map(str::to_owned).collect();
    let choice = |event: &str| {
        let document: Value =
            event.strip_prefix("data: ").and_then(|e| serde_json::from_str(e).ok()).unwrap_or_default();
        let opens = document.pointer("/choices/0/delta/role").is_some();
        match document.pointer("/choices/0/index").and_then(Value::as_u64) {
            Some(_) if opens => 0,
            Some(choice) => choice + 1,
            None => u64::MAX,
        }
    };
    events.sort_by_key(|event| choice(event));
    events
}

/// Cuts the stream off at bytes of every kind of place, and compares it with one that nothing disturbed.
fn survives(routed: &Routed, path: &str, ask: &Value, step: usize) {
    let whole = routed.post(path, ask);
    assert_eq!(whole.status, 200, "{}", whole.text());
    assert_eq!(routed.count("resumed_streams_total"), 0);
    let want = by_choices(&whole);
    let home = routed.home(path, ask);
    // (Chunks and the head of the answer take some bytes, too.)
    let most = 2 * whole.body.len() + 600;
    let mut resumed = 0;
    for bytes in (0..most).step_by(step) {
        routed.fuses[home].set(Plan::Cut(1, bytes));
        let reply = routed.post(path, ask);
        assert_eq!(by_choices(&reply), want, "{ask} cut after {bytes} bytes: {}", reply.text());
        routed.fuses[home].set(Plan::Pass);
        let now = routed.count("resumed_streams_total");
        resumed += u64::from(now > resumed);
    }
    assert!(resumed > 10, "{resumed} of {}", most / step);
    let (right, wrong) = routed.replicas[1 - home].model.foreseen();
    assert!(right > 10 && wrong == 0, "{right} expected tokens were right, {wrong} wrong");
    assert_eq!(routed.count("different_texts_total") + routed.count("lost_requests_total"), 0);
}

#[test]
fn completions_go_on() {
    let ask = json!({ "prompt": "hi", "max_tokens": 12, "seed": 3, "stream": true });
    survives(&Routed::letters(), COMPLETIONS, &ask, 13);
}

#[test]
fn choices_with_logprobs_counts_and_stops_go_on() {
    let stop = expected("hi", 4, 9)[8..].to_owned();
    let ask = json!({
        "prompt": ["hi", "ho"], "n": 2, "max_tokens": 12, "seed": 3, "stream": true, "logprobs": 1, "stop": stop,
        "stream_options": { "include_usage": true }, "echo": true,
    });
    survives(&Routed::letters(), COMPLETIONS, &ask, 401);
}

/// A stand-in that says something with characters of several bytes.
fn saying(says: fn(&str) -> String) -> StandIn {
    StandIn::saying(Format::default(), &[], says)
}

#[test]
fn answers_go_on() {
    let routed = Routed::new((0..2).map(|_| saying(|_| "Grüße, \"id\": 東京\n\n data".into())).collect());
    let ask = json!({
        "messages": [{ "role": "user", "content": "x" }], "stream": true, "n": 2, "logprobs": true,
        "return_token_ids": true,
    });
    survives(&routed, "/v1/chat/completions", &ask, 211);
    let routed = Routed::new((0..2).map(|_| saying(|_| "Grüße, 東京".into())).collect());
    let ask = json!({ "messages": [{ "role": "user", "content": "x" }], "stream": true, "max_tokens": 50 });
    survives(&routed, "/v1/messages", &ask, 29);
}

/// A format of reasoning and of calls between tags.
fn tagged() -> Format {
    let text = |text: &str| Piece::Text(text.into());
    let pieces = vec![text("{\"name\": \""), Piece::Name, text("\", \"arguments\": "), Piece::Arguments, text("}")];
    let (name, arguments) = (vec!["name".to_owned()], vec!["arguments".to_owned()]);
    let form = Form::Object { name, arguments, id: vec![], text: false, pieces };
    let call = Span::new("<tool_call>\n", "\n</tool_call>");
    let calls = Calls { section: Span::default(), call, separator: "\n".into(), single: false, form };
    Format { reasoning: Some(Span::new("<think>", "</think>")), calls: Some(calls), ..Format::default() }
}

/// Two replicas whose answers have reasoning, a text and two calls.
fn calling() -> Routed {
    let says = |_: &str| {
        let call = |city: &str| {
            format!("<tool_call>\n{{\"name\": \"weather\", \"arguments\": {{\"city\": \"{city}\"}}}}\n</tool_call>")
        };
        format!("<think>hm</think>So.\n{}\n{}", call("Bern"), call("Rom"))
    };
    Routed::new((0..2).map(|_| StandIn::saying(tagged(), &[], says)).collect())
}

/// Identifiers in a text that begin with `prefix`.
fn identifiers(text: &str, prefix: &str) -> Vec<String> {
    let mut all: Vec<String> = text.split('"').filter(|part| part.starts_with(prefix)).map(str::to_owned).collect();
    all.dedup();
    all
}

/// Calls go on with the identifiers that they would have had.
#[test]
fn calls_go_on() {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tool = json!({ "type": "function", "function": { "name": "weather", "parameters": schema } });
    let ask = json!({
        "messages": [{ "role": "user", "content": "x" }], "tools": [tool], "stream": true, "seed": 1,
        "stream_options": { "include_usage": true },
    });
    let routed = calling();
    survives(&routed, "/v1/chat/completions", &ask, 101);
    let whole = routed.post("/v1/chat/completions", &ask);
    let calls = identifiers(&whole.text(), "call_");
    assert_eq!(calls.len(), 2, "{}", whole.text());
    let home = routed.home("/v1/chat/completions", &ask);
    routed.fuses[home].set(Plan::Cut(1, whole.body.len() / 2));
    assert_eq!(identifiers(&routed.post("/v1/chat/completions", &ask).text(), "call_"), calls);
    let tool = json!({ "name": "weather", "input_schema": schema });
    let ask = json!({
        "messages": [{ "role": "user", "content": "x" }], "tools": [tool], "stream": true, "max_tokens": 500,
    });
    survives(&calling(), "/v1/messages", &ask, 101);
}

/// Answers that replicas keep go on, and are found where their streams ended.
#[test]
fn kept_answers_go_on() {
    let path = "/v1/responses";
    let tool = json!({ "type": "function", "name": "weather", "parameters": { "type": "object" } });
    let ask = json!({ "input": "x", "tools": [tool], "stream": true, "seed": 1 });
    let routed = calling();
    survives(&routed, path, &ask, 307);
    let whole = routed.post(path, &ask);
    let home = routed.home(path, &ask);
    routed.fuses[home].set(Plan::Cut(1, whole.body.len() / 2));
    let reply = routed.post(path, &ask);
    assert_eq!(identifiers(&reply.text(), "call_"), identifiers(&whole.text(), "call_"));
    let last = reply.text().lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).next_back();
    let last: Value = serde_json::from_str(&last.expect("some")).expect("JSON");
    let answer = &last["response"];
    let kinds: Vec<&str> =
        answer["output"].as_array().expect("a list").iter().filter_map(|i| i["type"].as_str()).collect();
    assert_eq!(
        (kinds, &answer["status"]),
        (vec!["reasoning", "message", "function_call", "function_call"], &json!("completed"))
    );
    let ids = identifiers(&reply.text(), "resp_");
    assert_eq!(ids.len(), 1, "{ids:?}");
    let kept = crate::client::get(routed.address, &format!("{path}/{}", ids[0]));
    assert_eq!((kept.status, &kept.json()), (200, answer));
    // Nothing of the trace reaches the client.
    assert!(!reply.text().contains("tokens 0") && reply.header("x-llmcc-trace").is_none());
}

/// Connections are used again, and one that a replica has closed is no fault.
#[test]
fn connections_are_kept() {
    let routed = Routed::with(vec![StandIn::new(64, Duration::ZERO)], |s| {
        (s.idle, s.check) = (4, Duration::from_secs(60));
    });
    for stream in [false, true] {
        let ask = json!({ "prompt": "hi", "max_tokens": 5, "seed": 1, "stream": stream });
        let want = constant(&routed.post(COMPLETIONS, &ask).text());
        let before = routed.fuses[0].connections();
        for _ in 0..20 {
            assert_eq!(constant(&routed.post(COMPLETIONS, &ask).text()), want);
        }
        assert_eq!(routed.fuses[0].connections(), before, "no new one");
    }
    // A connection whose plan is to be cut off breaks while it waits, or with the next request.
    let ask = json!({ "prompt": "hi", "max_tokens": 5, "seed": 1 });
    let other = Routed::with(vec![StandIn::new(64, Duration::ZERO)], |s| {
        (s.idle, s.check) = (4, Duration::from_secs(60));
    });
    let length = other.post(COMPLETIONS, &ask).body.len();
    other.fuses[0].set(Plan::Cut(1, length + 400));
    let fresh = Routed::of(vec![], |s| {
        (s.idle, s.check) = (4, Duration::from_secs(60));
        s.replicas = vec![format!("http://{}", other.fuses[0].address)];
    });
    let want = constant(&fresh.post(COMPLETIONS, &ask).text());
    for _ in 0..5 {
        assert_eq!(constant(&fresh.post(COMPLETIONS, &ask).text()), want);
    }
    assert_eq!(fresh.count("lost_requests_total"), 0);
}

#[test]
fn texts_of_llama_cpp_go_on() {
    let routed = Routed::letters();
    let ask = json!({ "prompt": "hi", "n_predict": 10, "seed": 5, "stream": true });
    let whole = routed.post("/completion", &ask).text();
    let home = routed.home("/completion", &ask);
    let texts = |stream: &str| -> Vec<Value> {
        let events = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events.map(|event| serde_json::from_str::<Value>(event).expect("JSON")["content"].clone()).collect()
    };
    for bytes in (0..whole.len()).step_by(307) {
        routed.fuses[home].set(Plan::Cut(1, bytes));
        assert_eq!(texts(&routed.post("/completion", &ask).text()), texts(&whole), "{bytes}");
    }
}

/// A request without a seed gets one from the router, and goes on with the same text.
#[test]
fn seeds_are_chosen_once() {
    let routed = Routed::letters();
    let ask = json!({ "prompt": "hi", "max_tokens": 30, "stream": true });
    let home = routed.home(COMPLETIONS, &ask);
    routed.fuses[home].set(Plan::Cut(1, 2000));
    let events = routed.post(COMPLETIONS, &ask).events();
    let text: String =
        events.iter().filter_map(|e| e.pointer("/choices/0/text")?.as_str().map(str::to_owned)).collect();
    assert_eq!(routed.count("resumed_streams_total"), 1);
    assert!((0..26).any(|seed| text == expected("hi", seed, 30)), "{text}");
    let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
    assert!(ids.iter().all(|id| **id == *ids[0] && id.is_string()), "{ids:?}");
}

/// Every replica breaks in turn, several times.
#[test]
fn streams_break_again_and_again() {
    let routed = Routed::with((0..3).map(|_| StandIn::new(64, Duration::from_millis(1))).collect(), |_| {});
    let ask = json!({ "prompt": "hi", "max_tokens": 60, "seed": 1, "stream": true });
    let want = constant(&routed.post(COMPLETIONS, &ask).text());
    for (i, fuse) in routed.fuses.iter().enumerate() {
        fuse.set(Plan::Cut(2, 3000 + 1500 * i));
    }
    assert_eq!(constant(&routed.post(COMPLETIONS, &ask).text()), want);
    assert!(routed.count("resumed_streams_total") >= 3);
}

/// The trace is for routers alone, unless it is asked for.
#[test]
fn routers_may_stand_before_routers() {
    let inner = Routed::letters();
    let outer = llmcc_route::Router::bind(llmcc_route::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        replicas: vec![format!("http://{}", inner.address)],
        ..llmcc_route::Settings::default()
    });
    let outer = outer.expect("bound");
    let (address, stopper) = (outer.address(), outer.stopper());
    let thread = std::thread::spawn(move || outer.run().expect("routed"));
    let ask = json!({ "prompt": "hi", "max_tokens": 30, "seed": 3, "stream": true });
    let want = inner.post(COMPLETIONS, &ask);
    assert!(!want.text().contains("tokens 0") && want.header("x-llmcc-trace").is_none());
    let home = inner.home(COMPLETIONS, &ask);
    inner.fuses[home].set(Plan::Cut(1, 2000));
    let got = crate::client::post(address, COMPLETIONS, &ask);
    assert_eq!(constant(&got.text()), constant(&want.text()));
    stopper.stop();
    stopper.stop();
    thread.join().expect("no panic");
}
