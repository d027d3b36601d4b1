//! Tools and reasoning, over HTTP.

use crate::client::*;
use crate::stand_in::*;
use llmcc_model::Grammar;
use llmcc_turns::{Calls, Form, Format, Piece, Span};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const CALL: &str = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}";

/// Calls between tags, reasoning in `<think>`.
fn format(start: &str, end: &str) -> Format {
    let text = |text: &str| Piece::Text(text.into());
    let pieces = vec![text("{\"name\": \""), Piece::Name, text("\", \"arguments\": "), Piece::Arguments, text("}")];
    let (name, arguments) = (vec!["name".to_owned()], vec!["arguments".to_owned()]);
    let form = Form::Object { name, arguments, id: vec![], text: false, pieces };
    let calls =
        Calls { section: Span::default(), call: Span::new(start, end), separator: "\n".into(), single: false, form };
    Format { reasoning: Some(Span::new("<think>", "</think>")), calls: Some(calls), ..Format::default() }
}

fn serve(says: fn(&str) -> String) -> Running {
    Running::start(StandIn::saying(format("<tool_call>\n", "\n</tool_call>"), &[], says), |_| {})
}

fn ask() -> Value {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": schema } });
    json!({ "messages": [{ "role": "user", "content": "hi" }], "tools": [tool("weather"), tool("place")] })
}

fn with(mut ask: Value, name: &str, value: Value) -> Value {
    ask[name] = value;
    ask
}

/// The message of a stream, as OpenAI's clients put it together.
fn joined(events: &[Value]) -> (Value, Value) {
    let (mut message, mut finish) = (json!({ "content": "", "reasoning_content": "", "tool_calls": [] }), Value::Null);
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        for name in ["content", "reasoning_content"] {
            let new = choice["delta"][name].as_str().unwrap_or_default();
            message[name] = (message[name].as_str().unwrap_or_default().to_owned() + new).into();
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("an index") as usize;
            let all = message["tool_calls"].as_array_mut().expect("a list");
            let new = call["function"]["arguments"].as_str().expect("a text");
            match all.get_mut(index) {
                Some(old) => {
                    let text = old["function"]["arguments"].as_str().expect("a text").to_owned() + new;
                    old["function"]["arguments"] = text.into();
                }
                None => {
                    assert_eq!((all.len(), &call["type"]), (index, &json!("function")));
                    assert!(call["id"].is_string() && call["function"]["name"].is_string(), "{call}");
                    all.push(call.clone());
                }
            }
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    (message, finish)
}

#[test]
fn calls_and_reasoning_have_members_of_their_own() {
    let s = serve(|_| {
        format!(
            "<think>\nhm\n</think>\n\nOne moment.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"
        )
    });
    let whole = post(s.address, CHAT, &ask()).json();
    let choice = &whole["choices"][0];
    let message = &choice["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("One moment."), &json!("hm")), "{whole}");
    assert_eq!(choice["finish_reason"], "tool_calls");
    let calls = message["tool_calls"].as_array().expect("a list");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(calls[0]["function"], json!({ "name": "weather", "arguments": "{\"city\": \"Bern\"}" }));
    assert!(calls[0].get("index").is_none());
    let events = post(s.address, CHAT, &with(ask(), "stream", true.into())).events();
    let ends = |event: &&Value| !event["choices"][0]["finish_reason"].is_null();
    assert!(events.iter().filter(ends).all(|event| event["choices"][0]["delta"] == json!({})), "{events:?}");
    let (streamed, finish) = joined(&events);
    assert_eq!((&streamed["content"], &streamed["reasoning_content"]), (&json!("One moment."), &json!("hm")));
    assert_eq!((streamed["tool_calls"].as_array().map(Vec::len), finish), (Some(2), json!("tool_calls")));
    // One call, and no reasoning.
    let one = with(with(ask(), "parallel_tool_calls", false.into()), "include_reasoning", false.into());
    let message = &post(s.address, CHAT, &one).json()["choices"][0]["message"];
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(1));
    assert!(message.get("reasoning_content").is_none());
    // Without tools there are no calls.
    let none = with(ask(), "tool_choice", "none".into());
    let choice = &post(s.address, CHAT, &none).json()["choices"][0];
    assert!(choice["message"]["content"].as_str().is_some_and(|text| text.contains("<tool_call>")), "{choice}");
    assert_eq!(choice["finish_reason"], "stop");
}

#[test]
fn calls_alone_have_no_content() {
    let s = serve(|_| format!("<tool_call>\n{CALL}\n</tool_call>"));
    let message = &post(s.address, CHAT, &ask()).json()["choices"][0]["message"];
    assert_eq!((&message["content"], &message["role"]), (&Value::Null, &json!("assistant")));
    let limited = post(s.address, CHAT, &with(ask(), "max_tokens", 20.into())).json();
    let choice = &limited["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("length"), &json!("<tool_call>\n{\"name\":"))
    );
}

