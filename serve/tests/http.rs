//! The server over a stand-in for a model: what clients see.

use crate::client::{get, post, reply, send};
use crate::stand_in::{Running, StandIn, expected, wait_for};
use llmcc_serve::{Model, ServeError, Server, Settings};
use serde_json::{Value, json};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn contents(events: &[Value], choice: u64, member: &str) -> String {
    let of = events.iter().flat_map(|e| e["choices"].as_array().cloned().unwrap_or_default());
    let mine = of.filter(|c| c["index"] == choice);
    mine.filter_map(|c| c.pointer(member).and_then(Value::as_str).map(str::to_owned)).collect()
}

#[test]
fn completions_are_whole_or_streams() {
    let s = Running::plain();
    let mut ask = json!({ "model": "letters", "prompt": "hi", "max_tokens": 40, "seed": 3 });
    let whole = post(s.address, COMPLETIONS, &ask);
    assert_eq!(whole.status, 200, "{}", whole.text());
    let document = whole.json();
    assert_eq!(document["object"], "text_completion");
    assert_eq!(document["choices"][0]["text"], expected("hi", 3, 40));
    assert_eq!(document["choices"][0]["finish_reason"], "length");
    let usage = json!({
        "prompt_tokens": 2, "completion_tokens": 40, "total_tokens": 42,
        "prompt_tokens_details": { "cached_tokens": 1 },
    });
    assert_eq!(document["usage"], usage);
    ask["stream"] = true.into();
    ask["stream_options"] = json!({ "include_usage": true });
    let stream = post(s.address, COMPLETIONS, &ask);
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let events = stream.events();
    assert_eq!(contents(&events, 0, "/text"), expected("hi", 3, 40));
    let (last, others) = events.split_last().expect("some");
    assert_eq!((&last["usage"], &last["choices"]), (&usage, &json!([])));
    assert!(others.iter().all(|e| e["usage"].is_null() && e["id"] == last["id"]));
    assert_eq!(others.last().expect("some")["choices"][0]["finish_reason"], "length");
}

