//! Documents of completions and of conversations: whole, and in pieces.

use crate::ask::unforeseen;
use crate::logprobs::{self, Entry};
use crate::plan::Plan;
use crate::served::{Served, now};
use crate::timings::Timings;
use llmcc_model::{End, Finish, Token};
use llmcc_turns::Event as Piece;
use serde_json::{Value, json};
use std::sync::Arc;

/// The interface that a client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Completion,
    Chat,
}

/// The frame of all documents of a request.
#[derive(Default)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    id: String,
    created: u64,
    model: String,
    /// Names the server's version and the model's bytes.
    fingerprint: String,
    /// Alternatives of each token, if log-probabilities are wanted.
    pub(crate) logprobs: Option<u32>,
    /// Prompts that the texts of completions begin with, by their choices.
    pub(crate) echo: Vec<String>,
    /// Tokens of these prompts, where log-probabilities are wanted.
    pub(crate) echoed: Vec<Arc<[Entry]>>,
    /// vLLM's documents of the prompts' tokens, where these are wanted.
    pub(crate) prompts: Vec<Value>,
    /// How texts become answers; `None`: they are.
    pub(crate) plan: Option<Plan>,
    /// Whether documents with counts have llama.cpp's times.
    pub(crate) timings: bool,
    /// The prompt, for clients that want to see it.
    pub(crate) verbose: Option<String>,
    /// Whether choices have the tokens of their texts.
    pub(crate) token_ids: bool,
}

/// A call of a tool, or a part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Called {
    index: usize,
    /// Its identifier and name, where it begins.
    head: Option<(String, String)>,
    arguments: String,
}

/// A part of a choice's text, or all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) choice: usize,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Called>,
    pub(crate) entries: Vec<Entry>,
    /// Its tokens, where they are wanted.
    pub(crate) tokens: Vec<Token>,
    pub(crate) finish: Option<&'static str>,
    /// Characters of the choice before it.
    pub(crate) offset: usize,
}

impl Part {
    /// Takes a piece of a turn.
    pub(crate) fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.text += &text,
            Piece::Reasoning(text) => self.reasoning += &text,
            Piece::Call { index, id, name } => {
                // (Readers give each an identifier.)
                let head = Some((id.unwrap_or_default(), name));
                self.calls.push(Called { index, head, arguments: String::new() });
            }
            Piece::Arguments { index, text } => self.argue(index, &text),
            Piece::End { .. } => {}
        }
    }

    fn argue(&mut self, index: usize, text: &str) {
        match self.calls.last_mut().filter(|call| call.index == index) {
            Some(call) => call.arguments += text,
            None => self.calls.push(Called { index, head: None, arguments: text.to_owned() }),
        }
    }

    /// Takes a later part of the same choice.
    pub(crate) fn join(&mut self, new: Part) {
        self.text += &new.text;
        self.reasoning += &new.reasoning;
        for call in new.calls {
            match call.head {
                Some(_) => self.calls.push(call),
                None => self.argue(call.index, &call.arguments),
            }
        }
        self.entries.extend(new.entries);
        self.tokens.extend(new.tokens);
        self.finish = new.finish.or(self.finish);
    }

    /// Whether it says anything.
    pub(crate) fn tells(&self) -> bool {
        let texts = [&self.text, &self.reasoning].iter().any(|text| !text.is_empty());
        texts || !self.calls.is_empty() || !self.entries.is_empty() || self.finish.is_some()
    }

    /// Its members in a message or a delta; `stream`: calls have their places.
    fn members(&self, stream: bool) -> Value {
        let mut members = json!({});
        if !self.reasoning.is_empty() {
            members["reasoning_content"] = self.reasoning.as_str().into();
        }
        if !self.calls.is_empty() {
            members["tool_calls"] = self.calls.iter().map(|call| call.json(stream)).collect::<Vec<_>>().into();
        }
        members
    }
}

impl Called {
    fn json(&self, stream: bool) -> Value {
        let mut call = match &self.head {
            Some((id, name)) => {
                json!({ "id": id, "type": "function", "function": { "name": name, "arguments": self.arguments } })
            }
            None => json!({ "function": { "arguments": self.arguments } }),
        };
        if stream {
            call["index"] = self.index.into();
        }
        call
    }
}

/// Counts of tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    prompt: u64,
    cached: u64,
    generated: u64,
    /// Times of the choice that ended last.
    pub(crate) times: Timings,
}

impl Usage {
    /// Counts a choice; `first`: of its prompt, whose tokens are counted once.
    pub(crate) fn add(&mut self, end: &End, first: bool) {
        if first {
            self.prompt += end.prompt_tokens;
            self.cached += end.reused_tokens;
        }
        self.generated += end.generated_tokens;
        self.times = Timings::of(end);
    }