#[test]
fn forced_calls_have_a_grammar() {
    let s = serve(|_| format!("<tool_call>\n{CALL}\n</tool_call>"));
    let grammar = |ask: &Value| {
        let got = post(s.address, CHAT, ask);
        assert_eq!(got.status, 200, "{}", got.text());
        match s.model.params().grammar {
            Some(Grammar::Lark(source)) => source,
            other => panic!("{ask}: {other:?}"),
        }
    };
    let all = grammar(&with(ask(), "tool_choice", "required".into()));
    assert!(all.contains("weather") && all.contains("place") && all.contains(")*"), "{all}");
    let one = json!({ "type": "function", "function": { "name": "place" } });
    let one = grammar(&with(ask(), "tool_choice", one));
    assert!(!one.contains("weather") && one.contains("place") && !one.contains(")*"), "{one}");
    let schema = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "array" } } });
    let both = grammar(&with(ask(), "response_format", schema.clone()));
    assert!(both.contains("weather") && both.contains("array") && both.contains("</think>"), "{both}");
    let answer = grammar(&with(with(ask(), "response_format", schema), "tool_choice", "none".into()));
    assert!(!answer.contains("weather") && answer.contains("array") && answer.contains("</think>"), "{answer}");
    post(s.address, CHAT, &ask());
    assert_eq!(s.model.params().grammar, None);
    for (wrong, param) in [
        (with(ask(), "tool_choice", "any".into()), "tool_choice"),
        (with(with(ask(), "tool_choice", "required".into()), "tools", json!([])), "tool_choice"),
    ] {
        let got = post(s.address, CHAT, &wrong);
        assert_eq!((got.status, &got.json()["error"]["param"]), (400, &json!(param)), "{wrong}");
    }
    // A model whose template shows no calls.
    let plain = Running::plain();
    let got = post(plain.address, CHAT, &with(ask(), "tool_choice", "required".into()));
    assert_eq!((got.status, &got.json()["error"]["code"]), (400, &json!("unsupported_parameter")), "{}", got.text());
    let mut free = ask();
    free["max_tokens"] = 3.into();
    assert_eq!(post(plain.address, CHAT, &free).status, 200);
}

