//! Attention over pages of the cache, generic over [`Isa`] and the element type of the cache.
//!
//! Rows are (token, query head) pairs; all share the pages of one KV head. Per page: scores of a block of rows (a key vector is widened once for all of them), masks,
//! online softmax per row, then the weighted values of a block of rows. A row sees its own pages in ascending order and its own
//! chains of accumulation, so blocks change no bit of it.

use llmcc_abi::{ATTEND_WORK, AttendArgs, PAGE_TOKENS, kv_dtype};

use crate::isa::Isa;

/// Element type of a cache.
pub(crate) trait Cache<I: Isa> {
    /// Bytes per element.
    const BYTES: usize;
    /// Whether each slot has a scale.
    const SCALED: bool;
    /// `LANES` elements as f32.
    ///
    /// # Safety
    /// As [`Isa::load`], for so many elements.
    unsafe fn load(p: *const u8) -> I::F;
}

macro_rules! caches {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, $scaled:literal, $load:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl<I: Isa> Cache<I> for $name {
            const BYTES: usize = $bytes;
            const SCALED: bool = $scaled;
            #[inline(always)]
            unsafe fn load(p: *const u8) -> I::F {
                unsafe { I::$load(p) }
            }
        }
    )* };
}
caches! {
    /// f32.
    KvF32: 4, false, load;
    /// IEEE binary16.
    KvF16: 2, false, load_f16;
    /// bfloat16.
    KvBf16: 2, false, load_bf16;
    /// int8 with scales.
    KvInt8: 1, true, load_i8;
}

/// Offsets in a row's work.
const MAXIMUM: usize = 0;
const SUM: usize = 1;
const CORRECTION: usize = 2;
const PROBABILITIES: usize = 4;

/// Below this, `exp` is 0: the smallest normal number is `e^-87.34`.
pub(crate) const EXP_MIN: f32 = -87.0;
/// `ln 2` in two parts: the product of the first with a whole number below 2^8 is exact.
pub(crate) const LN2_HIGH: f32 = 0.693_359_4;
pub(crate) const LN2_LOW: f32 = -2.121_944_4e-4;
/// Polynomial of `(e^r − 1 − r) / r²` on `|r| <= ln 2 / 2`, highest power first (Cephes `expf`).
pub(crate) const EXP_POLY: [f32; 6] = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// `e^x` for `x <= 0`, 0 below [`EXP_MIN`]; 1 ulp.
#[inline(always)]
unsafe fn exp<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let n = I::round(I::mul(x, I::splat(core::f32::consts::LOG2_E)));
        let k = I::to_f32(n);
        let r = I::fma(k, I::splat(-LN2_HIGH), x);
        let r = I::fma(k, I::splat(-LN2_LOW), r);
        let mut p = I::splat(EXP_POLY[0]);
        for c in 1..EXP_POLY.len() {
            p = I::fma(p, r, I::splat(EXP_POLY[c]));
        }
        let p = I::fma(p, I::mul(r, r), r);
        let value = I::mul(I::add(p, I::splat(1.0)), I::pow2(n));
        I::zero_where_less(value, x, I::splat(EXP_MIN))
    }
}

/// One call, taken apart.
#[derive(Clone, Copy)]
struct Run<'a> {
    a: &'a AttendArgs,
    rows: usize,
    heads: usize,
    d: usize,
}

/// A page of one KV head.
#[derive(Clone, Copy)]
struct Page {
    k: *const u8,
    v: *const u8,
    k_scales: *const u8,
    v_scales: *const u8,
    /// Position of slot 0.
    start: i64,
}

