//! The order in which requests are served: by priority, then as FastServe's queues of several levels (Wu et al. 2023,
//! arXiv 2305.05920).
//!
//! A request begins in the first level and sinks as it is served, so a short answer does not wait for the end of long
//! ones. Whoever takes no part in steps rises, through levels and then through priorities, so nobody waits for ever.

/// Tokens served in the first level; each further level has four times as many.
const QUANTUM: u64 = 512;
/// Steps without a part in them that lift a request by one level.
const LEVEL_PATIENCE: u64 = 64;
/// Steps without a part in them that lift a request by one priority.
const PATIENCE: u64 = 1024;

/// Facts about a request that decide its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Larger ones go first.
    pub priority: i32,
    /// Its number in the order of arrival.
    pub arrival: u64,
    /// Tokens, of prompt and text, that steps have computed for it.
    pub served: u64,
    /// The step before which it arrived, or the last one that it took part in.
    pub since: u64,
}

/// A rank. Smaller ones are served first.
pub type Rank = (i64, u32, u64);

impl Standing {
    /// The rank before step number `step`.
    pub fn rank(&self, step: u64) -> Rank {
        let waited = step.saturating_sub(self.since);
        let lifted = i64::try_from(waited / PATIENCE).unwrap_or(i64::MAX / 2);
        let level = level(self.served).saturating_sub(u32::try_from(waited / LEVEL_PATIENCE).unwrap_or(u32::MAX));
        (-(i64::from(self.priority) + lifted), level, self.arrival)
    }
}

/// The level of a request for which so many tokens were computed.
fn level(served: u64) -> u32 {
    (served / QUANTUM).checked_ilog2().map_or(0, |log| log / 2 + 1)
}

/// Indices of the `most` best of `all`, the best first.
pub fn first(all: impl Iterator<Item = Standing>, step: u64, most: usize) -> Vec<usize> {
    let mut ranks: Vec<(Rank, usize)> = all.enumerate().map(|(i, s)| (s.rank(step), i)).collect();
    if most < ranks.len() && most > 0 {
        ranks.select_nth_unstable(most - 1);
    }
    ranks.truncate(most);
    ranks.sort_unstable();
    ranks.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_then_level_then_arrival() {
        let of = |priority, served, arrival| Standing { priority, served, arrival, since: 0 };
        let all = [of(0, 0, 0), of(0, 5000, 1), of(1, 1 << 20, 2), of(0, 0, 3), of(-1, 0, 4)];
        assert_eq!(first(all.into_iter(), 0, 9), [2, 0, 3, 1, 4]);
        assert_eq!(first(all.into_iter(), 0, 2), [2, 0]);
        assert_eq!(first(all.into_iter(), 0, 0), [0; 0]);
        assert_eq!([0, 511, 512, 2047, 2048, 8191, 8192].map(level), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn who_waits_rises() {
        let waits = Standing { priority: -3, arrival: 7, served: 1 << 30, since: 0 };
        let served = |step| Standing { priority: 0, arrival: 0, served: 0, since: step };
        assert!(waits.rank(3 * PATIENCE - 1) > served(3 * PATIENCE - 1).rank(3 * PATIENCE - 1));
        assert!(waits.rank(4 * PATIENCE) < served(4 * PATIENCE).rank(4 * PATIENCE));
    }

    /// A million requests of random priorities and lengths arrive almost as fast as they can be served: all are, and
    /// none waits for more steps than its priority and the queue before it explain.
    #[test]
    fn nobody_starves() {
        struct Job {
            standing: Standing,
            left: u64,
            arrived: u64,
        }
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        const PLACES: usize = 8;
        let (mut jobs, mut next, mut done, mut longest): (Vec<Job>, u64, u64, u64) = (vec![], 0, 0, 0);
        let mut step = 0;
        while done < 1_000_000 {
            // Nine tenths of what eight places serve: a mean length of 17 is a request every 2.4 steps.
            while next < 1_000_000 && random(100) < 30 {
                // Every fiftieth one is long.
                let left = if random(50) == 0 { 1 + random(400) } else { 1 + random(26) };
                let priority = random(3) as i32 - 1;
                let standing = Standing { priority, arrival: next, served: 0, since: step };
                jobs.push(Job { standing, left, arrived: step });
                next += 1;
            }
            for i in first(jobs.iter().map(|j| j.standing), step, PLACES) {
                let job = &mut jobs[i];
                (job.standing.since, job.left) = (step, job.left - 1);
                job.standing.served += 64;
                longest = longest.max(step - job.arrived);
            }
            let before = jobs.len();
            jobs.retain(|j| j.left > 0);
            done += (before - jobs.len()) as u64;
            step += 1;
        }
        assert!(next == 1_000_000 && jobs.is_empty());
        println!("{step} steps, the longest stay {longest}");
        assert!(longest < 64 * PATIENCE, "a request stayed for {longest} steps");
    }
}
