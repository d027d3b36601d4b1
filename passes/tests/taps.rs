//! The entry `tap` shows the inputs of products, and changes nothing else.

use crate::common::{Toy, Weights, batches, difference, effective, packed};
use llmcc_ir::eval::{State, TappedRows, eval_plan_taps, eval_taps};
use llmcc_ir::graph::Module;
use llmcc_ir::plan::{Plan, Storage};
use llmcc_ir::quant::Format;
use llmcc_ir::tap::Tap;
use llmcc_ir::target;
use llmcc_ir::text::{parse_module, parse_plan, print_module, print_plan};
use llmcc_ir::ty::Dim;
use llmcc_ir::verify::{verify_module, verify_plan};
use llmcc_passes::module::tap;
use llmcc_passes::{ActPolicy, Options, compile};
use std::borrow::Cow;

fn options(format: &str) -> Options {
    Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap())
}

fn toys() -> Vec<Toy> {
    let llama = Toy::llama();
    vec![
        llama,
        Toy { bias: true, ..llama },
        Toy { qk_norm: true, tied: true, ..llama },
        Toy { other: true, window: Some(3), heads: 2, qk_norm: true, ..llama },
        Toy { experts: 6, ..llama },
        Toy::uneven(),
    ]
}

fn tapped(toy: &Toy) -> Module {
    let mut module = toy.module();
    assert_eq!(tap::add(&mut module).unwrap(), Vec::<String>::new());
    module
}

/// Largest difference between the taps of plan and graph, relative to the largest number of each tap.
fn taps_differ(module: &Module, plan: &Plan, weights: &Weights) -> f64 {
    let bytes = packed(plan, module, weights);
    let values = effective(plan, weights, &bytes);
    let bytes: Vec<Cow<'_, [u8]>> = bytes.iter().map(|b| b.as_slice().into()).collect();
    let states = || module.states.iter().map(|s| State::new(*s)).collect::<Vec<_>>();
    let (mut kv_plan, mut kv_graph) = (states(), states());
    let entry = &module.entries[1];
    let largest = |x: &[f64]| x.iter().fold(0f64, |m, x| m.max(x.abs()));
    let mut worst = 0f64;
    for batch in batches(module.info.vocab) {
        let got = eval_plan_taps(plan, 1, &bytes, &mut kv_plan, &batch).unwrap();
        let want = eval_taps(module, entry, &|i| values[i].clone(), &mut kv_graph, &batch).unwrap();
        assert_eq!((got.len(), want.len()), (entry.taps.len(), entry.taps.len()));
        for ((got, want), tap) in got.iter().zip(&want).zip(&entry.taps) {
            assert_eq!(got.rows.len(), tap.rows.eval(batch.env()) * tap.width());
            for part in [|t: &TappedRows| t.rows.clone(), |t: &TappedRows| t.routes.clone()] {
                let (got, want) = (part(got), part(want));
                assert_eq!(got.len(), want.len());
                let difference: Vec<f64> = got.iter().zip(&want).map(|(g, w)| g - w).collect();
                worst = worst.max(largest(&difference) / largest(&want).max(1e-30));
            }
        }
    }
    worst
}

/// In every format the taps show the graph's values, and the model is compiled as without them: the same kernels,
/// launches and matrices.
#[test]
fn taps_are_those_of_the_graph_and_change_nothing() {
    for toy in toys() {
        let (module, alone) = (tapped(&toy), toy.module());
        assert_eq!(verify_module(&module), verify_module(&alone), "{toy:?}");
        let weights = Weights::random(&module);
        for (format, act, tolerance) in
            [("f32", ActPolicy::F32, 1e-5), ("w8g32", ActPolicy::F32, 1e-5), ("w8g32", ActPolicy::Int8, 0.1)]
        {
            let opts = Options { act, ..options(format) };
            let plan = compile(&module, &opts).unwrap().plan;
            let without = compile(&alone, &opts).unwrap().plan;
            let (stored, gains) = plan.weights.split_at(without.weights.len());
            assert_eq!(stored, without.weights, "{toy:?} {format}");
            // Gains that the model has in its matrices stand alone before a tap.
            assert!(gains.iter().all(|w| matches!(w.storage, Storage::Vector { .. })), "{toy:?} {format}: {gains:?}");
            assert_eq!(plan.kernels[..without.kernels.len()], without.kernels[..], "{toy:?} {format}");
            for (with, without) in plan.regimes_of(0).zip(&without.regimes) {
                assert_eq!((with.max_tokens, &with.launches), (without.max_tokens, &without.launches));
            }
            // Rounded rows choose other experts.
            if act == ActPolicy::Int8 && toy.experts > 0 {
                continue;
            }
            assert!(difference(&module, &plan, &weights) < tolerance);
            let d = taps_differ(&module, &plan, &weights);
            assert!(d < tolerance, "{toy:?} {format}: {d}");
        }
    }
}

