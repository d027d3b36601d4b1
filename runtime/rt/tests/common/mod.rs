//! A hand-made model: kernels written in Rust behind the ABI, and the data segment that describes
//! them.
//!
//! The "model" caches each token id and computes `s = Σ_{q ≤ p} (q + 1) · token_q` over its
//! sequence; `logits[v] = s · (v + 1)`, but for the last entry, which tells the regime. All values
//! are integers below 2²⁴, so f32 is exact.
#![allow(dead_code)]

pub mod compressed;
pub mod served;
pub mod speculated;

use std::mem::{MaybeUninit, size_of};
use std::{ptr, slice};

use llmcc_abi::*;
use llmcc_rt::engine::{Io, Keep, STEP, Sink};
use llmcc_rt::{Batch, Engine, Image, Options, SeqId};

pub const VOCAB: usize = 7;
pub const CONTEXT: usize = 200;
pub const FEW: u32 = 4;

/// Collects a data segment.
#[derive(Default)]
pub struct Data {
    bytes: Vec<u8>,
}

impl Data {
    pub fn new() -> Data {
        Data { bytes: vec![0; size_of::<ModelDesc>()] }
    }

    pub fn table<T: Copy>(&mut self, items: &[T]) -> Table {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let off = self.bytes.len() as u64;
        // SAFETY: plain integers without padding.
        self.bytes.extend_from_slice(unsafe { slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) });
        Table { off, count: items.len() as u64 }
    }

    pub fn text(&mut self, text: &str) -> Span {
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(text.as_bytes());
        Span { off, len: text.len() as u64 }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a further version of the model; returns its offset.
    pub fn version(&mut self, desc: ModelDesc) -> u64 {
        self.table(&[desc]).off
    }

    pub fn finish(mut self, desc: ModelDesc) -> Vec<u8> {
        // SAFETY: room was made in `new`.
        unsafe { self.bytes.as_mut_ptr().cast::<ModelDesc>().write_unaligned(desc) };
        self.bytes
    }
}

pub fn host_isa() -> u32 {
    if cfg!(target_arch = "x86_64") { isa::X86_64 } else { isa::AARCH64 }
}

/// The data segment for kernels in this process, whose "offsets" are addresses.
pub fn toy_data(manifest: &str, tokenizer: &str, text_config: &str) -> Vec<u8> {
    toy_data_at(manifest, tokenizer, text_config, &toy_code())
}

/// Addresses of the kernels in this process.
pub fn toy_code() -> [u64; 5] {
    let functions: [KernelFn; 5] = [embed, append, attend, head::<1>, head::<2>];
    functions.map(|f| f as usize as u64)
}

/// The data segment. `code`: offsets of embed, append, attend, head for few and head for many
/// tokens.
pub fn toy_data_at(manifest: &str, tokenizer: &str, text_config: &str, code: &[u64]) -> Vec<u8> {
    let mut data = Data::new();
    let texts = [manifest, tokenizer, text_config].map(|t| data.text(t));
    let kernels = data.kernels(code);
    let desc = toy_desc(&mut data, host_isa(), &kernels, texts);
    data.finish(desc)
}

/// Names of the kernels.
pub const KERNELS: [&str; 5] = ["embed", "append", "attend", "head_few", "head_many"];

/// Name of a kernel; the sixth is that of candidates.
pub fn kernel_name(i: usize) -> &'static str {
    KERNELS.get(i).copied().unwrap_or("top_k")
}

impl Data {
    /// Descriptors of the kernels.
    pub fn kernels(&mut self, code: &[u64]) -> Vec<KernelDesc> {
        code.iter()
            .enumerate()
            .map(|(i, &code)| (kernel_name(i), code))
            .map(|(name, code)| KernelDesc {
                code,
                name: self.text(name),
                scratch: if name == "attend" { 64 } else { 0 },
                scratch_per_m: if name == "attend" { 4 } else { 0 },
                shared_per_block: 0,
            })
            .collect()
    }
}

/// The tables, with these kernels.
///
/// Buffers: 0 = token values f32 `[T]`, 1 = sums f32 `[T]`, 2 = logits f32 `[R, VOCAB]`.
pub fn toy_desc(data: &mut Data, isa: u32, kernels: &[KernelDesc], texts: [Span; 3]) -> ModelDesc {
    toy_desc_with(data, isa, kernels, texts, 0)
}

