//! The part of a compilation behind a difference is named.

use crate::common::{Toy, Weights};
use llmcc_ir::eval::Batch;
use llmcc_ir::graph::Module;
use llmcc_ir::quant::Format;
use llmcc_ir::target::find as target;
use llmcc_passes::bisect::{Found, Job, Suspect, find};
use llmcc_passes::module::tap;
use llmcc_passes::rules::{Right, Rule, Sample};
use llmcc_passes::trial::Trial;
use llmcc_passes::{ActPolicy, Options};

/// A rule that is false: it loses the activation, which is cheaper.
static PLANTED: &[Rule] = &[Rule {
    name: "planted",
    left: "(silu ?x)",
    right: Right::Text("?x"),
    guard: |_| true,
    sample: &[("?x", Sample::Rows("K"))],
}];

fn module() -> Module {
    let mut module = Toy::llama().module();
    tap::add(&mut module).expect("products");
    module
}

fn searched(module: &Module, weights: &Weights, format: &str, trial: Trial, tolerance: Option<f64>) -> Found {
    let format = Format::parse(format).expect("a format");
    let options = Options { trial, ..Options::new(target("x86-64-v3").expect("a target"), format) };
    let batch = Batch::single(&[3, 1, 4, 1, 5, 9], 0);
    let job = Job { module, options: &options, source: weights, batch: &batch };
    find(&job, tolerance, &mut |_| ()).expect("programs")
}

#[test]
fn a_false_rewrite_is_named() {
    let module = module();
    let weights = Weights::random(&module);
    let found = searched(&module, &weights, "f32", Trial { planted: PLANTED, ..Trial::default() }, None);
    let cause = found.cause.expect("a difference");
    assert_eq!(cause.suspects, [Suspect::Rewrite("planted".into())]);
    let first = cause.first.expect("a value");
    // The first layer is call 1; what its last matrix multiplies is the first value that is wrong.
    assert_eq!((first.call, module.funcs[first.func].name.as_str()), (1, "layer"));
    assert!(first.weights.iter().all(|w| w.contains("wd")), "{first:?}");
    assert!(first.values.0 != first.values.1 && cause.difference > 100.0 * found.tolerance);
    assert!(found.plain < 1e-5 && found.whole > found.tolerance);
}

#[test]
fn a_program_without_a_difference_has_no_cause() {
    let module = module();
    let weights = Weights::random(&module);
    for format in ["f32", "bf16"] {
        let tolerance = (format == "bf16").then_some(0.1);
        let found = searched(&module, &weights, format, Trial::default(), tolerance);
        assert_eq!(found.cause, None, "{format}: {found:?}");
    }
}

/// Of all matrices in 4 bits the one is named whose rounding loses most.
#[test]
fn the_matrix_that_loses_most_is_named() {
    let module = module();
    let mut weights = Weights::random(&module);
    let damaged = module.weights.iter().position(|w| w.name.contains("wd")).expect("a matrix");
    // A large number in each group of 32 columns takes the codes of the others.
    weights.change(damaged, |at, v| *v *= if at % 32 == 0 { 60.0 } else { 1.0 });
    let found = searched(&module, &weights, "w4g32", Trial::default(), Some(0.1));
    let cause = found.cause.expect("a difference");
    let [Suspect::Stored(weights, name)] = &cause.suspects[..] else { panic!("{:?}", cause.suspects) };
    // Both layers have one form.
    assert_eq!(name, "layers.0.wd and 1 like it as w4g32");
    assert!(weights.iter().all(|i| module.weights[*i].name.ends_with("wd")), "{weights:?}");
    let other = found.alone.iter().find(|(s, _)| *s != cause.suspects[0]).expect("others");
    assert!(other.1 < cause.difference, "{:?}", found.alone);
    // Inputs of products in 8 bits are suspects, too.
    assert!(found.alone.iter().any(|(s, _)| *s == Suspect::Activations(ActPolicy::Int8)), "{:?}", found.alone);
}
