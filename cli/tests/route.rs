//! `llmcc route` before three servers of the example model: streams end as they would have, whichever server dies.

use crate::client::{Reply, get, post, reply, send};
use crate::common::{Folder, WITH_TOKENIZER, text};
use crate::served::Served;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// A router that runs.
struct Routed(Served);

impl Routed {
    fn start(f: &Folder, servers: &[Served], more: &[&str]) -> Routed {
        let urls: Vec<String> = servers.iter().map(|server| format!("http://{}", server.address)).collect();
        let replicas = urls.iter().flat_map(|url| ["--replica", url.as_str()]);
        let args: Vec<&str> = ["route", "--listen", "127.0.0.1:0"].into_iter().chain(replicas).collect();
        Routed(Served::run(f, &[&args[..], more].concat()))
    }
    /// A count of `/metrics`.
    fn count(&self, name: &str) -> u64 {
        let page = get(self.0.address, "/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("llmcc_route_{name} ")).map(str::to_owned));
        line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {page}"))
    }
}

/// The events of a stream, each choice's together, without the parts that differ from request to request: identifiers,
/// times, and tokens of prompts that were there.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut events = reply.events();
    let first = events[0]["id"].clone();
    for event in &mut events {
        assert_eq!(event["id"], first, "{event}");
        (event["id"], event["created"]) = (Value::Null, Value::Null);
        if let Some(details) = event.pointer_mut("/usage/prompt_tokens_details") {
            *details = Value::Null;
        }
    }
    let choice = |event: &Value| event.pointer("/choices/0/index").and_then(Value::as_u64).unwrap_or(u64::MAX);
    events.sort_by_key(choice);
    events
}

/// Requests of every kind that streams.
fn asks() -> Vec<(&'static str, Value)> {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "minLength": 60 } },
        "required": ["a"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let mut all = vec![
        (COMPLETIONS, json!({ "prompt": "Once upon a time", "temperature": 0 })),
        (COMPLETIONS, json!({ "prompt": "Once upon", "seed": 7, "temperature": 1.1, "top_p": 0.9, "logprobs": 3 })),
        (COMPLETIONS, json!({ "prompt": "def f(", "seed": 3, "n": 2, "presence_penalty": 0.7 })),
        (COMPLETIONS, json!({ "prompt": "Once", "seed": 5, "stop": ["qzqz", " the"] })),
        (COMPLETIONS, json!({ "prompt": "Once", "seed": 9, "response_format": format, "ignore_eos": false })),
        (CHAT, json!({ "messages": [{ "role": "user", "content": "hi" }], "seed": 2, "logprobs": true })),
    ];
    for (_, ask) in &mut all {
        (ask["stream"], ask["max_tokens"]) = (true.into(), 600.into());
        ask["stream_options"] = json!({ "include_usage": true });
        if ask.get("ignore_eos").is_none() {
            ask["ignore_eos"] = true.into();
        }
    }
    all
}

/// Servers are killed one after the other while all streams run; the last one ends them all.
#[test]
fn streams_outlive_servers() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "1024"]);
    let mut servers: Vec<Served> = (0..3).map(|_| Served::start(&f, &[])).collect();
    let routed = Routed::start(&f, &servers, &["--check-ms", "50"]);
    let asks = asks();
    let whole: Vec<Vec<Value>> = asks.iter().map(|(path, ask)| events(&post(servers[0].address, path, ask))).collect();
    for alive in [3, 2] {
        let streams: Vec<_> = (0..4)
            .flat_map(|_| &asks)
            .map(|(path, ask)| send(routed.0.address, "POST", path, &[], ask.to_string().as_bytes()))
            .collect();
        for stream in &streams {
            stream.peek(&mut [0; 64]).expect("begins");
        }
        // The server that has most of them.
        let busiest = (0..alive).max_by_key(|i| servers[*i].count("vllm:num_requests_running") as u64);
        let mut victim = servers.remove(busiest.expect("some"));
        victim.signal(libc::SIGKILL);
        let _ = victim.child.wait();
        for (i, stream) in streams.into_iter().enumerate() {
            let which = i % asks.len();
            assert_eq!(events(&reply(stream)), whole[which], "{}, {alive} servers", asks[which].1);
        }
    }
    assert_eq!(routed.count("different_texts_total") + routed.count("lost_requests_total"), 0);
    assert!(routed.count("resumed_streams_total") > 0);
    // A document, and an end in good order.
    let ask = json!({ "prompt": "Once", "seed": 1, "max_tokens": 9 });
    let document = post(routed.0.address, COMPLETIONS, &ask).json();
    assert_eq!(document["choices"], post(servers[0].address, COMPLETIONS, &ask).json()["choices"]);
    let mut routed = routed;
    routed.0.terminate();
    assert!(routed.0.child.wait().expect("ends").success());
}

/// A stream that certainly breaks, at several places: the server that has it is killed, and started anew.
#[test]
fn a_stream_goes_on_from_any_place() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "1024"]);
    let last = Served::start(&f, &[]);
    let ask = json!({ "prompt": "Once", "seed": 4, "max_tokens": 900, "stream": true, "ignore_eos": true });
    let whole = events(&post(last.address, COMPLETIONS, &ask));
    for bytes in [1, 3000, 20_000] {
        let mut first = Served::start(&f, &[]);
        // (The only server that is up when the stream begins.)
        last.signal(libc::SIGSTOP);
        let servers = [&first, &last].map(|server| format!("http://{}", server.address));
        let args = ["--replica", &servers[0], "--replica", &servers[1], "--check-ms", "20", "--connect-ms", "300"];
        let routed = Routed::start(&f, &[], &args);
        let end = Instant::now() + Duration::from_secs(60);
        let down = format!("llmcc_route_replica_up{{replica=\"{}\"}} 0", last.address);
        while !get(routed.0.address, "/metrics").text().contains(&down) {
            assert!(Instant::now() < end, "a server that hangs is up");
            std::thread::sleep(Duration::from_millis(20));
        }
        let stream = send(routed.0.address, "POST", COMPLETIONS, &[], ask.to_string().as_bytes());
        stream.peek(&mut [0; 1]).expect("begins");
        let mut seen = vec![0; bytes];
        while stream.peek(&mut seen).expect("goes on") < bytes {
            assert!(Instant::now() < end, "no {bytes} bytes");
            std::thread::sleep(Duration::from_millis(1));
        }
        first.signal(libc::SIGKILL);
        let _ = first.child.wait();
        last.signal(libc::SIGCONT);
        assert_eq!(events(&reply(stream)), whole, "{bytes}");
        assert_eq!(routed.count("resumed_streams_total"), 1);
    }
}

/// Wrong options are refused in words.
#[test]
fn wrong_options_of_route_are_refused() {
    let f = Folder::new();
    for (args, says) in [
        (&[][..], "--replica"),
        (&["--replica", "https://a:1"], "TLS"),
        (&["--replica", "a:1"], "http://10.0.0.1:8080"),
        (&["--replica", "http://a:1", "--replica", "http://a:1"], "given twice"),
        (&["--replica", "http://a:1", "--listen", "0.0.0.0:0"], "--api-key-file"),
        (&["--replica", "http://a:1", "--listen", "nowhere"], "--listen"),
        (&["--replica", "http://a:1", "--attempts", "0"], "--attempts"),
    ] {
        let done = f.llmcc(&[&["route"], args].concat());
        let message = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && message.contains(says), "{args:?}: {message}");
    }
}
