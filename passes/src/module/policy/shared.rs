//! Layers that read the cache of another one (KVSharer, Yang et al. 2024, arXiv 2410.18517; cross-layer attention,
//! Brandon et al. 2024, arXiv 2405.12981): they make no keys and values, and keep none.
//!
//! Which layers share stands in the option. KVSharer takes the pairs whose keys and values differ most, as long as the
//! model's output stays near enough: `llmcc eval kl` measures that.

use super::caches::{bound, cache_values};
use super::given::{Given, Policy};
use super::model::{Applied, Model};
use super::variants::variants;
use llmcc_ir::graph::{Arg, Call, Func, FuncBuilder, Mistake, Module, Op, Value};
use std::collections::BTreeMap;

/// See the file's text.
pub(super) const SHARED: Policy = Policy {
    name: "shared",
    about: "nothing in some layers, which read the cache of an earlier one",
    source: "KVSharer, Yang et al. 2024, arXiv 2410.18517",
    settings: &[("pairs", "layers, each with the earlier one whose cache it reads, as in 5:3+9:8")],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let pairs = pairs(given.text("pairs"), model.caches.len())?;
    let owners: Vec<usize> = pairs.values().copied().collect();
    for (layer, from) in &pairs {
        if pairs.contains_key(from) {
            return Err(format!("layer {layer} is to read the cache of layer {from}, which has none of its own then"));
        }
        if !model.used.insert(*layer) {
            return Err(format!("layer {layer} has a policy already; name the layers that each is for"));
        }
        let [own, other] = [layer, from].map(|at| model.module.states[model.caches[*at]]);
        if own != other {
            return Err(format!("layer {layer} has {own} and cannot read {other} of layer {from}"));
        }
    }
    if let Some(owner) = owners.iter().find(|owner| model.used.contains(owner)) {
        return Err(format!("layer {owner} has a policy already; let `shared` come first"));
    }
    let states: BTreeMap<usize, usize> = pairs.iter().map(|(a, b)| (model.caches[*a], model.caches[*b])).collect();
    if let Some((reader, _)) =
        pairs.iter().find(|(a, b)| !comes_after(model.module, model.caches[**a], model.caches[**b]))
    {
        return Err(format!("layer {reader} comes before the layer whose cache it is to read, or beside it"));
    }
    share(model.module, &states).map_err(|mistake| mistake.to_string())?;
    for state in &mut model.caches {
        *state = moved(&states, *state);
    }
    Ok(Applied { layers: model.caches.len(), changed: pairs.len(), left: vec![] })
}

/// Layers with the earlier ones whose caches they read.
fn pairs(text: &str, layers: usize) -> Result<BTreeMap<usize, usize>, String> {
    let mut all = BTreeMap::new();
    for part in text.split('+') {
        let both = part.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some((layer, from)): Option<(usize, usize)> = both else {
            return Err(format!("`pairs={text}` is no list of layers, as in 5:3+9:8"));
        };
        if layer >= layers || from >= layer {
            return Err(format!(
                "`{part}`: layers are 0 to {}, and the second is the earlier one",
                layers.saturating_sub(1)
            ));
        }
        if all.insert(layer, from).is_some() {
            return Err(format!("layer {layer} is to read two caches"));
        }
    }
    Ok(all)
}

/// Whether in each entry every call that binds the state `reader` comes after the first that binds `owner`.
fn comes_after(module: &Module, reader: usize, owner: usize) -> bool {
    let place = |calls: &[Call], state| calls.iter().position(|c: &Call| c.args.contains(&Arg::State(state)));
    module.entries.iter().all(|entry| match (place(&entry.calls, reader), place(&entry.calls, owner)) {
        (Some(reader), Some(owner)) => owner < reader,
        (reader, _) => reader.is_none(),
    })
}

/// The index of a state after those that read another's are gone.
fn moved(states: &BTreeMap<usize, usize>, state: usize) -> usize {
    let state = states.get(&state).copied().unwrap_or(state);
    state - states.keys().filter(|gone| **gone < state).count()
}

/// Lets the states that are keys be those that they map to.
fn share(module: &mut Module, states: &BTreeMap<usize, usize>) -> Result<(), Mistake> {
    let before = module.clone();
    let reads = |call: &Call| bound(call, |state| states.contains_key(&state));
    let made = variants(module, &before, "shared", reads, |f, caches| Ok((reading(f, caches)?, ())))?;
    for call in module.entries.iter_mut().flat_map(|entry| &mut entry.calls) {
        if let Some((func, ())) = made.get(&(call.func, reads(call))) {
            call.func = *func;
        }
        for arg in &mut call.args {
            if let Arg::State(state) = arg {
                *state = moved(states, *state);
            }
        }
    }
    let mut index = 0..;
    module.states.retain(|_| index.next().is_some_and(|state| !states.contains_key(&state)));
    Ok(())
}

/// A function that appends nothing to the caches that these parameters are.
fn reading(f: &Func, caches: &[usize]) -> Result<Func, Mistake> {
    let mut b = FuncBuilder::new(&f.name);
    let mut values: Vec<Value> = f.params.iter().map(|p| b.param(&p.name, p.ty.clone(), p.role)).collect();
    let all: Vec<_> = caches.iter().map(|cache| cache_values(f, *cache)).collect();
    for node in &f.nodes {
        let args: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize]).collect();
        let appends = node.op == Op::KvAppend && all.iter().any(|of| of.contains(&node.args[0]));
        values.push(if appends { args[0] } else { b.op(node.op.clone(), &args) });
    }
    let results: Vec<Value> = f.results.iter().map(|v| values[v.0 as usize]).collect();
    b.try_finish(&results)
}
