//! Known conversations, and where a template puts their parts.

use crate::boundary::{back, common_prefix};
use serde_json::{Map, Value, json};

/// Renders a conversation: an object with `messages` and other variables of a chat template, as JSON.
pub(crate) type Render<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Names of tools. No template has them.
pub(crate) const NAMES: [&str; 2] = ["fnalphaz", "fnbetaz"];
/// Names of arguments, in the order of the alphabet.
pub(crate) const KEYS: [&str; 3] = ["argonez", "argtwoz", "argzthree"];
/// Values of the first argument.
pub(crate) const VALUES: [&str; 2] = ["valonez", "valtwoz"];
/// Identifiers of calls: nine letters and digits, as Mistral's templates demand.
pub(crate) const IDS: [&str; 2] = ["callidonz", "callidtwz"];
/// The text of an answer, and its reasoning.
pub(crate) const CONTENT: &str = "contentqz";
pub(crate) const REASONING: &str = "reasoningqz";

/// The way in which a template takes calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// Arguments are a text of JSON.
    pub(crate) text: bool,
    /// The text of a message with calls is null.
    pub(crate) null: bool,
    /// Identifiers have the names of tools.
    pub(crate) named_ids: bool,
}

/// A call of a known conversation.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) id: String,
    pub(crate) arguments: Value,
}

/// An assistant's turn within a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// The text before it: what a model that is asked for it has read, as far as the template prints it in the past.
    pub(crate) before: String,
    /// The end of the prompt that the template leaves out in the past.
    pub(crate) dropped: String,
    /// The turn, and whatever follows it.
    pub(crate) body: String,
}

/// A template that is asked.
pub(crate) struct Probe<'a> {
    render: &'a Render<'a>,
    pub(crate) style: Style,
    /// Variables beside messages.
    variables: Map<String, Value>,
}

impl Style {
    /// All of them; the usual first.
    pub(crate) fn all() -> Vec<Style> {
        let mut all = vec![];
        for named_ids in [false, true] {
            for text in [false, true] {
                for null in [false, true] {
                    all.push(Style { text, null, named_ids });
                }
            }
        }
        all
    }
}

impl<'a> Probe<'a> {
    /// A template. `tools`: with tools.
    pub(crate) fn new(render: &'a Render<'a>, style: Style, tools: bool) -> Probe<'a> {
        let mut variables = Map::new();
        if tools {
            variables.insert("tools".into(), declared());
        }
        Probe { render, style, variables }
    }

    /// The same, with further variables.
    pub(crate) fn with(&self, variables: &Value) -> Probe<'a> {
        let mut all = self.variables.clone();
        all.extend(variables.as_object().cloned().unwrap_or_default());
        Probe { render: self.render, style: self.style, variables: all }
    }

    fn render(&self, messages: &[&str], prompted: bool) -> Result<String, String> {
        let mut all = self.variables.clone();
        all.insert("add_generation_prompt".into(), prompted.into());
        let variables = Value::Object(all).to_string();
        let variables = variables.strip_prefix('{').unwrap_or_default();
        (self.render)(&format!("{{\"messages\": [{}], {variables}", messages.join(", ")))
    }

    /// The prompt for an answer.
    pub(crate) fn prompt(&self) -> Result<String, String> {
        self.render(&[USER], true)
    }

    /// The conversation without a prompt for an answer.
    pub(crate) fn base(&self) -> Result<String, String> {
        self.render(&[USER], false)
    }

    /// A turn of the assistant, by the members of its message.
    fn turn(&self, members: &[(&str, String)]) -> Result<Turn, String> {
        // (Templates may print members in their order.)
        let members = members.iter().map(|(name, value)| format!("\"{name}\": {value}"));
        let message = format!("{{\"role\": \"assistant\", {}}}", members.collect::<Vec<_>>().join(", "));
        let prompt = self.prompt()?;
        let whole = self.render(&[USER, &message], false)?;
        // (Before the question, the past may differ from the prompt.)
        let after = |text: &str| text.rfind(QUESTION).map_or(0, |at| at + QUESTION.len());
        let (asked, told) = (after(&prompt), after(&whole));
        let part = |text: &str, from: usize| text.get(from..).unwrap_or_default().to_owned();
        let same = common_prefix(&part(&prompt, asked), &part(&whole, told));
        let cut = if asked + same == prompt.len() { told + same } else { back(&whole, told + same, false).max(told) };
        let before = whole.get(..cut).unwrap_or_default().to_owned();
        Ok(Turn { before, dropped: part(&prompt, asked + cut - told), body: part(&whole, cut) })
    }

    /// A turn with a text, and with reasoning if there is one.
    pub(crate) fn answer(&self, text: &str, reasoning: Option<&str>) -> Result<Turn, String> {
        let mut members = vec![("content", quoted(text))];
        members.extend(reasoning.map(|reasoning| ("reasoning_content", quoted(reasoning))));
        self.turn(&members)
    }

    /// A turn whose reasoning is a part of its content.
    pub(crate) fn parts(&self, reasoning: &Value, text: &str) -> Result<Turn, String> {
        let parts = json!([{ "type": "thinking", "thinking": reasoning }, { "type": "text", "text": text }]);
        self.turn(&[("content", parts.to_string())])
    }

    /// A turn with calls.
    pub(crate) fn calling(&self, calls: &[Known], text: &str, reasoning: Option<&str>) -> Result<Turn, String> {
        let call = |call: &Known| {
            let json = call.arguments.to_string();
            let arguments = if self.style.text { quoted(&json) } else { json };
            let (id, name) = (quoted(&call.id), quoted(call.name));
            let function = format!("{{\"name\": {name}, \"arguments\": {arguments}}}");
            format!("{{\"id\": {id}, \"type\": \"function\", \"function\": {function}}}")
        };
        let content = if text.is_empty() && self.style.null { "null".to_owned() } else { quoted(text) };
        let calls: Vec<String> = calls.iter().map(call).collect();
        let mut members = vec![("content", content)];
        members.extend(reasoning.map(|reasoning| ("reasoning_content", quoted(reasoning))));
        members.push(("tool_calls", format!("[{}]", calls.join(", "))));
        self.turn(&members)
    }

    /// The call `i` of a turn.
    pub(crate) fn known(&self, i: usize, arguments: Value) -> Known {
        let name = NAMES.get(i).copied().unwrap_or_default();
        let id = match self.style.named_ids {
            true => format!("functions.{name}:{i}"),
            false => IDS.get(i).copied().unwrap_or_default().to_owned(),
        };
        Known { name, id, arguments }
    }
}

/// The text of the question.
const QUESTION: &str = "userqz";
/// The question.
const USER: &str = r#"{"role": "user", "content": "userqz"}"#;

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The tools of known conversations.
pub(crate) fn declared() -> Value {
    let of = |kind: &str| json!({ "type": kind, "description": "x" });
    let tool = |name: &&str| {
        let schema = json!({ "type": "object", "required": [KEYS[0]],
            "properties": { KEYS[0]: of("string"), KEYS[1]: of("integer"), KEYS[2]: of("string") } });
        json!({ "type": "function", "function": { "name": name, "description": "d", "parameters": schema } })
    };
    NAMES.iter().map(tool).collect::<Vec<_>>().into()
}
