//! Chat templates, rendered as Hugging Face Transformers does.

use std::fmt;
use std::mem::zeroed;

use crate::jinja::value::{Heap, Value};
use crate::jinja::{self, Kind as JinjaKind};
use crate::json::Json;
use crate::{Config, Error, Kind, Result, continued};

pub use jinja::Clock;

/// Bytes that a rendering may have alive at once, and those per byte of the conversation.
const MEMORY: (usize, usize) = (128 << 20, 32);
/// Work of a rendering (a byte moved is one, an operation 32), and that per byte of the
/// conversation. A second or so.
const WORK: (u64, u64) = (1 << 30, 1 << 10);

/// The parsed chat templates of a model.
pub struct Template {
    templates: Vec<Named>,
    variables: Vec<(String, String)>,
    clock: Clock,
}

/// One of a model's templates.
struct Named {
    name: String,
    source: String,
    parsed: jinja::Template,
}

impl Named {
    fn parse(name: &str, source: &str) -> Result<Named> {
        let parsed = jinja::Template::parse(source).map_err(|e| failed(&format!("{name:?} does not parse"), &e))?;
        Ok(Named { name: name.into(), source: source.into(), parsed })
    }
}

impl Template {
    /// Parses the templates of `config`. Without one, conversations must bring their own.
    ///
    /// # Errors
    /// [`Kind::Template`] for one that does not parse.
    pub fn new(config: &Config, clock: Clock) -> Result<Template> {
        let parsed = config.templates.iter().map(|(name, source)| Named::parse(name, source));
        let mut templates = parsed.collect::<Result<Vec<_>>>()?;
        templates.sort_by(|a, b| a.name.cmp(&b.name));
        let mut variables = config.specials.clone();
        let named = [("bos_token", &config.bos_token), ("eos_token", &config.eos_token)];
        variables.extend(named.iter().filter_map(|(name, text)| Some(((*name).to_owned(), (*text).clone()?))));
        Ok(Template { templates, variables, clock })
    }

    /// Renders a conversation given as JSON: a list of messages `{"role", "content", ...}`, or an
    /// object with `messages`, optionally `tools`, `documents`, `add_generation_prompt` (default
    /// true), `template` (a name, when the model has several), `chat_template` (a template instead
    /// of the model's, or the name of one of several), `continue_final_message` (true, or the member
    /// of the last message that the model goes on with) and any further variables of the template.
    ///
    /// As in Transformers, members of messages that are null count as missing, and
    /// `reasoning_content` and `thinking` stand for each other.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for an invalid conversation, or one that cannot be continued,
    /// [`Kind::Unsupported`] without a template, [`Kind::Template`] when the template refuses it or
    /// fails.
    pub fn render(&self, conversation: &str) -> Result<String> {
        let mut given = members(conversation)?;
        let own = |name: &str, given: &mut Vec<(String, Json)>| {
            given.iter().position(|(k, _)| k == name).map(|at| given.remove(at).1)
        };
        let continued = continued::field(own("continue_final_message", &mut given).as_ref())?;
        let replaced = own("chat_template", &mut given);
        let find = |name: &str| given.iter().find(|(k, _)| k == name).map(|(_, v)| v);
        let tools = !matches!(find("tools"), None | Some(Json::Null | Json::Bool(false)))
            && find("tools") != Some(&Json::List(Vec::new()));
        let prompted = find("add_generation_prompt");
        if continued.is_some() && !matches!(prompted, None | Some(Json::Null | Json::Bool(false))) {
            return Err(Error::new(
                Kind::Invalid,
                "continue_final_message and add_generation_prompt exclude each other: the one goes on with the last message, the other begins a new one",
            ));
        }
        let made = self.replacement(replaced.as_ref())?;
        let name = find("template").or(replaced.as_ref()).and_then(Json::as_str);
        let template = match &made {
            Some(made) => made,
            None => self.choose(name, tools)?,
        };
        let text = match (&continued, given.iter_mut().find(|(name, _)| name == "messages")) {
            (Some(field), Some((_, Json::List(messages)))) => Some(continued::mark(messages, field, &template.source)?),
            _ => None,
        };
        let size = conversation.len();
        let heap = Heap::new(
            MEMORY.0.saturating_add(MEMORY.1.saturating_mul(size)),
            WORK.0.saturating_add(WORK.1.saturating_mul(size as u64)),
        );
        let variables = self.variables(&heap, &given, continued.is_none()).map_err(|e| failed("failed", &e))?;
        let rendered = template.parsed.render(&heap, &variables, self.clock).map_err(|e| failed("failed", &e))?;
        match text {
            Some(text) => continued::cut(rendered, &text),
            None => Ok(rendered),
        }
    }

