//! Formats of published chat templates: whatever a template prints comes out of the parser again, in every split.
//!
//! Templates are read from the folder that `LLMCC_TEMPLATES` names, and from the shared data.

use llmcc_text::{Config, Template, local_time};
use llmcc_turns::{Event, Form, Format, Parser, Tools, derive, merged};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn template(source: &str) -> Result<Template, String> {
    let config = Config {
        bos_token: Some("<s>".into()),
        eos_token: Some("</s>".into()),
        templates: vec![("default".into(), source.into())],
        ..Config::default()
    };
    Template::new(&config, local_time).map_err(|e| e.to_string())
}

fn tools() -> Value {
    let of = |kind: &str| json!({ "type": kind, "description": "x" });
    let schema = json!({ "type": "object", "required": ["city"], "properties": {
        "city": of("string"), "days": of("integer"), "exact": of("boolean"), "filter": of("object"),
        "note": of("string"), "rate": of("number"), "unit": of("string") } });
    let function = |name: &str| json!({ "name": name, "description": "d", "parameters": schema });
    let tool = |name: &str| json!({ "type": "function", "function": function(name) });
    json!([tool("get_weather"), tool("find-place")])
}

/// A turn, and what it says.
struct Case {
    what: &'static str,
    message: Value,
}

fn cases(text: bool, style: &str, elements: bool) -> Vec<Case> {
    let call = |i: usize, name: &str, arguments: Value| {
        let id = if style == "named" { format!("functions.{name}:{i}") } else { format!("callid00{i}") };
        let arguments = if text { Value::from(arguments.to_string()) } else { arguments };
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    };
    let turn = |content: &str, calls: Vec<Value>, reasoning: Option<&str>| {
        let mut message = json!({ "role": "assistant", "content": content });
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        if let Some(reasoning) = reasoning {
            message["reasoning_content"] = reasoning.into();
        }
        message
    };
    let plain = || call(0, "get_weather", json!({ "city": "Zürich \"HB\"", "days": 3 }));
    // (An empty object and an empty text have the same elements.)
    let filter = if elements { json!({ "x": [1, "y"] }) } else { json!({ "x": [1, "y"], "z": {} }) };
    let types = json!({ "city": "a\nb", "days": -12, "exact": true, "filter": filter,
        "note": "12", "rate": 1.5, "unit": "<b>" });
    vec![
        Case { what: "text", message: turn("It is sunny.", vec![], None) },
        Case { what: "reasoning", message: turn("It is sunny.", vec![], Some("Let me think.\nYes.")) },
        Case { what: "call", message: turn("", vec![plain()], None) },
        Case { what: "types", message: turn("", vec![call(0, "find-place", types)], None) },
        Case { what: "empty", message: turn("", vec![call(0, "find-place", json!({}))], None) },
        Case { what: "two", message: turn("", vec![plain(), call(1, "find-place", json!({ "city": "x" }))], None) },
        Case { what: "text+call", message: turn("One moment.", vec![plain()], None) },
        Case { what: "all", message: turn("One moment.", vec![plain()], Some("Let me see.")) },
    ]
}

fn whole(parser: &mut Parser, pieces: &[&str]) -> Vec<Event> {
    let mut all: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    all.extend(parser.finish());
    merged(all)
}

/// The text, the reasoning and the calls of events.
fn summary(events: &[Event]) -> (String, String, Vec<(String, Value)>) {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), vec![]);
    for event in events {
        match event {
            Event::Text(new) => text += new,
            Event::Reasoning(new) => reasoning += new,
            Event::Call { name, .. } => calls.push((name.clone(), String::new())),
            Event::Arguments { text, .. } => calls.last_mut().expect("a call").1 += text,
            Event::End { .. } => {}
        }
    }
    let read = |(name, text): (String, String)| (name, serde_json::from_str(&text).expect("JSON"));
    // (Templates add blanks.)
    (text.trim().to_owned(), reasoning, calls.into_iter().map(read).collect())
}

/// The events that a turn must give, as far as the template prints it.
fn wanted(message: &Value, body: &str) -> (String, String, Vec<(String, Value)>) {
    let of = |name: &str| message[name].as_str().filter(|text| body.contains(text)).unwrap_or_default().to_owned();
    let call = |call: &Value| {
        let function = &call["function"];
        let name = function["name"].as_str().expect("a name").to_owned();
        let arguments = match &function["arguments"] {
            Value::String(text) => serde_json::from_str(text).expect("JSON"),
            other => other.clone(),
        };
        body.contains(&name).then_some((name, arguments))
    };
    (
        of("content"),
        of("reasoning_content"),
        message["tool_calls"].as_array().into_iter().flatten().filter_map(call).collect(),
    )
}

