//! Attention over pages of the cache, generic over [`Isa`] and the element type of the cache.
//!
//! Rows are (token, query head) pairs; all share the pages of one KV head. A context is taken in
//! blocks of 256 tokens, each by groups of rows: all scores of the block (`score.rs`), then the
//! softmax of each row over the block (`soften.rs`), then the weighted values (`weigh.rs`), and
//! last the blocks are merged (`merge.rs`); for one KV head of the call after the other, before the
//! next block. So everything but multiply-adds is a tenth, and threads share the work by blocks
//! (`../split.rs`). A row has its own chains of accumulation over fixed blocks: tiles, groups and
//! threads change no bit of it.
//!
//! With few rows the bound is memory: tiles of rows go through the pages as they lie in the cache,
//! and scores and weighted values ask for pages further on, through the block table, while they
//! work on others. Those requests reach the bandwidth of long runs only if the memory beside the
//! part of a KV head is read soon, too, hence the order of heads (measured on a Xeon: a thread
//! reads 10 GB/s of 17 where each head goes through the whole context, 16 where all heads go
//! through a block). An int8 cache is then bound by the vector ports: of six instructions on 16
//! elements, four multiply and two widen.
//!
//! With many rows the bound is arithmetic: four pages at a time are widened to f32 (`wide.rs`) and
//! stay in the first-level cache while all tiles of rows use them. Otherwise each tile would widen
//! them again, which on Intel takes the ports that multiply, and few of them would stay in the
//! cache: the distance between pages of a head is a multiple of the cache's set stride, and so is
//! that of queries.
//!
//! Pages of a latent cache are always widened, however many rows there are: a key's second part is
//! the value, and lies the other way round.
//!
//! The files of this folder use each other (`tests/tests/circles.rs`): they are steps of one function,
//! inlined into it.

use core::mem::MaybeUninit;

use llmcc_abi::{
    ATTEND_BLOCK, ATTEND_ROWS, ATTEND_STRIDE, ATTEND_WIDE, AttendArgs, AttendMore, AttendWith, PAGE_TOKENS,
    attend_record, kv_dtype,
};

use crate::isa::Isa;
use crate::split::{self, Share};

mod bias;
mod exp;
mod merge;
mod relative;
pub(crate) mod results;
mod score;
mod soften;
mod weigh;
mod wide;

pub(crate) use exp::exp;
pub(crate) use wide::Rows;

/// Element type of a cache.
pub(crate) trait Cache<I: Isa> {
    /// Bytes per element.
    const BYTES: usize;
    /// Whether there are tiles for all numbers of rows. The types that are rarely asked for go
    /// without, since every instance is in every artifact.
    const ALL_TILES: bool;
    /// Whether these are pages widened to f32, for many rows.
    const WIDE: bool;
    /// `LANES` elements as f32.
    ///
    /// # Safety
    /// As [`Isa::load`], for so many elements.
    unsafe fn load(p: *const u8) -> I::F;
}

