//! State that all requests share.

use crate::error::Refusal;
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::settings::Settings;
use axum::http::{HeaderMap, StatusCode, header};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq;

/// Most answers of `/v1/responses` whose replicas are known; others are looked for.
const KNOWN: usize = 65_536;

/// State of a router.
pub(crate) struct App {
    pub(crate) fleet: Fleet,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    secret: RandomState,
    next: AtomicU64,
    draining: AtomicBool,
    busy: Arc<AtomicUsize>,
    homes: Mutex<Homes>,
}

/// Replicas of kept answers, the oldest first.
#[derive(Default)]
struct Homes {
    known: HashMap<String, usize>,
    order: VecDeque<String>,
}

/// A request under way: the router ends when there are none.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl App {
    /// The state of a router that begins now.
    pub(crate) fn new(fleet: Fleet, settings: Settings) -> App {
        App {
            fleet,
            settings,
            metrics: Metrics::default(),
            secret: RandomState::new(),
            next: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            busy: Arc::default(),
            homes: Mutex::default(),
        }
    }

    /// Takes no further requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether further requests are refused.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// How many requests are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// Begins a request.
    ///
    /// # Errors
    /// The router is about to end.
    pub(crate) fn begin(&self) -> Result<Busy, Refusal> {
        // Counted first, so that whoever waits for the last one sees it.
        self.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(self.busy.clone());
        if self.is_draining() { Err(Refusal::draining()) } else { Ok(busy) }
    }

    /// A number that differs from request to request.
    pub(crate) fn unforeseen(&self) -> u64 {
        self.secret.hash_one(self.next.fetch_add(1, Ordering::Relaxed))
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
            let foreign = host.filter(|host| !llmcc_serve::front::is_own(host, &self.settings.hosts));
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
        let given = key(headers).unwrap_or_default();
        // (All keys are compared.)
        let right = keys.iter().fold(false, |right, key| right | bool::from(key.as_bytes().ct_eq(given)));
        if right { Ok(()) } else { Err(Refusal::no_key()) }
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

/// The key of a request: a tenant.
pub(crate) fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}
