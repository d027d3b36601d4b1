//! Walks the plan: one call of [`Engine::run`] takes a ragged batch of tokens of many sequences
//! through all kernels of an entry.
//!
//! This module holds the parts common to all machines: sequences, checks, cutting batches. Batches
//! larger than the activation memory are cut into consecutive chunks, which does not change
//! results: a token's result depends on its own sequence only. An `Executor` runs a chunk: `cpu`
//! with threads, `crate::cuda` on a GPU.

mod adapters;
mod arena;
mod batch;
mod cpu;
mod executor;
mod needs;
mod opened;
mod options;
mod pairs;
mod profile;
mod room;
mod row;
mod runs;
mod saved;
mod see;
mod source;
mod tree;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use llmcc_abi::tree::{Hash, Leaf};
use llmcc_abi::{NONE, UkTable};

use crate::candidates::Want;
use crate::cuda::Device;
use crate::error::{Error, Result, Status};
use crate::image::{Entry, Image, parts};
use crate::interrupt::{Interrupts, Watch};
use crate::kv::{HostPages, Kv, Layout, PageStore};
use crate::reserve::need;
pub use adapters::Matrices;
pub(crate) use arena::slot_offsets;
pub use batch::Batch;
pub(crate) use batch::Inputs;
use batch::chunk;
pub(crate) use executor::{Executor, Step};
pub use executor::{Keep, TapSink, Tapped};
pub use opened::Opened;
pub(crate) use options::Limits;
pub use options::{DEFAULT_BATCH_TOKENS, DEFAULT_GPU_BATCH_TOKENS, Options};
pub(crate) use profile::Profile;
pub(crate) use room::LEAST_TOKENS;
use room::{GPU_OUTPUT_BYTES, OUTPUT_BYTES, default_cache, limits};
pub use row::Row;
pub use runs::mark;
pub(crate) use see::sees_nothing;
pub use tree::Tree;

/// Where the rows of a batch go.
pub enum Sink<'a> {
    /// To a function, one after the other.
    Each(&'a mut dyn FnMut(usize, Row)),
    /// To memory, f32 `[out_rows, columns]`.
    Memory(&'a mut [MaybeUninit<f32>]),
}

/// A batch for an entry, and the places of its results.
pub struct Io<'a, 's, 'k> {
    /// The tokens.
    pub batch: &'a Batch<'a>,
    /// A request for each of `out_rows` instead of the whole row (no entry: the whole row).
    pub wants: &'a [Want],
    /// Where the rows that are asked for go.
    pub rows: Sink<'s>,
    /// Where hidden states go.
    pub keep: Option<Keep<'k>>,
    /// Where rows of the entry's taps go, chunk by chunk, and within a chunk call by call, as soon as a call has ended.
    pub taps: Option<TapSink<'k>>,
}

/// A model ready to run: image, cache, and the machine it runs on.
pub struct Engine {
    image: Arc<Image>,
    kv: Kv,
    executor: Box<dyn Executor>,
    limits: Limits,
    profile: Option<Profile>,
    /// Which slots of adapters are in use, from the first on.
    loaded: Vec<bool>,
    /// Kept to reuse its memory.
    inputs: Inputs,
    interrupts: Interrupts,
    /// Names the microkernels.
    microkernels: &'static str,
}

/// Index of the entry that appends tokens.
pub const STEP: usize = 0;

/// Memory for rows has room for all that are asked for.
fn check_room(entry: &Entry, batch: &Batch, rows: &Sink) -> Result<()> {
    let Sink::Memory(out) = rows else { return Ok(()) };
    let (rows, columns) = (batch.out_rows.len(), entry.columns());
    if rows.checked_mul(columns).is_none_or(|n| n > out.len()) {
        let message =
            format!("the logits buffer has room for {} floats; {rows} rows of {columns} are needed", out.len());
        return Err(Error::new(Status::Buffer, message));
    }
    Ok(())
}

/// Gives the rows of some taps of an entry, whose call has just ended, to who wants them.
fn show(
    executor: &mut dyn Executor,
    (entry, taps): (&Entry, Range<usize>),
    inputs: &Inputs,
    sink: &mut TapSink,
) -> Result<()> {
    for tap in taps {
        let own = &entry.taps[tap];
        let rows = if own.requested { inputs.out_rows.len() } else { inputs.tokens.len() };
        sink(tap, executor.tapped(own, rows)?)?;
    }
    Ok(())
}