macro_rules! caches {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, $all:literal, $wide:literal, $load:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl<I: Isa> Cache<I> for $name {
            const BYTES: usize = $bytes;
            const ALL_TILES: bool = $all;
            const WIDE: bool = $wide;
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
    KvF16: 2, true, false, load_f16;
    /// bfloat16.
    KvBf16: 2, false, false, load_bf16;
    /// int8 with scales.
    KvInt8: 1, true, false, load_i8;
    /// Any of them as f32.
    Wide: 4, true, true, load;
}

/// `$body` with the type of the cache as `$C`.
macro_rules! typed {
    ($dtype:expr, $C:ident => $body:expr) => {
        match $dtype {
            llmcc_abi::kv_dtype::F32 => {
                type $C = super::KvF32;
                $body
            }
            llmcc_abi::kv_dtype::F16 => {
                type $C = super::KvF16;
                $body
            }
            llmcc_abi::kv_dtype::BF16 => {
                type $C = super::KvBf16;
                $body
            }
            _ => {
                type $C = super::KvInt8;
                $body
            }
        }
    };
}
use typed;

/// Arguments of the parts of attention that are compiled apart: see [`Isa::apart`].
type Args<'a> = (&'a Run<'a>, &'a Group<'a>);
/// The same for pages `from..to` of the block.
type Pages<'a> = (&'a Run<'a>, &'a Group<'a>, usize, usize);

/// `$name`, a [`Apart`] for an instruction set and a type of cache, where the function has one.
macro_rules! part {
    ($vis:vis $name:ident<$I:ident $(, $C:ident)?> = $function:ident($($arg:ident),*): $args:ident) => {
        $vis struct $name<$I $(, $C)?>(core::marker::PhantomData<($I, $($C)?)>);
        impl<'a, $I: Isa $(, $C: super::Cache<$I>)?> crate::isa::Apart<super::$args<'a>> for $name<$I $(, $C)?> {
            #[inline(always)]
            unsafe fn run(($($arg),*): super::$args<'a>) {
                unsafe { $function::<$I $(, $C)?>($($arg),*) }
            }
        }
    };
}
use part;

/// Rows of a group from which on pages are widened for all of them: each then takes part in so many
/// products that widening costs a tenth of them at most.
const MANY_ROWS: usize = 24;

/// Pages of a block.
const PAGES: usize = ATTEND_BLOCK / PAGE_TOKENS;

/// One call, taken apart.
#[derive(Clone, Copy)]
struct Run<'a> {
    a: &'a AttendArgs,
    more: &'a AttendMore,
    rows: usize,
    heads: usize,
    /// Elements of a key and of a value.
    d: usize,
    values: usize,
    /// Elements of a key that are stored as such: fewer than all in a latent cache.
    own: usize,
    /// The page after the last one to be read.
    end_page: usize,
    /// Bytes of a KV head's keys in a page; bytes from the keys of the call's first KV head to this
    /// one's; and whether another head follows.
    keys: usize,
    keys_before: usize,
    follows: bool,
}

/// A page of one KV head.
#[derive(Clone, Copy)]
struct Page {
    k: *const u8,
    v: *const u8,
    k_scales: *const u8,
    v_scales: *const u8,
}

/// A row at work on a block.
#[derive(Clone, Copy)]
struct Row {
    q: *const f32,
    /// In a latent cache: its query for the part stored as keys.
    own: *const f32,
    out: *mut f32,
    /// Query head within the KV head.
    head: usize,
    position: usize,
    /// Slots, counted from the block's first, that it sees; none if not `from < to`.
    from: usize,
    to: usize,
    /// Whether it sees nothing before this block, and nothing after it.
    begins: bool,
    ends: bool,
}

/// A group of rows at work on a block.
#[derive(Clone, Copy)]
struct Group<'a> {
    rows: &'a [Row],
    /// First page of the block.
    page: usize,
    /// Pages of the block, counted from `page`, that any row sees.
    from: usize,
    to: usize,
    /// For many rows: pages as f32, page `n` of the block at place `n % ATTEND_WIDE`.
    wide: *mut f32,
    /// For many rows: their queries, see `wide.rs`.
    queries: *mut f32,
    /// Scores, later weights, `[rows][ATTEND_STRIDE]`.
    scores: *mut f32,
    /// Results `[rows][attend_record]`.
    records: *mut f32,
    /// Maximum and sum of each row over the blocks so far.
    state: *mut f32,
}

impl Group<'_> {
    #[inline(always)]
    unsafe fn row(&self, row: usize) -> &Row {
        unsafe { self.rows.get_unchecked(row) }
    }

    /// Scores of row `row`.
    #[inline(always)]
    fn scores(&self, row: usize) -> *mut f32 {
        self.scores.wrapping_add(row * ATTEND_STRIDE)
    }

    /// Slots that any of `rows` rows from `row` on sees; none if not `from < to`.
    #[inline(always)]
    unsafe fn union(&self, row: usize, rows: usize) -> (usize, usize) {
        // Positions ascend, and so do both bounds.
        unsafe { (self.row(row).from, self.row(row + rows - 1).to) }
    }

    /// Whether pages are widened for the rows: for many, and where nothing else reads the cache.
    #[inline(always)]
    fn many(&self, run: &Run) -> bool {
        self.rows.len() >= MANY_ROWS || run.a.dtype == kv_dtype::INT4 || run.latent() || run.relative() || run.selects()
    }
}

