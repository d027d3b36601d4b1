//! Generated workloads: all at once, by a Poisson process, in a closed loop. A seed decides everything random.

use super::request::{Request, Segment, Workload, mixed};
use crate::numbers::{below, split_mix};
use std::ops::RangeInclusive;

/// Lengths of generated requests, and the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Tokens of a prompt, any in the range being as likely.
    pub prompt: RangeInclusive<usize>,
    /// Tokens of a text, likewise.
    pub output: RangeInclusive<usize>,
    /// Tokens that all prompts begin with.
    pub shared: usize,
    /// Seed of lengths and arrivals.
    pub seed: u64,
}

/// Reads a length, `128`, or a range of lengths, `32-512`.
///
/// # Errors
/// Neither; no tokens at all; the wrong way round.
pub fn parse_lengths(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let parse = |text: &str| match text.parse::<usize>() {
        Ok(tokens) if tokens > 0 => Ok(tokens),
        _ => Err(format!("{text:?} is no length: give tokens, at least 1, or a range of them like 32-512")),
    };
    let (least, most) = (parse(least)?, parse(most)?);
    match least <= most {
        true => Ok(least..=most),
        false => Err(format!("{least}-{most} is empty: give the smaller length first")),
    }
}

/// Deterministic random values.
struct Random {
    state: u64,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random { state: mixed(seed) }
    }

    /// The next value, uniform over all of 64 bits.
    fn next(&mut self) -> u64 {
        split_mix(&mut self.state)
    }

    /// A value of a range.
    fn of(&mut self, range: &RangeInclusive<usize>) -> usize {
        let span = (range.end() - range.start()) as u64 + 1;
        range.start() + below(&mut self.state, span) as usize
    }

    /// The time to the next event of a Poisson process of `rate` events in a unit of time.
    fn exponential(&mut self, rate: f64) -> f64 {
        // In (0, 1].
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln() / rate
    }
}

/// Requests with lengths by chance, which all arrive at the start.
fn requests(count: usize, lengths: &Lengths) -> Vec<Request> {
    let mut random = Random::new(lengths.seed);
    let shared = match lengths.shared {
        0 => vec![],
        tokens => vec![Segment { id: 0, tokens }],
    };
    let one = |_| {
        let (prompt, output) = (random.of(&lengths.prompt), random.of(&lengths.output));
        Request { prompt, output, shared: shared.clone(), ..Request::default() }
    };
    (0..count).map(one).collect()
}

/// All requests at once (Reddi et al. 2020, MLPerf Inference, arXiv 1911.02549: offline).
pub fn offline(count: usize, lengths: &Lengths) -> Workload {
    Workload { name: format!("offline, {count} requests"), requests: requests(count, lengths), users: None }
}

/// Requests at random, `rate` per second on average (as there: server).
pub fn server(rate: f64, count: usize, lengths: &Lengths) -> Workload {
    let mut all = requests(count, lengths);
    // (Lengths are the same at any rate.)
    let mut random = Random::new(!lengths.seed);
    let mut now = 0.0;
    for request in &mut all {
        now += random.exponential(rate);
        request.arrival = now;
    }
    Workload { name: format!("server, {rate} requests/s, {count} requests"), requests: all, users: None }
}

/// A closed loop of users.
pub fn closed(users: usize, count: usize, lengths: &Lengths) -> Workload {
    let name = format!("closed, {users} users, {count} requests");
    Workload { name, requests: requests(count, lengths), users: Some(users) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(seed: u64) -> Lengths {
        Lengths { prompt: 10..=20, output: 5..=5, shared: 3, seed }
    }

    #[test]
    fn a_seed_decides_all() {
        assert_eq!(server(3.0, 50, &lengths(1)), server(3.0, 50, &lengths(1)));
        let (a, b) = (server(3.0, 50, &lengths(1)), server(3.0, 50, &lengths(2)));
        assert_ne!(a.requests, b.requests);
        // At another rate the same requests arrive at other times.
        let fast = server(6.0, 50, &lengths(1));
        for (slow, fast) in a.requests.iter().zip(&fast.requests) {
            assert_eq!((slow.prompt, slow.output), (fast.prompt, fast.output));
            assert!((slow.arrival - 2.0 * fast.arrival).abs() < 1e-9);
        }
    }

    #[test]
    fn arrivals_are_those_of_a_poisson_process() {
        let all = server(4.0, 20_000, &lengths(7)).requests;
        assert!(all.is_sorted_by(|a, b| a.arrival <= b.arrival));
        let gaps: Vec<f64> = all.windows(2).map(|two| two[1].arrival - two[0].arrival).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // Exponential: mean and deviation are the same.
        assert!((mean - 0.25).abs() < 0.01 && (deviation - 0.25).abs() < 0.01, "{mean} {deviation}");
    }

    #[test]
    fn lengths_fill_their_range() {
        let all = offline(1000, &lengths(0)).requests;
        let mut seen: Vec<usize> = all.iter().map(|r| r.prompt).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (10..=20).collect::<Vec<_>>());
        assert!(all.iter().all(|r| r.output == 5 && r.arrival == 0.0 && r.shared[0].tokens == 3));
        assert_eq!(closed(4, 9, &lengths(0)).users, Some(4));
        assert_eq!(parse_lengths("7"), Ok(7..=7));
        assert_eq!(parse_lengths("7-9"), Ok(7..=9));
        for (text, part) in [("0", "at least 1"), ("9-7", "empty"), ("x", "\"x\""), ("1-", "\"\""), ("", "\"\"")] {
            assert!(parse_lengths(text).unwrap_err().contains(part), "{text}");
        }
    }
}