impl Engine {
    /// Prepares `image` to run on this processor with the microkernels `uk`.
    ///
    /// # Errors
    /// Bad options; not enough memory; the image is for another processor or for a GPU.
    pub fn new(image: impl Into<Arc<Image>>, options: &Options, uk: UkTable) -> Result<Engine> {
        let image = image.into();
        crate::image::cpu::check_isa(image.desc().isa)?;
        let limits = limits(&image, options, (DEFAULT_BATCH_TOKENS, OUTPUT_BYTES))?;
        image.keep_weights();
        let max_tokens = if options.max_tokens == 0 { default_cache(&image, limits) } else { options.max_tokens };
        let layout = Layout::reserved(&image.states, max_tokens)?;
        let pages = HostPages::new(&image.states, &layout)?;
        let executor = cpu::Cpu::new(&image, pages.pools(), limits, (options.threads, options.pin), uk)?;
        Engine::assemble(image, Box::new(pages), layout, Box::new(executor), limits, options)
    }

    /// Prepares `image` to run on `device`, which it is for.
    ///
    /// # Errors
    /// Bad options; not enough memory on the device; its driver refuses the code.
    pub fn on_gpu(image: impl Into<Arc<Image>>, options: &Options, device: &Arc<Device>) -> Result<Engine> {
        let image = image.into();
        let limits = limits(&image, options, (DEFAULT_GPU_BATCH_TOKENS, GPU_OUTPUT_BYTES))?;
        let (gpu, pages, layout) = crate::cuda::Gpu::new(&image, device, limits, options)?;
        Engine::assemble(image, Box::new(pages), layout, Box::new(gpu), limits, options)
    }

    fn assemble(
        image: Arc<Image>,
        pages: Box<dyn PageStore>,
        layout: Layout,
        executor: Box<dyn Executor>,
        limits: Limits,
        options: &Options,
    ) -> Result<Engine> {
        let mut kv = Kv::new(pages, layout, image.desc().max_context as usize);
        image.entries.iter().for_each(|entry| kv.set_context(entry.track, entry.context));
        let profile = options.profile.then(|| Profile::new(image.steps.len()));
        let inputs = Inputs::default();
        let loaded = vec![false; kv.adapters()];
        let (interrupts, microkernels) = (Interrupts::default(), "");
        Ok(Engine { image, kv, executor, limits, profile, loaded, inputs, interrupts, microkernels })
    }

    /// Names the microkernels that the engine was given.
    pub(crate) fn with_microkernels(self, name: &'static str) -> Engine {
        Engine { microkernels: name, ..self }
    }

    /// A hash of the artifact and of the code that runs it here: states of sequences with the same one are equal to the
    /// last bit. `None`: see [`Image::root`].
    pub fn identity(&self) -> Option<Hash> {
        let mut hash = Leaf::default();
        hash.update(b"llmcc identity of states");
        hash.update(&self.image.root()?);
        hash.update(&self.image.desc().isa.to_le_bytes());
        hash.update(self.microkernels.as_bytes());
        hash.update(self.device().as_bytes());
        Some(hash.finish())
    }

    /// The model.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The model, to share.
    pub fn shared_image(&self) -> Arc<Image> {
        self.image.clone()
    }

