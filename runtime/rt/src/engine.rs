//! Walks the plan: one call of [`Engine::step`] takes a ragged batch of tokens of many sequences through all kernels.
//!
//! All threads walk the same list of steps; each computes its share of a step's work items and meets the others at a barrier. Which share is fixed by
//! the step, the number of rows and the number of threads, so runs are repeatable. Batches larger than the activation arena are cut into consecutive chunks, which
//! does not change results: a token's result depends on its own sequence only.

use std::mem::transmute;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use llmcc_abi::{KernelFn, NONE, PAGE_TOKENS, RegimeDesc, StepCtx, StepDesc, UkTable, operand, rows};

use crate::error::{Error, Result, Status};
use crate::image::Image;
use crate::kv::{Kv, SeqId};
use crate::memory::{self, Region};
use crate::threads::{self, Barrier, Pool};

/// How to run a model. Zero means: choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; by default one per physical core.
    pub threads: usize,
    /// Tokens the KV cache holds for all sequences together; by default the model's longest context, at least 16384, or what fits in half of the machine's memory.
    pub max_tokens: usize,
    /// Most tokens taken through the kernels at once; by default 512. Larger batches are cut.
    pub max_batch_tokens: usize,
    /// Measure every kernel.
    pub profile: bool,
}

/// A ragged batch: token `i` is appended to sequence `seqs[i]`.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids, each below the vocabulary size.
    pub tokens: &'a [i32],
    /// Sequence of each token. Tokens of one sequence need not be adjacent.
    pub seqs: &'a [SeqId],
    /// Indices of the tokens after which logits are wanted, in any order.
    pub out_rows: &'a [u32],
}

/// Default of [`Options::max_batch_tokens`].
pub const DEFAULT_BATCH_TOKENS: usize = 512;
/// Logits of one chunk may use this many bytes, unless a single row needs more.
const LOGITS_BYTES: usize = 64 << 20;

/// Steps that read fewer weights than this, times tokens, run on the calling thread alone: waking and meeting the others would cost more than they help.
const SOLO_BYTES: u64 = 2 << 20;

/// A model ready to run: image, threads, cache and activations.
pub struct Engine {
    image: Arc<Image>,
    pool: Pool,
    kv: Kv,
    uk: Box<UkTable>,
    max_batch: usize,
    /// Most rows of logits in a chunk, to bound their memory.
    max_rows: usize,
    solo_bytes: u64,
    arena: Arena,
    /// One per operand of the plan.
    pointers: Vec<*mut u8>,
    profile: Option<Profile>,
    /// Arrays behind [`StepCtx`], kept to reuse their memory.
    inputs: Inputs,
}

// SAFETY: the raw pointers refer to memory the engine owns (arena, KV pools) or that outlives it (weights).
unsafe impl Send for Engine {}

#[derive(Default)]
struct Inputs {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    seqs: Vec<i32>,
    out_rows: Vec<i32>,
    tables: Vec<u32>,
    stride: usize,
    /// KV slot of each row of `tables`.
    slots: Vec<usize>,
    /// Row of `tables` of each KV slot, [`NONE`] when absent.
    row_of_slot: Vec<u32>,
}

/// Activation slots and scratch for steps of up to `tokens` tokens and `rows` rows.
struct Arena {
    tokens: usize,
    rows: usize,
    region: Region,
    offsets: Vec<usize>,
    scratch: Region,
    scratch_stride: usize,
}

struct Profile {
    /// `(nanoseconds, calls)` per step of the plan.
    steps: Vec<(AtomicU64, AtomicU64)>,
    tokens: u64,
    batches: u64,
}