    /// The template that a conversation brings; `None`: it has none, or names one of the model's.
    fn replacement(&self, given: Option<&Json>) -> Result<Option<Named>> {
        match given {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(name)) if self.templates.len() > 1 && self.templates.iter().any(|t| t.name == *name) => {
                Ok(None)
            }
            Some(Json::String(source)) => Named::parse("chat_template", source).map(Some),
            Some(_) => Err(Error::new(Kind::Invalid, "chat_template is neither a template nor the name of one")),
        }
    }

    /// Later ones win, so the caller's come last.
    fn variables(
        &self,
        heap: &Heap,
        given: &[(String, Json)],
        prompted: bool,
    ) -> std::result::Result<Vec<(String, Value)>, jinja::Error> {
        let mut all: Vec<(String, Value)> = Vec::new();
        for (name, text) in &self.variables {
            all.push((name.clone(), heap.json(&Json::String(text.clone()))?));
        }
        all.push(("add_generation_prompt".into(), Value::Bool(prompted)));
        all.push(("tools".into(), Value::None));
        all.push(("documents".into(), Value::None));
        for (name, value) in given {
            all.push((name.clone(), heap.json(value)?));
        }
        Ok(all)
    }

    /// The template to use: the named one, else `tool_use` when there are tools, else `default`,
    /// else the first.
    fn choose(&self, wanted: Option<&str>, tools: bool) -> Result<&Named> {
        let named = |name: &str| self.templates.iter().find(|t| t.name == name);
        if self.templates.is_empty() {
            let message = "the model has no chat template (none in its tokenizer_config.json); give one as chat_template, or write the prompt as plain text";
            return Err(Error::new(Kind::Unsupported, message));
        }
        if let Some(name) = wanted {
            let names: Vec<&str> = self.templates.iter().map(|t| t.name.as_str()).collect();
            let missing = || {
                Error::new(Kind::Invalid, format!("the model has no chat template {name:?}, only {}", names.join(", ")))
            };
            return named(name).ok_or_else(missing);
        }
        let preferred = if tools { named("tool_use") } else { None };
        let found = preferred.or_else(|| named("default")).or_else(|| self.templates.first());
        found.ok_or_else(|| Error::new(Kind::Internal, "no chat template was parsed"))
    }

    /// Tries every template on the conversations that users have: see [`Trial`].
    pub fn trials(&self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for Named { name, .. } in &self.templates {
            for (what, conversation) in CONVERSATIONS {
                let text = format!("{{\"template\":{},{conversation}}}", serde_json::Value::from(name.as_str()));
                trials.push(Trial { template: name.clone(), what, outcome: self.render(&text).map(drop) });
            }
        }
        trials
    }
}

/// Members of a conversation, its messages as Transformers has them.
fn members(conversation: &str) -> Result<Vec<(String, Json)>> {
    let bad = |what: &str| {
        Error::new(
            Kind::Invalid,
            format!("the conversation is not a JSON list of messages or object with \"messages\": {what}"),
        )
    };
    let given: Json = serde_json::from_str(conversation).map_err(|e| bad(&e.to_string()))?;
    let mut given = match given {
        Json::List(_) => vec![("messages".to_owned(), given)],
        Json::Map(items) => items,
        _ => return Err(bad("it is neither")),
    };
    match given.iter_mut().find(|(name, _)| name == "messages") {
        Some((_, Json::List(messages))) => {
            if messages.iter().any(|m| !matches!(m, Json::Map(_))) {
                return Err(bad("a message is no object"));
            }
            messages.iter_mut().for_each(normalize);
        }
        _ => return Err(bad("\"messages\" is missing or no list")),
    }
    Ok(given)
}

/// A template's result for one kind of conversation.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Name of the template.
    pub template: String,
    /// The kind of conversation.
    pub what: &'static str,
    /// An error when it failed or refused.
    pub outcome: Result<()>,
}

impl Trial {
    /// Whether the conversation is the plainest: a user's message.
    pub fn is_plain(&self) -> bool {
        self.what == CONVERSATIONS[0].0
    }

    /// Whether the template itself said no, with `raise_exception`: its right.
    pub fn refused(&self) -> bool {
        self.outcome.as_ref().is_err_and(|e| e.message.starts_with(REFUSES))
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(()) => write!(f, "{}: fine", self.what),
            Err(e) => write!(f, "{}: {e}", self.what),
        }
    }
}

/// Kinds of conversations, as members of the JSON that [`Template::render`] takes; the first is the
/// plainest.
const CONVERSATIONS: [(&str, &str); 7] = [
    ("a user's message", r#""messages":[{"role":"user","content":"Hi"}]"#),
    ("without the generation prompt", r#""messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false"#),
    ("a system message", r#""messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]"#),
    (
        "several turns",
        r#""messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},{"role":"user","content":"2 + 2?"}]"#,
    ),
    (
        "tools",
        r#""messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"string","description":"an x"}},"required":["x"]}}}]"#,
    ),
    (
        "a tool call with null content",
        r#""messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"f","arguments":{"x":"1"}}}]},{"role":"tool","tool_call_id":"abcdefghi","name":"f","content":"2"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"string","description":"an x"}},"required":["x"]}}}]"#,
    ),
    ("content in parts", r#""messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]"#),
];

/// As Transformers before it renders: null members are dropped; reasoning has three names.
fn normalize(message: &mut Json) {
    let Json::Map(items) = message else { return };
    items.retain(|(_, value)| *value != Json::Null);
    let reasoning =
        ["reasoning_content", "thinking", "reasoning"].iter().find_map(|key| items.iter().find(|(k, _)| k == key));
    let Some(reasoning) = reasoning.map(|(_, v)| v.clone()) else { return };
    if !items.iter().any(|(k, _)| k == "thinking") {
        items.insert(0, ("thinking".into(), reasoning.clone()));
    }
    match items.iter_mut().find(|(k, _)| k == "reasoning_content") {
        Some(place) => place.1 = reasoning,
        None => items.push(("reasoning_content".into(), reasoning)),
    }
}

const REFUSES: &str = "the chat template refuses the conversation: ";

fn failed(what: &str, error: &jinja::Error) -> Error {
    match error.kind {
        JinjaKind::Raised => Error::new(Kind::Template, format!("{REFUSES}{}", error.message)),
        _ => Error::new(Kind::Template, format!("the chat template {what}: {error}")),
    }
}

/// The local time now.
pub fn local_time() -> libc::tm {
    // SAFETY: plain C calls on local variables; an all-zero tm is valid.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = zeroed();
        libc::localtime_r(&now, &mut tm);
        tm
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
