//! The bookkeeping of pages.

use super::*;

fn kv_and_pools(tokens: usize) -> (Kv, Vec<*mut u8>) {
    let desc = KvDesc { kv_heads: 1, head_dim: 1, dtype: 0, window: 0, page_bytes: 128 };
    let pages = HostPages::new(&[desc, KvDesc { page_bytes: 64, ..desc }], page_count(tokens).unwrap()).unwrap();
    let pools = pages.pools();
    (Kv::new(Box::new(pages), page_count(tokens).unwrap(), 100), pools)
}

fn kv(tokens: usize) -> Kv {
    kv_and_pools(tokens).0
}

fn append(kv: &mut Kv, seq: SeqId, n: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(&[(slot, n)], n)?;
    (0..n).for_each(|i| kv.commit(slot, i as i32));
    Ok(())
}

#[test]
fn pages_follow_lengths() {
    let mut kv = kv(64);
    let a = kv.seq_new().unwrap();
    for (n, pages) in [(1, 1), (15, 1), (1, 2), (31, 3)] {
        append(&mut kv, a, n).unwrap();
        assert_eq!(kv.used_pages(), pages);
    }
    kv.truncate(a, 17).unwrap();
    assert_eq!(kv.used_pages(), 2);
    assert!(kv.truncate(a, 18).is_err());
    kv.seq_free(a).unwrap();
    assert_eq!((kv.used_pages(), kv.sequences()), (0, 0));
}

#[test]
fn stale_handles_are_refused() {
    let mut kv = kv(64);
    let a = kv.seq_new().unwrap();
    kv.seq_free(a).unwrap();
    let b = kv.seq_new().unwrap();
    assert_ne!(a, b);
    assert_eq!(kv.seq_free(a).unwrap_err().status, Status::Invalid);
    assert!(kv.tokens(-1).is_err() && kv.tokens(b + 1).is_err());
    assert_eq!(kv.tokens(b).unwrap(), &[] as &[i32]);
}

/// Handles of sequences freed long ago stay strange, and those in use stay right while the table grows and the numbers start over.
#[test]
fn handles_do_not_come_back() {
    let mut kv = kv(64);
    let first = kv.seq_new().unwrap();
    append(&mut kv, first, 3).unwrap();
    let stale = kv.seq_new().unwrap();
    kv.seq_free(stale).unwrap();
    for _ in 0..10_000 {
        let seq = kv.seq_new().unwrap();
        assert!(seq != stale && kv.tokens(stale).is_err());
        kv.seq_free(seq).unwrap();
    }
    assert!(kv.slots() < 64, "{} slots for two sequences", kv.slots());
    kv.next_id = SeqId::MAX - 50;
    let mut all: Vec<SeqId> = (0..1000).map(|_| kv.seq_new().unwrap()).collect();
    assert_eq!((kv.sequences(), kv.tokens(first).unwrap().len()), (1001, 3));
    let copy = kv.fork(first).unwrap();
    assert_eq!(kv.tokens(copy).unwrap(), kv.tokens(first).unwrap());
    all.extend([first, copy]);
    all.sort_unstable();
    all.dedup();
    assert!(all.len() == 1002 && all[0] >= 0);
    all.iter().for_each(|&seq| kv.seq_free(seq).unwrap());
    assert!(all.iter().all(|&seq| kv.slot(seq).is_err()) && kv.sequences() == 0 && kv.used_pages() == 0);
}

#[test]
fn a_full_cache_changes_nothing() {
    let mut kv = kv(64);
    let (a, b) = (kv.seq_new().unwrap(), kv.seq_new().unwrap());
    append(&mut kv, a, 20).unwrap();
    let both = [(kv.slot(b).unwrap(), 16), (kv.slot(a).unwrap(), 29)];
    let error = kv.reserve(&both, 64).unwrap_err();
    assert_eq!(error.status, Status::CacheFull);
    assert_eq!((kv.used_pages(), kv.tokens(a).unwrap().len()), (2, 20));
    append(&mut kv, b, 32).unwrap();
    assert_eq!(append(&mut kv, a, 81).unwrap_err().status, Status::ContextFull);
}

