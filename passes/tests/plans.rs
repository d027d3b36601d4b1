//! Plans compute the same as their modules.

use crate::common::{Toy, Weights, difference};
use llmcc_ir::kernel::{Body, ParamKind, RowElem};
use llmcc_ir::plan::Plan;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_passes::{ActPolicy, Compiled, Explain, Options, compile};

fn options(format: &str) -> Options {
    Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap())
}

fn f32_activations(format: &str) -> Options {
    Options { act: ActPolicy::F32, ..options(format) }
}

fn check(toy: Toy, opts: Options, tolerance: f64) -> Compiled {
    let module = toy.module();
    let compiled = compile(&module, &opts).unwrap();
    let weights = Weights::random(&module);
    let d = difference(&module, &compiled.plan, &weights);
    assert!(d < tolerance, "{toy:?} {opts:?}: {d}");
    compiled
}

/// Variants of the model: Llama, Qwen2 (biases), Qwen3 (QK norm), Mistral (window), tied
/// embeddings, other scores, and sizes that fit nothing evenly.
fn toys() -> Vec<Toy> {
    let llama = Toy::llama();
    vec![
        llama,
        Toy { bias: true, ..llama },
        Toy { qk_norm: true, ..llama },
        Toy { window: Some(4), ..llama },
        Toy { tied: true, ..llama },
        Toy { other: true, ..llama },
        Toy { other: true, window: Some(3), heads: 2, qk_norm: true, ..llama },
        Toy::uneven(),
        Toy { layers: 1, heads: 2, kv_heads: 2, head_dim: 8, ffn: 8, vocab: 5, ..llama },
    ]
}

#[test]
fn f32_plans_equal_their_graphs() {
    for toy in toys() {
        check(toy, options("f32"), 1e-5);
    }
}

/// Gate and up of the chosen experts are one launch, their sum is part of the one that adds it to
/// the residual stream, and the router's matrix stays as it is.
#[test]
fn experts_take_few_launches() {
    let toy = Toy { experts: 6, ..Toy::llama() };
    for format in ["f32", "w8g32", "w4g32"] {
        let plan = check(toy, f32_activations(format), 1e-5).plan;
        let launched = layer_kernels(&plan, 0);
        let experts = launched.iter().position(|name| name.contains("route")).unwrap();
        let names: Vec<&str> = launched[experts..].iter().map(|name| name.trim_end_matches(char::is_numeric)).collect();
        assert_eq!(names, ["layer.route", "layer.experts", "layer.experts", "layer.pointwise"], "{format}");
        let router = |k: &&llmcc_ir::kernel::Kernel| {
            k.params.iter().any(|p| match p.kind {
                ParamKind::Matrix { n, format, .. } => n == 6 && format == Format::F32,
                _ => false,
            })
        };
        assert!(plan.kernels.iter().any(|k| router(&k)), "{format}");
    }
}

#[test]
fn half_precision_plans_equal_graphs_of_their_weights() {
    for toy in toys() {
        for format in ["f16", "bf16"] {
            check(toy, f32_activations(format), 1e-5);
        }
        // Activations of 8 bits of mantissa: a few roundings per layer, largest over all logits.
        assert_eq!(options("bf16").act, ActPolicy::Bf16);
        check(toy, options("bf16"), 0.03);
    }
}

#[test]
fn quantized_plans_equal_graphs_of_their_decoded_weights() {
    for toy in toys() {
        for format in ["w8g32", "w4g32", "w4ag64", "w4g128", "w4sg32", "c4", "c3", "t3", "t2"] {
            check(toy, f32_activations(format), 1e-5);
        }
    }
}

#[test]
fn int8_activations_stay_near() {
    for toy in toys() {
        for format in ["w8g32", "w4g32", "w4ag64", "w4g128", "w4sg32", "c4", "c3", "t3", "t2"] {
            // Four products per layer, each with inputs rounded to 1/254 of their group's largest:
            // about 0.5 % each, largest over all logits.
            check(toy, options(format), 0.05);
        }
    }
}

/// Inputs that the graph rounds to integers are multiplied as integers, on CPUs, however others are
/// rounded: the plan computes the same as the graph.
#[test]
fn integers_are_multiplied_as_such() {
    let toy = Toy { rounds: true, ..Toy::llama() };
    // Columns of experts are whole groups.
    let experts = Toy { experts: 6, ffn: 128, hidden: 128, ..toy };
    let products = |compiled: &Compiled| -> Vec<RowElem> {
        let multiplied = |k: &llmcc_ir::kernel::Kernel| {
            let product = k.body.product()?;
            let rows = product.prologue.map(|p| p.elem).or(match k.params[product.x].kind {
                ParamKind::Rows { elem, .. } => Some(elem),
                _ => None,
            });
            rows.filter(|_| k.name.starts_with("layer."))
        };
        compiled.plan.kernels.iter().filter_map(multiplied).collect()
    };
    for toy in [toy, Toy { bias: true, qk_norm: true, ..toy }, experts] {
        for format in ["w8g32", "w8zg128", "w4g64"] {
            // But for the router, whose matrix is f32.
            let group = Format::parse(format).unwrap().encoding().integer_group().unwrap();
            let fits = |e: &RowElem| *e == RowElem::I8 { group } || toy.experts > 0 && *e == RowElem::F32;
            for opts in [f32_activations(format), options(format)] {
                let tolerance = if opts.act == ActPolicy::F32 { 1e-5 } else { 0.05 };
                let rows = products(&check(toy, opts, tolerance));
                assert!(rows.iter().all(fits) && rows.contains(&RowElem::I8 { group }), "{toy:?} {format}: {rows:?}");
            }
        }
        // Floats, tables and GPUs have no such rows.
        for (target, format) in [("x86-64-v4", "f32"), ("x86-64-v4", "iq4nl"), ("sm90", "w8g32")] {
            let opts = Options::new(target::find(target).unwrap(), Format::parse(format).unwrap());
            let compiled = compile(&toy.module(), &opts).unwrap();
            let rows = products(&compiled);
            assert!(!rows.iter().any(|e| matches!(e, RowElem::I8 { .. })), "{target} {format}: {rows:?}");
        }
    }
}