impl Engine {
    /// Prepares `image` to run with the microkernels `uk`.
    pub fn new(image: impl Into<Arc<Image>>, options: &Options, uk: UkTable) -> Result<Engine> {
        let image = image.into();
        let max_batch = if options.max_batch_tokens == 0 { DEFAULT_BATCH_TOKENS } else { options.max_batch_tokens };
        if max_batch > 1 << 20 {
            return Err(Error::invalid(format!("max_batch_tokens is {max_batch}; use 1 to {}", 1 << 20)));
        }
        let threads = if options.threads == 0 { threads::default_threads() } else { options.threads };
        let max_context = image.desc().max_context as usize;
        let max_rows = (LOGITS_BYTES / (4 * image.desc().vocab as usize)).max(1);
        let max_tokens = if options.max_tokens == 0 { default_cache(&image) } else { options.max_tokens };
        let kv = Kv::new(&image.kv, max_tokens, max_context)?;
        let pool = Pool::new(threads)?;
        let profile = options.profile.then(|| Profile::new(image.steps.len()));
        let mut engine = Engine {
            pointers: fixed_pointers(&image, &kv),
            arena: Arena::empty(),
            uk: Box::new(uk),
            inputs: Inputs::default(),
            image,
            pool,
            kv,
            max_batch,
            max_rows,
            solo_bytes: SOLO_BYTES,
            profile,
        };
        engine.grow(1, 1)?;
        Ok(engine)
    }

    /// The model.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Sequences and their cache.
    pub fn kv(&self) -> &Kv {
        &self.kv
    }

