//! The runtime on a GPU, as far as a driver made for tests shows it: the hand-made model with its
//! kernels as Rust functions behind the CUDA API.

use crate::{cuda, gpu_model};
#[path = "gpu/copies.rs"]
mod copies;

use crate::common::*;
use crate::cuda::{Launch, calls};
use crate::gpu_model::{Toy, artifact, grid, images_of};
use llmcc_abi::*;
use llmcc_rt::bias::Bias;
use llmcc_rt::candidates::Want;
use llmcc_rt::capi::types::llmcc_logit_bias;
use llmcc_rt::continuous;
use llmcc_rt::cuda::ffi::{Api, ENTRY_POINTS, LoadError};
use llmcc_rt::generate::{GenParams, Generation};
use llmcc_rt::select::{Machine, Wish, open_with};
use llmcc_rt::{Engine, Image, Options, Result, Status};

const GPU_KERNELS: [(&str, cuda::Kernel, usize); 5] = [
    ("k_embed", embed, 3),
    ("k_append", append, 5),
    ("k_attend", attend, 4),
    ("k_head_few", head_few, 5),
    ("k_head_many", head_many, 5),
];

/// Only the parts the driver for tests looks at.
fn ptx(kernel: usize) -> String {
    format!(".entry k_{}", kernel_name(kernel))
}

fn images(toy: Toy) -> Result<Vec<Image>> {
    gpu_model::images(toy, ptx)
}

fn open(toy: Toy, options: Options) -> Result<Engine> {
    open_with(images(toy)?, &options, Wish::default(), || Ok(cuda::api()))
}

const SM90: Toy = Toy { gpus: &[90], cpu: false, cubin: false, candidates: 0 };

/// A fresh driver, and the model on it.
fn engine(options: Options) -> Engine {
    cuda::reset(&GPU_KERNELS);
    open(SM90, options).unwrap()
}

fn options() -> Options {
    Options { max_tokens: 9 * CONTEXT + 800, max_batch_tokens: 64, ..Options::default() }
}

// ---- kernels
// --------------------------------------------------------------------------------------------------------------

/// The context, and the rows the grid was launched for.
fn context(launch: &Launch) -> GpuCtx {
    let n = launch.parameters.len();
    // SAFETY: `device` checks the bounds.
    unsafe { cuda::device(launch.parameters[n - 2], size_of::<GpuCtx>()).cast::<GpuCtx>().read() }
}

fn word(address: u64, index: u64) -> i32 {
    // SAFETY: as above.
    unsafe { cuda::device(address + 4 * index, 4).cast::<i32>().read() }
}

fn float(address: u64, index: u64) -> f32 {
    f32::from_bits(word(address, index) as u32)
}

fn store(address: u64, index: u64, value: f32) {
    // SAFETY: as above.
    unsafe { cuda::device(address + 4 * index, 4).cast::<f32>().write(value) };
}

fn covers(launch: &Launch, kernel: usize, m: u64) {
    assert_eq!(launch.threads, 32 * (kernel as u32 + 1));
    let needed = grid(kernel).map(|d| d.blocks(m) as u32);
    assert!(launch.grid.iter().zip(needed).all(|(have, need)| *have >= need), "{launch:?} for {m} rows");
}

fn embed(l: &Launch) {
    let ctx = context(l);
    covers(l, 0, ctx.n_tokens);
    (0..ctx.n_tokens).for_each(|i| store(l.parameters[0], i, word(ctx.tokens, i) as f32));
}

/// The address of position `p` of batch token `i` in a pool.
fn cell(pool: u64, ctx: &GpuCtx, i: u64, p: u64) -> u64 {
    let seq = word(ctx.seqs, i) as u64;
    assert!(seq < ctx.n_seqs && p / 16 < ctx.block_stride);
    let page = word(ctx.block_tables, seq * ctx.block_stride + p / 16) as u64;
    pool + page * layout::page(1, 1, 1, 32).bytes as u64 + 4 * (p % 16)
}

fn append(l: &Launch) {
    let ctx = context(l);
    covers(l, 1, ctx.n_tokens);
    for i in 0..ctx.n_tokens {
        for pool in &l.parameters[1..3] {
            store(cell(*pool, &ctx, i, word(ctx.positions, i) as u64), 0, float(l.parameters[0], i));
        }
    }
}

