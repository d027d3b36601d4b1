//! The bookkeeping of pages.

use super::*;
use llmcc_abi::{StateDesc, layout::KEPT_BEHIND};

mod first;
mod saved;
mod stores;
mod strided;
mod tracks;

fn state(group: u32, window: u32, bytes: u64) -> StateDesc {
    StateDesc { kv_heads: 1, key_dim: 1, window, group, bytes, ..StateDesc::default() }
}

fn kv_and_pools(tokens: usize) -> (Kv, Vec<*mut u8>) {
    with_states(&[state(0, 0, 128), state(0, 0, 64)], tokens, 100)
}

fn with_states(descs: &[StateDesc], tokens: usize, context: usize) -> (Kv, Vec<*mut u8>) {
    let layout = Layout::reserved(descs, tokens).unwrap();
    let pages = HostPages::new(descs, &layout).unwrap();
    let pools = pages.pools();
    (Kv::new(Box::new(pages), layout, context), pools)
}

fn kv(tokens: usize) -> Kv {
    kv_and_pools(tokens).0
}

fn append(kv: &mut Kv, seq: SeqId, n: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(0, &[(slot, n)], n)?;
    (0..n).for_each(|i| kv.commit(slot, 0, i as i32));
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

/// Handles of sequences freed long ago stay strange, and those in use stay right while the table
/// grows and the numbers start over.
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
    kv.seqs.next_id = SeqId::MAX - 50;
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
    let error = kv.reserve(0, &both, 64).unwrap_err();
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
    let partial = kv.pages(kv.slot(a).unwrap(), 0)[1] as usize;
    // SAFETY: inside the pools.
    unsafe {
        pools[0].add(partial * 128 + 5).write(42);
        pools[1].add(partial * 64 + 6).write(43);
    }
    let b = kv.fork(a).unwrap();
    assert_eq!(kv.used_pages(), 2);
    append(&mut kv, b, 1).unwrap();
    assert_eq!(kv.used_pages(), 3);
    let copy = kv.pages(kv.slot(b).unwrap(), 0)[1] as usize;
    assert_ne!(copy, partial);
    // SAFETY: inside the pools.
    unsafe {
        assert_eq!(pools[0].add(copy * 128 + 5).read(), 42);
        assert_eq!(pools[1].add(copy * 64 + 6).read(), 43);
    }
    // The original owns its page alone again: no second copy.
    append(&mut kv, a, 1).unwrap();
    assert_eq!(kv.pages(kv.slot(a).unwrap(), 0)[1] as usize, partial);
    kv.seq_free(a).unwrap();
    assert_eq!((kv.used_pages(), kv.tokens(b).unwrap().len()), (2, 21));
    kv.seq_free(b).unwrap();
    assert_eq!(kv.used_pages(), 0);
}

#[test]
fn truncating_a_fork_into_a_shared_page_copies_it() {
    let mut kv = kv(64);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 32).unwrap();
    let b = kv.fork(a).unwrap();
    kv.truncate(b, 5).unwrap();
    append(&mut kv, b, 1).unwrap();
    let (pa, pb) = (kv.pages(kv.slot(a).unwrap(), 0).to_vec(), kv.pages(kv.slot(b).unwrap(), 0).to_vec());
    assert!(pa[0] != pb[0] && pb.len() == 1);
}

/// Pools of `pages` pages, and a window of 40 tokens.
fn sliding(pages: usize) -> Kv {
    with_states(&[state(0, 40, 128), state(0, 40, 64)], pages * PAGE_TOKENS, 100_000).0
}

/// Windows of 40 and 24 tokens beside a state without one.
fn mixture(tokens: usize) -> (Kv, Vec<*mut u8>) {
    with_states(&[state(0, 40, 128), state(1, 0, 64), state(2, 24, 256), state(0, 40, 128)], tokens, 100_000)
}

/// Pages in use in each group.
fn used(kv: &Kv) -> Vec<usize> {
    kv.pools.iter().map(Pool::used).collect()
}

/// Appends as the engine does: in chunks.
fn append_chunks(kv: &mut Kv, seq: SeqId, n: usize, chunk: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(0, &[(slot, n)], chunk)?;
    for at in (0..n).step_by(chunk) {
        let count = chunk.min(n - at);
        kv.extend(slot, 0, count)?;
        (0..count).for_each(|i| kv.commit(slot, 0, i as i32));
        kv.slide(slot, 0);
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
    kv.take_back(slot, 0, 20);
    assert_eq!((kv.slot_len(slot, 0), kv.used_pages()), (20, 2));
    // Pages the next token would see may be gone: then the tokens stay, and with 0 they never do.
    let mut kv = sliding(20);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 200, 8).unwrap();
    let slot = kv.slot(a).unwrap();
    kv.take_back(slot, 0, 199);
    assert_eq!(kv.slot_len(slot, 0), 199);
    kv.take_back(slot, 0, 60);
    assert_eq!(kv.slot_len(slot, 0), 199);
    kv.take_back(slot, 0, 0);
    assert_eq!((kv.slot_len(slot, 0), kv.used_pages()), (0, 0));
}