    /// Sequences and their cache, to create, truncate, fork and free them.
    pub fn kv_mut(&mut self) -> &mut Kv {
        &mut self.kv
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Most tokens taken through the kernels at once.
    pub fn max_batch_tokens(&self) -> usize {
        self.max_batch
    }

    /// Runs steps on the calling thread alone when weights times tokens are below `bytes`; 0: never. Results are the same.
    pub fn set_solo_bytes(&mut self, bytes: u64) {
        self.solo_bytes = bytes;
    }

    /// Bytes of activations and scratch for steps of `tokens` tokens and `rows` logits rows.
    pub fn activation_bytes(&self, tokens: usize, rows: usize) -> usize {
        let scratch = scratch_stride(&self.image, tokens, rows) * self.threads();
        slot_offsets(&self.image, tokens, rows).map_or(usize::MAX, |(_, bytes)| bytes.saturating_add(scratch))
    }

    /// Bytes of activations and scratch allocated now.
    pub fn arena_bytes(&self) -> usize {
        self.arena.region.len() + self.arena.scratch.len()
    }

    /// Appends the batch's tokens to their sequences and calls `sink(i, logits)` for each `out_rows[i]`, `logits` having one f32 per vocabulary entry.
    ///
    /// Everything is checked first: on an error no sequence has changed and `sink` was not called.
    pub fn step(&mut self, batch: &Batch, sink: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.pool.check_process()?;
        let wanted = self.check(batch)?;
        self.kv.reserve(&wanted)?;
        let mut order: Vec<usize> = (0..batch.out_rows.len()).collect();
        order.sort_by_key(|&i| batch.out_rows[i]);
        let (mut from, mut done) = (0, 0);
        while from < batch.tokens.len() {
            let (to, upto) = chunk(batch, &order, (from, done), self.max_batch, self.max_rows);
            if let Err(error) = self.run_chunk(batch, from..to, &order[done..upto]) {
                // Only the system can fail here; give back what the rest would have used.
                wanted.iter().for_each(|&(slot, _)| self.kv.drop_spare_pages(slot));
                return Err(error);
            }
            for (row, &index) in order[done..upto].iter().enumerate() {
                sink(index, self.logits(row));
            }
            (from, done) = (to, upto);
        }
        Ok(())
    }

    /// Checks tokens, sequences and rows; returns how many tokens each KV slot gets.
    fn check(&self, batch: &Batch) -> Result<Vec<(usize, usize)>> {
        let n = batch.tokens.len();
        if batch.seqs.len() != n {
            return Err(Error::invalid(format!("{n} tokens but {} sequence numbers", batch.seqs.len())));
        }
        let vocab = self.image.desc().vocab;
        if let Some((i, token)) = batch.tokens.iter().enumerate().find(|(_, t)| **t < 0 || **t as u64 >= vocab) {
            return Err(Error::invalid(format!("token {token} at index {i} is outside the vocabulary of {vocab}")));
        }
        if let Some(row) = batch.out_rows.iter().find(|r| **r as usize >= n) {
            return Err(Error::invalid(format!("logits wanted after token {row} of a step of {n} tokens")));
        }
        let mut counts: Vec<(usize, usize)> = Vec::new();
        let mut index = vec![NONE; self.kv.slots()];
        for &seq in batch.seqs {
            let slot = self.kv.slot(seq)?;
            if index[slot] == NONE {
                index[slot] = counts.len() as u32;
                counts.push((slot, 0));
            }
            counts[index[slot] as usize].1 += 1;
        }
        Ok(counts)
    }

    fn run_chunk(&mut self, batch: &Batch, range: std::ops::Range<usize>, out: &[usize]) -> Result<()> {
        let (tokens, rows) = (range.len(), out.len());
        self.grow(tokens, rows)?;
        self.fill_inputs(batch, range, out);
        let regime = self.regime(tokens);
        let first = regime.first_step as usize;
        let solo = self.image.weights_len().saturating_mul(tokens as u64) < self.solo_bytes;
        let i = &self.inputs;
        let ctx = StepCtx {
            tokens: i.tokens.as_ptr(),
            positions: i.positions.as_ptr(),
            seqs: i.seqs.as_ptr(),
            out_rows: i.out_rows.as_ptr(),
            block_tables: i.tables.as_ptr(),
            block_stride: i.stride as u64,
            n_tokens: tokens as u64,
            n_rows: rows as u64,
            n_seqs: i.slots.len() as u64,
            uk: &*self.uk,
        };
        let walk = Walk {
            image: &self.image,
            first,
            steps: &self.image.steps[first..first + regime.steps as usize],
            pointers: &self.pointers,
            ctx: &ctx,
            scratch: self.arena.scratch.ptr(),
            scratch_stride: self.arena.scratch_stride,
            threads: if solo { 1 } else { self.pool.threads() as u64 },
            profile: self.profile.as_ref(),
        };
        if solo {
            walk.run(0, &Barrier::alone());
        } else {
            self.pool.run(&|thread, barrier| walk.run(thread, barrier));
        }
        if let Some(profile) = &mut self.profile {
            profile.tokens += tokens as u64;
            profile.batches += 1;
        }
        for (&token, &row) in self.inputs.tokens.iter().zip(&self.inputs.seqs) {
            self.kv.commit(self.inputs.slots[row as usize], token);
        }
        Ok(())
    }

    fn regime(&self, tokens: usize) -> RegimeDesc {
        let found = self.image.regimes.iter().find(|r| r.max_tokens as usize >= tokens);
        // The image was checked: its last regime serves any number of tokens.
        found.or(self.image.regimes.last()).copied().unwrap_or_default()
    }

    /// Fills the arrays of the step context for tokens `range` and the logits rows `out` (indices in `batch.out_rows`).
    fn fill_inputs(&mut self, batch: &Batch, range: std::ops::Range<usize>, out: &[usize]) {
        let i = &mut self.inputs;
        i.tokens.clear();
        i.tokens.extend_from_slice(&batch.tokens[range.clone()]);
        i.positions.clear();
        i.seqs.clear();
        i.slots.clear();
        i.row_of_slot.clear();
        i.row_of_slot.resize(self.kv.slots(), NONE);
        let mut lengths: Vec<usize> = Vec::new();
        for &seq in &batch.seqs[range.clone()] {
            // Checked by `check`: every sequence exists.
            let slot = self.kv.slot(seq).unwrap_or_default();
            if i.row_of_slot[slot] == NONE {
                i.row_of_slot[slot] = i.slots.len() as u32;
                i.slots.push(slot);
                lengths.push(self.kv.slot_len(slot));
            }
            let row = i.row_of_slot[slot] as usize;
            i.seqs.push(row as i32);
            i.positions.push(lengths[row] as i32);
            lengths[row] += 1;
        }
        i.out_rows.clear();
        i.out_rows.extend(out.iter().map(|&index| batch.out_rows[index] as i32 - range.start as i32));
        i.stride = lengths.iter().map(|l| l.div_ceil(PAGE_TOKENS)).max().unwrap_or(0);
        i.tables.clear();
        i.tables.resize(i.stride * i.slots.len(), 0);
        for (row, &slot) in i.slots.iter().enumerate() {
            let pages = self.kv.pages(slot);
            let n = pages.len().min(i.stride);
            i.tables[row * i.stride..][..n].copy_from_slice(&pages[..n]);
        }
    }

    fn logits(&self, row: usize) -> &[f32] {
        let vocab = self.image.desc().vocab as usize;
        let offset = self.arena.offsets[self.image.desc().logits_buffer as usize];
        // SAFETY: the slot has room for `rows` rows of the step just run (checked by `Image`), was written by it, and is 64-byte aligned.
        unsafe {
            let first = self.arena.region.ptr().add(offset).cast::<f32>();
            std::slice::from_raw_parts(first.add(row * vocab), vocab)
        }
    }

    /// Makes the arena large enough for `tokens` and `rows`.
    fn grow(&mut self, tokens: usize, rows: usize) -> Result<()> {
        if tokens <= self.arena.tokens && rows <= self.arena.rows {
            return Ok(());
        }
        // Powers of two, so that growing prompts do not each allocate; but not above the largest chunk.
        let round = |n: usize| n.next_power_of_two().min(self.max_batch).max(n);
        let (tokens, rows) = (round(tokens.max(self.arena.tokens)), round(rows.max(self.arena.rows)));
        self.arena = Arena::empty();
        self.arena = Arena::new(&self.image, tokens, rows, self.pool.threads())?;
        for (pointer, operand) in self.pointers.iter_mut().zip(&self.image.operands) {
            if operand.kind == operand::BUFFER {
                *pointer = self.arena.region.ptr().wrapping_add(self.arena.offsets[operand.index as usize]);
            }
        }
        Ok(())
    }

    /// Time per kernel since the model was opened, as JSON; `None` without [`Options::profile`].
    ///
    /// `{"batches", "tokens", "steps": [{"regime", "kernel", "layer", "calls", "ns"}]}`; `regime` is the largest number of tokens (-1: any), `layer` is -1 outside layers.
    pub fn profile_json(&self) -> Option<String> {
        let profile = self.profile.as_ref()?;
        let signed = |x: u32| if x == NONE { -1 } else { i64::from(x) };
        let mut out = format!("{{\"batches\":{},\"tokens\":{},\"steps\":[", profile.batches, profile.tokens);
        let mut comma = "";
        for regime in &self.image.regimes {
            let first = regime.first_step as usize;
            for index in first..first + regime.steps as usize {
                let (ns, calls) = &profile.steps[index];
                if calls.load(Relaxed) == 0 {
                    continue;
                }
                let step = &self.image.steps[index];
                out += &format!(
                    "{comma}{{\"regime\":{},\"kernel\":{},\"layer\":{},\"calls\":{},\"ns\":{}}}",
                    signed(regime.max_tokens),
                    crate::json::string(self.image.kernel_name(step.kernel as usize)),
                    signed(step.layer),
                    calls.load(Relaxed),
                    ns.load(Relaxed)
                );
                comma = ",";
            }
        }
        Some(out + "]}")
    }
}

/// Where the chunk ends that starts at token `from` and entry `done` of `order` (the wanted rows, ascending by token): after at most `max_tokens` tokens and,
/// but for rows wanted several times, `max_rows` rows.
fn chunk(batch: &Batch, order: &[usize], (from, done): (usize, usize), max_tokens: usize, max_rows: usize) -> (usize, usize) {
    let row = |&i: &usize| batch.out_rows[i] as usize;
    let mut to = batch.tokens.len().min(from + max_tokens);
    if let Some(first_too_many) = order.get(done + max_rows) {
        to = to.min(row(first_too_many).max(from + 1));
    }
    (to, done + order[done..].partition_point(|i| row(i) < to))
}

/// What all threads need to walk the steps of one chunk.
struct Walk<'a> {
    image: &'a Image,
    first: usize,
    steps: &'a [StepDesc],
    pointers: &'a [*mut u8],
    ctx: &'a StepCtx,
    scratch: *mut u8,
    scratch_stride: usize,
    threads: u64,
    profile: Option<&'a Profile>,
}

