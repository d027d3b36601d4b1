//! Runs a chunk with threads.
//!
//! All threads walk the same list of steps; each computes its share of a step's work items and
//! meets the others at a barrier. Which share is fixed by the step, the number of rows and the
//! number of threads, so runs are repeatable.

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use llmcc_abi::{Arrays, KernelFn, OutputDesc, StepCtx, StepDesc, UkTable, operand, rows};

use super::arena::{Arena, Shared, scratch_stride, slot_offsets};
use super::executor::{Executor, Step, Tapped};
use super::options::Limits;
use super::profile::Profile;
use crate::error::Result;
use crate::image::{Image, Tap};
use crate::interrupt::{Watch, interrupted};
use crate::threads::{self, Barrier, Pool};

/// Steps that read fewer weights than this, times tokens, run on the calling thread alone: waking
/// and meeting the others would cost more than they help.
const SOLO_BYTES: u64 = 2 << 20;

/// This processor: threads, activations, and where kernels find their operands.
pub(super) struct Cpu {
    pool: Pool,
    uk: Box<UkTable>,
    limits: Limits,
    solo_bytes: u64,
    arena: Arena,
    shared: Shared,
    /// One per operand of the plan.
    pointers: Vec<*mut u8>,
    /// Columns of the output of the step just run, and its slot in the arena.
    output: (usize, usize),
    /// The same of its hidden states.
    kept: (usize, usize),
}

// SAFETY: the raw pointers refer to memory that belongs to the same engine (arena, KV pools) or
// outlives it (weights).
unsafe impl Send for Cpu {}

impl Cpu {
    /// `threads` threads (0: choose), pinned or not, for `image`, whose pages lie in `pools`.
    pub fn new(
        image: &Image,
        pools: Vec<*mut u8>,
        limits: Limits,
        (threads, pin): (usize, bool),
        uk: UkTable,
    ) -> Result<Cpu> {
        let threads = if threads == 0 { threads::default_threads() } else { threads };
        let mut cpu = Cpu {
            pool: Pool::new(threads, pin)?,
            uk: Box::new(uk),
            limits,
            solo_bytes: SOLO_BYTES,
            arena: Arena::empty(),
            shared: Shared::new(image),
            pointers: fixed_pointers(image, &pools),
            output: (0, 0),
            kept: (0, 0),
        };
        cpu.grow(image, 1, 1)?;
        Ok(cpu)
    }

    /// `len` floats of a slot from number `from` on.
    ///
    /// # Safety
    /// The slot has them, and the step just run wrote them.
    unsafe fn floats(&self, slot: usize, from: usize, len: usize) -> &[f32] {
        // SAFETY: the caller's promise; slots are 64-byte aligned.
        unsafe {
            let first = self.arena.region.ptr().add(self.arena.offsets[slot]).cast::<f32>();
            std::slice::from_raw_parts(first.add(from), len)
        }
    }

    /// Makes the arena large enough for `tokens` and `rows`.
    fn grow(&mut self, image: &Image, tokens: usize, rows: usize) -> Result<()> {
        if tokens <= self.arena.tokens && rows <= self.arena.rows {
            return Ok(());
        }
        // Powers of two, so that growing prompts do not each allocate; but not above the largest
        // chunk.
        let round = |n: usize| n.next_power_of_two().min(self.limits.tokens).max(n);
        let (tokens, rows) = (round(tokens.max(self.arena.tokens)), round(rows.max(self.arena.rows)));
        self.arena = Arena::empty();
        self.arena = Arena::new(image, tokens, rows, self.pool.threads())?;
        for (pointer, operand) in self.pointers.iter_mut().zip(&image.operands) {
            if operand.kind == operand::BUFFER {
                *pointer = self.arena.region.ptr().wrapping_add(self.arena.offsets[operand.index as usize]);
            }
        }
        Ok(())
    }
}

impl Executor for Cpu {
    fn ready(&self) -> Result<()> {
        self.pool.check_process()
    }

    fn run(&mut self, step: &Step) -> Result<()> {
        let (image, i) = (step.image, step.inputs);
        let (tokens, rows) = (i.tokens.len(), i.out_rows.len());
        let entry = &image.entries[step.entry];
        let place = |o: Option<OutputDesc>| o.map_or((0, 0), |o| (o.columns as usize, o.buffer as usize));
        (self.output, self.kept) = (place(entry.output), place(entry.hidden));
        self.grow(image, tokens, rows)?;
        self.shared.grow(i.stride, self.pool.threads())?;
        let solo = image.weights_len().saturating_mul(tokens as u64) < self.solo_bytes;
        let threads = if solo { 1 } else { self.pool.threads() as u64 };
        let first_ctx = StepCtx {
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
            threads,
            shared: self.shared.region.ptr(),
            shared_stride: self.shared.stride as u64,
            ends: i.ends.as_ptr(),
            arrays: Arrays::new(|array| match i.array(array) {
                [] => ptr::null(),
                bytes => bytes.as_ptr(),
            }),
        };
        let ctx: Vec<StepCtx> = (0..image.groups())
            .map(|group| StepCtx {
                block_tables: first_ctx.block_tables.wrapping_add(group * i.table_len()),
                ends: first_ctx.ends.wrapping_add(i.first_end(image.track(group))),
                ..first_ctx
            })
            .collect();
        let walk = Walk {
            image,
            first: step.part.start,
            steps: &image.steps[step.part.clone()],
            pointers: &self.pointers,
            ctx: &ctx,
            sizes: (tokens as u64, rows as u64),
            scratch: self.arena.scratch.ptr(),
            scratch_stride: self.arena.scratch_stride,
            threads,
            profile: step.profile,
            watch: step.watch,
            end: AtomicUsize::new(usize::MAX),
        };
        if solo {
            walk.run(0, &Barrier::alone());
        } else {
            self.pool.run(&|thread, barrier| walk.run(thread, barrier));
        }
        if walk.end.into_inner() < walk.steps.len() { Err(interrupted()) } else { Ok(()) }
    }