fn attend(l: &Launch) {
    let ctx = context(l);
    covers(l, 2, ctx.n_tokens);
    assert_eq!(l.shared, 100 << 10);
    // The counters are as this kernel left them: zero; the rest is its own.
    let workspace = l.parameters[3];
    assert!((0..16).all(|i| word(workspace, i) == 0));
    (0..ctx.n_tokens).for_each(|i| store(workspace, 16 + i, f32::NAN));
    for i in 0..ctx.n_tokens {
        let p = word(ctx.positions, i) as u64;
        let s = (0..=p).map(|q| (q + 1) as f32 * float(cell(l.parameters[0], &ctx, i, q), 0)).sum();
        store(l.parameters[1], i, s);
    }
}

fn head(l: &Launch, kernel: usize, regime: f32) {
    let ctx = context(l);
    assert!((regime == 1.0) == (ctx.n_tokens <= u64::from(FEW)));
    covers(l, kernel, ctx.n_rows);
    for r in 0..ctx.n_rows {
        let s = float(l.parameters[0], word(ctx.out_rows, r) as u64);
        for v in 0..VOCAB as u64 {
            let value = if v as usize == VOCAB - 1 { regime } else { s * float(l.parameters[1], v) };
            store(l.parameters[2], r * VOCAB as u64 + v, value);
        }
    }
}

fn head_few(l: &Launch) {
    head(l, 3, 1.0);
}

fn head_many(l: &Launch) {
    head(l, 4, 2.0);
}

/// Candidates of [`TOP`].
const K: usize = 3;
/// A model that finds them.
const TOP: Toy = Toy { gpus: &[90], cpu: false, cubin: false, candidates: K };

fn top_k(l: &Launch) {
    let ctx = context(l);
    covers(l, 5, ctx.n_rows);
    for r in 0..ctx.n_rows {
        let wanted = (word(ctx.wanted, r).max(0) as usize).min(K);
        let n = if wanted > 1 { K } else { wanted };
        let x: Vec<f32> = (0..VOCAB as u64).map(|v| float(l.parameters[0], r * VOCAB as u64 + v)).collect();
        let mut order: Vec<usize> = (0..VOCAB).collect();
        order.sort_by(|a, b| x[*b].total_cmp(&x[*a]));
        let first = r * layout::candidate_cols(K) as u64;
        for (i, id) in order.iter().take(n).enumerate() {
            store(l.parameters[1], first + i as u64, x[*id]);
            store(l.parameters[1], first + (K + i) as u64, *id as f32);
        }
        let sum = x.iter().map(|v| ((v - x[order[0]]) * float(ctx.scales, r)).exp2()).sum();
        store(l.parameters[1], first + 2 * K as u64, sum);
    }
}

// ---- running
// --------------------------------------------------------------------------------------------------------------

#[test]
fn random_ragged_steps_match_the_reference() {
    for (max_batch_tokens, profile) in [(0, false), (1, false), (3, false), (5, false), (64, true)] {
        let mut engine = engine(Options { max_batch_tokens, profile, ..options() });
        check_random_steps(&mut engine, max_batch_tokens as u64, 120);
        drop(engine);
        cuda::assert_clean();
    }
}

#[test]
fn a_step_is_one_copy_one_graph_and_one_copy_back() {
    let mut engine = engine(options());
    let seq = engine.kv_mut().seq_new().unwrap();
    let (sent, fetched) = (calls("cuMemcpyHtoDAsync_v2"), calls("cuMemcpyDtoHAsync_v2"));
    for n in 1..=3 {
        step(&mut engine, &[1], &[seq], &[0]).unwrap();
        assert_eq!((calls("cuMemcpyHtoDAsync_v2") - sent, calls("cuMemcpyDtoHAsync_v2") - fetched), (n, n));
        assert_eq!((calls("cuStreamBeginCapture_v2"), calls("cuGraphLaunch"), calls("cuLaunchKernel")), (1, n, 4));
    }
    // Other sizes of the regime, with and without logits, run from the same graph.
    step(&mut engine, &[1; 4], &[seq; 4], &[]).unwrap();
    assert_eq!((calls("cuStreamBeginCapture_v2"), calls("cuGraphLaunch"), calls("cuLaunchKernel")), (1, 4, 4));
    assert_eq!(calls("cuMemcpyDtoHAsync_v2") - fetched, 3);
    // The regime without a bound is launched kernel by kernel, without those that have nothing to do.
    step(&mut engine, &[1; 5], &[seq; 5], &[4]).unwrap();
    assert_eq!((calls("cuStreamBeginCapture_v2"), calls("cuGraphLaunch"), calls("cuLaunchKernel")), (1, 4, 8));
    step(&mut engine, &[1; 5], &[seq; 5], &[]).unwrap();
    assert_eq!(calls("cuLaunchKernel"), 11);
}

