//! The choice of rows of a cache: scores page by page, generic over [`Isa`], and the best of them.
//!
//! A page is brought to f32 with its slots side by side, so that a vector holds the products of one
//! query with 16 rows. At most twice as many rows as are selected are kept of a context: where that many
//! are there, the better half of them stays.

use core::slice;

use llmcc_abi::{ATTEND_BLOCK, PAGE_TOKENS, SelectArgs, select_kept};

use crate::attend::Rows;
use crate::isa::{Apart, Isa};
use crate::split::Share;

/// Rows found so far, as numbers that are ordered as the rows are: see [`rank`].
pub(crate) struct Best<'a> {
    kept: &'a mut [u64],
    count: usize,
    top: usize,
    /// At least `top` rows are no worse than this.
    least: u64,
}

/// A row by its score: of equal scores the first is the largest, NaN the smallest of all.
fn rank(score: f32, number: usize) -> u64 {
    u64::from(ordered(score)) << 32 | u64::from(!(number as u32))
}

/// A number that is ordered as the score is: zeros are equal, NaN the smallest of all.
pub(crate) fn ordered(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    match (score.is_nan(), bits >> 31) {
        (true, _) => 0,
        (false, 0) => bits | 0x8000_0000,
        (false, _) => !bits,
    }
}

impl<'a> Best<'a> {
    /// None so far; `kept` has room for [`select_kept`].
    fn new(kept: &'a mut [u64], top: usize) -> Best<'a> {
        Best { kept, count: 0, top, least: 0 }
    }

    /// Rows found before: see [`Best::found`].
    pub(crate) fn resume(kept: &'a mut [u64], top: usize, [count, least]: [u64; 2]) -> Best<'a> {
        Best { kept, count: count as usize, top, least }
    }

    /// How many there are, and the least rank that may join them.
    pub(crate) fn found(&self) -> [u64; 2] {
        [self.count as u64, self.least]
    }

    /// Takes the scores of the rows from `first` on, at most a page of them.
    #[inline(always)]
    pub(crate) fn take(&mut self, scores: &[f32], first: usize) {
        self.keep(scores.iter().enumerate().map(|(i, score)| rank(*score, first + i)));
    }

    /// Takes rows, at most a page of them.
    #[inline(always)]
    fn keep(&mut self, ranks: impl Iterator<Item = u64>) {
        for rank in ranks {
            if rank > self.least {
                self.kept[self.count] = rank;
                self.count += 1;
            }
        }
        if self.count + PAGE_TOKENS > self.kept.len() {
            self.leave();
        }
    }

    /// Leaves the best.
    #[inline(never)]
    fn leave(&mut self) {
        if self.count > self.top {
            let (_, least, _) = self.kept[..self.count].select_nth_unstable_by(self.top - 1, |a, b| b.cmp(a));
            self.least = *least;
            self.count = self.top;
        }
    }

    /// Writes the numbers of the best, ascending, then −1.
    pub(crate) fn write(mut self, out: &mut [f32]) {
        self.leave();
        let numbers = &mut self.kept[..self.count];
        numbers.iter_mut().for_each(|rank| *rank = u64::from(!(*rank as u32)));
        numbers.sort_unstable();
        for (i, out) in out.iter_mut().enumerate() {
            *out = numbers.get(i).map_or(-1.0, |n| *n as f32);
        }
    }
}

/// The result where all rows are selected.
fn all(rows: usize, out: &mut [f32]) {
    out.iter_mut().enumerate().for_each(|(i, out)| *out = if i < rows { i as f32 } else { -1.0 });
}

/// See [`SelectArgs`]; `score` gives the scores of the page of rows from a number on.
///
/// # Safety
/// As the arguments say.
#[inline(always)]
pub(crate) unsafe fn select_by(a: &SelectArgs, mut score: impl FnMut(usize) -> [f32; PAGE_TOKENS]) -> u64 {
    let (rows, top) = (a.rows as usize, a.top as usize);
    let (out, kept) = unsafe {
        let kept = a.work.add(PAGE_TOKENS * a.d as usize * 4).cast();
        (slice::from_raw_parts_mut(a.out, top), slice::from_raw_parts_mut(kept, select_kept(top)))
    };
    if rows <= top {
        if a.part_from == 0 {
            all(rows, out);
        }
        return (a.part_from == 0).into();
    }
    let share = Share::of_blocks(0..rows.div_ceil(ATTEND_BLOCK), (a.part_from, a.part_to));
    let mut best = Best::new(kept, top);
    let end = rows.min(share.own.end * ATTEND_BLOCK);
    let mut first = share.own.start * ATTEND_BLOCK;
    while first < end {
        best.take(&score(first)[..PAGE_TOKENS.min(end - first)], first);
        first += PAGE_TOKENS;
    }
    if share.alone() {
        best.write(out);
        return 1;
    }
    if share.own.is_empty() {
        return 0;
    }
    unsafe {
        let records = a.shared.wrapping_add(64).cast::<u64>();
        best.leave();
        let own =
            slice::from_raw_parts_mut(records.add(share.own.start * ATTEND_BLOCK), share.own.len() * ATTEND_BLOCK);
        let (some, rest) = own.split_at_mut(best.count);
        some.copy_from_slice(&best.kept[..best.count]);
        rest.fill(0);
        if !share.arrive(a.shared) {
            return 0;
        }
        let mut best = Best::new(best.kept, top);
        for page in slice::from_raw_parts(records, share.all.len() * ATTEND_BLOCK).chunks(PAGE_TOKENS) {
            best.keep(page.iter().copied());
        }
        best.write(out);
    }
    1
}

/// See [`SelectArgs`].
///
/// # Safety
/// As the arguments say; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn select<I: Isa>(a: &SelectArgs) -> u64 {
    unsafe {
        let page = a.work.cast::<f32>();
        select_by(a, |first| {
            let base = a.pool.wrapping_add(a.pages.add(first / PAGE_TOKENS).read() as usize * a.page_bytes as usize);
            let at = (base.wrapping_add(a.v as usize), base.wrapping_add(a.v_scales as usize));
            let values = Rows::of_page(at, (a.dtype as u32, a.d as usize));
            I::apart::<_, Turned<I>>((&values, page));
            let mut scores = [0f32; PAGE_TOKENS];
            I::apart::<_, Scores<I>>((a, page, &mut scores));
            scores
        })
    }
}

/// A page as f32, `[d][16]`.
struct Turned<I>(core::marker::PhantomData<I>);
impl<'a, I: Isa> Apart<(&'a Rows, *mut f32)> for Turned<I> {
    #[inline(always)]
    unsafe fn run((rows, to): (&'a Rows, *mut f32)) {
        unsafe { rows.together::<I>(to, true) }
    }
}

/// Scores of a page.
struct Scores<I>(core::marker::PhantomData<I>);
impl<'a, I: Isa> Apart<(&'a SelectArgs, *mut f32, &'a mut [f32; PAGE_TOKENS])> for Scores<I> {
    #[inline(always)]
    unsafe fn run((a, page, scores): (&'a SelectArgs, *mut f32, &'a mut [f32; PAGE_TOKENS])) {
        unsafe {
            let mut sums = [I::splat(0.0); 2];
            let (mut head, heads) = (0, a.heads as usize);
            while heads - head >= TOGETHER {
                products::<I, TOGETHER>(a, page, head, &mut sums);
                head += TOGETHER;
            }
            while head < heads {
                products::<I, 1>(a, page, head, &mut sums);
                head += 1;
            }
            for v in 0..PAGE_TOKENS / I::LANES {
                I::store(scores.as_mut_ptr().add(v * I::LANES), sums[v]);
            }
        }
    }
}

