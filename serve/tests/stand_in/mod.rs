//! A stand-in for a model: bytes are tokens, and each text goes through the letters from a place that its prompt and
//! seed decide.

use llmcc_model::{End, Error, Event, Finish, Grammar, Judged, Params, Result, Status, Terms, Token};
use llmcc_serve::{Facts, Model, Server, Settings, Source, Stopper};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A text under way.
struct Request {
    id: u64,
    prompt: Vec<Token>,
    params: Params,
    late: Option<Instant>,
    made: u64,
    /// Tokens that it will say.
    says: Vec<Token>,
}

#[derive(Default)]
struct State {
    last: Params,
    requests: Vec<Request>,
    cancelled: Vec<u64>,
    counted: u64,
    next: u64,
    paused: bool,
    broken: bool,
    all: u64,
    /// Expected tokens that were right, and texts that were others.
    foreseen: (u64, u64),
}

pub struct StandIn {
    pub facts: Facts,
    /// Whether it has tokens for filling in the middle: bytes 1 to 3.
    pub fills: bool,
    /// Its chat template: a conversation's prompt.
    pub template: fn(&str) -> String,
    /// Most tokens of a text that nothing limits; 0: no limit.
    pub usual: u64,
    /// Most requests at once.
    most: usize,
    /// Time of a step.
    step: Duration,
    /// Its answers, by the last message; letters for any other.
    says: fn(&str) -> String,
    /// Special tokens, from 256 on.
    special: &'static [&'static str],
    state: Mutex<State>,
    called: Condvar,
}

impl StandIn {
    pub fn new(most: usize, step: Duration) -> StandIn {
        let facts = Facts {
            vocab: 256,
            max_context: 100_000,
            writes: true,
            chat_template: true,
            embed_columns: 2,
            ..Facts::default()
        };
        let says = |_: &str| String::new();
        StandIn {
            facts,
            most,
            step,
            says,
            special: &[],
            fills: false,
            template: str::to_owned,
            usual: 0,
            state: Mutex::default(),
            called: Condvar::new(),
        }
    }
    /// One that says something, with turns of a format.
    pub fn saying(format: llmcc_turns::Format, special: &'static [&'static str], says: fn(&str) -> String) -> StandIn {
        let mut made = StandIn::new(64, Duration::ZERO);
        made.facts.vocab += special.len();
        made.facts.special_marks = format.marks().iter().any(|mark| special.iter().any(|s| mark.contains(s)));
        made.facts.turns = Arc::new(format);
        StandIn { says, special, ..made }
    }
    /// The parameters of the last request.
    pub fn params(&self) -> Params {
        self.state.lock().expect("sound").last.clone()
    }
    fn tokens(&self, text: &str) -> Vec<Token> {
        let found = self.special.iter().enumerate().filter_map(|(i, s)| Some((text.find(s)?, i, s.len())));
        match found.min() {
            None => text.bytes().map(Token::from).collect(),
            Some((at, i, len)) => {
                let mut all = self.tokens(&text[..at]);
                all.push(256 + i as Token);
                all.extend(self.tokens(&text[at + len..]));
                all
            }
        }
    }
    fn spell(&self, token: Token, special: bool) -> String {
        match usize::try_from(token - 256) {
            Ok(i) if special => self.special[i].to_owned(),
            Ok(_) => String::new(),
            Err(_) => char::from(token as u8).to_string(),
        }
    }
    /// The next event of a request.
    fn advance(&self, r: &mut Request) -> Event {
        if r.says.is_empty() {
            return advance(r);
        }
        let token = r.says.remove(0);
        r.made += 1;
        let finish = if r.says.is_empty() { Some(Finish::Token) } else { None };
        let finish = if r.params.max_tokens == r.made { Some(Finish::Length) } else { finish };
        let (text, end) = (self.spell(token, r.params.show_special), finish.map(|_| ended(r, None)));
        Event { request: r.id, token: Some(token), text, finish, logprob: -0.5, top: vec![], end }
    }
    /// Requests under way.
    pub fn live(&self) -> usize {
        self.state.lock().expect("sound").requests.len()
    }
    /// Requests that were cancelled before their ends.
    pub fn cancelled(&self) -> u64 {
        self.state.lock().expect("sound").counted
    }
    pub fn all(&self) -> u64 {
        self.state.lock().expect("sound").all
    }
    /// Expected tokens that were right, and texts that went on with others than expected.
    pub fn foreseen(&self) -> (u64, u64) {
        self.state.lock().expect("sound").foreseen
    }
    /// Has no further events.
    pub fn break_down(&self) {
        self.state.lock().expect("sound").broken = true;
    }
    /// Makes no tokens for the time being.
    pub fn pause(&self, paused: bool) {
        self.state.lock().expect("sound").paused = paused;
    }
}

