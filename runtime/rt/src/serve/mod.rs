//! Many requests on one model: they join and leave between steps, share computed beginnings, and are served by rank.
//!
//! [`Service`] is what callers see. Its thread takes requests from a queue, runs steps as long as there are any, and
//! puts what happens to requests into another queue. The scheduler (`core.rs`) decides who takes part in a step
//! and whose computed tokens a request goes on from by rules that it shares with simulations ([`llmcc_steps`]; `disk`:
//! beginnings that are there after a restart). Steps are those of [`crate::continuous`], so a request's tokens are the
//! same, bit for bit, in any company.

pub mod core;
mod counts;
pub mod disk;
mod fetch;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use self::core::{Core, End, Event, Limits, Order};
pub use counts::Counts;
pub use disk::Disk;

use crate::engine::Engine;
use crate::error::{Error, Result, Status};
use crate::interrupt::Watch;
use crate::reserve::Call;
use crate::spawn::Thread;
use crate::text::Text;

/// Stack of the thread.
const STACK: usize = 8 << 20;
/// How often a caller who waits for events asks whether it was interrupted.
const OFTEN: Duration = Duration::from_millis(20);
/// Events that nobody has taken, from which on steps wait.
const MOST_EVENTS: usize = 1 << 16;
/// How long the thread waits where the system refuses memory, or for others who want the model.
const SHORT: Duration = Duration::from_micros(50);

/// A model that a service runs.
pub trait Host: Send + Sync {
    /// Fails once the model is not to be used any more.
    ///
    /// # Errors
    /// Why.
    fn check(&self) -> Result<()>;
    /// The engine, for one user at a time.
    fn engine(&self) -> MutexGuard<'_, Engine>;
    /// Whether somebody else waits for it.
    fn is_wanted(&self) -> bool;
    /// Tokenizer and templates.
    fn text(&self) -> Option<&Text>;
}

/// Serves requests on a thread of its own, until it is dropped.
pub struct Service {
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    /// There are requests, or the service ends.
    called: Condvar,
    outbox: Mutex<Outbox>,
    /// There are events, or fewer.
    told: Condvar,
}

/// A request, and when it arrived.
type Arrived = (Order, Instant);

/// Work for the thread.
#[derive(Default)]
struct Calls {
    orders: Vec<Arrived>,
    cancels: Vec<u64>,
}

#[derive(Default)]
struct Inbox {
    calls: Calls,
    closing: bool,
    /// Number of the next request.
    next: u64,
    /// Requests that have not ended.
    live: usize,
    most: usize,
}

#[derive(Default)]
struct Outbox {
    events: VecDeque<Event>,
    counts: Counts,
    /// Readable while there are events.
    fd: Option<OwnedFd>,
    closed: bool,
}