#[test]
fn launches_have_the_grid_of_their_rows() {
    let mut engine = engine(options());
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1; 10], &[seq; 10], &[3, 9]).unwrap();
    step(&mut engine, &[1], &[seq], &[0]).unwrap();
    let grids = cuda::with(|m| m.launches.iter().map(|l| l.grid).collect::<Vec<_>>());
    let exact = [[2, 1, 1], [20, 1, 1], [1, 4, 1], [7, 1, 2]];
    let captured = [[1, 1, 1], [8, 1, 1], [1, 2, 1], [7, 1, 4]];
    assert_eq!(grids, [exact, captured].concat());
}

#[test]
fn rows_wanted_twice_are_computed_once() {
    let mut engine = engine(options());
    let seq = engine.kv_mut().seq_new().unwrap();
    let logits = step(&mut engine, &[1, 2, 3], &[seq; 3], &[2, 0, 2, 2, 1]).unwrap();
    for (row, logits) in [3, 1, 3, 3, 2].into_iter().zip(logits) {
        assert_eq!(logits[..VOCAB - 1], expected(&[1, 2, 3][..row])[..]);
    }
}

/// An engine whose model finds candidates, with a sequence.
fn top_engine() -> (Engine, i32) {
    cuda::reset(&[&GPU_KERNELS[..], &[("k_top_k", top_k, 4)]].concat());
    let mut engine = open(TOP, options()).unwrap();
    assert_eq!(engine.candidates(), K);
    let seq = engine.kv_mut().seq_new().unwrap();
    (engine, seq)
}

/// Rows in any order, some requested twice: each gives the requested result; anything else only later, if at all.
#[test]
fn rows_give_what_is_wanted_of_them() {
    let (mut engine, seq) = top_engine();
    let tokens = [1, 2, 3, 4, 5, 6];
    let top = Want::Top { scale: 0.25 };
    // Requests for tokens 0 to 5: logits, the best, the best and more, nothing, logits and the best, the best.
    let out_rows = [4, 2, 0, 1, 2, 5, 4];
    let wants = [Want::Best, Want::Best, Want::Logits, Want::Best, top, Want::Best, Want::Logits];
    let mut seen = [0; 7];
    let batch = llmcc_rt::Batch { tokens: &tokens, seqs: &[seq; 6], out_rows: &out_rows, ..Default::default() };
    let row = |token: u32| (VOCAB * 4, expected(&tokens[..=token as usize]));
    let before = engine.fetched_bytes();
    let mut later = 0;
    engine
        .step_for(&batch, &wants, &mut |i, mut got| {
            seen[i] += 1;
            let (bytes, logits) = row(out_rows[i]);
            let best = logits.iter().rposition(|x| *x == logits.iter().fold(0.0, |m: f32, x| m.max(*x))).unwrap();
            match (out_rows[i], got.candidates()) {
                // Nothing but logits serves both who want this row.
                (0 | 4, none) => assert!(none.is_none()),
                (_, Some(c)) => {
                    let greedy = llmcc_rt::sample::Sampling::default();
                    assert_eq!(llmcc_rt::candidates::choose(&c, &greedy, &[], VOCAB, 0).unwrap(), Some(best as i32));
                    later += bytes * usize::from(i == 1);
                }
                (_, None) => panic!("row {i} has no candidates"),
            }
            if [0, 1, 2, 6].contains(&i) {
                assert_eq!(got.values().unwrap()[..VOCAB - 1], logits[..]);
            }
        })
        .unwrap();
    assert_eq!(seen, [1; 7]);
    // Five rows, two of them as logits, and one fetched later.
    let fetched = (engine.fetched_bytes() - before) as usize;
    assert_eq!(fetched, 2 * VOCAB * 4 + 3 * 4 * layout::candidate_cols(K) + later);
    drop(engine);
    cuda::assert_clean();
}

