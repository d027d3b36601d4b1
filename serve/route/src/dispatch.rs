//! Tries replicas one after the other until one answers.

use crate::app::App;
use crate::call::{Call, Kind, TRACE};
use crate::fleet::{Lease, State};
use crate::race::first;
use crate::upstream::{Answer, Outgoing, Upstream, ask};
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Pause before replicas are tried again; it grows to twenty times as much.
const PAUSE: Duration = Duration::from_millis(25);
/// Most bytes of a message of a replica that refuses a request.
const MESSAGE: usize = 4096;

/// An answer, and the place at the replica that gives it.
pub(crate) struct Found {
    pub(crate) lease: Lease,
    pub(crate) answer: Answer,
}

/// Attempts of a request that brought it no further.
pub(crate) struct Attempts {
    since: Instant,
    count: usize,
    /// Replicas that are not to be tried again at once.
    avoid: Vec<usize>,
    /// Replicas, and why each failed.
    faults: Vec<(String, String)>,
    pause: Duration,
}

impl Attempts {
    /// None yet.
    pub(crate) fn new() -> Attempts {
        Attempts { since: Instant::now(), count: 0, avoid: vec![], faults: vec![], pause: PAUSE }
    }

    /// Notes that a replica has failed.
    pub(crate) fn fail(&mut self, app: &App, lease: &Lease, why: &str) {
        app.metrics.failures.add(1);
        lease.replica.suspect(why);
        self.count += 1;
        self.avoid.push(lease.index);
        let name = lease.replica.authority.to_string();
        match self.faults.iter_mut().find(|(known, _)| *known == name) {
            Some(fault) => why.clone_into(&mut fault.1),
            None => self.faults.push((name, why.to_owned())),
        }
    }

    /// Which replicas were tried, which were not, and why.
    pub(crate) fn told(&self, app: &App) -> String {
        let mut all = self.faults.clone();
        for replica in &app.fleet.replicas {
            let name = replica.authority.to_string();
            if replica.state() != State::Up && !all.iter().any(|(known, _)| *known == name) {
                all.push((name, replica.reason()));
            }
        }
        let all: Vec<String> = all.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        if all.is_empty() { "none was tried in time".into() } else { all.join("; ") }
    }

    /// Waits before replicas that have failed are tried again. Returns whether there is time for it.
    async fn rest(&mut self, app: &App) -> bool {
        if self.since.elapsed() + self.pause > app.settings.retry {
            return false;
        }
        // (Perhaps one of them is back.)
        app.fleet.replicas.iter().for_each(|replica| replica.look.notify_one());
        sleep(self.pause).await;
        self.pause = (2 * self.pause).min(20 * PAUSE);
        self.avoid.clear();
        true
    }
}

/// State of a stream that broke off, for the next replica.
pub(crate) struct Resumed<'a> {
    /// The model's fingerprint.
    pub(crate) model: Option<&'a HeaderValue>,
    /// Tokens of each choice.
    pub(crate) tokens: Vec<&'a [i32]>,
}

/// The answer of a replica to a request. `resumed`: of a stream that broke off.
///
/// # Errors
/// No replica answers: which ones were asked, and why each failed.
pub(crate) async fn dispatch(
    app: &App,
    call: &Call,
    attempts: &mut Attempts,
    resumed: Option<&Resumed<'_>>,
) -> Result<Found, String> {
    // An answer that is the client's if no other replica gives a better one.
    let mut second = None;
    loop {
        if attempts.count >= app.settings.attempts {
            return second.ok_or_else(|| attempts.told(app));
        }
        let Some(lease) = place(app, call, attempts) else {
            if second.is_some() || !attempts.rest(app).await {
                return second.ok_or_else(|| attempts.told(app));
            }
            continue;
        };
        let answer = match attempt(app, call, &lease, resumed).await {
            Err(why) => {
                attempts.fail(app, &lease, &why);
                continue;
            }
            Ok(answer) => answer,
        };
        let status = answer.head.status;
        let is_busy = status == StatusCode::TOO_MANY_REQUESTS;
        match resumed {
            None if is_busy || (status == StatusCode::NOT_FOUND && matches!(call.kind, Kind::Kept(_))) => {
                attempts.avoid.push(lease.index);
                second.get_or_insert(Found { lease, answer });
            }
            None => return Ok(Found { lease, answer }),
            // It has too many requests, not a fault.
            Some(_) if is_busy => attempts.avoid.push(lease.index),
            Some(resumed) => match mismatch(&answer, resumed) {
                None => return Ok(Found { lease, answer }),
                Some(why) => attempts.fail(app, &lease, &why),
            },
        }
    }
}

/// The next replica to try.
fn place(app: &App, call: &Call, attempts: &Attempts) -> Option<Lease> {
    if let Kind::Kept(id) = &call.kind
        && let Some(home) = app.home(id).filter(|home| !attempts.avoid.contains(home))
    {
        return Some(app.fleet.lease(home));
    }
    app.fleet.choose(call.key, &attempts.avoid)
}

/// Sends the request to one replica.
///
/// # Errors
/// It does not answer, or is about to end.
async fn attempt(app: &App, call: &Call, lease: &Lease, resumed: Option<&Resumed<'_>>) -> Result<Answer, String> {
    let tokens = resumed.map(|resumed| resumed.tokens.clone()).unwrap_or_default();
    let body = call.body(tokens.into_iter());
    let (headers, idle) = (call.headers(), app.settings.idle);
    let outgoing = Outgoing { method: &call.method, path: &call.path, headers, body, idle };
    let asked = ask(&lease.replica, outgoing, app.settings.connect);
    let answer = match first(asked, lease.replica.fails()).await {
        Ok(asked) => asked?,
        Err(()) => return Err(lease.replica.reason()),
    };
    match answer.head.status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            let Answer { head, body } = answer;
            Err(format!("it answers {}: {}", head.status.as_u16(), message(body, app.settings.connect).await))
        }
        _ => Ok(answer),
    }
}

/// Why an answer is not the rest of a stream.
fn mismatch(answer: &Answer, resumed: &Resumed) -> Option<String> {
    let status = answer.head.status;
    if status != StatusCode::OK {
        return Some(format!("it answers {} to a request that another replica took", status.as_u16()));
    }
    let model = answer.head.headers.get(TRACE);
    (model != resumed.model).then(|| "it serves another model or version, which cannot go on with the text".to_owned())
}

/// The message of an error.
async fn message(mut body: Upstream, patience: Duration) -> String {
    let mut text = vec![];
    let read = async {
        while let Ok(Some(bytes)) = body.next().await {
            text.extend_from_slice(&bytes[..bytes.len().min(MESSAGE - text.len())]);
            if text.len() == MESSAGE {
                break;
            }
        }
    };
    // (What came in time is told.)
    let _ = timeout(patience, read).await;
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let said = document.pointer("/error/message").and_then(|message| message.as_str());
    said.map_or_else(|| String::from_utf8_lossy(&text).into_owned(), str::to_owned)
}

/// The whole body of an answer, if it has up to `most` bytes; else what came of it.
///
/// # Errors
/// The connection broke, or the replica is down.
pub(crate) async fn whole(found: &mut Found, most: usize) -> Result<(Bytes, bool), String> {
    let mut all = vec![];
    loop {
        let next = match first(found.answer.body.next(), found.lease.replica.fails()).await {
            Ok(next) => next?,
            Err(()) => return Err(found.lease.replica.reason()),
        };
        match next {
            None => return Ok((all.into(), true)),
            Some(bytes) => all.extend_from_slice(&bytes),
        }
        if all.len() > most {
            return Ok((all.into(), false));
        }
    }
}