#[test]
fn pages_behind_the_window_are_given_back() {
    let mut kv = sliding(20);
    let a = kv.seq_new().unwrap();
    for n in 1..=1000 {
        append_chunks(&mut kv, a, 1, 1).unwrap();
        // The window, its ends, and the tokens kept behind it.
        assert!(kv.used_pages() <= 40usize.div_ceil(PAGE_TOKENS) + 1 + KEPT_BEHIND, "{n}: {}", kv.used_pages());
        // All that the next token sees is there.
        let slot = kv.slot(a).unwrap();
        assert!(kv.seqs[slot].tables[0].gone * PAGE_TOKENS <= (n + 1usize).saturating_sub(40));
        assert_eq!(kv.pages(slot, 0).len(), n.div_ceil(PAGE_TOKENS));
    }
    // A prompt far longer than the cache, in chunks.
    append_chunks(&mut kv, a, 5000, 64).unwrap();
    assert_eq!(kv.tokens(a).unwrap().len(), 6000);
    kv.seq_free(a).unwrap();
    assert_eq!((kv.used_pages(), kv.sequences()), (0, 0));
}

#[test]
fn a_state_without_a_window_keeps_its_own_pages_only() {
    let (mut kv, _) = mixture(640);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 600, 16).unwrap();
    // 38 pages of all tokens; the tokens 561.. and 577.. on, and two pages before them.
    assert_eq!(used(&kv), [38 - 35 + 2, 38, 38 - 36 + 2]);
    assert_eq!(kv.used_bytes(), 5 * 256 + 38 * 64 + 4 * 256);
    kv.seq_free(a).unwrap();
    assert_eq!(used(&kv), [0; 3]);
}

/// Each group copies, shares and gives back its own pages.
#[test]
fn forks_of_mixtures_slide_apart() {
    let (mut kv, pools) = mixture(2000);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 300, 10).unwrap();
    let at = |kv: &Kv, seq: SeqId, group: usize| kv.pages(kv.slot(seq).unwrap(), group)[300 / PAGE_TOKENS] as usize;
    let sizes = [(0, 0, 128), (1, 1, 64), (2, 2, 256), (3, 0, 128)];
    for (pool, group, bytes) in sizes {
        // SAFETY: inside the pool.
        unsafe { pools[pool].add(at(&kv, a, group) * bytes + 7).write(50 + pool as u8) };
    }
    let b = kv.fork(a).unwrap();
    let before = used(&kv);
    append_chunks(&mut kv, b, 1, 1).unwrap();
    assert_eq!(used(&kv), before.iter().map(|n| n + 1).collect::<Vec<_>>());
    for (pool, group, bytes) in sizes {
        assert_ne!(at(&kv, a, group), at(&kv, b, group));
        // SAFETY: inside the pool.
        assert_eq!(unsafe { pools[pool].add(at(&kv, b, group) * bytes + 7).read() }, 50 + pool as u8);
    }
    append_chunks(&mut kv, b, 200, 10).unwrap();
    append_chunks(&mut kv, a, 200, 10).unwrap();
    // 300 tokens are shared where nothing is given back, 18 full pages of them.
    assert_eq!(used(&kv)[1], 2 * 32 - 18);
    assert!(used(&kv)[0] <= 2 * 6 && used(&kv)[2] <= 2 * 5, "{:?}", used(&kv));
    kv.seq_free(a).unwrap();
    kv.seq_free(b).unwrap();
    assert_eq!(used(&kv), [0; 3]);
}

#[test]
fn mixtures_are_cut_within_what_their_windows_kept() {
    let (mut kv, _) = mixture(2000);
    let a = kv.seq_new().unwrap();
    append_chunks(&mut kv, a, 500, 20).unwrap();
    kv.truncate(a, 480).unwrap();
    append_chunks(&mut kv, a, 20, 20).unwrap();
    // The first window that has lost something is named.
    let error = kv.truncate(a, 440).unwrap_err();
    assert!(error.message.contains("sliding window of 40"), "{}", error.message);
    assert_eq!((kv.tokens(a).unwrap().len(), kv.reusable(a, 440).unwrap()), (500, 0));
    kv.truncate(a, 0).unwrap();
    assert_eq!(used(&kv), [0; 3]);
}