    /// Its document.
    pub(crate) fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// The reason of an end, as OpenAI names it.
pub(crate) fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        _ => "stop",
    }
}

impl Shape {
    /// The frame of a new request's documents.
    pub(crate) fn new(kind: Kind, served: &Served, logprobs: Option<u32>, echo: Vec<String>) -> Shape {
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let id = format!("{prefix}-{:016x}{:016x}", unforeseen(), unforeseen());
        let (model, fingerprint) = (served.name.clone(), served.fingerprint.clone());
        let frame = Shape { kind, id, created: now(), model, fingerprint, ..Shape::default() };
        Shape { logprobs, echo, ..frame }
    }

    /// The same, for texts that become answers by a plan.
    pub(crate) fn with(self, plan: Option<Plan>) -> Shape {
        Shape { plan, ..self }
    }

    /// The first piece of a choice, before any text.
    pub(crate) fn opening(&self, choice: usize) -> Option<Value> {
        match self.kind {
            Kind::Chat => {
                let delta = json!({ "role": "assistant", "content": null });
                Some(json!({ "index": choice, "delta": delta, "logprobs": null, "finish_reason": null }))
            }
            Kind::Completion => {
                let text = self.echo.get(choice)?;
                let logprobs = self.echoed.get(choice).map(|entries| logprobs::of_completion(entries, 0));
                Some(json!({ "index": choice, "text": text, "logprobs": logprobs, "finish_reason": null }))
            }
        }
    }

    /// The document of a choice with the tokens of its part, where they are wanted.
    fn with_tokens(&self, part: &Part, mut choice: Value) -> Value {
        if self.token_ids {
            choice["token_ids"] = part.tokens.as_slice().into();
        }
        choice
    }

    /// A piece of a choice.
    pub(crate) fn piece(&self, part: &Part) -> Value {
        self.with_tokens(part, self.piece_of(part))
    }

    fn piece_of(&self, part: &Part) -> Value {
        let logprobs = self.logprobs_of(part);
        match self.kind {
            Kind::Chat => {
                let mut delta = part.members(true);
                if !part.text.is_empty() {
                    delta["content"] = part.text.as_str().into();
                }
                json!({ "index": part.choice, "delta": delta, "logprobs": logprobs, "finish_reason": part.finish })
            }
            Kind::Completion => {
                json!({ "index": part.choice, "text": part.text, "logprobs": logprobs, "finish_reason": part.finish })
            }
        }
    }

    /// A whole choice.
    pub(crate) fn choice(&self, part: &Part) -> Value {
        self.with_tokens(part, self.choice_of(part))
    }

    fn choice_of(&self, part: &Part) -> Value {
        let logprobs = self.logprobs_of(part);
        match self.kind {
            Kind::Chat => {
                let mut message = part.members(false);
                let silent = part.text.is_empty() && !part.calls.is_empty();
                message["content"] = if silent { Value::Null } else { part.text.as_str().into() };
                (message["role"], message["refusal"]) = ("assistant".into(), Value::Null);
                json!({ "index": part.choice, "message": message, "logprobs": logprobs, "finish_reason": part.finish })
            }
            Kind::Completion => {
                let logprobs = match self.echoed.get(part.choice) {
                    Some(prompt) => logprobs::of_completion(&[prompt, &part.entries[..]].concat(), 0),
                    None => logprobs,
                };
                let text =
                    self.echo.get(part.choice).map_or_else(|| part.text.clone(), |echo| echo.clone() + &part.text);
                let mut choice =
                    json!({ "index": part.choice, "text": text, "logprobs": logprobs, "finish_reason": part.finish });
                if let Some(prompt) = self.prompts.get(part.choice) {
                    choice["prompt_logprobs"] = prompt.clone();
                }
                choice
            }
        }
    }

    fn logprobs_of(&self, part: &Part) -> Value {
        match (self.logprobs, self.kind) {
            (None, _) => Value::Null,
            (Some(_), Kind::Chat) => logprobs::of_chat(&part.entries),
            (Some(_), Kind::Completion) => logprobs::of_completion(&part.entries, part.offset),
        }
    }

    /// A document around choices.
    pub(crate) fn document(&self, choices: Vec<Value>, stream: bool, usage: Option<Usage>) -> Value {
        let object = match (self.kind, stream) {
            (Kind::Completion, _) => "text_completion",
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
        };
        let mut document = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
            "system_fingerprint": self.fingerprint,
        });
        if let Some(usage) = usage {
            document["usage"] = usage.json();
            if self.timings {
                document["timings"] = usage.times.json();
            }
        }
        if let Some(prompt) = self.verbose.as_ref().filter(|_| !stream) {
            document["__verbose"] = json!({ "prompt": prompt });
        }
        document
    }
}