/// A bias and log-probabilities need all logits of their rows; a generation beside them in the same
/// step only its candidates.
#[test]
fn biased_and_judged_generations_fetch_their_logits() {
    let (mut engine, _) = top_engine();
    let bias = Bias::new(&[llmcc_logit_bias { token: 2, value: 1e6 }], VOCAB).unwrap();
    let params = [
        GenParams::default(),
        GenParams { bias, ..GenParams::default() },
        GenParams { logprobs: Some(2), ..GenParams::default() },
    ];
    let mut gens = params.map(|p| Generation::new(&mut engine, None, None, &[1, 2], p).unwrap());
    let before = engine.fetched_bytes();
    let pieces = continuous::next(&mut gens.iter_mut().collect::<Vec<_>>(), &mut engine, None).unwrap();
    let pieces: Vec<_> = pieces.into_iter().map(Option::unwrap).collect();
    assert_eq!(pieces.iter().map(|p| p.token).collect::<Vec<_>>(), [5, 2, 5]);
    assert!(pieces[0].logprob.is_none() && pieces[1].logprob.is_none());
    let top: Vec<i32> = pieces[2].logprob.as_ref().unwrap().top.iter().map(|t| t.token).collect();
    assert_eq!(top, [5, 4]);
    assert_eq!((engine.fetched_bytes() - before) as usize, 2 * VOCAB * 4 + 4 * layout::candidate_cols(K));
    gens.into_iter().for_each(|g| g.close(&mut engine).unwrap());
    drop(engine);
    cuda::assert_clean();
}

/// Steps for all logits copy them at once, as if there were no candidates.
#[test]
fn logits_of_models_with_candidates() {
    let (mut engine, _) = top_engine();
    check_random_steps(&mut engine, 7, 60);
    drop(engine);
    cuda::assert_clean();
}

#[test]
fn large_block_tables_move_the_inputs_and_graphs_follow() {
    let many = 1300;
    let mut engine = engine(Options { max_tokens: 16 * many + CONTEXT, max_batch_tokens: 1400, ..Options::default() });
    let long = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1], &[long], &[0]).unwrap();
    step(&mut engine, &vec![0; CONTEXT - 10], &vec![long; CONTEXT - 10], &[]).unwrap();
    assert_eq!(calls("cuStreamBeginCapture_v2"), 1);
    // A row of thirteen pages for each of many sequences: more than the block of inputs is made for.
    let mut seqs: Vec<i32> = (1..many).map(|_| engine.kv_mut().seq_new().unwrap()).collect();
    seqs.push(long);
    let logits = step(&mut engine, &vec![2; many], &seqs, &[0, many as u32 - 1]).unwrap();
    assert_eq!(logits[0][..VOCAB - 1], expected(&[2])[..]);
    let logits = step(&mut engine, &[3], &[seqs[7]], &[0]).unwrap();
    assert_eq!(logits[0][..VOCAB - 1], expected(&[2, 3])[..]);
    assert_eq!(calls("cuStreamBeginCapture_v2"), 2);
    drop(engine);
    cuda::assert_clean();
}

#[test]
fn profiles_measure_every_kernel() {
    let mut engine = engine(Options { profile: true, ..options() });
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1, 2], &[seq, seq], &[]).unwrap();
    step(&mut engine, &[3], &[seq], &[0]).unwrap();
    let json = engine.profile_json().unwrap();
    assert!(json.contains("{\"regime\":4,\"kernel\":\"embed\",\"layer\":0,\"calls\":2,\"ns\":1000000}"), "{json}");
    assert!(json.contains("\"kernel\":\"head_few\",\"layer\":-1,\"calls\":1,"), "{json}");
    assert_eq!(calls("cuGraphLaunch"), 0);
}

#[test]
fn facts_about_the_device_are_reported() {
    let engine = engine(options());
    assert_eq!((engine.device(), engine.threads()), ("Mock GPU", 1));
    let used = cuda::with(|m| m.used()) as u64;
    // But for the rounding of allocations.
    assert!(engine.device_bytes() <= used && used < engine.device_bytes() + 100, "{used} {}", engine.device_bytes());
    assert_eq!(engine.activation_bytes(64, 64), engine.arena_bytes());
}

// ---- failures
// -------------------------------------------------------------------------------------------------------------