    fn output(&mut self, row: usize) -> Result<&[f32]> {
        let (columns, slot) = self.output;
        // SAFETY: the slot has room for `rows` rows of the step just run (checked by `Image`), and was
        // written by it.
        Ok(unsafe { self.floats(slot, row * columns, columns) })
    }

    fn hidden(&mut self, tokens: usize) -> Result<&[f32]> {
        let (columns, slot) = self.kept;
        // SAFETY: the same of rows of its tokens.
        Ok(unsafe { self.floats(slot, 0, tokens * columns) })
    }

    fn tapped(&mut self, tap: &Tap, rows: usize) -> Result<Tapped<'_>> {
        let (region, offsets) = (&self.arena.region, &self.arena.offsets);
        // SAFETY: `Image` checked that these slots have room for such rows; the steps up to the end of
        // their call wrote them.
        let floats = |slot: usize, columns: usize| unsafe {
            std::slice::from_raw_parts(region.ptr().add(offsets[slot]).cast::<f32>(), rows * columns)
        };
        let routes = tap.routes.map_or(&[][..], |r| floats(r.buffer, 2 * r.top));
        Ok(Tapped { rows: floats(tap.buffer, tap.width()), routes, pool: Some(&mut self.pool) })
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn device(&self) -> &str {
        "CPU"
    }

    fn activation_bytes(&self, image: &Image, tokens: usize, rows: usize) -> usize {
        let scratch = scratch_stride(image, tokens, rows) * self.threads();
        slot_offsets(image, tokens, rows).map_or(usize::MAX, |(_, bytes)| bytes.saturating_add(scratch))
    }

    fn arena_bytes(&self) -> usize {
        self.arena.region.len() + self.arena.scratch.len()
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn set_solo_bytes(&mut self, bytes: u64) {
        self.solo_bytes = bytes;
    }
}

/// The state all threads share to walk the steps of one chunk.
struct Walk<'a> {
    image: &'a Image,
    first: usize,
    steps: &'a [StepDesc],
    pointers: &'a [*mut u8],
    /// One per group of attention states; at least one.
    ctx: &'a [StepCtx],
    /// `T` and `R`.
    sizes: (u64, u64),
    scratch: *mut u8,
    scratch_stride: usize,
    threads: u64,
    profile: Option<&'a Profile>,
    watch: &'a Watch,
    /// The step before which all threads end: the first one says so before a barrier, and means one
    /// after it.
    end: AtomicUsize,
}

// SAFETY: shared read-only; the kernels' work items partition the memory behind the pointers among
// the threads.
unsafe impl Sync for Walk<'_> {}

impl Walk<'_> {
    fn run(&self, thread: usize, barrier: &Barrier) {
        let scratch = self.scratch.wrapping_add(thread * self.scratch_stride);
        let clock = self.profile.filter(|_| thread == 0);
        let mut last = clock.map(|_| Instant::now());
        for (index, step) in self.steps.iter().enumerate() {
            if index >= self.end.load(Relaxed) {
                return;
            }
            let m = if step.rows == rows::TOKENS { self.sizes.0 } else { self.sizes.1 };
            let items = u64::from(step.items) * if step.items_per_m != 0 { m } else { 1 };
            if items == 0 || m == 0 {
                continue;
            }
            let ctx = &self.ctx[self.image.step_group(self.first + index)];
            self.share(step, ctx, (m, items), thread as u64, scratch);
            if thread == 0 && self.watch.rung() {
                self.end.store(index + 1, Relaxed);
            }
            barrier.wait();
            if let (Some(profile), Some(before)) = (clock, last) {
                let now = Instant::now();
                profile.add(self.first + index, now.duration_since(before).as_nanos() as u64);
                last = Some(now);
            }
        }
    }

    /// Runs this thread's share of the `items` work items of `step`, on `m` rows.
    fn share(&self, step: &StepDesc, ctx: &StepCtx, (m, items): (u64, u64), thread: u64, scratch: *mut u8) {
        // SAFETY: the entry lies in the code segment (checked), where the compiler put a function
        // of this type.
        let kernel = unsafe { transmute::<*const u8, KernelFn>(self.image.kernel_entry(step.kernel as usize)) };
        let operands = self.pointers[step.first_operand as usize..].as_ptr();
        // SAFETY: operands and context are live and complete; `scratch` is this thread's own; items
        // are disjoint.
        let call = |lo: u64, hi: u64| unsafe { kernel(operands, ctx, m, lo, hi, scratch) };
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

/// Operand pointers that never change; those to activations follow when the arena grows.
fn fixed_pointers(image: &Image, pools: &[*mut u8]) -> Vec<*mut u8> {
    let pointer = |o: &llmcc_abi::OperandDesc| match o.kind {
        operand::WEIGHT => image.weights().wrapping_add(o.offset as usize).cast_mut(),
        operand::STATE => pools[o.index as usize],
        _ => ptr::null_mut(),
    };
    image.operands.iter().map(pointer).collect()
}
