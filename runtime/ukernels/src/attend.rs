//! Attention over pages of the cache, generic over [`Isa`] and the element type of the cache.
//!
//! Rows are (token, query head) pairs; all share the pages of one KV head. A context is taken in blocks of 256 tokens, each by groups of rows: all scores of the
//! block (`score.rs`: a key vector is widened once for several rows), then the softmax of each row over the block (`soften.rs`), then the weighted values, whose sums stay in registers
//! through the whole block (`weigh.rs`), and last the blocks are merged (`merge.rs`). So what is not a multiply-add is a few per cent, and blocks are what threads share out (`../split.rs`). A row has its
//! own chains of accumulation over fixed blocks: tiles, groups and threads change no bit of it.
//!
//! With few rows the bound is memory: every loop asks for the page that is its next but one, through the block table, while it works on another.

use llmcc_abi::{ATTEND_BLOCK, ATTEND_ROWS, AttendArgs, PAGE_TOKENS, attend_record, kv_dtype};

use crate::isa::Isa;
use crate::split::{self, Share};

mod exp;
mod merge;
mod score;
mod soften;
mod weigh;

/// Element type of a cache.
pub(crate) trait Cache<I: Isa> {
    /// Bytes per element.
    const BYTES: usize;
    /// Whether each slot has a scale.
    const SCALED: bool;
    /// Whether there are tiles for all numbers of rows. The types that are rarely asked for go without, since every instance is in every artifact.
    const ALL_TILES: bool;
    /// `LANES` elements as f32.
    ///
    /// # Safety
    /// As [`Isa::load`], for so many elements.
    unsafe fn load(p: *const u8) -> I::F;
}

macro_rules! caches {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, $scaled:literal, $all:literal, $load:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl<I: Isa> Cache<I> for $name {
            const BYTES: usize = $bytes;
            const SCALED: bool = $scaled;
            const ALL_TILES: bool = $all;
            #[inline(always)]
            unsafe fn load(p: *const u8) -> I::F {
                unsafe { I::$load(p) }
            }
        }
    )* };
}
caches! {
    /// f32.
    KvF32: 4, false, false, load;
    /// IEEE binary16.
    KvF16: 2, false, true, load_f16;
    /// bfloat16.
    KvBf16: 2, false, false, load_bf16;
    /// int8 with scales.
    KvInt8: 1, true, true, load_i8;
}

/// Offsets in the result of a block for a row: see [`attend_record`].
const MAXIMUM: usize = 0;
const SUM: usize = 1;
const VALUES: usize = 2;

/// Pages of a block.
const PAGES: usize = ATTEND_BLOCK / PAGE_TOKENS;

/// One call, taken apart.
#[derive(Clone, Copy)]
struct Run<'a> {
    a: &'a AttendArgs,
    rows: usize,
    heads: usize,
    d: usize,
    /// The page after the last one to be read.
    end_page: usize,
}

/// A page of one KV head.
#[derive(Clone, Copy)]
struct Page {
    k: *const u8,
    v: *const u8,
    k_scales: *const u8,
    v_scales: *const u8,
}

/// A group of rows at work on a block.
#[derive(Clone, Copy)]
struct Group {
    /// First row.
    first: usize,
    rows: usize,
    /// First page of the block.
    page: usize,
    /// Pages of the block, counted from `page`, that any row sees.
    from: usize,
    to: usize,
    /// Scores, later weights, `[rows][ATTEND_BLOCK]`.
    scores: *mut f32,
    /// Results `[rows][attend_record]`.
    records: *mut f32,
}

impl Group {
    /// Scores of row `row` of the group.
    #[inline(always)]
    fn scores(&self, row: usize) -> *mut f32 {
        self.scores.wrapping_add(row * ATTEND_BLOCK)
    }
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

    /// Maximum and sum over the blocks so far.
    #[inline(always)]
    fn state(&self, row: usize) -> *mut f32 {
        self.a.work.wrapping_add(2 * row)
    }

    #[inline(always)]
    unsafe fn position(&self, row: usize) -> usize {
        unsafe { self.a.positions.add(row / self.heads).read() as usize }
    }

    /// Slots `from..to`, counted from the block at page `page`, that a row sees; none if not `from < to`.
    #[inline(always)]
    unsafe fn range(&self, row: usize, page: usize) -> (usize, usize) {
        let position = unsafe { self.position(row) };
        let start = page * PAGE_TOKENS;
        let from = split::oldest(self.a, position).saturating_sub(start);
        (from, (position + 1).saturating_sub(start).min(ATTEND_BLOCK))
    }

