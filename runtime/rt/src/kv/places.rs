//! Positions of a sequence's tokens along axes, of a model whose tokens have such.

use llmcc_abi::AXES;

/// The tokens of a list that do not have, along all axes, one more than the largest position before them.
#[derive(Clone, Default)]
pub(super) struct Places(Vec<Moved>);

/// A token with positions of its own.
#[derive(Clone, Copy)]
struct Moved {
    token: usize,
    at: [i32; AXES],
    /// One more than the largest position up to it.
    next: i32,
}

impl Places {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One more than the largest position of the first `len` tokens.
    pub fn next(&self, len: usize) -> i32 {
        let last = self.0.partition_point(|m| m.token < len).checked_sub(1).and_then(|i| self.0.get(i));
        let (token, next) = last.map_or((0, 0), |m| (m.token + 1, m.next));
        next.saturating_add((len - token) as i32)
    }

    /// Token number `token`, the next one, has the positions `at`.
    pub fn push(&mut self, token: usize, at: [i32; AXES]) {
        let next = self.next(token);
        if at != [next; AXES] {
            self.0.push(Moved { token, at, next: after(next, &at) });
        }
    }

    /// The tokens from number `from` on that have positions of their own, with these.
    pub fn from(&self, from: usize) -> impl Iterator<Item = (usize, [i32; AXES])> {
        self.0.iter().filter(move |m| m.token >= from).map(|m| (m.token, m.at))
    }

    /// Forgets all tokens but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(self.0.partition_point(|m| m.token < len));
    }

    /// How many of the first `len` tokens have the positions `given`, `[tokens, AXES]`; tokens beyond these have the
    /// usual ones.
    pub fn agree(&self, given: &[i32], len: usize) -> usize {
        let mut other = Places::default();
        let (all, _) = given.as_chunks::<AXES>();
        all.iter().take(len).enumerate().for_each(|(token, at)| other.push(token, *at));
        let both = self.0.iter().map(Some).chain([None]).zip(other.0.iter().map(Some).chain([None]));
        let place = |m: Option<&Moved>| m.map_or(len, |m| m.token);
        for (own, other) in both {
            if own.map(|m| (m.token, m.at)) != other.map(|m| (m.token, m.at)) {
                return place(own).min(place(other)).min(len);
            }
        }
        len
    }
}

/// The usual position after a token with the positions `at`, where that of the token itself was `next`.
fn after(next: i32, at: &[i32]) -> i32 {
    at.iter().map(|p| p.saturating_add(1)).fold(next, i32::max)
}

/// Appends the positions of a token, `own` or along all axes the usual one, which `next` is; it becomes that of the
/// token after it.
pub(crate) fn append(to: &mut Vec<i32>, own: Option<&[i32]>, axes: usize, next: &mut i32) {
    let start = to.len();
    match own {
        Some(own) => to.extend_from_slice(own),
        None => to.extend(std::iter::repeat_n(*next, axes)),
    }
    *next = after(*next, &to[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two texts around an image of two rows of three.
    fn image() -> Vec<i32> {
        let mut all = vec![[0; 3], [1; 3]];
        all.extend((0..6).map(|i| [2, 2 + i / 3, 2 + i % 3]));
        all.extend([[5; 3], [6; 3]]);
        all.concat()
    }

    fn of(given: &[i32]) -> Places {
        let mut places = Places::default();
        given.as_chunks::<AXES>().0.iter().enumerate().for_each(|(i, at)| places.push(i, *at));
        places
    }

    #[test]
    fn the_next_position_follows_the_largest() {
        let places = of(&image());
        // The first row of an image begins where a text's token would.
        assert_eq!(places.len(), 5);
        let next: Vec<i32> = (0..=12).map(|len| places.next(len)).collect();
        assert_eq!(next, [0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9]);
        for (len, next) in next.iter().enumerate().take(11) {
            let mut cut = places.clone();
            cut.truncate(len);
            assert_eq!(cut.next(len), *next);
        }
    }

    #[test]
    fn sequences_agree_up_to_the_first_other_position() {
        let (places, given) = (of(&image()), image());
        assert_eq!(places.agree(&given, 10), 10);
        assert_eq!(places.agree(&given[..30], 14), 14);
        // Without positions, all tokens up to the image's second have the usual ones.
        assert_eq!(places.agree(&[], 10), 3);
        assert_eq!(Places::default().agree(&given, 10), 3);
        assert_eq!(Places::default().agree(&[], 10), 10);
        let mut other = given.clone();
        other[3 * 6 + 2] = 9;
        assert_eq!(places.agree(&other, 10), 6);
        assert_eq!(places.agree(&other, 5), 5);
    }
}
