//! States of the first tokens: their pages stop growing, and stay.

use super::*;

fn first(group: u32, rows: u32) -> StateDesc {
    StateDesc { kind: llmcc_abi::state::FIRST, ..state(group, rows, 64) }
}

/// The pages of a sequence's first tokens.
fn held(kv: &Kv, seq: SeqId) -> Vec<u32> {
    kv.pages(kv.slot(seq).unwrap(), 1).to_vec()
}

/// A window, and 20 first tokens.
fn sinks() -> Kv {
    with_states(&[state(0, 64, 64), first(1, 20)], 4000, 4000).0
}

fn grow(kv: &mut Kv, seq: SeqId, n: usize) {
    append_chunks(kv, seq, n, 32).unwrap();
}

#[test]
fn pages_of_the_first_tokens_stay() {
    let mut kv = sinks();
    let a = kv.seq_new().unwrap();
    for (tokens, want) in [(3, 1), (13, 1), (1, 2), (3, 2), (1, 2)] {
        grow(&mut kv, a, tokens);
        assert_eq!(held(&kv, a).len(), want, "{tokens} more tokens");
    }
    let began = held(&kv, a);
    grow(&mut kv, a, 2000);
    assert_eq!(held(&kv, a), began);
    // A window and what is behind it.
    assert!(kv.used_pages() < 16, "{} pages", kv.used_pages());
    kv.seq_free(a).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

/// Whoever goes on behind the first tokens shares their pages; whoever goes on within them gets a copy.
#[test]
fn forks_share_them() {
    let mut kv = sinks();
    let a = kv.seq_new().unwrap();
    grow(&mut kv, a, 18);
    let b = kv.fork(a).unwrap();
    grow(&mut kv, b, 1);
    let (of_a, of_b) = (held(&kv, a), held(&kv, b));
    assert_eq!((of_a[0], of_a.len(), of_b.len()), (of_b[0], 2, 2));
    assert_ne!(of_a[1], of_b[1]);
    grow(&mut kv, a, 10);
    let c = kv.fork(a).unwrap();
    grow(&mut kv, c, 300);
    assert_eq!(held(&kv, c), held(&kv, a));
}

/// A sequence that is saved and comes back has them, and goes on.
#[test]
fn saved_sequences_have_them() {
    let mut kv = sinks();
    let a = kv.seq_new().unwrap();
    grow(&mut kv, a, 500);
    let all = kv.save(a, (0, 500), true).unwrap();
    let of_first = all.pages.iter().find(|pages| pages.group == 1).unwrap();
    assert_eq!((of_first.first, of_first.count), (0, 2));
    let later = kv.save(a, (100, 500), true).unwrap();
    assert_eq!(later.pages.iter().find(|pages| pages.group == 1).unwrap().count, 0);
    let b = kv.seq_new().unwrap();
    kv.restore(b, &[all]).unwrap();
    grow(&mut kv, b, 40);
    assert_eq!(held(&kv, b).len(), 2);
}
