//! A stream on its way from replicas to a client: what the client has, and how it goes on where a replica fails.
//!
//! The events of a choice are the same at every replica, in the same order; events of several choices come as their
//! tokens do. So a stream is resumed by counts: of the events of each choice, and of those that are nobody's, the
//! client gets as many fewer as it has. The tokens that a replica repeats are compared with those that the client has.

use crate::app::App;
use crate::call::Call;
use crate::dispatch::{Attempts, Found, Resumed, dispatch};
use crate::error::Refusal;
use crate::identity::Identity;
use crate::race::first;
use crate::sse::{Mark, Splitter, is_comment, marked};
use axum::body::Bytes;
use axum::http::HeaderValue;
use llmcc_serve::front::Busy;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Most choices of a request, as replicas have them.
const MOST_CHOICES: usize = 4096;

/// Events and tokens of a choice that the client has.
#[derive(Clone, Debug, Default)]
struct Choice {
    events: usize,
    tokens: Vec<i32>,
}

/// How far a replica is with a stream.
#[derive(Default)]
struct Told {
    /// Events that are no comments.
    events: usize,
    /// Events that are no choice's.
    plain: usize,
    /// Events and tokens of each choice.
    choices: Vec<(usize, usize)>,
    ended: bool,
    identity: Option<Identity>,
}

/// A stream.
pub(crate) struct Relay {
    app: Arc<App>,
    call: Arc<Call>,
    /// The model's fingerprint.
    model: Option<HeaderValue>,
    client: mpsc::Sender<Bytes>,
    /// Events that are no choice's and that the client has.
    plain: usize,
    choices: Vec<Choice>,
    identity: Option<Identity>,
    attempts: Attempts,
    _busy: Busy,
}

/// How a replica's part of a stream ends.
enum End {
    Whole,
    /// The client has gone.
    Gone,
    Broken(String),
}

impl Relay {
    /// A stream that begins.
    pub(crate) fn new(
        (app, call): (Arc<App>, Arc<Call>),
        model: Option<HeaderValue>,
        client: mpsc::Sender<Bytes>,
        busy: Busy,
    ) -> Relay {
        let attempts = Attempts::new();
        Relay { app, call, model, client, plain: 0, choices: vec![], identity: None, attempts, _busy: busy }
    }

    /// Passes it on until it has ended, the client has gone, or no replica goes on with it.
    pub(crate) async fn run(mut self, mut found: Found) {
        loop {
            if let Some(id) = &self.call.id {
                self.app.settle(id, found.lease.index);
            }
            match self.pass(&mut found).await {
                End::Whole | End::Gone => return,
                End::Broken(why) => self.attempts.fail(&self.app, &found.lease, &why),
            }
            drop(found);
            let tokens: Vec<&[i32]> = self.choices.iter().map(|choice| &choice.tokens[..]).collect();
            let known = tokens.iter().map(|tokens| tokens.len() as u64).sum();
            let resumed = Resumed { model: self.model.as_ref(), tokens };
            let next = dispatch(&self.app, &self.call, &mut self.attempts, Some(&resumed));
            match first(next, self.client.closed()).await {
                Err(()) => return,
                Ok(Ok(next)) => found = next,
                Ok(Err(why)) => {
                    self.app.metrics.lost.add(1);
                    let events = Refusal::no_replica(&why).events(self.call.interface);
                    // (A client that has gone needs no error.)
                    let _ = self.client.send(events.into()).await;
                    return;
                }
            }
            self.app.metrics.resumed.add(1);
            self.app.metrics.resumed_tokens.add(known);
        }
    }

    /// Passes on what one replica tells.
    async fn pass(&mut self, found: &mut Found) -> End {
        let (mut splitter, mut told) = (Splitter::default(), Told::default());
        let mut heard = (Instant::now(), 0);
        loop {
            // (A server whose engine hangs says that it lives, and nothing else.)
            let stall = self.app.settings.stall.map(|stall| stall.saturating_sub(heard.0.elapsed()));
            let bytes = match first(next(found, stall), self.client.closed()).await {
                Err(()) => return End::Gone,
                Ok(Err(why)) => return End::Broken(why),
                Ok(Ok(None)) if told.ended => return End::Whole,
                Ok(Ok(None)) => return End::Broken("the stream ended before its last event".into()),
                Ok(Ok(Some(bytes))) => bytes,
            };
            let began = Instant::now();
            let mut out = Vec::with_capacity(bytes.len());
            let taken = self.take(&bytes, &mut splitter, &mut told, &mut out);
            if told.events > heard.1 {
                heard = (Instant::now(), told.events);
            }
            let metrics = &self.app.metrics;
            metrics.parts.add(1);
            metrics.part_ns.time(began.elapsed());
            if !out.is_empty() && self.client.send(out.into()).await.is_err() {
                return End::Gone;
            }
            if let Err(why) = taken {
                return End::Broken(why);
            }
        }
    }