#[test]
fn prompts_are_texts_tokens_and_lists_of_them() {
    let s = Running::plain();
    let text = |prompt: Value| {
        let got = post(s.address, COMPLETIONS, &json!({ "prompt": prompt, "seed": 0, "max_tokens": 5, "echo": true }));
        let choices = got.json()["choices"].as_array().cloned().unwrap_or_else(|| panic!("{}", got.text()));
        choices.iter().map(|c| c["text"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let (hi, ho) = (format!("hi{}", expected("hi", 0, 5)), format!("ho{}", expected("ho", 0, 5)));
    for prompt in [json!("hi"), json!([104, 105])] {
        assert_eq!(text(prompt), std::slice::from_ref(&hi));
    }
    assert_eq!(text(json!(["hi", "ho"])), [hi.clone(), ho.clone()]);
    assert_eq!(text(json!([[104, 105], [104, 111]])), [hi, ho]);
    for (prompt, says) in [
        (json!([]), "empty list"),
        (json!([[]]), "no tokens"),
        (json!(""), "no tokens"),
        (json!([1, "a"]), "neither"),
        (json!([256]), "outside the vocabulary"),
        (json!([-1]), "outside the vocabulary"),
        (json!(3), "neither"),
        (json!({}), "neither"),
        (json!("x".repeat(100_000)), "context"),
    ] {
        let got = post(s.address, COMPLETIONS, &json!({ "prompt": prompt }));
        let error = &got.json()["error"];
        assert_eq!((got.status, &error["param"]), (400, &json!("prompt")), "{error}");
        assert!(error["message"].as_str().is_some_and(|m| m.contains(says)), "{error}");
    }
    assert_eq!(s.model.live(), 0);
}

#[test]
fn conversations_are_answered() {
    let s = Running::plain();
    let mut ask = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 6, "seed": 1, "n": 2 });
    let prompt = json!({ "messages": ask["messages"] })
        .to_string()
        .replace(r#""content":"hi","role":"user""#, r#""role":"user","content":"hi""#);
    // The stand-in's prompt is the sum of its letters, so the order of members is no matter here.
    let document = post(s.address, CHAT, &ask).json();
    for choice in [0, 1] {
        let answer = &document["choices"][choice];
        assert_eq!(answer["message"]["content"], expected(&prompt, 1 + choice as u64, 6), "{document}");
        assert_eq!(answer["message"]["role"], "assistant");
    }
    assert_eq!(document["usage"]["completion_tokens"], 12);
    assert_eq!(document["usage"]["prompt_tokens"], prompt.len(), "counted once");
    ask["stream"] = true.into();
    let events = post(s.address, CHAT, &ask).events();
    for choice in [0, 1] {
        assert_eq!(contents(&events, choice, "/delta/content"), expected(&prompt, 1 + choice, 6));
        assert_eq!(contents(&events, choice, "/delta/role"), "assistant");
        assert_eq!(contents(&events, choice, "/finish_reason"), "length");
    }
    let refused = post(s.address, CHAT, &json!({ "messages": [{ "role": "user", "content": "refuse me" }] }));
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (400, &json!("invalid_request_error")));
}

#[test]
fn stops_end_texts_and_logprobs_name_tokens() {
    let s = Running::plain();
    let whole = expected("hi", 0, 9);
    let stop = &whole[4..5];
    let got = post(s.address, COMPLETIONS, &json!({ "prompt": "hi", "seed": 0, "max_tokens": 9, "stop": stop })).json();
    assert_eq!(got["choices"][0]["text"], whole[..4], "{got}");
    assert_eq!(got["choices"][0]["finish_reason"], "stop");
    let ask = json!({ "prompt": "hi", "seed": 0, "max_tokens": 3, "logprobs": 3 });
    let logprobs = &post(s.address, COMPLETIONS, &ask).json()["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!([whole[0..1], whole[1..2], whole[2..3]]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.5, -0.5, -0.5]));
    assert_eq!(logprobs["top_logprobs"][0]["B"], -9999.0);
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    let ask = json!({
        "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2, "logprobs": true, "top_logprobs": 2,
        "stream": true,
    });
    let events = post(s.address, CHAT, &ask).events();
    let tokens: Vec<&Value> = events
        .iter()
        .filter_map(|e| e.pointer("/choices/0/logprobs/content"))
        .flat_map(|c| c.as_array().expect("a list"))
        .collect();
    assert_eq!(tokens.len(), 2, "{events:?}");
    assert_eq!(tokens[0]["top_logprobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(tokens[0]["top_logprobs"][1], json!({ "token": "A", "logprob": -1.5, "bytes": [65] }));
}

#[test]
fn wrong_requests_are_errors_in_one_shape() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.max_body = 1 << 16);
    let json_type = [("Content-Type", "application/json")];
    let long = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(1 << 17));
    for (method, path, headers, body, status, says) in [
        ("POST", COMPLETIONS, &json_type[..], "", 400, "no JSON"),
        ("POST", COMPLETIONS, &json_type, "{\"prompt\": \"hi\"", 400, "no JSON"),
        ("POST", COMPLETIONS, &json_type, "[]", 400, "a list"),
        ("POST", COMPLETIONS, &json_type, "{}", 400, "missing"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "tempratur": 1}"#, 400, "tempratur"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "suffix": "x"}"#, 400, "suffix"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "best_of": 2}"#, 400, "best_of"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": [104], "suffix": "x"}"#, 400, "suffix"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "max_tokens": 0}"#, 400, "max_tokens"),
        (
            "POST",
            COMPLETIONS,
            &json_type,
            r#"{"prompt": "hi", "max_tokens": 0, "echo": true, "stream": true}"#,
            400,
            "max_tokens",
        ),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "n": 129}"#, 400, "`n`"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": ["hi", "ho"], "n": 65}"#, 400, "2 prompts with 65"),
        ("POST", COMPLETIONS, &json_type, r#"{"prompt": "hi", "model": "gpt-5"}"#, 404, "`letters`"),
        ("POST", COMPLETIONS, &[("Content-Type", "text/plain")], r#"{"prompt": "hi"}"#, 415, "Content-Type"),
        ("POST", COMPLETIONS, &json_type, &long, 413, "up to 65536 bytes"),
        ("POST", CHAT, &json_type, r#"{"messages": [], "prompt": "x"}"#, 400, "messages"),
        (
            "POST",
            CHAT,
            &json_type,
            r#"{"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}"#,
            400,
            "top_logprobs",
        ),
        (
            "POST",
            CHAT,
            &json_type,
            r#"{"messages": [{"role": "user", "content": "x"}], "functions": []}"#,
            400,
            "functions",
        ),
        ("GET", COMPLETIONS, &[], "", 405, "another method"),
        ("GET", "/../../etc/passwd", &[], "", 404, "there is no"),
        ("GET", "/v1/models/other", &[], "", 404, "`letters`"),
        ("GET", "/v1/models/%ff", &[], "", 404, "`letters`"),
        ("POST", "/v1/nothing", &json_type, "{}", 404, "there is no"),
    ] {
        let got = reply(send(s.address, method, path, headers, body.as_bytes()));
        let error = &got.json()["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(got.status == status && message.contains(says), "{method} {path} {:.60}: {} {error}", body, got.status);
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(), "{error}");
    }
    let harmless = json!({
        "prompt": "hi", "max_tokens": 1, "user": "u", "metadata": { "a": "b" }, "store": false, "frequency_penalty": 0,
        "response_format": { "type": "text" }, "logit_bias": {}, "service_tier": "auto", "stop": null,
    });
    let got = post(s.address, COMPLETIONS, &harmless);
    assert_eq!(got.status, 200, "{}", got.text());
}

#[test]
fn keys_are_wanted() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.keys = vec!["secret".into(), "other".into()]);
    let body = json!({ "prompt": "hi", "max_tokens": 1 }).to_string();
    let with = |headers: &[(&str, &str)]| reply(send(s.address, "POST", COMPLETIONS, headers, body.as_bytes())).status;
    assert_eq!(with(&[]), 401);
    assert_eq!(with(&[("Authorization", "Bearer secre")]), 401);
    assert_eq!(with(&[("Authorization", "Bearer secrets")]), 401);
    assert_eq!(with(&[("Authorization", "Bearer ")]), 401);
    assert_eq!(with(&[("Authorization", "Basic secret")]), 401);
    assert_eq!(with(&[("Authorization", "Bearer secret")]), 200);
    assert_eq!(with(&[("Authorization", "bearer other")]), 200);
    assert_eq!(with(&[("X-Api-Key", "secret")]), 200);
    let without = get(s.address, "/v1/models");
    assert_eq!((without.status, without.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!((get(s.address, "/metrics").status, get(s.address, "/nowhere").status), (401, 401));
    assert_eq!((get(s.address, "/health").status, get(s.address, "/ready").status), (200, 200));
    let open = Running::start(StandIn::new(4, Duration::ZERO), |s| {
        (s.keys, s.open_metrics) = (vec!["secret".into()], true);
    });
    assert_eq!((get(open.address, "/metrics").status, get(open.address, "/v1/models").status), (200, 401));
}

#[test]
fn silent_streams_have_comments() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.quiet = Duration::from_millis(50));
    s.model.pause(true);
    let ask = json!({ "prompt": "hi", "max_tokens": 5, "seed": 3, "stream": true });
    let stream = send(s.address, "POST", COMPLETIONS, &[], ask.to_string().as_bytes());
    std::thread::sleep(Duration::from_millis(400));
    s.model.pause(false);
    let got = reply(stream);
    let comments = got.text().matches(": waiting\n\n").count();
    assert!((2..9).contains(&comments), "{}", got.text());
    let events = got.text().replace(": waiting\n\n", "");
    assert!(events.starts_with("data: {") && events.ends_with("data: [DONE]\n\n"), "{events}");
    assert!(!post(s.address, COMPLETIONS, &ask).text().contains("waiting"), "none where none is needed");
}

