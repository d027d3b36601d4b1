//! Scales that move between the columns of products and the producers of their inputs change no result.

use crate::common::{Toy, Weights, batches, packed, random};
use llmcc_ir::eval::{State, eval_module, eval_plan};
use llmcc_ir::graph::{Arg, Call, Module};
use llmcc_ir::plan::{Plan, WeightExpr};
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_ir::text::{parse_module, print_module};
use llmcc_ir::verify::verify_module;
use llmcc_passes::method::{self, Method, Moments, move_scales};
use llmcc_passes::module::migrate;
use llmcc_passes::module::scales::{Group, Groups, Part, find};
use llmcc_passes::pack::{TensorBytes, WeightSource};
use llmcc_passes::{Options, compile};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Powers of two: no number is rounded when it is multiplied or divided.
fn powers(group: &Group, seed: usize) -> Vec<f32> {
    random(seed as u64 + 7, group.columns).iter().map(|x| (x * 4.0).round().exp2()).collect()
}

/// A module with scales of all its groups; other ones in each call.
fn scaled(module: &Module) -> (Module, Vec<Group>) {
    let Groups { movable, .. } = find(module);
    let mut out = module.clone();
    let weight = |arg: &Arg| if let Arg::Weight(w) = arg { Some(*w) } else { None };
    let first = |call: &Call| call.args.iter().find_map(weight).unwrap_or(0);
    migrate::apply(&mut out, &movable, &|at, call| Some(powers(&movable[at], 100 * first(call) + at))).unwrap();
    (out, movable)
}

fn states(module: &Module) -> Vec<State> {
    module.states.iter().map(|s| State::new(*s)).collect()
}

/// The logits of all batches, in f64.
fn logits(module: &Module, weights: &Weights) -> Vec<f64> {
    let mut states = states(module);
    let of = |batch| eval_module(module, &|i| weights.values[i].clone(), &mut states, &batch).unwrap();
    batches(module.info.vocab).into_iter().flat_map(of).collect()
}

/// The largest difference, relative to the largest number.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = a.iter().fold(0f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
}

/// Models with the groups that a layer and the head have, and those that nothing divides.
fn toys() -> Vec<(Toy, usize, usize)> {
    let llama = Toy::llama();
    vec![
        (llama, 5, 0),
        (Toy { bias: true, ..llama }, 5, 0),
        // The head is the embedding.
        (Toy { qk_norm: true, tied: true, ..llama }, 4, 1),
        (Toy { other: true, window: Some(3), heads: 2, qk_norm: true, ..llama }, 5, 0),
        // Experts share the scales of their inputs.
        (Toy { experts: 6, ..llama }, 5, 0),
        // An activation that is not linear.
        (Toy { parts: true, ..llama }, 4, 1),
        (Toy::uneven(), 4, 1),
        // Inputs that are rounded are not what the norm makes.
        (Toy { rounds: true, ..llama }, 1, 7),
    ]
}

#[test]
fn modules_with_moved_scales_compute_the_same() {
    for (toy, movable, fixed) in toys() {
        let module = toy.module();
        let (moved, groups) = scaled(&module);
        assert_eq!((groups.len(), find(&module).fixed.iter().sum()), (movable, fixed), "{toy:?}");
        assert!(verify_module(&moved).is_empty(), "{toy:?}: {:?}", verify_module(&moved));
        assert_eq!(parse_module(&print_module(&moved)).unwrap(), moved);
        let weights = Weights::random(&module);
        let own = logits(&module, &weights);
        let difference = difference(&own, &logits(&moved, &weights));
        assert!(difference < 1e-12, "{toy:?}: {difference:e}");
    }
}

/// Heads that share a KV head share the scales of their values.
#[test]
fn heads_that_share_values_share_scales() {
    let toy = Toy::llama();
    let groups = find(&toy.module()).movable;
    let of_values: Vec<&Group> = groups.iter().filter(|g| g.columns == toy.kv_heads * toy.head_dim).collect();
    let [group] = of_values[..] else { panic!("{of_values:?}") };
    let (d, scales) = (toy.head_dim, &group.readers[0].scales);
    assert_eq!(scales.len(), toy.heads * d);
    assert_eq!(scales[..d], scales[d..2 * d]);
    assert_eq!(scales[2 * d..3 * d], scales[3 * d..]);
    assert_eq!(
        group.producers.iter().map(|p| (p.part, p.scales.clone())).collect::<Vec<_>>(),
        [(Part::Rows, (0..2 * d).collect())]
    );
}

/// A state that another function reads, and a matrix that another one multiplies, stay as they are.
#[test]
fn what_other_functions_read_stays() {
    let mut module = Toy::llama().module();
    let mut other = module.funcs[1].clone();
    other.name = "other".into();
    other.nodes.last_mut().unwrap().args.swap(0, 1);
    module.funcs.push(other);
    let mut call = module.entries[0].calls[2].clone();
    call.func = 3;
    module.entries[0].calls.push(call);
    let found = find(&module);
    assert_eq!(found.movable.iter().filter(|g| g.func == 1 || g.func == 3).count(), 0, "{found:?}");
}

