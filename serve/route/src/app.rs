//! State that all requests share.

use crate::error::Refusal;
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::settings::Settings;
use axum::http::{HeaderMap, StatusCode, header};
use llmcc_serve::front::{Busy, Work, is_own, key_of};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Most answers of `/v1/responses` whose replicas are known; others are looked for.
const KNOWN: usize = 65_536;

/// State of a router.
pub(crate) struct App {
    pub(crate) fleet: Fleet,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) work: Work,
    homes: Mutex<Homes>,
}

/// Replicas of kept answers, the oldest first.
#[derive(Default)]
struct Homes {
    known: HashMap<String, usize>,
    order: VecDeque<String>,
}

impl App {
    /// The state of a router that begins now.
    pub(crate) fn new(fleet: Fleet, settings: Settings) -> App {
        App { fleet, settings, metrics: Metrics::default(), work: Work::default(), homes: Mutex::default() }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// The router is about to end.
    pub(crate) fn begin(&self) -> Result<Busy, Refusal> {
        self.work.begin().ok_or_else(Refusal::draining)
    }

    /// Checks the key of a request, in time that does not tell how much of it is right; and the name that a router
    /// without keys is called by.
    ///
    /// # Errors
    /// It has none, or a wrong one; another name.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let keys = &self.settings.keys;
        if keys.is_empty() {
            let host = headers.get(header::HOST).map(|value| value.as_bytes());
            let foreign = host.filter(|host| !is_own(host, &self.settings.hosts));
            return match foreign.filter(|_| self.settings.listen.ip().is_loopback()) {
                None => Ok(()),
                Some(host) => {
                    let host = String::from_utf8_lossy(host);
                    let message = format!(
                        "the router is not known by the name `{host:.80}`: call it by its address or as localhost, \
                         start it with --allow-host, or with a key"
                    );
                    Err(Refusal::new(StatusCode::FORBIDDEN, "wrong_host", message))
                }
            };
        }
        key_of(headers, keys).map(drop).ok_or_else(Refusal::no_key)
    }

    /// The replica that has an answer, if it is known.
    pub(crate) fn home(&self, id: &str) -> Option<usize> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).known.get(id).copied()
    }

    /// Learns which replica has an answer.
    pub(crate) fn settle(&self, id: &str, replica: usize) {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if homes.known.insert(id.to_owned(), replica).is_none() {
            homes.order.push_back(id.to_owned());
        }
        if homes.order.len() > KNOWN
            && let Some(oldest) = homes.order.pop_front()
        {
            homes.known.remove(&oldest);
        }
    }
}
