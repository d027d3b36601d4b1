//! The plan of a turn: the form that its text must have, and how the text becomes an answer, reasoning and calls.

use crate::error::ApiError;
use crate::model::Model;
use crate::spelling::{Spelling, special};
use crate::toolbox::{Choice, Toolbox};
use llmcc_model::{Event, Grammar, Params, Token};
use llmcc_turns::grammar::{Answer, Turn, grammar};
use llmcc_turns::{Event as Piece, Format, Parser, Tools};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Facts about a turn before it begins.
pub(crate) struct Plan {
    format: Arc<Format>,
    tools: Tools,
    prompt: String,
    /// The engine shows special tokens for this plan alone: others than marks are hidden.
    hides: bool,
    /// The client gets reasoning.
    reasoning: bool,
    /// One call at most.
    single: bool,
    /// The seed of the first choice.
    seed: u64,
}

impl Plan {
    /// The plan of the turns after a prompt; `None`: their texts are their answers. `params`: of the requests.
    ///
    /// # Errors
    /// A call is demanded, and the format does not tell its form.
    pub(crate) fn new(
        model: &dyn Model,
        toolbox: &Toolbox,
        prompt: &str,
        params: &mut Params,
        reasoning: bool,
    ) -> Result<Option<Plan>, ApiError> {
        let (format, facts) = (model.facts().turns.clone(), model.facts());
        let callable = format.calls.is_some() || format.channels;
        let tools = if callable { toolbox.tools() } else { Tools::default() };
        if !callable && (toolbox.is_forced() || (toolbox.given.is_some() && !toolbox.parallel)) {
            let param = if toolbox.is_forced() { "tool_choice" } else { "parallel_tool_calls" };
            let why = format.notes.first().map_or("it has no chat template", String::as_str);
            let message = format!("the form of this model's calls is unknown ({why}): leave `{param}` out");
            return Err(ApiError::of_param(param, message).code("unsupported_parameter"));
        }
        if format.is_plain() {
            return Ok(None);
        }
        let single = !toolbox.parallel || matches!(toolbox.choice, Choice::Only(_));
        if let Some(source) = form(model, &format, toolbox, &tools, prompt, single, params.grammar.as_ref())? {
            params.grammar = Some(Grammar::Lark(source));
        }
        let hides = facts.special_marks && !params.show_special;
        params.show_special |= hides;
        let (prompt, seed) = (prompt.to_owned(), params.sampling.seed);
        Ok(Some(Plan { format, tools, prompt, hides, reasoning, single, seed }))
    }

    /// A reader of the turn that is choice `choice`. Identifiers of its calls begin with `prefix`, and depend on what
    /// its text depends on: another server that goes on with the turn gives it the same ones.
    pub(crate) fn reader(&self, choice: usize, prefix: &'static str) -> Reader {
        let parser = Parser::new(self.format.clone(), self.tools.clone(), &self.prompt);
        let Plan { hides, reasoning, single, .. } = *self;
        let mut hasher = DefaultHasher::new();
        (&self.prompt, self.seed.wrapping_add(choice as u64), choice).hash(&mut hasher);
        let seal = hasher.finish();
        Reader { parser, hides, reasoning, single, prefix, seal, calls: false, ended: false, special: HashSet::new() }
    }
}

/// The grammar of a turn whose calls or answer must have a form; `None`: its text is free, or its form needs no change.
fn form(
    model: &dyn Model,
    format: &Format,
    toolbox: &Toolbox,
    tools: &Tools,
    prompt: &str,
    single: bool,
    answer: Option<&Grammar>,
) -> Result<Option<String>, ApiError> {
    let refused = |why: String| ApiError::of_param("tool_choice", format!("`tool_choice`: {why}"));
    let answer = match (toolbox.is_forced(), answer) {
        (true, _) => Answer::None,
        (false, None) => return Ok(None),
        (false, Some(Grammar::JsonSchema(schema))) => Answer::Json(schema.clone()),
        (false, Some(Grammar::Regex(source))) => Answer::Regex(source.clone()),
        (false, Some(Grammar::Lark(source))) => Answer::Lark(source.clone()),
        (false, Some(Grammar::Choices(list))) => match serde_json::from_str(list) {
            Ok(texts) => Answer::Choices(texts),
            // (The engine says what is wrong with it.)
            Err(_) => return Ok(None),
        },
    };
    let only = match &toolbox.choice {
        Choice::Only(name) => tools.only(name),
        _ => None,
    };
    let tools = only.as_ref().unwrap_or(tools);
    let detokenize = |token: Token, special: bool| model.detokenize(&[token], special).ok();
    let spelling =
        Spelling { tokenize: &|text| model.tokenize(text, false).unwrap_or_default(), detokenize: &detokenize };
    let turn = Turn { format, prompt, tools, single, answer, lexemes: &|text| spelling.lexemes(text) };
    grammar(&turn).map(Some).map_err(refused)
}

/// Reads the events of one turn.
pub(crate) struct Reader {
    parser: Parser,
    hides: bool,
    reasoning: bool,
    single: bool,
    /// Prefix of identifiers of calls, and the hash that they have in common.
    prefix: &'static str,
    seal: u64,
    calls: bool,
    ended: bool,
    /// Tokens that were looked at.
    special: HashSet<Token>,
}

impl Reader {
    /// The pieces that an event of the engine brings.
    pub(crate) fn take(&mut self, event: &Event, model: &dyn Model) -> Vec<Piece> {
        if self.ended {
            return vec![];
        }
        if self.hides
            && let Some(token) = event.token
            && self.special.insert(token)
            && let Some(text) = special(&|token, special| model.detokenize(&[token], special).ok(), token)
        {
            self.parser.hide(&text);
        }
        let mut pieces = self.parser.push(&event.text);
        if event.finish.is_some() || event.end.is_some() {
            self.ended = true;
            pieces.extend(self.parser.finish());
        }
        pieces.retain(|piece| match piece {
            Piece::Text(_) => true,
            Piece::Reasoning(_) => self.reasoning,
            Piece::Call { index, .. } | Piece::Arguments { index, .. } | Piece::End { index } => {
                !self.single || *index == 0
            }
        });
        for piece in &mut pieces {
            if let Piece::Call { index, id, .. } = piece {
                self.calls = true;
                id.get_or_insert_with(|| format!("{}_{:016x}{index:02x}", self.prefix, self.seal));
            }
        }
        pieces
    }

    /// Whether the turn has called a tool.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls
    }
}
