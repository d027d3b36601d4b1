//! Whole models for GPUs, without a GPU: the artifact's runtime opens the fake CUDA driver of
//! `tests/ptx/fake`, which executes the PTX it loads on the emulator, with its checks of memory,
//! races and async copies on. Logits are compared with Transformers, as for CPU artifacts.

use crate::ready;
use llmcc_cli::loaded::{GenOptions, Model};
use llmcc_cli::session::{self, CompileOptions};
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_passes::ActPolicy;
use llmcc_tests::adapters;
use llmcc_tests::left_out::{Kinds, Planned, cover};
use llmcc_tests::{Artifact, Golden, first_goldens, golden, goldens, greedy, logits_in_pieces, options, planned};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

#[path = "gpu/invariant.rs"]
mod invariant;
#[path = "gpu/policies.rs"]
mod policies;
#[path = "gpu/taps.rs"]
mod taps;

fn gpu_options(name: &str, format: &str, kv: KvDType) -> CompileOptions {
    CompileOptions {
        targets: vec![target::find("sm90").expect("a target")],
        weights: Some(Format::parse(format).expect("a format")),
        kv: Some(kv),
        act: None,
        ..options(&golden(name))
    }
}

fn compile(options: &CompileOptions) -> Artifact {
    Artifact::compile_unless(options, |_| false).expect("nothing is left out")
}

/// A model, and the types of its weights and its cache.
type Case = (&'static str, &'static str, KvDType);

/// Few models whose kernels have all pairs of features that kernels of a family have in any model: LLVM and the
/// emulator would take minutes for the others, which run on CPUs. Two tests take turns, so that two cores work to the
/// end.
struct Sweep {
    cases: Vec<Case>,
    /// How many of them are computed in all pieces.
    whole: usize,
    next: AtomicUsize,
    assembled: Kinds,
}

impl Sweep {
    /// The first cases, and the other cases that it takes, without models whose kernels are to be left out.
    fn new(cases: Vec<Case>, first: usize, leave_out: fn(&[Kernel]) -> bool) -> Sweep {
        let (next, all) = (AtomicUsize::new(0), Mutex::new(vec![Planned::default(); cases.len()]));
        let work = || {
            while let Some((i, (name, format, kv))) = Sweep::take(&next, &cases) {
                let planned = planned(&gpu_options(name, format, kv), leave_out);
                all.lock().expect("no panic before")[i] = planned;
            }
        };
        std::thread::scope(|s| {
            s.spawn(work);
            work();
        });
        let chosen = cover(&all.into_inner().expect("no panic before"), first);
        Sweep {
            cases: chosen.into_iter().map(|i| cases[i]).collect(),
            whole: first,
            next: AtomicUsize::new(0),
            assembled: Kinds::default(),
        }
    }

    fn take(next: &AtomicUsize, cases: &[Case]) -> Option<(usize, Case)> {
        let i = next.fetch_add(1, Ordering::Relaxed);
        cases.get(i).map(|case| (i, *case))
    }

    /// The next case, and whether it is computed in all pieces.
    fn next(&self) -> Option<(bool, Case)> {
        Sweep::take(&self.next, &self.cases).map(|(i, case)| (i < self.whole, case))
    }

    /// The artifact with PTX alone. `ptxas`, which takes as long as LLVM, assembles one kernel of each kind.
    fn compile(&self, options: &CompileOptions) -> Artifact {
        Artifact::compile_for_emulator(options, &self.assembled)
    }
}

