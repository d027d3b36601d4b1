//! `llmcc serve` over the example model: the same texts as `llmcc run`, in any company.

use crate::client::{self, Reply, get, post, reply, send};
use crate::common::{Folder, WITH_TOKENIZER, text};
use crate::served::Served;
use serde_json::{Value, json};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn model(more: &[&str]) -> Folder {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &[&["--no-golden", "--quiet"], more].concat());
    f
}

/// The document of `llmcc run`.
fn run(f: &Folder, args: &[&str]) -> Value {
    serde_json::from_str(&f.says(&[], &[&["run", "m.so", "--json", "--threads", "1"], args].concat())).expect("JSON")
}

fn ok(got: &Reply) -> Value {
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()
}

fn joined(events: &[Value], choice: u64, member: &str) -> String {
    let of = events.iter().flat_map(|e| e["choices"].as_array().cloned().unwrap_or_default());
    of.filter(|c| c["index"] == choice).filter_map(|c| c.pointer(member)?.as_str().map(str::to_owned)).collect()
}

/// One server for all that needs no other options: the model is compiled once.
#[test]
fn texts_are_those_of_run() {
    let f = model(&["--max-context", "256"]);
    let s = Served::start(&f, &["--served-name", "tiny"]);
    assert_eq!(get(s.address, "/v1/models").json()["data"][0]["id"], "tiny");
    equals_run(&f, &s);
    conversations(&f, &s);
    choices_stops_logprobs(&s);
    company(&s);
    forms(&s);
    responses(&s);
    prompts_have_logprobs(&s);
    aborted(&s);
    refused(&s);
    openai_client(&s);
    health(&f, &s);
}

/// `llmcc health` says by its status how a server is.
fn health(f: &Folder, s: &Served) {
    let url = format!("http://{}", s.address);
    for (args, code, says) in [
        (&[&url[..]][..], 0, ""),
        (&[&url, "--live"], 0, ""),
        (&["http://127.0.0.1:1"], 1, "http://127.0.0.1:1/ready: "),
        (&["https://127.0.0.1:1"], 2, "http://127.0.0.1:8080"),
        (&["http://127.0.0.1:1/x"], 2, "http://127.0.0.1:8080"),
        (&["http://"], 2, "http://127.0.0.1:8080"),
    ] {
        let done = f.llmcc(&[&["health"], args].concat());
        let message = text(&done.stderr);
        assert!(
            done.status.code() == Some(code) && done.stdout.is_empty() && message.contains(says),
            "{args:?}: {message}"
        );
    }
}

