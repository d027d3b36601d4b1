//! The engine with states of fixed size, on a processor and on a GPU behind a driver made for
//! tests: a causal convolution over three tokens and a recurrence over its results.

use crate::common::compressed::check_compression;
use crate::common::served::{check_files, check_restarts, check_serving, check_warm};
use crate::common::speculated::{check_expectations, check_speculation, check_trees};
use crate::{cuda, gpu_model};

use crate::common::*;
use crate::cuda::Launch;
use llmcc_abi::*;
use llmcc_rt::generate::{GenParams, Generation};
use llmcc_rt::select::{Wish, open_with};
use llmcc_rt::{Engine, Options, SeqId};

/// Modulus of the recurrence.
const MODULUS: i32 = 1009;

/// The model's output for a whole sequence: `h ← (7·h + x₀ + 2·x₋₁ + 3·x₋₂) mod 1009`.
fn recurrent(tokens: &[i32]) -> Vec<f32> {
    let x = |i: usize, back: usize| i.checked_sub(back).map_or(0, |i| tokens[i]);
    let h = (0..tokens.len()).fold(0, |h, i| (7 * h + x(i, 0) + 2 * x(i, 1) + 3 * x(i, 2)) % MODULUS);
    (0..VOCAB).map(|v| (h * (v as i32 + 1)) as f32).collect()
}

/// `mix(x, tail, h, out)`: tokens of a sequence in order, whatever lies between them. `tail`: two
/// f32, `h`: one.
unsafe extern "C" fn mix(ops: *const *mut u8, ctx: *const StepCtx, m: u64, _: u64, _: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe {
        let ctx = &*ctx;
        for i in 0..m as usize {
            let seq = *ctx.seqs.add(i) as u64;
            let slot = *ctx.block_tables.add((seq * ctx.block_stride) as usize) as usize;
            let tail = (*ops.add(1)).add(slot * 64).cast::<f32>();
            let h = (*ops.add(2)).add(slot * 128).cast::<f32>();
            let x = *(*ops).cast::<f32>().add(i);
            *h = (7.0 * *h + x + 2.0 * *tail + 3.0 * *tail.add(1)) % MODULUS as f32;
            *tail.add(1) = *tail;
            *tail = x;
            (*ops.add(3)).cast::<f32>().add(i).write(*h);
        }
    }
}

/// The same on a GPU.
fn mix_on_gpu(l: &Launch) {
    let ctx = context(l);
    for i in 0..ctx.n_tokens {
        let seq = number(ctx.seqs, i) as u64;
        let slot = u64::from(number(ctx.block_tables, seq * ctx.block_stride));
        let (tail, h) = (l.parameters[1] + 64 * slot, l.parameters[2] + 128 * slot);
        let float = |at, index| f32::from_bits(number(at, index));
        let (x, last, before) = (float(l.parameters[0], i), float(tail, 0), float(tail, 1));
        let next = (7.0 * float(h, 0) + x + 2.0 * last + 3.0 * before) % MODULUS as f32;
        for (at, i, x) in [(h, 0, next), (tail, 1, last), (tail, 0, x), (l.parameters[3], i, next)] {
            store(at, i, x);
        }
    }
}

fn embed_on_gpu(l: &Launch) {
    let ctx = context(l);
    (0..ctx.n_tokens).for_each(|i| store(l.parameters[0], i, number(ctx.tokens, i) as f32));
}

fn head_on_gpu(l: &Launch) {
    let ctx = context(l);
    for row in 0..ctx.n_rows {
        let x = f32::from_bits(number(l.parameters[0], number(ctx.out_rows, row).into()));
        for v in 0..VOCAB as u64 {
            store(l.parameters[2], row * VOCAB as u64 + v, x * f32::from_bits(number(l.parameters[1], v)));
        }
    }
}

fn context(l: &Launch) -> GpuCtx {
    // SAFETY: `device` checks the bounds.
    unsafe { cuda::device(l.parameters[l.parameters.len() - 2], size_of::<GpuCtx>()).cast::<GpuCtx>().read() }
}

fn number(address: u64, index: u64) -> u32 {
    // SAFETY: as above.
    unsafe { cuda::device(address + 4 * index, 4).cast::<u32>().read() }
}

fn store(address: u64, index: u64, x: f32) {
    // SAFETY: as above.
    unsafe { cuda::device(address + 4 * index, 4).cast::<f32>().write(x) }
}

