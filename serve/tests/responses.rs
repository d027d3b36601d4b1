//! The Responses interface over a stand-in for a model.

use crate::client::{Reply, get, post, reply, send};
use crate::stand_in::{Running, StandIn, expected, wait_for};
use serde_json::{Value, json};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

const RESPONSES: &str = "/v1/responses";

/// The stand-in's prompt for a conversation of roles and texts.
fn prompt(messages: &[(&str, &str)]) -> String {
    let message = |(role, text): &(&str, &str)| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
    format!(r#"{{"messages":[{}]}}"#, messages.iter().map(message).collect::<Vec<_>>().join(","))
}

fn ok(got: &Reply) -> Value {
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()
}

fn text(response: &Value) -> &str {
    response.pointer("/output/0/content/0/text").and_then(Value::as_str).unwrap_or_else(|| panic!("{response}"))
}

/// The events of a stream; each is named as its type says, and they are numbered.
fn events(got: &Reply) -> Vec<Value> {
    assert_eq!(got.header("content-type"), Some("text/event-stream; charset=utf-8"), "{}", got.text());
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").and_then(|e| e.split_once("\ndata: ")).expect(event);
        let document: Value = serde_json::from_str(data).expect(data);
        assert_eq!(document["type"], name);
        document
    };
    got.text().split("\n\n").filter(|e| !e.is_empty()).map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["type"].as_str().expect("a text").strip_prefix("response.").expect("a prefix")).collect()
}

fn delete(s: &Running, id: &str) -> Reply {
    reply(send(s.address, "DELETE", &format!("{RESPONSES}/{id}"), &[], b""))
}

#[test]
fn answers_are_whole_or_streams() {
    let s = Running::plain();
    let mut ask = json!({
        "model": "letters", "input": "hi", "instructions": "be brief", "max_output_tokens": 5, "seed": 2,
        "metadata": { "a": "b" }, "temperature": 0.5,
    });
    let want = prompt(&[("system", "be brief"), ("user", "hi")]);
    let whole = ok(&post(s.address, RESPONSES, &ask));
    assert_eq!(text(&whole), expected(&want, 2, 5));
    assert_eq!((&whole["status"], &whole["object"]), (&json!("incomplete"), &json!("response")));
    assert_eq!(whole["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    let usage = json!({
        "input_tokens": want.len(), "input_tokens_details": { "cached_tokens": 1, "cache_write_tokens": 0 },
        "output_tokens": 5,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": want.len() + 5,
    });
    assert_eq!(whole["usage"], usage);
    for (name, value) in [("temperature", json!(0.5)), ("metadata", json!({ "a": "b" })), ("store", json!(true))] {
        assert_eq!(whole[name], value, "{name}");
    }
    ask["stream"] = true.into();
    let all = events(&post(s.address, RESPONSES, &ask));
    let begin = ["created", "in_progress", "output_item.added", "content_part.added"];
    let end = ["output_text.done", "content_part.done", "output_item.done", "incomplete"];
    assert_eq!(kinds(&all), [&begin[..], &["output_text.delta"; 5], &end].concat());
    assert!(all.iter().enumerate().all(|(i, e)| e["sequence_number"] == i));
    let deltas: String = all.iter().filter_map(|e| e["delta"].as_str()).collect();
    assert_eq!(deltas, expected(&want, 2, 5));
    assert_eq!(all[9]["text"], deltas);
    let last = &all.last().expect("some")["response"];
    assert_eq!((text(last), &last["usage"]), (deltas.as_str(), &usage));
    assert_eq!((&last["id"], &all[2]["item"]["id"]), (&all[0]["response"]["id"], &last["output"][0]["id"]));
    let stop = &deltas[2..3];
    (ask["stop"], ask["stream"]) = (json!(stop), false.into());
    let stopped = ok(&post(s.address, RESPONSES, &ask));
    assert_eq!((text(&stopped), &stopped["status"]), (&deltas[..2], &json!("completed")));
}