fn equals_run(f: &Folder, s: &Served) {
    for (options, members) in [
        (&["--temperature", "0"][..], json!({ "temperature": 0 })),
        (&["--seed", "7"], json!({ "seed": 7 })),
        (
            &["--seed", "3", "--temperature", "1.2", "--top-p", "0.8", "--repetition-penalty", "1.1", "--ignore-eos"],
            json!({ "seed": 3, "temperature": 1.2, "top_p": 0.8, "repetition_penalty": 1.1, "ignore_eos": true }),
        ),
    ] {
        let alone = run(f, &[&["-p", "Once upon a time", "-n", "24"], options].concat());
        let mut ask = members;
        (ask["prompt"], ask["max_tokens"]) = ("Once upon a time".into(), 24.into());
        let whole = ok(&post(s.address, COMPLETIONS, &ask));
        assert_eq!(whole["choices"][0]["text"], alone["text"], "{ask}");
        assert_eq!(whole["usage"]["prompt_tokens"], alone["prompt_tokens"]);
        assert_eq!(whole["usage"]["completion_tokens"], alone["generated_tokens"]);
        ask["stream"] = true.into();
        assert_eq!(
            joined(&post(s.address, COMPLETIONS, &ask).events(), 0, "/text"),
            alone["text"].as_str().expect("a text")
        );
    }
    let again = ok(&post(s.address, COMPLETIONS, &json!({ "prompt": "Once upon a time", "max_tokens": 2 })));
    assert!(again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{again}");
    let salted = json!({ "prompt": "Once upon a time", "max_tokens": 2, "cache_salt": "mine" });
    let salted = ok(&post(s.address, COMPLETIONS, &salted));
    assert_eq!(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "{salted}");
}

fn conversations(f: &Folder, s: &Served) {
    let alone = run(f, &["--chat", "-p", "hi", "-n", "12", "--temperature", "0", "--system", "Be brief."]);
    let mut ask = json!({
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
        ],
        "max_completion_tokens": 12, "temperature": 0,
    });
    let whole = ok(&post(s.address, CHAT, &ask));
    assert_eq!(whole["choices"][0]["message"]["content"], alone["text"]);
    assert_eq!(whole["usage"]["prompt_tokens"], alone["prompt_tokens"]);
    (ask["stream"], ask["stream_options"]) = (true.into(), json!({ "include_usage": true }));
    let events = post(s.address, CHAT, &ask).events();
    assert_eq!(joined(&events, 0, "/delta/content"), alone["text"].as_str().expect("a text"));
    assert_eq!(events.last().expect("some")["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    let tokens = ok(&post(s.address, "/tokenize", &json!({ "messages": ask["messages"] })));
    assert_eq!(tokens["count"], alone["prompt_tokens"]);
    let back = ok(&post(s.address, "/detokenize", &json!({ "tokens": tokens["tokens"] })));
    assert!(back["prompt"].as_str().is_some_and(|t| t.contains("Be brief.") && t.contains("<|begin|>")), "{back}");
    let call = json!({ "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let refused = post(s.address, CHAT, &json!({ "messages": [message] }));
    assert!(refused.status == 400 && refused.text().contains("a message needs a text"), "{}", refused.text());
}

fn choices_stops_logprobs(s: &Served) {
    let ask = |more: Value| {
        let mut ask = json!({ "prompt": "Once upon", "max_tokens": 16, "seed": 11, "ignore_eos": true });
        more.as_object().expect("an object").iter().for_each(|(name, value)| ask[name] = value.clone());
        ok(&post(s.address, COMPLETIONS, &ask))
    };
    let (first, second) = (ask(json!({})), ask(json!({ "seed": 12 })));
    let two = ask(json!({ "n": 2 }));
    for (choice, alone) in [first.clone(), second].iter().enumerate() {
        assert_eq!(two["choices"][choice]["text"], alone["choices"][0]["text"], "choice {choice}");
    }
    assert_eq!(two["usage"]["prompt_tokens"], first["usage"]["prompt_tokens"]);
    let whole = first["choices"][0]["text"].as_str().expect("a text");
    let stop: String = whole.chars().skip(8).take(3).collect();
    let stopped = ask(json!({ "stop": [stop] }));
    let before = &whole[..whole.find(&stop).expect("it has it")];
    assert_eq!(
        (&stopped["choices"][0]["text"], &stopped["choices"][0]["finish_reason"]),
        (&json!(before), &json!("stop"))
    );
    let logprobs = &ask(json!({ "logprobs": 2 }))["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"].as_array().map(Vec::len), Some(16), "{logprobs}");
    assert!(logprobs["token_logprobs"].as_array().expect("a list").iter().all(|p| p.as_f64() <= Some(0.0)));
    let names: String = logprobs["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(names, whole);
    let most = ask(json!({ "logprobs": 20, "temperature": 0 }));
    let of = &most["choices"][0]["logprobs"];
    assert!(of["top_logprobs"][0].as_object().expect("an object").len() >= 15, "{of}");
    assert!(
        of["top_logprobs"][0]
            .as_object()
            .expect("an object")
            .values()
            .all(|p| p.as_f64() <= of["token_logprobs"][0].as_f64())
    );
    let banned = ask(json!({ "temperature": 0, "max_tokens": 1, "logprobs": 1 }));
    let token = &banned["choices"][0]["logprobs"]["tokens"][0];
    let id = &ok(&post(s.address, "/tokenize", &json!({ "prompt": token, "add_special_tokens": false })))["tokens"][0];
    let other =
        ask(json!({ "temperature": 0, "max_tokens": 1, "logprobs": 1, "logit_bias": { id.to_string(): -100 } }));
    assert_ne!(other["choices"][0]["logprobs"]["tokens"][0], *token);
}

/// Texts of a form.
fn forms(s: &Served) {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer", "maximum": 9 } },
        "required": ["a"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    for seed in 0..4 {
        let ask = |name: &str, form: &Value| {
            let mut ask = json!({ "prompt": "Once", "max_tokens": 100, "seed": seed });
            ask[name] = form.clone();
            ok(&post(s.address, COMPLETIONS, &ask))["choices"][0].clone()
        };
        let json = ask("response_format", &format);
        let value: Value = serde_json::from_str(json["text"].as_str().expect("a text")).expect("JSON");
        assert!(value["a"].as_i64() <= Some(9) && json["finish_reason"] == "stop", "{json}");
        let choice = ask("structured_outputs", &json!({ "choice": ["yes", "no"] }));
        assert!(["yes", "no"].contains(&choice["text"].as_str().expect("a text")), "{choice}");
    }
}

/// The Responses interface gives the same answers as conversations.
fn responses(s: &Served) {
    let user = json!({ "role": "user", "content": "hi" });
    let ask = json!({ "messages": [user], "max_tokens": 12, "seed": 4 });
    let chat = ok(&post(s.address, CHAT, &ask));
    let text = |response: &Value| response["output"][0]["content"][0]["text"].clone();
    let first = ok(&post(s.address, "/v1/responses", &json!({ "input": "hi", "max_output_tokens": 12, "seed": 4 })));
    assert_eq!(text(&first), chat["choices"][0]["message"]["content"]);
    assert_eq!(first["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    let more = json!({ "input": "on", "previous_response_id": first["id"], "max_output_tokens": 12, "seed": 4 });
    let second = ok(&post(s.address, "/v1/responses", &more));
    let said = json!({ "role": "assistant", "content": text(&first) });
    let ask = json!({ "messages": [user, said, { "role": "user", "content": "on" }], "max_tokens": 12, "seed": 4 });
    assert_eq!(text(&second), ok(&post(s.address, CHAT, &ask))["choices"][0]["message"]["content"]);
    assert!(second["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{second}");
    let gap = post(s.address, COMPLETIONS, &json!({ "prompt": "a", "suffix": "b" }));
    assert!(gap.status == 400 && gap.text().contains("filling in the middle"), "{}", gap.text());
}

/// A text that is given as a prompt has the log-probabilities that its tokens had when they were generated.
fn prompts_have_logprobs(s: &Served) {
    let ask = json!({ "prompt": "Once upon", "max_tokens": 9, "temperature": 0, "logprobs": 3, "ignore_eos": true });
    let made = ok(&post(s.address, COMPLETIONS, &ask))["choices"][0].clone();
    let whole = format!("Once upon{}", made["text"].as_str().expect("a text"));
    let tokens = ok(&post(s.address, "/tokenize", &json!({ "prompt": whole })))["tokens"].clone();
    let begins = ok(&post(s.address, "/tokenize", &json!({ "prompt": "Once upon" })))["tokens"].clone();
    let (tokens, begins) = (tokens.as_array().expect("a list"), begins.as_array().expect("a list"));
    if tokens.len() != begins.len() + 9 || tokens[..begins.len()] != begins[..] {
        eprintln!("skipped: the text has other tokens when it is read");
        return;
    }
    let ask = json!({ "prompt": tokens, "max_tokens": 0, "echo": true, "logprobs": 3 });
    let echo = ok(&post(s.address, COMPLETIONS, &ask))["choices"][0].clone();
    let (given, wanted) = (&echo["logprobs"], &made["logprobs"]);
    assert_eq!(given["token_logprobs"][0], Value::Null);
    let rest = |of: &Value, name: &str, from: usize| of[name].as_array().expect("a list")[from..].to_vec();
    for name in ["token_logprobs", "top_logprobs"] {
        assert_eq!(rest(given, name, begins.len()), rest(wanted, name, 0), "{name}");
    }
}

/// Thirty-two requests at once: each has the text that it has alone.
fn company(s: &Served) {
    let ask = |i: u64| {
        let prompt = ["Once", "def f(", "The", "# a"][i as usize % 4];
        json!({ "prompt": prompt, "max_tokens": 10 + i % 7, "seed": i, "temperature": 0.9 })
    };
    let text = |i: u64| ok(&post(s.address, COMPLETIONS, &ask(i)))["choices"][0]["text"].clone();
    let alone: Vec<Value> = (0..32).map(text).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..32).map(|i| scope.spawn(move || text(i))).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert_eq!(together, alone);
}

fn aborted(s: &Served) {
    let body = json!({ "prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true, "n": 16 }).to_string();
    let before = s.count("vllm:generation_tokens_total");
    let connection = send(s.address, "POST", COMPLETIONS, &[], body.as_bytes());
    (&connection).read_exact(&mut [0; 256]).expect("begins");
    drop(connection);
    s.wait_for("vllm:num_requests_running", |n| n == 0.0);
    s.wait_for("vllm:num_requests_waiting", |n| n == 0.0);
    assert!(s.count("vllm:generation_tokens_total") < before + 16.0 * 200.0);
}

fn refused(s: &Served) {
    let long = "word ".repeat(400);
    for (ask, status, says) in [
        (json!({ "prompt": long }), 400, "context"),
        (json!({ "prompt": "Once", "model": "m" }), 404, "`tiny`"),
        (json!({ "prompt": [1_000_000] }), 400, "vocabulary"),
        (json!({ "prompt": "Once", "guided_json": { "type": "thing" } }), 400, "the JSON schema is refused"),
        (json!({ "prompt": "Once", "best_of": 3 }), 400, "best_of"),
    ] {
        let got = post(s.address, COMPLETIONS, &ask);
        let error = got.json();
        assert!(
            got.status == status && error["error"]["message"].as_str().is_some_and(|m| m.contains(says)),
            "{error}"
        );
    }
    let whole = post(s.address, "/rerank", &json!({ "query": "a", "documents": ["b"] }));
    assert_eq!(whole.json()["error"]["code"], "unsupported", "{}", whole.text());
    let none = post(s.address, "/v1/embeddings", &json!({ "input": "hi" }));
    assert_eq!(none.json()["error"]["code"], "unsupported", "{}", none.text());
}

/// OpenAI's own client, where it is installed for `python3`, or the program that LLMCC_TEST_PYTHON names.
fn openai_client(s: &Served) {
    let python = std::env::var("LLMCC_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import openai"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: OpenAI's client is not installed (pip install openai; LLMCC_TEST_PYTHON=its Python)");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py");
    let done = Command::new(python).args([script, &format!("http://{}", s.address)]).output().expect("it runs");
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
}

/// A key is wanted; the engine is soon busy; the server ends after its requests.
#[test]
fn servers_keep_their_limits_and_end() {
    let f = model(&["--max-context", "1024", "--also-embed"]);
    std::fs::write(f.at("keys"), "secret\n\nother\n").expect("written");
    let mut s = Served::start(
        &f,
        &["--api-key-file", "keys", "--max-running", "1", "--max-queued", "7", "--drain-seconds", "100"],
    );
    let key = [("Authorization", "Bearer secret")];
    let post = |path: &str, ask: &Value| reply(send(s.address, "POST", path, &key, ask.to_string().as_bytes()));
    assert_eq!(client::post(s.address, COMPLETIONS, &json!({ "prompt": "Once" })).status, 401);
    let embedding = ok(&post("/v1/embeddings", &json!({ "input": ["hi", "Once upon"], "model": "m" })));
    let alone = run(&f, &["--embed", "-p", "Once upon"]);
    let numbers = |row: &Value| -> Vec<f32> {
        row.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
    };
    assert_eq!(numbers(&embedding["data"][1]["embedding"]), numbers(&alone["embedding"]));
    let long = json!({ "prompt": "Once", "max_tokens": 1000, "ignore_eos": true, "stream": true, "seed": 1 });
    let held: Vec<_> =
        (0..8).map(|_| send(s.address, "POST", COMPLETIONS, &key, long.to_string().as_bytes())).collect();
    for stream in &held {
        stream.peek(&mut [0; 1]).expect("begins");
    }
    let busy = post(COMPLETIONS, &json!({ "prompt": "Once", "max_tokens": 1 }));
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("1")), "{}", busy.text());
    s.terminate();
    let end = Instant::now() + Duration::from_secs(60);
    while get(s.address, "/ready").status != 503 {
        assert!(Instant::now() < end, "still ready");
    }
    assert_eq!(post(COMPLETIONS, &json!({ "prompt": "Once" })).status, 503);
    let texts: Vec<String> = held.into_iter().map(|stream| joined(&reply(stream).events(), 0, "/text")).collect();
    assert!(texts.iter().all(|text| *text == texts[0] && !text.is_empty()), "{texts:?}");
    assert!(s.child.wait().expect("ends").success());
}

/// Wrong options are refused before a model is opened.
#[test]
fn wrong_options_are_refused() {
    let f = Folder::new();
    std::fs::write(f.at("empty"), "\n").expect("written");
    std::fs::write(f.at("spaces"), "a key\n").expect("written");
    std::fs::write(f.at("text.so"), "no artifact").expect("written");
    for (args, says) in [
        (&["text.so", "--host", "0.0.0.0"][..], "--api-key-file"),
        (&["text.so", "--host", "nowhere"], "--host"),
        (&["text.so", "--api-key-file", "none"], "none"),
        (&["text.so", "--api-key-file", "empty"], "no key"),
        (&["text.so", "--api-key-file", "spaces"], "key 1"),
        (&["text.so", "--port", "70000"], "--port"),
        (&["text.so", "--max-running", "0"], "--max-running"),
        (&["text.so", "other/text.so"], "--served-name"),
        (&["text.so", "--served-name", "a", "--served-name", "b"], "--served-name"),
        (&["a.so", "b.so", "--max-models", "1"], "--max-models"),
        (&["--model-dir", "none"], "none"),
        (&["--max-models", "2"], "ARTIFACT"),
        (&["text.so", "--tls-cert", "empty"], "--tls-key"),
        (&["text.so", "--log", "xml"], "--log"),
        (&["text.so", "--default", "tempratur=1"], "--default"),
        (&["text.so", "--default", "temperature=-1"], "from 0 to 100"),
        (&["text.so"], "text.so"),
        (&["missing.so"], "missing.so"),
    ] {
        let done = f.llmcc(&[&["serve"], args].concat());
        let message = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && message.contains(says), "{args:?}: {message}");
    }
}
