//! Grammars of turns: calls in a format's form, with arguments by the tools' schemas, after reasoning.
//!
//! They are written in the dialect of Lark that `llguidance` reads. A text of the format may have special tokens, which
//! are no text for a grammar: [`Lexeme`] tells the two apart.

use crate::format::{Calls, Form, Format, Mid, Piece, Span, ValueKind};
use crate::harmony::{CALL_START, FINAL_START, REASONING_END, REASONING_START};
use crate::tools::{Tools, is_text};
use serde_json::{Value, json};
use std::fmt::Write;

/// A part of a text of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lexeme {
    /// Text.
    Text(String),
    /// A special token.
    Token(u32),
}

/// The answer that a turn may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None: tools are called.
    None,
    /// A value of this JSON schema.
    Json(String),
    /// A text that matches this regular expression.
    Regex(String),
    /// A text of this grammar in Lark.
    Lark(String),
    /// One of these texts.
    Choices(Vec<String>),
}

/// A turn to describe.
pub struct Turn<'a> {
    /// The format.
    pub format: &'a Format,
    /// The prompt.
    pub prompt: &'a str,
    /// The tools that may be called; if there are none, there is an answer only.
    pub tools: &'a Tools,
    /// At most one call.
    pub single: bool,
    /// The answer, if there are no calls.
    pub answer: Answer,
    /// Splits a text of the format.
    pub lexemes: &'a dyn Fn(&str) -> Vec<Lexeme>,
}

/// A grammar that grows.
struct Writer<'a> {
    turn: &'a Turn<'a>,
    rules: String,
    count: usize,
}

/// The grammar of a turn.
///
/// # Errors
/// The format cannot be forced, in words.
pub fn grammar(turn: &Turn) -> Result<String, String> {
    let mut writer = Writer { turn, rules: String::new(), count: 0 };
    let lead = writer.lead();
    let mut bodies = vec![];
    if !turn.tools.is_empty() {
        bodies.push(writer.calls()?);
    }
    if let Some(answer) = writer.answer() {
        bodies.push(answer);
    }
    if bodies.is_empty() {
        return Err("there is neither a tool to call nor an answer to give".into());
    }
    Ok(format!("start: {lead} ({})\n{}", bodies.join(" | "), writer.rules))
}

/// A text as a string of Lark, which is one of JSON.
fn string(text: &str) -> String {
    Value::from(text).to_string()
}

/// A regular expression between slashes.
fn regex(source: &str) -> String {
    format!("/{}/", source.replace('/', "\\/"))
}

const ANY: &str = "/(?s:.*)/";