#[test]
fn special_tokens_are_seen_and_hidden() {
    const SPECIAL: &[&str] = &["<|call|>", "<|/call|>", "<|eot|>", "<|other|>"];
    let says = |_: &str| format!("a<|other|>b<|call|>{CALL}<|/call|><|eot|>");
    let s = Running::start(StandIn::saying(format("<|call|>", "<|/call|>"), SPECIAL, says), |_| {});
    for stream in [false, true] {
        let got = post(s.address, CHAT, &with(ask(), "stream", stream.into()));
        let message = if stream { joined(&got.events()).0 } else { got.json()["choices"][0]["message"].clone() };
        assert_eq!((&message["content"], message["tool_calls"].as_array().map(Vec::len)), (&json!("ab"), Some(1)));
    }
    assert!(s.model.params().show_special);
    let forced = post(s.address, CHAT, &with(ask(), "tool_choice", "required".into()));
    assert_eq!(forced.status, 200);
    let Some(Grammar::Lark(source)) = s.model.params().grammar else { panic!("no grammar") };
    assert!(source.contains("<[256]>") && source.contains("<[257]>"), "{source}");
    // A client that asks for special tokens gets them.
    let shown = post(s.address, CHAT, &with(ask(), "skip_special_tokens", false.into())).json();
    assert_eq!(shown["choices"][0]["message"]["content"], "a<|other|>b<|eot|>");
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
fn messages_have_blocks() {
    let s = serve(|prompt| {
        if prompt.contains("tool_call_id") {
            "It rains.".into()
        } else {
            format!("<think>hm</think>So.\n<tool_call>\n{CALL}\n</tool_call>")
        }
    });
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let mut ask = json!({ "max_tokens": 500, "messages": [{ "role": "user", "content": "hi" }],
        "tools": [{ "name": "weather", "description": "d", "input_schema": schema }] });
    let whole = post(s.address, "/v1/messages", &ask).json();
    let content = whole["content"].as_array().expect("a list").clone();
    assert_eq!(content.len(), 3, "{whole}");
    assert_eq!((&content[0]["thinking"], &content[1]["text"]), (&json!("hm"), &json!("So.")));
    assert_eq!((&content[2]["name"], &content[2]["input"]), (&json!("weather"), &json!({ "city": "Bern" })));
    assert_eq!(whole["stop_reason"], "tool_use");
    let events = named(&post(s.address, "/v1/messages", &with(ask.clone(), "stream", true.into())).text());
    let input: String = events.iter().filter_map(|(_, e)| e["delta"]["partial_json"].as_str()).collect();
    assert_eq!(input, "{\"city\": \"Bern\"}");
    let count = |name: &str| events.iter().filter(|(n, _)| n == name).count();
    assert_eq!((count("content_block_start"), count("content_block_stop"), count("message_stop")), (3, 3, 1));
    assert!(events.iter().any(|(_, e)| e["delta"]["stop_reason"] == "tool_use"));
    // The answer goes back with the result.
    let result = json!([{ "type": "tool_result", "tool_use_id": content[2]["id"], "content": "rain" }]);
    let messages = ask["messages"].as_array_mut().expect("a list");
    messages.push(json!({ "role": "assistant", "content": content }));
    messages.push(json!({ "role": "user", "content": result }));
    let answer = post(s.address, "/v1/messages", &ask).json();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "It rains." }]), "{answer}");
    for choice in [json!({ "type": "any" }), json!({ "type": "tool", "name": "weather" })] {
        assert_eq!(post(s.address, "/v1/messages", &with(ask.clone(), "tool_choice", choice)).status, 200);
        assert!(matches!(s.model.params().grammar, Some(Grammar::Lark(_))));
    }
    // A form, as Anthropic's clients ask for it.
    let form = json!({ "format": { "type": "json_schema", "schema": { "type": "array" } }, "effort": "low" });
    let formed = with(with(ask.clone(), "output_config", form), "cache_control", json!({ "type": "ephemeral" }));
    assert_eq!(post(s.address, "/v1/messages", &formed).status, 200);
    assert!(matches!(s.model.params().grammar, Some(Grammar::Lark(source)) if source.contains("array")));
    for wrong in
        [json!({ "format": { "type": "xml" } }), json!({ "format": { "type": "json_schema" } }), json!({ "x": 1 })]
    {
        let got = post(s.address, "/v1/messages", &with(ask.clone(), "output_config", wrong));
        assert_eq!(got.status, 400, "{}", got.text());
    }
    let wrong = post(s.address, "/v1/messages", &with(ask, "tool_choice", json!({ "type": "tool", "name": "x" })));
    assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (400, &json!("invalid_request_error")));
}

