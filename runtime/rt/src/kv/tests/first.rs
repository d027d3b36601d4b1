//! States of the first tokens: their pages stop growing, and stay.

use super::*;

fn first(group: u32, rows: u32) -> StateDesc {
    StateDesc { kind: llmcc_abi::state::FIRST, ..state(group, rows, 64) }
}

/// Pages that a sequence has in each group, without those that a window has left behind.
fn held(kv: &Kv, seq: SeqId) -> Vec<Vec<u32>> {
    let slot = kv.slot(seq).unwrap();
    (0..kv.groups()).map(|group| kv.pages(slot, group).iter().copied().filter(|page| *page != 0).collect()).collect()
}

#[test]
fn pages_of_the_first_tokens_stay() {
    let (mut kv, _) = with_states(&[state(0, 64, 64), first(1, 20)], 4000, 4000);
    let a = kv.seq_new().unwrap();
    for (tokens, want) in [(3, 1), (13, 1), (1, 2), (3, 2), (1, 2)] {
        append(&mut kv, a, tokens).unwrap();
        assert_eq!(kv.pages(kv.slot(a).unwrap(), 1).len(), want, "{tokens} more tokens");
    }
    let began = held(&kv, a)[1].clone();
    append(&mut kv, a, 2000).unwrap();
    assert_eq!(held(&kv, a)[1], began);
    // A window and what is behind it.
    assert!(kv.used_pages() < 16, "{} pages", kv.used_pages());
    kv.seq_free(a).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

/// Whoever goes on behind the first tokens shares their pages; whoever goes on within them gets a copy.
#[test]
fn forks_share_them() {
    let (mut kv, _) = with_states(&[state(0, 64, 64), first(1, 20)], 4000, 4000);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 18).unwrap();
    let b = kv.fork(a).unwrap();
    append(&mut kv, b, 1).unwrap();
    let (of_a, of_b) = (held(&kv, a)[1].clone(), held(&kv, b)[1].clone());
    assert_eq!((of_a[0], of_a.len(), of_b.len()), (of_b[0], 2, 2));
    assert_ne!(of_a[1], of_b[1]);
    append(&mut kv, a, 10).unwrap();
    let c = kv.fork(a).unwrap();
    append(&mut kv, c, 300).unwrap();
    assert_eq!(held(&kv, c)[1], held(&kv, a)[1]);
}

/// A sequence that is saved and comes back has them, and goes on.
#[test]
fn saved_sequences_have_them() {
    let (mut kv, _) = with_states(&[state(0, 64, 64), first(1, 20)], 4000, 4000);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 500).unwrap();
    let all = kv.save(a, (0, 500), true).unwrap();
    let of_first = all.pages.iter().find(|pages| pages.group == 1).unwrap();
    assert_eq!((of_first.first, of_first.count), (0, 2));
    let later = kv.save(a, (100, 500), true).unwrap();
    assert_eq!(later.pages.iter().find(|pages| pages.group == 1).unwrap().count, 0);
    let b = kv.seq_new().unwrap();
    kv.restore(b, &[all]).unwrap();
    append(&mut kv, b, 40).unwrap();
    assert_eq!(held(&kv, b)[1].len(), 2);
}