#[test]
fn forks_share_until_they_append() {
    let (mut kv, pools) = kv_and_pools(64);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 20).unwrap();
    let partial = kv.pages(kv.slot(a).unwrap())[1] as usize;
    // SAFETY: inside the pools.
    unsafe {
        pools[0].add(partial * 128 + 5).write(42);
        pools[1].add(partial * 64 + 6).write(43);
    }
    let b = kv.fork(a).unwrap();
    assert_eq!(kv.used_pages(), 2);
    append(&mut kv, b, 1).unwrap();
    assert_eq!(kv.used_pages(), 3);
    let copy = kv.pages(kv.slot(b).unwrap())[1] as usize;
    assert_ne!(copy, partial);
    // SAFETY: inside the pools.
    unsafe {
        assert_eq!(pools[0].add(copy * 128 + 5).read(), 42);
        assert_eq!(pools[1].add(copy * 64 + 6).read(), 43);
    }
    // The original owns its page alone again: no second copy.
    append(&mut kv, a, 1).unwrap();
    assert_eq!(kv.pages(kv.slot(a).unwrap())[1] as usize, partial);
    kv.seq_free(a).unwrap();
    assert_eq!((kv.used_pages(), kv.tokens(b).unwrap().len()), (2, 21));
    kv.seq_free(b).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

/// A store whose copies fail.
struct Broken;

impl PageStore for Broken {
    fn copy(&mut self, _: u32, _: u32) -> Result<()> {
        Err(Error::new(Status::System, "broken"))
    }
}

#[test]
fn a_failing_copy_changes_nothing() {
    let mut kv = Kv::new(Box::new(Broken), 4, 100);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 20).unwrap();
    let b = kv.fork(a).unwrap();
    for _ in 0..10 {
        assert_eq!(append(&mut kv, b, 1).unwrap_err().status, Status::System);
    }
    assert_eq!((kv.used_pages(), kv.tokens(b).unwrap().len()), (2, 20));
    kv.seq_free(a).unwrap();
    // Alone now, so nothing is copied.
    append(&mut kv, b, 1).unwrap();
}

#[test]
fn truncating_a_fork_into_a_shared_page_copies_it() {
    let mut kv = kv(64);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 32).unwrap();
    let b = kv.fork(a).unwrap();
    kv.truncate(b, 5).unwrap();
    append(&mut kv, b, 1).unwrap();
    let (pa, pb) = (kv.pages(kv.slot(a).unwrap()).to_vec(), kv.pages(kv.slot(b).unwrap()).to_vec());
    assert!(pa[0] != pb[0] && pb.len() == 1);
}

/// Pools of `pages` pages, and windows of 40 and 24 tokens.
fn sliding(pages: usize) -> Kv {
    let desc = KvDesc { kv_heads: 1, head_dim: 1, dtype: 0, window: 40, page_bytes: 128 };
    let descs = [desc, KvDesc { window: 24, ..desc }];
    let store = HostPages::new(&descs, pages).unwrap();
    Kv::new(Box::new(store), pages, 100_000).with_windows(&descs)
}

/// Appends as the engine does: in chunks.
fn append_chunks(kv: &mut Kv, seq: SeqId, n: usize, chunk: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(&[(slot, n)], chunk)?;
    for at in (0..n).step_by(chunk) {
        let count = chunk.min(n - at);
        kv.extend(slot, count)?;
        (0..count).for_each(|i| kv.commit(slot, i as i32));
        kv.slide(slot);
    }
    Ok(())
}

#[test]
fn a_failed_step_is_taken_back() {
    let mut kv = kv(64);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 20).unwrap();
    append(&mut kv, a, 30).unwrap();
    let slot = kv.slot(a).unwrap();
    kv.take_back(slot, 20);
    assert_eq!((kv.slot_len(slot), kv.used_pages()), (20, 2));
    // What the next token would see may be gone: then the tokens stay, and with 0 they never do.
    let mut kv = sliding(20);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 200, 8).unwrap();
    let slot = kv.slot(a).unwrap();
    kv.take_back(slot, 199);
    assert_eq!(kv.slot_len(slot), 199);
    kv.take_back(slot, 60);
    assert_eq!(kv.slot_len(slot), 199);
    kv.take_back(slot, 0);
    assert_eq!((kv.slot_len(slot), kv.used_pages()), (0, 0));
}

