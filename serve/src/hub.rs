//! Requests under way: one thread takes the engine's events and hands each to its request.
//!
//! Nothing in it waits for a client. Each request has a queue of bounded length; a client that leaves it full has its
//! request cancelled.

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::model::Model;
use llmcc_model::{Event, Params, Terms, Token};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Events of a choice that wait for the client at most.
const BACKLOG: usize = 2048;
/// How long the thread waits for events before it looks whether the server ends.
const OFTEN: Duration = Duration::from_millis(100);

/// The requests of an engine.
pub(crate) struct Hub {
    model: Arc<dyn Model>,
    routes: Mutex<Routes>,
    metrics: Metrics,
    closed: AtomicBool,
    /// The engine has no further events. Set while `routes` is held.
    ended: AtomicBool,
}

/// The ways of events to their requests.
#[derive(Default)]
struct Routes {
    known: HashMap<u64, Route>,
    /// Events of requests that the engine has taken and whose ways are not known yet.
    early: HashMap<u64, Vec<Event>>,
}

/// The way of a request's events.
struct Route {
    choice: usize,
    /// `None`: nobody reads them any more.
    events: Option<mpsc::Sender<(usize, Event)>>,
    /// When it was handed over.
    began: Instant,
    /// When its last token came.
    last: Option<Instant>,
}

/// A text to generate.
pub(crate) struct Order {
    pub(crate) prompt: Arc<[Token]>,
    pub(crate) params: Params,
    pub(crate) terms: Terms,
}

/// The choices of one client's request. Dropping it cancels those that have not ended.
pub(crate) struct Job {
    hub: Arc<Hub>,
    /// The engine's requests by their choices; `None`: ended.
    ids: Vec<Option<u64>>,
    events: mpsc::Receiver<(usize, Event)>,
}

impl Hub {
    /// A hub, and its thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(model: Arc<dyn Model>) -> std::io::Result<(Arc<Hub>, std::thread::JoinHandle<()>)> {
        let hub = Arc::new(Hub {
            model,
            routes: Mutex::default(),
            metrics: Metrics::default(),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let own = hub.clone();
        let thread = std::thread::Builder::new().name("llmcc-serve".into()).spawn(move || own.take_events())?;
        Ok((hub, thread))
    }

    /// The model.
    pub(crate) fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// Its counts and times.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the engine has ended by itself, so that no text will be finished.
    pub(crate) fn has_failed(&self) -> bool {
        self.model.facts().writes && self.ended.load(Ordering::SeqCst) && !self.closed.load(Ordering::SeqCst)
    }

    /// Ends the thread, and all requests without further events.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Hands the choices of a client's request over, all or none. Forms of texts take some time to prepare.
    ///
    /// # Errors
    /// A wrong request, or too many of them.
    pub(crate) fn submit(self: &Arc<Hub>, orders: &[Order]) -> Result<Job, ApiError> {
        let (sender, events) = mpsc::channel(BACKLOG.saturating_mul(orders.len().max(1)));
        let mut job = Job { hub: self.clone(), ids: vec![], events };
        for (choice, order) in orders.iter().enumerate() {
            let began = Instant::now();
            let id = self.model.submit(&order.prompt, &order.params, &order.terms)?;
            job.ids.push(Some(id));
            let mut routes = lock(&self.routes);
            if self.has_failed() {
                return Err(ApiError::unfinished("the model's engine has ended: start the server again"));
            }
            routes.known.insert(id, Route { choice, events: Some(sender.clone()), began, last: None });
            let early = routes.early.remove(&id).unwrap_or_default();
            early.into_iter().for_each(|event| self.hand_over(&mut routes, event));
        }
        Ok(job)
    }

    /// The thread's work, until the hub is closed or nobody else has it.
    fn take_events(self: &Arc<Hub>) {
        while !self.closed.load(Ordering::SeqCst) && Arc::strong_count(self) > 1 {
            let Ok(events) = self.model.poll(OFTEN) else { break };
            let mut routes = lock(&self.routes);
            for event in events {
                self.hand_over(&mut routes, event);
            }
        }
        let mut routes = lock(&self.routes);
        self.ended.store(true, Ordering::SeqCst);
        *routes = Routes::default();
    }

    fn hand_over(&self, routes: &mut Routes, event: Event) {
        let id = event.request;
        let Some(route) = routes.known.get_mut(&id) else {
            routes.early.entry(id).or_default().push(event);
            return;
        };
        self.metrics.observe(&event, route.began, &mut route.last);
        let ended = event.end.is_some();
        if let Some(events) = &route.events
            && events.try_send((route.choice, event)).is_err()
        {
            // The client has gone, or does not read.
            route.events = None;
            if !ended {
                self.model.cancel(id);
            }
        }
        if ended {
            routes.known.remove(&id);
        }
    }
}

impl Job {
    /// The next event, and the choice that it belongs to; `None` after the end of the last choice.
    ///
    /// # Errors
    /// The server ends, or the client has left too many events unread.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Event), ApiError>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, for streams.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<(usize, Event), ApiError>>> {
        if self.ids.iter().all(Option::is_none) {
            return Poll::Ready(None);
        }
        self.events.poll_recv(context).map(|event| match event {
            Some((choice, event)) => {
                if event.end.is_some()
                    && let Some(id) = self.ids.get_mut(choice)
                {
                    *id = None;
                }
                Some(Ok((choice, event)))
            }
            None => Some(Err(ApiError::unfinished(
                "the request was cancelled: the server ended, or its client left too much of it unread",
            ))),
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for id in self.ids.iter().flatten() {
            self.hub.model.cancel(*id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
