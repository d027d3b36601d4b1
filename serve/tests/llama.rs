//! llama.cpp's own interface over a stand-in for a model.

use crate::client::{get, post, reply, send};
use crate::stand_in::{Running, StandIn, expected};
use llmcc_model::Grammar;
use serde_json::{Value, json};
use std::time::Duration;

const COMPLETION: &str = "/completion";

/// The documents of a stream.
fn pieces(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|event| serde_json::from_str(event).unwrap_or_else(|e| panic!("{e}: {event}"))).collect()
}

fn tokens(text: &str) -> Vec<u8> {
    text.bytes().collect()
}

#[test]
fn texts_are_whole_or_streams() {
    let s = Running::plain();
    let mut ask = json!({ "prompt": "hi", "n_predict": 5, "seed": 3, "return_tokens": true });
    for path in [COMPLETION, "/completions"] {
        let got = post(s.address, path, &ask);
        assert_eq!(got.status, 200, "{}", got.text());
        let whole = got.json();
        assert_eq!(whole["content"], expected("hi", 3, 5));
        assert_eq!(whole["tokens"], json!(tokens(&expected("hi", 3, 5))));
        assert_eq!((&whole["stop"], &whole["stop_type"]), (&json!(true), &json!("limit")));
        assert_eq!((&whole["tokens_evaluated"], &whole["tokens_predicted"]), (&json!(2), &json!(5)));
        assert_eq!((&whole["prompt"], &whole["truncated"]), (&json!("hi"), &json!(false)));
        assert_eq!((&whole["timings"]["prompt_n"], &whole["timings"]["cache_n"]), (&json!(1), &json!(1)));
        let settings = &whole["generation_settings"];
        assert_eq!((&settings["n_predict"], &settings["top_k"]), (&json!(5), &json!(40)), "{settings}");
        assert_eq!((&settings["temperature"], &settings["min_p"]), (&json!(0.8), &json!(0.05)));
    }
    ask["stream"] = true.into();
    let events = pieces(&post(s.address, COMPLETION, &ask).text());
    let (last, others) = events.split_last().expect("some");
    let text: String = others.iter().filter_map(|e| e["content"].as_str()).collect();
    assert_eq!(text, expected("hi", 3, 5));
    assert!(others.iter().all(|e| e["stop"] == false && e["tokens"].as_array().is_some_and(|t| t.len() == 1)));
    assert_eq!((&last["content"], &last["stop"]), (&json!(""), &json!(true)));
    let fields = json!({ "prompt": "hi", "n_predict": 5, "response_fields": ["content", "timings/predicted_n"] });
    let got = post(s.address, COMPLETION, &fields).json();
    assert_eq!(got["timings/predicted_n"], 5);
    assert_eq!(got.as_object().map(serde_json::Map::len), Some(2), "{got}");
}

#[test]
fn prompts_have_many_forms() {
    let s = Running::plain();
    let text = |prompt: Value| {
        let got = post(s.address, COMPLETION, &json!({ "prompt": prompt, "seed": 0, "n_predict": 5 })).json();
        match &got {
            Value::Array(all) => all.iter().map(|one| one["content"].clone()).collect(),
            one => vec![one["content"].clone()],
        }
    };
    let (hi, ho) = (json!(expected("hi", 0, 5)), json!(expected("ho", 0, 5)));
    for prompt in [json!("hi"), json!([104, 105]), json!([104, "i"]), json!({ "prompt_string": "hi" })] {
        assert_eq!(text(prompt.clone()), std::slice::from_ref(&hi), "{prompt}");
    }
    assert_eq!(text(json!(["hi", [104, "o"]])), [hi, ho]);
    let both = json!({ "prompt": "hi", "seed": 0, "n_predict": 5, "n_cmpl": 2 });
    let both = post(s.address, COMPLETION, &both).json();
    assert_eq!((&both[0]["index"], &both[1]["index"]), (&json!(0), &json!(1)));
    assert_eq!(both[1]["content"], expected("hi", 1, 5));
    let nothing = post(s.address, COMPLETION, &json!({ "prompt": "hi", "n_predict": 0 })).json();
    assert_eq!((&nothing["content"], &nothing["timings"]["predicted_n"]), (&json!(""), &json!(0)));
}