/// As [`toy_desc`], with a kernel at the end (the sixth) that finds so many candidates for buffer
/// 3, unless there are to be none.
pub fn toy_desc_with(
    data: &mut Data,
    isa: u32,
    kernels: &[KernelDesc],
    [manifest, tokenizer, text_config]: [Span; 3],
    candidates: usize,
) -> ModelDesc {
    let buffers = [(4, 0), (4, 0), (0, 4 * VOCAB as u64), (0, 4 * layout::candidate_cols(candidates) as u64)];
    let buffers = buffers.map(|(per_token, per_row)| BufferDesc { per_token, per_row, fixed: 0 });
    let op = |kind, index, offset| OperandDesc { kind, index, offset };
    let operands = [
        op(operand::BUFFER, 0, 0), // 0: embed
        op(operand::BUFFER, 0, 0), // 1: append
        op(operand::STATE, 0, 0),
        op(operand::STATE, 1, 0), // 3: attend, and the last of append
        op(operand::BUFFER, 1, 0),
        op(operand::BUFFER, 1, 0), // 5: head
        op(operand::WEIGHT, 0, 8),
        op(operand::BUFFER, 2, 0),
        op(operand::BUFFER, 2, 0), // 8: candidates
        op(operand::BUFFER, 3, 0),
    ];
    let step = |kernel, rows, items, items_per_m, chunk, first_operand, operands| StepDesc {
        kernel,
        rows,
        items,
        items_per_m,
        chunk,
        first_operand,
        operands,
        layer: if kernel < 3 { 0 } else { NONE },
    };
    let mut steps = Vec::new();
    for head in [3, 4] {
        steps.push(step(0, rows::TOKENS, 1, 1, 0, 0, 1));
        steps.push(step(1, rows::TOKENS, 2, 1, 1, 1, 3));
        steps.push(step(2, rows::TOKENS, 1, 1, 3, 3, 2));
        steps.push(step(head, rows::OUT, VOCAB as u32, 0, if head == 3 { 0 } else { 2 }, 5, 3));
        if candidates > 0 {
            steps.push(step(5, rows::OUT, 1, 1, 0, 8, 2));
        }
    }
    let each = steps.len() as u32 / 2;
    let entries = toy_entry(data, 2, candidates);
    let regime = |max_tokens, first_step| RegimeDesc { max_tokens, first_step, steps: each, reserved: 0 };
    let bytes = layout::page(1, 1, 1, 32).bytes as u64;
    let kv = [StateDesc { kv_heads: 1, key_dim: 1, dtype: kv_dtype::F32, bytes, ..StateDesc::default() }; 2];
    ModelDesc {
        magic: MODEL_MAGIC,
        version: ABI_VERSION,
        isa,
        vocab: VOCAB as u64,
        hidden: 1,
        max_context: CONTEXT as u64,
        entries,
        buffers: data.table(&buffers),
        kernels: data.table(kernels),
        regimes: data.table(&[regime(FEW, 0), regime(NONE, each)]),
        steps: data.table(&steps),
        operands: data.table(&operands),
        states: data.table(&kv),
        manifest,
        tokenizer,
        text_config,
        weights: Span { off: 0, len: size_of_val(&WEIGHTS) as u64 },
        ..ModelDesc::default()
    }
}

/// The toy's only entry, with so many regimes: logits in buffer 2, hidden states in buffer 1, candidates in buffer 3.
pub fn toy_entry(data: &mut Data, regimes: u32, candidates: usize) -> Table {
    let logits = OutputDesc { kind: output::kind::LOGITS, columns: VOCAB as u64, buffer: 2, ..OutputDesc::default() };
    let hidden = OutputDesc { kind: output::kind::HIDDEN, columns: 1, buffer: 1, ..OutputDesc::default() };
    let weight = TappedWeightDesc { name: data.text("a"), expert: NO_EXPERT };
    let tap = TapDesc { weights: data.table(&[weight]), columns: 1, buffer: 1, ..TapDesc::default() };
    let entry = EntryDesc {
        name: data.text("step"),
        outputs: data.table(&[logits, hidden]),
        // (Tests that want the tap count it.)
        taps: Table { count: 0, ..data.table(&[tap]) },
        regimes,
        candidates_buffer: 3,
        candidates: candidates as u64,
        ..EntryDesc::default()
    };
    data.table(&[entry])
}

/// Descriptors of the toy that tests change.
pub struct Descs {
    pub model: ModelDesc,
    pub entry: EntryDesc,
    pub output: OutputDesc,
    pub hidden: OutputDesc,
}