fn failure(toy: Toy, options: Options) -> (Status, String) {
    let error = open(toy, options).err().unwrap();
    cuda::assert_clean();
    (error.status, error.message)
}

#[test]
fn memory_is_checked_before_anything_is_loaded() {
    cuda::reset(&GPU_KERNELS);
    cuda::with(|m| m.memory = 1 << 20);
    let (status, message) = failure(SM90, Options { max_tokens: 1 << 20, ..options() });
    assert_eq!(status, Status::System);
    assert!(
        message.contains("for the cache of 1048576 tokens") && message.contains("has 1.0 MiB free of 1.0 MiB"),
        "{message}"
    );
    assert_eq!((calls("cuMemAlloc_v2"), calls("cuModuleLoadDataEx")), (0, 0));
    // By itself the cache takes no more than there is.
    cuda::with(|m| m.memory = 1 << 30);
    let engine = open(SM90, Options { max_tokens: 0, ..options() }).unwrap();
    assert_eq!(engine.kv().max_tokens(), 16384);
    drop(engine);
    cuda::with(|m| m.memory = (256 << 20) + (150 << 10));
    let engine = open(SM90, Options { max_tokens: 0, ..options() }).unwrap();
    assert!((2048..16384).contains(&engine.kv().max_tokens()), "{}", engine.kv().max_tokens());
}

#[test]
fn every_call_of_the_driver_may_fail() {
    // How often a model's life calls each function.
    let live = |engine: &mut Engine| -> Result<()> {
        let seq = engine.kv_mut().seq_new()?;
        step(engine, &[1, 2, 3, 4, 5, 6], &[seq; 6], &[5])?;
        let copy = engine.kv_mut().fork(seq)?;
        step(engine, &[1], &[seq], &[0])?;
        step(engine, &[2], &[copy], &[0])?;
        Ok(())
    };
    let mut engine = engine(options());
    live(&mut engine).unwrap();
    drop(engine);
    let counts = cuda::with(|m| m.calls.clone());
    // Those that give back, describe or ask for facts without a consequence cannot fail the runtime's calls.
    let silent = |name: &str| {
        name.contains("Destroy") || name.contains("Free") || name.contains("GetError") || name.contains("Release")
    };
    let ignored = [
        "cuDeviceGetName",
        "cuDriverGetVersion",
        "cuModuleUnload",
        "cuCtxPopCurrent_v2",
        "cuEventElapsedTime",
        "cuThreadExchangeStreamCaptureMode",
    ];
    for (name, count) in counts {
        if silent(name) || ignored.contains(&name) {
            continue;
        }
        for after in 0..count {
            cuda::reset(&GPU_KERNELS);
            cuda::with(|m| m.fail = Some((name, after, cuda::ILLEGAL_ADDRESS)));
            let result = open(SM90, options()).and_then(|mut engine| {
                let result = live(&mut engine);
                let sequences: usize = engine.kv().used_pages();
                assert!(sequences <= 3);
                result
            });
            let context_lost = name == "cuCtxPushCurrent_v2";
            if let Err(error) = result {
                assert!(
                    error.message.contains("CUDA_ERROR_ILLEGAL_ADDRESS") || error.message.contains("GPU"),
                    "{name}: {error}"
                );
            } else {
                assert!(context_lost, "{name}, call {after}: the failure was not noticed");
            }
            if !context_lost {
                cuda::assert_clean();
            }
        }
    }
}

#[test]
fn a_failed_step_changes_no_sequence() {
    let mut engine = engine(options());
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1, 2], &[seq; 2], &[]).unwrap();
    cuda::with(|m| m.fail = Some(("cuStreamSynchronize", 0, cuda::ILLEGAL_ADDRESS)));
    let error = step(&mut engine, &[3; 20], &[seq; 20], &[0]).unwrap_err();
    assert_eq!(error.status, Status::System);
    assert!(
        error.message.contains("illegal memory access") && error.message.contains("open the model again"),
        "{error}"
    );
    assert_eq!((engine.kv().tokens(seq).unwrap(), engine.kv().used_pages()), (&[1, 2][..], 1));
}

