//! Scales that move between columns and producers change no result of any architecture.

use llmcc_frontends::{Checkpoint, DraftHeads, Options, lift};
use llmcc_ir::eval::{Batch, State, eval_module};
use llmcc_ir::graph::{Call, Module};
use llmcc_ir::kv::KvDType;
use llmcc_ir::verify::verify_module;
use llmcc_passes::module::migrate;
use llmcc_passes::module::scales::{Group, find};
use llmcc_tests::{first_goldens, golden};

const EXACT: Options = Options {
    kv_dtype: KvDType::F32,
    max_context: Some(64),
    embed: false,
    also_embed: false,
    with_image: false,
    draft_heads: DraftHeads::None,
    hidden_states: false,
};

/// Powers of two, by which no number is rounded.
fn powers(group: &Group, seed: usize) -> Vec<f32> {
    (0..group.columns).map(|c| [0.25, 0.5, 1.0, 2.0, 8.0][(c * 7 + seed * 3 + c / 5) % 5]).collect()
}

fn outputs(module: &Module, ckpt: &Checkpoint) -> Option<Vec<f64>> {
    let weights = |i: usize| {
        let weight = &module.weights[i];
        weight.data.clone().unwrap_or_else(|| ckpt.to_f32(&weight.name).expect("a tensor"))
    };
    let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
    eval_module(module, &weights, &mut states, &Batch::single(&[3, 5, 4, 9, 11, 2, 7], 0)).ok()
}

/// Fixtures of decoders and encoders whose first entry needs tokens alone: most of all architectures.
#[test]
fn every_architecture_computes_the_same() {
    let (mut evaluated, mut groups) = (0, 0);
    for name in first_goldens() {
        let Ok(ckpt) = Checkpoint::open(&golden(name)) else { continue };
        let Ok(module) = lift(&ckpt, &EXACT) else { continue };
        let movable = find(&module).movable;
        let mut moved = module.clone();
        let seed = |call: &Call| call.args.len() + format!("{:?}", call.args).len();
        let scales = |at: usize, call: &Call| Some(powers(&movable[at], at + seed(call)));
        migrate::apply(&mut moved, &movable, &scales).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = verify_module(&moved);
        assert_eq!(found.len(), verify_module(&module).len(), "{name}: {found:?}");
        let Some(own) = outputs(&module, &ckpt) else { continue };
        let other = outputs(&moved, &ckpt).unwrap_or_else(|| panic!("{name} is not evaluated"));
        let largest = own.iter().fold(0f64, |m, x| m.max(x.abs()));
        let difference = own.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
        assert!(difference < 1e-9, "{name}: {difference:e} by {} groups", movable.len());
        (evaluated, groups) = (evaluated + 1, groups + movable.len());
    }
    println!("{evaluated} models, {groups} groups");
    assert!(evaluated > 100 && groups > 3 * evaluated, "{evaluated} models, {groups} groups");
}