/// The letter `k` of a text.
pub fn letter(prompt: &[Token], seed: u64, k: u64) -> Token {
    let sum: u64 = prompt.iter().map(|t| t.unsigned_abs() as u64).sum();
    97 + ((sum.wrapping_add(seed).wrapping_add(k)) % 26) as Token
}

/// The text that a stand-in makes.
pub fn expected(prompt: &str, seed: u64, n: u64) -> String {
    let prompt: Vec<Token> = prompt.bytes().map(Token::from).collect();
    (0..n).map(|k| char::from(letter(&prompt, seed, k) as u8)).collect()
}

fn ended(r: &Request, error: Option<Error>) -> End {
    End {
        error,
        prompt_tokens: r.prompt.len() as u64,
        reused_tokens: 1,
        generated_tokens: r.made,
        waited: Duration::ZERO,
        first_token: Duration::from_millis(1),
        total: Duration::from_millis(2),
    }
}

/// The next event of a text.
fn advance(r: &mut Request) -> Event {
    let token = letter(&r.prompt, r.params.sampling.seed, r.made);
    r.made += 1;
    let finish = (r.params.max_tokens == r.made).then_some(Finish::Length);
    let text = char::from(token as u8).to_string();
    let finish = if r.params.stop.contains(&text) { Some(Finish::Text) } else { finish };
    Event {
        request: r.id,
        token: Some(token),
        text: if finish == Some(Finish::Text) { String::new() } else { text },
        finish,
        logprob: -0.5,
        top: vec![(token, -0.5), (65, -1.5), (66, f64::NEG_INFINITY)],
        end: finish.map(|_| ended(r, None)),
    }
}

fn failed(r: &Request, status: Status, message: &str) -> Event {
    let error = Some(Error::new(status, message));
    Event {
        request: r.id,
        token: None,
        text: String::new(),
        finish: None,
        logprob: 0.0,
        top: vec![],
        end: Some(ended(r, error)),
    }
}