#[test]
fn addresses_that_others_reach_need_a_key() {
    let model = Arc::new(StandIn::new(1, Duration::ZERO));
    let open = Settings { host: [0, 0, 0, 0].into(), port: 0, ..Settings::default() };
    let models = || -> Vec<(String, Arc<dyn Model>)> { vec![("m".into(), model.clone())] };
    let refused = Server::bind(models(), None, open.clone());
    assert!(matches!(refused, Err(ServeError::Open(_))));
    assert!(Server::bind(models(), None, Settings { keys: vec!["k".into()], ..open }).is_ok());
}

#[test]
fn clients_that_go_away_cancel_their_requests() {
    let s = Running::start(StandIn::new(64, Duration::from_millis(2)), |_| {});
    for stream in [false, true] {
        for n in [1, 3] {
            let body = json!({ "prompt": "hi", "max_tokens": 90_000, "n": n, "stream": stream }).to_string();
            let connection = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
            wait_for("begins", || s.model.live() == n);
            if stream {
                (&connection).read_exact(&mut [0; 64]).expect("begins");
            }
            drop(connection);
            wait_for("the request ends with its client", || s.model.live() == 0);
        }
    }
    assert_eq!(s.model.cancelled(), 8);
}

#[test]
fn slow_clients_block_nobody_and_are_cut() {
    let s = Running::start(StandIn::new(64, Duration::ZERO), |s| s.patience = Duration::from_millis(300));
    let body = json!({ "prompt": "hi", "max_tokens": 90_000, "n": 8, "stream": true }).to_string();
    let slow = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
    wait_for("begins", || s.model.all() == 8);
    let quick = post(s.address, COMPLETIONS, &json!({ "prompt": "ho", "max_tokens": 50, "seed": 0 }));
    assert_eq!(quick.json()["choices"][0]["text"], expected("ho", 0, 50));
    wait_for("the slow client's requests end", || s.model.live() == 0);
    assert!(s.model.cancelled() > 0);
    drop(slow);
}