/// Heads whose products are in registers at once.
const TOGETHER: usize = 6;

/// Adds the products of `H` heads from `head` on, times their weights, to the scores of a page.
#[inline(always)]
unsafe fn products<I: Isa, const H: usize>(a: &SelectArgs, page: *const f32, head: usize, sums: &mut [I::F; 2]) {
    unsafe {
        let d = a.d as usize;
        let mut acc = [[I::splat(0.0); 2]; H];
        let q = a.q.add(head * d);
        for i in 0..d {
            for v in 0..PAGE_TOKENS / I::LANES {
                let keys = I::load(page.add(i * PAGE_TOKENS + v * I::LANES).cast());
                for h in 0..H {
                    acc[h][v] = I::fma(keys, I::splat(q.add(h * d + i).read()), acc[h][v]);
                }
            }
        }
        let zero = I::splat(0.0);
        for h in 0..H {
            let weight = I::splat(a.weights.add(head + h).read());
            for v in 0..PAGE_TOKENS / I::LANES {
                let positive = I::where_less(acc[h][v], zero, zero, acc[h][v]);
                sums[v] = I::fma(positive, weight, sums[v]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn of(scores: &[f32], top: usize) -> std::vec::Vec<f32> {
        let mut kept = std::vec![0; select_kept(top)];
        let mut best = Best::new(&mut kept, top);
        scores.chunks(PAGE_TOKENS).enumerate().for_each(|(i, page)| best.take(page, i * PAGE_TOKENS));
        let mut out = std::vec![0.0; top];
        best.write(&mut out);
        out
    }

    #[test]
    fn the_first_of_equal_scores_are_kept_and_nan_comes_last() {
        let mut scores = [1.0f32; 100];
        (scores[7], scores[70], scores[99]) = (f32::NAN, 2.0, 3.0);
        assert_eq!(of(&scores, 5), [0.0, 1.0, 2.0, 70.0, 99.0]);
        assert_eq!(of(&[-0.0, 0.0, -0.0, f32::NEG_INFINITY], 2), [0.0, 1.0]);
        assert_eq!(of(&[f32::NAN, f32::NEG_INFINITY, -1.0], 2), [1.0, 2.0]);
        assert_eq!(of(&[f32::NAN, -f32::NAN, f32::NAN], 2), [0.0, 1.0]);
    }

    #[test]
    fn orders_of_scores_do_not_matter() {
        let ascending: std::vec::Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let descending: std::vec::Vec<f32> = (0..1000).map(|i| -i as f32).collect();
        assert_eq!(of(&ascending, 3), [997.0, 998.0, 999.0]);
        assert_eq!(of(&descending, 3), [0.0, 1.0, 2.0]);
    }
}