    /// Takes bytes of a replica. What the client does not have goes to `out`.
    ///
    /// # Errors
    /// The replica has failed, or tells another text.
    fn take(
        &mut self,
        bytes: &[u8],
        splitter: &mut Splitter,
        told: &mut Told,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        splitter.push(bytes)?;
        while let Some(event) = splitter.next() {
            if is_comment(event) {
                // (A replica that has much to do says so when it likes.)
                out.extend_from_slice(event);
                continue;
            }
            told.events += 1;
            let (mark, data) = marked(event);
            let is_new = match mark {
                Mark::Tokens(choice, token) => self.of_choice(told, choice, token, !data.is_empty())?,
                // Its engine has ended, or it is about to end itself.
                Mark::Failed(status @ (500 | 502 | 503)) => return Err(format!("its stream failed with {status}")),
                Mark::None | Mark::End | Mark::Failed(_) => {
                    told.ended |= mark != Mark::None;
                    told.plain += usize::from(!data.is_empty());
                    told.plain > self.plain
                }
            };
            if !data.is_empty() && told.identity.is_none() {
                told.identity = Some(Identity::of(data));
            }
            // (The trace itself is for the router, unless the client is one.)
            let shown = if self.call.traced { event } else { data };
            if !is_new || shown.is_empty() {
                continue;
            }
            self.plain = self.plain.max(told.plain);
            let own = self.identity.get_or_insert_with(|| told.identity.clone().unwrap_or_default());
            match &told.identity {
                Some(identity) if identity != own => identity.rewrite(own, shown, out),
                _ => out.extend_from_slice(shown),
            }
            self.attempts = Attempts::new();
        }
        Ok(())
    }

    /// Whether an event of a choice is new to the client.
    ///
    /// # Errors
    /// Its token is another than the one that the client has.
    fn of_choice(
        &mut self,
        told: &mut Told,
        choice: usize,
        token: Option<i32>,
        is_event: bool,
    ) -> Result<bool, String> {
        if choice >= MOST_CHOICES {
            return Err(format!("its stream has choice {choice}, and a request up to {MOST_CHOICES}"));
        }
        let count = (choice + 1).max(self.choices.len());
        self.choices.resize_with(count, Choice::default);
        told.choices.resize(count, (0, 0));
        let (own, (events, tokens)) = (&mut self.choices[choice], &mut told.choices[choice]);
        let mut is_new = false;
        if let Some(token) = token {
            match own.tokens.get(*tokens) {
                Some(known) if *known != token => {
                    self.app.metrics.different.add(1);
                    return Err(format!(
                        "it goes on with another text (choice {choice}, token {tokens}): is it the same artifact?"
                    ));
                }
                Some(_) => {}
                None => {
                    own.tokens.push(token);
                    is_new = true;
                }
            }
            *tokens += 1;
        }
        if !is_event {
            return Ok(is_new);
        }
        *events += 1;
        let is_new = *events > own.events;
        own.events = own.events.max(*events);
        Ok(is_new)
    }
}

/// The next bytes of a replica.
///
/// # Errors
/// The connection breaks, the replica is down, or nothing comes for too long.
async fn next(found: &mut Found, stall: Option<Duration>) -> Result<Option<Bytes>, String> {
    let replica = found.lease.replica.clone();
    let late = async {
        match stall {
            None => std::future::pending().await,
            Some(stall) => sleep(stall).await,
        }
    };
    match first(found.answer.body.next(), first(replica.fails(), late)).await {
        Ok(next) => next,
        Err(Ok(())) => Err(replica.reason()),
        Err(Err(())) => Err("its stream brought nothing for too long".into()),
    }
}
