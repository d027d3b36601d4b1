//! Requests, and their prompts' tokens.

use crate::numbers::split_mix;

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
        // Each segment's tokens depend on all ids so far, as a chain of hashes does.
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

/// Tells the tokens of a request's own part from tokens of segments.
const OWN: u64 = 0x5EED_0F0E_0A11_0001;

/// A 64-bit mix of all bits.
pub(crate) fn mixed(mut x: u64) -> u64 {
    split_mix(&mut x)
}

#[cfg(test)]
mod tests {
    use super::*;

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