/// After a fault the driver is not asked any more; and a second open says why it fails.
#[test]
fn a_lost_context_stays_lost() {
    let mut engine = engine(options());
    let seq = engine.kv_mut().seq_new().unwrap();
    cuda::with(|m| m.fail = Some(("cuStreamSynchronize", 0, cuda::ILLEGAL_ADDRESS)));
    let first = step(&mut engine, &[1], &[seq], &[0]).unwrap_err();
    assert!(first.message.starts_with("the GPU failed in a step: ") && first.message.contains("PyTorch"), "{first}");
    cuda::with(|m| m.fail = None);
    let launches = calls("cuGraphLaunch");
    let second = step(&mut engine, &[1], &[seq], &[0]).unwrap_err();
    assert_eq!((second.message, calls("cuGraphLaunch")), (first.message, launches));
    cuda::with(|m| m.fail = Some(("cuStreamCreate", 0, cuda::ILLEGAL_ADDRESS)));
    let error = open(SM90, options()).err().unwrap();
    assert!(error.message.contains("cannot create a stream") && error.message.contains("lost its context"), "{error}");
    // An ordinary failure loses nothing.
    cuda::with(|m| m.fail = Some(("cuStreamCreate", 0, cuda::NOT_FOUND)));
    assert!(!open(SM90, options()).err().unwrap().message.contains("lost"));
}

/// The driver for tests refuses calls that would end another thread's capture in the global mode.
/// Every kernel asks for the same division of memory.
#[test]
fn captures_of_the_host_program_are_left_alone() {
    let engine = engine(options());
    cuda::with(|m| assert_eq!((&m.carveouts[..], m.capture_mode), (&[100; 5][..], 0)));
    // A thread that is relaxed already stays so.
    cuda::with(|m| m.capture_mode = 2);
    drop(engine);
    cuda::with(|m| assert_eq!(std::mem::take(&mut m.capture_mode), 2));
    cuda::assert_clean();
}

#[test]
fn cubins_are_used_when_the_driver_takes_them() {
    let toy = Toy { cubin: true, ..SM90 };
    cuda::reset(&GPU_KERNELS);
    cuda::with(|m| m.ptx = (cuda::INVALID_PTX, "PTX was used"));
    drop(open(toy, options()).unwrap());
    assert_eq!(calls("cuModuleLoadDataEx"), 5);
    cuda::reset(&GPU_KERNELS);
    cuda::with(|m| m.cubin = cuda::NO_BINARY);
    drop(open(toy, options()).unwrap());
    assert_eq!(calls("cuModuleLoadDataEx"), 10);
}

#[test]
fn the_drivers_compiler_is_quoted() {
    cuda::reset(&GPU_KERNELS);
    cuda::with(|m| m.ptx = (cuda::INVALID_PTX, "ptxas application ptx input, line 3; error: unknown symbol"));
    let (status, message) = failure(SM90, options());
    assert_eq!(status, Status::System);
    assert!(
        message.contains("kernel `embed`") && message.contains("line 3; error") && message.contains("INVALID_PTX"),
        "{message}"
    );
    cuda::with(|m| m.ptx = (cuda::UNSUPPORTED_PTX, ""));
    let (_, message) = failure(SM90, options());
    assert!(message.contains("CUDA 12.4") && message.contains("update it"), "{message}");
}

#[test]
fn a_missing_entry_is_an_error() {
    cuda::reset(&GPU_KERNELS[..4]);
    let (_, message) = failure(SM90, options());
    assert!(message.contains("kernel `head_many` lacks its entry"), "{message}");
}

#[test]
fn grids_no_gpu_takes_are_refused() {
    cuda::reset(&GPU_KERNELS);
    // A block in y for every three rows.
    let (status, message) = failure(SM90, Options { max_batch_tokens: 3 * 65536, ..options() });
    assert_eq!(status, Status::Invalid);
    assert!(message.contains("`attend`") && message.contains("max_batch_tokens"), "{message}");
}

// ---- choice of a version
// --------------------------------------------------------------------------------------------------

fn select(
    toy: Toy,
    wish: Wish,
    driver: std::result::Result<Api, LoadError>,
) -> std::result::Result<String, (Status, String)> {
    match open_with(images(toy).unwrap(), &options(), wish, || driver) {
        Ok(engine) => Ok(format!("{} {}", engine.device(), engine.image().desc().isa)),
        Err(e) => Err((e.status, e.message)),
    }
}

