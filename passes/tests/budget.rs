//! Formats and cache types chosen within an error budget.

use crate::common::{self, Toy, Weights, difference, packed};
use llmcc_ir::graph::Module;
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::{Plan, Storage};
use llmcc_ir::quant::{Format, unpack_row};
use llmcc_ir::state::StateSpec;
use llmcc_ir::target;
use llmcc_passes::budget::compile_exactly;
use llmcc_passes::measure::Measured;
use llmcc_passes::storage::cache_error;
use llmcc_passes::{ActPolicy, Compiled, Explain, Options, PassError, Stored, compile_measured};
use std::collections::BTreeSet;

const FORMATS: &[&str] = &["w4g128", "w4g64", "w4g32", "w4ag32", "w8g128", "f32"];

fn within(budget: f64) -> Options {
    let formats = FORMATS.iter().map(|f| Format::parse(f).unwrap()).collect();
    Options::within(target::find("x86-64-v4").unwrap(), formats, budget)
}

/// A model whose products are large enough for bytes to matter.
fn toy() -> Toy {
    Toy { hidden: 256, heads: 8, kv_heads: 2, head_dim: 32, ffn: 512, vocab: 512, layers: 3, ..Toy::llama() }
}

fn compile(toy: Toy, opts: &Options) -> Result<Compiled, PassError> {
    let module = toy.module();
    compile_measured(&module, opts, &Weights::random(&module))
}

/// √(Σ nᵢ·eᵢ² / Σ nᵢ) of a plan's matrices that products read, from the packed bytes.
fn error(toy: Toy, plan: &Plan) -> f64 {
    plan_error(toy, plan, &Weights::random(&toy.module()))
}

/// The same with other weights.
fn plan_error(toy: Toy, plan: &Plan, weights: &Weights) -> f64 {
    let module = toy.module();
    let (mut sum, mut count) = (0.0, 0.0);
    for (w, bytes) in plan.weights.iter().zip(packed(plan, &module, weights)) {
        let Storage::Matrix { n, k, format } = w.storage else { continue };
        let llmcc_ir::plan::WeightExpr::Weight(i) = w.expr else { panic!("{:?}", w.expr) };
        if i == 0 && !toy.tied {
            continue;
        }
        let (mut error, mut signal) = (0f64, 0f64);
        let mut back = vec![0f32; k];
        for (r, row) in weights.values[i].chunks_exact(k).enumerate() {
            unpack_row(format, &bytes, k, r, &mut back);
            for (w, q) in row.iter().zip(&back) {
                error += f64::from(q - w).powi(2);
                signal += f64::from(*w).powi(2);
            }
        }
        sum += (n * k) as f64 * error / signal;
        count += (n * k) as f64;
    }
    (sum / count).sqrt()
}

fn formats(plan: &Plan) -> BTreeSet<String> {
    let format = |w: &llmcc_ir::plan::PackedWeight| {
        if let Storage::Matrix { format, .. } = w.storage { Some(format.to_string()) } else { None }
    };
    plan.weights.iter().filter_map(format).collect()
}

#[test]
fn budgets_are_kept_and_tighter_ones_are_never_faster_nor_less_exact() {
    for tied in [false, true] {
        let toy = Toy { tied, ..toy() };
        let mut last = (0.0, f64::INFINITY);
        for budget in [0.2, 0.1, 0.08, 0.06, 0.03, 0.01, 0.005, 0.0] {
            let compiled = compile(toy, &within(budget)).unwrap();
            let (seconds, predicted) = (compiled.predicted_decode_seconds(), compiled.error.unwrap());
            let real = error(toy, &compiled.plan);
            assert!((real - predicted).abs() < 1e-6, "these matrices are measured whole: {real} {predicted}");
            assert!(real <= budget * (1.0 + 1e-6), "{budget}: {real}");
            // Forms within a fraction of a nanosecond count as equally fast.
            assert!(seconds >= last.0 - 1e-9 && real <= last.1 + 1e-9, "{budget}: {seconds} {real} after {last:?}");
            last = (seconds, real);
        }
    }
}

#[test]
fn no_budget_for_errors_means_the_exact_format() {
    let plan = compile(toy(), &within(0.0)).unwrap().plan;
    assert_eq!(formats(&plan), BTreeSet::from(["f32".to_string()]));
}