impl<'a> Run<'a> {
    /// The call for one of its KV heads.
    #[inline(always)]
    unsafe fn new(with: &'a AttendWith, rows: usize, share: &Share) -> Run<'a> {
        let end = unsafe { split::end(&with.args, &with.more, with.args.tokens as usize - 1) };
        let end_page = end.div_ceil(PAGE_TOKENS).min(share.own.end * PAGES);
        Run {
            a: &with.args,
            more: &with.more,
            rows,
            heads: with.args.heads as usize,
            d: with.args.d as usize,
            values: with.value_dim(),
            own: with.own_dim(),
            end_page,
            keys: with.head_bytes(true),
            keys_before: 0,
            follows: false,
        }
    }

    /// Whether a key ends with the value.
    #[inline(always)]
    fn latent(&self) -> bool {
        !self.more.own.is_null()
    }

    /// Whether the token sees the slots of a selection.
    #[inline(always)]
    fn selects(&self) -> bool {
        !self.more.selected.is_null()
    }

    /// Whether distances have keys and queries.
    #[inline(always)]
    fn relative(&self) -> bool {
        !self.more.relative_keys.is_null()
    }

    /// Writes rows `first..first + count` as the block at page `page` concerns them.
    #[inline(always)]
    unsafe fn table<'t>(
        &self,
        table: &'t mut [MaybeUninit<Row>; ATTEND_ROWS],
        first: usize,
        count: usize,
        page: usize,
    ) -> &'t [Row] {
        let a = self.a;
        let start = page * PAGE_TOKENS;
        let query = if self.latent() { self.values } else { self.d };
        let (mut token, mut head) = (first / self.heads, first % self.heads);
        unsafe {
            for i in 0..count {
                let position = a.positions.add(token).read() as usize;
                let (oldest, end) = (split::oldest(a, self.more, position), split::end(a, self.more, token));
                table.get_unchecked_mut(i).write(Row {
                    q: a.q.byte_add(token * a.q_stride as usize).add(head * query),
                    own: self
                        .more
                        .own
                        .wrapping_byte_add(token * self.more.own_stride as usize)
                        .wrapping_add(head * self.own),
                    out: a.out.byte_add(token * a.out_stride as usize).add(head * self.values),
                    from: oldest.saturating_sub(start),
                    head,
                    position,
                    to: end.saturating_sub(start).min(ATTEND_BLOCK),
                    begins: oldest >= start,
                    ends: end <= start + ATTEND_BLOCK,
                });
                head += 1;
                if head == self.heads {
                    (token, head) = (token + 1, 0);
                }
            }
            core::slice::from_raw_parts(table.as_ptr().cast(), count)
        }
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

    /// The keys or values that will be wanted `distance` pages after page `number` (of the block of
    /// `group`): keys of a block are followed by its values, those by the keys of the next KV head,
    /// or of the next block. Null: nothing follows, or the call computes so much per byte that
    /// asking would only take time.
    #[inline(always)]
    unsafe fn ahead(&self, group: &Group, number: usize, distance: usize, keys: bool) -> *const u8 {
        if self.rows > FEW_ROWS {
            return core::ptr::null();
        }
        let (next, end) = (number + distance, group.page + group.to);
        let again = (group.page + group.from + next).wrapping_sub(end).min(end - 1);
        unsafe {
            match (keys, next < end) {
                (true, true) => self.page(next).k,
                (true, false) => self.page(again).v,
                (false, true) => self.page(next).v,
                (false, false) if self.follows => self.page(again).k.wrapping_add(self.keys),
                (false, false) if next < self.end_page => self.page(next).k.wrapping_sub(self.keys_before),
                (false, false) => core::ptr::null(),
            }
        }
    }
}

/// Rows that need so few operations per byte that memory is asked ahead of time.
const FEW_ROWS: usize = 8;

/// The scratch memory of a call, which takes its rows in groups: see [`llmcc_abi::attend_work`].
struct Scratch {
    /// Most rows of a group.
    most: usize,
    wide: *mut f32,
    queries: *mut f32,
    scores: *mut f32,
    /// Results of a group, where the call has all blocks.
    records: *mut f32,
    /// Maxima and sums of the rows of each KV head, one after the other.
    state: *mut f32,
}

impl Scratch {
    #[inline(always)]
    fn new(with: &AttendWith, rows: usize) -> Scratch {
        let (wide, d, values) = (with.args.work, with.args.d as usize, with.value_dim());
        // Groups of about the same size.
        let most = rows.div_ceil(rows.div_ceil(ATTEND_ROWS));
        let queries = wide.wrapping_add(ATTEND_WIDE * PAGE_TOKENS * d.max(values));
        let scores = queries.wrapping_add(most * d.next_multiple_of(wide::PART));
        let records = scores.wrapping_add(most * ATTEND_STRIDE);
        let state = records.wrapping_add(most * attend_record(values));
        Scratch { most, wide, queries, scores, records, state }
    }

