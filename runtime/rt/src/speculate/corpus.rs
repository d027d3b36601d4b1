//! Guesses from texts of the caller's (REST, He et al., arXiv 2311.08252): the tokens that most often followed the
//! longest ending of a text there.
//!
//! The texts are one list of tokens with a border between two of them. A suffix array has the places of the list in the
//! order of the tokens that follow, so the places that begin with some tokens are next to each other, and among these
//! the ones that go on with the same token. A corpus takes 8 bytes for a token: 4 for the token, 4 for its place.

use std::cmp::Ordering;

use super::pace::MOST_GUESSES;
use crate::error::{Error, Result};
use crate::reserve::need;

/// Most tokens of a corpus, borders included: 512 MiB.
pub const MOST_TOKENS: usize = 1 << 26;
/// Most of the last tokens that are looked for.
const LONGEST: usize = 16;
/// Fewest.
const SHORTEST: usize = 2;
/// Places are in the order of so many tokens: of an ending and its guesses.
const ORDERED: usize = LONGEST + MOST_GUESSES;
/// Stands between two texts, less than any token.
const BORDER: i32 = i32::MIN;

/// Texts to guess from.
pub struct Corpus {
    tokens: Vec<i32>,
    /// Places of all tokens, by the tokens from there on.
    places: Vec<u32>,
}

impl Corpus {
    /// A corpus of these tokens, of a vocabulary of `vocab`; a negative number stands between two texts. Takes about as
    /// long as sorting so many numbers, and 8 bytes for each.
    ///
    /// # Errors
    /// More than [`MOST_TOKENS`]; a token outside the vocabulary; the system has no memory.
    pub fn new(tokens: &[i32], vocab: usize) -> Result<Corpus> {
        if tokens.len() > MOST_TOKENS {
            return Err(Error::invalid(format!(
                "the corpus has {} tokens, and may have {MOST_TOKENS}: leave out a part of its texts",
                tokens.len()
            )));
        }
        if let Some((i, token)) =
            tokens.iter().enumerate().find(|(_, t)| usize::try_from(**t).is_ok_and(|t| t >= vocab))
        {
            let message = format!("token {token} at index {i} of the corpus is outside the vocabulary of {vocab}");
            return Err(Error::invalid(message));
        }
        need(8 * tokens.len())?;
        let tokens: Vec<i32> = tokens.iter().map(|t| if *t < 0 { BORDER } else { *t }).collect();
        let mut places: Vec<u32> = Vec::with_capacity(tokens.len());
        places.extend((0..tokens.len() as u32).filter(|at| tokens[*at as usize] != BORDER));
        // Places of texts that are equal up to `ORDERED` tokens are in any order: they are counted, and nothing else.
        places.sort_unstable_by(|a, b| compare(&tokens, *a, *b));
        Ok(Corpus { tokens, places })
    }

    /// Tokens, borders included.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it has no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Up to `n` tokens after the longest ending of `text` that the corpus goes on after, of 2 to 16 tokens: each is
    /// the one that most often follows the ending and the guesses before it, the smallest of several.
    pub fn after(&self, text: &[i32], n: usize) -> Vec<i32> {
        let longest = text.iter().rev().take(LONGEST).take_while(|token| **token >= 0).count();
        for length in (SHORTEST..=longest).rev() {
            let matches = self.beginning_with(&text[text.len() - length..]);
            let guesses = self.most_frequent(matches, length, n.min(MOST_GUESSES));
            if !guesses.is_empty() {
                return guesses;
            }
        }
        Vec::new()
    }

    /// The token so many places behind one.
    fn token(&self, place: u32, behind: usize) -> i32 {
        self.tokens.get(place as usize + behind).copied().unwrap_or(BORDER)
    }

    /// The places from which on these tokens stand.
    fn beginning_with(&self, tokens: &[i32]) -> &[u32] {
        let order = |place: &u32| {
            let from = &self.tokens[*place as usize..];
            from[..from.len().min(tokens.len())].cmp(tokens)
        };
        let first = self.places.partition_point(|place| order(place) == Ordering::Less);
        let rest = &self.places[first..];
        &rest[..rest.partition_point(|place| order(place) == Ordering::Equal)]
    }