    /// The interrupts that end steps under way.
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
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
        self.executor.threads()
    }

    /// Name of the machine: "CPU", or the GPU's.
    pub fn device(&self) -> &str {
        self.executor.device()
    }

    /// Multiprocessors of a GPU and the bytes per second of its memory, as its driver says; 0 on a CPU.
    pub fn rates(&self) -> (u32, u64) {
        self.executor.rates()
    }

    /// Bytes of a GPU's memory in use; 0 on a CPU.
    pub fn device_bytes(&self) -> u64 {
        self.executor.device_bytes()
    }

    /// How long the parts of opening took, on a GPU.
    pub fn opened(&self) -> Opened {
        self.executor.opened()
    }

    /// Most tokens taken through the kernels at once.
    pub fn max_batch_tokens(&self) -> usize {
        self.limits.tokens
    }

    /// Runs steps on the calling thread alone when weights times tokens are below `bytes`; 0:
    /// never. Results are the same. A GPU ignores it.
    pub fn set_solo_bytes(&mut self, bytes: u64) {
        self.executor.set_solo_bytes(bytes);
    }

    /// Bytes of activations and scratch for steps of `tokens` tokens and `rows` logits rows.
    pub fn activation_bytes(&self, tokens: usize, rows: usize) -> usize {
        self.executor.activation_bytes(&self.image, tokens, rows)
    }

    /// Bytes of activations and scratch allocated now.
    pub fn arena_bytes(&self) -> usize {
        self.executor.arena_bytes()
    }

    /// Runs [`Engine::run`] of the first entry and calls `sink(i, row)` for each
    /// `out_rows[i]`, `row` having one f32 per column of the output.
    ///
    /// # Errors
    /// As there.
    pub fn step(&mut self, batch: &Batch, sink: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.run_each(STEP, batch, sink, None)
    }

    /// [`Engine::run`] of entry `entry`; `sink(i, row)` gets the row of each `out_rows[i]`, and `keep(i, rows)` the
    /// hidden states of the tokens from `i` on, chunk by chunk.
    ///
    /// # Errors
    /// As there.
    pub fn run_each(
        &mut self,
        entry: usize,
        batch: &Batch,
        sink: &mut dyn FnMut(usize, &[f32]),
        keep: Option<Keep>,
    ) -> Result<()> {
        let mut failed = Ok(());
        let mut values = |i: usize, mut row: Row| match row.values() {
            Ok(values) => sink(i, values),
            Err(error) => failed = Err(error),
        };
        self.run(entry, Io { batch, wants: &[], rows: Sink::Each(&mut values), keep, taps: None })?;
        failed
    }

    /// Most probable tokens that a step can find for a row; 0: it has logits only.
    pub fn candidates(&self) -> usize {
        self.image.step().candidates
    }

    /// Bytes of results fetched from a GPU since the model was opened.
    pub fn fetched_bytes(&self) -> u64 {
        self.executor.fetched_bytes()
    }

    /// As [`Engine::step`], with a request per row instead of all logits: `wants[i]` for
    /// `out_rows[i]` (no entry: logits). A row can give its logits in any case, at the cost of
    /// fetching them.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn step_for(&mut self, batch: &Batch, wants: &[Want], sink: &mut dyn FnMut(usize, Row)) -> Result<()> {
        self.run(STEP, Io { batch, wants, rows: Sink::Each(sink), keep: None, taps: None })
    }

    /// Runs entry `entry`: takes the batch's tokens through its kernels, which append them to their sequences, and
    /// delivers the rows of `out_rows` and the hidden states.
    ///
    /// Everything is checked first. When the machine itself fails (no memory, a fault of the GPU)
    /// after some chunks of a batch longer than [`Engine::max_batch_tokens`], results have been
    /// delivered for these, but their tokens are taken back: on an error no sequence has changed.
    /// (Except one whose sliding window has moved on meanwhile: it keeps them; and one with a
    /// recurrent state, which goes back to its last snapshot: the end of a prompt, or of a chunk of
    /// it.)
    ///
    /// # Errors
    /// There is no such entry; the batch does not fit it; memory for the rows is too small; no room in the cache; the
    /// machine fails.
    pub fn run(&mut self, entry: usize, io: Io) -> Result<()> {
        let Io { batch, wants, mut rows, mut keep, mut taps } = io;
        let watch = self.interrupts.watch();
        let image = self.image.clone();
        let own = image.entries.get(entry).ok_or_else(|| {
            Error::invalid(format!("this model has {} entries, none of number {entry}", image.entries.len()))
        })?;
        check_room(own, batch, &rows)?;
        self.check_taps(own, taps.is_some())?;
        self.check_keeps(own, keep.is_some())?;
        self.check_rows(own, batch)?;
        self.executor.ready()?;
        let wants = if own.candidates > 0 { wants } else { &[] };
        need(64 * (batch.tokens.len() + batch.out_rows.len()) + 8 * self.kv.slots())?;
        let mut wanted = self.check(own, batch)?;
        need(self.inputs_bytes(own, batch, &wanted))?;
        wanted.retain(|_| own.remembers);
        self.kv.reserve(own.track, &wanted, self.limits.tokens)?;
        let before: Vec<usize> = wanted.iter().map(|&(slot, _)| self.kv.slot_len(slot, own.track)).collect();
        let mut order: Vec<usize> = (0..batch.out_rows.len()).collect();
        order.sort_by_key(|&i| batch.out_rows[i]);
        let (mut from, mut done) = (0, 0);
        while from < batch.tokens.len() {
            let (mut to, mut upto) = chunk(batch, &order, (from, done), self.limits);
            if let Some(of) = own.placeholder.filter(|_| own.runs) {
                to = from + runs::whole_runs(&batch.tokens[from..], of, to - from);
                upto = done + order[done..].partition_point(|&i| (batch.out_rows[i] as usize) < to);
            }
            let result = watch
                .check()
                .and_then(|()| runs::check_progress(to > from))
                .and_then(|()| self.make_room(own, batch, from..to))
                .and_then(|()| {
                    self.run_chunk((entry, own), batch, wants, from..to, &order[done..upto], (&watch, &mut taps))
                })
                .and_then(|()| match &mut keep {
                    Some(keep) => self.executor.hidden(to - from).map(|rows| keep(from, rows)),
                    None => Ok(()),
                })
                .and_then(|()| self.deliver(batch, &order[done..upto], &mut rows));
            if let Err(error) = result {
                // Only the machine can fail here, or be interrupted.
                wanted.iter().zip(before).for_each(|(&(slot, _), len)| self.kv.take_back(slot, own.track, len));
                return Err(error);
            }
            (from, done) = (to, upto);
        }
        Ok(())
    }

    /// Gives the rows of a chunk to who wants them: entries `order` of `out_rows`, ascending by
    /// token.
    fn deliver(&mut self, batch: &Batch, order: &[usize], sink: &mut Sink) -> Result<()> {
        // A row wanted several times is computed once.
        let same = order.chunk_by(|a, b| batch.out_rows[*a] == batch.out_rows[*b]);
        let rows = same.enumerate().flat_map(|(row, same)| same.iter().map(move |&index| (row, index)));
        match sink {
            Sink::Each(sink) => {
                rows.for_each(|(row, index)| sink(index, Row::new(&mut *self.executor, row, self.inputs.wants[row])));
                Ok(())
            }
            Sink::Memory(out) => self.executor.store(&rows.collect::<Vec<_>>(), out),
        }
    }

    /// Checks tokens, sequences and rows; returns how many tokens each KV slot gets.
    fn check(&self, entry: &Entry, batch: &Batch) -> Result<Vec<(usize, usize)>> {
        let n = batch.tokens.len();
        if batch.seqs.len() != n {
            return Err(Error::invalid(format!(
                "{n} tokens, but {} sequence numbers; give one for each token",
                batch.seqs.len()
            )));
        }
        let vocab = self.image.desc().vocab;
        if let Some((i, token)) = batch.tokens.iter().enumerate().find(|(_, t)| **t < 0 || **t as u64 >= vocab) {
            return Err(Error::invalid(format!("token {token} at index {i} is outside the vocabulary of {vocab}")));
        }
        self.check_types(entry, batch.types, n)?;
        self.check_hidden(entry, batch.hidden, batch.tokens)?;
        self.check_positions(entry, batch.positions, n)?;
        if let Some(row) = batch.out_rows.iter().find(|r| **r as usize >= n) {
            return Err(Error::invalid(format!("out_rows has token {row}, but the step has {n} tokens")));
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
        self.check_whole(entry, &counts, n)?;
        self.check_rows_at_once(entry, batch)?;
        self.check_runs(entry, batch)?;
        self.check_sources(entry, &counts)?;
        Ok(counts)
    }

    /// Where tokens see later ones: all sequences of the step are new, and it is one chunk.
    fn check_whole(&self, entry: &Entry, counts: &[(usize, usize)], tokens: usize) -> Result<()> {
        if !entry.whole {
            return Ok(());
        }
        if tokens > self.limits.tokens {
            return Err(Error::invalid(format!(
                "a step of {tokens} tokens, which see each other and so go through the model at once: open it with a \
                 larger max_batch_tokens (it is {}), or give fewer sequences",
                self.limits.tokens
            )));
        }
        if let Some(len) = counts.iter().map(|&(slot, _)| self.kv.slot_len(slot, entry.track)).find(|len| *len > 0) {
            return Err(Error::invalid(format!(
                "tokens of this model see later ones, so a sequence is computed in one step, but one already \
                    has {len} tokens. Truncate it to 0, or start a new one"
            )));
        }
        Ok(())
    }

    /// Pages for tokens `range`, whose sequences give pages back as their windows move on, or keep
    /// snapshots. (Other sequences have had all their pages reserved.)
    fn make_room(&mut self, entry: &Entry, batch: &Batch, range: Range<usize>) -> Result<()> {
        if entry.remembers && self.kv.by_chunks(entry.track) {
            let part = Batch {
                tokens: &batch.tokens[range.clone()],
                seqs: &batch.seqs[range.clone()],
                out_rows: &[],
                hidden: batch::of_tokens(batch.hidden, entry.given, range.clone()),
                positions: batch::of_tokens(batch.positions, entry.axes, range),
                ..Batch::default()
            };
            for (slot, count) in self.check(entry, &part)? {
                self.kv.extend(slot, entry.track, count)?;
            }
        }
        Ok(())
    }

    /// Runs tokens `range` through an entry and its index, with rows after the tokens that `out` (indices in
    /// `batch.out_rows`, ascending by token) want.
    fn run_chunk(
        &mut self,
        (index, entry): (usize, &Entry),
        batch: &Batch,
        wants: &[Want],
        range: Range<usize>,
        out: &[usize],
        (watch, taps): (&Watch, &mut Option<TapSink>),
    ) -> Result<()> {
        self.inputs.fill(entry, batch, wants, range, out, &self.kv);
        let regime = self.regime(entry, self.inputs.tokens.len());
        let (image, inputs, profile) = (&*self.image, &self.inputs, self.profile.as_ref());
        let of_regime = &image.regimes[regime];
        let all = of_regime.first_step as usize..(of_regime.first_step + of_regime.steps) as usize;
        let step = |part| Step { image, entry: index, regime, part, inputs, profile, watch };
        match taps {
            None => self.executor.run(&step(all))?,
            Some(sink) => {
                for (part, of_call) in parts(of_regime, &image.steps, &entry.taps) {
                    self.executor.run(&step(part))?;
                    show(&mut *self.executor, (entry, of_call), inputs, sink)?;
                }
            }
        }
        if let Some(profile) = &mut self.profile {
            profile.count(self.inputs.tokens.len());
        }
        if !entry.remembers {
            return Ok(());
        }
        for (i, (&token, &row)) in self.inputs.tokens.iter().zip(&self.inputs.seqs).enumerate() {
            let token = if entry.placeholder == Some(token) { mark(self.inputs.given_of(i, entry)) } else { token };
            let place = self.inputs.slots[row as usize];
            if let Some(at) = self.inputs.axes_of(i, entry) {
                self.kv.place(place, entry.track, at);
            }
            self.kv.commit(place, entry.track, token);
        }
        for (&slot, &count) in self.inputs.slots.iter().zip(&self.inputs.counts) {
            self.kv.slide(slot, entry.track);
            // Ends of prompts and of their chunks: where another prompt with the same beginning may
            // go on, and where a sequence resumes after a failure.
            if count > 1 {
                self.kv.keep(slot, entry.track);
            }
        }
        Ok(())
    }

    fn regime(&self, entry: &Entry, tokens: usize) -> usize {
        let found = entry.regimes.clone().find(|r| self.image.regimes[*r].max_tokens as usize >= tokens);
        // The image was checked: the last regime of an entry serves any number of tokens.
        found.unwrap_or(entry.regimes.end - 1)
    }

    /// Time per kernel since the model was opened, as JSON; `None` without [`Options::profile`].
    ///
    /// `{"batches", "tokens", "steps": [{"regime", "kernel", "layer", "calls", "ns"}]}`; `regime`
    /// is the largest number of tokens (-1: any), `layer` is -1 outside layers.
    pub fn profile_json(&self) -> Option<String> {
        self.profile.as_ref().map(|p| p.json(&self.image))
    }
}