#[test]
fn pages_behind_the_window_are_given_back() {
    let mut kv = sliding(20);
    let a = kv.seq_new().unwrap();
    for n in 1..=1000 {
        append_chunks(&mut kv, a, 1, 1).unwrap();
        // The window and its ends, and what is kept behind.
        assert!(kv.used_pages() <= 40usize.div_ceil(PAGE_TOKENS) + 1 + KEPT_BEHIND, "{n}: {}", kv.used_pages());
        // All that the next token sees is there.
        let slot = kv.slot(a).unwrap();
        assert!(kv.slots[slot].gone * PAGE_TOKENS <= (n + 1usize).saturating_sub(40));
        assert_eq!(kv.pages(slot).len(), n.div_ceil(PAGE_TOKENS));
    }
    // A prompt far longer than the cache, in chunks.
    append_chunks(&mut kv, a, 5000, 64).unwrap();
    assert_eq!(kv.tokens(a).unwrap().len(), 6000);
    kv.seq_free(a).unwrap();
    assert_eq!((kv.used_pages(), kv.sequences()), (0, 0));
}

#[test]
fn one_state_without_a_window_keeps_everything() {
    let desc = KvDesc { kv_heads: 1, head_dim: 1, dtype: 0, window: 0, page_bytes: 128 };
    let descs = [KvDesc { window: 40, ..desc }, desc];
    let store = HostPages::new(&descs, 40).unwrap();
    let mut kv = Kv::new(Box::new(store), 40, 1000).with_windows(&descs);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 600, 16).unwrap();
    assert_eq!(kv.used_pages(), 38);
}

#[test]
fn too_large_a_chunk_changes_nothing() {
    let mut kv = sliding(12);
    let (a, b) = (kv.seq_new().unwrap(), kv.seq_new().unwrap());
    append_chunks(&mut kv, a, 300, 16).unwrap();
    let used = kv.used_pages();
    assert_eq!(append_chunks(&mut kv, b, 300, 160).unwrap_err().status, Status::CacheFull);
    assert_eq!((kv.used_pages(), kv.tokens(b).unwrap().len()), (used, 0));
    append_chunks(&mut kv, a, 300, 16).unwrap();
}

#[test]
fn windows_of_forks_slide_apart() {
    let mut kv = sliding(40);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 100, 10).unwrap();
    let b = kv.fork(a).unwrap();
    let shared = kv.pages(kv.slot(b).unwrap()).to_vec();
    append_chunks(&mut kv, a, 200, 10).unwrap();
    // The fork still has what it had.
    let slot = kv.slot(b).unwrap();
    assert_eq!(kv.pages(slot), shared);
    assert!(shared[kv.slots[slot].gone..].iter().all(|p| kv.refs[*p as usize] == 1));
    append_chunks(&mut kv, b, 200, 10).unwrap();
    let (pa, pb) = (kv.slot(a).unwrap(), kv.slot(b).unwrap());
    let live = |kv: &Kv, s: usize| kv.slots[s].pages[kv.slots[s].gone..].to_vec();
    assert!(live(&kv, pa).iter().all(|p| !live(&kv, pb).contains(p)));
    assert_eq!(kv.used_pages(), live(&kv, pa).len() + live(&kv, pb).len());
    kv.seq_free(a).unwrap();
    kv.seq_free(b).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

#[test]
fn sequences_can_be_cut_within_what_is_kept() {
    let mut kv = sliding(20);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 500, 20).unwrap();
    kv.truncate(a, 480).unwrap();
    append_chunks(&mut kv, a, 40, 20).unwrap();
    let error = kv.truncate(a, 300).unwrap_err();
    assert!(error.status == Status::Invalid && error.message.contains("sliding window of 40"), "{}", error.message);
    assert_eq!(kv.tokens(a).unwrap().len(), 520);
    kv.truncate(a, 0).unwrap();
    assert_eq!(kv.used_pages(), 0);
    append_chunks(&mut kv, a, 100, 20).unwrap();
}
