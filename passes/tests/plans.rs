//! Plans compute what their modules mean.

mod common;

use common::{Toy, Weights, difference};
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_passes::{ActPolicy, Options, compile};

fn options(format: &str) -> Options {
    Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap())
}

fn check(toy: Toy, opts: Options, tolerance: f64) {
    let module = toy.module();
    let compiled = compile(&module, &opts).unwrap();
    let weights = Weights::random(&module);
    let d = difference(&module, &compiled.plan, &weights);
    assert!(d < tolerance, "{toy:?} {opts:?}: {d}");
}

#[test]
fn f32_plan_equals_graph() {
    check(Toy::llama(), options("f32"), 1e-5);
}

#[test]
fn quantized_plan_equals_graph_of_decoded_weights() {
    for format in ["w8g32", "w4g32", "w4ag64"] {
        check(Toy::llama(), Options { act: ActPolicy::F32, ..options(format) }, 1e-5);
    }
}

#[test]
fn int8_activations_stay_near() {
    check(Toy::llama(), options("w4g32"), 0.05);
}

#[test]
fn a_layer_takes_at_most_five_launches() {
    let module = Toy::llama().module();
    let compiled = compile(&module, &options("w4g32")).unwrap();
    let regime = &compiled.plan.regimes[0];
    let launches: Vec<&str> =
        regime.launches.iter().filter(|l| l.call == 1).map(|l| compiled.plan.kernels[l.kernel].name.as_str()).collect();
    assert!(launches.len() <= 5, "{launches:?}");
}
