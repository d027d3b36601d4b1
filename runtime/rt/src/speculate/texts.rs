//! Guesses from earlier texts: the tokens that followed where the longest ending of a text stood there (as in REST, He
//! et al. 2023, arXiv 2311.08252, with texts of the same engine as its datastore).
//!
//! Texts are in a ring. A table leads from the hash of a few tokens to the place behind them, the last one, and from
//! there a list to earlier ones (as in LZ77's hash chains). Tokens are compared there, so a wrong entry of the table
//! costs a guess and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens that must be the same.
const GRAM: usize = 3;
/// Most tokens that are compared.
const LONGEST: usize = 16;
/// Places that are compared, the last ones first.
const TRIES: usize = 32;
/// Tokens of the ring.
const RING: usize = 1 << 16;
/// Stands between two texts: no token has this number, and hardly a row of an image.
const BORDER: i32 = i32::MIN;
/// Tenants whose texts are kept.
const TENANTS: usize = 16;

/// Texts, to guess from.
#[derive(Default)]
pub struct Texts(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    tokens: Vec<i32>,
    /// Tokens so far; the ring has the last of them.
    written: usize,
    /// By the hash of tokens, the number of the token behind them.
    places: Vec<u32>,
    /// By the place of a token in the ring, the number of an earlier one behind tokens of the same hash.
    earlier: Vec<u32>,
}

impl Texts {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the end of a text from its token number `from` on. It is found by the tokens before, too.
    pub fn add(&self, text: &[i32], from: usize) {
        let mut ring = self.ring();
        ring.push(BORDER);
        let text = &text[from.saturating_sub(LONGEST).min(text.len())..];
        for (i, token) in text.iter().enumerate() {
            ring.push(*token);
            if i + 1 >= GRAM {
                let (hash, behind) = (hash(&text[i + 1 - GRAM..=i]), ring.written as u32);
                let before = std::mem::replace(&mut ring.places[hash], behind);
                ring.earlier[behind as usize % RING] = before;
            }
        }
    }

    /// Up to `n` tokens that followed the longest ending of `text`, of 3 to 16 tokens, the last time that it stood.
    pub fn after(&self, text: &[i32], n: usize) -> Vec<i32> {
        let ring = self.ring();
        let Some(at) = ring.longest(text) else { return Vec::new() };
        (at..ring.written).map(|i| ring.token(i)).take_while(|token| *token != BORDER).take(n).collect()
    }
}

impl Ring {
    fn push(&mut self, token: i32) {
        if self.places.is_empty() {
            (self.places, self.earlier) = (vec![0; 2 * RING], vec![0; RING]);
        }
        match self.tokens.len() < RING {
            true => self.tokens.push(token),
            false => self.tokens[self.written % RING] = token,
        }
        self.written += 1;
    }

    fn token(&self, i: usize) -> i32 {
        self.tokens[i % RING]
    }

    /// The number of the token behind the longest ending of a text, the last one of several, among the last places with
    /// the hash of its last tokens.
    fn longest(&self, text: &[i32]) -> Option<usize> {
        let mut place = *self.places.get(hash(text.last_chunk::<GRAM>()?))?;
        let (mut best, mut nearest) = (None, None);
        for _ in 0..TRIES {
            // Numbers of tokens go round, as the ring does; lists go back.
            let back = (self.written as u32).wrapping_sub(place) as usize;
            if nearest.is_some_and(|nearest| back <= nearest) || back + GRAM > self.tokens.len() {
                break;
            }
            let at = self.written - back;
            // A place without a token behind it is none.
            let is_end = back == 0 || self.token(at) == BORDER;
            let length = if is_end { 0 } else { self.common(text, at, self.tokens.len() - back) };
            if length >= GRAM && best.is_none_or(|(longest, _)| length > longest) {
                best = Some((length, at));
            }
            if length == LONGEST {
                break;
            }
            (place, nearest) = (self.earlier[place as usize % RING], Some(back));
        }
        best.map(|(_, at)| at)
    }

    /// Tokens, at most `most`, that the end of a text has in common with those before token number `at`.
    fn common(&self, text: &[i32], at: usize, most: usize) -> usize {
        let pairs = text.iter().rev().take(LONGEST.min(most)).enumerate();
        pairs.take_while(|(i, token)| self.token(at - 1 - i) == **token && **token != BORDER).count()
    }
}

