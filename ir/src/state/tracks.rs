//! Tracks: the lists of tokens that a sequence has.
//!
//! Entries that update the same states append to the same list of tokens, a *track*. A draft head has keys and values
//! of its own, so its entry has a track of its own in each sequence: shorter than the model's by the tokens that the
//! head has not seen. An encoder's track holds the source of a translation. Tracks follow from the states that entries
//! update; nothing declares them.

use std::collections::BTreeSet;

/// The track of each entry and state. Track 0 is that of the first entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracks {
    /// By entry.
    pub entries: Vec<usize>,
    /// By state; a state that no entry updates (a matrix of an adapter) is of track 0.
    pub states: Vec<usize>,
    /// An entry that updates states of several tracks, and one of these states.
    pub mixed: Option<(usize, usize)>,
}

impl Tracks {
    /// The tracks of entries that update these of `states` states.
    pub fn of(states: usize, updated: &[BTreeSet<usize>]) -> Tracks {
        let mut of_state: Vec<Option<usize>> = vec![None; states];
        let (mut entries, mut next, mut mixed) = (vec![], 1, None);
        for (entry, updated) in updated.iter().enumerate() {
            let known = updated.iter().filter_map(|s| of_state.get(*s).copied().flatten()).min();
            let track = match known {
                Some(track) => track,
                // An entry that updates nothing has no list of its own.
                None if entry == 0 || updated.is_empty() => 0,
                None => {
                    next += 1;
                    next - 1
                }
            };
            for &s in updated {
                let Some(of) = of_state.get_mut(s) else { continue };
                if *of.get_or_insert(track) != track {
                    mixed = mixed.or(Some((entry, s)));
                }
            }
            entries.push(track);
        }
        Tracks { entries, states: of_state.into_iter().map(Option::unwrap_or_default).collect(), mixed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracks(states: usize, updated: &[&[usize]]) -> Tracks {
        Tracks::of(states, &updated.iter().map(|u| u.iter().copied().collect()).collect::<Vec<_>>())
    }

    /// Entries with states of their own have tracks of their own.
    #[test]
    fn tracks_follow_from_updates() {
        let t = tracks(5, &[&[0, 1], &[0, 1], &[2], &[4], &[]]);
        assert_eq!((t.entries, t.states, t.mixed), (vec![0, 0, 1, 2, 0], vec![0, 0, 1, 0, 2], None));
        // The first entry updates nothing, the second does.
        assert_eq!(tracks(1, &[&[], &[0]]).entries, [0, 1]);
        assert_eq!(tracks(2, &[&[0], &[1], &[0, 1]]).mixed, Some((2, 1)));
    }
}
