//! Delta debugging: the smallest part of a list that still fails.
//!
//! Zeller and Hildebrandt, *Simplifying and isolating failure-inducing input* (IEEE TSE 28(2), 2002), algorithm
//! `ddmin`.

/// A part of `all` that fails, and that no longer does without any one of its members. `fails` is asked for parts
/// of the list, in its order; it is taken to be true for the whole list, and false for an empty one. A part about
/// which nothing can be said does not fail.
pub(crate) fn ddmin<T: Clone>(all: &[T], fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut now = all.to_vec();
    let mut pieces = 2;
    while now.len() > 1 {
        let size = now.len().div_ceil(pieces);
        let bounds = || (0..now.len()).step_by(size).map(|from| (from, (from + size).min(now.len())));
        let one = bounds().map(|(from, to)| now[from..to].to_vec()).find(|part| fails(part));
        if let Some(part) = one {
            (now, pieces) = (part, 2);
            continue;
        }
        let without = |(from, to): (usize, usize)| [&now[..from], &now[to..]].concat();
        let rest = if pieces > 2 { bounds().map(without).find(|part| fails(part)) } else { None };
        if let Some(rest) = rest {
            (now, pieces) = (rest, pieces - 1);
        } else if pieces < now.len() {
            pieces = (2 * pieces).min(now.len());
        } else {
            break;
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair and triple of ten is found, and nothing more, in far fewer questions than there are parts.
    #[test]
    fn the_smallest_part_is_found() {
        let all: Vec<usize> = (0..10).collect();
        for a in 0..10 {
            for b in a..10 {
                for c in b..10 {
                    let mut wanted = vec![a, b, c];
                    wanted.dedup();
                    let mut asked = 0;
                    let found = ddmin(&all, &mut |part| {
                        asked += 1;
                        wanted.iter().all(|w| part.contains(w))
                    });
                    assert_eq!(found, wanted);
                    assert!(asked < 80, "{asked} questions for {wanted:?}");
                }
            }
        }
    }

    /// Of two causes one is found; a single suspect needs no question.
    #[test]
    fn one_of_several_causes_is_enough() {
        let found = ddmin(&[1, 2, 3, 4], &mut |part| part.contains(&2) || part.contains(&3));
        assert_eq!(found.len(), 1);
        assert_eq!(ddmin(&[7], &mut |_| panic!("asked")), [7]);
    }
}
