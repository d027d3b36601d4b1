//! The choice of windows of a cache by bounds of their keys: see [`SelectWindowsArgs`].

use core::slice;

use llmcc_abi::{PAGE_TOKENS, SelectWindowsArgs, select_kept};

use crate::attend::Rows;
use crate::isa::Isa;
use crate::select::Best;

/// Windows of a KV head found so far: how many are kept, and the least rank that may join them.
type Kept = [u64; 2];

/// See [`SelectWindowsArgs`]; `turn` writes the page of windows from a number on as `[2 · kv_heads · d][16]`, `score`
/// the scores of a KV head's queries with it.
///
/// # Safety
/// As the arguments say.
#[inline(always)]
pub(crate) unsafe fn select_windows_by(
    a: &SelectWindowsArgs,
    turn: impl Fn(usize, *mut f32),
    score: impl Fn(usize, *const f32, &mut [f32; PAGE_TOKENS]),
) {
    let (heads, windows, every) = (a.kv_heads as usize, a.windows as usize, a.every as usize);
    let (before, count) = (a.position as usize / every, (windows + 1) * every);
    let out = |head: usize| unsafe { slice::from_raw_parts_mut(a.out.add(head * count), count) };
    if before <= windows {
        return (0..heads).for_each(|head| tokens(out(head), a.position as usize, 0..before, every));
    }
    let room = select_kept(windows);
    unsafe {
        let page = a.work.cast::<f32>();
        let ranks = page.add(PAGE_TOKENS * 2 * heads * a.d as usize).cast::<u64>();
        let counts = slice::from_raw_parts_mut(ranks.add(heads * room).cast::<Kept>(), heads);
        let chosen = slice::from_raw_parts_mut(ranks.add(heads * (room + 2)).cast::<f32>(), windows);
        let kept = |head: usize| slice::from_raw_parts_mut(ranks.add(head * room), room);
        counts.fill([0, 0]);
        for first in (0..before).step_by(PAGE_TOKENS) {
            turn(first, page);
            for (head, count) in counts.iter_mut().enumerate() {
                let mut scores = [0.0; PAGE_TOKENS];
                score(head, page, &mut scores);
                let mut best = Best::resume(kept(head), windows, *count);
                best.take(&scores[..PAGE_TOKENS.min(before - first)], first);
                *count = best.found();
            }
        }
        for (head, count) in counts.iter().enumerate() {
            Best::resume(kept(head), windows, *count).write(chosen);
            tokens(out(head), a.position as usize, chosen.iter().map(|n| *n as usize), every);
        }
    }
}

/// Writes the numbers of the tokens of windows, and of the own one of the token at `position`.
fn tokens(out: &mut [f32], position: usize, windows: impl IntoIterator<Item = usize>, every: usize) {
    let own = position / every * every..position + 1;
    let before = windows.into_iter().flat_map(|window| window * every..(window + 1) * every);
    let mut all = before.chain(own);
    out.iter_mut().for_each(|out| *out = all.next().map_or(-1.0, |n| n as f32));
}

/// See [`SelectWindowsArgs`].
///
/// # Safety
/// As the arguments say; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn select_windows<I: Isa>(a: &SelectWindowsArgs) {
    let columns = (2 * a.kv_heads * a.d) as usize;
    let turn = |first: usize, to: *mut f32| unsafe {
        let base = a.pool.wrapping_add(a.pages.add(first / PAGE_TOKENS).read() as usize * a.page_bytes as usize);
        let at = (base.wrapping_add(a.v as usize), base.wrapping_add(a.v_scales as usize));
        I::apart::<_, Turned<I>>((&Rows::of_page(at, (a.dtype as u32, columns)), to));
    };
    let score = |head: usize, page: *const f32, to: &mut [f32; PAGE_TOKENS]| unsafe {
        I::apart::<_, Scores<I>>((a, head, page, to));
    };
    unsafe { select_windows_by(a, turn, score) }
}

/// A page as f32, `[columns][16]`.
struct Turned<I>(core::marker::PhantomData<I>);
impl<'a, I: Isa> crate::isa::Apart<(&'a Rows, *mut f32)> for Turned<I> {
    #[inline(always)]
    unsafe fn run((rows, to): (&'a Rows, *mut f32)) {
        unsafe { rows.together::<I>(to, true) }
    }
}

/// A call, a KV head, a page, and where the scores go.
type Scored<'a> = (&'a SelectWindowsArgs, usize, *const f32, &'a mut [f32; PAGE_TOKENS]);

/// Scores of a page.
struct Scores<I>(core::marker::PhantomData<I>);
impl<'a, I: Isa> crate::isa::Apart<Scored<'a>> for Scores<I> {
    #[inline(always)]
    unsafe fn run((a, head, page, to): Scored<'a>) {
        unsafe {
            let (d, heads) = (a.d as usize, a.kv_heads as usize);
            let least = page.add(head * d * PAGE_TOKENS);
            let most = least.add(heads * d * PAGE_TOKENS);
            let mut sums = [I::splat(0.0); 4];
            let queries = a.q.add(head * a.group as usize * d);
            for i in 0..a.group as usize * d {
                let q = queries.add(i).read();
                let bounds = if q < 0.0 { least } else { most }.add(i % d * PAGE_TOKENS);
                for j in 0..PAGE_TOKENS / I::LANES {
                    sums[j] = I::fma(I::splat(q), I::load(bounds.add(j * I::LANES).cast()), sums[j]);
                }
            }
            for j in 0..PAGE_TOKENS / I::LANES {
                I::store(to.as_mut_ptr().add(j * I::LANES), sums[j]);
            }
        }
    }
}
