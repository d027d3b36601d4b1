//! Plans for GPUs: 16-bit activations, fragment packing, their own regimes.

use crate::common::{Toy, Weights, difference};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Body, Kernel, ParamKind, RowElem};
use llmcc_ir::plan::{Plan, Storage};
use llmcc_ir::quant::{Format, Packing};
use llmcc_ir::target;
use llmcc_passes::{ActPolicy, Options, PassError, compile};

fn options(target: &str, format: &str) -> Options {
    Options::new(target::find(target).unwrap(), Format::parse(format).unwrap())
}

fn toys() -> Vec<Toy> {
    let llama = Toy::llama();
    vec![llama, Toy { bias: true, ..llama }, Toy { qk_norm: true, tied: true, ..llama }, Toy::uneven()]
}

#[test]
fn plans_compute_what_their_modules_mean() {
    // Rounding of activations: bf16 has 8 bits of mantissa, f16 11; a few roundings per layer,
    // largest difference over all logits.
    for (format, act, tolerance) in [
        ("f32", ActPolicy::F32, 1e-5),
        ("bf16", ActPolicy::Bf16, 0.03),
        ("f16", ActPolicy::F16, 0.004),
        ("w4g32", ActPolicy::Bf16, 0.03),
        ("w8g64", ActPolicy::Bf16, 0.03),
        ("fp8", ActPolicy::Bf16, 0.03),
    ] {
        for toy in toys() {
            let opts = options("sm90", format);
            assert_eq!(opts.act, act);
            let module = toy.module();
            let plan = compile(&module, &opts).unwrap().plan;
            let d = difference(&module, &plan, &Weights::random(&module));
            assert!(d < tolerance, "{toy:?} {format}: {d}");
        }
    }
}

/// e4m3 has 3 bits of mantissa: a rounding is 2.6 % of an element where int8 is 0.5 %. All regimes
/// round alike, in kernels of their own.
#[test]
fn fp8_rows_stay_near_and_are_shared_by_regimes() {
    for toy in toys() {
        for target in ["sm89", "sm90"] {
            let opts = Options { act: ActPolicy::Fp8, ..options(target, "fp8") };
            let module = toy.module();
            let plan = compile(&module, &opts).unwrap().plan;
            let d = difference(&module, &plan, &Weights::random(&module));
            assert!(d < 0.25, "{toy:?} {target}: {d}");
            for launch in plan.regimes.iter().flat_map(|r| &r.launches) {
                let kernel = &plan.kernels[launch.kernel];
                let Body::Matmul(m) = &kernel.body else { continue };
                let fp8 = matches!(kernel.params[m.x].kind, ParamKind::Rows { elem: RowElem::Fp8, .. });
                assert!(fp8 && m.prologue.is_none(), "{} multiplies other rows", kernel.name);
            }
            // A kernel that rounds before each of the four products.
            assert_eq!(layer_launches(&plan, 0), 9, "{toy:?} {target}");
        }
        let opts = Options { act: ActPolicy::Fp8, ..options("sm80", "fp8") };
        assert!(compile(&toy.module(), &opts).is_err(), "sm80 multiplies no e4m3 numbers");
    }
}

/// Plans are verified by [`TargetSpec::multiplies`].
#[test]
fn activations_run_where_they_are_said_to() {
    let module = Toy::llama().module();
    for target in target::TARGETS.iter().filter(|t| t.gpu().is_some()) {
        // Those that can be asked for.
        for (act, format) in [(ActPolicy::F32, "w8g64"), (ActPolicy::Int8, "w8g64"), (ActPolicy::Fp8, "fp8")] {
            let done = compile(&module, &Options { act, ..options(target.name, format) });
            assert_eq!(done.is_ok(), target.multiplies(act), "{act} on {}", target.name);
        }
    }
    let cpu = target::find("x86-64-v4").unwrap();
    assert!(cpu.multiplies(ActPolicy::Int8) && cpu.multiplies(ActPolicy::F32) && !cpu.multiplies(ActPolicy::Fp8));
}

/// Checks after `store`, and after the last pass, refuse a plan for another target: matrices in its order, rows that it
/// multiplies, whatever asked for them.
#[test]
fn plans_for_other_targets_are_refused() {
    let module = Toy::llama().module();
    let refused = |opts: Options| match compile(&module, &opts) {
        Err(PassError::Verify { pass, what }) => (pass, what),
        other => panic!("{other:?}"),
    };
    let (cpu, gpu) = (options("x86-64-v4", "w4g128"), options("sm90", "w4g128"));
    let (at, [panel, fragment]) = if cfg!(debug_assertions) {
        ("store", ["not in Panel packing", "not in Fragment packing"])
    } else {
        ("memory", ["`x86-64-v4` reads Panel", "`sm90` reads Fragment"])
    };
    let (pass, what) = refused(Options { target: cpu.target, act: cpu.act, ..gpu.clone() });
    assert!(pass == at && what.contains("target-packing") && what.contains(panel), "{pass}: {what}");
    let (pass, what) = refused(Options { target: gpu.target, act: gpu.act, ..cpu.clone() });
    assert!(pass == at && what.contains("target-packing") && what.contains(fragment), "{pass}: {what}");
    // The cost model has no rate for such products either.
    assert!(matches!(compile(&module, &Options { act: ActPolicy::F16, ..cpu }), Err(PassError::Extract(_))));
}