/// A place of the table.
fn hash(tokens: &[i32]) -> usize {
    let mixed = tokens.iter().fold(0u64, |h, token| (h ^ *token as u32 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mixed >> 32) as usize % (2 * RING)
}

/// Texts of each tenant; a tenant that was not heard of for long is forgotten.
#[derive(Default)]
pub struct Tenants(Vec<(u64, Arc<Texts>)>);

impl Tenants {
    /// The texts of a tenant.
    pub fn of(&mut self, salt: u64) -> Arc<Texts> {
        let found = self.0.iter().position(|(own, _)| *own == salt);
        let own = match found {
            Some(at) => self.0.remove(at),
            None => (salt, Arc::default()),
        };
        let texts = own.1.clone();
        self.0.push(own);
        if self.0.len() > TENANTS {
            self.0.remove(0);
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_texts_are_found() {
        let texts = Texts::default();
        assert!(texts.after(&[1, 2, 3], 4).is_empty());
        texts.add(&[9, 8, 1, 2, 3, 4, 5, 6], 5);
        assert_eq!(texts.after(&[0, 1, 2, 3], 2), [4, 5]);
        assert_eq!(texts.after(&[2, 3, 4], 9), [5, 6]);
        // A text does not go on in the next one.
        texts.add(&[7, 7, 7], 0);
        assert!(texts.after(&[4, 5, 6], 4).is_empty() && texts.after(&[3, 4], 4).is_empty());
        // The last text counts.
        texts.add(&[1, 2, 3, 40], 3);
        assert_eq!(texts.after(&[1, 2, 3], 4), [40]);
    }

    /// Guesses by trying every place of all texts, as the method is defined.
    fn by_definition(all: &[i32], text: &[i32], n: usize) -> Vec<i32> {
        let common = |at: usize| {
            let pairs = all[..at].iter().rev().zip(text.iter().rev()).take(LONGEST);
            pairs.take_while(|(a, b)| a == b && **a != BORDER).count()
        };
        let places = (0..all.len()).filter(|at| all[*at] != BORDER && common(*at) >= GRAM);
        let Some(at) = places.max_by_key(|at| (common(*at), *at)) else { return vec![] };
        all[at..].iter().copied().take_while(|token| *token != BORDER).take(n).collect()
    }

    #[test]
    fn the_longest_ending_counts() {
        let texts = Texts::default();
        texts.add(&[5, 6, 1, 2, 3, 4], 0);
        texts.add(&[1, 2, 3, 40], 0);
        assert_eq!(texts.after(&[5, 6, 1, 2, 3], 1), [4]);
        assert_eq!(texts.after(&[9, 6, 1, 2, 3], 1), [4]);
        assert_eq!(texts.after(&[9, 1, 2, 3], 1), [40]);
        let mut state = 3u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut found = 0;
        for round in 0..100 {
            let (texts, mut all) = (Texts::default(), vec![]);
            // (So few tokens with the same last three that all of them are tried.)
            for _ in 0..1 + below(4) {
                let text: Vec<i32> = (0..below(40)).map(|_| below(4) as i32).collect();
                texts.add(&text, 0);
                all.push(BORDER);
                all.extend(&text);
            }
            for _ in 0..20 {
                let from = below(all.len() as u64) as usize;
                let mut text: Vec<i32> = all[from..].iter().copied().filter(|t| *t != BORDER).take(20).collect();
                text.extend((0..below(3)).map(|_| below(4) as i32));
                let want = by_definition(&all, &text, 5);
                found += usize::from(!want.is_empty());
                assert_eq!(texts.after(&text, 5), want, "round {round}: {text:?} in {all:?}");
            }
        }
        assert!(found > 500, "{found}");
    }

    /// The ring forgets the oldest tokens; whatever the table says then, guesses are tokens of it.
    #[test]
    fn the_ring_goes_round() {
        let texts = Texts::default();
        let all: Vec<i32> = (0..3 * RING as i32 + 100).map(|i| i % 50_021).collect();
        all.chunks(1000).for_each(|text| texts.add(text, 0));
        let end = all.len() - 40;
        assert_eq!(texts.after(&all[..end], 5), all[end..end + 5]);
        for from in (0..all.len() - 20).step_by(61) {
            let guesses = texts.after(&all[from..from + 5], 8);
            let follows = |at: usize| all[at + 5..].starts_with(&guesses);
            let same = (0..all.len() - 5).filter(|at| all[*at + 2..*at + 5] == all[from + 2..from + 5]);
            assert!(guesses.is_empty() || same.into_iter().any(follows), "{from}: {guesses:?}");
        }
    }

    #[test]
    fn tenants_know_nothing_of_each_other() {
        let mut tenants = Tenants::default();
        tenants.of(1).add(&[1, 2, 3, 4], 0);
        assert_eq!(tenants.of(1).after(&[1, 2, 3], 4), [4]);
        assert!(tenants.of(2).after(&[1, 2, 3], 4).is_empty());
        (10..10 + TENANTS as u64).for_each(|salt| drop(tenants.of(salt)));
        assert!(tenants.of(1).after(&[1, 2, 3], 4).is_empty());
    }
}
