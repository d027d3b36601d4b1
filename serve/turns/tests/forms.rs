//! Formats of all kinds, from small templates, and what models make of them.

use llmcc_text::{Config, Template, local_time};
use llmcc_turns::{Event, Form, Format, Parser, Tools, derive, merged};
use serde_json::json;
use std::sync::Arc;

/// Each message with its calls: `head`, a call each, `tail`.
fn chatml(call: &str, prompt: &str) -> String {
    format!(
        "{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n\
         {{%- if m.reasoning_content %}}\n<think>\n{{{{ m.reasoning_content }}}}\n</think>\n\n\
         {{% else %}}\n{{% endif %}}\
         {{{{ m.content or '' }}}}{{% if m.tool_calls %}}{call}{{% endif %}}<|im_end|>\n{{% endfor %}}\
         {{% if add_generation_prompt %}}<|im_start|>assistant\n{prompt}{{% endif %}}"
    )
}

/// `before`, each call with `between`, `after`.
fn each(before: &str, call: &str, between: &str, after: &str) -> String {
    let between = format!("{{% if not loop.last %}}{between}{{% endif %}}");
    format!("{before}{{% for c in m.tool_calls %}}{{% set f = c.function %}}{call}{between}{{% endfor %}}{after}")
}

fn format_of(source: &str) -> Format {
    let config = Config { templates: vec![("default".into(), source.into())], ..Config::default() };
    let template = Template::new(&config, local_time).unwrap_or_else(|e| panic!("{source}: {e}"));
    derive(&|conversation: &str| template.render(conversation).map_err(|e| e.to_string()))
}

fn tools() -> Tools {
    let schema = json!({ "type": "object", "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "code": { "type": "string" } } });
    Tools::new(&json!([
        { "type": "function", "function": { "name": "weather", "parameters": schema } },
        { "type": "function", "function": { "name": "place", "parameters": schema } }
    ]))
}

/// Text, reasoning and calls (with identifiers, if there are some) of a turn, in every split.
fn parsed(format: &Format, prompt: &str, text: &str) -> (String, String, Vec<String>) {
    let format = Arc::new(format.clone());
    let run = |pieces: &[&str]| {
        let mut parser = Parser::new(format.clone(), tools(), prompt);
        let mut all: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        all.extend(parser.finish());
        assert_eq!(parser.has_calls(), all.iter().any(|event| matches!(event, Event::Call { .. })));
        merged(all)
    };
    let whole = run(&[text]);
    for (at, _) in text.char_indices() {
        assert_eq!(run(&[&text[..at], &text[at..]]), whole, "{text:?} split at {at}");
    }
    let letters: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(run(&letters.iter().map(String::as_str).collect::<Vec<_>>()), whole, "{text:?}");
    let mut out = (String::new(), String::new(), vec![]);
    for event in whole {
        match event {
            Event::Text(text) => out.0 += &text,
            Event::Reasoning(text) => out.1 += &text,
            Event::Call { index, id, name } => {
                assert_eq!(index, out.2.len());
                out.2.push(id.map_or(name.clone(), |id| format!("{name}#{id}")));
            }
            Event::Arguments { text, .. } => {
                let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                out.2.last_mut().expect("a call").push_str(&value.to_string());
            }
            Event::End { .. } => {}
        }
    }
    out
}

fn calls(format: &Format, text: &str) -> Vec<String> {
    let (rest, reasoning, calls) = parsed(format, "", text);
    assert_eq!((rest.trim(), reasoning.as_str()), ("", ""), "{text:?}");
    calls
}

const ONE: &str = r#"weather{"city":"Bern","days":2}"#;

fn hermes() -> Format {
    let call = "<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}\n</tool_call>";
    format_of(&chatml(&each("\n", call, "\n", ""), ""))
}

#[test]
fn objects_between_tags() {
    let format = hermes();
    assert_eq!(format.notes, Vec::<String>::new());
    let text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}}\n</tool_call>";
    assert_eq!(calls(&format, text), [ONE]);
    assert_eq!(calls(&format, &format!("{text}\n{text}")), [ONE, ONE]);
    assert_eq!(calls(&format, &format!("{text}{text}<|im_end|>\n")), [ONE, ONE]);
    let (rest, reasoning, found) = parsed(&format, "", &format!("<think>\nhm\n</think>\n\nOne moment.\n\n{text}"));
    assert_eq!((rest.as_str(), reasoning.as_str(), found.len()), ("One moment.", "hm", 1));
    let (rest, reasoning, _) = parsed(&format, "x<think>\n", "hm</think>So.");
    assert_eq!((rest.as_str(), reasoning.as_str()), ("So.", "hm"));
    // Members in another order, more blanks, a text of JSON.
    let text = r#"<tool_call>{ "arguments" : "{\"city\": \"Bern\", \"days\": 2}", "name":"weather"} </tool_call>"#;
    assert_eq!(calls(&format, text), [ONE]);
}