#[test]
fn answers_go_on_from_others() {
    let s = Running::plain();
    let ask = |more: Value| {
        let mut ask = json!({ "max_output_tokens": 3, "seed": 0 });
        more.as_object().expect("an object").iter().for_each(|(name, value)| ask[name] = value.clone());
        post(s.address, RESPONSES, &ask)
    };
    let first = ok(&ask(json!({ "input": "one", "instructions": "only once" })));
    let items = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "two" }] }]);
    let second = ok(&ask(json!({ "input": items, "previous_response_id": first["id"] })));
    let want = [("user", "one"), ("assistant", text(&first)), ("user", "two")];
    assert_eq!(text(&second), expected(&prompt(&want), 0, 3), "instructions are those of each request");
    assert_eq!(second["previous_response_id"], first["id"]);
    // The same conversation, given as a whole, with the item that the server made.
    let items = json!([{ "role": "user", "content": "one" }, first["output"][0], { "role": "user", "content": "two" }]);
    assert_eq!(text(&ok(&ask(json!({ "input": items, "store": false })))), text(&second));
    // A conversation goes on after the response that it began with is deleted.
    let id = |response: &Value| response["id"].as_str().expect("a text").to_owned();
    assert_eq!(ok(&delete(&s, &id(&first)))["deleted"], true);
    assert_eq!(delete(&s, &id(&first)).status, 404);
    let third = ok(&ask(json!({ "input": "three", "previous_response_id": second["id"] })));
    let want = [&want[..], &[("assistant", text(&second)), ("user", "three")]].concat();
    assert_eq!(text(&third), expected(&prompt(&want), 0, 3));
    let page = |query: &str| get(s.address, &format!("{RESPONSES}/{}/input_items{query}", id(&third)));
    let texts = |page: &Value| -> Vec<String> {
        let data = page["data"].as_array().expect("a list");
        data.iter().map(|item| item["content"][0]["text"].as_str().expect("a text").to_owned()).collect()
    };
    let all: Vec<&str> = want.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts(&ok(&page("?order=asc"))), all);
    let newest = ok(&page("?limit=2"));
    assert_eq!((texts(&newest), &newest["has_more"]), (vec!["three".into(), text(&second).into()], &json!(true)));
    let rest = ok(&page(&format!("?after={}", newest["last_id"].as_str().expect("a text"))));
    assert_eq!(
        (texts(&rest), &rest["has_more"]),
        (vec!["two".into(), text(&first).into(), "one".into()], &json!(false))
    );
    for wrong in ["?limit=1&limit=1", "?limit=0", "?limit=x", "?order=up", "?after=x", "?page=2"] {
        assert_eq!(page(wrong).status, 400, "{wrong}");
    }
}

#[test]
fn answers_are_kept_or_not() {
    let s = Running::start(StandIn::new(64, Duration::ZERO), |s| s.max_stored = 2);
    let ask = |store: Value| {
        let response =
            ok(&post(s.address, RESPONSES, &json!({ "input": "hi", "max_output_tokens": 2, "store": store })));
        response["id"].as_str().expect("a text").to_owned()
    };
    let status = |id: &str| get(s.address, &format!("{RESPONSES}/{id}")).status;
    let ids: Vec<String> = (0..3).map(|_| ask(true.into())).collect();
    assert_eq!(ids.iter().map(|id| status(id)).collect::<Vec<_>>(), [404, 200, 200], "the oldest has given way");
    assert_eq!(status(&ask(false.into())), 404);
    let kept = get(s.address, &format!("{RESPONSES}/{}", ids[2])).json();
    assert_eq!((&kept["id"], &kept["status"]), (&json!(ids[2]), &json!("incomplete")));
    let gone = json!({ "input": "hi", "previous_response_id": ids[0] });
    let gone = post(s.address, RESPONSES, &gone);
    assert_eq!((gone.status, &gone.json()["error"]["param"]), (404, &json!("previous_response_id")));
    let none = Running::start(StandIn::new(64, Duration::ZERO), |s| s.max_stored = 0);
    let ask = |more: &str| {
        let mut ask = json!({ "input": "hi", "max_output_tokens": 2 });
        ask[more] = true.into();
        post(none.address, RESPONSES, &ask)
    };
    assert_eq!((ask("store").status, ask("background").status), (400, 400));
    assert_eq!(ok(&ask("ignore_eos"))["store"], false);
}

#[test]
fn keys_keep_answers_apart() {
    let s = Running::start(StandIn::new(64, Duration::ZERO), |s| s.keys = vec!["one".into(), "two".into()]);
    let with = |method: &str, path: &str, key: &str, body: &Value| {
        let key = format!("Bearer {key}");
        reply(send(s.address, method, path, &[("Authorization", &key)], body.to_string().as_bytes()))
    };
    let ask = json!({ "input": "hi", "max_output_tokens": 2 });
    let id = ok(&with("POST", RESPONSES, "one", &ask))["id"].as_str().expect("a text").to_owned();
    let path = format!("{RESPONSES}/{id}");
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/cancel")),
        ("GET", path.clone() + "/input_items"),
    ] {
        assert_eq!(with(method, &path, "two", &json!({})).status, 404, "{method} {path}");
    }
    let goes_on = json!({ "input": "hi", "previous_response_id": id });
    assert_eq!(with("POST", RESPONSES, "two", &goes_on).status, 404);
    assert_eq!(with("GET", &path, "one", &json!({})).status, 200);
}