#[test]
fn probabilities_before_and_after_sampling() {
    let s = Running::plain();
    let mut ask = json!({ "prompt": "hi", "n_predict": 2, "n_probs": 2, "temperature": 1, "top_p": 1, "min_p": 0 });
    let got = post(s.address, COMPLETION, &ask).json();
    let first = &got["completion_probabilities"][0];
    assert_eq!((&first["logprob"], &first["top_logprobs"][1]["token"]), (&json!(-0.5), &json!("A")), "{got}");
    assert_eq!(first["top_logprobs"][1]["bytes"], json!([65]));
    ask["post_sampling_probs"] = true.into();
    let got = post(s.address, COMPLETION, &ask).json();
    let first = &got["completion_probabilities"][0];
    let share = 1.0 / (1.0 + (-1.0f64).exp());
    assert!(first["prob"].as_f64().is_some_and(|p| (p - share).abs() < 1e-9), "{first}");
    assert_eq!(first["top_probs"].as_array().map(Vec::len), Some(2), "none of probability 0");
    assert_eq!(s.model.params().logprobs, Some(40));
    ask["presence_penalty"] = json!(1);
    assert_eq!(post(s.address, COMPLETION, &ask).status, 400);
}

#[test]
fn members_have_their_meaning_or_are_refused() {
    let s = Running::plain();
    let ask = json!({
        "prompt": "hi", "n_predict": 1, "seed": -1, "temperature": 0.5, "top_k": 7, "repeat_penalty": 1.5,
        "repeat_last_n": 9, "presence_penalty": 0.5, "stop": ["zz"], "logit_bias": [[104, -1.5], ["ab", false]],
        "grammar": "root ::= \"a\"*", "mirostat": 0, "dry_multiplier": 0.0, "dry_base": 1.75, "typical_p": 1.0,
        "cache_prompt": false, "id_slot": 3, "xtc_threshold": 0.1, "samplers":
            ["penalties", "temperature", "top_k", "top_p", "min_p"],
    });
    let got = post(s.address, COMPLETION, &ask);
    assert_eq!(got.status, 200, "{}", got.text());
    let params = s.model.params();
    assert_eq!((params.sampling.temperature, params.sampling.top_k), (0.5, 7));
    assert_eq!((params.sampling.repetition_penalty, params.sampling.repetition_window), (1.5, 9));
    let no = f32::NEG_INFINITY;
    assert_eq!(params.logit_bias, [(104, -1.5), (97, no), (98, no)]);
    assert_eq!(params.grammar, Some(Grammar::Lark("start: /a*/".into())));
    for (member, value) in [
        ("mirostat", json!(2)),
        ("typical_p", json!(0.5)),
        ("samplers", json!(["top_k"])),
        ("lora", json!([{ "id": 0, "scale": 1.0 }])),
        ("return_progress", json!(true)),
        ("image_data", json!([{}])),
        ("n_predict", json!(-3)),
        ("logit_bias", json!([[300, 1]])),
        ("logit_bias", json!([1])),
        ("grammar", json!("root ::= (")),
        ("n_cmpl", json!(129)),
        ("tempratur", json!(1)),
        ("prompt", json!([])),
        ("prompt", json!({ "prompt_string": "a", "multimodal_data": ["b"] })),
    ] {
        let mut wrong = json!({ "prompt": "hi", "n_predict": 1 });
        wrong[member] = value;
        let got = post(s.address, COMPLETION, &wrong);
        let error = &got.json()["error"];
        assert_eq!((got.status, &error["code"]), (400, &json!(400)), "{wrong}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{wrong}: {error}");
    }
    let long = post(s.address, COMPLETION, &json!({ "prompt": "x".repeat(100_001) })).json();
    let error = &long["error"];
    assert_eq!((&error["type"], &error["n_ctx"]), (&json!("exceed_context_size_error"), &json!(100_000)), "{error}");
    assert_eq!(error["n_prompt_tokens"], 100_001);
    // The other paths have OpenAI's shape.
    let long = post(s.address, "/v1/completions", &json!({ "prompt": "x".repeat(100_001) })).json();
    assert_eq!(long["error"]["code"], "context_length_exceeded");
}

#[test]
fn ends_are_forbidden_where_they_are_ignored() {
    let mut model = StandIn::new(4, Duration::ZERO);
    model.facts.ends = vec![7, 8];
    let s = Running::start(model, |_| {});
    let ask = |ignore: bool| {
        let got = post(s.address, COMPLETION, &json!({ "prompt": "hi", "n_predict": 1, "ignore_eos": ignore })).json();
        got["generation_settings"]["logit_bias"].clone()
    };
    assert_eq!(ask(true), json!([{ "token": 7, "bias": null }, { "token": 8, "bias": null }]));
    assert_eq!(ask(false), json!([]));
}