impl Run<'_> {
    #[inline(always)]
    unsafe fn query(&self, row: usize) -> *const f32 {
        unsafe { self.a.q.byte_add(row / self.heads * self.a.q_stride as usize).add(row % self.heads * self.d) }
    }

    #[inline(always)]
    unsafe fn out(&self, row: usize) -> *mut f32 {
        unsafe { self.a.out.byte_add(row / self.heads * self.a.out_stride as usize).add(row % self.heads * self.d) }
    }

    #[inline(always)]
    unsafe fn work(&self, row: usize) -> *mut f32 {
        unsafe { self.a.work.add(row * ATTEND_WORK) }
    }

    #[inline(always)]
    unsafe fn position(&self, row: usize) -> i64 {
        unsafe { i64::from(self.a.positions.add(row / self.heads).read()) }
    }

    /// Slots `from..to` of a page that a row sees.
    #[inline(always)]
    unsafe fn range(&self, row: usize, page: &Page) -> (i32, i32) {
        let position = unsafe { self.position(row) };
        let first = if self.a.window == 0 { 0 } else { position + 1 - self.a.window as i64 };
        let clamp = |x: i64| x.clamp(0, PAGE_TOKENS as i64) as i32;
        (clamp(first - page.start), clamp(position + 1 - page.start))
    }

    /// Page `number` of the sequence.
    #[inline(always)]
    unsafe fn page(&self, number: usize) -> Page {
        let a = self.a;
        unsafe {
            let base = a.pool.add(a.pages.add(number).read() as usize * a.page_bytes as usize);
            Page {
                k: base.add(a.k as usize),
                v: base.add(a.v as usize),
                k_scales: base.wrapping_add(a.k_scales as usize),
                v_scales: base.wrapping_add(a.v_scales as usize),
                start: (number * PAGE_TOKENS) as i64,
            }
        }
    }
}

/// Attention: see [`AttendArgs`].
///
/// # Safety
/// As [`llmcc_abi::AttendFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn attend<I: Isa>(a: &AttendArgs) {
    unsafe {
        match a.dtype {
            kv_dtype::F32 => attend_as::<I, KvF32>(a),
            kv_dtype::F16 => attend_as::<I, KvF16>(a),
            kv_dtype::BF16 => attend_as::<I, KvBf16>(a),
            _ => attend_as::<I, KvInt8>(a),
        }
    }
}

/// Rows that need so few operations per byte that memory is asked ahead of time.
const FEW_ROWS: usize = 8;

#[inline(always)]
unsafe fn attend_as<I: Isa, C: Cache<I>>(a: &AttendArgs) {
    let run = Run { a, rows: (a.tokens * a.heads) as usize, heads: a.heads as usize, d: a.d as usize };
    if run.rows == 0 {
        return;
    }
    unsafe {
        for row in 0..run.rows {
            run.work(row).add(MAXIMUM).write(f32::NEG_INFINITY);
            run.work(row).add(SUM).write(0.0);
            run.out(row).write_bytes(0, run.d);
        }
        // Positions ascend: the first token sees the oldest slots, the last one the newest.
        let oldest = if a.window == 0 { 0 } else { (run.position(0) + 1 - a.window as i64).max(0) };
        let end = run.position(run.rows - 1) as usize / PAGE_TOKENS + 1;
        for number in oldest as usize / PAGE_TOKENS..end {
            let page = run.page(number);
            if run.rows <= FEW_ROWS && number + 1 < end {
                ahead::<I>(&run.page(number + 1), run.d * PAGE_TOKENS * C::BYTES);
            }
            score_rows::<I, C>(&run, &page);
            weigh_rows::<I, C>(&run, &page);
        }
        for row in 0..run.rows {
            finish::<I>(&run, row);
        }
    }
}

/// Asks for a page of one KV head: `bytes` of keys and as many of values.
#[inline(always)]
unsafe fn ahead<I: Isa>(page: &Page, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        unsafe {
            I::prefetch(page.k.wrapping_add(at));
            I::prefetch(page.v.wrapping_add(at));
        }
        at += 64;
    }
}

#[inline(always)]
unsafe fn score_rows<I: Isa, C: Cache<I>>(run: &Run, page: &Page) {
    let mut row = 0;
    macro_rules! blocks {
        ($($n:literal)*) => { $(
            if const { $n <= I::ATTEND_SCORES } {
                while run.rows - row >= $n {
                    unsafe { score::<I, C, $n>(run, page, row) };
                    row += $n;
                }
            }
        )* };
    }
    blocks!(12 8 4 2 1);
}