const ON_GPU: [(&str, cuda::Kernel, usize); 3] =
    [("k_embed", embed_on_gpu, 3), ("k_mix", mix_on_gpu, 6), ("k_head", head_on_gpu, 5)];

fn on_cpu(max_batch_tokens: usize) -> Engine {
    let functions: [KernelFn; 3] = [embed, mix, times_weights];
    engine_over(data(host_isa(), &functions.map(|f| f as usize as u64), None), max_batch_tokens)
}

/// With a fresh driver.
fn on_gpu(max_batch_tokens: usize) -> Engine {
    cuda::reset(&ON_GPU);
    let mut code = vec![0u8; 64];
    let texts = ON_GPU.map(|(name, ..)| {
        let text = format!(".entry {name}\0");
        let off = code.len() as u64;
        code.extend_from_slice(text.as_bytes());
        Span { off, len: text.len() as u64 }
    });
    let data = data(isa::SM + 90, &texts.map(|t| t.off), Some(texts));
    let options = Options { max_batch_tokens, max_tokens: 2000, ..Options::default() };
    // SAFETY: leaked; the kernels are texts for the driver.
    let images = unsafe { gpu_model::images_of(code.leak(), data.leak()) };
    open_with(images.unwrap(), &options, Wish::default(), || Ok(cuda::api())).unwrap()
}

/// Code and, for a GPU, PTX of the kernels.
fn data(isa: u32, code: &[u64], ptx: Option<[Span; 3]>) -> Vec<u8> {
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(code);
    let one = GpuDim { fixed: 1, per_m: 0 };
    let gpu: Vec<GpuKernelDesc> = (ptx.iter().flatten().zip(ON_GPU))
        .map(|(ptx, (name, ..))| GpuKernelDesc {
            entry: data.text(name),
            ptx: *ptx,
            threads: 32,
            grid: [one; 3],
            ..GpuKernelDesc::default()
        })
        .collect();
    let op = |kind, index, offset| OperandDesc { kind, index, offset };
    let operands = [
        op(operand::BUFFER, 0, 0),
        op(operand::STATE, 0, 0),
        op(operand::STATE, 1, 0),
        op(operand::BUFFER, 1, 0), // 3: out of `mix`, x of `head`
        op(operand::WEIGHT, 0, 8),
        op(operand::BUFFER, 2, 0),
    ];
    let step = |kernel, first_operand, operands| StepDesc {
        kernel,
        rows: if kernel == 2 { rows::OUT } else { rows::TOKENS },
        items: if kernel == 2 { VOCAB as u32 } else { 1 },
        items_per_m: u32::from(kernel == 0),
        chunk: 0,
        first_operand,
        operands,
        layer: NONE,
    };
    let steps = [step(0, 0, 1), step(1, 0, 4), step(2, 3, 3)];
    let state = |bytes| StateDesc { kind: state::FIXED, bytes, ..StateDesc::default() };
    let entries = toy_entry(&mut data, 1, 0);
    let desc = ModelDesc {
        entries,
        states: data.table(&[state(64), state(128)]),
        operands: data.table(&operands),
        steps: data.table(&steps),
        regimes: data.table(&[RegimeDesc { max_tokens: NONE, first_step: 0, steps: steps.len() as u32, reserved: 0 }]),
        gpu: data.table(&gpu),
        ..toy_desc(&mut data, isa, &kernels, texts)
    };
    data.finish(desc)
}

/// A token's results depend neither on how its sequence was cut into steps and chunks, nor on other
/// sequences, forks and cuts.
#[test]
fn random_ragged_steps_match_the_recurrence() {
    random_steps(on_cpu);
}

/// Slots are cleared and copied in device memory.
#[test]
fn random_ragged_steps_match_the_recurrence_on_a_gpu() {
    random_steps(on_gpu);
    cuda::assert_clean();
}

