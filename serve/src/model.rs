//! A model and its engine, as the server uses them; tests have a stand-in.

use crate::spelling::Spelling;
use llmcc_model::{
    Engine, EngineOptions, Error, Event, Judged, Normalize, Output, Params, Result, Status, Terms, Token, Version,
};
use llmcc_turns::Format;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Most requests in a step of an engine that nobody limits.
const USUAL_PLACES: usize = 64;

/// Sizes and abilities of a model.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// Bytes of the cache for a token; 0: unknown.
    pub bytes_per_token: u64,
    /// Tokens that the cache holds; 0: unknown.
    pub cache_tokens: u64,
    /// Whether it writes text.
    pub writes: bool,
    /// Whether it has a chat template.
    pub chat_template: bool,
    /// How it calls tools and reasons.
    pub turns: Arc<Format>,
    /// Marks of its turns are special tokens.
    pub special_marks: bool,
    /// Numbers of an embedding; 0: it makes none.
    pub embed_columns: usize,
    /// Scores of a pair of texts; 0: it compares none.
    pub score_columns: usize,
    /// The activation of these scores, if the model names one.
    pub pair_activation: Option<String>,
    /// Its own settings, by their names in `generation_config.json`.
    pub generation: Map<String, Value>,
    /// Members of requests that count where a request has none, by their names in OpenAI's and vLLM's interfaces.
    pub defaults: Map<String, Value>,
    /// The token at the beginning of texts.
    pub bos: Option<Token>,
    /// Tokens that end texts.
    pub ends: Vec<Token>,
    /// Most requests in a step.
    pub places: usize,
    /// The version of its C API.
    pub abi: String,
}

/// A model that the server serves. Calls of several threads are allowed.
pub trait Model: Send + Sync + 'static {
    /// Sizes and abilities.
    fn facts(&self) -> &Facts;
    /// Its manifest: source, formats, hashes.
    fn manifest(&self) -> Value;
    /// Tokens of a text; `special`: with the special tokens around a prompt.
    ///
    /// # Errors
    /// No tokenizer, or none of its tokens for a character.
    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<Token>>;
    /// The text of tokens; `special`: with special tokens by their names.
    ///
    /// # Errors
    /// No tokenizer, or a token outside the vocabulary.
    fn detokenize(&self, tokens: &[Token], special: bool) -> Result<String>;
    /// The bytes that a token adds in the middle of a text; of a special token its name.
    ///
    /// # Errors
    /// No tokenizer, or a token outside the vocabulary.
    fn token_bytes(&self, token: Token) -> Result<Vec<u8>>;
    /// The prompt for a conversation: an object with `messages` and other variables of the chat template, as JSON.
    ///
    /// # Errors
    /// No chat template, or it refuses the conversation.
    fn chat_prompt(&self, conversation: &str) -> Result<String>;
    /// Hands a request over. Returns its number.
    ///
    /// # Errors
    /// A wrong request, or too many of them ([`Status::Busy`]).
    fn submit(&self, prompt: &[Token], params: &Params, terms: &Terms) -> Result<u64>;
    /// Ends a request, if it has not ended.
    fn cancel(&self, request: u64);
    /// The next events, in their order. Waits for the first one for up to `timeout`.
    ///
    /// # Errors
    /// There are no further ones.
    fn poll(&self, timeout: Duration) -> Result<Vec<Event>>;
    /// Counts of the engine, as `llmcc_engine_stats` names them.
    ///
    /// # Errors
    /// Errors of the artifact.
    fn counts(&self) -> Result<Value>;
    /// The share of the cache that is in use, if it is known.
    fn cache_used(&self) -> Option<f64>;
    /// Embeddings: `[rows.len(), embed_columns]`.
    ///
    /// # Errors
    /// A model that makes none, an empty row, a token outside the vocabulary.
    fn embed(&self, rows: &[Vec<Token>]) -> Result<Vec<f32>>;
    /// The tokens of a text from the second on, with their log-probabilities and the `top` most probable tokens in
    /// their places.
    ///
    /// # Errors
    /// A model that writes no text; no room beside requests under way ([`Status::Busy`]).
    fn judge(&self, tokens: &[Token], top: usize) -> Result<Vec<Judged>>;
    /// Tokens of a pair of texts.
    ///
    /// # Errors
    /// A model that compares no texts.
    fn pair_tokens(&self, pair: (&str, &str)) -> Result<usize>;
    /// Scores of pairs of texts, before any activation: `[pairs.len(), score_columns]`. `truncate`: pairs that are too
    /// long are cut.
    ///
    /// # Errors
    /// A model that compares no texts, or a pair that is too long.
    fn score_pairs(&self, pairs: &[(&str, &str)], truncate: bool) -> Result<Vec<f32>>;
}

/// An open artifact with an engine.
pub struct Artifact {
    /// `None`: it writes no text. Ends before the model.
    engine: Option<Engine<'static>>,
    model: Arc<llmcc_model::Model>,
    facts: Facts,
}