/// A kernel without the tiles that decide no bit: rows of tiles of `wgmma`, tokens taken together, and rows of experts.
fn order_of_sums(kernel: &Kernel, target: &target::TargetSpec) -> Kernel {
    let mut kernel = Kernel { name: String::new(), ..kernel.clone() };
    let piped = schedule::matmul(&kernel, target).is_some_and(|s| s.variant.is_wgmma());
    match &mut kernel.body {
        Body::Matmul(m) if piped => m.tile_m = 64,
        Body::Attention(a) => a.tile_m = 1,
        Body::ExpertMatmul(m) => m.tile_m = 1,
        _ => {}
    }
    kernel
}

/// All regimes of an invariant target launch the same kernels on the same operands, but for their tiles; those of usual
/// ones differ.
#[test]
fn regimes_of_an_invariant_target_add_alike() {
    let usual = target::find("sm90").unwrap();
    let invariant: &target::TargetSpec = Box::leak(Box::new(usual.invariant()));
    for (toy, format) in toys().into_iter().flat_map(|toy| ["f32", "bf16", "w4g32", "fp8"].map(|f| (toy, f))) {
        let module = toy.module();
        let launches = |target| {
            let plan = compile(&module, &Options { target, ..options("sm90", format) }).unwrap().plan;
            let of = |l: &llmcc_ir::plan::Launch| order_of_sums(&plan.kernels[l.kernel], target);
            plan.regimes.iter().map(|r| r.launches.iter().map(of).collect()).collect::<Vec<Vec<Kernel>>>()
        };
        let all = launches(invariant);
        assert!(all.iter().all(|regime| *regime == all[0]), "{toy:?} {format}");
        let all = launches(usual);
        let streamed = format == "f32" || !toy.hidden.is_multiple_of(64);
        assert!(streamed || all.iter().any(|regime| *regime != all[0]), "{toy:?} {format}");
    }
}

fn layer_launches(plan: &Plan, regime: usize) -> usize {
    plan.regimes[regime].launches.iter().filter(|l| l.call == 1).count()
}

#[test]
fn a_decoded_layer_takes_five_launches() {
    for target in ["sm80", "sm90"] {
        for format in ["bf16", "w4g128"] {
            for toy in toys() {
                let plan = compile(&toy.module(), &options(target, format)).unwrap().plan;
                let names: Vec<_> =
                    plan.regimes[0].launches.iter().map(|l| plan.kernels[l.kernel].name.as_str()).collect();
                assert_eq!(layer_launches(&plan, 0), 5, "{target} {format} {toy:?}: {names:?}");
            }
        }
    }
}

#[test]
fn matrices_are_in_fragment_order_and_multiplied_by_halves() {
    let plan = compile(&Toy::llama().module(), &options("sm90", "w4g128")).unwrap().plan;
    for w in &plan.weights {
        if let Storage::Matrix { format, .. } = w.storage {
            assert_eq!(format.packing, Packing::Fragment);
        }
    }
    for k in &plan.kernels {
        if let Body::Matmul(m) = &k.body {
            let elem = match (m.prologue, &k.params[m.x].kind) {
                (Some(p), _) => p.elem,
                (None, ParamKind::Rows { elem, .. }) => *elem,
                (None, _) => RowElem::F32,
            };
            assert_eq!(elem, RowElem::Bf16, "{}", k.name);
        }
    }
    assert_eq!(
        plan.regimes.iter().map(|r| r.max_tokens).collect::<Vec<_>>(),
        [Some(8), Some(16), Some(32), Some(64), Some(128), Some(256), None]
    );
}

/// Every regime ends with finding the candidates of the logits; both have slots of their own, which
/// the runtime reads. CPUs need none.
#[test]
fn regimes_end_with_candidates() {
    for toy in toys() {
        let module = toy.module();
        let compiled = compile(&module, &options("sm90", "bf16")).unwrap();
        let plan = &compiled.plan;
        let k = toy.vocab.min(llmcc_passes::candidates::CANDIDATES);
        assert_eq!(
            (plan.entries[0].outputs[0].at, plan.entries[0].candidates.map(|c| (c.slot, c.k))),
            (0, Some((1, k)))
        );
        for (regime, costs) in plan.regimes.iter().zip(&compiled.costs) {
            assert_eq!(regime.launches.len(), costs.len());
            let last = regime.launches.last().unwrap();
            assert!(matches!(&plan.kernels[last.kernel].body, Body::TopK(t) if t.k == k));
            for (slot, operand) in last.operands.iter().enumerate() {
                let llmcc_ir::plan::Operand::Buffer(b) = operand else { panic!("{operand:?}") };
                assert_eq!(regime.buffers[*b].slot, slot);
                assert_eq!(regime.buffers.iter().filter(|other| other.slot == slot).count(), 1);
            }
        }
        let cpu = compile(&module, &Options::new(target::find("x86-64-v3").unwrap(), Format::F32)).unwrap().plan;
        assert!(cpu.entries[0].candidates.is_none() && cpu.kernels.iter().all(|k| !matches!(k.body, Body::TopK(_))));
    }
}