/// Weights: f32 `[2 + VOCAB]`, used from the third on: `v + 1`.
pub static WEIGHTS: [f32; 2 + VOCAB] = [f32::NAN, f32::NAN, 1., 2., 3., 4., 5., 6., 7.];

pub fn toy_image_from(data: &[u8]) -> llmcc_rt::Result<Image> {
    // SAFETY: kernel "offsets" are function addresses; data outlives the image in every test
    // (leaked or static).
    unsafe { Image::from_parts(ptr::null(), u64::MAX, data, WEIGHTS.as_ptr().cast(), size_of_val(&WEIGHTS) as u64) }
}

pub fn toy_image() -> Image {
    toy_image_from(toy_data("{}", "", "").leak()).unwrap()
}

/// A data segment after a change of its first descriptors.
pub fn changed(mut data: Vec<u8>, change: impl FnOnce(&mut Descs)) -> Vec<u8> {
    // SAFETY: descriptors are plain integers; the segment begins with the model's, which says where its first entry
    // is, and that where its two outputs are.
    unsafe {
        let bytes = data.as_mut_ptr();
        let model = bytes.cast::<ModelDesc>();
        let entry = bytes.add(model.read_unaligned().entries.off as usize).cast::<EntryDesc>();
        let output = bytes.add(entry.read_unaligned().outputs.off as usize).cast::<OutputDesc>();
        let mut descs = Descs {
            model: model.read_unaligned(),
            entry: entry.read_unaligned(),
            output: output.read_unaligned(),
            hidden: output.add(1).read_unaligned(),
        };
        change(&mut descs);
        model.write_unaligned(descs.model);
        entry.write_unaligned(descs.entry);
        output.cast::<[OutputDesc; 2]>().write_unaligned([descs.output, descs.hidden]);
    }
    data
}

/// Makes the output embeddings: one of the last token.
pub fn embeds(descs: &mut Descs) {
    (descs.output.kind, descs.output.pool) = (output::kind::EMBEDDING, output::pool::LAST);
}

/// Makes the output embeddings of whole sequences: the mean.
pub fn encodes(descs: &mut Descs) {
    (descs.output.kind, descs.output.pool) = (output::kind::EMBEDDING, output::pool::MEAN);
    (descs.output.flags, descs.entry.flags) = (output::flags::NORMALIZE, entry_flags::WHOLE);
}

/// Shows the sums before the head.
pub fn shows(descs: &mut Descs) {
    descs.entry.taps.count = 1;
}

pub fn toy_engine(options: Options) -> Engine {
    toy_engine_as(options, |_| ())
}

/// The model after a change of its descriptor.
pub fn toy_engine_as(options: Options, change: impl FnOnce(&mut Descs)) -> Engine {
    let image = toy_image_from(changed(toy_data("{}", "", ""), change).leak()).unwrap();
    let mut engine = Engine::new(image, &options, llmcc_ukernels::table(llmcc_ukernels::detect())).unwrap();
    // The toy is so small that its steps would all run on one thread.
    engine.set_solo_bytes(0);
    engine
}

/// The model's logits for a whole sequence.
pub fn expected(tokens: &[i32]) -> Vec<f32> {
    let s: i32 = tokens.iter().enumerate().map(|(q, t)| (q as i32 + 1) * t).sum();
    (0..VOCAB - 1).map(|v| (s * (v as i32 + 1)) as f32).collect()
}

/// A small deterministic generator.
pub struct Rng(pub u64);

