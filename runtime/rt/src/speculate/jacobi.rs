//! Guesses from the model's own predictions behind wrong guesses: Jacobi's iteration over the next places of a text
//! (Santilli et al., arXiv 2305.10427; CLLM, arXiv 2403.00835), and Lookahead's pool of n-grams from it (Fu et al.,
//! arXiv 2402.02057).
//!
//! A step evaluates the last token and some guesses, and predicts a token after each. The predictions behind the first
//! wrong guess follow from a wrong text; as guesses of the next step at the places that they are for, they become right
//! one after the other. A model that was trained to get there at once (CLLM) needs few steps.

use std::collections::BTreeMap;

/// Tokens of an n-gram: the first one leads to the others.
const GRAM: usize = 4;
/// First tokens whose n-grams are kept, of each the last one.
const GRAMS: usize = 4096;

/// A step of the model, as [`Jacobi`] learns from it.
pub struct Step<'a> {
    /// The text after it, with the tokens that it made.
    pub history: &'a [i32],
    /// Guesses that it evaluated.
    pub guesses: &'a [i32],
    /// The choice after the last known token, and after each guess, as far as they could be made.
    pub predicted: &'a [i32],
    /// Guesses that became part of the text.
    pub accepted: usize,
}

/// The predictions of the last step, and n-grams of all of them.
#[derive(Default)]
pub struct Jacobi {
    /// Predictions for the places behind the text.
    rest: Vec<i32>,
    /// Tokens of the text that they are behind.
    at: usize,
    /// Guesses of the next step before the first that nothing predicted.
    founded: usize,
    pool: Option<Pool>,
}

impl Jacobi {
    /// Guesses by the predictions of the last step alone.
    pub fn plain() -> Jacobi {
        Jacobi::default()
    }

    /// Guesses by n-grams of all predictions, and where there is none by the predictions of the last step.
    pub fn lookahead() -> Jacobi {
        Jacobi { pool: Some(Pool::default()), ..Jacobi::default() }
    }

    /// `n` guesses after a text. At places that nothing predicted stand tokens of the text, as CLLM begins with random
    /// ones of the prompt.
    pub fn guess(&mut self, history: &[i32], n: usize) -> Vec<i32> {
        let Some(last) = history.last() else { return Vec::new() };
        let mut guesses = self.pool.as_mut().map(|pool| pool.after(*last, n)).unwrap_or_default();
        let rest = if self.at == history.len() { &self.rest[..] } else { &[] };
        guesses.extend(rest.iter().take(n).skip(guesses.len()));
        self.founded = guesses.len();
        guesses.extend((guesses.len()..n).map(|place| any(history, history.len() + place)));
        guesses
    }

    /// Learns from a step.
    pub fn learn(&mut self, step: &Step) {
        self.rest.clear();
        self.rest.extend(step.predicted.iter().skip(step.accepted + 1));
        self.at = step.history.len();
        if let Some(pool) = &mut self.pool {
            // The text before the step: it made the accepted guesses and a token more.
            let known = step.history.len().saturating_sub(step.accepted + 1);
            let context = &step.history[known.saturating_sub(GRAM - 1)..known];
            let seen = [context, step.guesses].concat();
            // Tokens that nothing predicted are no beginnings; n-grams of the text itself come last, and stay.
            let founded = step.predicted.iter().enumerate().take(self.founded.max(step.accepted) + 1);
            let (right, wrong): (Vec<_>, Vec<_>) = founded.partition(|(i, _)| *i <= step.accepted);
            for (i, token) in wrong.into_iter().chain(right) {
                if let Some(before) = seen[..context.len() + i].last_chunk::<{ GRAM - 1 }>() {
                    pool.add(before, *token);
                }
            }
        }
        self.founded = 0;
    }
}

/// Any token of a text, the same each time.
fn any(history: &[i32], place: usize) -> i32 {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    history[mixed as usize % history.len()]
}

/// N-grams by their first tokens; the ones used longest ago are forgotten.
#[derive(Default)]
struct Pool {
    /// With the time of the last use.
    grams: BTreeMap<i32, ([i32; GRAM - 1], u64)>,
    /// First tokens by the time of their last use.
    used: BTreeMap<u64, i32>,
    time: u64,
}