#[test]
fn formats_mix_and_plans_compute_what_they_say() {
    for toy in [toy(), Toy { bias: true, qk_norm: true, tied: true, window: Some(4), ..toy() }] {
        let opts = Options { act: ActPolicy::F32, ..within(0.05) };
        let compiled = compile(toy, &opts).unwrap();
        assert!(formats(&compiled.plan).len() > 1, "{:?}", compiled.stored);
        let module = toy.module();
        let d = difference(&module, &compiled.plan, &Weights::random(&module));
        assert!(d < 1e-5, "{d}");
    }
}

#[test]
fn a_tied_table_is_stored_once() {
    for budget in [0.1, 0.04, 0.0] {
        let toy = Toy { tied: true, ..toy() };
        let plan = compile(toy, &within(budget)).unwrap().plan;
        let matrices = plan.weights.iter().filter(|w| matches!(w.storage, Storage::Matrix { .. })).count();
        assert_eq!(matrices, 7 * toy.layers + 1);
    }
}

#[test]
fn a_budget_out_of_reach_names_the_least_error() {
    let formats = vec![Format::parse("w4g128").unwrap(), Format::parse("w4g32").unwrap()];
    let opts = Options { formats, ..within(0.01) };
    let Err(PassError::Budget { least, worst }) = compile(toy(), &opts) else { panic!("compiled") };
    let least: f64 = least.parse().unwrap();
    assert!(compile(toy(), &Options { error_budget: Some(least), ..opts.clone() }).is_ok(), "as the message says");
    assert!(compile(toy(), &Options { error_budget: Some(least * 0.99), ..opts }).is_err());
    assert!(worst.contains("layers.0.w") && worst.contains("and 2 like it (w4g32 "), "{worst}");
}

#[test]
fn budgets_of_any_size_are_kept() {
    for budget in [0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1e-30, 1e-12, 1.0, 1e3, 1e300, f64::MAX] {
        let compiled = compile(toy(), &within(budget)).unwrap_or_else(|e| panic!("{budget:e}: {e}"));
        let real = error(toy(), &compiled.plan);
        assert!(real <= budget, "{budget:e}: {real:e}");
        assert!((real == 0.0) == (budget < 1e-6), "{budget:e}: {real:e}");
    }
}

/// Weights with extraordinary magnitudes.
fn scaled(module: &Module, change: impl Fn(usize, usize, &mut f32)) -> Weights {
    let mut w = Weights::random(module);
    for i in 0..module.weights.len() {
        if module.weights[i].ty.shape.len() == 2 {
            w.change(i, |at, v| change(i, at, v));
        }
    }
    w
}

#[test]
fn weights_of_any_magnitude_are_measured() {
    let module = toy().module();
    for factor in [0.0f32, 1e-42, 1e-30, 1e-9, 1e4, 1e15, 1e30, 1e37] {
        let weights = scaled(&module, |_, _, v| *v *= factor);
        let compiled = compile_measured(&module, &within(0.09), &weights).unwrap_or_else(|e| panic!("{factor:e}: {e}"));
        // Nothing is to be chosen where only f32 holds such numbers.
        let predicted = compiled.error.unwrap_or(0.0);
        assert!(predicted.is_finite() && predicted <= 0.09, "{factor:e}: {predicted}");
    }
    // Rows of zeros, and whole matrices.
    let weights = scaled(&module, |i, at, v| {
        if i % 3 == 0 || at % 7 < 3 {
            *v = 0.0
        }
    });
    assert!(compile_measured(&module, &within(0.09), &weights).unwrap().error.unwrap() <= 0.09);
}

