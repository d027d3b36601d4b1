//! Workloads: requests with their arrivals, read from a trace or generated, for `bench` to send and for `simulate` to
//! predict.
//!
//! The same workload has the same requests and tokens everywhere: generated ones depend on their options and seed alone.

pub mod figures;
pub mod generated;
pub mod trace;

use crate::Error;
use crate::numbers::split_mix;
use generated::Lengths;
use std::path::PathBuf;

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Seconds from the start of the workload until it arrives.
    pub arrival: f64,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of its text.
    pub output: usize,
    /// Segments that its prompt begins with and shares with other prompts that begin with the same.
    pub shared: Vec<Segment>,
    /// Larger ones go first.
    pub priority: i32,
    /// Seconds from its arrival after which it ends in any case.
    pub deadline: Option<f64>,
}

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Prompts with the same ids up to here have the same tokens up to here.
    pub id: u64,
    /// Tokens.
    pub tokens: usize,
}

/// Requests, and who sends them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// For headings.
    pub name: String,
    /// In the order of their arrivals.
    pub requests: Vec<Request>,
    /// So many users send them, each the next one when its last one has ended; arrivals say nothing then. `None`: each
    /// arrives at its time.
    pub users: Option<usize>,
}

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

    /// The requests of the scenario. `lengths` are those of generated ones.
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

impl Workload {
    /// The longest sequence that one of its requests becomes, in tokens.
    pub fn longest(&self) -> usize {
        self.requests.iter().map(|r| r.prompt.saturating_add(r.output)).max().unwrap_or(0)
    }

    /// The prompt of request `i`, of a vocabulary of so many tokens.
    pub fn prompt(&self, i: usize, vocab: usize) -> Vec<i32> {
        let Some(request) = self.requests.get(i) else { return vec![] };
        let vocab = vocab.max(1) as u64;
        let mut tokens = Vec::with_capacity(request.prompt);
        // Each segment's tokens depend on all ids so far, as those of a chain of hashes do.
        let mut chain = 0;
        for segment in &request.shared {
            chain = mixed(chain ^ mixed(segment.id));
            let room = request.prompt - tokens.len();
            tokens.extend((0..segment.tokens.min(room) as u64).map(|at| (mixed(chain ^ at) % vocab) as i32));
        }
        let own = mixed(OWN ^ i as u64);
        tokens.extend((tokens.len()..request.prompt).map(|at| (mixed(own ^ at as u64) % vocab) as i32));
        tokens
    }
}

/// Tells the tokens of a request's own part from those of segments.
const OWN: u64 = 0x5EED_0F0E_0A11_0001;

/// A 64-bit mix of all bits.
pub(crate) fn mixed(mut x: u64) -> u64 {
    split_mix(&mut x)
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

    #[test]
    fn prompts_share_the_segments_that_they_begin_with() {
        let request = |ids: &[u64], prompt: usize| Request {
            prompt,
            output: 1,
            shared: ids.iter().map(|id| Segment { id: *id, tokens: 4 }).collect(),
            ..Request::default()
        };
        let requests = vec![request(&[1, 2], 10), request(&[1, 3], 10), request(&[1, 2], 6), request(&[], 10)];
        let all = Workload { name: String::new(), requests, users: None };
        let prompts: Vec<Vec<i32>> = (0..4).map(|i| all.prompt(i, 1 << 20)).collect();
        let same = |a: usize, b: usize| prompts[a].iter().zip(&prompts[b]).take_while(|(a, b)| a == b).count();
        assert_eq!(prompts.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 6, 10]);
        assert_eq!((same(0, 1), same(0, 2), same(0, 3)), (4, 6, 0));
        assert!(prompts.iter().flatten().all(|t| (0..1 << 20).contains(t)));
        assert_eq!(all.prompt(0, 1 << 20), prompts[0], "the same each time");
        assert!(all.prompt(0, 7).iter().all(|t| (0..7).contains(t)));
        assert_eq!((all.prompt(9, 7), all.longest()), (vec![], 11));
    }
}
