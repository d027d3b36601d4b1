//! Counts and times of the router, as Prometheus reads them.

use crate::fleet::{Fleet, State};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the router began.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Requests that were passed on.
    pub(crate) requests: Count,
    /// Attempts at replicas that failed.
    pub(crate) failures: Count,
    /// Streams that went on at another replica.
    pub(crate) resumed: Count,
    /// Tokens that these had been given before.
    pub(crate) resumed_tokens: Count,
    /// Replicas that went on with another text.
    pub(crate) different: Count,
    /// Requests that no replica could serve, and streams that none could go on with.
    pub(crate) lost: Count,
    /// Parts of streams that were passed on.
    pub(crate) parts: Count,
    /// Nanoseconds that parts of streams spent here, until they were handed to the client's connection.
    pub(crate) part_ns: Count,
}

/// A count.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to it.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds a time in nanoseconds.
    pub(crate) fn time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metrics {
    /// The page.
    pub(crate) fn page(&self, fleet: &Fleet) -> String {
        let mut page = String::new();
        for (name, count, help) in [
            ("requests_total", &self.requests, "Requests that were passed on"),
            ("failed_attempts_total", &self.failures, "Attempts at replicas that failed"),
            ("resumed_streams_total", &self.resumed, "Streams that went on at another replica"),
            ("resumed_tokens_total", &self.resumed_tokens, "Tokens that these had before"),
            ("different_texts_total", &self.different, "Replicas that went on with another text"),
            ("lost_requests_total", &self.lost, "Requests and streams that no replica could serve"),
            ("parts_total", &self.parts, "Parts of streams that were passed on"),
        ] {
            family(&mut page, name, "counter", help);
            let _ = writeln!(page, "llmcc_route_{name} {}", count.get());
        }
        family(&mut page, "part_seconds_total", "counter", "Time that parts of streams spent in the router");
        let _ = writeln!(page, "llmcc_route_part_seconds_total {:.9}", self.part_ns.get() as f64 / 1e9);
        family(&mut page, "replica_up", "gauge", "1: the replica takes requests");
        for replica in &fleet.replicas {
            let up = u8::from(replica.state() == State::Up);
            let _ = writeln!(page, "llmcc_route_replica_up{{replica=\"{}\"}} {up}", replica.authority);
        }
        family(&mut page, "replica_requests", "gauge", "Requests of the router that the replica has");
        for replica in &fleet.replicas {
            let n = replica.under_way();
            let _ = writeln!(page, "llmcc_route_replica_requests{{replica=\"{}\"}} {n}", replica.authority);
        }
        page
    }
}

fn family(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP llmcc_route_{name} {help}.\n# TYPE llmcc_route_{name} {kind}");
}