// SAFETY: shared read-only; what the pointers refer to is partitioned among the threads by the kernels' work items.
unsafe impl Sync for Walk<'_> {}

impl Walk<'_> {
    fn run(&self, thread: usize, barrier: &Barrier) {
        let scratch = self.scratch.wrapping_add(thread * self.scratch_stride);
        let clock = self.profile.filter(|_| thread == 0);
        let mut last = clock.map(|_| Instant::now());
        for (index, step) in self.steps.iter().enumerate() {
            let m = if step.rows == rows::TOKENS { self.ctx.n_tokens } else { self.ctx.n_rows };
            let items = u64::from(step.items) * if step.items_per_m != 0 { m } else { 1 };
            if items == 0 || m == 0 {
                continue;
            }
            self.share(step, m, items, thread as u64, scratch);
            barrier.wait();
            if let (Some(profile), Some(before)) = (clock, last) {
                let now = Instant::now();
                let (ns, calls) = &profile.steps[self.first + index];
                ns.fetch_add(now.duration_since(before).as_nanos() as u64, Relaxed);
                calls.fetch_add(1, Relaxed);
                last = Some(now);
            }
        }
    }

    /// Runs this thread's share of the `items` work items of `step`.
    fn share(&self, step: &StepDesc, m: u64, items: u64, thread: u64, scratch: *mut u8) {
        // SAFETY: the entry lies in the code segment (checked), where the compiler put a function of this type.
        let kernel = unsafe { transmute::<*const u8, KernelFn>(self.image.kernel_entry(step.kernel as usize)) };
        let operands = self.pointers[step.first_operand as usize..].as_ptr();
        // SAFETY: operands and context are live and complete; `scratch` is this thread's own; items are disjoint.
        let call = |lo: u64, hi: u64| unsafe { kernel(operands, self.ctx, m, lo, hi, scratch) };
        if step.chunk == 0 {
            let bound = |t: u64| (u128::from(items) * u128::from(t) / u128::from(self.threads)) as u64;
            let (lo, hi) = (bound(thread), bound(thread + 1));
            if lo < hi {
                call(lo, hi);
            }
            return;
        }
        let chunk = u64::from(step.chunk);
        let mut lo = thread * chunk;
        while lo < items {
            call(lo, items.min(lo + chunk));
            lo += self.threads * chunk;
        }
    }
}