fn layer_kernels(plan: &Plan, regime: usize) -> Vec<&str> {
    plan.regimes[regime].launches.iter().filter(|l| l.call == 1).map(|l| plan.kernels[l.kernel].name.as_str()).collect()
}

#[test]
fn a_decoded_layer_takes_five_launches() {
    for toy in toys() {
        // One KV head's queries of the odd sizes are not whole groups: attention cannot store int8,
        // the product quantizes in its prologue.
        let compiled = compile(&toy.module(), &options("w4g32")).unwrap();
        let kernels = layer_kernels(&compiled.plan, 0);
        assert_eq!(kernels.len(), 5, "{toy:?}: {kernels:?}");
    }
}

/// An activation that reads its product four times is part of that product's launch all the same.
#[test]
fn an_activation_of_several_parts_takes_no_launch() {
    let toy = Toy { parts: true, ..Toy::llama() };
    for format in ["f32", "w8g32"] {
        let plan = check(toy, f32_activations(format), 1e-5).plan;
        for regime in 0..plan.regimes.len() {
            let kernels = layer_kernels(&plan, regime);
            assert!(!kernels.iter().any(|name| name.contains("pointwise")), "{format}: {kernels:?}");
        }
        let products = |k: &llmcc_ir::kernel::Kernel| k.body.segments().iter().map(|s| s.weights.len()).max();
        assert!(plan.kernels.iter().all(|k| products(k) <= Some(1)), "{format}: a matrix is read twice");
    }
}

#[test]
fn regimes_share_weights_and_rounding() {
    for toy in toys() {
        let plan = compile(&toy.module(), &options("w4g32")).unwrap().plan;
        for launch in plan.regimes.iter().flat_map(|r| &r.launches) {
            let kernel = &plan.kernels[launch.kernel];
            let Body::Matmul(m) = &kernel.body else { continue };
            let int8 = match (m.prologue.and_then(|p| p.elem.group()), &kernel.params[m.x].kind) {
                (Some(_), _) => true,
                (None, ParamKind::Rows { elem, .. }) => matches!(elem, RowElem::Q8 { .. }),
                (None, _) => false,
            };
            assert!(int8, "{} multiplies f32 rows", kernel.name);
        }
        let matrices =
            plan.weights.iter().filter(|w| matches!(w.storage, llmcc_ir::plan::Storage::Matrix { .. })).count();
        let wanted = 7 * toy.layers + if toy.tied { 1 } else { 2 };
        assert_eq!(matrices, wanted, "{toy:?}");
    }
}

#[test]
fn compiling_twice_gives_the_same() {
    for toy in toys() {
        for format in ["f32", "w4g32"] {
            let module = toy.module();
            assert_eq!(compile(&module, &options(format)).unwrap(), compile(&module, &options(format)).unwrap());
        }
    }
}

#[test]
fn gains_fold_into_matrices_where_the_format_bears_it() {
    let folded = |format: &str, tied: bool| {
        let plan = compile(&Toy { tied, ..Toy::llama() }.module(), &options(format)).unwrap().plan;
        plan.weights
            .iter()
            .filter(|w| matches!(w.expr, llmcc_ir::plan::WeightExpr::Op(llmcc_ir::graph::Op::ScaleCols, _)))
            .count()
    };
    assert_eq!(folded("f32", false), 11);
    assert_eq!(folded("w8g32", false), 11);
    assert_eq!(folded("w8g32", true), 10, "a tied head keeps its gain");
    assert_eq!(folded("w4g32", false), 0);
    assert_eq!(folded("bf16", false), 0);
    assert_eq!(folded("f16", false), 0);
}

fn explained(options: Options) -> Options {
    Options { explain: Explain { alternatives: true, egraph: true }, ..options }
}

/// Explanations beside the plan cost nothing unless asked for, and do not change the plan.
#[test]
fn explanations_are_made_when_asked_for() {
    let (module, options) = (Toy::llama().module(), options("w4g32"));
    let plain = compile(&module, &options).unwrap();
    assert_eq!(
        plain.solutions,
        module.funcs.len() * llmcc_passes::regimes(options.target).len(),
        "one program per function and regime"
    );
    assert!(plain.explain.is_empty() && plain.egraph.is_empty());
    let told = compile(&module, &explained(options)).unwrap();
    assert_eq!(told.solutions, plain.solutions + told.explain.len(), "one more per kernel");
    assert!(told.explain.len() > module.funcs.len() && told.egraph.contains("func layer"));
    assert_eq!(told.plan, plain.plan);
}

#[test]
fn explanations() {
    let compiled = compile(&Toy::llama().module(), &explained(options("w4g32"))).unwrap();
    let lines: Vec<String> = compiled.explain.iter().filter(|c| c.regime == 0).map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
    for c in &compiled.explain {
        assert!(c.gap >= -1e-12, "a better program than the chosen one exists: {c}");
    }
}