#[test]
fn nothing_is_lost() {
    let format = hermes();
    for text in [
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": }}\n</tool_call>",
        "<tool_call>\n{\"name\": \"weather\"}\n</tool_call> and so on",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"ci",
        "<tool_call>\nweather</tool_call>",
        "a < b, <tool, <tool_call",
        "  two  blanks \n",
        "{\"name\": \"weather\", \"arguments\": {}}",
        "[]<>{}\"'</tool_call>",
    ] {
        assert_eq!(parsed(&format, "", text), (text.to_owned(), String::new(), vec![]), "{text}");
    }
    let good = "<tool_call>\n{\"name\": \"place\", \"arguments\": {}}\n</tool_call>";
    let (rest, _, found) = parsed(&format, "", &format!("<tool_call>\n{{\"na\n{good}"));
    assert_eq!((rest.as_str(), &found[..]), ("<tool_call>\n{\"na", &["place{}".to_owned()][..]));
    let (rest, _, found) = parsed(&format, "", &format!("{good} Then."));
    assert_eq!((rest.as_str(), found.len()), ("Then.", 1));
    // A turn that begins calls without end takes bounded work.
    let text = "<tool_call>{\"".repeat(20_000);
    let mut parser = Parser::new(Arc::new(format), tools(), "");
    let mut all = parser.push(&text);
    all.extend(parser.finish());
    assert_eq!(merged(all), [Event::Text(text)]);
}

#[test]
fn without_tools_no_text_is_a_call() {
    let text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>";
    let mut parser = Parser::new(Arc::new(hermes()), Tools::default(), "");
    let mut all = parser.push(text);
    all.extend(parser.finish());
    assert_eq!(all, [Event::Text(text.into())]);
}

#[test]
fn hidden_tokens_are_no_text() {
    let mut parser = Parser::new(Arc::new(hermes()), tools(), "");
    parser.hide("<|eot|>");
    parser.hide("<think>");
    let mut all = parser.push("a<|eo");
    all.extend(parser.push("t|><think>b</think>c<|eot|>"));
    all.extend(parser.finish());
    assert_eq!(merged(all), [Event::Text("a".into()), Event::Reasoning("b".into()), Event::Text("c".into())]);
}

#[test]
fn a_bare_object() {
    let format = format_of(&chatml(
        "{% if m.tool_calls|length > 1 %}{{ raise_exception('one call') }}{% endif %}\
         {% set f = m.tool_calls[0].function %}\
         {\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}",
        "",
    ));
    assert!(format.calls.as_ref().is_some_and(|calls| calls.single && calls.call.is_empty()), "{format:?}");
    assert_eq!(
        calls(&format, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\", \"days\": 2}}<|im_end|>"),
        [ONE]
    );
    for text in [
        "{\"name\": \"nobody\", \"parameters\": {}}",
        "{\"a\": 1} is JSON",
        "x {\"name\": \"weather\", \"parameters\": {}}",
    ] {
        assert_eq!(parsed(&format, "", text).0, text);
    }
}

#[test]
fn lists_after_a_mark() {
    let call = "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}, \"id\": \"{{ c.id }}\"}";
    let format = format_of(&chatml(&each("[TOOL_CALLS][", call, ", ", "]"), ""));
    let one = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}, \"id\": \"abcdefghi\"}";
    assert_eq!(calls(&format, &format!("[TOOL_CALLS] [{one}]")), ["weather#abcdefghi{\"city\":\"Bern\",\"days\":2}"]);
    assert_eq!(calls(&format, &format!("[TOOL_CALLS][{one},{one}]")).len(), 2);
}

#[test]
fn names_before_json() {
    // As DeepSeek, Mistral (later) and functionary have it.
    let call = "<|call_begin|>function<|sep|>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```<|call_end|>";
    let deepseek = format_of(&chatml(&each("<|calls_begin|>", call, "\n", "<|calls_end|>"), ""));
    let text = "<|call_begin|>function<|sep|>weather\n```json\n{\"city\": \"Bern\", \"days\": 2}\n```<|call_end|>";
    assert_eq!(calls(&deepseek, &format!("<|calls_begin|>{text}{text}<|calls_end|>")), [ONE, ONE]);
    let call = "[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]{{ f.arguments | tojson }}";
    let mistral = format_of(&chatml(&each("", call, "", ""), ""));
    let text = "[TOOL_CALLS]place[CALL_ID]abc[ARGS]{}";
    assert_eq!(calls(&mistral, &text.repeat(2)), ["place#abc{}", "place#abc{}"]);
    let call = "<function={{ f.name }}>{{ f.arguments | tojson }}</function>";
    let functionary = format_of(&chatml(&each("", call, "", ""), ""));
    assert_eq!(calls(&functionary, "<function=place>{}</function>"), ["place{}"]);
}