impl Service {
    /// Begins to serve `host`, of whose requests up to `queued` wait.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(host: Arc<dyn Host>, limits: Limits, queued: usize, disk: Option<Disk>) -> Result<Service> {
        let most = limits.running.saturating_add(queued);
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Inbox { most, next: 1, ..Inbox::default() }),
            called: Condvar::new(),
            outbox: Mutex::default(),
            told: Condvar::new(),
        });
        let own = shared.clone();
        let thread = Thread::spawn("llmcc-engine", STACK, move || own.serve(&*host, limits, disk))
            .map_err(|cause| Error::system("cannot start the engine's thread", cause))?;
        Ok(Service { shared, thread: Some(thread) })
    }

    /// Takes a request, and returns its number. The request's own `id` is ignored.
    ///
    /// # Errors
    /// [`Status::Busy`]: so many wait already.
    pub fn submit(&self, order: Order) -> Result<u64> {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.live >= inbox.most {
            let message = format!(
                "the engine has {} requests, as many as it may: try again later, or open it with a larger max_queued",
                inbox.live
            );
            return Err(Error::new(Status::Busy, message));
        }
        let id = inbox.next;
        (inbox.next, inbox.live) = (id + 1, inbox.live + 1);
        inbox.calls.orders.push((Order { id, ..order }, Instant::now()));
        self.shared.called.notify_one();
        Ok(id)
    }

    /// Ends all requests, and the waits of callers for events.
    pub fn close(&self) {
        lock(&self.shared.inbox).closing = true;
        lock(&self.shared.outbox).closed = true;
        self.shared.called.notify_all();
        self.shared.told.notify_all();
    }

    /// Ends a request, which takes no part in the step after the one under way. Its last event says so. Nothing
    /// happens if it has ended.
    pub fn cancel(&self, request: u64) {
        lock(&self.shared.inbox).calls.cancels.push(request);
        self.shared.called.notify_one();
    }

    /// Takes up to `most` events, in their order. Waits for the first one for up to `timeout` (`None`: as long as it
    /// takes).
    ///
    /// # Errors
    /// The wait was interrupted, or the service was closed.
    pub fn poll(&self, most: usize, timeout: Option<Duration>, watch: &Watch) -> Result<Vec<Event>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut outbox = lock(&self.shared.outbox);
        while outbox.events.is_empty() {
            watch.check()?;
            if outbox.closed {
                return Err(Error::new(Status::Interrupted, "the engine was closed"));
            }
            let left = end.map_or(OFTEN, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Vec::new());
            }
            let waited = self.shared.told.wait_timeout(outbox, left.min(OFTEN));
            outbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let n = most.min(outbox.events.len());
        let taken = outbox.events.drain(..n).collect();
        if outbox.events.is_empty() {
            outbox.signal(false);
        }
        drop(outbox);
        // The thread may wait for room.
        self.shared.told.notify_all();
        Ok(taken)
    }

    /// Counts since the service began.
    pub fn counts(&self) -> Counts {
        lock(&self.shared.outbox).counts.clone()
    }

    /// A file descriptor that is readable while there are events. It is the service's.
    ///
    /// # Errors
    /// The system has none to give.
    pub fn fd(&self) -> Result<RawFd> {
        let mut outbox = lock(&self.shared.outbox);
        if outbox.fd.is_none() {
            // SAFETY: a system call without pointers; its result is checked.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                let cause = std::io::Error::last_os_error();
                return Err(Error::system("cannot make a descriptor for the engine's events", cause));
            }
            // SAFETY: a new descriptor, which nobody else owns.
            outbox.fd = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            let some = !outbox.events.is_empty();
            outbox.signal(some);
        }
        Ok(outbox.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Outbox {
    /// Makes the descriptor readable, or not.
    fn signal(&self, readable: bool) {
        let Some(fd) = &self.fd else { return };
        let mut count = 1u64;
        // SAFETY: the descriptor is open, and the buffer has eight bytes. Neither call waits, and where one fails the
        // descriptor is as it should be already.
        unsafe {
            if readable {
                libc::write(fd.as_raw_fd(), (&raw const count).cast(), 8);
            } else {
                libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8);
            }
        }
    }
}

impl Shared {
    /// The thread's work.
    fn serve(&self, host: &dyn Host, limits: Limits, disk: Option<Disk>) {
        let mut core = Core::with_disk(limits, disk);
        while let Some(calls) = self.next(&core) {
            let Some(_inside) = crate::unload::enter() else { return };
            let Some(_memory) = Call::begin() else {
                self.put_back(calls);
                std::thread::sleep(SHORT * 200);
                continue;
            };
            let mut events = Vec::new();
            calls.orders.into_iter().for_each(|(order, arrived)| core.submit(order, arrived));
            let mut engine = host.engine();
            events.extend(calls.cancels.into_iter().filter_map(|id| core.cancel(id, &mut engine)));
            match host.check() {
                Ok(()) => events.extend(core.step(&mut engine, host.text())),
                Err(error) => events.extend(core.close(&error, &mut engine)),
            }
            drop(engine);
            self.tell(events, core.counts());
            // The lock is not fair: others who wait for the model get it now.
            for _ in 0..20 {
                if !host.is_wanted() {
                    break;
                }
                std::thread::sleep(SHORT);
            }
        }
        let gone = Error::new(Status::Interrupted, "the engine was closed");
        let _ = core.close(&gone, &mut host.engine());
    }

    /// New requests and cancellations, as soon as there is something to do; `None`: the service ends.
    fn next(&self, core: &Core) -> Option<Calls> {
        self.wait_for_room();
        let mut inbox = lock(&self.inbox);
        while core.is_idle() && inbox.calls.orders.is_empty() && !inbox.closing {
            inbox.calls.cancels.clear();
            inbox = self.called.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
        (!inbox.closing).then(|| std::mem::take(&mut inbox.calls))
    }

    /// Waits while nobody takes events.
    fn wait_for_room(&self) {
        let mut outbox = lock(&self.outbox);
        while outbox.events.len() >= MOST_EVENTS && !lock(&self.inbox).closing {
            outbox = self.told.wait_timeout(outbox, OFTEN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn put_back(&self, calls: Calls) {
        let mut inbox = lock(&self.inbox);
        inbox.calls.orders.splice(..0, calls.orders);
        inbox.calls.cancels.splice(..0, calls.cancels);
    }

    /// Hands events over.
    fn tell(&self, events: Vec<Event>, counts: Counts) {
        let ended = events.iter().filter(|event| event.end.is_some()).count();
        lock(&self.inbox).live -= ended;
        let mut outbox = lock(&self.outbox);
        outbox.counts = counts;
        if events.is_empty() {
            return;
        }
        if outbox.events.is_empty() {
            outbox.signal(true);
        }
        outbox.events.extend(events);
        drop(outbox);
        self.told.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