impl Rng {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// Runs a step with all its logits in memory; logits per wanted row.
pub fn step(engine: &mut Engine, tokens: &[i32], seqs: &[SeqId], out_rows: &[u32]) -> llmcc_rt::Result<Vec<Vec<f32>>> {
    let columns = engine.image().step().columns();
    let mut logits = vec![MaybeUninit::new(f32::NAN); out_rows.len() * columns + 1];
    let batch = Batch { tokens, seqs, out_rows, ..Batch::default() };
    let mut into = |out: &mut [MaybeUninit<f32>]| {
        engine.run(STEP, Io { batch: &batch, wants: &[], rows: Sink::Memory(out), keep: None, taps: None })
    };
    let small = into(&mut logits[..(out_rows.len() * columns).saturating_sub(1)]);
    if out_rows.is_empty() {
        return small.map(|()| vec![]);
    }
    assert_eq!(small.unwrap_err().status, llmcc_rt::Status::Buffer);
    into(&mut logits)?;
    // SAFETY: all values were initialised above.
    let logits: Vec<f32> = logits.iter().map(|x| unsafe { x.assume_init() }).collect();
    Ok(logits.chunks_exact(columns).map(<[f32]>::to_vec).collect())
}

/// The same, with the hidden states, which are [`expected`] of the first column.
pub fn step_keeping(
    engine: &mut Engine,
    tokens: &[i32],
    seqs: &[SeqId],
    out_rows: &[u32],
) -> llmcc_rt::Result<(Vec<Vec<f32>>, Vec<f32>)> {
    let mut kept = vec![];
    let mut keep = |from: usize, rows: &[f32]| {
        assert_eq!(from, kept.len());
        kept.extend(rows);
    };
    let logits = step_to(engine, tokens, seqs, out_rows, Some(&mut keep))?;
    Ok((logits, kept))
}

fn step_to(
    engine: &mut Engine,
    tokens: &[i32],
    seqs: &[SeqId],
    out_rows: &[u32],
    keep: Option<Keep>,
) -> llmcc_rt::Result<Vec<Vec<f32>>> {
    let mut logits = vec![Vec::new(); out_rows.len()];
    let mut sink = |i: usize, row: &[f32]| {
        assert!(logits[i].is_empty());
        logits[i] = row.to_vec();
    };
    engine.run_each(STEP, &Batch { tokens, seqs, out_rows, ..Batch::default() }, &mut sink, keep)?;
    Ok(logits)
}

/// Takes up to nine sequences through random steps, forks, truncations and ends, and compares all
/// logits with [`expected`].
pub fn check_random_steps(engine: &mut Engine, seed: u64, steps: usize) {
    let mut rng = Rng(seed);
    let mut live: Vec<(SeqId, Vec<i32>)> = Vec::new();
    for _ in 0..steps {
        match rng.below(8) {
            0 | 1 if live.len() < 9 => live.push((engine.kv_mut().seq_new().unwrap(), Vec::new())),
            2 if !live.is_empty() => {
                let (seq, tokens) = live[rng.below(live.len())].clone();
                live.push((engine.kv_mut().fork(seq).unwrap(), tokens));
            }
            3 if !live.is_empty() => {
                let (seq, mut tokens) = live.swap_remove(rng.below(live.len()));
                tokens.truncate(rng.below(tokens.len() + 1));
                engine.kv_mut().truncate(seq, tokens.len()).unwrap();
                live.push((seq, tokens));
            }
            4 if live.len() > 4 => {
                let (seq, _) = live.swap_remove(rng.below(live.len()));
                engine.kv_mut().seq_free(seq).unwrap();
            }
            _ if live.is_empty() => {}
            _ => {
                let (mut tokens, mut seqs, mut want) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..rng.below(40) {
                    let at = rng.below(live.len());
                    let (seq, history) = &mut live[at];
                    if history.len() < CONTEXT {
                        history.push(rng.below(VOCAB) as i32);
                        tokens.push(history[history.len() - 1]);
                        seqs.push(*seq);
                        want.push(expected(history));
                    }
                }
                let out: Vec<u32> = (0..if tokens.is_empty() { 0 } else { rng.below(12) })
                    .map(|_| rng.below(tokens.len()) as u32)
                    .collect();
                let (logits, kept) = step_keeping(engine, &tokens, &seqs, &out).unwrap();
                assert_eq!(kept, want.iter().map(|w| w[0]).collect::<Vec<f32>>());
                for (row, got) in out.iter().zip(&logits) {
                    assert_eq!(got[..VOCAB - 1], want[*row as usize][..]);
                }
            }
        }
        for (seq, tokens) in &live {
            assert_eq!(engine.kv().tokens(*seq).unwrap(), tokens);
        }
    }
}

pub unsafe extern "C" fn embed(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe {
        assert!(lo < hi && hi <= m && m == (*ctx).n_tokens);
        let x = (*ops).cast::<f32>();
        (lo as usize..hi as usize).for_each(|i| x.add(i).write(*(*ctx).tokens.add(i) as f32));
    }
}

/// The place of position `p` of batch token `i` in page pool `pool`.
pub unsafe fn cell(pool: *mut u8, ctx: &StepCtx, i: usize, p: usize) -> *mut f32 {
    // SAFETY: as above.
    unsafe {
        let seq = *ctx.seqs.add(i) as u64;
        assert!(seq < ctx.n_seqs && (p / PAGE_TOKENS) < ctx.block_stride as usize);
        let page = *ctx.block_tables.add((seq * ctx.block_stride) as usize + p / PAGE_TOKENS);
        pool.add(page as usize * layout::page(1, 1, 1, 32).bytes).cast::<f32>().add(p % PAGE_TOKENS)
    }
}

/// Two items per token: item `i` < T writes state 0, the others state 1.
unsafe extern "C" fn append(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: as above.
    unsafe {
        assert!(hi == lo + 1 && hi <= 2 * m);
        let (ctx, item) = (&*ctx, lo as usize);
        let i = item / 2;
        let pool = if item % 2 == 0 { *ops.add(1) } else { *ops.add(2) };
        let p = *ctx.positions.add(i) as usize;
        *cell(pool, ctx, i, p) = *(*ops).cast::<f32>().add(i);
    }
}

unsafe extern "C" fn attend(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, scratch: *mut u8) {
    // SAFETY: as above.
    unsafe {
        assert!(hi - lo <= 3 && lo.is_multiple_of(3) && (scratch as usize).is_multiple_of(64));
        // The whole scratch belongs to this thread: nobody may change it while we work.
        ptr::write_bytes(scratch, lo as u8, 64 + 4 * m as usize);
        let ctx = &*ctx;
        for i in lo as usize..hi as usize {
            let p = *ctx.positions.add(i) as usize;
            let s: f32 = (0..=p).map(|q| (q + 1) as f32 * *cell(*ops, ctx, i, q)).sum();
            (*ops.add(1)).cast::<f32>().add(i).write(s);
        }
        assert!((0..64 + 4 * m as usize).all(|i| *scratch.add(i) == lo as u8));
    }
}

unsafe extern "C" fn head<const REGIME: u32>(
    ops: *const *mut u8,
    ctx: *const StepCtx,
    m: u64,
    lo: u64,
    hi: u64,
    _: *mut u8,
) {
    // SAFETY: as above.
    unsafe {
        assert!(m == (*ctx).n_rows && m > 0 && (REGIME == 1) == ((*ctx).n_tokens <= u64::from(FEW)));
        let (sums, weights, logits) =
            (ops.read().cast::<f32>(), ops.add(1).read().cast::<f32>(), ops.add(2).read().cast::<f32>());
        for r in 0..m as usize {
            let s = *sums.add(*(*ctx).out_rows.add(r) as usize);
            for v in lo as usize..hi as usize {
                let value = if v == VOCAB - 1 { REGIME as f32 } else { s * *weights.add(v) };
                logits.add(r * VOCAB + v).write(value);
            }
        }
    }
}

/// An engine of two threads over these tables, whose steps are shared among threads however small.
pub fn engine_over(data: Vec<u8>, max_batch_tokens: usize) -> Engine {
    let image = toy_image_from(data.leak()).unwrap();
    let options = Options { threads: 2, max_batch_tokens, max_tokens: 2000, ..Options::default() };
    let mut engine = Engine::new(image, &options, llmcc_ukernels::table(llmcc_ukernels::detect())).unwrap();
    engine.set_solo_bytes(0);
    engine
}

/// `head(x, weights, logits)`: each wanted row's number times the weights.
///
/// # Safety
/// The ABI's promises to kernels.
pub unsafe extern "C" fn times_weights(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe {
        let (x, weights, logits) =
            (ops.read().cast::<f32>(), ops.add(1).read().cast::<f32>(), ops.add(2).read().cast::<f32>());
        for r in 0..m as usize {
            let s = *x.add(*(*ctx).out_rows.add(r) as usize);
            (lo as usize..hi as usize).for_each(|v| logits.add(r * VOCAB + v).write(s * *weights.add(v)));
        }
    }
}

/// A step of random tokens, less than `limit`, of any of the sequences: the logits of each equal
/// `model` of the sequence up to it.
pub fn random_step(
    engine: &mut Engine,
    rng: &mut Rng,
    live: &mut [(SeqId, Vec<i32>)],
    limit: usize,
    model: fn(&[i32]) -> Vec<f32>,
) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let (mut tokens, mut seqs, mut want) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rng.below(limit) {
        let (seq, history) = &mut live[rng.below(live.len())];
        if history.len() < CONTEXT {
            history.push(rng.below(VOCAB) as i32);
            tokens.push(history[history.len() - 1]);
            seqs.push(*seq);
            want.push(model(history));
        }
    }
    let out: Vec<u32> = (0..tokens.len() as u32).collect();
    (step(engine, &tokens, &seqs, &out).unwrap(), want)
}