impl Profile {
    fn new(steps: usize) -> Profile {
        Profile { steps: (0..steps).map(|_| Default::default()).collect(), tokens: 0, batches: 0 }
    }
}

impl Arena {
    fn empty() -> Arena {
        Arena { tokens: 0, rows: 0, region: Region::empty(), offsets: Vec::new(), scratch: Region::empty(), scratch_stride: 0 }
    }

    fn new(image: &Image, tokens: usize, rows: usize, threads: usize) -> Result<Arena> {
        let overflow = || Error::new(Status::System, format!("a step of {tokens} tokens needs more memory than there is"));
        let (offsets, bytes) = slot_offsets(image, tokens, rows).ok_or_else(overflow)?;
        let stride = scratch_stride(image, tokens, rows);
        let scratch = stride.checked_mul(threads).ok_or_else(overflow)?;
        Ok(Arena {
            tokens,
            rows,
            region: Region::reserve(bytes, "activations; use a smaller max_batch_tokens")?,
            offsets,
            scratch: Region::reserve(scratch, "scratch; use fewer threads or a smaller max_batch_tokens")?,
            scratch_stride: stride,
        })
    }
}

/// Offset of each activation slot in the arena, and the arena's size; `None` when it does not fit the address space.
fn slot_offsets(image: &Image, tokens: usize, rows: usize) -> Option<(Vec<usize>, usize)> {
    let mut end = 0usize;
    let mut offsets = Vec::with_capacity(image.buffers.len());
    for b in &image.buffers {
        offsets.push(end);
        let bytes = (b.per_token as usize)
            .checked_mul(tokens)?
            .checked_add((b.per_row as usize).checked_mul(rows)?)?
            .checked_add(b.fixed as usize)?;
        // An odd number of cache lines between slots, so that the same row of two of them does not fall in the same cache set.
        end = end.checked_add(bytes)?.checked_next_multiple_of(64)?.checked_add(192)?;
    }
    Some((offsets, end))
}