#[test]
fn answers_grow_in_the_background() {
    let s = Running::start(StandIn::new(64, Duration::from_millis(1)), |_| {});
    s.model.pause(true);
    let ask = json!({ "input": "hi", "background": true, "max_output_tokens": 60, "seed": 0 });
    let begun = ok(&post(s.address, RESPONSES, &ask));
    assert_eq!((&begun["status"], &begun["output"]), (&json!("queued"), &json!([])));
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().expect("a text"));
    let follower = send(s.address, "GET", &format!("{path}?stream=true&starting_after=3"), &[], b"");
    s.model.pause(false);
    wait_for("ends", || get(s.address, &path).json()["status"] == "incomplete");
    let want = expected(&prompt(&[("user", "hi")]), 0, 60);
    assert_eq!(text(&get(s.address, &path).json()), want);
    let followed = events(&reply(follower));
    assert_eq!(followed[0]["sequence_number"], 4);
    assert_eq!(followed.iter().filter_map(|e| e["delta"].as_str()).collect::<String>(), want);
    let again = events(&get(s.address, &format!("{path}?stream=true")));
    assert_eq!(again[4..], followed[..], "a log says the same to all");
    let late = post(s.address, &format!("{path}/cancel"), &json!({}));
    assert_eq!(ok(&late)["status"], "incomplete", "it has ended");
    assert_eq!(get(s.address, &format!("{path}?starting_after=3")).status, 400);
    let whole = ok(&post(s.address, RESPONSES, &json!({ "input": "hi", "max_output_tokens": 1 })));
    let refused = post(s.address, &format!("{RESPONSES}/{}/cancel", whole["id"].as_str().expect("a text")), &json!({}));
    assert_eq!(refused.status, 400, "it is not in the background");
}

#[test]
fn answers_are_cancelled() {
    let s = Running::start(StandIn::new(64, Duration::from_millis(2)), |_| {});
    let ask = |background: bool, stream: bool| {
        json!({ "input": "hi", "max_output_tokens": 90_000, "background": background, "stream": stream }).to_string()
    };
    // By a request.
    let begun = ok(&post(s.address, RESPONSES, &json!({ "input": "hi", "background": true })));
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().expect("a text"));
    wait_for("grows", || get(s.address, &path).json()["status"] == "in_progress");
    let goes_on = post(s.address, RESPONSES, &json!({ "input": "hi", "previous_response_id": begun["id"] }));
    assert_eq!(goes_on.status, 400, "it has not ended");
    let cancelled = ok(&post(s.address, &format!("{path}/cancel"), &json!({})));
    assert_eq!(cancelled["status"], "cancelled");
    wait_for("the engine hears of it", || s.model.live() == 0);
    // With its deletion.
    let begun = ok(&post(s.address, RESPONSES, &json!({ "input": "hi", "background": true })));
    assert_eq!(s.model.live(), 1);
    assert_eq!(delete(&s, begun["id"].as_str().expect("a text")).status, 200);
    wait_for("the engine hears of it", || s.model.live() == 0);
    // By their clients, but not in the background.
    for (background, stream) in [(false, false), (false, true), (true, true)] {
        let connection = send(s.address, "POST", RESPONSES, &[], ask(background, stream).as_bytes());
        wait_for("begins", || s.model.live() == 1);
        if stream {
            (&connection).read_exact(&mut [0; 64]).expect("begins");
        }
        drop(connection);
        if background {
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(s.model.live(), 1, "it goes on");
        } else {
            wait_for("the request ends with its client", || s.model.live() == 0);
        }
    }
}

#[test]
fn forms_and_logprobs_are_taken() {
    let s = Running::plain();
    let ask = json!({
        "input": "hi", "max_output_tokens": 2, "seed": 0, "top_logprobs": 2,
        "include": ["message.output_text.logprobs"], "stream": true,
    });
    let all = events(&post(s.address, RESPONSES, &ask));
    let delta = all.iter().find(|e| e["type"] == "response.output_text.delta").expect("some");
    assert_eq!(delta["logprobs"][0]["token"], delta["delta"]);
    assert_eq!(delta["logprobs"][0]["top_logprobs"][1]["token"], "A");
    let part = &all.last().expect("some")["response"]["output"][0]["content"][0];
    assert_eq!(part["logprobs"].as_array().map(Vec::len), Some(2));
    for wrong in [
        json!({}),
        json!({ "input": "hi", "tools": [{ "type": "web_search" }] }),
        json!({ "input": "hi", "temperature": 101 }),
        json!({ "input": "hi", "max_tokens": 3 }),
        json!({ "input": "hi", "anything": 3 }),
        json!({ "input": "refuse me" }),
        json!({ "input": "hi", "model": 3 }),
    ] {
        let got = post(s.address, RESPONSES, &wrong);
        assert!(got.status == 400 && got.json()["error"]["message"].is_string(), "{wrong}: {}", got.text());
    }
}