fn holds(e: &WeightExpr, module: &Module, wanted: fn(&str) -> bool) -> usize {
    let mut count = 0;
    e.leaves(&mut |i| count += usize::from(wanted(&module.weights[i].name)));
    count
}

fn plan(module: &Module, format: &str, keep_scales: bool) -> Plan {
    let options = Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap());
    compile(module, &Options { keep_scales, ..options }).unwrap().plan
}

/// Where formats could take the gains of inputs, which would undo the scales, they do not.
#[test]
fn scales_stay_in_the_matrices() {
    let (moved, _) = scaled(&Toy::llama().module());
    let gain = |name: &str| name.contains(".g1") || name.contains(".g2") || name == "norm";
    let gains = |plan: &Plan| -> usize {
        let matrices = plan.weights.iter().filter(|w| matches!(w.storage, llmcc_ir::plan::Storage::Matrix { .. }));
        matrices.map(|w| holds(&w.expr, &moved, gain)).sum()
    };
    assert_eq!(gains(&plan(&moved, "w8g32", true)), 0);
    assert!(gains(&plan(&moved, "w8g32", false)) > 0);
}

/// Plans compute what the module without scales does.
#[test]
fn plans_with_moved_scales_compute_the_same() {
    for (toy, ..) in toys() {
        let module = toy.module();
        let (moved, _) = scaled(&module);
        let weights = Weights::random(&module);
        let plan = plan(&moved, "f32", true);
        let bytes = packed(&plan, &moved, &weights);
        let bytes: Vec<Cow<'_, [u8]>> = bytes.iter().map(|b| b.as_slice().into()).collect();
        let mut states = states(&moved);
        let of = |batch| eval_plan(&plan, &bytes, &mut states, &batch).unwrap();
        let got: Vec<f64> = batches(module.info.vocab).into_iter().flat_map(of).map(f64::from).collect();
        let difference = difference(&logits(&module, &weights), &got);
        assert!(difference < 2e-5, "{toy:?}: {difference:e}");
    }
}

/// Weights with mean squares of their inputs, by expert where a matrix has several.
struct Calibrated<'a> {
    weights: &'a Weights,
    moments: BTreeMap<String, (Vec<u64>, Vec<f64>)>,
    method: &'static Method,
}

impl<'a> Calibrated<'a> {
    fn new(weights: &'a Weights, module: &Module, experts: usize, method: &str) -> Calibrated<'a> {
        let mut moments = BTreeMap::new();
        for (at, weight) in module.weights.iter().enumerate() {
            let Some(columns) = weight.ty.shape.get(1).and_then(|d| d.known()) else { continue };
            let mixed = [".wg", ".wu", ".wd"].iter().any(|end| weight.name.ends_with(end));
            let parts = if mixed { experts.max(1) } else { 1 };
            // (One expert has no inputs.)
            let count: Vec<u64> = (0..parts).map(|e| if e == 2 { 0 } else { 100 + e as u64 }).collect();
            let squares = random(at as u64 + 50, parts * columns).into_iter().enumerate();
            let squares = squares.map(|(i, x)| if count[i / columns] == 0 { 0.0 } else { f64::from(x * 6.0).exp() });
            moments.insert(weight.name.clone(), (count.clone(), squares.collect()));
        }
        Calibrated { weights, moments, method: method::named(method).unwrap() }
    }
}

impl WeightSource for Calibrated<'_> {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        self.weights.tensor(name)
    }
    fn moments(&self, name: &str) -> Option<Moments<'_>> {
        let (count, squares) = self.moments.get(name)?;
        Some(Moments { count, squares, min: &[], max: &[], products: &[] })
    }
    fn method(&self) -> &'static Method {
        self.method
    }
    fn release(&self, _: &str) {}
}

/// Scales are found for layers of all kinds, by mean squares alone, too; the module computes the same but for their
/// rounding to f32.
#[test]
fn methods_find_scales_of_all_groups() {
    for (toy, movable, fixed) in toys() {
        let module = toy.module();
        let weights = Weights::random(&module);
        let source = Calibrated::new(&weights, &module, toy.experts, "awq");
        let mut moved = module.clone();
        let found = move_scales(&mut moved, &source, Format::parse("w4g32").unwrap()).unwrap();
        // All but the head's are in each layer.
        let heads = usize::from(!toy.tied);
        let groups = [(movable - heads) * toy.layers + heads, (fixed + heads - 1) * toy.layers + 1 - heads];
        assert_eq!([found.moved + found.kept, found.left], groups, "{toy:?}: {found:?}");
        assert!(found.moved > 0, "{toy:?}: {found:?}");
        let difference = difference(&logits(&module, &weights), &logits(&moved, &weights));
        assert!(difference > 0.0 && difference < 1e-5, "{toy:?}: {difference:e}");
    }
}