/// Adapters that are loaded while the model runs give PEFT's results, whatever else is in the step.
#[test]
fn adapters_at_run_time() {
    if !ready() {
        return;
    }
    for wide in [None, Some(false)] {
        let o = adapters::with_slots("base", 3, 4);
        let slots = o.slots.clone().map(|s| llmcc_frontends::slots::AdapterSlots { wide, ..s });
        let targets = vec![target::find("sm90").expect("a target")];
        let weights = Some(Format::F32);
        let model = compile(&CompileOptions { slots, targets, weights, kv: Some(KvDType::F32), ..o }).open(1);
        let numbers = ["all", "some", "one"].map(|name| {
            let (tokens, wanted) = adapters::reference(name);
            let number = model.adapter_load(&adapters::adapter(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let got = adapters::floats(&adapters::logits(&model, number, &tokens, tokens.len()));
            let far = adapters::distance(&got, &wanted);
            assert!(far < 3e-6, "{name}, {wide:?}: {far}");
            number
        });
        let (tokens, _) = adapters::reference("all");
        let all = [numbers[1], 0, numbers[2], numbers[0], numbers[1]];
        let alone = all.map(|a| adapters::logits(&model, a, &tokens, 3));
        adapters::together(&model, &all, &tokens, &alone);
        model.adapter_unload(numbers[0]).expect("unloaded");
    }
}

/// Checkpoints of codes compute the same as their numbers: stacks of experts, and columns in
/// another order.
#[test]
fn quantized_checkpoints() {
    if !ready() {
        return;
    }
    for name in ["mxfp4", "gptq_order"] {
        let name = format!("quantized_models/{name}");
        let g = Golden::load(&name);
        let act = Some(ActPolicy::F32);
        let o = CompileOptions { weights: None, act, ..gpu_options(&name, "f32", KvDType::F32) };
        let model = compile(&o).open(1);
        for pieces in [&[40][..], &[33, 1]] {
            let (error, allowed) = (error(&model, &g, pieces), 2.0 * g.reference_error(true));
            assert!(error <= allowed, "{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}

/// How far apart two lists of numbers are at most.
fn furthest(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
}

/// Largest error over a prompt in pieces.
fn error(model: &Model, g: &Golden, pieces: &[usize]) -> f64 {
    g.error(&g.logits(model, pieces))
}

/// Prefill in one go (the regime of up to 64 tokens), token by token, and in pieces of the regimes
/// between, across pages.
const PIECES: &[&[usize]] = &[&[40], &[1], &[7, 13, 3, 17]];

/// A model that writes no text may need a text as a whole.
fn pieces_of(g: &Golden) -> &'static [&'static [usize]] {
    if g.greedy.is_empty() { &PIECES[..1] } else { PIECES }
}

/// The same if the `whole` of them is wanted, else a `few`: the emulator takes minutes for all pieces of all models.
fn some_pieces_of(g: &Golden, whole: bool, few: &'static [&'static [usize]]) -> &'static [&'static [usize]] {
    if whole || g.greedy.is_empty() { pieces_of(g) } else { few }
}

/// Models with experts: of two that are nearly as good, a rounded row may choose the other, which is
/// another result and no error of rounding. In f32 they are compared as all others.
fn chooses_experts(kernels: &[Kernel]) -> bool {
    kernels.iter().any(|k| matches!(k.body, Body::Route(_)))
}

/// The first models, which are computed in all pieces.
const WHOLE: usize = 4;

#[test]
fn f32_models_equal_transformers() {
    f32_models();
}

#[test]
fn further_f32_models_equal_transformers() {
    f32_models();
}

fn f32_models() {
    static SWEEP: OnceLock<Sweep> = OnceLock::new();
    if !ready() {
        return;
    }
    let more = goldens().filter(|name| *name == "gemma4_e");
    let cases = || first_goldens().chain(more).map(|name| (name, "f32", KvDType::F32)).collect();
    let sweep = SWEEP.get_or_init(|| Sweep::new(cases(), WHOLE, |_| false));
    let mut wrong = Vec::new();
    while let Some((whole, (name, format, kv))) = sweep.next() {
        let (g, model) = (Golden::load(name), sweep.compile(&gpu_options(name, format, kv)).open(1));
        // Each regime below the largest, and one token alone.
        for pieces in some_pieces_of(&g, whole, &[&[19, 1, 13, 7]]) {
            let (error, allowed) = (error(&model, &g, pieces), 2.0 * g.reference_error(true));
            if error > allowed {
                wrong.push(format!("{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Beyond the tokens that an indexer selects: attention reads a few of a sequence's tokens, or of the rows of its
/// windows.
#[test]
fn selections_equal_transformers() {
    if !ready() {
        return;
    }
    let selecting: Vec<&str> = goldens().filter(|name| name.ends_with("_select")).collect();
    let mut wrong = Vec::new();
    for name in selecting {
        let (g, model) = (Golden::load(name), compile(&gpu_options(name, "f32", KvDType::F32)).open(1));
        for pieces in [&[19, 1, 13, 7][..], &[40]] {
            let (error, allowed) = (error(&model, &g, pieces), 2.0 * g.reference_error(true));
            if error > allowed {
                wrong.push(format!("{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Types of tokens come to the GPU with the step, and tables of two rows are in fragments too.
#[test]
fn pairs_equal_transformers() {
    if !ready() || !goldens().any(|name| name == "bert_pairs") {
        return;
    }
    let pooled = Golden::load("bert_pairs").pooled.expect("scores");
    let model = compile(&gpu_options("bert_pairs", "f32", KvDType::F32)).open(1);
    let together = model.embed_typed(&pooled.texts, &pooled.types, None).expect("scores");
    let (error, own) = pooled.errors(&together);
    assert!(error <= 2.0 * own, "error {error:.2e}, allowed {:.2e}", 2.0 * own);
    let untyped = model.embed(&pooled.texts, None).expect("scores");
    assert_ne!(together, untyped, "types count");
    for (i, text) in pooled.texts.iter().enumerate() {
        let alone = model.embed_typed(std::slice::from_ref(text), &pooled.types[i..=i], None).expect("a score");
        assert!((f64::from(alone[0]) - pooled.f64[i]).abs() <= 2.0 * own, "pair {i} alone");
    }
}

/// Columns are cut off, and rows of a text pooled, behind the GPU as behind a CPU.
#[test]
fn poolings_equal_transformers() {
    for name in ["distilbert_max", "distilbert_root", "distilbert_weighted"] {
        if !ready() || !goldens().any(|other| other == name) {
            continue;
        }
        let pooled = Golden::load(name).pooled.expect("rows");
        let model = compile(&gpu_options(name, "f32", KvDType::F32)).open(1);
        let (error, own) = pooled.errors(&model.embed(&pooled.texts, None).expect("rows"));
        assert!(error <= 2.0 * own, "{name}: error {error:.2e}, allowed {:.2e}", 2.0 * own);
    }
}

/// Layers with a window beside layers without: each kernel is given the pages of its own layer's
/// states, while windows give theirs back.
#[test]
fn windows_have_pages_of_their_own() {
    if !ready() {
        return;
    }
    let folder = llmcc_tests::windowed(2, 2, 24, 256);
    let cpu = options(folder.path());
    let gpu = CompileOptions {
        targets: vec![target::find("sm90").expect("a target")],
        act: None,
        weights: Format::parse("f32"),
        ..cpu.clone()
    };
    let tokens: Vec<i32> = (0..100).map(|i| (i * i * 31 + i * 7) % 128).collect();
    let pieces = &[20, 13, 1, 1, 30, 9, 1, 25];
    let (want, got) = (Artifact::compile(&cpu), compile(&gpu));
    let [want, got] = [want, got].each_ref().map(|a| logits_in_pieces(&a.open(1), &tokens, pieces));
    let most = want.iter().fold(0f32, |m, x| m.max(x.abs()));
    let difference = want.iter().zip(&got).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(difference <= 1e-4 * most, "{difference} of {most}");
}

#[test]
fn half_precision_models_stay_within_the_error_of_bf16() {
    half_precision_models();
}

#[test]
fn further_half_precision_models_stay_within_the_error_of_bf16() {
    half_precision_models();
}

fn half_precision_models() {
    static SWEEP: OnceLock<Sweep> = OnceLock::new();
    if !ready() {
        return;
    }
    // Both types of the first models; of the many others one each.
    let types = [("bf16", KvDType::Bf16), ("f16", KvDType::F16)];
    let of = |i: usize| if i < WHOLE { &types[..] } else { &types[i % 2..][..1] };
    let case = |(i, name)| of(i).iter().map(move |(format, kv)| (name, *format, *kv));
    let cases = || first_goldens().enumerate().flat_map(case).collect();
    let sweep = SWEEP.get_or_init(|| Sweep::new(cases(), 2 * WHOLE, chooses_experts));
    let mut wrong = Vec::new();
    while let Some((whole, (name, format, kv))) = sweep.next() {
        let (g, model) = (Golden::load(name), sweep.compile(&gpu_options(name, format, kv)).open(1));
        // The largest regime, and then token by token.
        for pieces in some_pieces_of(&g, whole, &[&[36, 1]]) {
            let (error, allowed) = (error(&model, &g, pieces), 2.0 * g.reference_error(false));
            // An approximation cannot be exact.
            if !(error > 0.0 && error <= allowed) {
                wrong.push(format!(
                    "{name} as {format} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Quantized weights are the same numbers on both machines; only the rounding of activations
/// differs.
#[test]
fn quantized_models_equal_those_of_the_cpu() {
    if !ready() {
        return;
    }
    for (name, format) in [("llama3", "w4g32"), ("qwen3", "w8g64"), ("mistral", "w4ag32"), ("qwen2", "fp8")] {
        let g = Golden::load(name);
        let gpu = compile(&gpu_options(name, format, KvDType::F16));
        let cpu = Artifact::compile(&CompileOptions {
            targets: vec![session::find_target("native").expect("a target")],
            act: Some(ActPolicy::F32),
            ..gpu_options(name, format, KvDType::F16)
        });
        let (gpu, cpu) = (gpu.open(1), cpu.open(1));
        let want = logits_in_pieces(&cpu, &g.tokens, &[40]);
        for pieces in pieces_of(&g) {
            let got = logits_in_pieces(&gpu, &g.tokens, pieces);
            let worst = furthest(&got, &want);
            let allowed = 2.0 * g.reference_error(false);
            assert!(worst <= allowed, "{name} {format} in pieces of {pieces:?}: {worst:.2e}, allowed {allowed:.2e}");
        }
    }
}

/// The same of checkpoints that are quantized, by tensor cores: formats with factors of any kind.
#[test]
fn quantized_checkpoints_by_tensor_cores() {
    if !ready() {
        return;
    }
    for name in ["gptq3", "hqq", "fp8_blocks", "modelopt_awq", "bitnet_auto"] {
        let name = format!("quantized_models/{name}");
        let g = Golden::load(&name);
        let of = |act, target| {
            let targets = vec![session::find_target(target).expect("a target")];
            CompileOptions { weights: None, act, targets, ..gpu_options(&name, "f32", KvDType::F16) }
        };
        let gpu = compile(&of(Some(ActPolicy::Bf16), "sm90"));
        let cpu = Artifact::compile(&of(Some(ActPolicy::F32), "native"));
        let (gpu, cpu) = (gpu.open(1), cpu.open(1));
        let want = logits_in_pieces(&cpu, &g.tokens, &[40]);
        for pieces in [&[40][..], &[33, 1]] {
            let got = logits_in_pieces(&gpu, &g.tokens, pieces);
            let worst = furthest(&got, &want);
            let allowed = 2.0 * g.reference_error(false);
            assert!(
                worst > 0.0 && worst <= allowed,
                "{name} in pieces of {pieces:?}: {worst:.2e}, allowed {allowed:.2e}"
            );
        }
    }
}

/// fp8 activations: the same rounding in all regimes, so that how a prompt is cut changes the order
/// of sums only; and close to the results of f32 activations.
#[test]
fn fp8_activations_do_not_depend_on_the_regime() {
    if !ready() {
        return;
    }
    let g = Golden::load("llama3");
    let f32s = CompileOptions {
        targets: vec![session::find_target("native").expect("a target")],
        act: Some(ActPolicy::F32),
        ..gpu_options("llama3", "fp8", KvDType::F16)
    };
    let want = logits_in_pieces(&Artifact::compile(&f32s).open(1), &g.tokens, &[40]);
    for target in ["sm89", "sm90"] {
        let target = target::find(target).expect("a target");
        let gpu = compile(&CompileOptions {
            targets: vec![target],
            act: Some(ActPolicy::Fp8),
            ..gpu_options("llama3", "fp8", KvDType::F16)
        });
        let gpu = gpu.open(1);
        let whole = logits_in_pieces(&gpu, &g.tokens, PIECES[0]);
        for pieces in &PIECES[1..] {
            let got = logits_in_pieces(&gpu, &g.tokens, pieces);
            let worst = furthest(&got, &whole);
            let allowed = 2.0 * g.reference_error(false);
            assert!(worst <= allowed, "{} in pieces of {pieces:?}: {worst:.2e}, allowed {allowed:.2e}", target.name);
        }
        // Products of rounded rows have an error of 2.6 %, independent of the others: queries,
        // keys, values, attention's output, gate, up and down of two layers, and the logits.
        let square = |x: f32| f64::from(x) * f64::from(x);
        let error: f64 = whole.iter().zip(&want).map(|(a, b)| square(a - b)).sum();
        let relative = (error / want.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
        assert!(relative > 0.0 && relative < 0.026 * 15f64.sqrt(), "{}: relative error {relative:.3}", target.name);
    }
}

#[test]
fn greedy_text_equals_transformers() {
    if !ready() {
        return;
    }
    let name = "llama3";
    let g = Golden::load(name);
    let artifact = compile(&gpu_options(name, "f32", KvDType::F32));
    let model = artifact.open(1);
    assert_eq!(greedy(&model, &g), g.greedy, "{name}");
}

/// Several sequences in one step, some in their prompt, some decoding: each as if alone, up to the
/// rounding of another kernel.
#[test]
fn mixed_batches() {
    // Attention; the gated delta rule beside it.
    if ready() {
        ["llama3", "qwen3_5"].into_iter().for_each(mixed_batch);
    }
}

fn mixed_batch(name: &str) {
    let g = Golden::load(name);
    let artifact = compile(&gpu_options(name, "f32", KvDType::F32));
    let model = artifact.open(1);
    let others: Vec<i32> = g.tokens.iter().rev().copied().collect();
    let alone = logits_in_pieces(&model, &others, &[1]);
    let (a, b) = (model.seq_new().expect("a"), model.seq_new().expect("b"));
    let (mut got_a, mut got_b, mut at) = (vec![], vec![], 0);
    for round in 0.. {
        let n = [9, 1, 17, 2][round % 4].min(g.tokens.len() - at);
        if n == 0 {
            break;
        }
        let tokens: Vec<i32> = std::iter::once(others[round]).chain(g.tokens[at..at + n].iter().copied()).collect();
        let seqs: Vec<i32> = std::iter::once(b).chain(vec![a; n]).collect();
        let rows: Vec<u32> = (0..tokens.len() as u32).collect();
        let logits = model.step(&tokens, &seqs, &rows).expect("a mixed step");
        got_b.extend_from_slice(&logits[..g.columns]);
        got_a.extend_from_slice(&logits[g.columns..]);
        at += n;
    }
    let allowed = 2.0 * g.reference_error(true);
    assert!(g.error(&got_a) <= allowed, "{name}: a prompt beside another sequence");
    let worst = furthest(&got_b, &alone);
    assert!(worst <= allowed, "{name}: a sequence decoding beside a prompt: {worst:.2e}");
}

/// A generation whose prompt begins like the one before goes on from a snapshot of its states: a
/// slot of device memory that was copied. It has the same tokens.
#[test]
fn recurrent_generations_go_on_from_snapshots() {
    if !ready() {
        return;
    }
    let g = Golden::load("bamba");
    let artifact = compile(&gpu_options("bamba", "f32", KvDType::F32));
    let model = artifact.open(1);
    let options = GenOptions { max_tokens: 6, no_text: true, temperature: 0.0, ..GenOptions::default() };
    let seq = model.seq_new().expect("a sequence");
    let run = |prompt: &[i32]| {
        let mut generation = model.generate(Some(seq), prompt, &options).expect("starts");
        let tokens: Vec<i32> = generation.by_ref().map(|p| p.expect("generates").token).collect();
        (generation.stats().expect("statistics").reused_tokens as usize, tokens)
    };
    let (reused, first) = run(&g.tokens);
    assert_eq!((reused, &first[..]), (0, &g.greedy[..6]));
    // The prompt and the first tokens, then another one: evaluated tokens end at the prompt's end.
    let longer = [&g.tokens[..], &first[..3]].concat();
    assert_eq!(run(&longer), (g.tokens.len(), g.greedy[3..9].to_vec()));
}

/// A number in the statistics of a model.
fn statistic(model: &Model, name: &str) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&model.stats().expect("statistics")).expect("JSON");
    stats[name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}"))
}

/// Bytes of results that the runtime has fetched from the GPU.
fn fetched(model: &Model) -> usize {
    statistic(model, "fetched_bytes") as usize
}

/// A generation has the tokens that all logits give, and fetches them only where the most probable
/// tokens do not decide.
#[test]
fn generations_fetch_candidates() {
    if !ready() {
        return;
    }
    let g = Golden::load("llama3");
    let artifact = compile(&gpu_options("llama3", "f32", KvDType::F32));
    let model = artifact.open(1);
    // An H200's, as the driver's stand-in says: 3,201 MHz, twice a cycle, on 6,144 lines.
    assert_eq!(statistic(&model, "memory_bytes_per_second"), 2 * 3_201_000_000 * 6144 / 8);
    assert_eq!(statistic(&model, "multiprocessors"), 132);
    let (n, all, few) = (6, 4 * g.columns, 4 * llmcc_ir::kernel::TopK::columns(llmcc_passes::candidates::CANDIDATES));
    let base = GenOptions { max_tokens: n as u32, no_text: true, temperature: 0.8, seed: 5, ..GenOptions::default() };
    let cases = [
        (GenOptions { temperature: 0.0, ..base.clone() }, Some(few)),
        (GenOptions { top_k: 20, ..base.clone() }, Some(few)),
        (GenOptions { top_k: 40, top_p: 0.9, min_p: 0.02, ..base.clone() }, Some(few)),
        (GenOptions { min_p: 0.1, ..base.clone() }, Some(few)),
        // Some rows may be left open.
        (GenOptions { top_p: 0.7, ..base.clone() }, None),
        (GenOptions { top_k: 100, top_p: 0.99, ..base.clone() }, None),
        (GenOptions { top_k: 20, repetition_penalty: 1.3, ..base.clone() }, None),
        (GenOptions { temperature: 0.0, repetition_penalty: 1.3, ..base.clone() }, None),
        // Nothing but all logits will do.
        (base.clone(), Some(all)),
        (GenOptions { repetition_penalty: 1.3, ..base.clone() }, Some(all)),
    ];
    for (options, bytes) in cases {
        let before = fetched(&model);
        let tokens: Result<Vec<i32>, _> =
            model.generate(None, &g.tokens, &options).expect("starts").map(|p| p.map(|p| p.token)).collect();
        let (tokens, after) = (tokens.expect("generates"), fetched(&model) - before);
        let mut history = g.tokens.clone();
        let seq = model.seq_new().expect("a sequence");
        let mut logits = model.step(&history, &vec![seq; history.len()], &[history.len() as u32 - 1]).expect("a step");
        for (draw, token) in tokens.iter().enumerate() {
            assert_eq!(
                *token,
                model.sample(&logits, &options, &history, draw as u64).expect("chooses"),
                "token {draw} with {options:?}"
            );
            history.push(*token);
            logits = model.step(&[*token], &[seq], &[0]).expect("a step");
        }
        model.seq_free(seq).expect("frees");
        assert_eq!(tokens.len(), n);
        match bytes {
            Some(each) => assert_eq!(after, n * each, "{options:?}"),
            None => assert!(after >= n * few && after <= n * (few + all), "{after} bytes with {options:?}"),
        }
    }
}