impl Writer<'_> {
    /// Adds a rule. Returns its name.
    fn rule(&mut self, attributes: &str, body: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        // (Writing to a string does not fail.)
        let _ = writeln!(self.rules, "{name}{attributes}: {body}");
        name
    }

    /// A text of the format.
    fn literal(&self, text: &str) -> String {
        let part = |lexeme: Lexeme| match lexeme {
            Lexeme::Text(text) => string(&text),
            Lexeme::Token(token) => format!("<[{token}]>"),
        };
        let lexemes = if text.is_empty() { vec![] } else { (self.turn.lexemes)(text) };
        lexemes.into_iter().map(part).collect::<Vec<_>>().join(" ")
    }

    /// Any text, and the mark that ends it.
    fn until(&mut self, mark: &str) -> String {
        match (self.turn.lexemes)(mark).split_first() {
            None => self.rule("", ANY),
            Some((Lexeme::Token(_), _)) => format!("{} {}", self.rule("", ANY), self.literal(mark)),
            Some((Lexeme::Text(first), _)) => {
                let rest = self.literal(mark.strip_prefix(first.as_str()).unwrap_or_default());
                format!("{} {rest}", self.rule(&format!("[suffix={}]", string(first)), ANY))
            }
        }
    }

    /// A value of a schema, with few blanks: models may write them without end.
    fn json(&mut self, schema: &Value) -> String {
        let mut schema = match schema {
            Value::Object(_) => schema.clone(),
            _ => json!({ "type": "object" }),
        };
        if let Some(members) = schema.as_object_mut() {
            let blanks = || json!({ "whitespace_pattern": r"\x0D?\x0A[\x20\x09]{0,32}|[\x20\x09]{1,8}" });
            members.entry("x-guidance").or_insert_with(blanks);
        }
        self.rule("", &format!("%json {schema}"))
    }

    /// Reasoning, if the prompt leaves room for it.
    fn lead(&mut self) -> String {
        let format = self.turn.format;
        if format.channels {
            let rest = self.until(REASONING_END);
            return format!("({} {rest})?", self.literal(REASONING_START));
        }
        let Some(Span { start, end }) = &format.reasoning else { return String::new() };
        let prompt = self.turn.prompt.trim_end();
        if prompt.ends_with(end.trim()) {
            return String::new();
        }
        let rest = self.until(end);
        let blanks = self.rule("", "/[ \\n]{0,4}/");
        match prompt.ends_with(start.trim()) {
            true => format!("{rest} {blanks}"),
            false => format!("({} {rest} {blanks})?", self.literal(start)),
        }
    }

    fn answer(&mut self) -> Option<String> {
        let body = match &self.turn.answer {
            Answer::None => return None,
            Answer::Json(schema) => {
                let schema: Value = serde_json::from_str(schema).unwrap_or(Value::Null);
                self.json(&schema)
            }
            Answer::Regex(source) => self.rule("", &regex(source)),
            Answer::Lark(source) => self.rule("", &format!("%lark {{\n{source}\n}}")),
            Answer::Choices(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| string(text)).collect();
                self.rule("", &texts.join(" | "))
            }
        };
        let content = &self.turn.format.content;
        let start = if self.turn.format.channels { FINAL_START } else { content.start.as_str() };
        // (A prompt may end with the mark before a call, and the mark before an answer follows it.)
        Some(format!("{} {body} {}", self.literal(start), self.optional(&content.end)))
    }

    /// A text of the format that may be left out.
    fn optional(&self, text: &str) -> String {
        match self.literal(text) {
            literal if literal.is_empty() => literal,
            literal => format!("({literal})?"),
        }
    }

    /// All calls of a turn.
    fn calls(&mut self) -> Result<String, String> {
        if self.turn.format.channels {
            return Ok(self.messages());
        }
        let Some(calls) = &self.turn.format.calls else {
            return Err("the model's chat template shows no form of calls".into());
        };
        let mut cores = vec![];
        for (name, schema) in self.turn.tools.iter() {
            cores.push(self.call(calls, name, schema)?);
        }
        let core = self.rule("", &cores.join(" | "));
        let (start, end) = (self.literal(&calls.call.start), self.literal(&calls.call.end));
        let prompted = !calls.call.start.trim().is_empty()
            && calls.section.start.trim().is_empty()
            && self.turn.prompt.trim_end().ends_with(calls.call.start.trim());
        let first = if prompted { format!("{core} {end}") } else { format!("{start} {core} {end}") };
        let more = match self.turn.single || calls.single {
            true => String::new(),
            false => format!("({} {start} {core} {end})*", self.literal(&calls.separator)),
        };
        let (before, after) = (self.literal(&calls.section.start), self.optional(&calls.section.end));
        Ok(format!("{before} {first} {more} {after}"))
    }

    /// A call as a message with a header.
    fn messages(&mut self) -> String {
        let mut all = vec![];
        for (name, schema) in self.turn.tools.iter() {
            let head = CALL_START.replace("NAME", name);
            let schema = self.json(schema);
            all.push(format!("{} {schema}", self.literal(&head)));
        }
        format!("({})", all.join(" | "))
    }

    /// The call of a tool, without the marks of calls.
    fn call(&mut self, calls: &Calls, name: &str, schema: &Value) -> Result<String, String> {
        Ok(match &calls.form {
            Form::Object { pieces, text: false, .. } | Form::Keyed { pieces } | Form::Named { pieces } => {
                self.pieces(pieces, name, schema)
            }
            Form::Object { .. } => return Err("the model writes arguments of calls as texts".into()),
            Form::Tagged { head, key, mids, end, nested, escape } => {
                let mut all = self.pieces(head, name, schema);
                for (argument, inner, required) in arguments(self.turn.tools, name, schema) {
                    if (nested.is_some() || escape.is_some()) && is_text(inner) != Some(true) && is_nested(inner) {
                        return Err(format!("the argument `{argument}` of `{name}` has a form that cannot be forced"));
                    }
                    let value = self.tagged((key, mids, end), argument, inner);
                    let _ = write!(all, " {}", if required { value } else { format!("({value})?") });
                }
                all
            }
            Form::Python => {
                let value = |writer: &mut Self, argument: &str, inner: &Value| {
                    let value = writer.python(inner);
                    format!("{} {value}", string(&format!("{argument}=")))
                };
                let list = self.list(name, schema, ", ", &value);
                format!("{} {list} {}", string(&format!("{name}(")), string(")"))
            }
            Form::Notation { quote } => {
                if let Some((argument, ..)) = arguments(self.turn.tools, name, schema).find(|a| is_nested(a.1)) {
                    return Err(format!("the argument `{argument}` of `{name}` has a form that cannot be forced"));
                }
                let value = |writer: &mut Self, argument: &str, inner: &Value| {
                    let head = string(&format!("{argument}:"));
                    match is_text(inner) {
                        Some(false) => format!("{head} {}", writer.json(inner)),
                        _ => format!("{head} {} {}", writer.literal(quote), writer.text(inner, quote)),
                    }
                };
                let list = self.list(name, schema, ",", &value);
                format!("{} {list} {}", string(&format!("{name}{{")), string("}"))
            }
        })
    }

    /// Pieces of a call.
    fn pieces(&mut self, pieces: &[Piece], name: &str, schema: &Value) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => self.literal(text),
            Piece::Name | Piece::Key => string(name),
            Piece::Id => "/[a-zA-Z0-9]{9}/".to_owned(),
            Piece::Index(_) => "/[0-9]{1,4}/".to_owned(),
            Piece::Arguments => self.json(schema),
        };
        pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
    }

    /// An argument between marks.
    fn tagged(&mut self, (key, mids, end): (&str, &[Mid], &[Piece]), argument: &str, schema: &Value) -> String {
        let text = is_text(schema) != Some(false);
        let fits = |mid: &&Mid| mid.kind != if text { ValueKind::Json } else { ValueKind::Text };
        let mut ways: Vec<&Mid> = mids.iter().filter(fits).collect();
        if ways.is_empty() {
            ways = mids.iter().collect();
        }
        let close: String = end.iter().map(|p| if let Piece::Text(text) = p { text } else { argument }).collect();
        let way = |mid: &&Mid| self.literal(&mid.text);
        let before: Vec<String> = ways.iter().map(way).collect();
        let value = match text && ways.iter().any(|mid| mid.kind != ValueKind::Json) {
            true => self.text(schema, &close),
            false => format!("{} {}", self.json(schema), self.literal(&close)),
        };
        format!("{} {} ({}) {value}", self.literal(key), string(argument), before.join(" | "))
    }

    /// A text of a schema, and the mark that ends it.
    fn text(&mut self, schema: &Value, mark: &str) -> String {
        let choices: Vec<&str> =
            schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if choices.is_empty() {
            return self.until(mark);
        }
        let texts: Vec<String> = choices.iter().map(|text| string(text)).collect();
        format!("({}) {}", texts.join(" | "), self.literal(mark))
    }

    /// A literal of Python.
    fn python(&mut self, schema: &Value) -> String {
        let quoted = r#"(/'([^'\\\n]|\\[^\n])*'/ | /"([^"\\\n]|\\[^\n])*"/)"#;
        match (is_text(schema), schema.get("type").and_then(Value::as_str)) {
            (Some(true), _) => match schema.get("enum").and_then(Value::as_array) {
                // (Texts of JSON are texts of Python.)
                Some(list) => {
                    format!("({})", list.iter().map(|v| string(&v.to_string())).collect::<Vec<_>>().join(" | "))
                }
                None => quoted.to_owned(),
            },
            (_, Some("boolean")) => r#"("True" | "False")"#.to_owned(),
            (Some(false), _) => self.json(schema),
            (None, _) => format!("({quoted} | {})", self.json(schema)),
        }
    }

    /// Arguments with a mark between them: the required ones, and others after them.
    fn list(
        &mut self,
        name: &str,
        schema: &Value,
        mark: &str,
        value: &dyn Fn(&mut Self, &str, &Value) -> String,
    ) -> String {
        let all: Vec<(String, bool)> = arguments(self.turn.tools, name, schema)
            .map(|(argument, inner, required)| (value(self, argument, inner), required))
            .collect();
        let (must, may): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, required)| *required);
        let comma = string(mark);
        let must: Vec<String> = must.into_iter().map(|(text, _)| text).collect();
        let mut out = must.join(&format!(" {comma} "));
        if must.is_empty() {
            // Any of them may be the first.
            let rest =
                |i: usize| may.iter().skip(i + 1).map(|(text, _)| format!("({comma} {text})?")).collect::<String>();
            let ways: Vec<String> =
                may.iter().enumerate().map(|(i, (text, _))| format!("{text} {}", rest(i))).collect();
            return if ways.is_empty() { out } else { format!("({})?", ways.join(" | ")) };
        }
        may.iter().for_each(|(text, _)| out += &format!(" ({comma} {text})?"));
        out
    }
}

/// Arguments of a tool in the order of its schema: name, schema, and whether it is required.
fn arguments<'a>(tools: &'a Tools, name: &str, schema: &'a Value) -> impl Iterator<Item = (&'a str, &'a Value, bool)> {
    let must: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let all = schema.get("properties");
    tools
        .order(name)
        .iter()
        .filter_map(move |name| Some((name.as_str(), all?.get(name)?, must.contains(&name.as_str()))))
}

/// Whether values of a schema may have others in them.
fn is_nested(schema: &Value) -> bool {
    let kinds = schema.get("type");
    let one = |kind: &Value| ["object", "array"].contains(&kind.as_str().unwrap_or_default());
    match kinds {
        Some(Value::Array(kinds)) => kinds.iter().any(one),
        Some(kind) => one(kind),
        None => is_text(schema).is_none(),
    }
}
