//! Attention over pages of the cache: the contract of generated code and microkernels.

use crate::{PAGE_TOKENS, kv_dtype};

/// Tokens of context that attention takes at once: blocks start at multiples of it.
pub const ATTEND_BLOCK: usize = 256;
/// Parts into which the blocks of a context may be divided among threads.
pub const ATTEND_PARTS: usize = 16;
/// Most tokens of a step whose attention may be divided that way: more tokens are work enough.
pub const ATTEND_SPLIT_TOKENS: usize = 16;

/// Arguments of [`Uk::Attend`](crate::Uk::Attend): tokens of one sequence, in order, attend to its
/// pages with the query heads of one KV head. A single token may do so with several KV heads in one
/// call, which goes through the pages once, and so reads them in longer runs.
///
/// For token `t` and head `h`, over the slots `position - window < s <= position` of the sequence:
/// `out = softmax(scale * q·K) · V`. Each block of [`ATTEND_BLOCK`] slots gives a maximum `m`, a
/// sum `l` of `e^(score - m)` and the weighted values `o`: one f32 chain per score (ascending `d`)
/// and per element of `o` (ascending slot), a sum per slot modulo 16 (ascending) and of these sums
/// by halves. Blocks are merged in ascending order: with `M` the larger maximum,
/// `L = L·e^(old - M) + l·e^(m - M)`, the same for the values, second product first, the first one
/// fused. So a token's result does not depend on the tokens beside it, on who computed which block,
/// nor on the instruction set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttendArgs {
    /// Queries: head `h` of token `t` at byte `t * q_stride + h * d * 4`.
    pub q: *const f32,
    /// Bytes from one token's queries to the next's.
    pub q_stride: u64,
    /// Tokens, with ascending positions.
    pub tokens: u64,
    /// Query heads of a KV head.
    pub heads: u64,
    /// KV heads, more than 1 only for a single token with all parts: see [`AttendWith::kv_head`].
    pub kv_heads: u64,
    /// Elements of a key, and of a value unless [`AttendMore`] says otherwise.
    pub d: u64,
    /// Multiplies scores.
    pub scale: f32,
    /// See [`kv_dtype`].
    pub dtype: u32,
    /// `i32 [tokens]` positions.
    pub positions: *const i32,
    /// Sliding window in tokens, 0 = none.
    pub window: u64,
    /// The page pool.
    pub pool: *const u8,
    /// Page numbers of the sequence.
    pub pages: *const u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Byte offset in a page of the (first) KV head's keys `[d][16]`.
    pub k: u64,
    /// Offset of its values `[16][d]`.
    pub v: u64,
    /// Offset of the scales of its keys, f32 `[16]` (int8 and int4 only).
    pub k_scales: u64,
    /// Offset of the scales of its values, f32 `[16]` (int8 and int4 only).
    pub v_scales: u64,
    /// Results: head `h` of token `t` at byte `t * out_stride + h * d * 4`. Must not overlap the
    /// queries.
    pub out: *mut f32,
    /// Bytes from one token's results to the next's.
    pub out_stride: u64,
    /// Scratch: [`attend_work`] f32; fastest where it is 64-byte aligned.
    pub work: *mut f32,
    /// The part of the context to go through: of its `n` blocks those from
    /// `ceil(n * part_from / 16)` up to `ceil(n * part_to / 16)` (16 is [`ATTEND_PARTS`]). All of
    /// it, `0..16`, unless `tokens` is 1.
    pub part_from: u64,
    /// See `part_from`.
    pub part_to: u64,
    /// Where the threads that share a context leave their blocks: [`attend_shared`] bytes, 64-byte
    /// aligned, the first 64 of them zero before and after. Not accessed by who has all blocks.
    pub shared: *mut u8,
}