    /// Slots of a block that any of `rows` rows from `row` on sees; none if not `from < to`.
    #[inline(always)]
    unsafe fn union(&self, row: usize, rows: usize, page: usize) -> (usize, usize) {
        // Positions ascend, and so do both bounds.
        unsafe { (self.range(row, page).0, self.range(row + rows - 1, page).1) }
    }

    /// Page `number` of the sequence.
    #[inline(always)]
    unsafe fn page(&self, number: usize) -> Page {
        let a = self.a;
        unsafe {
            let base = a.pool.wrapping_add(a.pages.add(number).read() as usize * a.page_bytes as usize);
            Page {
                k: base.wrapping_add(a.k as usize),
                v: base.wrapping_add(a.v as usize),
                k_scales: base.wrapping_add(a.k_scales as usize),
                v_scales: base.wrapping_add(a.v_scales as usize),
            }
        }
    }

    /// The keys or values that will be wanted `distance` pages after page `number` (of the block of `group`): keys of a block are followed by its values, those by the keys of the next
    /// block. Null: nothing follows, or the call computes so much per byte that asking would only take time.
    #[inline(always)]
    unsafe fn ahead(&self, group: &Group, number: usize, distance: usize, keys: bool) -> *const u8 {
        if self.rows > FEW_ROWS {
            return core::ptr::null();
        }
        let (next, end) = (number + distance, group.page + group.to);
        unsafe {
            match (keys, next < end) {
                (true, true) => self.page(next).k,
                (true, false) => self.page((group.page + group.from + next - end).min(end - 1)).v,
                (false, true) => self.page(next).v,
                (false, false) if next < self.end_page => self.page(next).k,
                (false, false) => core::ptr::null(),
            }
        }
    }
}

/// Rows that need so few operations per byte that memory is asked ahead of time.
const FEW_ROWS: usize = 8;

/// Attention: see [`AttendArgs`].
///
/// # Safety
/// As [`llmcc_abi::AttendFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn attend<I: Isa>(a: &AttendArgs) -> u64 {
    unsafe {
        match a.dtype {
            kv_dtype::F32 => attend_as::<I, KvF32>(a),
            kv_dtype::F16 => attend_as::<I, KvF16>(a),
            kv_dtype::BF16 => attend_as::<I, KvBf16>(a),
            _ => attend_as::<I, KvInt8>(a),
        }
    }
}

#[inline(always)]
unsafe fn attend_as<I: Isa, C: Cache<I>>(a: &AttendArgs) -> u64 {
    let (heads, d) = (a.heads as usize, a.d as usize);
    let rows = a.tokens as usize * heads;
    if rows == 0 {
        return 1;
    }
    unsafe {
        let share = Share::new(a);
        let mut run = Run { a, rows, heads, d, end_page: 0 };
        run.end_page = (run.position(rows - 1) / PAGE_TOKENS + 1).min(share.own.end * PAGES);
        let alone = share.alone();
        if alone {
            merge::start(&run);
        }
        for block in share.own.clone() {
            let mut first = 0;
            while first < rows {
                let count = ATTEND_ROWS.min(rows - first);
                let scores = a.work.add(2 * rows);
                let records = if alone { scores.add(count * ATTEND_BLOCK) } else { share.record(a, block).add(first * attend_record(d)) };
                let page = block * PAGES;
                let (from, to) = run.union(first, count, page);
                if from < to {
                    let (from, to) = (from / PAGE_TOKENS, to.div_ceil(PAGE_TOKENS));
                    let group = Group { first, rows: count, page, from, to, scores, records };
                    score::group::<I, C>(&run, &group);
                    soften::group::<I, C>(&run, &group);
                    weigh::group::<I, C>(&run, &group);
                    if alone {
                        merge::group::<I>(&run, &group);
                    }
                }
                first += count;
            }
        }
        if !alone {
            if !share.arrive(a) {
                return 0;
            }
            merge::start(&run);
            for block in share.all.clone() {
                let group = Group {
                    first: 0,
                    rows,
                    page: block * PAGES,
                    from: 0,
                    to: PAGES,
                    scores: core::ptr::null_mut(),
                    records: share.record(a, block),
                };
                merge::group::<I>(&run, &group);
            }
        }
        merge::finish(&run);
    }
    1
}