#[test]
fn responses_have_items() {
    let s = serve(|prompt| {
        if prompt.contains("tool_call_id") {
            "It rains.".into()
        } else {
            format!("<think>hm</think>So.\n<tool_call>\n{CALL}\n</tool_call>")
        }
    });
    let path = "/v1/responses";
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let ask = json!({ "input": "hi", "seed": 1,
        "tools": [{ "type": "function", "name": "weather", "description": "d", "parameters": schema }] });
    let whole = post(s.address, path, &ask).json();
    let output = whole["output"].as_array().expect("a list").clone();
    let kinds: Vec<&str> = output.iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"], "{whole}");
    assert_eq!((&output[0]["content"][0]["text"], &output[1]["content"][0]["text"]), (&json!("hm"), &json!("So.")));
    assert_eq!((&output[2]["name"], &output[2]["arguments"]), (&json!("weather"), &json!("{\"city\": \"Bern\"}")));
    assert_eq!(
        (&whole["tools"], &whole["usage"]["output_tokens_details"]["reasoning_tokens"]),
        (&ask["tools"], &json!(9))
    );
    let events = named(&post(s.address, path, &with(ask.clone(), "stream", true.into())).text());
    let of = |name: &str| -> String {
        let deltas = events.iter().filter(|(kind, _)| kind == &format!("response.{name}.delta"));
        deltas.filter_map(|(_, event)| event["delta"].as_str()).collect()
    };
    let texts = [of("reasoning_text"), of("output_text"), of("function_call_arguments")];
    assert_eq!(texts, ["hm", "So.", "{\"city\": \"Bern\"}"]);
    let last = &events.last().expect("some").1["response"]["output"];
    assert_eq!(last[2]["call_id"], output[2]["call_id"], "the same request has the same identifiers");
    // Items go back with the result, or are known by the response that they are of.
    let result = json!({ "type": "function_call_output", "call_id": output[2]["call_id"], "output": "rain" });
    let items: Vec<Value> = [json!({ "role": "user", "content": "hi" })].into_iter().chain(output.clone()).collect();
    let all = with(ask.clone(), "input", json!([&items[..], std::slice::from_ref(&result)].concat()));
    let known = with(with(ask.clone(), "input", json!([result])), "previous_response_id", whole["id"].clone());
    for next in [all, known] {
        let answer = post(s.address, path, &next).json();
        assert_eq!(answer["output"][0]["content"][0]["text"], "It rains.", "{answer}");
    }
    let forced = with(ask.clone(), "tool_choice", json!({ "type": "function", "name": "weather" }));
    assert_eq!(post(s.address, path, &forced).status, 200);
    assert!(matches!(s.model.params().grammar, Some(Grammar::Lark(source)) if source.contains("weather")));
    let wrong = post(s.address, path, &with(ask, "tool_choice", json!({ "type": "function", "name": "x" })));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("tool_choice")));
}

#[test]
fn reasoning_is_turned_off_for_any_model() {
    let quiet = json!({
        "messages": [{ "role": "user", "content": "hi" }], "chat_template_kwargs": { "enable_thinking": false }
    });
    for (template, wanted) in [
        ((|_| "begin".to_owned()) as fn(&str) -> String, "begin<think></think>"),
        (|_| "begin<think>\n".to_owned(), "begin<think>\n</think>"),
        // A template that reads the variable.
        (|conversation| conversation.contains("false").to_string(), "true"),
    ] {
        let mut model = StandIn::saying(format("<tool_call>\n", "\n</tool_call>"), &[], |_| "yes".into());
        model.template = template;
        let s = Running::start(model, |_| {});
        assert_eq!(post(s.address, "/apply-template", &quiet).json(), json!({ "prompt": wanted }));
        let answer = post(s.address, CHAT, &quiet).json();
        assert_eq!(answer["choices"][0]["message"]["content"], "yes", "{answer}");
    }
}