/// Arguments beside [`AttendArgs`] that only some models' attention needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttendMore {
    /// A score `s`, scaled, becomes `softcap·tanh(s/softcap)`; 0 = stays.
    pub softcap: f32,
    /// Elements of a value, and so of a result; 0 = as many as a key has.
    pub values: u32,
    /// f32 `[kv_heads][heads]` sinks: one more score of each query head, of a value that is zero.
    /// It comes before the first block, as a block with itself as maximum and a sum of 1. Null =
    /// none.
    pub sinks: *const f32,
    /// `i32 [tokens]` lengths of the tokens' sequences in the pages: a token sees all slots below, or those less
    /// than `window` away on either side. Null = none after its own position.
    pub ends: *const i32,
    /// Queries of the part of a key that is stored as such, where the rest of it is the value
    /// (elements `d − values`, head `h` of token `t` at byte `t * own_stride + h * (d − values) *
    /// 4`; there may be none); [`AttendArgs::q`] then holds the queries of the values. Elements of
    /// codes are multiplied by their scale before they are by a query. Null = keys are stored
    /// whole.
    pub own: *const f32,
    /// Bytes from one token's queries `own` to the next's.
    pub own_stride: u64,
    /// f32 `[kv_heads][heads][2·reach + 1]` that are added to scores, after `softcap`: with a reach
    /// of 0 each head's slope, which gives `−slope·|s − position|` to the score of slot `s`; else
    /// the number at `reach + (s − position)`, or the first or last one further away. With
    /// `bias_slots` they are `[kv_heads][heads][bias_slots]`, and the number at `s` counts, or the
    /// last one. Null = none.
    pub bias: *const f32,
    /// f32 `[kv_heads][heads][d][2·reach + 1]`: keys and queries of distances. The score of a query
    /// and the key at slot `s` grows by two products: the query with the first table's column
    /// `reach + (s − position)` (the nearest column beyond the table's ends), and the key with the
    /// second table's. Without `bias`, `softcap` and `own`. Null = none.
    pub relative_keys: *const f32,
    /// See `relative_keys`; both or none.
    pub relative_queries: *const f32,
    /// See `bias`, and `relative_keys`.
    pub reach: u32,
    /// See `bias`.
    pub bias_slots: u32,
    /// Not 0: `window` is a chunk. A token sees only slots from the last multiple of it on.
    pub chunked: u32,
    /// More than 1: a slot is of so many tokens, and a token at `position` sees the first `(position + 1) /
    /// every`, which may be none: then it gets zeros. There is no window, nothing after a token and no
    /// bias.
    pub every: u32,
    /// Not 0: there are slots of the first so many tokens alone, and a token at `position` sees the first
    /// `position + 1 − behind` of them, which may be none: then it gets zeros. There is no window, nothing after a
    /// token and no bias.
    pub first: u32,
    /// See `first`.
    pub behind: u32,
    /// Numbers from a head's maximum to its sum.
    pub sums_after: u32,
    /// Numbers of the slots that the one token sees, ascending, in place of those up to its position (or,
    /// with `every`, of those that there are): `selected_count` of them, f32. They end with the first one
    /// that is not among those. A context is of as many slots as numbers; codes are multiplied by their
    /// scale before they are by a query or by a weight. There is no window, nothing after a token, no
    /// bias and no softcap. Null = none.
    pub selected: *const f32,
    /// See `selected`.
    pub selected_count: u64,
    /// Where the maxima of scores go, and the sums of weights relative to them, the sinks among
    /// both: the maximum of head `h` of token `t` to byte `t * out_stride + h * 4`. Without any
    /// score they are f32's least number and 0. Null = nowhere.
    pub sums: *mut f32,
}

/// Arguments of [`Uk::AttendWith`](crate::Uk::AttendWith).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttendWith {
    /// As for [`Uk::Attend`](crate::Uk::Attend).
    pub args: AttendArgs,
    /// And more.
    pub more: AttendMore,
}

impl AttendWith {
    /// Nothing more than `args`.
    pub fn plain(args: AttendArgs) -> AttendWith {
        AttendWith { args, more: AttendMore::NOTHING }
    }

    /// The arguments for KV head `n` of `kv_heads` alone: queries, keys, values, scales and results
    /// of the heads lie one after the other.
    pub fn kv_head(&self, n: usize) -> AttendWith {
        let AttendWith { args: a, mut more } = *self;
        let heads = n * a.heads as usize;
        if !more.sinks.is_null() {
            more.sinks = more.sinks.wrapping_add(heads);
        }
        if !more.bias.is_null() {
            more.bias = more.bias.wrapping_add(heads * more.bias_width());
        }
        if self.relative() {
            let to = heads * a.d as usize * more.bias_width();
            more.relative_keys = more.relative_keys.wrapping_add(to);
            more.relative_queries = more.relative_queries.wrapping_add(to);
        }
        if !more.sums.is_null() {
            more.sums = more.sums.wrapping_add(heads);
        }
        if self.latent() {
            more.own = more.own.wrapping_add(heads * self.own_dim());
        }
        let scales = (n * PAGE_TOKENS * 4) as u64;
        let args = AttendArgs {
            kv_heads: 1,
            q: a.q.wrapping_add(heads * self.query_dim()),
            out: a.out.wrapping_add(heads * self.value_dim()),
            k: a.k + (n * self.head_bytes(true)) as u64,
            v: a.v + (n * self.head_bytes(false)) as u64,
            k_scales: a.k_scales + scales,
            v_scales: a.v_scales + scales,
            ..a
        };
        AttendWith { args, more }
    }

    /// Whether keys end with the values.
    pub fn latent(&self) -> bool {
        !self.more.own.is_null()
    }

    /// The same with as many selected slots as there are before the first number that is none that the
    /// token sees.
    ///
    /// # Safety
    /// The pointers are to as many positions and numbers as they say.
    pub unsafe fn counted(&self) -> AttendWith {
        let AttendWith { args, mut more } = *self;
        if !more.selected.is_null() && args.tokens > 0 {
            // SAFETY: The caller's.
            let (position, all) = unsafe {
                let numbers = core::slice::from_raw_parts(more.selected, more.selected_count as usize);
                (args.positions.read() as usize, numbers)
            };
            let seen = more.seen(position);
            let ends = |n: &f32| !(*n >= 0.0 && (*n as usize) < seen);
            more.selected_count = all.iter().position(ends).unwrap_or(all.len()) as u64;
        }
        AttendWith { args, more }
    }

