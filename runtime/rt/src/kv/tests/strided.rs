//! States with a row for several tokens: their pages hold as many times more tokens.

use super::*;

fn strided(group: u32, every: u32, bytes: u64) -> StateDesc {
    StateDesc { kind: llmcc_abi::state::STRIDED, ..state(group, every, bytes) }
}

/// Pages of a sequence in each group.
fn pages(kv: &Kv, seq: SeqId) -> Vec<Vec<u32>> {
    let slot = kv.slot(seq).unwrap();
    (0..kv.groups()).map(|group| kv.pages(slot, group).to_vec()).collect()
}

fn counts(kv: &Kv, seq: SeqId) -> Vec<usize> {
    pages(kv, seq).iter().map(Vec::len).collect()
}

#[test]
fn pages_are_of_whole_rows() {
    let (mut kv, _) = with_states(&[state(0, 0, 64), strided(1, 4, 64), strided(2, 100, 64)], 2000, 2000);
    let a = kv.seq_new().unwrap();
    // Tokens of no whole window have no row; 16 rows fill a page.
    for (tokens, want) in
        [(3, [1, 0, 0]), (1, [1, 1, 0]), (60, [4, 1, 0]), (3, [5, 1, 0]), (1, [5, 2, 0]), (32, [7, 2, 1])]
    {
        append(&mut kv, a, tokens).unwrap();
        assert_eq!(counts(&kv, a), want, "{tokens} more tokens");
    }
    assert_eq!(kv.used_bytes(), 10 * 64);
    append(&mut kv, a, 1500).unwrap();
    assert_eq!(counts(&kv, a), [100, 25, 1]);
    append(&mut kv, a, 100).unwrap();
    assert_eq!(counts(&kv, a), [107, 27, 2]);
    for (len, want) in [(1599, [100, 25, 1]), (68, [5, 2, 0]), (67, [5, 1, 0]), (3, [1, 0, 0])] {
        kv.truncate(a, len).unwrap();
        assert_eq!(counts(&kv, a), want, "cut to {len}");
    }
    kv.seq_free(a).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

/// Who goes on gets a copy of a page that has room for another row, and no other.
#[test]
fn forks_share_full_pages() {
    let (mut kv, pools) = with_states(&[state(0, 0, 64), strided(1, 4, 64)], 2000, 2000);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 4 * 20 + 1).unwrap();
    let last = pages(&kv, a)[1][1];
    // SAFETY: inside the pool.
    unsafe { pools[1].add(last as usize * 64).write_bytes(7, 64) };
    let b = kv.fork(a).unwrap();
    assert_eq!(pages(&kv, a), pages(&kv, b));
    append(&mut kv, b, 3).unwrap();
    let (of_a, of_b) = (pages(&kv, a)[1].clone(), pages(&kv, b)[1].clone());
    assert_eq!((of_a[0], of_a.len(), of_b.len()), (of_b[0], 2, 2));
    assert_ne!(of_a[1], of_b[1]);
    // SAFETY: as above.
    assert_eq!(unsafe { pools[1].add(of_b[1] as usize * 64 + 63).read() }, 7);
    // After sixteen rows the next page is one's own.
    let c = kv.seq_new().unwrap();
    append(&mut kv, c, 66).unwrap();
    let d = kv.fork(c).unwrap();
    append(&mut kv, d, 2).unwrap();
    let (of_c, of_d) = (pages(&kv, c)[1].clone(), pages(&kv, d)[1].clone());
    assert_eq!((of_c.as_slice(), of_d.len()), (&of_d[..1], 2));
}

/// Allocated pools are as much smaller, but for the pages that sequences begin.
#[test]
fn allocated_pools_are_smaller() {
    let descs = [state(0, 0, 64), strided(1, 4, 64), strided(2, 128, 64)];
    let layout = Layout::allocated(&descs, 1 << 16, 512).unwrap();
    assert_eq!(layout.groups.iter().map(|g| g.pages).collect::<Vec<_>>(), [4096, 1024 + 16, 32 + 16]);
    // Never more than there would be of a row for each token.
    let few = Layout::allocated(&descs, 32, 512).unwrap();
    assert_eq!(few.groups.iter().map(|g| g.pages).collect::<Vec<_>>(), [2, 2, 2]);
    let whole = [state(0, 0, 64), state(0, 0, 64), state(0, 0, 64)];
    let most = |descs: &[StateDesc]| Layout::fit(descs, 1 << 24, 512, 1 << 22);
    assert!(most(&descs) > 2 * most(&whole), "{} {}", most(&descs), most(&whole));
}

#[test]
fn a_full_pool_says_how_many_tokens_it_has() {
    let mut layout = Layout::reserved(&[state(0, 0, 64), strided(1, 4, 64)], 2000).unwrap();
    layout.groups[1].pages = 1;
    let descs = [state(0, 0, 64), strided(1, 4, 64)];
    let mut kv = Kv::new(Box::new(HostPages::new(&descs, &layout).unwrap()), layout, 2000);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 67).unwrap();
    let error = append(&mut kv, a, 1).unwrap_err();
    assert_eq!(error.status, Status::CacheFull);
    assert!(error.message.contains("all 64 tokens are in use"), "{}", error.message);
    assert_eq!(counts(&kv, a), [5, 1]);
}