#[test]
fn the_best_version_this_machine_runs_is_opened() {
    cuda::reset(&GPU_KERNELS);
    let none = || Err(LoadError::NoLibrary("libcuda.so.1: no such file".into()));
    let fat = Toy { gpus: &[80, 90, 89], cpu: true, cubin: false, candidates: 0 };
    let auto = Wish::default();
    let cpu = Ok(format!("CPU {}", host_isa()));
    assert_eq!(select(fat, auto, Ok(cuda::api())), Ok("Mock GPU 1090".into()));
    cuda::with(|m| m.capability = (8, 6));
    assert_eq!(select(fat, auto, Ok(cuda::api())), Ok("Mock GPU 1080".into()));
    cuda::with(|m| m.capability = (12, 0));
    assert_eq!(select(fat, auto, Ok(cuda::api())), Ok("Mock GPU 1089".into()));
    cuda::with(|m| m.capability = (7, 5));
    assert_eq!(select(fat, auto, Ok(cuda::api())), cpu);
    cuda::with(|m| (m.capability, m.devices) = ((9, 0), 0));
    assert_eq!(select(fat, auto, Ok(cuda::api())), cpu);
    assert_eq!(select(fat, auto, none()), cpu);
    assert_eq!(select(fat, Wish { machine: Some(Machine::Cpu), gpu: 0 }, Ok(cuda::api())), cpu);
    assert_eq!(select(fat, Wish { machine: Some(Machine::Level(host_isa())), gpu: 0 }, Ok(cuda::api())), cpu);
    cuda::with(|m| m.devices = 2);
    assert_eq!(select(fat, Wish { machine: Some(Machine::Gpu), gpu: 1 }, Ok(cuda::api())), Ok("Mock GPU 1090".into()));
    cuda::assert_clean();
    // All versions share the texts.
    assert!(images(fat).unwrap().iter().all(|i| i.manifest() == "{\"fat\":1}"));
    // Lack of GPU memory is an error, not hidden by a slow version.
    cuda::with(|m| m.memory = 1000);
    assert_eq!(select(fat, auto, Ok(cuda::api())).unwrap_err().0, Status::System);
}

#[test]
fn without_a_usable_gpu_the_error_says_why() {
    cuda::reset(&GPU_KERNELS);
    let fails = |toy, wish, driver, parts: &[&str]| {
        let (status, message) = select(toy, wish, driver).unwrap_err();
        assert_eq!(status, Status::Cpu, "{message}");
        assert!(parts.iter().all(|p| message.contains(p)), "{message}");
    };
    let (auto, gpu) = (Wish::default(), Wish { machine: Some(Machine::Gpu), gpu: 3 });
    let cpu = Wish { machine: Some(Machine::Cpu), gpu: 0 };
    let missing = Err(LoadError::NoLibrary("libcuda.so.1: cannot open".into()));
    fails(
        SM90,
        auto,
        missing,
        &["sm90 (H100, H200)", "no NVIDIA driver (libcuda.so.1: cannot open)", "--target native"],
    );
    fails(SM90, auto, Err(LoadError::NoFunction("cuGraphLaunch")), &["lacks cuGraphLaunch", "update"]);
    fails(SM90, gpu, Ok(cuda::api()), &["no GPU with index 3", "sees 1", "LLMCC_CUDA_DEVICE"]);
    fails(SM90, cpu, Ok(cuda::api()), &["LLMCC_DEVICE=cpu", "no version for processors"]);
    let level = Wish { machine: Some(Machine::Level(isa::X86_64_V4)), gpu: 0 };
    fails(
        SM90,
        level,
        Ok(cuda::api()),
        &["LLMCC_DEVICE=x86-64-v4", "no version for that level, and none for other processors"],
    );
    fails(
        Toy { gpus: &[], cpu: true, cubin: false, candidates: 0 },
        gpu,
        Ok(cuda::api()),
        &["LLMCC_DEVICE=gpu", "no version for GPUs"],
    );
    cuda::with(|m| m.capability = (8, 6));
    fails(
        SM90,
        auto,
        Ok(cuda::api()),
        &["Mock GPU with compute capability 8.6", "--target sm86", "--target sm90,sm86"],
    );
    cuda::with(|m| m.capability = (7, 0));
    fails(SM90, auto, Ok(cuda::api()), &["compute capability 7.0", "too old"]);
    cuda::with(|m| m.devices = 0);
    fails(SM90, auto, Ok(cuda::api()), &["finds no GPU"]);
}