    /// Whether the token sees the slots of a selection.
    pub fn selects(&self) -> bool {
        !self.more.selected.is_null()
    }

    /// The slot with the number `n` among those that the token sees.
    ///
    /// # Safety
    /// There is such a number, if any are selected.
    pub unsafe fn slot(&self, n: usize) -> usize {
        // SAFETY: The caller's.
        if self.selects() { unsafe { self.more.selected.add(n).read() as usize } } else { n }
    }

    /// Whether distances have keys and queries.
    pub fn relative(&self) -> bool {
        !self.more.relative_keys.is_null()
    }

    /// Elements of a value.
    pub fn value_dim(&self) -> usize {
        if self.more.values == 0 { self.args.d as usize } else { self.more.values as usize }
    }

    /// Elements of a key that are stored as such.
    pub fn own_dim(&self) -> usize {
        self.args.d as usize - if self.latent() { self.value_dim() } else { 0 }
    }

    /// Elements of a head at [`AttendArgs::q`].
    pub fn query_dim(&self) -> usize {
        if self.latent() { self.value_dim() } else { self.args.d as usize }
    }

    /// Bytes of a KV head's keys, or values, in a page.
    pub fn head_bytes(&self, keys: bool) -> usize {
        let d = if keys { self.own_dim() } else { self.value_dim() };
        d * PAGE_TOKENS * kv_dtype::bits(self.args.dtype).unwrap_or_default() / 8
    }
}

/// How many of the `first` tokens of a sequence a token at `position` sees, where it sees those at least `behind`
/// positions before it.
pub const fn first_seen(position: usize, first: usize, behind: usize) -> usize {
    let old = position.saturating_add(1).saturating_sub(behind);
    if old < first { old } else { first }
}

impl AttendMore {
    /// Nothing.
    pub const NOTHING: AttendMore = AttendMore {
        softcap: 0.0,
        values: 0,
        sinks: core::ptr::null(),
        ends: core::ptr::null(),
        own: core::ptr::null(),
        own_stride: 0,
        bias: core::ptr::null(),
        relative_keys: core::ptr::null(),
        relative_queries: core::ptr::null(),
        reach: 0,
        bias_slots: 0,
        chunked: 0,
        every: 1,
        first: 0,
        behind: 0,
        sums_after: 0,
        selected: core::ptr::null(),
        selected_count: 0,
        sums: core::ptr::null_mut(),
    };

    /// Whether a token may see nothing.
    pub fn may_be_blind(&self) -> bool {
        self.every > 1 || self.first > 0
    }

    /// Slots that a token at `position` sees, where these begin a sequence and nothing after the token is seen.
    pub fn seen(&self, position: usize) -> usize {
        match (self.first as usize, self.every as usize) {
            (0, 0 | 1) => position + 1,
            (0, every) => (position + 1) / every,
            (first, _) => first_seen(position, first, self.behind as usize),
        }
    }

    /// Numbers that the bias has for a head.
    pub fn bias_width(&self) -> usize {
        if self.bias_slots > 0 { self.bias_slots as usize } else { 2 * self.reach as usize + 1 }
    }
}

/// Query rows (token, head) whose scores are kept at once.
pub const ATTEND_ROWS: usize = 64;
/// f32 from one row's scores to the next's: rows begin in different sets of a cache.
pub const ATTEND_STRIDE: usize = ATTEND_BLOCK + PAGE_TOKENS;
/// Pages that are widened to f32 at once, for many rows.
pub const ATTEND_WIDE: usize = 4;

/// f32 of [`AttendArgs::work`] for `rows` pairs of a token and a query head (of all KV heads), with
/// keys of `d` elements, or values if they have more: widened pages and queries, then the scores
/// and the results of a block, then the merged results so far.
pub const fn attend_work(rows: usize, d: usize) -> usize {
    let group = if rows < ATTEND_ROWS { rows } else { ATTEND_ROWS };
    ATTEND_WIDE * PAGE_TOKENS * d + group * (d.next_multiple_of(16) + ATTEND_STRIDE + attend_record(d)) + 2 * rows
}

/// f32 of a block's result for one head: the `d` weighted values, maximum, sum, and padding to
/// whole cache lines.
pub const fn attend_record(d: usize) -> usize {
    (d + 2).next_multiple_of(16)
}

/// Bytes of [`AttendArgs::shared`] beyond the first 64 for each block of the context.
pub const fn attend_shared(heads: usize, d: usize) -> usize {
    heads * attend_record(d) * 4
}

/// Signature of [`Uk::Attend`](crate::Uk::Attend). 1: the results are in place; 0: another thread
/// will put them there, the one that finishes the last block.
pub type AttendFn = unsafe extern "C" fn(*const AttendArgs) -> u64;

/// Signature of [`Uk::AttendWith`](crate::Uk::AttendWith); see [`AttendFn`].
pub type AttendWithFn = unsafe extern "C" fn(*const AttendWith) -> u64;
