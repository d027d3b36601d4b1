//! Workloads: requests with their arrivals, read from a trace or generated, for `bench` to send and for `simulate` to
//! predict.
//!
//! The same workload has the same requests and tokens everywhere: generated ones depend on their options and seed
//! alone.

pub mod figures;
pub mod generated;
mod request;
pub mod trace;

pub use request::{Request, Segment, Workload};

use crate::Error;
use generated::Lengths;
use std::path::PathBuf;

/// A workload as the command line names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scenario {
    /// All requests arrive at once (MLPerf's offline scenario).
    Offline {
        /// How many.
        requests: usize,
    },
    /// They arrive at random, independently of each other (MLPerf's server scenario: a Poisson process).
    Server {
        /// Requests per second, on average.
        rate: f64,
        /// How many.
        requests: usize,
    },
    /// Users send them, each the next one when its last one has ended.
    Closed {
        /// How many at once.
        users: usize,
        /// How many requests, of all users.
        requests: usize,
    },
    /// A file says when.
    Trace(PathBuf),
}

/// Requests of a scenario that does not say how many.
const REQUESTS: usize = 64;

impl Scenario {
    /// Reads `offline[:REQUESTS]`, `server:RATE[:REQUESTS]`, `closed:USERS[:REQUESTS]` or the path of a trace.
    ///
    /// # Errors
    /// A count or rate that is none.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let count = |what: &str, text: &str| match text.parse::<usize>() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(format!("{what} is {text:?}: give a count of at least 1")),
        };
        let requests = |at: usize| rest.get(at).map_or(Ok(REQUESTS), |text| count("REQUESTS", text));
        let few = |most: usize| match rest.len() > most {
            true => Err(format!("{text}: there is too much after {kind:?}")),
            false => Ok(()),
        };
        match (kind, rest.first()) {
            ("offline", _) => few(1).and_then(|()| Ok(Scenario::Offline { requests: requests(0)? })),
            ("server", Some(rate)) => {
                few(2)?;
                let per_second = rate.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
                let rate = per_second.ok_or(format!("RATE is {rate:?}: give requests per second, more than 0"))?;
                Ok(Scenario::Server { rate, requests: requests(1)? })
            }
            ("closed", Some(users)) => {
                few(2)?;
                Ok(Scenario::Closed { users: count("USERS", users)?, requests: requests(1)? })
            }
            ("server" | "closed", None) => {
                Err(format!("{kind} needs a value: server:RATE[:REQUESTS], closed:USERS[:REQUESTS]"))
            }
            _ => Ok(Scenario::Trace(PathBuf::from(text))),
        }
    }

    /// The requests of the scenario. `lengths` are for generated ones.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn workload(&self, lengths: &Lengths) -> Result<Workload, Error> {
        match self {
            Scenario::Offline { requests } => Ok(generated::offline(*requests, lengths)),
            Scenario::Server { rate, requests } => Ok(generated::server(*rate, *requests, lengths)),
            Scenario::Closed { users, requests } => Ok(generated::closed(*users, *requests, lengths)),
            Scenario::Trace(path) => trace::read(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_by_name() {
        let of = Scenario::parse;
        assert_eq!(of("offline"), Ok(Scenario::Offline { requests: 64 }));
        assert_eq!(of("offline:7"), Ok(Scenario::Offline { requests: 7 }));
        assert_eq!(of("server:2.5"), Ok(Scenario::Server { rate: 2.5, requests: 64 }));
        assert_eq!(of("server:2:9"), Ok(Scenario::Server { rate: 2.0, requests: 9 }));
        assert_eq!(of("closed:8:16"), Ok(Scenario::Closed { users: 8, requests: 16 }));
        assert_eq!(of("./server"), Ok(Scenario::Trace("./server".into())));
        for (text, part) in [
            ("server", "server:RATE"),
            ("closed", "closed:USERS"),
            ("server:0", "more than 0"),
            ("server:inf", "more than 0"),
            ("server:x", "\"x\""),
            ("closed:0", "at least 1"),
            ("offline:1:2", "too much"),
            ("closed:1:2:3", "too much"),
            ("server:1:0", "REQUESTS"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