fn random_steps(engine: fn(usize) -> Engine) {
    for max_batch_tokens in [1, 5, 64] {
        let (mut engine, mut rng) = (engine(max_batch_tokens), Rng(77 + max_batch_tokens as u64));
        let mut live: Vec<(SeqId, Vec<i32>)> = vec![(engine.kv_mut().seq_new().unwrap(), Vec::new())];
        let mut cuts = 0;
        for _ in 0..400 {
            let at = rng.below(live.len());
            match rng.below(10) {
                0 if live.len() < 6 => live.push((engine.kv_mut().seq_new().unwrap(), Vec::new())),
                1 if live.len() < 6 => {
                    let copy = (engine.kv_mut().fork(live[at].0).unwrap(), live[at].1.clone());
                    live.push(copy);
                }
                2 if live.len() > 3 => engine.kv_mut().seq_free(live.swap_remove(at).0).unwrap(),
                3 | 4 => {
                    let wanted = rng.below(live[at].1.len() + 1);
                    let len = engine.kv().reusable(live[at].0, wanted).unwrap();
                    assert!(len <= wanted);
                    cuts += usize::from(len > 0 && len < live[at].1.len());
                    engine.kv_mut().truncate(live[at].0, len).unwrap();
                    live[at].1.truncate(len);
                }
                _ => {
                    let (logits, want) = random_step(&mut engine, &mut rng, &mut live, 30, recurrent);
                    assert_eq!(logits, want);
                }
            }
        }
        assert!(max_batch_tokens == 1 || cuts > 3, "{cuts} cuts to a snapshot");
        live.iter().for_each(|(seq, _)| engine.kv_mut().seq_free(*seq).unwrap());
        assert_eq!(engine.kv().used_pages(), 0);
    }
}

#[test]
fn trees_are_their_ways_alone() {
    check_trees(&mut on_cpu(40), 6, 16);
    // (A GPU has memory for 16 states.)
    check_trees(&mut on_gpu(16), 7, 3);
    cuda::assert_clean();
}

#[test]
fn guesses_change_no_text() {
    for max_batch_tokens in [3, 40] {
        let right = check_speculation(&mut on_cpu(max_batch_tokens), max_batch_tokens as u64, 60);
        assert!(right > 20, "{right}");
    }
    assert!(check_speculation(&mut on_gpu(16), 5, 30) > 30);
    cuda::assert_clean();
}

#[test]
fn prompts_are_compressed_as_defined() {
    for max_batch_tokens in [7, 300] {
        check_compression(&mut on_cpu(max_batch_tokens), recurrent, max_batch_tokens as u64, 30);
    }
}

#[test]
fn texts_go_on_where_they_broke_off() {
    for (max_batch_tokens, most) in [(3, 1), (40, 20)] {
        assert!(check_expectations(&mut on_cpu(max_batch_tokens), max_batch_tokens as u64, 30) >= most);
    }
}

#[test]
fn requests_that_share_are_those_alone() {
    for max_batch_tokens in [7, 40] {
        let reused = check_serving(&mut on_cpu(max_batch_tokens), max_batch_tokens as u64, 40);
        assert!(reused > 100, "{reused}");
    }
    check_serving(&mut on_gpu(16), 5, 20);
    cuda::assert_clean();
}

/// A state is kept after the last chunk before the end of a prompt.
#[test]
fn requests_go_on_from_snapshots() {
    check_warm(&mut on_cpu(16), 2..70, 16);
}

#[test]
fn requests_go_on_from_files() {
    check_restarts(&mut on_cpu(16), "recurrent", 2..70, 16);
    let read = check_files(&mut on_cpu(9), "recurrent", 3, 30);
    assert!(read > 100, "{read}");
    check_files(&mut on_gpu(16), "recurrent-gpu", 4, 10);
    cuda::assert_clean();
}

/// A prompt that begins like the one before goes on from a snapshot.
#[test]
fn generations_go_on_from_snapshots() {
    go_on_from_snapshots(on_cpu(16));
}

#[test]
fn generations_go_on_from_snapshots_on_a_gpu() {
    go_on_from_snapshots(on_gpu(16));
    cuda::assert_clean();
}

fn go_on_from_snapshots(mut engine: Engine) {
    let seq = engine.kv_mut().seq_new().unwrap();
    let prompt: Vec<i32> = (0..40).map(|i| i % VOCAB as i32).collect();
    let run = |engine: &mut Engine, prompt: &[i32]| {
        let params = GenParams { max_tokens: 3, ..GenParams::default() };
        let mut generation = Generation::new(engine, None, Some(seq), prompt, params).unwrap();
        let mut tokens = Vec::new();
        while let Some(piece) = generation.next(engine, None).unwrap() {
            tokens.push(piece.token);
        }
        (generation.stats().reused_tokens, tokens)
    };
    let (reused, first) = run(&mut engine, &prompt);
    assert_eq!(reused, 0);
    // The end of the second of three chunks: of the third, its last token has to be evaluated
    // again.
    let (reused, again) = run(&mut engine, &prompt);
    assert_eq!((reused, again), (32, first));
}