impl Model for StandIn {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn manifest(&self) -> Value {
        let (weights, options) = (json!({ "bytes": 5, "tensors": [1] }), json!({ "weights": "w4" }));
        json!({ "model": "letters", "llmcc": "0", "weights": weights, "options": options })
    }
    fn tokenize(&self, text: &str, _: bool) -> Result<Vec<Token>> {
        let marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
        let replaced = marks.iter().zip(["\u{1}", "\u{2}", "\u{3}"]);
        let text =
            replaced.fold(text.to_owned(), |text, (mark, one)| if self.fills { text.replace(mark, one) } else { text });
        Ok(self.tokens(&text))
    }
    fn detokenize(&self, tokens: &[Token], special: bool) -> Result<String> {
        if let [token] = tokens
            && *token >= 256
        {
            return Ok(self.spell(*token, special));
        }
        let bytes: Vec<u8> = tokens.iter().map(|t| *t as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
    fn token_bytes(&self, token: Token) -> Result<Vec<u8>> {
        Ok(if token < 256 { vec![token as u8] } else { self.spell(token, true).into_bytes() })
    }
    fn chat_prompt(&self, conversation: &str) -> Result<String> {
        if conversation.contains("refuse me") {
            return Err(Error::new(Status::Template, "the template refuses the conversation"));
        }
        Ok((self.template)(conversation))
    }
    fn submit(&self, prompt: &[Token], params: &Params, terms: &Terms) -> Result<u64> {
        // (As the engine, which reads forms when it takes a request.)
        let sound = match &params.grammar {
            Some(Grammar::Choices(text)) => serde_json::from_str::<Vec<String>>(text).is_ok_and(|all| !all.is_empty()),
            Some(Grammar::JsonSchema(text)) => {
                serde_json::from_str::<Value>(text).is_ok_and(|schema| schema.is_object())
            }
            _ => true,
        };
        if !sound {
            return Err(Error::new(Status::Invalid, "the form of the text is refused"));
        }
        let mut state = self.state.lock().expect("sound");
        if state.requests.len() >= self.most {
            return Err(Error::new(Status::Busy, "the engine has as many requests as it may"));
        }
        state.next += 1;
        state.all += 1;
        let late = terms.timeout.map(|timeout| Instant::now() + timeout);
        let text: String = prompt.iter().map(|t| self.spell(*t, true)).collect();
        let says = self.tokens(&(self.says)(&text));
        let mut params = params.clone();
        if params.max_tokens == 0 && says.is_empty() {
            params.max_tokens = self.usual;
        }
        let request = Request { id: state.next, prompt: prompt.to_vec(), params: params.clone(), late, made: 0, says };
        state.last = params;
        state.requests.push(request);
        self.called.notify_all();
        Ok(state.next)
    }
    fn cancel(&self, request: u64) {
        self.state.lock().expect("sound").cancelled.push(request);
    }
    fn poll(&self, timeout: Duration) -> Result<Vec<Event>> {
        std::thread::sleep(self.step);
        let state = self.state.lock().expect("sound");
        let (mut state, _) = self
            .called
            .wait_timeout_while(state, timeout.min(Duration::from_millis(20)), |s| s.requests.is_empty())
            .expect("sound");
        if state.broken {
            return Err(Error::new(Status::Interrupted, "the engine was closed"));
        }
        let (cancelled, paused, now) = (std::mem::take(&mut state.cancelled), state.paused, Instant::now());
        let (mut events, mut foreseen, mut surprised) = (vec![], 0, 0);
        for r in &mut state.requests {
            if cancelled.contains(&r.id) {
                events.push(failed(r, Status::Interrupted, "cancelled"));
            } else if r.late.is_some_and(|late| late <= now) {
                events.push(failed(r, Status::Deadline, "the request's time has passed"));
            } else if !paused {
                // (As the engine: all tokens that are as expected come in one step.)
                loop {
                    let expected = r.params.expected.get(r.made as usize).copied();
                    let event = self.advance(r);
                    let (token, over) = (event.token, event.end.is_some());
                    events.push(event);
                    if expected.is_none() || expected != token {
                        surprised += u64::from(expected.is_some());
                        r.params.expected.clear();
                        break;
                    }
                    foreseen += 1;
                    if over {
                        break;
                    }
                }
            }
        }
        state.foreseen = (state.foreseen.0 + foreseen, state.foreseen.1 + surprised);
        state.counted += events.iter().filter(|e| e.end.as_ref().is_some_and(|end| end.error.is_some())).count() as u64;
        let over: Vec<u64> = events.iter().filter(|e| e.end.is_some()).map(|e| e.request).collect();
        state.requests.retain(|r| !over.contains(&r.id));
        Ok(events)
    }
    fn counts(&self) -> Result<Value> {
        Ok(json!({ "running": self.live(), "waiting": 0 }))
    }
    fn cache_used(&self) -> Option<f64> {
        Some(0.25)
    }
    fn embed(&self, rows: &[Vec<Token>]) -> Result<Vec<f32>> {
        Ok(rows.iter().flat_map(|row| [row.len() as f32, 0.5]).collect())
    }
    fn judge(&self, tokens: &[Token], top: usize) -> Result<Vec<Judged>> {
        // (The probability of a token is that of its place.)
        let judged = |(i, token): (usize, &Token)| Judged {
            token: *token,
            logprob: -(i as f64),
            top: [(*token, -(i as f64)), (65, -9.0)].into_iter().take(top).collect(),
        };
        Ok(tokens.iter().enumerate().skip(1).map(judged).collect())
    }
    fn pair_tokens(&self, pair: (&str, &str)) -> Result<usize> {
        Ok(pair.0.len() + pair.1.len())
    }
    fn score_pairs(&self, pairs: &[(&str, &str)], truncate: bool) -> Result<Vec<f32>> {
        if !truncate && pairs.iter().any(|(_, second)| *second == "too long") {
            return Err(Error::new(Status::Invalid, "the pair is too long for the model"));
        }
        Ok(pairs.iter().map(|(first, second)| first.len() as f32 - second.len() as f32).collect())
    }
}

/// A server on a free port.
pub struct Running {
    /// The first model.
    pub model: Arc<StandIn>,
    pub address: SocketAddr,
    pub stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(model: StandIn, change: impl FnOnce(&mut Settings)) -> Running {
        let model = Arc::new(model);
        Running::of(model.clone(), vec![("letters".into(), model)], None, change)
    }
    /// A server for several models; `model`: the first.
    pub fn of(
        model: Arc<StandIn>,
        models: Vec<(String, Arc<dyn Model>)>,
        source: Option<Arc<dyn Source>>,
        change: impl FnOnce(&mut Settings),
    ) -> Running {
        let mut settings = Settings { port: 0, ..Settings::default() };
        change(&mut settings);
        let server = Server::bind(models, source, settings).expect("bound");
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run().expect("served")));
        Running { model, address, stopper, thread }
    }
    pub fn plain() -> Running {
        Running::start(StandIn::new(64, Duration::from_millis(1)), |_| {})
    }
    /// Waits for its end.
    pub fn join(&mut self) {
        self.thread.take().expect("once").join().expect("no panic");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for a state to come.
pub fn wait_for(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
