//! Products of queries with the keys of distances, and of keys with their queries.

use llmcc_abi::{PAGE_TOKENS, kv_dtype};

use super::{Group, Row, Run, part, wide};
use crate::isa::Isa;

part!(pub(super) Relative<I> = pages(run, group, from, to): Pages);

/// Adds them to the scores of pages `from..to`, which are widened, and scores are in the unit of
/// elements afterwards, whatever that of the cache is. A chain for each product of a score (ascending
/// `d`), then the sum of the score and the key's, over its scale, then the query's.
#[inline(always)]
unsafe fn pages<I: Isa>(run: &Run, group: &Group, from: usize, to: usize) {
    for row in 0..group.rows.len() {
        unsafe {
            let of = group.row(row);
            if of.from >= of.to {
                continue;
            }
            let (from, to) = (from.max(of.from / PAGE_TOKENS), to.min(of.to.div_ceil(PAGE_TOKENS)));
            for page in from..to {
                one::<I>(run, group, (row, of), page);
            }
        }
    }
}

#[inline(always)]
unsafe fn one<I: Isa>(run: &Run, group: &Group, (row, of): (usize, &Row), page: usize) {
    let width = run.more.bias_width();
    let first = ((group.page + page) * PAGE_TOKENS) as i64 - of.position as i64 + i64::from(run.more.reach);
    // All of them are distances of their own: the usual case.
    let apart = first >= 0 && first + PAGE_TOKENS as i64 <= width as i64;
    let at = |lane: usize| (first + lane as i64).clamp(0, width as i64 - 1) as usize;
    let scaled = kv_dtype::has_scales(run.a.dtype);
    unsafe {
        let head = of.head * run.d * width;
        let (keys, queries) = (run.more.relative_keys.add(head), run.more.relative_queries.add(head));
        let column = |table: *const f32, v: usize| {
            if apart {
                return I::load(table.add(first as usize + v * I::LANES).cast());
            }
            let mut lanes = [0f32; PAGE_TOKENS];
            for lane in 0..I::LANES {
                *lanes.get_unchecked_mut(lane) = table.add(at(v * I::LANES + lane)).read();
            }
            I::load(lanes.as_ptr().cast())
        };
        let place = wide::place(run, group, page);
        for v in 0..PAGE_TOKENS / I::LANES {
            let (mut of_key, mut of_query) = (I::splat(0.0), I::splat(0.0));
            for i in 0..run.d {
                let key = I::load(place.add(i * PAGE_TOKENS + v * I::LANES).cast());
                of_key = I::fma(key, column(queries.add(i * width), v), of_key);
                of_query = I::fma(column(keys.add(i * width), v), I::splat(of.q.add(i).read()), of_query);
            }
            let to = group.scores(row).add(page * PAGE_TOKENS + v * I::LANES);
            let mut s = I::add(I::load(to.cast()), of_key);
            if scaled {
                s = I::mul(s, I::load(run.page(group.page + page).k_scales.add(v * I::LANES * 4)));
            }
            I::store(to, I::add(s, of_query));
        }
    }
}