/// A group whose pages are all in use stops a step before anything has changed, also in the others.
#[test]
fn a_full_group_changes_nothing() {
    let descs = [state(0, 40, 128), state(1, 0, 64)];
    let layout = Layout::allocated(&descs, 4096, 32).unwrap();
    // A window of 3 pages and 4 more for each of 8 sequences, and a chunk.
    assert_eq!(layout.groups.iter().map(|g| g.pages).collect::<Vec<_>>(), [8 * 7 + 2, 256]);
    assert_eq!(layout.bytes(), 58 * 128 + 256 * 64);
    let store = HostPages::new(&descs, &layout).unwrap();
    let mut kv = Kv::new(Box::new(store), layout, 100_000);
    // As many long sequences as that is meant for, whose prompts come in one step.
    let all: Vec<SeqId> = (0..8).map(|_| kv.seq_new().unwrap()).collect();
    let slots: Vec<(usize, usize)> = all.iter().map(|&seq| (kv.slot(seq).unwrap(), 200)).collect();
    kv.reserve(0, &slots, 32).unwrap();
    for &(slot, n) in &slots {
        for at in (0..n).step_by(32) {
            let count = 32.min(n - at);
            kv.extend(slot, 0, count).unwrap();
            (0..count).for_each(|i| kv.commit(slot, 0, i as i32));
            kv.slide(slot, 0);
        }
    }
    let more: Vec<SeqId> = (0..4).map(|_| kv.seq_new().unwrap()).collect();
    more[..3].iter().for_each(|&seq| append_chunks(&mut kv, seq, 90, 32).unwrap());
    let before = used(&kv);
    let error = append_chunks(&mut kv, more[3], 90, 32).unwrap_err();
    assert!(
        error.status == Status::CacheFull && error.message.contains("all 928 tokens of the layers with a window of 40"),
        "{error}"
    );
    assert_eq!((used(&kv), kv.tokens(more[3]).unwrap().len()), (before, 0));
}

