//! Parts of sequences that leave the cache and come back.

use super::*;
use llmcc_abi::state::{FIRST, FIXED, STRIDED};

/// Groups of every kind: all tokens, rows of four, a window, a state of fixed size, the first tokens.
fn every_kind() -> Kv {
    let strided = StateDesc { kind: STRIDED, ..state(1, 4, 32) };
    let fixed = StateDesc { kind: FIXED, ..state(3, 0, 96) };
    let first = StateDesc { kind: FIRST, ..state(4, 20, 80) };
    with_states(&[state(0, 0, 64), strided, state(2, 40, 48), fixed, first, state(0, 0, 16)], 4000, 4000).0
}

fn paged() -> Kv {
    let strided = StateDesc { kind: STRIDED, ..state(1, 4, 32) };
    with_states(&[state(0, 0, 64), strided], 4000, 4000).0
}

/// Appends `n` tokens, and writes other bytes into each page that they change.
fn grow(kv: &mut Kv, seq: SeqId, n: usize, seed: &mut u32) {
    let slot = kv.slot(seq).unwrap();
    let len = kv.slot_len(slot, 0);
    kv.reserve(0, &[(slot, n)], n).unwrap();
    kv.extend(slot, 0, n).unwrap();
    for group in 0..kv.groups() {
        let shape = kv.layout.groups[group];
        let first = shape.changed_page(len).unwrap_or_else(|| shape.pages_at(len));
        let pages = kv.pages(slot, group)[first..].to_vec();
        for page in pages {
            let mut next = || {
                *seed = seed.wrapping_mul(0x915f_77f5).wrapping_add(1);
                (*seed >> 24) as u8
            };
            let bytes: Vec<u8> = (0..shape.page_bytes).map(|_| next()).collect();
            kv.store.load(group, page, &bytes).unwrap();
        }
    }
    for i in 0..n {
        if (len + i).is_multiple_of(7) {
            let at = kv.next_position(slot, 0) + 3;
            kv.place(slot, 0, &[at, at + 1, at]);
        }
        kv.commit(slot, 0, (len + i) as i32 % 91);
    }
    kv.slide(slot, 0);
    kv.keep(slot, 0);
}

#[test]
fn sequences_come_back_whole() {
    let mut seed = 1;
    for (lengths, mut kv) in [([1, 16, 100], every_kind()), ([13, 30, 400], every_kind()), ([5, 11, 77], paged())] {
        let a = kv.seq_new().unwrap();
        lengths.iter().for_each(|n| grow(&mut kv, a, *n, &mut seed));
        let len = lengths.iter().sum();
        let whole = kv.save(a, (0, len), true).unwrap();
        assert_eq!(pack(&packed(&whole)).unwrap().len(), kv.packed_len(a).unwrap());
        assert_eq!(unpack(&pack(&packed(&whole)).unwrap(), true).unwrap().part, whole);
        // In one part; and in several, whose inner ones lack windows and states of fixed size.
        for borders in [vec![0, len], vec![0, 16, len], vec![0, 16, 48, 80, len]] {
            let parts: Vec<Saved> =
                borders.windows(2).map(|b| kv.save(a, (b[0], b[1]), b[1] == len).unwrap()).collect();
            let mut other = if kv.by_chunks(0) { every_kind() } else { paged() };
            let other = if len % 2 == 0 { &mut other } else { &mut kv };
            let b = other.seq_new().unwrap();
            if other.by_chunks(0) {
                other.restore(b, &parts).unwrap();
            } else {
                parts.iter().for_each(|part| other.restore(b, std::slice::from_ref(part)).unwrap());
            }
            assert_eq!(other.save(b, (0, len), true).unwrap(), whole, "{borders:?}");
            other.audit().unwrap();
            // It goes on, is cut and freed as any other.
            grow(other, b, 30, &mut seed);
            other.truncate(b, other.reusable(b, len).unwrap()).unwrap();
            other.seq_free(b).unwrap();
            other.audit().unwrap();
        }
        kv.seq_free(a).unwrap();
        assert_eq!(kv.used_pages(), 0);
    }
}

fn packed(part: &Saved) -> Packed {
    Packed { part: part.clone(), ..Packed::default() }
}

/// A part that another one goes on from the middle of is cut there.
#[test]
fn parts_are_cut() {
    let (mut kv, mut seed) = (paged(), 5);
    let a = kv.seq_new().unwrap();
    grow(&mut kv, a, 100, &mut seed);
    let b = kv.fork(a).unwrap();
    kv.truncate(b, 37).unwrap();
    grow(&mut kv, b, 60, &mut seed);
    let mut first = kv.save(a, (0, 100), true).unwrap();
    kv.cut_saved(&mut first, 32).unwrap();
    assert_eq!((first.end(), first.pages[0].count, first.pages[1].count), (32, 2, 1));
    let second = kv.save(b, (32, 97), true).unwrap();
    let whole = kv.save(b, (0, 97), true).unwrap();
    let c = kv.seq_new().unwrap();
    kv.restore(c, &[first, second]).unwrap();
    assert_eq!(kv.save(c, (0, 97), true).unwrap(), whole);
    kv.audit().unwrap();
}

/// Nothing of another shape gets in, and nothing is taken where there is no room.
#[test]
fn other_parts_are_refused() {
    let (mut kv, mut seed) = (every_kind(), 9);
    let a = kv.seq_new().unwrap();
    grow(&mut kv, a, 60, &mut seed);
    grow(&mut kv, a, 50, &mut seed);
    let whole = kv.save(a, (0, 110), true).unwrap();
    let b = kv.seq_new().unwrap();
    let changes: [&dyn Fn(&mut Saved); 12] = [
        &|s| s.from = 1,
        &|s| s.ends = false,
        &|s| s.tokens.truncate(90),
        &|s| s.tokens.resize(5000, 1),
        &|s| drop(s.pages.remove(0)),
        &|s| drop(s.pages.pop()),
        &|s| s.pages[0].count += 1,
        &|s| s.pages[0].first = 1,
        &|s| s.pages[1].bytes.truncate(7),
        &|s| s.pages[2].first = usize::MAX,
        &|s| s.pages[3].snapshots.push(1),
        &|s| s.pages[3].snapshots[0] = 4000,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut other = whole.clone();
        change(&mut other);
        let error = kv.restore(b, &[other]).unwrap_err();
        assert_eq!(error.status, Status::Artifact, "{i}: {error:?}");
        assert_eq!(kv.tokens(b).unwrap().len(), 0);
        kv.audit().unwrap();
    }
    assert!(kv.save(a, (0, 50), true).is_err() && kv.save(a, (0, 111), false).is_err());
    let mut small = with_states(&[state(0, 0, 64)], 64, 4000).0;
    let c = small.seq_new().unwrap();
    append(&mut small, c, 40).unwrap();
    let part = small.save(c, (0, 40), true).unwrap();
    let d = small.seq_new().unwrap();
    assert_eq!(small.restore(d, &[part]).unwrap_err().status, Status::CacheFull);
    small.audit().unwrap();
}