    /// A group of rows, for the block at page `page`, that sees none of its pages yet.
    #[inline(always)]
    fn group<'a>(&self, rows: &'a [Row], page: usize, records: *mut f32, state: *mut f32) -> Group<'a> {
        let Scratch { wide, queries, scores, .. } = *self;
        Group { rows, page, from: 0, to: 0, wide, queries, scores, records, state }
    }
}

/// Attention: see [`AttendArgs`] and [`AttendMore`].
///
/// # Safety
/// As [`llmcc_abi::AttendFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn attend<I: Isa>(with: &AttendWith) -> u64 {
    let with = &unsafe { with.counted() };
    let (a, more) = (&with.args, &with.more);
    let rows = a.tokens as usize * a.heads as usize;
    if rows == 0 || a.kv_heads == 0 {
        return 1;
    }
    unsafe {
        let share = Share::new(a, more);
        if share.all.is_empty() {
            return results::without(with);
        }
        let scratch = Scratch::new(with, rows);
        own_blocks::<I>(with, rows, &share, &scratch);
        if !share.alone() {
            if !share.arrive(a.shared) {
                return 0;
            }
            merge_shared::<I>(with, rows, &share, &scratch);
        }
        results::more(with, scratch.state)
    }
}

/// Goes through the call's own blocks, each for one KV head after the other, in groups of rows; their
/// results are merged, or left in shared memory where others have blocks, too.
#[inline(always)]
unsafe fn own_blocks<I: Isa>(with: &AttendWith, rows: usize, share: &Share, scratch: &Scratch) {
    let (kv_heads, record) = (with.args.kv_heads as usize, attend_record(with.value_dim()));
    let (alone, most) = (share.alone(), scratch.most);
    let mut copied = false;
    let mut table = [const { MaybeUninit::uninit() }; ATTEND_ROWS];
    for step in share.own.start * kv_heads..share.own.end * kv_heads {
        let (block, head) = (step / kv_heads, step % kv_heads);
        let one = with.kv_head(head);
        unsafe {
            let run = Run::new(&one, rows, share);
            let run = Run { keys_before: head * run.keys, follows: head + 1 < kv_heads, ..run };
            let state = scratch.state.wrapping_add(2 * head * rows);
            let mut first = 0;
            while first < rows {
                let count = most.min(rows - first);
                let page = block * PAGES;
                let table = run.table(&mut table, first, count, page);
                let records = if alone { scratch.records } else { share.record(with, block).add(first * record) };
                let mut group = scratch.group(table, page, records, state.wrapping_add(2 * first));
                let (from, to) = group.union(0, count);
                if from < to {
                    (group.from, group.to) = (from / PAGE_TOKENS, to.div_ceil(PAGE_TOKENS));
                    if group.many(&run) && !copied {
                        I::apart::<_, wide::Queries<I>>((&run, &group));
                        // Another group's, or head's, would take their place.
                        copied = most == rows && kv_heads == 1;
                    }
                    score::group::<I>(&run, &group);
                    I::apart::<_, soften::Soften<I>>((&run, &group));
                    weigh::group::<I>(&run, &group);
                    if alone {
                        I::apart::<_, merge::Merge<I>>((&run, &group));
                    }
                }
                first += count;
            }
        }
    }
}

/// Merges the results of all blocks, which lie in shared memory.
#[inline(always)]
unsafe fn merge_shared<I: Isa>(with: &AttendWith, rows: usize, share: &Share, scratch: &Scratch) {
    let record = attend_record(with.value_dim());
    let mut table = [const { MaybeUninit::uninit() }; ATTEND_ROWS];
    unsafe {
        let run = Run::new(with, rows, share);
        for block in share.all.clone() {
            let records = share.record(with, block);
            let mut first = 0;
            while first < rows {
                let count = scratch.most.min(rows - first);
                let table = run.table(&mut table, first, count, block * PAGES);
                let group = scratch.group(table, 0, records.add(first * record), scratch.state.wrapping_add(2 * first));
                I::apart::<_, merge::Merge<I>>((&run, &group));
                first += count;
            }
        }
    }
}