#[test]
fn the_default_fits_the_memory() {
    let descs = [state(0, 0, 100), state(0, 0, 60)];
    let pages = |bytes: usize| Layout::fit(&descs, 1000, 64, bytes);
    assert_eq!((pages(159), pages(160), pages(1600), pages(62 * 160), pages(63 * 160)), (0, 16, 160, 62 * 16, 1000));
    // Long contexts fit, where only few layers keep them.
    let (full, mixed) = (vec![state(0, 0, 100); 6], [vec![state(0, 64, 100); 5], vec![state(1, 0, 100)]].concat());
    let (a, b) = (Layout::fit(&full, 1 << 20, 64, 1 << 20), Layout::fit(&mixed, 1 << 20, 64, 1 << 20));
    assert!(b > 4 * a && Layout::allocated(&mixed, b, 64).unwrap().bytes() <= 1 << 20, "{a} {b}");
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
    let shared = kv.pages(kv.slot(b).unwrap(), 0).to_vec();
    append_chunks(&mut kv, a, 200, 10).unwrap();
    // The fork is unchanged.
    let slot = kv.slot(b).unwrap();
    assert_eq!(kv.pages(slot, 0), shared);
    assert!(kv.seqs[slot].tables[0].held().iter().all(|p| kv.pools[0].alone(*p)));
    append_chunks(&mut kv, b, 200, 10).unwrap();
    let (pa, pb) = (kv.slot(a).unwrap(), kv.slot(b).unwrap());
    let live = |kv: &Kv, s: usize| kv.seqs[s].tables[0].held().to_vec();
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

/// An attention state without a window beside two states of fixed size.
fn recurrent(slots: usize) -> (Kv, Vec<*mut u8>) {
    recurrent_in(125, slots)
}

fn recurrent_in(pages: usize, slots: usize) -> (Kv, Vec<*mut u8>) {
    let fixed = |bytes| StateDesc { kind: llmcc_abi::state::FIXED, group: 1, bytes, ..StateDesc::default() };
    let descs = [state(0, 0, 64), fixed(64), fixed(128)];
    let mut layout = Layout::reserved(&descs, 2000).unwrap();
    (layout.groups[0].pages, layout.groups[1].pages) = (pages, slots);
    let pages = HostPages::new(&descs, &layout).unwrap();
    let pools = pages.pools();
    (Kv::new(Box::new(pages), layout, 1000), pools)
}

/// Appends `n` tokens one by one, each adding one to the first byte of both states, and keeps a
/// snapshot at the end.
fn run(kv: &mut Kv, pools: &[*mut u8], seq: SeqId, n: usize) -> Result<()> {
    let slot = kv.slot(seq)?;
    kv.reserve(0, &[(slot, n)], 64)?;
    kv.extend(slot, 0, n)?;
    for i in 0..n {
        kv.commit(slot, 0, i as i32);
        let page = kv.pages(slot, 1)[0] as usize;
        // SAFETY: inside the pools.
        unsafe {
            *pools[1].add(page * 64) += 1;
            *pools[2].add(page * 128) += 1;
        }
    }
    kv.keep(slot, 0);
    Ok(())
}

/// The first bytes of both states of a sequence.
fn held(kv: &Kv, pools: &[*mut u8], seq: SeqId) -> (u8, u8) {
    let page = kv.pages(kv.slot(seq).unwrap(), 1)[0] as usize;
    // SAFETY: inside the pools.
    unsafe { (*pools[1].add(page * 64), *pools[2].add(page * 128)) }
}

#[test]
fn fixed_states_start_at_zero_and_follow_forks_and_snapshots() {
    let (mut kv, pools) = recurrent(20);
    let a = kv.seq_new().unwrap();
    run(&mut kv, &pools, a, 5).unwrap();
    assert_eq!(held(&kv, &pools, a), (5, 5));
    // A fork shares the state until one of the two goes on.
    let b = kv.fork(a).unwrap();
    assert_eq!(used(&kv), [1, 1]);
    run(&mut kv, &pools, b, 20).unwrap();
    assert_eq!((held(&kv, &pools, a), held(&kv, &pools, b)), ((5, 5), (25, 25)));
    run(&mut kv, &pools, b, 3).unwrap();
    run(&mut kv, &pools, b, 1).unwrap();
    // Snapshots at 28 and 29, not at 5 and 25 any more.
    assert_eq!([29, 28, 27, 25, 5].map(|len| kv.reusable(b, len).unwrap()), [29, 28, 0, 0, 0]);
    let error = kv.truncate(b, 27).unwrap_err().message;
    assert!(error.contains("no snapshot of it at 27. Truncate it to 0 and evaluate its tokens again"), "{error}");
    assert_eq!(kv.tokens(b).unwrap().len(), 29);
    kv.truncate(b, 28).unwrap();
    assert_eq!((kv.tokens(b).unwrap().len(), held(&kv, &pools, b)), (28, (28, 28)));
    run(&mut kv, &pools, b, 2).unwrap();
    assert_eq!((held(&kv, &pools, b), kv.reusable(b, 29).unwrap()), ((30, 30), 28));
    kv.truncate(b, 28).unwrap();
    assert_eq!(held(&kv, &pools, b), (28, 28));
    // The original is as it was; a slot that comes back starts at zero.
    assert_eq!(held(&kv, &pools, a), (5, 5));
    kv.seq_free(b).unwrap();
    kv.truncate(a, 0).unwrap();
    assert_eq!(used(&kv), [0, 0]);
    run(&mut kv, &pools, a, 1).unwrap();
    assert_eq!(held(&kv, &pools, a), (1, 1));
}

#[test]
fn a_failed_step_goes_back_to_a_snapshot() {
    let (mut kv, pools) = recurrent(20);
    let a = kv.seq_new().unwrap();
    run(&mut kv, &pools, a, 7).unwrap();
    // A step that has written something when it fails, before a token is committed.
    let slot = kv.slot(a).unwrap();
    kv.reserve(0, &[(slot, 1)], 64).unwrap();
    kv.extend(slot, 0, 1).unwrap();
    let page = kv.pages(slot, 1)[0] as usize;
    // SAFETY: inside the pool.
    unsafe { *pools[1].add(page * 64) = 99 };
    kv.take_back(slot, 0, 7);
    assert_eq!((kv.slot_len(slot, 0), held(&kv, &pools, a)), (7, (7, 7)));
    // Without a snapshot it begins again.
    let b = kv.seq_new().unwrap();
    let slot = kv.slot(b).unwrap();
    kv.reserve(0, &[(slot, 4)], 64).unwrap();
    (0..4).for_each(|i| kv.commit(slot, 0, i));
    kv.take_back(slot, 0, 2);
    assert_eq!((kv.slot_len(slot, 0), kv.pages(slot, 1).len()), (0, 0));
    kv.seq_free(a).unwrap();
    assert_eq!(used(&kv), [0, 0]);
}

#[test]
fn a_long_step_keeps_what_a_failure_leads_back_to() {
    let (mut kv, pools) = recurrent(20);
    let a = kv.seq_new().unwrap();
    run(&mut kv, &pools, a, 5).unwrap();
    let slot = kv.slot(a).unwrap();
    kv.reserve(0, &[(slot, 40)], 10).unwrap();
    for chunk in 0..4 {
        kv.extend(slot, 0, 10).unwrap();
        (0..10).for_each(|i| kv.commit(slot, 0, chunk * 10 + i));
        kv.keep(slot, 0);
    }
    assert_eq!([45, 35, 5].map(|len| kv.reusable(a, len).unwrap()), [45, 5, 5]);
    kv.take_back(slot, 0, 5);
    assert_eq!((kv.slot_len(slot, 0), held(&kv, &pools, a)), (5, (5, 5)));
}

#[test]
fn a_refused_step_costs_no_snapshots() {
    let (mut kv, pools) = recurrent_in(2, 3);
    let [a, b, c] = [(); 3].map(|()| kv.seq_new().unwrap());
    run(&mut kv, &pools, a, 5).unwrap();
    run(&mut kv, &pools, a, 5).unwrap();
    run(&mut kv, &pools, b, 16).unwrap();
    // A slot could be had, but there is no page.
    assert_eq!(run(&mut kv, &pools, c, 1).unwrap_err().status, Status::CacheFull);
    assert_eq!((used(&kv), kv.reusable(a, 9).unwrap()), (vec![2, 3], 5));
}

#[test]
fn snapshots_that_forks_share_are_free_on_demand() {
    let (mut kv, pools) = recurrent(3);
    let a = kv.seq_new().unwrap();
    run(&mut kv, &pools, a, 5).unwrap();
    let b = kv.fork(a).unwrap();
    run(&mut kv, &pools, a, 1).unwrap();
    run(&mut kv, &pools, b, 1).unwrap();
    assert_eq!((used(&kv)[1], kv.free_pages(1)), (3, 1));
}

#[test]
fn snapshots_yield_to_sequences() {
    let (mut kv, pools) = recurrent(3);
    let all: Vec<SeqId> = (0..3).map(|_| kv.seq_new().unwrap()).collect();
    run(&mut kv, &pools, all[0], 5).unwrap();
    run(&mut kv, &pools, all[0], 5).unwrap();
    assert_eq!((used(&kv)[1], kv.free_pages(1), kv.reusable(all[0], 9).unwrap()), (2, 2, 5));
    run(&mut kv, &pools, all[1], 1).unwrap();
    run(&mut kv, &pools, all[2], 2).unwrap();
    assert_eq!(kv.reusable(all[0], 9).unwrap(), 0);
    // All slots are taken: who goes on needs none, and a fourth finds none.
    run(&mut kv, &pools, all[0], 1).unwrap();
    assert_eq!([0, 1, 2].map(|i| held(&kv, &pools, all[i]).0), [11, 1, 2]);
    let more = kv.seq_new().unwrap();
    let error = run(&mut kv, &pools, more, 1).unwrap_err();
    assert!(
        error.status == Status::CacheFull && error.message.contains("all 3 recurrent states are in use"),
        "{error}"
    );
    assert_eq!(used(&kv), [3, 3]);
    let error = kv.fork(all[0]).and_then(|fork| run(&mut kv, &pools, fork, 1)).unwrap_err();
    assert_eq!((error.status, held(&kv, &pools, all[0])), (Status::CacheFull, (11, 11)));
}

/// The kept pages of a window and the snapshots of a fixed state have to meet.
#[test]
fn windows_and_snapshots_both_count() {
    let fixed = StateDesc { kind: llmcc_abi::state::FIXED, group: 1, bytes: 64, ..StateDesc::default() };
    let (mut kv, _) = with_states(&[state(0, 40, 64), fixed], 2000, 1000);
    let a = kv.seq_new().unwrap();
    let slot = kv.slot(a).unwrap();
    for n in [100, 100, 10] {
        append_chunks(&mut kv, a, n, 10).unwrap();
        kv.keep(slot, 0);
    }
    assert_eq!([210, 209, 200, 199].map(|len| kv.reusable(a, len).unwrap()), [210, 200, 200, 0]);
    append_chunks(&mut kv, a, 200, 10).unwrap();
    assert_eq!(kv.reusable(a, 300).unwrap(), 0);
    let error = kv.truncate(a, 210).unwrap_err().message;
    assert!(error.contains("sliding window of 40"), "{error}");
}
