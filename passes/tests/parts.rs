//! Functions for parts of the layers, and forms that differ by parts.

use crate::common::{Toy, Weights};
use llmcc_ir::graph::Module;
use llmcc_ir::plan::{Plan, Storage, WeightExpr};
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_ir::verify::verify_module;
use llmcc_passes::damage::{Aim, Damage, Sensitivity};
use llmcc_passes::measure::Measured;
use llmcc_passes::module::parts::divide;
use llmcc_passes::{Compiled, Options, Stored, compile_by_samples};
use std::collections::{BTreeMap, BTreeSet};

const LAYERS: usize = 5;

fn toy() -> Toy {
    Toy { hidden: 256, heads: 8, kv_heads: 2, head_dim: 32, ffn: 512, vocab: 512, layers: LAYERS, ..Toy::llama() }
}

/// Damage where the weights of layer `layer` count `factor` times as much as all others.
fn damage(module: &Module, layer: usize, factor: f64) -> Damage {
    let prefix = format!("layers.{layer}.");
    let of =
        |name: &str| Sensitivity { per_square: if name.contains(&prefix) { factor } else { 1.0 }, of_operands: 0.0 };
    let weights: BTreeMap<usize, Sensitivity> =
        module.weights.iter().enumerate().map(|(i, w)| (i, of(&w.name))).collect();
    Damage { weights, ..Damage::default() }
}

fn compile(module: &Module, damage: Damage) -> Compiled {
    compile_again(module, damage, &mut Measured::new())
}

/// With errors of samples that are known.
fn compile_again(module: &Module, damage: Damage, samples: &mut Measured) -> Compiled {
    let formats = ["w4g32", "c3", "t3", "w8g128", "f32"].map(|f| Format::parse(f).expect("a format")).to_vec();
    let opts = Options::damaged(target::find("x86-64-v4").expect("a target"), formats, damage);
    compile_by_samples(module, &opts, &Weights::random(module), samples).expect("compiled")
}

/// The formats of the matrices of a layer, the table and the head aside.
fn formats(module: &Module, plan: &Plan, layer: usize) -> BTreeSet<String> {
    let prefix = format!("layers.{layer}.");
    let mut found = BTreeSet::new();
    for w in &plan.weights {
        let mut own = false;
        w.expr.leaves(&mut |i| own |= module.weights[i].name.contains(&prefix));
        if let Storage::Matrix { format, .. } = w.storage
            && own
        {
            found.insert(format.to_string());
        }
    }
    found
}

fn bytes(plan: &Plan) -> usize {
    plan.weight_bytes()
}

#[test]
fn calls_are_divided_in_their_order() {
    let before = toy().module();
    for most in [1, 2, 3, 100] {
        let mut after = before.clone();
        let parts = divide(&mut after, most);
        assert_eq!(parts.len(), after.funcs.len());
        for (old, new) in before.calls().zip(after.calls()) {
            assert_eq!((&old.args, old.func), (&new.args, parts[new.func].of));
            assert!(before.funcs[old.func].computes_as(&after.funcs[new.func]));
        }
        let of_layers: Vec<usize> = after.calls().map(|c| parts[c.func].part).collect();
        assert_eq!(of_layers.iter().max(), Some(&(most.min(LAYERS) - 1)));
        // (The embedding comes before the layers, the head after them.)
        assert!(of_layers[..LAYERS + 1].is_sorted(), "{of_layers:?}");
        assert!(verify_module(&after).is_empty());
    }
}

/// Parts of the same forms have the same kernels and weights as one function.
#[test]
fn equal_parts_cost_nothing() {
    let whole = toy().module();
    let mut divided = whole.clone();
    divide(&mut divided, LAYERS);
    let loss = Damage { most: f64::INFINITY, ..damage(&whole, 0, 1.0) };
    let [one, several] = [&whole, &divided].map(|m| compile(m, loss.clone()));
    assert_eq!(one.plan.kernels.len(), several.plan.kernels.len());
    assert_eq!(bytes(&one.plan), bytes(&several.plan));
}

