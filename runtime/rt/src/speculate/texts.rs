//! Guesses from earlier texts: the tokens that followed where the last ones stood there (as in REST, He et al. 2023,
//! arXiv 2311.08252, with texts of the same engine as its datastore).
//!
//! Texts are in a ring, and a table leads from the hash of a few tokens to the place behind them, the last one. Tokens
//! are compared there, so a wrong entry of the table costs a guess and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens that must be the same.
const GRAM: usize = 3;
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
        let text = &text[from.saturating_sub(GRAM).min(text.len())..];
        for (i, token) in text.iter().enumerate() {
            ring.push(*token);
            if i + 1 >= GRAM {
                let (hash, behind) = (hash(&text[i + 1 - GRAM..=i]), ring.written as u32);
                ring.places[hash] = behind;
            }
        }
    }

    /// Up to `n` tokens that followed the last ones of `text`.
    pub fn after(&self, text: &[i32], n: usize) -> Vec<i32> {
        let ring = self.ring();
        let Some(last) = text.last_chunk::<GRAM>() else { return Vec::new() };
        let Some(place) = ring.places.get(hash(last)) else { return Vec::new() };
        // Numbers of tokens go round, as the ring does.
        let back = (ring.written as u32).wrapping_sub(*place) as usize;
        if back == 0 || back + GRAM > ring.tokens.len() {
            return Vec::new();
        }
        let at = ring.written - back;
        if last.iter().enumerate().any(|(i, token)| ring.token(at - GRAM + i) != *token) {
            return Vec::new();
        }
        (at..ring.written).map(|i| ring.token(i)).take_while(|token| *token != BORDER).take(n).collect()
    }
}

impl Ring {
    fn push(&mut self, token: i32) {
        if self.places.is_empty() {
            self.places = vec![0; 2 * RING];
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
        // Tokens further before are not of it, nor does a text go on in the next one.
        assert!(texts.after(&[9, 8, 1], 4).is_empty());
        texts.add(&[7, 7, 7], 0);
        assert!(texts.after(&[4, 5, 6], 4).is_empty() && texts.after(&[3, 4], 4).is_empty());
        // The last text counts.
        texts.add(&[1, 2, 3, 40], 3);
        assert_eq!(texts.after(&[1, 2, 3], 4), [40]);
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
