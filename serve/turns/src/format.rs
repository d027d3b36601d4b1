//! The description of a format.

use crate::harmony::MARKS;
use serde::{Deserialize, Serialize};

/// How a model writes its turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Format {
    /// Marks around reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Span>,
    /// Marks around the text of an answer.
    #[serde(skip_serializing_if = "Span::is_empty")]
    pub content: Span,
    /// The text after a turn.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub end: String,
    /// How tools are called; `None`: the template does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// Turns are messages with headers, which name channels and recipients (harmony).
    #[serde(skip_serializing_if = "is_false")]
    pub channels: bool,
    /// The template takes the arguments of calls as a text of JSON.
    #[serde(skip_serializing_if = "is_false")]
    pub arguments_text: bool,
    /// The parts of the format that the template does not show, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Marks before and after something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Before it.
    pub start: String,
    /// After it.
    pub end: String,
}

impl Span {
    /// A span of these marks.
    pub fn new(start: impl Into<String>, end: impl Into<String>) -> Span {
        Span { start: start.into(), end: end.into() }
    }

    /// Whether neither mark has text.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty() && self.end.is_empty()
    }
}

/// How tools are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Around all calls of a turn.
    pub section: Span,
    /// Around each call.
    pub call: Span,
    /// Between two calls.
    pub separator: String,
    /// The template prints one call in a turn only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub single: bool,
    /// The form of a call, between its marks.
    pub form: Form,
}

/// The form of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Form {
    /// A JSON object with the name and the arguments.
    Object {
        /// Members on the way to the name.
        name: Vec<String>,
        /// Members on the way to the arguments.
        arguments: Vec<String>,
        /// Members on the way to the call's identifier, if it has one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        id: Vec<String>,
        /// The arguments are a text of JSON.
        #[serde(default, skip_serializing_if = "is_false")]
        text: bool,
        /// The text of the object.
        pieces: Vec<Piece>,
    },
    /// A JSON object whose only member has the name of the tool.
    Keyed {
        /// The text of the object.
        pieces: Vec<Piece>,
    },
    /// The name, and then the arguments as a JSON object.
    Named {
        /// The text of the call; the arguments come last.
        pieces: Vec<Piece>,
    },
    /// The name, and then each argument between marks.
    Tagged {
        /// The text before the arguments.
        head: Vec<Piece>,
        /// Before the name of an argument.
        key: String,
        /// Between the name of an argument and its value.
        mids: Vec<Mid>,
        /// After the value of an argument.
        end: Vec<Piece>,
        /// Around texts with characters of marks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        escape: Option<Span>,
        /// Values that are lists and objects have elements of their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nested: Option<Nested>,
    },
    /// A call of a Python function with keywords.
    Python,
    /// The name, and then an object without quotes around names.
    Notation {
        /// Around texts.
        quote: String,
    },
}

/// Marks of elements within values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nested {
    /// The name of an item of a list.
    pub item: String,
}

/// The text between an argument's name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mid {
    /// The text.
    pub text: String,
    /// The values that follow it.
    pub kind: ValueKind,
}

/// Kinds of values of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Texts as they are, and other values as JSON: the tool's schema tells which.
    Any,
    /// Texts as they are.
    Text,
    /// Values as JSON.
    Json,
}

/// A piece of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// This text.
    Text(String),
    /// The name of the tool.
    Name,
    /// The identifier of the call.
    Id,
    /// The place of the call in its turn; the first call has this one.
    Index(u32),
    /// The arguments.
    Arguments,
    /// The name of the argument.
    Key,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Format {
    /// The marks that a server must see in a text to parse it.
    pub fn marks(&self) -> Vec<&str> {
        let mut all = vec![self.content.start.as_str(), self.content.end.as_str()];
        if let Some(Span { start, end }) = &self.reasoning {
            all.extend([start.as_str(), end.as_str()]);
        }
        if self.channels {
            all.extend(MARKS);
        }
        if let Some(calls) = &self.calls {
            let Calls { section, call, separator, form, .. } = calls;
            all.extend([&section.start, &section.end, &call.start, &call.end, separator].map(String::as_str));
            all.extend(form.texts());
        }
        all.retain(|mark| !mark.trim().is_empty());
        all
    }

    /// Whether there is nothing to parse in a text.
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && self.content.is_empty() && self.calls.is_none() && !self.channels
    }
}

impl Form {
    /// The literal texts within a call.
    fn texts(&self) -> Vec<&str> {
        match self {
            Form::Object { .. } | Form::Keyed { .. } | Form::Python => vec![],
            Form::Named { pieces } => literal(pieces),
            Form::Tagged { head, key, mids, end, .. } => {
                let mut all = literal(head);
                all.push(key);
                all.extend(mids.iter().map(|mid| mid.text.as_str()));
                all.extend(literal(end));
                all
            }
            Form::Notation { quote } => vec![quote],
        }
    }
}

fn literal(pieces: &[Piece]) -> Vec<&str> {
    pieces.iter().filter_map(|piece| if let Piece::Text(text) = piece { Some(text.as_str()) } else { None }).collect()
}