/// A layer that counts more than all others has forms of its own.
#[test]
fn parts_have_forms_of_their_own() {
    let whole = toy().module();
    let mut divided = whole.clone();
    divide(&mut divided, LAYERS);
    let free = Damage { most: f64::INFINITY, aim: Aim::Smallest, ..damage(&whole, 2, 200.0) };
    let most = compile(&whole, free.clone()).damage.expect("a damage") / 8.0;
    let loss = Damage { most, ..free };
    let [one, several] = [&whole, &divided].map(|m| compile(m, loss.clone()));
    assert!(several.damage.expect("a damage") <= most * (1.0 + 1e-9));
    assert!(bytes(&several.plan) < bytes(&one.plan), "{} {}", bytes(&several.plan), bytes(&one.plan));
    assert_eq!(formats(&whole, &one.plan, 2), formats(&whole, &one.plan, 3));
    assert_ne!(formats(&divided, &several.plan, 2), formats(&divided, &several.plan, 3));
}

/// The least damage within the bytes of the fastest program is no more than that program's.
#[test]
fn the_least_damage_within_bytes() {
    let module = toy().module();
    let loss = damage(&module, 0, 3.0);
    let mut samples = Measured::new();
    let mut compile = |damage: Damage| compile_again(&module, damage, &mut samples);
    let full = compile(Damage { most: f64::INFINITY, ..loss.clone() }).damage.expect("a damage");
    let mut before = f64::INFINITY;
    for share in [1.0, 0.3, 0.1, 0.01] {
        let fastest = compile(Damage { most: full * share, ..loss.clone() });
        let offers = &fastest.offers;
        let of = |s: &Stored| {
            let offer = offers.iter().find(|o| o.weights == s.weights).expect("an offer");
            offer.bytes(Format::parse(&s.form).expect("a format"))
        };
        let most: f64 = fastest.stored.iter().map(of).sum();
        let least = compile(Damage { aim: Aim::LeastDamage { bytes: most * (1.0 + 1e-9) }, ..loss.clone() });
        assert!(least.stored.iter().map(of).sum::<f64>() <= most * (1.0 + 1e-6));
        let (found, fastest) = (least.damage.expect("a damage"), fastest.damage.expect("a damage"));
        assert!(found <= fastest * (1.0 + 1e-6) && found <= before * (1.0 + 1e-6), "{found} {fastest} {before}");
        before = found;
    }
}

/// The smallest program has no more bytes than the fastest one, and rounds a table that is looked up if it may.
#[test]
fn the_smallest_program_has_the_fewest_bytes() {
    let module = toy().module();
    let loss = damage(&module, 0, 1.0);
    let mut samples = Measured::new();
    let mut compile = |damage: Damage| compile_again(&module, damage, &mut samples);
    let full = compile(Damage { most: f64::INFINITY, ..loss.clone() }).damage.expect("a damage");
    for share in [1.0, 0.3, 0.1, 0.01] {
        let most = full * share;
        let mut of = |aim: Aim, tables: bool| bytes(&compile(Damage { most, aim, tables, ..loss.clone() }).plan);
        let [fastest, smallest, with_tables] =
            [of(Aim::Fastest, false), of(Aim::Smallest, false), of(Aim::Smallest, true)];
        assert!(smallest <= fastest && with_tables <= smallest, "{share}: {fastest} {smallest} {with_tables}");
    }
    let all = compile(Damage { most: f64::INFINITY, aim: Aim::Smallest, tables: true, ..loss }).plan;
    let table = all.weights.iter().find(|w| w.expr == WeightExpr::Weight(0)).expect("the table");
    assert!(matches!(table.storage, Storage::Matrix { format, .. } if format.is_quantized()), "{:?}", table.storage);
}