#[test]
fn busy_engines_say_so() {
    let s = Running::start(StandIn::new(2, Duration::from_millis(1)), |_| {});
    let long = json!({ "prompt": "hi", "max_tokens": 90_000, "stream": true }).to_string();
    let held: Vec<_> = (0..2).map(|_| send(s.address, "POST", COMPLETIONS, &[], long.as_bytes())).collect();
    wait_for("begin", || s.model.live() == 2);
    let refused = post(s.address, COMPLETIONS, &json!({ "prompt": "hi" }));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "busy");
    drop(held);
    wait_for("end", || s.model.live() == 0);
    // All choices are taken, or none.
    let refused = post(s.address, COMPLETIONS, &json!({ "prompt": "hi", "n": 3 }));
    assert_eq!(refused.status, 429);
    wait_for("none is left", || s.model.live() == 0);
    assert_eq!(post(s.address, COMPLETIONS, &json!({ "prompt": "hi" })).status, 200);
}

#[test]
fn late_requests_fail() {
    let s = Running::plain();
    s.model.pause(true);
    let late = post(s.address, COMPLETIONS, &json!({ "prompt": "hi", "timeout": 0.05 }));
    assert_eq!((late.status, late.header("x-should-retry")), (504, Some("false")), "{}", late.text());
    let body = json!({ "prompt": "hi", "stream": true }).to_string();
    let late = reply(send(s.address, "POST", COMPLETIONS, &[("X-Request-Timeout", "0.05")], body.as_bytes()));
    let events = late.events();
    assert_eq!(events.last().expect("some")["error"]["code"], "timeout", "{events:?}");
    let wrong = reply(send(s.address, "POST", COMPLETIONS, &[("X-Request-Timeout", "soon")], body.as_bytes()));
    assert_eq!(wrong.status, 400);
}

#[test]
fn servers_end_after_their_requests() {
    let mut s = Running::start(StandIn::new(64, Duration::from_millis(5)), |_| {});
    let body = json!({ "prompt": "hi", "max_tokens": 100, "seed": 0, "stream": true }).to_string();
    let running = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
    wait_for("begins", || s.model.live() == 1);
    s.stopper.stop();
    wait_for("not ready", || get(s.address, "/ready").status == 503);
    assert_eq!(get(s.address, "/health").status, 200);
    let refused = post(s.address, COMPLETIONS, &json!({ "prompt": "ho" }));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(contents(&reply(running).events(), 0, "/text"), expected("hi", 0, 100));
    s.join();
    assert_eq!(s.model.all(), 1);
}

#[test]
fn requests_that_outlast_the_end_are_told() {
    let mut s = Running::start(StandIn::new(64, Duration::from_millis(5)), |s| s.drain = Duration::from_millis(100));
    let body = json!({ "prompt": "hi", "max_tokens": 90_000, "stream": true }).to_string();
    let running = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
    wait_for("begins", || s.model.live() == 1);
    s.stopper.stop();
    let events = reply(running).events();
    assert_eq!(events.last().expect("some")["error"]["type"], "server_error", "{:?}", events.last());
    s.join();
}