/// The prompt for an answer, the past before a turn, and the turn.
fn split(template: &Template, message: &Value) -> Result<(String, String, String), String> {
    let user = json!({ "role": "user", "content": "Question?" });
    let render = |messages: Value, prompted: bool| {
        let all = json!({ "messages": messages, "tools": tools(), "add_generation_prompt": prompted });
        template.render(&all.to_string()).map_err(|e| e.to_string())
    };
    let prompt = render(json!([user]), true)?;
    let turn = render(json!([user, message]), false)?;
    // (Before the question, the past may differ from the prompt.)
    let after = |text: &str| text.rfind("Question?").map_or(0, |at| at + "Question?".len());
    let (asked, told) = (after(&prompt), after(&turn));
    let pairs = prompt[asked..].chars().zip(turn[told..].chars());
    let same: usize = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let mut cut = told + same;
    if asked + same < prompt.len()
        && let Some(open) = turn[..cut].rfind('<').filter(|open| !turn[*open..cut].contains('>'))
    {
        cut = open;
    }
    Ok((prompt, turn[..cut].to_owned(), turn[cut..].to_owned()))
}

/// Faults of a template's format.
fn faults(source: &str) -> Result<(Format, Vec<String>, usize), String> {
    let template = template(source)?;
    let format = derive(&|conversation: &str| template.render(conversation).map_err(|e| e.to_string()));
    let shared = Arc::new(format.clone());
    let (mut wrong, mut checked) = (vec![], 0);
    let form = format.calls.as_ref().map(|calls| &calls.form);
    let elements = matches!(form, Some(Form::Tagged { nested: Some(_), .. }));
    let named = template_prints_ids(&template, &format);
    for Case { what, message } in cases(format.arguments_text, if named { "named" } else { "plain" }, elements) {
        let Ok((prompt, before, body)) = split(&template, &message) else { continue };
        // A message may be printed as two turns. The mark of the end may also be in the marks of calls.
        let marks = format.calls.iter().flat_map(|calls| [&calls.section.start, &calls.call.start]);
        let inside = marks.into_iter().any(|mark| mark.contains(&format.end));
        let told = if inside { body.rfind("get_weather").max(body.rfind("find-place")).unwrap_or(0) } else { 0 };
        let end = if format.end.is_empty() { None } else { body[told..].find(&format.end) };
        let body = end.map_or(body.as_str(), |end| &body[..told + end]);
        let mut want = wanted(&message, body);
        if format.channels && body.contains(&format!("analysis<|message|>{}", want.0)) {
            // The template takes a text before a call for reasoning.
            want = (String::new(), want.0, want.2);
        }
        let is_call = message.get("tool_calls").is_some();
        if (is_call && (want.2.is_empty() || format.calls.is_none() && !format.channels))
            || (want.0.is_empty() && !is_call)
        {
            continue;
        }
        checked += 1;
        // Reasoning may begin in the prompt for an answer only; a turn of the past may have none after its mark.
        let span = format.reasoning.clone().unwrap_or_default();
        let opened = |text: &str| !span.start.is_empty() && text.trim_end().ends_with(&span.start);
        let begins = !want.1.is_empty() && body.trim_start().starts_with(&want.1);
        let before = match (opened(&before), begins) {
            (true, _) if !body.contains(&span.end) => "",
            (false, true) => prompt.as_str(),
            _ => before.as_str(),
        };
        let parser = || Parser::new(shared.clone(), Tools::new(&tools()), before);
        let first = whole(&mut parser(), &[body]);
        let got = summary(&first);
        if got != want {
            wrong.push(format!("{what}: {body:?}\n    got {got:?}\n    want {want:?}"));
        }
        let places: Vec<usize> = body.char_indices().map(|(at, _)| at).collect();
        for at in places {
            if whole(&mut parser(), &[&body[..at], &body[at..]]) != first {
                wrong.push(format!("{what}: another result when split at {at} of {body:?}"));
                break;
            }
        }
        let letters: Vec<String> = body.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        if whole(&mut parser(), &letters) != first {
            wrong.push(format!("{what}: another result letter by letter"));
        }
    }
    Ok((format, wrong, checked))
}

/// Whether calls are printed by their identifiers only.
fn template_prints_ids(template: &Template, format: &Format) -> bool {
    let plain = cases(format.arguments_text, "plain", false).into_iter().find(|case| case.what == "call").expect("one");
    format.calls.is_some() && split(template, &plain.message).is_ok_and(|(_, _, body)| !body.contains("get_weather"))
}

fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LLMCC_TEMPLATES").map(PathBuf::from);
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat_templates");
    named.into_iter().chain(Some(shared)).filter(|folder| folder.is_dir()).collect()
}

#[test]
fn published_templates_are_parsed() {
    let mut all: Vec<PathBuf> = vec![];
    for folder in folders() {
        all.extend(std::fs::read_dir(folder).expect("read").flatten().map(|entry| entry.path()));
    }
    all.retain(|path| path.extension().is_some_and(|e| e == "jinja"));
    if all.is_empty() {
        println!("skipped: set LLMCC_TEMPLATES to a folder of chat templates");
        return;
    }
    all.sort();
    let only = std::env::var("LLMCC_TEMPLATE").unwrap_or_default();
    let mut wrong = vec![];
    for path in all.iter().filter(|path| path.display().to_string().contains(&only)) {
        let source = std::fs::read_to_string(path).expect("read");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match faults(&source) {
            Ok((format, faults, checked)) => {
                println!(
                    "{name}: {checked} turns, {} faults; {}",
                    faults.len(),
                    serde_json::to_string(&format).expect("JSON")
                );
                wrong.extend(faults.iter().map(|fault| format!("{name}: {fault}")));
            }
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}