#[test]
fn what_is_no_number_is_refused_with_its_place() {
    let module = toy().module();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let weights = scaled(&module, |i, at, v| {
            if i == 5 && at == 300 {
                *v = bad
            }
        });
        match compile_measured(&module, &within(0.09), &weights) {
            Err(PassError::Weights(what)) => {
                assert!(what.contains("layers.0.wv: row 1, column ") && what.contains("not a finite number"), "{what}")
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
}

/// Eight rows of each large matrix, in blocks that no sample takes, hold nearly everything,
/// unevenly: there 4 bits are far less exact than elsewhere.
#[test]
fn budgets_are_kept_where_samples_mislead() {
    let toy =
        Toy { hidden: 256, heads: 8, kv_heads: 8, head_dim: 32, ffn: 1024, vocab: 4096, layers: 1, ..Toy::llama() };
    let module = toy.module();
    let rows = |i: usize| module.weights[i].ty.shape[0].known().unwrap();
    let weights = scaled(&module, |i, at, v| {
        let row = at / module.weights[i].ty.shape[1].known().unwrap();
        if rows(i) >= 1024 && row < 8 {
            // Half a step of 4 bits, which rounds to 0 or a whole one.
            *v = if at % 32 == 0 { 1000.0 } else { 70f32.copysign(*v) };
        }
    });
    let opts = within(0.09);
    let sampled = compile_measured(&module, &opts, &weights).unwrap();
    let real = |plan: &Plan| plan_error(toy, plan, &weights);
    assert!(
        sampled.error.unwrap() <= 0.09 && real(&sampled.plan) > 0.1,
        "the sample misses the rows: {:?} {}",
        sampled.error,
        real(&sampled.plan)
    );
    let mut whole = Measured::new();
    let exact = compile_exactly(&module, &opts, &weights, &mut whole).unwrap();
    assert!(real(&exact.plan) <= 0.09, "{}", real(&exact.plan));
    assert!((exact.error.unwrap() - real(&exact.plan)).abs() < 1e-9);
    assert!(exact.predicted_decode_seconds() > sampled.predicted_decode_seconds());
    // Known errors are not measured again, and the choice is the same.
    assert_eq!(compile_exactly(&module, &opts, &weights, &mut whole.clone()).unwrap().plan, exact.plan);
}

/// A value that no sample has, too large for formats whose scales are f16: they are left out for
/// its tensor, not for others.
#[test]
fn formats_that_cannot_hold_a_value_are_left_out() {
    let toy =
        Toy { hidden: 256, heads: 8, kv_heads: 8, head_dim: 32, ffn: 512, vocab: 4096, layers: 1, ..Toy::llama() };
    let module = toy.module();
    let mut weights = Weights::random(&module);
    let head = module.weights.len() - 1;
    weights.change(head, |at, v| {
        if at == 3 {
            *v = 1e7;
        }
    });
    let opts = within(1.0);
    let formats = |plan: &Plan| -> Vec<(bool, Format)> {
        let of = |w: &llmcc_ir::plan::PackedWeight| match w.storage {
            Storage::Matrix { format, .. } => Some((w.expr == llmcc_ir::plan::WeightExpr::Weight(head), format)),
            Storage::Vector { .. } => None,
        };
        plan.weights.iter().filter_map(of).collect()
    };
    let sampled = compile_measured(&module, &opts, &weights).unwrap();
    assert!(formats(&sampled.plan).iter().all(|(_, format)| format.is_quantized()), "the sample misses the value");
    let exact = compile_exactly(&module, &opts, &weights, &mut Measured::new()).unwrap();
    for (is_head, format) in formats(&exact.plan).into_iter().skip(1) {
        assert_eq!(is_head, !format.is_quantized(), "{format}");
    }
}

#[test]
fn several_formats_without_weights_are_refused() {
    assert_eq!(llmcc_passes::compile(&toy().module(), &within(0.1)).unwrap_err(), PassError::Unmeasured);
}

#[test]
fn choices_say_what_the_next_would_cost() {
    let compiled =
        compile(toy(), &Options { explain: Explain { alternatives: true, egraph: false }, ..within(0.05) }).unwrap();
    assert_eq!(compiled.stored.len(), 8);
    for s in &compiled.stored {
        assert!(s.gap >= -1e-12 && !s.runner_up.is_empty(), "{s}");
    }
    let one = Stored {
        subject: "layer.wq".into(),
        form: "w8g128".into(),
        error: 0.0039,
        weights: BTreeSet::new(),
        runner_up: "layer.wq w4g64".into(),
        gap: 1.5e-6,
    };
    assert_eq!(one.to_string(), "layer.wq stored as w8g128, error 0.390 %; next layer.wq w4g64 (+1.500 µs)");
}

/// The model with its caches in another type.
fn cached(toy: Toy, dtype: KvDType) -> Module {
    let mut module = toy.module();
    module.states.iter_mut().filter_map(StateSpec::paged_mut).for_each(|s| s.dtype = dtype);
    for f in &mut module.funcs {
        let retype = |ty: &mut llmcc_ir::graph::ValueType| {
            if let llmcc_ir::graph::ValueType::State(StateSpec::Paged(s)) = ty {
                s.dtype = dtype;
            }
        };
        f.params.iter_mut().for_each(|p| retype(&mut p.ty));
        f.nodes.iter_mut().for_each(|n| retype(&mut n.ty));
    }
    module
}

#[test]
fn cache_types_are_chosen_by_cost_within_the_budget() {
    // Memory so slow that attention waits for it.
    let mut slow = *target::find("x86-64-v4").unwrap();
    slow.memory = 1e8;
    let slow: &'static _ = Box::leak(Box::new(slow));
    let all = vec![KvDType::F32, KvDType::F16, KvDType::Bf16, KvDType::Int8];
    for (budget, wanted) in [(0.1, KvDType::Int8), (0.005, KvDType::F16), (0.001, KvDType::F16), (1e-5, KvDType::F32)] {
        let opts = Options { kv: all.clone(), target: slow, ..within(budget) };
        let compiled = compile(toy(), &opts).unwrap();
        assert!(compiled.plan.kv().all(|s| s.dtype == wanted), "{budget}: {:?}", compiled.plan.states);
        let module = cached(toy(), wanted);
        let plan = &compiled.plan;
        let d = difference(&module, plan, &Weights::random(&module));
        assert!(d < 0.05, "{budget}: {d}");
    }
}

#[test]
fn one_cache_type_needs_no_weights() {
    let opts = Options { kv: vec![KvDType::Int8], ..Options::new(target::find("x86-64-v4").unwrap(), Format::F32) };
    let plan = llmcc_passes::compile(&toy().module(), &opts).unwrap().plan;
    assert!(plan.kv().all(|s| s.dtype == KvDType::Int8));
    let module = cached(toy(), KvDType::Int8);
    assert!(difference(&module, &plan, &Weights::random(&module)) < 1e-4);
}

/// Normally distributed numbers (sums of uniform ones would have no tails; this is Box and Muller's
/// method).
fn gaussian(seed: u64, n: usize) -> Vec<f64> {
    let u = common::random(seed, 2 * n);
    let pair = |c: &[f32]| {
        let (a, b) = ((f64::from(c[0]) + 1.0) / 2.0, f64::from(c[1]));
        (-2.0 * a.max(1e-12).ln()).sqrt() * (std::f64::consts::PI * b).cos()
    };
    u.chunks_exact(2).map(pair).collect()
}

#[test]
fn a_priori_cache_errors_hold_on_gaussian_data() {
    for head_dim in [32, 64, 128, 256] {
        for (dtype, name) in KvDType::ALL {
            let (mut error, mut signal) = (0.0, 0.0);
            for head in gaussian(7, head_dim * 400).chunks_exact(head_dim) {
                let largest = head.iter().fold(0f64, |m, v| m.max(v.abs()));
                for v in head {
                    let back = match dtype {
                        KvDType::F32 => *v,
                        KvDType::F16 => half::f16::from_f64(*v).to_f64(),
                        KvDType::Bf16 => half::bf16::from_f64(*v).to_f64(),
                        KvDType::Int8 | KvDType::Int4 => {
                            let most = f64::from(dtype.most().unwrap());
                            (v / largest * most).round() * largest / most
                        }
                    };
                    error += (back - v).powi(2);
                    signal += v * v;
                }
            }
            let measured = (error / signal).sqrt();
            let predicted = cache_error(KvSpec {
                dtype: *dtype,
                kv_heads: 1,
                key_dim: head_dim,
                value_dim: head_dim,
                latent: false,
                window: None,
                every: 1,
                first: None,
            });
            assert!(
                measured <= predicted * 1.05 && measured >= predicted * 0.8,
                "{name} {head_dim}: {measured} {predicted}"
            );
        }
    }
}