#[test]
fn engines_that_end_are_told() {
    let s = Running::plain();
    s.model.pause(true);
    let body = json!({ "prompt": "hi", "max_tokens": 9 }).to_string();
    let waits = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
    wait_for("begins", || s.model.live() == 1);
    s.model.break_down();
    assert_eq!(reply(waits).status, 503);
    assert_eq!((get(s.address, "/health").status, get(s.address, "/ready").status), (503, 503));
    assert_eq!(post(s.address, COMPLETIONS, &json!({ "prompt": "hi" })).status, 503);
}

/// Two requests on a connection, the second before the first is answered.
#[test]
fn connections_are_used_again() {
    use std::io::Write;
    let s = Running::plain();
    let mut stream = std::net::TcpStream::connect(s.address).expect("connected");
    let body = json!({ "prompt": "hi", "max_tokens": 2, "seed": 0 }).to_string();
    let one = |close: &str| {
        format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\n\
             Content-Length: {}\r\n{close}\r\n{body}",
            body.len()
        )
    };
    stream.write_all((one("") + &one("Connection: close\r\n")).as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read");
    // (The identifiers of completions have random letters.)
    let want = format!("\"text\":\"{}\"", expected("hi", 0, 2));
    assert_eq!(text.matches(&want).count(), 2, "{text}");
}

#[test]
fn pages_describe_the_server() {
    let s = Running::plain();
    let models = get(s.address, "/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&json!("letters"), &json!(100_000)));
    assert_eq!(get(s.address, "/v1/models/letters").json()["object"], "model");
    assert!(get(s.address, "/version").json()["version"].is_string());
    for _ in 0..3 {
        post(s.address, COMPLETIONS, &json!({ "prompt": "hi", "max_tokens": 4 }));
    }
    let page = get(s.address, "/metrics").text();
    for line in [
        "vllm:num_requests_running{model_name=\"letters\"} 0",
        "vllm:num_requests_waiting{model_name=\"letters\"} 0",
        "vllm:prompt_tokens_total{model_name=\"letters\"} 6",
        "vllm:generation_tokens_total{model_name=\"letters\"} 12",
        "vllm:prefix_cache_hits_total{model_name=\"letters\"} 3",
        "vllm:kv_cache_usage_perc{model_name=\"letters\"} 0.25",
        "vllm:request_success_total{model_name=\"letters\",finished_reason=\"length\"} 3",
        "vllm:time_to_first_token_seconds_count{model_name=\"letters\"} 3",
        "vllm:inter_token_latency_seconds_count{model_name=\"letters\"} 9",
        "vllm:time_per_output_token_seconds_bucket{model_name=\"letters\",le=\"+Inf\"} 3",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
}

#[test]
fn texts_become_tokens_and_back() {
    let s = Running::plain();
    let got = post(s.address, "/tokenize", &json!({ "prompt": "hi", "return_token_strs": true })).json();
    assert_eq!(
        (&got["tokens"], &got["count"], &got["token_strs"]),
        (&json!([104, 105]), &json!(2), &json!(["h", "i"]))
    );
    let got = post(s.address, "/tokenize", &json!({ "messages": [{ "role": "user", "content": "hi" }] })).json();
    assert!(got["count"].as_u64().is_some_and(|n| n > 10), "{got}");
    assert_eq!(post(s.address, "/detokenize", &json!({ "tokens": [104, 105] })).json()["prompt"], "hi");
    assert_eq!(post(s.address, "/detokenize", &json!({ "tokens": [300] })).status, 400);
}

#[test]
fn texts_have_embeddings() {
    let s = Running::plain();
    let got =
        post(s.address, "/v1/embeddings", &json!({ "model": "letters", "input": ["hi", "you", [1, 2, 3, 4]] })).json();
    let rows: Vec<&Value> = got["data"].as_array().expect("a list").iter().map(|d| &d["embedding"]).collect();
    assert_eq!(rows, [&json!([2.0, 0.5]), &json!([3.0, 0.5]), &json!([4.0, 0.5])]);
    assert_eq!(got["usage"], json!({ "prompt_tokens": 9, "total_tokens": 9 }));
    let got =
        post(s.address, "/v1/embeddings", &json!({ "input": "hi", "encoding_format": "base64", "dimensions": 2 }));
    assert_eq!(got.json()["data"][0]["embedding"], "AAAAQAAAAD8=");
    for wrong in [
        json!({}),
        json!({ "input": [] }),
        json!({ "input": "" }),
        json!({ "input": "hi", "dimensions": 1 }),
        json!({ "input": "hi", "encoding_format": "hex" }),
        json!({ "input": "hi", "truncate": true }),
    ] {
        assert_eq!(post(s.address, "/v1/embeddings", &wrong).status, 400, "{wrong}");
    }
}

/// A generator of numbers (Vigna's splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Bytes that are changed at random: every reply is a document, and the server goes on.
#[test]
fn no_bytes_harm_the_server() {
    let s = Running::start(StandIn::new(64, Duration::ZERO), |_| {});
    let good = [
        (
            COMPLETIONS,
            r#"{"prompt": ["hi", [1]], "n": 2, "stop": ["a"], "logit_bias": {"1": 2}, "max_tokens": 3, "seed": 1}"#,
        ),
        (
            CHAT,
            concat!(
                r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "#,
                r#""tools": [{"function": {}}], "max_tokens": 3}"#
            ),
        ),
    ];
    let mut state = 1;
    for round in 0..400 {
        let (path, text) = good[round % 2];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + random(&mut state) % 4 {
            let at = random(&mut state) as usize % bytes.len();
            match random(&mut state) % 3 {
                0 => bytes[at] = random(&mut state) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[]\",:0-1e\\\0"[random(&mut state) as usize % 13]),
            }
        }
        let got = reply(send(s.address, "POST", path, &[], &bytes));
        let shown = String::from_utf8_lossy(&bytes);
        assert!(got.status == 200 || got.json()["error"]["message"].is_string(), "{shown}: {}", got.text());
        assert!(got.status < 500, "{shown}: {}", got.text());
    }
    for raw in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ] {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(s.address).expect("connected");
        stream.write_all(raw).expect("sent");
    }
    assert_eq!(get(s.address, "/health").status, 200);
    wait_for("all requests end", || s.model.live() == 0);
}