/// Products of one input share its tap, and each names the tensors of the checkpoint that its call binds.
#[test]
fn taps_name_the_weights_of_their_calls() {
    let module = tapped(&Toy { experts: 3, ..Toy::llama() });
    let entry = &module.entries[1];
    let shown: Vec<String> = entry
        .taps
        .iter()
        .filter(|t| t.call <= 1 || t.rows == Dim::Rows)
        .map(|t| {
            let names = t.weights.iter().map(|w| match w.expert {
                Some(e) => format!("{} of {e}", w.name),
                None => w.name.clone(),
            });
            format!("{} {} {}: {}", t.call, t.rows, t.columns, names.collect::<Vec<_>>().join(" "))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
    assert!(entry.outputs.is_empty());
}

/// Modules and plans with taps are what their text says.
#[test]
fn text_of_taps_is_read_back() {
    let module = tapped(&Toy { experts: 3, ..Toy::llama() });
    let plan = compile(&module, &options("f32")).unwrap().plan;
    assert_eq!(parse_module(&print_module(&module)).unwrap(), module);
    assert_eq!(parse_plan(&print_plan(&plan)).unwrap(), plan);
}

/// There is no second entry of this name.
#[test]
fn an_entry_is_made_once() {
    let mut module = tapped(&Toy::llama());
    assert_eq!(tap::add(&mut module), Err("there is an entry `tap` already".into()));
}

/// A change of taps, which knows the first that has routes.
type Change = fn(&mut Vec<Tap>, usize);

/// Taps are as they say, in modules and in plans.
#[test]
fn taps_are_verified() {
    let module = tapped(&Toy { experts: 3, ..Toy::llama() });
    let plan = compile(&module, &options("f32")).unwrap().plan;
    assert_eq!(verify_plan(&plan), []);
    let routed = plan.entries[1].taps.iter().position(|t| t.routes.is_some()).unwrap();
    let both: &[(&str, Change)] = &[
        ("order of their calls", |t, _| t.reverse()),
        ("rows of 0 columns", |t, _| t[0].columns = 0),
        ("3 rows of", |t, _| t[0].rows = Dim::Static(3)),
        ("no weight", |t, _| t[0].weights.clear()),
        ("twice", |t, _| {
            let again = t[0].weights[0].clone();
            t[0].weights.push(again);
        }),
        ("an expert that there is not", |t, _| t[0].weights[0].expert = Some(0)),
        ("an expert that there is not", |t, routed| t[routed].weights[0].expert = Some(3)),
        ("0 of 3 experts", |t, routed| t[routed].routes.as_mut().unwrap().top = 0),
    ];
    for (says, change) in both {
        let (mut m, mut p) = (module.clone(), plan.clone());
        change(&mut m.entries[1].taps, routed);
        change(&mut p.entries[1].taps, routed);
        for found in [verify_module(&m), verify_plan(&p)] {
            assert!(found.iter().any(|d| d.code == "tap" && d.message.contains(says)), "{says}: {found:?}");
        }
    }
    let of_module: &[fn(&mut Module)] = &[
        |m| m.entries[1].taps[0].at = 0,
        |m| m.entries[1].taps[0].at = 999,
        |m| m.entries[1].taps[0].call = 999,
        |m| m.entries[1].taps[0].columns = 63,
        |m| m.entries[1].taps[0].rows = Dim::Rows,
        |m| m.entries[1].taps[0].weights[0].name = "elsewhere".into(),
    ];
    for (i, change) in of_module.iter().enumerate() {
        let mut m = module.clone();
        change(&mut m);
        assert!(verify_module(&m).iter().any(|d| d.code == "tap"), "change {i}");
        assert!(compile(&m, &options("f32")).is_err(), "change {i}");
    }
    let of_plan: &[fn(&mut Plan)] = &[
        |p| p.entries[1].taps[0].at = 999,
        // The slot has another buffer by then.
        |p| p.entries[1].taps[0].call += 1,
        |p| p.regimes.iter_mut().filter(|r| r.entry == 1).for_each(|r| r.launches.last_mut().unwrap().call = 0),
    ];
    for (i, change) in of_plan.iter().enumerate() {
        let mut p = plan.clone();
        change(&mut p);
        assert!(verify_plan(&p).iter().any(|d| d.code == "tap" || d.code == "slot-overlap"), "change {i}");
    }
}