impl Artifact {
    /// Opens an engine on a model, if it writes text.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(model: llmcc_model::Model, options: &EngineOptions) -> Result<Artifact> {
        let mut facts = facts(&model);
        facts.places = if options.max_running == 0 { USUAL_PLACES } else { options.max_running as usize };
        let model = Arc::new(model);
        let engine = facts.writes.then(|| Engine::of(&model, options)).transpose()?;
        Ok(Artifact { engine, model, facts })
    }

    /// The same, with members of requests that count where a request has none.
    pub fn with_defaults(mut self, defaults: Map<String, Value>) -> Artifact {
        self.facts.defaults = defaults;
        self
    }

    fn engine(&self) -> Result<&Engine<'static>> {
        let message = "the model writes no text: ask it for embeddings (/v1/embeddings)";
        self.engine.as_ref().ok_or_else(|| Error::new(Status::Unsupported, message))
    }
}

fn facts(model: &llmcc_model::Model) -> Facts {
    let info = model.info();
    let manifest: Value = serde_json::from_str(model.manifest()).unwrap_or_default();
    let Version { major, minor, .. } = model.version();
    let turns = if info.chat_template { turns(model, &manifest) } else { Format::default() };
    let spelling = Spelling {
        tokenize: &|text| model.tokenize_plain(text).unwrap_or_default(),
        detokenize: &|token, special| {
            let text = if special { model.detokenize_special(&[token]) } else { model.detokenize(&[token]) };
            text.ok()
        },
    };
    Facts {
        vocab: info.vocab,
        max_context: info.max_context,
        bytes_per_token: info.kv_bytes_per_token,
        cache_tokens: info.max_tokens,
        writes: info.output == Output::Logits,
        chat_template: info.chat_template,
        special_marks: spelling.has_special_marks(&turns),
        turns: Arc::new(turns),
        // Scores of classes are no embeddings.
        embed_columns: if info.output == Output::Scores { 0 } else { info.embed_columns },
        score_columns: if info.output == Output::Scores { info.embed_columns } else { 0 },
        pair_activation: manifest["pair_activation"].as_str().map(str::to_owned),
        generation: manifest["generation"].as_object().cloned().unwrap_or_default(),
        defaults: Map::new(),
        bos: info.bos_token,
        ends: model.eos_tokens().unwrap_or_default(),
        places: 0,
        abi: format!("{major}.{minor}"),
    }
}

/// How a model calls tools and reasons: as its manifest says, else as its chat template prints it.
fn turns(model: &llmcc_model::Model, manifest: &Value) -> Format {
    let known = manifest.get("turns").and_then(|turns| serde_json::from_value(turns.clone()).ok());
    let render = |conversation: &str| model.chat_prompt_of_json(conversation).map_err(|e| e.message().to_owned());
    known.unwrap_or_else(|| llmcc_turns::derive(&render))
}

impl Model for Artifact {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn manifest(&self) -> Value {
        serde_json::from_str(self.model.manifest()).unwrap_or_default()
    }
    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<Token>> {
        if special { self.model.tokenize(text) } else { self.model.tokenize_plain(text) }
    }
    fn detokenize(&self, tokens: &[Token], special: bool) -> Result<String> {
        if special { self.model.detokenize_special(tokens) } else { self.model.detokenize(tokens) }
    }
    fn token_bytes(&self, token: Token) -> Result<Vec<u8>> {
        self.model.token_bytes(token)
    }
    fn chat_prompt(&self, conversation: &str) -> Result<String> {
        self.model.chat_prompt_of_json(conversation)
    }
    fn submit(&self, prompt: &[Token], params: &Params, terms: &Terms) -> Result<u64> {
        self.engine()?.submit(prompt, params, terms)
    }
    fn cancel(&self, request: u64) {
        if let Some(engine) = &self.engine {
            // It fails for an engine that has ended, and then the request has, too.
            let _ = engine.cancel(request);
        }
    }
    fn poll(&self, timeout: Duration) -> Result<Vec<Event>> {
        self.engine()?.poll(Some(timeout))
    }
    fn counts(&self) -> Result<Value> {
        let Some(engine) = &self.engine else { return Ok(Value::Object(Map::new())) };
        Ok(serde_json::from_str(&engine.stats()?).unwrap_or_default())
    }
    fn cache_used(&self) -> Option<f64> {
        let stats: Value = serde_json::from_str(&self.model.stats().ok()?).ok()?;
        let room = self.facts.bytes_per_token.saturating_mul(self.facts.cache_tokens);
        let used = stats["kv_bytes_used"].as_u64().filter(|_| room > 0)?;
        Some(used as f64 / room as f64)
    }
    fn embed(&self, rows: &[Vec<Token>]) -> Result<Vec<f32>> {
        self.model.embed(rows, Normalize::Own)
    }
    fn judge(&self, tokens: &[Token], top: usize) -> Result<Vec<Judged>> {
        self.model.judge(tokens, top).map_err(|e| match e.status() {
            Status::CacheFull => {
                let message = "the cache has no room for the prompt's log-probabilities beside requests under way";
                Error::new(Status::Busy, message)
            }
            _ => e,
        })
    }
    fn pair_tokens(&self, pair: (&str, &str)) -> Result<usize> {
        self.model.tokenize_pair(pair).map(|tokens| tokens.len())
    }
    fn score_pairs(&self, pairs: &[(&str, &str)], truncate: bool) -> Result<Vec<f32>> {
        self.model.score_pairs(pairs, truncate)
    }
}