#[test]
fn gaps_are_filled() {
    let mut model = StandIn::new(4, Duration::ZERO);
    model.fills = true;
    let s = Running::start(model, |_| {});
    let mut ask = json!({
        "input_prefix": "a", "input_suffix": "c", "prompt": "b", "n_predict": 3, "seed": 0,
        "input_extra": [{ "filename": "f", "text": "t" }],
    });
    let got = post(s.address, "/infill", &ask).json();
    let prompt = "\u{1}\n\n--- f ---\n\nt\n\n--- file ---\n\nab\u{2}c\u{3}";
    assert_eq!(got["content"], expected(prompt, 0, 3), "{got}");
    for wrong in [json!({}), json!({ "filename": "f" }), json!({ "filename": 1, "text": "t" }), json!(1)] {
        ask["input_extra"] = json!([wrong]);
        let got = post(s.address, "/infill", &ask);
        assert_eq!(got.status, 400, "{wrong}: {}", got.text());
    }
    let other = Running::plain();
    let got = post(other.address, "/infill", &json!({ "input_prefix": "a", "input_suffix": "c" }));
    assert!(got.status == 400 && got.text().contains("filling in the middle"), "{}", got.text());
}

#[test]
fn embeddings_are_lists() {
    let s = Running::plain();
    for path in ["/embedding", "/embeddings"] {
        for member in ["content", "input"] {
            let got = post(s.address, path, &json!({ member: ["ab", [1, "c", 2]] })).json();
            assert_eq!(got[0], json!({ "index": 0, "embedding": [[2.0, 0.5]] }), "{got}");
            assert_eq!(got[1]["embedding"], json!([[3.0, 0.5]]));
        }
    }
    assert_eq!(post(s.address, "/embedding", &json!({ "content": "a", "embd_normalize": 0 })).status, 400);
    assert!(get(s.address, "/metrics").text().contains("llamacpp:prompt_tokens_total 20\n"), "4 times 5 tokens");
    let mixed = post(s.address, "/v1/embeddings", &json!({ "input": [97, "bc", 100] })).json();
    assert_eq!(mixed["data"][0]["embedding"], json!([4.0, 0.5]));
}

#[test]
fn the_server_tells_about_itself() {
    let mut model = StandIn::new(4, Duration::ZERO);
    (model.facts.places, model.facts.max_context) = (3, 50);
    model.facts.defaults.insert("seed".into(), json!(42));
    let s = Running::start(model, |settings| settings.without = vec!["/slots".into()]);
    let props = get(s.address, "/props").json();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(3), &json!("letters")));
    let settings = &props["default_generation_settings"];
    assert_eq!((&settings["n_ctx"], &settings["params"]["seed"]), (&json!(50), &json!(42)));
    assert!(props["build_info"].as_str().is_some_and(|info| info.starts_with('b')), "{props}");
    let refused = get(s.address, "/slots");
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (501, &json!("not_supported_error")));
    let other = Running::start(StandIn::new(4, Duration::ZERO), |_| {});
    assert_eq!(get(other.address, "/slots").json(), json!([]), "the stand-in says nothing about its places");
    assert_eq!(get(s.address, "/lora-adapters").json(), json!([]));
    assert_eq!(post(s.address, "/lora-adapters", &json!([])).json(), json!({ "success": true }));
    assert_eq!(post(s.address, "/lora-adapters", &json!([{ "id": 0, "scale": 1 }])).status, 400);
    assert_eq!(get(s.address, "/v1/health").status, 200);
    assert_eq!(get(s.address, "/props?model=other").status, 404);
    let page = get(s.address, "/metrics");
    assert!(page.header("process-start-time-unix").is_some());
    assert!(page.text().contains("# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n"));
}