#[test]
fn recipients_after_a_mark_of_the_prompt() {
    let source = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' %}{{ m.content }}{% endif %}\
        {% if m.role == 'assistant' and m.content %}>>>all\n{{ m.content }}{% endif %}\
        {% for c in m.tool_calls or [] %}>>>{{ c.function.name }}\n{{ c.function.arguments + '' }}{% endfor %}<end>\
        {% endfor %}{% if add_generation_prompt %}<assistant>>>>{% endif %}";
    let format = format_of(source);
    assert!(format.arguments_text, "{format:?}");
    let of = |text: &str| parsed(&format, "<assistant>>>>", text);
    assert_eq!(of("all\nHello"), ("Hello".into(), String::new(), vec![]));
    assert_eq!(of("place\n{}>>>weather\n{}<end>").2, ["place{}", "weather{}"]);
    assert_eq!(of("all\nHello>>>place\n{}"), ("Hello".into(), String::new(), vec!["place{}".into()]));
}

#[test]
fn arguments_between_tags() {
    let qwen = each(
        "\n",
        "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments|items %}<parameter={{ k }}>\n\
         {{ v if v is string else v|tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
        "\n",
        "",
    );
    let qwen = format_of(&chatml(&qwen, "<think>\n"));
    let text = "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n\
        <parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(calls(&qwen, text), [ONE]);
    let code = "<tool_call>\n<function=place>\n<parameter=code>\n  if a < b:\n\n    f(\"</p>\")\n\n</parameter>\n\
        </function>\n</tool_call>";
    assert_eq!(calls(&qwen, code), [r#"place{"code":"  if a < b:\n\n    f(\"</p>\")\n"}"#]);
    assert_eq!(calls(&qwen, "<tool_call>\n<function=place>\n</function>\n</tool_call>"), ["place{}"]);
    let (_, reasoning, found) = parsed(&qwen, "<|im_start|>assistant\n<think>\n", &format!("so\n</think>\n\n{text}"));
    assert_eq!((reasoning.as_str(), found.len()), ("so", 1));

    let glm = each(
        "",
        "\n<tool_call>{{ f.name }}\n{% for k, v in f.arguments|items %}<arg_key>{{ k }}</arg_key>\n\
         <arg_value>{{ v if v is string else v|tojson }}</arg_value>\n{% endfor %}</tool_call>",
        "",
        "",
    );
    let glm = format_of(&chatml(&glm, ""));
    let text = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n\
        <arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>";
    assert_eq!(calls(&glm, &text.repeat(2)), [ONE, ONE]);

    let typed = each(
        "<calls>\n",
        "<invoke name=\"{{ f.name }}\">\n{% for k, v in f.arguments|items %}<parameter name=\"{{ k }}\" \
         string=\"{{ 'true' if v is string else 'false' }}\">{{ v if v is string else v|tojson }}</parameter>\n\
         {% endfor %}</invoke>\n",
        "",
        "</calls>",
    );
    let typed = format_of(&chatml(&typed, ""));
    let Some(Form::Tagged { mids, .. }) = typed.calls.as_ref().map(|calls| &calls.form) else { panic!("{typed:?}") };
    assert_eq!(mids.len(), 2);
    let text = "<calls>\n<invoke name=\"weather\">\n<parameter name=\"city\" string=\"true\">12</parameter>\n\
        <parameter name=\"days\" string=\"false\">2</parameter>\n</invoke>\n</calls>";
    assert_eq!(calls(&typed, text), [r#"weather{"city":"12","days":2}"#]);
}

#[test]
fn marks_around_answers() {
    let source = "{% for m in messages %}<|turn|><|{{ m.role }}|>{% if m.tool_calls %}\
        {% if m.reasoning_content %}<|THINKING|>{{ m.reasoning_content }}<|/THINKING|>{% endif %}<|ACTION|>[\n\
        {% for c in m.tool_calls %}    {\"tool_call_id\": \"{{ loop.index0 }}\", \
        \"tool_name\": \"{{ c.function.name }}\", \
        \"parameters\": {{ c.function.arguments|tojson }}}{% if not loop.last %},{% endif %}\n{% endfor %}]<|/ACTION|>\
        {% elif m.role == 'assistant' %}<|RESPONSE|>{{ m.content }}<|/RESPONSE|>{% else %}{{ m.content }}{% endif %}\
        <|/turn|>{% endfor %}{% if add_generation_prompt %}<|turn|><|assistant|>{% endif %}";
    let format = format_of(source);
    assert_eq!((format.content.start.as_str(), format.content.end.as_str()), ("<|RESPONSE|>", "<|/RESPONSE|>"));
    assert_eq!(parsed(&format, "", "<|RESPONSE|>Hello<|/RESPONSE|>").0, "Hello");
    let call = r#"{"tool_call_id": "0", "tool_name": "place", "parameters": {}}"#;
    let text = &format!("<|THINKING|>so<|/THINKING|><|ACTION|>[\n    {call}\n]<|/ACTION|>");
    assert_eq!(parsed(&format, "", text), (String::new(), "so".into(), vec!["place{}".into()]));
}

#[test]
fn identifiers_with_names() {
    let call = "<|call_begin|>{{ c.id }}<|args|>{{ f.arguments | tojson }}<|call_end|>";
    let format = format_of(&chatml(&each("<|section|>", call, "", "<|/section|>"), ""));
    let text = "<|section|><|call_begin|>functions.place:3<|args|>{}<|call_end|><|/section|>";
    assert_eq!(calls(&format, text), ["place#functions.place:3{}"], "{format:?}");
}

#[test]
fn python_and_other_notations() {
    let python = each(
        "<|tool_call_start|>[",
        "{{ f.name }}({% for k, v in f.arguments|items %}{{ k }}={{ \"'\" ~ v ~ \"'\" if v is string else v }}\
         {% if not loop.last %}, {% endif %}{% endfor %})",
        ", ",
        "]<|tool_call_end|>",
    );
    let python = format_of(&chatml(&python, ""));
    assert_eq!(python.calls.as_ref().map(|calls| calls.form.clone()), Some(Form::Python), "{python:?}");
    let text = "<|tool_call_start|>[weather(city=\"Bern\", days=2), place(code='f(\"x\")')]<|tool_call_end|>";
    assert_eq!(calls(&python, text), [ONE, r#"place{"code":"f(\"x\")"}"#]);
    let notation = each(
        "",
        "<|tool_call>call:{{ f.name }}{{ '{' }}{% for k, v in f.arguments|items %}{{ k }}:\
         {{ '<|\"|>' ~ v ~ '<|\"|>' if v is string else v|tojson }}{% if not loop.last %},{% endif %}{% endfor %}\
         {{ '}' }}<tool_call|>",
        "",
        "",
    );
    let notation = format_of(&chatml(&notation, ""));
    let text = "<|tool_call>call:weather{city:<|\"|>Bern<|\"|>,days:2}<tool_call|>";
    assert_eq!(calls(&notation, text), [ONE], "{notation:?}");
}

#[test]
fn channels() {
    let source = "{% for m in messages %}<|start|>{{ m.role }}{% if m.tool_calls %} to=functions.\
        {{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>\
        {{ m.tool_calls[0].function.arguments|tojson }}<|call|>\
        {% elif m.role == 'assistant' %}<|channel|>final<|message|>{{ m.content }}<|end|>{% else %}<|message|>\
        {{ m.content }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
    let format = format_of(source);
    assert!(format.channels);
    let text = "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary to=functions.place \
        <|constrain|>json<|message|>{}<|call|>";
    assert_eq!(parsed(&format, "", text), (String::new(), "so".into(), vec!["place{}".into()]));
}

/// Templates that show no calls, in words.
#[test]
fn whatever_is_not_shown_is_no_guess() {
    let phi = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}\
        {% if add_generation_prompt %}<|assistant|>{% endif %}";
    let format = format_of(phi);
    assert_eq!((format.calls.is_none(), format.reasoning.is_none(), format.end.as_str()), (true, true, "<|end|>"));
    assert!(format.notes.iter().any(|note| note.contains("calls")), "{format:?}");
    let refuses =
        "{% if messages|length > 1 %}{{ raise_exception('one message') }}{% endif %}{{ messages[0].content }}";
    assert!(format_of(refuses).notes.iter().any(|note| note.contains("one message")));
    // Names and values are there, and nothing else.
    let bare = chatml("{% for c in m.tool_calls %}{{ c.function.name }}: {{ c.function.arguments }}{% endfor %}", "");
    let format = format_of(&bare);
    assert!(format.calls.is_none(), "{format:?}");
    let text = serde_json::to_string(&hermes()).expect("JSON");
    assert_eq!(serde_json::from_str::<Format>(&text).expect("read"), hermes());
}