/// Names and documents of the events of Anthropic's streams.
fn named(text: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").and_then(|e| e.split_once("\ndata: ")).expect(event);
        (name.to_owned(), serde_json::from_str(data).expect(data))
    };
    text.split("\n\n").filter(|e| !e.is_empty()).map(event).collect()
}

#[test]
fn messages_are_answered() {
    let s = Running::plain();
    let mut ask = json!({
        "model": "letters", "max_tokens": 5, "seed": 0, "system": [{ "type": "text", "text": "be brief" }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }],
    });
    let got = post(s.address, "/v1/messages", &ask);
    assert_eq!(got.status, 200, "{}", got.text());
    let prompt = r#"{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]}"#;
    let whole = got.json();
    assert_eq!(whole["content"], json!([{ "type": "text", "text": expected(prompt, 0, 5) }]));
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    let usage = &whole["usage"];
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&json!(prompt.len() - 1), &json!(1)));
    ask["stream"] = true.into();
    let events = named(&post(s.address, "/v1/messages", &ask).text());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let want = ["message_start", "content_block_start"].into_iter().chain(["content_block_delta"; 5]);
    assert_eq!(names, want.chain(["content_block_stop", "message_delta", "message_stop"]).collect::<Vec<_>>());
    let text: String = events.iter().filter_map(|(_, e)| e["delta"]["text"].as_str()).collect();
    assert_eq!(text, expected(prompt, 0, 5));
    let stop = &text[2..3];
    (ask["stop_sequences"], ask["stream"]) = (json!([stop]), false.into());
    let stopped = post(s.address, "/v1/messages", &ask).json();
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    let with = |name: &str, value: Value| {
        let mut wrong = ask.clone();
        wrong[name] = value;
        wrong
    };
    for (wrong, kind) in [
        (with("max_tokens", Value::Null), "invalid_request_error"),
        (with("tools", json!([{ "name": "f" }])), "invalid_request_error"),
        (with("n", json!(2)), "invalid_request_error"),
        (with("messages", json!([{ "role": "system", "content": "x" }])), "invalid_request_error"),
        (with("messages", json!([{ "role": "user", "content": [{ "type": "image" }] }])), "invalid_request_error"),
        (with("stop_sequences", json!([""])), "invalid_request_error"),
        (with("model", json!("other")), "not_found_error"),
    ] {
        let error = post(s.address, "/v1/messages", &wrong).json();
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(kind)), "{wrong}: {error}");
    }
}