#[test]
fn defaults_count_where_a_request_has_none() {
    let mut model = StandIn::new(4, Duration::ZERO);
    for (name, value) in [
        ("temperature", json!(0.25)),
        ("max_tokens", json!(4)),
        ("chat_template_kwargs", json!({ "a": 1, "b": 2 })),
        ("verbose", json!(true)),
    ] {
        model.facts.defaults.insert(name.into(), value);
    }
    let s = Running::start(model, |settings| settings.any_model = true);
    let got = post(s.address, COMPLETION, &json!({ "prompt": "hi", "seed": 0, "model": "any" })).json();
    assert_eq!(got["content"], expected("hi", 0, 4));
    assert_eq!(s.model.params().sampling.temperature, 0.25);
    let ask = json!({
        "messages": [{ "role": "user", "content": "hi" }], "temperature": 1, "chat_template_kwargs": { "b": 3 },
        "timings_per_token": true,
    });
    let got = post(s.address, "/chat/completions", &ask).json();
    let prompt = got["__verbose"]["prompt"].as_str().unwrap_or_default();
    assert!(prompt.ends_with(r#""b":3,"a":1}"#), "{prompt}");
    assert_eq!((s.model.params().sampling.temperature, s.model.params().max_tokens), (1.0, 4));
    assert_eq!(got["timings"]["predicted_n"], 4);
    assert!(got["system_fingerprint"].as_str().is_some_and(|print| print.starts_with('b')), "{got}");
}

#[test]
fn conversations_become_prompts_and_counts() {
    let s = Running::plain();
    let ask = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let prompt = r#"{"messages":[{"content":"hi","role":"user"}]}"#;
    assert_eq!(post(s.address, "/apply-template", &ask).json(), json!({ "prompt": prompt }));
    for path in ["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"] {
        assert_eq!(post(s.address, path, &ask).json(), json!({ "input_tokens": prompt.len() }));
    }
    assert_eq!(post(s.address, "/v1/messages/count_tokens", &ask).json()["input_tokens"], prompt.len());
    let got = post(s.address, "/v1/responses/input_tokens", &json!({ "input": "hi" })).json();
    assert_eq!(got, json!({ "object": "response.input_tokens", "input_tokens": prompt.len() }));
    assert_eq!(post(s.address, "/responses", &json!({ "input": "hi", "max_output_tokens": 2 })).status, 200);
    let mut both = ask.clone();
    (both["add_generation_prompt"], both["continue_final_message"]) = (true.into(), true.into());
    for path in ["/chat/completions", "/apply-template", "/chat/completions/input_tokens"] {
        assert_eq!(post(s.address, path, &both).status, 400, "{path}");
    }
    let tokens = post(s.address, "/tokenize", &json!({ "content": "hi" })).json();
    assert_eq!(tokens, json!({ "tokens": [104, 105] }));
    let pieces = post(s.address, "/tokenize", &json!({ "content": "hi", "with_pieces": true })).json();
    assert_eq!(pieces["tokens"][0], json!({ "id": 104, "piece": "h" }));
    let pieces = post(s.address, "/tokenize", &json!({ "content": "é", "with_pieces": true })).json();
    assert_eq!(pieces["tokens"][0], json!({ "id": 195, "piece": [195] }), "half of a character");
    let text = post(s.address, "/detokenize", &json!({ "tokens": [104, 105] })).json();
    assert_eq!(text, json!({ "prompt": "hi", "content": "hi" }));
}

#[test]
fn forms_have_llama_cpps_names() {
    let s = Running::plain();
    let schema = Grammar::JsonSchema(r#"{"type":"null"}"#.into());
    for (member, value, wanted) in [
        ("json_schema", json!({ "type": "null" }), schema.clone()),
        ("response_format", json!({ "type": "json_object", "schema": { "type": "null" } }), schema),
        ("grammar", json!("root ::= [a-c]"), Grammar::Lark("start: /[a-c]/".into())),
    ] {
        let mut ask = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 1 });
        ask[member] = value;
        let got = post(s.address, "/chat/completions", &ask);
        assert_eq!((got.status, s.model.params().grammar), (200, Some(wanted)), "{member}: {}", got.text());
    }
    let wrong = json!({ "prompt": "hi", "grammar": "root ::= x" });
    let error = post(s.address, "/v1/completions", &wrong).json();
    assert!(error["error"]["message"].as_str().is_some_and(|m| m.contains("line 1, column 10")), "{error}");
}

#[test]
fn pages_of_this_machine_may_ask() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |settings| settings.origins = vec!["localhost".into()]);
    let asked = |origin: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        let got = reply(send(s.address, "OPTIONS", COMPLETION, &headers, b""));
        (got.status, got.header("access-control-allow-origin").map(str::to_owned))
    };
    assert_eq!(asked("http://localhost:3000"), (200, Some("http://localhost:3000".to_owned())));
    assert_eq!(asked("http://localhost.evil.com"), (200, None));
}