    /// The `n` most frequent tokens, one after the other, behind `length` tokens that all of `matches` begin with.
    fn most_frequent(&self, mut matches: &[u32], length: usize, n: usize) -> Vec<i32> {
        let mut guesses = Vec::with_capacity(n);
        while guesses.len() < n {
            let behind = length + guesses.len();
            let (mut best, mut rest) = (&matches[..0], matches);
            while let Some(first) = rest.first() {
                let token = self.token(*first, behind);
                let (same, others) = rest.split_at(rest.partition_point(|p| self.token(*p, behind) == token));
                if token != BORDER && same.len() > best.len() {
                    best = same;
                }
                rest = others;
            }
            let Some(first) = best.first() else { break };
            guesses.push(self.token(*first, behind));
            matches = best;
        }
        guesses
    }
}

/// The order of two places by the tokens from there on.
fn compare(tokens: &[i32], a: u32, b: u32) -> Ordering {
    let from = |place: u32| {
        let rest = &tokens[place as usize..];
        &rest[..rest.len().min(ORDERED)]
    };
    from(a).cmp(from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses by trying every place, as the method is defined.
    fn by_definition(tokens: &[i32], text: &[i32], n: usize) -> Vec<i32> {
        for length in (2..=text.len().min(16)).rev() {
            let mut known = text[text.len() - length..].to_vec();
            let start = known.len();
            while known.len() < start + n {
                let mut counts = std::collections::BTreeMap::new();
                for at in 0..tokens.len().saturating_sub(known.len()) {
                    let next = tokens[at + known.len()];
                    if tokens[at..].starts_with(&known) && next >= 0 {
                        *counts.entry(next).or_insert(0) += 1;
                    }
                }
                let Some(most) = counts.values().max() else { break };
                let next = counts.iter().find(|(_, count)| *count == most).map(|(token, _)| *token);
                known.extend(next);
            }
            if known.len() > start {
                return known.split_off(start);
            }
        }
        vec![]
    }

    #[test]
    fn guesses_are_those_of_the_definition() {
        let mut state = 5u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut longer = 0;
        for round in 0..300 {
            let vocab = 2 + below(5);
            let tokens: Vec<i32> =
                (0..below(200)).map(|_| if below(20) == 0 { -7 } else { below(vocab) as i32 }).collect();
            let corpus = Corpus::new(&tokens, 9).unwrap();
            for _ in 0..10 {
                // Some texts are parts of the corpus, with an end of their own.
                let from = below(tokens.len() as u64 + 1) as usize;
                let mut text: Vec<i32> = tokens[from..].iter().take(20).copied().filter(|t| *t >= 0).collect();
                text.extend((0..below(4)).map(|_| below(vocab) as i32));
                let n = 1 + below(31) as usize;
                let want = by_definition(&tokens, &text, n);
                longer += usize::from(want.len() > 2);
                assert_eq!(corpus.after(&text, n), want, "round {round}: {text:?} in {tokens:?}");
            }
        }
        assert!(longer > 500, "{longer}");
    }

    #[test]
    fn the_most_frequent_continuation_is_taken() {
        // After 1 2: 3 twice, 4 once; after 1 2 3: 9 and 8 once each, and the smaller is taken.
        let corpus = Corpus::new(&[1, 2, 3, 9, -1, 1, 2, 4, -1, 1, 2, 3, 8], 10).unwrap();
        assert_eq!(corpus.after(&[7, 1, 2], 5), [3, 8]);
        // The longest ending counts.
        let corpus = Corpus::new(&[1, 2, 3, -1, 1, 2, 3, -1, 5, 1, 2, 4], 10).unwrap();
        assert_eq!((corpus.after(&[1, 2], 1), corpus.after(&[5, 1, 2], 1)), (vec![3], vec![4]));
        // A text goes on neither behind its end nor in the next one, and one token is too few.
        assert!(corpus.after(&[2, 3], 4).is_empty() && corpus.after(&[2], 4).is_empty());
        assert!(corpus.after(&[], 4).is_empty() && corpus.after(&[1, -3], 4).is_empty());
        assert!(Corpus::new(&[], 10).unwrap().after(&[1, 2], 4).is_empty());
    }

    #[test]
    fn repetitive_texts_are_sorted_and_large_ones_refused() {
        let corpus = Corpus::new(&vec![3; 100_000], 4).unwrap();
        assert_eq!(corpus.after(&[3; 40], 31), [3; 31]);
        let error = Corpus::new(&[1, 4], 4).err().unwrap().message;
        assert!(error.contains("token 4 at index 1 of the corpus is outside the vocabulary of 4"), "{error}");
        let error = Corpus::new(&vec![1; MOST_TOKENS + 1], 4).err().unwrap().message;
        assert!(error.contains("the corpus has 67108865 tokens, and may have 67108864"), "{error}");
    }
}
