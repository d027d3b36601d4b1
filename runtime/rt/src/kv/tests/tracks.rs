//! Tracks: lists of tokens of one sequence, whose states are in groups of their own.

use super::*;

fn two_tracks(tokens: usize) -> Kv {
    let fixed = StateDesc { kind: llmcc_abi::state::FIXED, group: 1, bytes: 64, ..StateDesc::default() };
    let second = |s: StateDesc, group| StateDesc { group, track: 1, ..s };
    with_states(&[state(0, 0, 64), fixed, second(state(0, 0, 64), 2), second(fixed, 3)], tokens, 1000).0
}

fn append_to(kv: &mut Kv, seq: SeqId, track: usize, n: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(track, &[(slot, n)], n)?;
    kv.extend(slot, track, n)?;
    (0..n).for_each(|i| kv.commit(slot, track, i as i32));
    kv.keep(slot, track);
    Ok(())
}

fn lengths(kv: &Kv, seq: SeqId) -> [usize; 2] {
    let slot = kv.slot(seq).unwrap();
    [kv.slot_len(slot, 0), kv.slot_len(slot, 1)]
}

fn pages(kv: &Kv, seq: SeqId) -> [usize; 4] {
    let slot = kv.slot(seq).unwrap();
    [0, 1, 2, 3].map(|group| kv.pages(slot, group).len())
}

/// Each track grows, is cut and goes back by itself; to begin anew is to lose all of them.
#[test]
fn tracks_grow_and_shrink_by_themselves() {
    let mut kv = two_tracks(200);
    assert_eq!(kv.tracks(), 2);
    let a = kv.seq_new().unwrap();
    append_to(&mut kv, a, 0, 40).unwrap();
    assert_eq!((lengths(&kv, a), pages(&kv, a)), ([40, 0], [3, 1, 0, 0]));
    append_to(&mut kv, a, 1, 17).unwrap();
    append_to(&mut kv, a, 1, 3).unwrap();
    assert_eq!((lengths(&kv, a), pages(&kv, a)), ([40, 20], [3, 1, 2, 1]));
    let b = kv.fork(a).unwrap();
    kv.truncate_track(a, 1, 17).unwrap();
    assert!(kv.truncate_track(a, 1, 16).unwrap_err().message.contains("there is no snapshot"));
    assert_eq!((lengths(&kv, a), lengths(&kv, b)), ([40, 17], [40, 20]));
    kv.take_back(kv.slot(a).unwrap(), 0, 39);
    assert_eq!(lengths(&kv, a), [0, 17]);
    append_to(&mut kv, a, 0, 5).unwrap();
    kv.truncate(a, 0).unwrap();
    assert_eq!((lengths(&kv, a), pages(&kv, a)), ([0, 0], [0; 4]));
    kv.seq_free(a).unwrap();
    kv.seq_free(b).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

/// A track that has no room leaves the others as they are.
#[test]
fn a_full_track_is_refused() {
    let mut kv = two_tracks(32);
    let a = kv.seq_new().unwrap();
    append_to(&mut kv, a, 0, 32).unwrap();
    append_to(&mut kv, a, 1, 16).unwrap();
    assert_eq!(append_to(&mut kv, a, 1, 17).unwrap_err().status, Status::CacheFull);
    assert_eq!((lengths(&kv, a), pages(&kv, a)), ([32, 16], [2, 1, 1, 1]));
    append_to(&mut kv, a, 1, 16).unwrap();
    assert_eq!(append_to(&mut kv, a, 1, 1).unwrap_err().status, Status::CacheFull);
}