impl Pool {
    /// Keeps an n-gram.
    fn add(&mut self, before: &[i32; GRAM - 1], token: i32) {
        let mut rest = [token; GRAM - 1];
        rest[..GRAM - 2].copy_from_slice(&before[1..]);
        self.touch(before[0], rest);
        if self.grams.len() > GRAMS
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.grams.remove(&oldest);
        }
    }

    /// Sets the n-gram of a first token, which is used now.
    fn touch(&mut self, first: i32, rest: [i32; GRAM - 1]) {
        self.time += 1;
        if let Some((_, before)) = self.grams.insert(first, (rest, self.time)) {
            self.used.remove(&before);
        }
        self.used.insert(self.time, first);
    }

    /// Up to `n` tokens after a token: its n-gram's, then the n-gram's of the last one of these, and so on.
    fn after(&mut self, mut last: i32, n: usize) -> Vec<i32> {
        let mut guesses = Vec::with_capacity(n);
        while guesses.len() < n
            && let Some((rest, _)) = self.grams.get(&last).copied()
        {
            self.touch(last, rest);
            guesses.extend(rest.iter().take(n - guesses.len()));
            last = rest[GRAM - 2];
        }
        guesses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_behind_a_wrong_guess_are_the_next_guesses() {
        let mut jacobi = Jacobi::plain();
        let first = jacobi.guess(&[7, 8], 3);
        assert!(first.len() == 3 && first.iter().all(|token| [7, 8].contains(token)));
        assert_eq!(jacobi.guess(&[7, 8], 3), first);
        // The first guess was right, the second wrong.
        jacobi.learn(&Step { history: &[7, 8, 1, 2], guesses: &[1, 9, 9], predicted: &[1, 2, 3, 4], accepted: 1 });
        let guesses = jacobi.guess(&[7, 8, 1, 2], 3);
        assert_eq!(guesses[..2], [3, 4]);
        assert!([7, 8, 1, 2].contains(&guesses[2]));
        // They are for one place only.
        assert!(jacobi.guess(&[7, 8, 1, 2, 7], 1) != [3]);
        assert!(jacobi.guess(&[], 3).is_empty());
    }

    #[test]
    fn ngrams_are_found_by_their_first_tokens() {
        let mut jacobi = Jacobi::lookahead();
        jacobi.guess(&[1, 2, 3], 2);
        jacobi.learn(&Step { history: &[1, 2, 3, 4], guesses: &[0, 0], predicted: &[4, 50, 60], accepted: 0 });
        // 1 leads to 2 3 4, and nothing to the predictions behind tokens that nothing predicted.
        assert_eq!(jacobi.guess(&[9, 1], 5)[..3], [2, 3, 4]);
        let pool = jacobi.pool.as_ref().map(|pool| pool.grams.len());
        assert_eq!(pool, Some(1));
        // The guesses 50 60 were predicted: 2 3 4 leads to 70, 3 4 50 to 71.
        assert_eq!(jacobi.guess(&[1, 2, 3, 4], 2), [50, 60]);
        jacobi.learn(&Step { history: &[1, 2, 3, 4, 70], guesses: &[50, 60], predicted: &[70, 71, 72], accepted: 0 });
        assert_eq!(jacobi.guess(&[0, 2], 3), [3, 4, 70]);
        assert_eq!(jacobi.guess(&[0, 3], 3), [4, 50, 71]);
        // N-grams follow each other.
        assert_eq!(jacobi.guess(&[0, 4], 3), [50, 60, 72]);
    }

    #[test]
    fn the_pool_forgets_what_was_used_longest_ago() {
        let mut pool = Pool::default();
        (0..GRAMS as i32).for_each(|first| pool.add(&[first, 1, 2], 3));
        assert_eq!(pool.after(0, 3), [1, 2, 3]);
        (0..10).for_each(|i| pool.add(&[100_000 + i, 1, 2], 3));
        assert_eq!((pool.grams.len(), pool.used.len()), (GRAMS, GRAMS));
        assert!(pool.after(1, 3).is_empty() && !pool.after(0, 3).is_empty());
    }
}