/// Bytes of scratch of one thread: what the neediest kernel asks for.
fn scratch_stride(image: &Image, tokens: usize, rows: usize) -> usize {
    let need = |step: &StepDesc| {
        let kernel = &image.kernels[step.kernel as usize];
        let m = if step.rows == rows::TOKENS { tokens } else { rows };
        (kernel.scratch as usize).saturating_add((kernel.scratch_per_m as usize).saturating_mul(m))
    };
    let bytes = image.steps.iter().map(need).max().unwrap_or(0);
    // Whole pages plus a line, so that threads share neither pages nor cache sets.
    if bytes == 0 { 0 } else { bytes.saturating_add(4095 + 64) & !4095 | 64 }
}

/// Operand pointers that never change; those to activations follow when the arena grows.
fn fixed_pointers(image: &Image, kv: &Kv) -> Vec<*mut u8> {
    let pointer = |o: &llmcc_abi::OperandDesc| match o.kind {
        operand::WEIGHT => image.weights().wrapping_add(o.offset as usize).cast_mut(),
        operand::KV => kv.pool(o.index as usize),
        _ => ptr::null_mut(),
    };
    image.operands.iter().map(pointer).collect()
}

/// Tokens the cache holds by default: one sequence of the longest context, or several short ones, within half of the machine's memory.
fn default_cache(image: &Image) -> usize {
    let page: u64 = image.kv.iter().map(|k| k.page_bytes).sum();
    let budget = memory::physical().unwrap_or(8 << 30) / 2;
    let fit = budget / page.max(1) * PAGE_TOKENS as u64;
    image.desc().max_context.max(16384).min(fit.max(2048)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of all chunks.
    fn chunks(tokens: usize, out_rows: &[u32], max_tokens: usize, max_rows: usize) -> Vec<(usize, usize)> {
        let tokens = vec![0; tokens];
        let batch = Batch { tokens: &tokens, seqs: &tokens, out_rows };
        let mut order: Vec<usize> = (0..out_rows.len()).collect();
        order.sort_by_key(|&i| out_rows[i]);
        let mut ends = vec![(0, 0)];
        while ends[ends.len() - 1].0 < tokens.len() {
            ends.push(chunk(&batch, &order, ends[ends.len() - 1], max_tokens, max_rows));
        }
        ends.split_off(1)
    }

    #[test]
    fn chunks_bound_tokens_and_rows() {
        assert_eq!(chunks(10, &[9], 4, 8), [(4, 0), (8, 0), (10, 1)]);
        assert_eq!(chunks(6, &[0, 1, 2, 3, 4, 5], 4, 2), [(2, 2), (4, 4), (6, 6)]);
        assert_eq!(chunks(6, &[5, 1], 4, 2), [(4, 1), (6, 2)]);
        // Rows in any order, and wanted several times.
        assert_eq!(chunks(5, &[3, 0, 3, 3, 1], 5, 2), [(3, 2), (4, 5), (5, 5)]);
        assert_eq!(chunks(1, &[], 4, 2), [(1, 0)]);
    }
}
