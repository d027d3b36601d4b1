//! Own fixtures, then the real templates of the shared data where it is present.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::*;

fn config(source: &str) -> Config {
    Config { bos_token: Some("<s>".into()), templates: vec![("default".into(), source.into())], ..Config::default() }
}

/// 2025-01-02 03:04:05, the clock of the stored renderings.
fn fixed_time() -> libc::tm {
    // SAFETY: an all-zero tm is valid.
    libc::tm {
        tm_year: 125,
        tm_mon: 0,
        tm_mday: 2,
        tm_hour: 3,
        tm_min: 4,
        tm_sec: 5,
        tm_wday: 4,
        ..unsafe { zeroed() }
    }
}

fn render(source: &str, conversation: &str) -> Result<String> {
    Template::new(&config(source), fixed_time)?.render(conversation)
}

#[test]
fn blocks_are_trimmed_as_in_transformers() {
    let source = "{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'user' %}\n[{{ m['content'].strip() }}]\n  {% endif %}\n{% endfor %}\nend\n";
    let text = render(source, r#"[{"role":"user","content":" <a> "},{"role":"x","content":""}]"#).unwrap();
    assert_eq!(text, "<s>[<a>]\nend");
}

#[test]
fn functions_of_transformers_exist() {
    let source = "{{ strftime_now('%d %b %Y') }}|{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|{{ add_generation_prompt }}|{{ x }}";
    let text =
        render(source, r#"{"messages":[],"tools":[{"b":"é<\"","a":1.0,"c":[]}],"add_generation_prompt":false,"x":7}"#)
            .unwrap();
    let pretty = "[\n  {\n    \"b\": \"é<\\\"\",\n    \"a\": 1.0,\n    \"c\": []\n  }\n]";
    assert_eq!(text, format!("02 Jan 2025|[{{\"b\": \"é<\\\"\", \"a\": 1.0, \"c\": []}}]|{pretty}|False|7"));
}

#[test]
fn generation_tags_vanish() {
    assert_eq!(render("a\n{%- generation %}b{% endgeneration %}", "[]").unwrap(), "ab");
}

/// Transformers' changes to messages before it renders them.
#[test]
fn messages_are_normalized() {
    let keys = "{% for m in messages %}{{ m.keys() | list }}{% endfor %}";
    let text = render(keys, r#"[{"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":null}}]}]"#);
    assert_eq!(text.unwrap(), "['role', 'tool_calls']");
    let text = render("{{ messages[0].tool_calls }}", r#"[{"tool_calls":[{"function":null}]}]"#);
    assert_eq!(text.unwrap(), "[{'function': None}]", "only members of messages");
    let names = "{{ messages[0] }}";
    let text = render(names, r#"[{"role":"assistant","reasoning":"r"}]"#).unwrap();
    assert_eq!(text, "{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}");
    let text = render(names, r#"[{"thinking":"t","reasoning_content":"c"}]"#).unwrap();
    assert_eq!(text, "{'thinking': 't', 'reasoning_content': 'c'}");
}

/// A template is tried on conversations users write; its own refusals are no fault.
#[test]
fn trials_tell_refusing_from_failing() {
    let source = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}{% for m in messages %}{{ m.content + '' }}{% endfor %}";
    let trials = Template::new(&config(source), fixed_time).unwrap().trials();
    let outcome = |what: &str| {
        let trial = trials.iter().find(|t| t.what == what).unwrap();
        (trial.outcome.is_ok(), trial.refused())
    };
    assert_eq!(outcome("a user's message"), (true, false));
    assert_eq!(outcome("tools"), (false, true));
    assert_eq!(outcome("content in parts"), (false, false));
    assert!(trials.iter().filter(|t| t.is_plain()).count() == 1);
}

#[test]
fn failures_say_why() {
    let status = |source: &str, conversation: &str| render(source, conversation).unwrap_err();
    let refused = status("{{ raise_exception('no system role') }}", "[]");
    assert_eq!(refused.message, "the chat template refuses the conversation: no system role");
    assert_eq!(status("{% for %}", "[]").kind, Kind::Template);
    for bad in ["", "3", "{}", "{\"messages\":3}", "[", "{\"messages\":[],\"template\":\"x\"}"] {
        assert_eq!(status("", bad).kind, Kind::Invalid, "{bad}");
    }
    let none = Template::new(&Config::default(), fixed_time).unwrap();
    assert_eq!(none.render("[]").unwrap_err().kind, Kind::Unsupported);
    assert_eq!(none.render(r#"{"messages":[],"chat_template":"a{{ tools }}"}"#).unwrap(), "aNone");
}

#[test]
fn a_conversation_may_bring_its_template() {
    let of = |template: &str| format!("{{\"messages\":[],\"chat_template\":{}}}", json!(template));
    assert_eq!(render("a", &of("b{{ chat_template }}")).unwrap(), "b");
    assert_eq!(render("a", &of("default")).unwrap(), "default");
    assert_eq!(render("a", &of("{% x %}")).unwrap_err().kind, Kind::Template);
    assert_eq!(render("a", r#"{"messages":[],"chat_template":3}"#).unwrap_err().kind, Kind::Invalid);
    let templates = [("default", "a"), ("rag", "c")].map(|(n, t)| (n.to_owned(), t.to_owned())).to_vec();
    let two = Template::new(&Config { templates, ..Config::default() }, fixed_time).unwrap();
    assert_eq!(two.render(&of("rag")).unwrap(), "c");
    assert_eq!(two.render(&of("other")).unwrap(), "other");
}

/// As Transformers 5.23's `apply_chat_template(continue_final_message=...)`.
#[test]
fn a_last_message_is_left_open() {
    const CHATML: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ continue_final_message }}";
    const STRIPS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>{% endfor %}";
    const PARTS: &str = "{% for m in messages %}{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}";
    const THINKS: &str = "{% for m in messages %}<think>{{ m.reasoning_content }}</think>{{ m.content }}{% endfor %}";
    let last = |wanted: &str, message: &str| {
        format!(r#"{{"messages":[{{"role":"user","content":"q"}},{message}],"continue_final_message":{wanted}}}"#)
    };
    let answer = r#"{"role":"assistant","content":"It is "}"#;
    for (template, conversation, expected) in [
        (CHATML, last("true", answer), "<user>q<end>\n<assistant>It is "),
        (CHATML, last("false", answer), "<user>q<end>\n<assistant>It is <end>\n<assistant>"),
        (STRIPS, last("true", answer), "<user>q<end><assistant>It is"),
        (STRIPS, last("\"content\"", answer), "<user>q<end><assistant>It is"),
        (PARTS, last("true", r#"{"content":[{"text":"a"},{"text":"b"},{"image":1}]}"#), "[][a][b"),
        (THINKS, last("\"thinking\"", r#"{"thinking":"so","content":""}"#), "<think></think>q<think>so"),
    ] {
        assert_eq!(render(template, &conversation).unwrap(), expected, "{conversation}");
    }
    for (template, conversation, why) in [
        (CHATML, r#"{"messages":[],"continue_final_message":true}"#.to_string(), "empty"),
        (CHATML, last("true", r#"{"role":"assistant","content":null}"#), "no \"content\""),
        (CHATML, last("\"thinking\"", r#"{"thinking":"so"}"#), "does not use"),
        (CHATML, last("3", answer), "must be true, false or the name"),
        (CHATML, last("true,\"add_generation_prompt\":true", answer), "exclude each other"),
        (CHATML, last("true", r#"{"role":"assistant","content":[{"image":1}]}"#), "no text"),
        ("{{ messages[0].content }}", last("true", answer), "leaves out"),
        ("{{ messages[1].content|upper }}", last("true", answer), "leaves out"),
    ] {
        let error = render(template, &conversation).unwrap_err();
        assert!(error.kind == Kind::Invalid && error.message.contains(why), "{conversation}: {error}");
    }
}

/// Every template of the shared data renders as Python's Jinja does. Where Jinja fails on a type
/// error of the *template* (iterating `None`, say), rendering more leniently is allowed; where the
/// template itself refuses, so must we.
#[test]
fn real_templates_match_python() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/chat_templates");
    let Ok(settings) = std::fs::read_to_string(dir.join("conversations.json")) else {
        eprintln!("skipped: no shared chat templates");
        return;
    };
    let settings: Json = serde_json::from_str(&settings).unwrap();
    let text = |key: &str| settings[key].as_str().unwrap().to_owned();
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let expected = std::fs::read_to_string(format!("{}.expected.json", path.display())).unwrap();
        let expected: Json = serde_json::from_str(&expected).unwrap();
        let mut config = config(&std::fs::read_to_string(&path).unwrap());
        (config.bos_token, config.eos_token) = (Some(text("bos_token")), Some(text("eos_token")));
        let template = Template::new(&config, fixed_time).unwrap();
        for (name, expected) in expected.as_object().unwrap() {
            let (which, tools) = (name.split('|').next().unwrap(), name.contains("tools=1"));
            let conversation = json!({
                "messages": settings["conversations"][which],
                "tools": if tools { settings["tools"].clone() } else { Json::Null },
                "add_generation_prompt": name.ends_with("gen=1"),
                "date_string": settings["date_string"],
            });
            // `json!` sorts keys; the tools must keep theirs.
            let conversation = conversation.to_string().replace(&settings["tools"].to_string(), &ordered_tools(&dir));
            let got = template.render(&conversation);
            let good =
                match (expected.get("ok").and_then(Json::as_str), expected.get("error").and_then(Json::as_str), &got) {
                    (Some(ok), _, Ok(text)) => ok == text,
                    (_, Some(error), Err(_)) => !error.is_empty(),
                    // Lists where Jinja has generators, and loops over none.
                    (_, Some(error), Ok(_)) => !error.starts_with("TemplateError"),
                    _ => false,
                };
            checked += 1;
            if !good {
                wrong.push(format!("{} {name}:\n  expected {expected}\n  got {got:?}", name_of(&path)));
            }
        }
    }
    assert!(checked > 100);
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The tools as they stand in the file.
fn ordered_tools(dir: &Path) -> String {
    let text = std::fs::read_to_string(dir.join("conversations.json")).unwrap();
    let (from, to) = (text.find("\"tools\": [").unwrap() + 9, text.find("\"bos_token\"").unwrap());
    text[from..to].trim_end().trim_end_matches(',').to_owned()
}