#[test]
fn long_conversations_lose_their_oldest_messages() {
    let s = Running::plain();
    let message = |role: &str, n: usize| json!({ "role": role, "content": "x".repeat(n) });
    let items = json!([
        { "role": "developer", "content": "stays" }, message("user", 60_000), message("assistant", 10),
        message("user", 30_000), message("assistant", 10), message("user", 20_000),
    ]);
    let mut ask = json!({ "input": items, "max_output_tokens": 2, "seed": 0 });
    let refused = post(s.address, RESPONSES, &ask);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("input")), "{}", refused.text());
    ask["truncation"] = "auto".into();
    let got = ok(&post(s.address, RESPONSES, &ask));
    let (long, short, last) = ("x".repeat(30_000), "x".repeat(10), "x".repeat(20_000));
    let want = prompt(&[("system", "stays"), ("user", &long), ("assistant", &short), ("user", &last)]);
    assert_eq!((text(&got), got["usage"]["input_tokens"].as_u64()), (&*expected(&want, 0, 2), Some(want.len() as u64)));
    ask["input"] = json!([message("user", 100_000)]);
    assert_eq!(post(s.address, RESPONSES, &ask).status, 400, "the last one is too long alone");
}

#[test]
fn failures_are_told() {
    let s = Running::plain();
    s.model.pause(true);
    let late = post(s.address, RESPONSES, &json!({ "input": "hi", "timeout": 0.05 }));
    assert_eq!(late.status, 504, "{}", late.text());
    let late = events(&post(s.address, RESPONSES, &json!({ "input": "hi", "timeout": 0.05, "stream": true })));
    let last = late.last().expect("some");
    assert_eq!((&last["type"], &last["response"]["error"]["code"]), (&json!("response.failed"), &json!("timeout")));
    let begun = ok(&post(s.address, RESPONSES, &json!({ "input": "hi", "background": true })));
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().expect("a text"));
    s.model.break_down();
    wait_for("fails", || get(s.address, &path).json()["status"] == "failed");
}

/// OpenAI's own client, where it is installed for `python3`, or the program that LLMCC_TEST_PYTHON names.
#[test]
fn openais_client_understands_answers() {
    let python = std::env::var("LLMCC_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import openai"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: OpenAI's client is not installed (pip install openai; LLMCC_TEST_PYTHON=its Python)");
        return;
    }
    let s = Running::plain();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_responses.py");
    let done = Command::new(python).args([script, &format!("http://{}", s.address)]).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

/// Clients that read slowly hold up nobody, and are cut off.
#[test]
fn slow_followers_block_nobody() {
    let s = Running::start(StandIn::new(64, Duration::ZERO), |s| s.patience = Duration::from_millis(300));
    let body = json!({ "input": "hi", "max_output_tokens": 90_000, "stream": true }).to_string();
    let slow: Vec<_> = (0..4).map(|_| send(s.address, "POST", RESPONSES, &[], body.as_bytes())).collect();
    wait_for("begins", || s.model.all() == 4);
    let quick = ok(&post(s.address, RESPONSES, &json!({ "input": "ho", "max_output_tokens": 50, "seed": 0 })));
    assert_eq!(text(&quick), expected(&prompt(&[("user", "ho")]), 0, 50));
    wait_for("the slow clients' requests end", || s.model.live() == 0);
    drop(slow);
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
fn no_bytes_harm_answers() {
    let mut model = StandIn::new(64, Duration::ZERO);
    model.usual = 5;
    let s = Running::start(model, |_| {});
    let good = concat!(
        r#"{"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "store": true, "#,
        r#""max_output_tokens": 3, "metadata": {"a": "b"}, "text": {"format": {"type": "text"}}, "#,
        r#""truncation": "auto", "include": [], "reasoning": {"effort": "low"}}"#
    );
    let mut state = 7;
    for _ in 0..400 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..1 + random(&mut state) % 4 {
            let at = random(&mut state) as usize % bytes.len();
            match random(&mut state) % 3 {
                0 => bytes[at] = random(&mut state) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[]\",:0-1e\\\0"[random(&mut state) as usize % 13]),
            }
        }
        let got = reply(send(s.address, "POST", RESPONSES, &[], &bytes));
        let shown = String::from_utf8_lossy(&bytes);
        assert!(got.status < 500, "{shown}: {}", got.text());
        assert!(got.status == 200 || got.json()["error"]["message"].is_string(), "{shown}: {}", got.text());
    }
    wait_for("all requests end", || s.model.live() == 0);
}