#[test]
fn the_driver_is_not_looked_for_in_vain() {
    let images = images(Toy { gpus: &[], cpu: true, cubin: false, candidates: 0 }).unwrap();
    open_with(images, &options(), Wish::default(), || panic!("no version needs it")).unwrap();
}

#[test]
fn entry_points_are_those_of_the_driver() {
    assert_eq!(ENTRY_POINTS.len(), 42);
    assert!(ENTRY_POINTS.iter().all(|name| name.starts_with("cu")));
}

// ---- untrusted tables
// -----------------------------------------------------------------------------------------------------

#[test]
fn damaged_gpu_tables_are_refused() {
    let (code, good) = artifact(SM90, ptx);
    // SAFETY: nothing is run.
    let load = |data: &[u8]| unsafe { images_of(code, data) };
    // SAFETY: the segment starts with the descriptor.
    let desc = unsafe { good.as_ptr().cast::<ModelDesc>().read_unaligned() };
    let change = |at: usize, bytes: &[u8]| {
        let mut data = good.to_vec();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        load(&data).err().map(|e| (e.status, e.message))
    };
    assert!(load(good).is_ok());
    let kernel = |field: usize| desc.gpu.off as usize + 2 * size_of::<GpuKernelDesc>() + field;
    use std::mem::offset_of;
    let (threads, shared, grid) =
        (offset_of!(GpuKernelDesc, threads), offset_of!(GpuKernelDesc, shared), offset_of!(GpuKernelDesc, grid));
    let (ptx_at, cubin) = (offset_of!(GpuKernelDesc, ptx), offset_of!(GpuKernelDesc, cubin));
    let long = (code.len() as u64 + 1).to_le_bytes();
    let cases: [(usize, &[u8], &str); 10] = [
        (kernel(threads), &0u32.to_le_bytes(), "GPU kernel 2"),
        (kernel(threads), &1025u32.to_le_bytes(), "GPU kernel 2"),
        (kernel(shared), &((227 << 10) + 1u32).to_le_bytes(), "GPU kernel 2"),
        (kernel(grid) + 8, &0u32.to_le_bytes(), "GPU kernel 2"),
        (kernel(ptx_at), &long, "outside the code"),
        (kernel(ptx_at) + 8, &3u64.to_le_bytes(), "does not end"),
        (kernel(ptx_at) + 8, &0u64.to_le_bytes(), "does not end"),
        (kernel(cubin) + 8, &4u64.to_le_bytes(), "cubin of GPU kernel 2"),
        (kernel(0) + 8, &0u64.to_le_bytes(), "GPU kernel 2"),
        (offset_of!(ModelDesc, gpu) + 8, &4u64.to_le_bytes(), "4 GPU kernels instead of 5"),
    ];
    for (at, bytes, part) in cases {
        let (status, message) = change(at, bytes).unwrap();
        assert!(status == Status::Artifact && message.contains(part), "{part}: {message}");
    }
    // Any byte of any version's tables: refused, or still in bounds.
    let (_, fat) = artifact(Toy { gpus: &[80, 90], cpu: true, cubin: false, candidates: 0 }, ptx);
    for at in 0..fat.len() {
        for flip in [0x01, 0x08, 0x80, 0xff] {
            let mut bad = fat.to_vec();
            bad[at] ^= flip;
            if let Err(error) = load(&bad) {
                assert_eq!(error.status, Status::Artifact, "{error}");
            }
        }
    }
}

#[test]
fn chains_of_versions_end() {
    let (code, good) = artifact(Toy { gpus: &[80, 90], cpu: true, cubin: false, candidates: 0 }, ptx);
    let at = std::mem::offset_of!(ModelDesc, alternative);
    let first = u64::from_le_bytes(good[at..at + 8].try_into().unwrap());
    for (place, value) in
        [(first as usize + at, first), (first as usize + at, 8), (at, first + 1), (at, good.len() as u64)]
    {
        let mut bad = good.to_vec();
        bad[place..place + 8].copy_from_slice(&value.to_le_bytes());
        // SAFETY: nothing is run.
        let loaded = unsafe { images_of(code, &bad) };
        assert_eq!(loaded.err().unwrap().status, Status::Artifact);
    }
}