/// Scores of `R` rows, and what follows from them: maximum, probabilities, sum, correction.
#[inline(always)]
unsafe fn score<I: Isa, C: Cache<I>, const R: usize>(run: &Run, page: &Page, first: usize) {
    unsafe {
        let mut q = [core::ptr::null::<f32>(); R];
        for r in 0..R {
            q[r] = run.query(first + r);
        }
        let zero = I::splat(0.0);
        // A page is 16 slots: one vector, or two.
        let mut acc = [[zero; 2]; R];
        let (row_bytes, half) = (PAGE_TOKENS * C::BYTES, I::LANES * C::BYTES);
        for i in 0..run.d {
            let k = page.k.add(i * row_bytes);
            let low = C::load(k);
            if const { I::LANES == PAGE_TOKENS } {
                for r in 0..R {
                    acc[r][0] = I::fma(low, I::splat(q[r].add(i).read()), acc[r][0]);
                }
            } else {
                let high = C::load(k.add(half));
                for r in 0..R {
                    let x = I::splat(q[r].add(i).read());
                    acc[r][0] = I::fma(low, x, acc[r][0]);
                    acc[r][1] = I::fma(high, x, acc[r][1]);
                }
            }
        }
        for r in 0..R {
            soften::<I, C>(run, page, first + r, acc[r]);
        }
    }
}

/// Online softmax of one row's scores.
#[inline(always)]
unsafe fn soften<I: Isa, C: Cache<I>>(run: &Run, page: &Page, row: usize, scores: [I::F; 2]) {
    unsafe {
        let vectors = PAGE_TOKENS / I::LANES;
        let work = run.work(row);
        let (from, to) = run.range(row, page);
        let zero = I::splat(0.0);
        if from >= to {
            // Nothing of this page is seen; others of its block may see it.
            work.add(CORRECTION).write(1.0);
            for v in 0..vectors {
                I::store(work.add(PROBABILITIES + v * I::LANES), zero);
            }
            return;
        }
        let none = I::splat(f32::NEG_INFINITY);
        let mut s = scores;
        let mut largest = none;
        for v in 0..vectors {
            if C::SCALED {
                s[v] = I::mul(s[v], I::load(page.k_scales.add(v * I::LANES * 4)));
            }
            s[v] = I::mul(s[v], I::splat(run.a.scale));
            s[v] = I::keep_lanes(s[v], none, from - (v * I::LANES) as i32, to - (v * I::LANES) as i32);
            largest = I::max(largest, s[v]);
        }
        let old = work.add(MAXIMUM).read();
        let new = I::max(I::splat(old), I::splat(I::max_float_lane(largest)));
        let mut p = [zero; 2];
        for v in 0..vectors {
            // What was masked is far below the maximum: its probability is 0.
            p[v] = exp::<I>(I::sub(s[v], new));
        }
        let correction = exp::<I>(I::sub(I::splat(old), new));
        let total = if vectors == 1 { I::sum_float_lanes(p[0], zero) } else { I::sum_float_lanes(p[0], p[1]) };
        let mut first = [0f32; PAGE_TOKENS];
        I::store(first.as_mut_ptr(), correction);
        work.add(CORRECTION).write(first[0]);
        I::store(first.as_mut_ptr(), new);
        work.add(MAXIMUM).write(first[0]);
        let sum = I::fma(I::splat(work.add(SUM).read()), correction, I::splat(total));
        I::store(first.as_mut_ptr(), sum);
        work.add(SUM).write(first[0]);
        for v in 0..vectors {
            if C::SCALED {
                // Slots outside the range may hold any scale.
                let scales = I::load(page.v_scales.add(v * I::LANES * 4));
                let scales = I::keep_lanes(scales, zero, from - (v * I::LANES) as i32, to - (v * I::LANES) as i32);
                p[v] = I::mul(p[v], scales);
            }
            I::store(work.add(PROBABILITIES + v * I::LANES), p[v]);
        }
    }
}

