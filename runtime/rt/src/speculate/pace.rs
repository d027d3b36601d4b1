//! How many tokens to guess: more while guesses are right, none while they are wrong.

/// Most guesses for a step.
pub const MOST_GUESSES: usize = 31;
/// Steps in a row without a right guess after which nothing is guessed for a while.
const PATIENCE: u32 = 6;
/// Steps without guesses the first time; twice as many each time that the next guesses are wrong, too.
const PAUSE: u32 = 64;
/// At most.
const LONGEST_PAUSE: u32 = 4096;

/// The number of guesses of the next step, from the results of the last ones.
#[derive(Debug)]
pub struct Pace {
    most: usize,
    /// There are `most` guesses, or none.
    steady: bool,
    /// Guesses that the next step may have.
    allowed: usize,
    /// Steps in a row without a right guess.
    misses: u32,
    /// Steps that are still to be without guesses.
    waits: u32,
    /// Length of the next pause.
    pause: u32,
}

impl Pace {
    /// At most `most` guesses for a step.
    pub fn new(most: usize) -> Pace {
        Pace { most, steady: false, allowed: most, misses: 0, waits: 0, pause: PAUSE }
    }

    /// `most` guesses for a step, or none: for guesses that get better from step to step, also behind wrong ones.
    pub fn steady(most: usize) -> Pace {
        Pace { steady: true, ..Pace::new(most) }
    }

    /// Guesses for the next step.
    pub fn guesses(&self) -> usize {
        if self.waits > 0 { 0 } else { self.allowed }
    }

    /// Learns that of `guessed` tokens `accepted` were right. A step for which the guesser had none counts as one of a
    /// pause, and as nothing else.
    pub fn learn(&mut self, guessed: usize, accepted: usize) {
        if guessed == 0 {
            self.waits = self.waits.saturating_sub(1);
            return;
        }
        // One more than were right: the next that fails tells as much as several.
        self.allowed = match accepted == guessed {
            _ if self.steady => self.most,
            true => (2 * self.allowed).min(self.most),
            false => (accepted + 1).min(self.most),
        };
        if accepted > 0 {
            (self.misses, self.pause) = (0, PAUSE);
            return;
        }
        self.misses += 1;
        if self.misses >= PATIENCE {
            self.waits = self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            // After the pause one miss is enough.
            self.misses = PATIENCE - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guesses of so many steps; `right` says how many of a step are right.
    fn steps(pace: &mut Pace, n: usize, right: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut step = || {
            let guessed = pace.guesses();
            pace.learn(guessed, right(guessed).min(guessed));
            guessed
        };
        (0..n).map(|_| step()).collect()
    }

    /// Where nothing is accepted, drafting falls to none within 32 tokens, and is tried less than once in 64 from there
    /// on.
    #[test]
    fn wrong_guesses_end() {
        let mut pace = Pace::new(8);
        let all = steps(&mut pace, 2000, |_| 0);
        assert_eq!(all[..8], [8, 1, 1, 1, 1, 1, 0, 0]);
        assert!(all[6..70].iter().all(|n| *n == 0) && all[70] == 1);
        assert!(all[6..].iter().sum::<usize>() <= 5, "{}", all[6..].iter().sum::<usize>());
        // They come back when a text becomes easy.
        let all = steps(&mut pace, 5000, |n| n);
        assert_eq!(all[4000..], [8; 1000]);
    }

    #[test]
    fn steady_guesses_are_all_or_none() {
        let mut pace = Pace::steady(8);
        assert_eq!(steps(&mut pace, 5, |_| 1), [8; 5]);
        let all = steps(&mut pace, 72, |_| 0);
        assert_eq!((&all[..6], &all[6..70], all[70]), (&[8; 6][..], &[0; 64][..], 8));
    }

    #[test]
    fn guesses_follow_their_success() {
        let mut pace = Pace::new(8);
        assert_eq!(steps(&mut pace, 4, |_| 2), [8, 3, 3, 3]);
        assert_eq!(steps(&mut pace, 3, |n| n), [3, 6, 8]);
    }
}
