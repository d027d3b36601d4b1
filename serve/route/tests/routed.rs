//! A router over replicas that are servers over a stand-in for a model, with a fuse before each.

use crate::client::{Reply, get, post};
use crate::fuse::Fuse;
use crate::stand_in::{Running, StandIn};
use llmcc_route::{Router, Settings, Stopper};
use serde_json::Value;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

/// The name of a router's thread.
pub const THREAD: &str = "router";

/// A router that runs.
pub struct Routed {
    pub address: SocketAddr,
    pub stopper: Stopper,
    pub replicas: Vec<Running>,
    pub fuses: Vec<Fuse>,
    thread: Option<JoinHandle<()>>,
}

impl Routed {
    /// A router of some models.
    pub fn new(models: Vec<StandIn>) -> Routed {
        Routed::with(models, |_| {})
    }
    pub fn with(models: Vec<StandIn>, change: impl FnOnce(&mut Settings)) -> Routed {
        let replicas: Vec<Running> = models.into_iter().map(|model| Running::start(model, |_| {})).collect();
        Routed::of(replicas, change)
    }
    /// A router of some servers.
    pub fn of(replicas: Vec<Running>, change: impl FnOnce(&mut Settings)) -> Routed {
        let fuses: Vec<Fuse> = replicas.iter().map(|replica| Fuse::new(replica.address)).collect();
        let mut settings = Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            replicas: fuses.iter().map(|fuse| format!("http://{}", fuse.address)).collect(),
            check: Duration::from_millis(50),
            connect: Duration::from_millis(500),
            // A fuse has its plan for each connection.
            idle: 0,
            ..Settings::default()
        };
        change(&mut settings);
        let router = Router::bind(settings).expect("bound");
        let (address, stopper) = (router.address(), router.stopper());
        let named = std::thread::Builder::new().name(THREAD.into());
        let thread = Some(named.spawn(move || router.run().expect("routed")).expect("a thread"));
        Routed { address, stopper, replicas, fuses, thread }
    }
    /// Letters at two replicas.
    pub fn letters() -> Routed {
        Routed::new((0..2).map(|_| StandIn::new(64, Duration::from_millis(1))).collect())
    }
    pub fn post(&self, path: &str, ask: &Value) -> Reply {
        post(self.address, path, ask)
    }
    /// A count of the router's.
    pub fn count(&self, name: &str) -> u64 {
        let page = get(self.address, "/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("llmcc_route_{name} ")).map(str::to_owned));
        line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {page}"))
    }
    /// Which of the replicas a request goes to.
    pub fn home(&self, path: &str, ask: &Value) -> usize {
        let before: Vec<u64> = self.replicas.iter().map(|replica| replica.model.all()).collect();
        let reply = self.post(path, ask);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let found = self.replicas.iter().zip(before).position(|(replica, before)| replica.model.all() > before);
        found.expect("one was asked")
    }
    /// Waits for its end.
    pub fn join(&mut self) {
        self.thread.take().expect("once").join().expect("no panic");
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        self.stopper.stop();
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A text in which identifiers and times, which differ from request to request, are the same.
pub fn constant(text: &str) -> String {
    let mut out = text.to_owned();
    for (name, ends) in [
        ("\"id\":\"", '"'),
        ("\"created\":", ','),
        ("\"created\":", '}'),
        ("\"created_at\":", ','),
        ("\"item_id\":\"", '"'),
        ("\"predicted_ms\":", ','),
        ("\"tokens_cached\":", ','),
    ] {
        let mut parts = out.split(name);
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|part| {
            let end = part.find(ends).unwrap_or(part.len());
            let value = &part[..end];
            let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            let of_call = value.starts_with("call_") || !value.contains("call");
            if plain && of_call { format!("{name}0{}", &part[end..]) } else { format!("{name}{part}") }
        });
        out = first + &rest.collect::<String>();
    }
    out
}