#[inline(always)]
unsafe fn weigh_rows<I: Isa, C: Cache<I>>(run: &Run, page: &Page) {
    let mut row = 0;
    macro_rules! blocks {
        ($($n:literal)*) => { $(
            while run.rows - row >= $n {
                unsafe { weigh_columns::<I, C, $n>(run, page, row) };
                row += $n;
            }
        )* };
    }
    blocks!(4 2 1);
}

#[inline(always)]
unsafe fn weigh_columns<I: Isa, C: Cache<I>, const R: usize>(run: &Run, page: &Page, first: usize) {
    let (mut from, mut to) = (PAGE_TOKENS as i32, 0);
    for r in 0..R {
        let (a, b) = unsafe { run.range(first + r, page) };
        if a < b {
            from = from.min(a);
            to = to.max(b);
        }
    }
    if from >= to {
        return;
    }
    let slots = (from as usize, to as usize);
    let mut column = 0;
    macro_rules! blocks {
        ($($n:literal)*) => { $(
            while run.d - column >= $n * I::LANES {
                unsafe { weigh::<I, C, R, $n>(run, page, first, slots, column) };
                column += $n * I::LANES;
            }
        )* };
    }
    blocks!(4 2 1);
    // What is less than a vector: alone in a vector filled up with zeros.
    if column < run.d {
        unsafe { weigh_tail::<I, C, R>(run, page, first, slots, column) };
    }
}

/// `out = out·correction + Σ p·V` for `R` rows and `V` vectors of columns from `column` on.
#[inline(always)]
unsafe fn weigh<I: Isa, C: Cache<I>, const R: usize, const V: usize>(
    run: &Run,
    page: &Page,
    first: usize,
    (from, to): (usize, usize),
    column: usize,
) {
    unsafe {
        let mut acc = [[I::splat(0.0); V]; R];
        for r in 0..R {
            let correction = I::splat(run.work(first + r).add(CORRECTION).read());
            for v in 0..V {
                acc[r][v] = I::mul(I::load(run.out(first + r).add(column + v * I::LANES).cast()), correction);
            }
        }
        for slot in from..to {
            let mut values = [I::splat(0.0); V];
            for v in 0..V {
                values[v] = C::load(page.v.add((slot * run.d + column + v * I::LANES) * C::BYTES));
            }
            for r in 0..R {
                let p = I::splat(run.work(first + r).add(PROBABILITIES + slot).read());
                for v in 0..V {
                    acc[r][v] = I::fma(values[v], p, acc[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                I::store(run.out(first + r).add(column + v * I::LANES), acc[r][v]);
            }
        }
    }
}

#[inline(always)]
unsafe fn weigh_tail<I: Isa, C: Cache<I>, const R: usize>(run: &Run, page: &Page, first: usize, (from, to): (usize, usize), column: usize) {
    let count = run.d - column;
    unsafe {
        for r in 0..R {
            let (work, out) = (run.work(first + r), run.out(first + r).add(column));
            let mut tail = [0f32; PAGE_TOKENS];
            core::ptr::copy_nonoverlapping(out, tail.as_mut_ptr(), count);
            let mut acc = I::mul(I::load(tail.as_ptr().cast()), I::splat(work.add(CORRECTION).read()));
            for slot in from..to {
                let mut bytes = [0u8; PAGE_TOKENS * 4];
                let at = page.v.add((slot * run.d + column) * C::BYTES);
                core::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), count * C::BYTES);
                acc = I::fma(C::load(bytes.as_ptr()), I::splat(work.add(PROBABILITIES + slot).read()), acc);
            }
            I::store(tail.as_mut_ptr(), acc);
            core::ptr::copy_nonoverlapping(tail.as_ptr(), out, count);
        }
    }
}

/// Divides a row by the sum of its probabilities.
#[inline(always)]
unsafe fn finish<I: Isa>(run: &Run, row: usize) {
    unsafe {
        let total = run.work(row).add(SUM).read();
        for i in 0..run.d {
            let p = run.out(row).add(i);
            p.write(p.read() / total);
        }
    }
}
