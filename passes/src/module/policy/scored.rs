//! Caches that drop tokens by their weights: what all policies of this kind have in common.
//!
//! A cache becomes a state of fixed size, and its attention one that updates it (`evicting_attention`). Tokens keep the
//! angles of their positions. A layer drops a token when the cache is full, so which ones it keeps depends on the
//! sequence alone.

use super::caches::{bound, cache_values, no_cache, uses};
use super::given::Given;
use super::model::{Applied, Chosen, Model};
use super::variants::variants;
use llmcc_ir::graph::{Call, Eviction, F32, Func, FuncBuilder, Mistake, Module, Node, Op, Value};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::StateSpec;
use std::collections::BTreeMap;

/// A budget, as all of these policies have.
pub(super) const BUDGET: (&str, &str) = ("budget", "most tokens of a sequence in a cache");

/// The setting of last tokens.
pub(super) const RECENT: (&str, &str) = ("recent", "last tokens that stay whatever their weights are");

/// The setting of tokens that leave at once.
pub(super) const DROP: (&str, &str) = ("drop", "tokens that leave a full cache at once");

/// Changes the caches that an option names.
///
/// # Errors
/// A message where settings do not fit together, or no cache can be changed so.
pub(super) fn apply(model: &mut Model<'_>, given: &Given, eviction: Eviction) -> Result<Applied, String> {
    if let Some(why) = eviction.misfit() {
        return Err(why);
    }
    let Chosen { states, applied } = model.chosen(&given.layers()?, |m, state| unfit(m, state, eviction.budget))?;
    let changed: BTreeMap<usize, KvSpec> =
        states.iter().filter_map(|(_, state)| Some((*state, *model.module.states[*state].paged()?))).collect();
    change(model.module, &changed, eviction).map_err(|mistake| mistake.to_string())?;
    Ok(applied)
}

/// Why a cache must stay as it is, if so.
pub(super) fn unfit(module: &Module, state: usize, budget: usize) -> Option<String> {
    let spec = module.states.get(state)?.paged()?;
    if let Some(why) = no_cache(spec) {
        return Some(why);
    }
    if spec.window.is_some() {
        return Some(format!("{spec} is a window"));
    }
    if budget >= module.info.max_context {
        return Some(format!("a budget of {budget} tokens is the whole context of {}", module.info.max_context));
    }
    uses(module, state).find_map(|(_, call, param)| misread(&module.funcs[call.func], param))
}

/// Why a function reads its cache otherwise than such attention can, if so.
fn misread(f: &Func, param: usize) -> Option<String> {
    let all = cache_values(f, param);
    let (mut appends, mut reads) = (0, 0);
    for node in f.nodes.iter().filter(|n| n.args.iter().any(|v| all.contains(v))) {
        match node.op {
            Op::KvAppend => appends += 1,
            Op::Attention { causal: true, biased: false, sums: false, softcap, .. } => {
                reads += 1;
                if softcap != F32::new(0.0) {
                    return Some("its scores have a softcap".into());
                }
                if node.args.len() > 3 {
                    return Some("its softmax has sinks".into());
                }
            }
            Op::Attention { biased: true, .. } => return Some("its scores go by distances".into()),
            ref op => return Some(format!("`{}` reads it", op.name())),
        }
    }
    let usual = appends == 1 && reads == 1;
    (!usual).then(|| format!("a function appends to it {appends} times and reads it {reads} times, not once each"))
}

/// Lets these states be of fixed size, and the calls that bind them call functions that update them.
fn change(module: &mut Module, states: &BTreeMap<usize, KvSpec>, of: Eviction) -> Result<(), Mistake> {
    let before = module.clone();
    let changed = |call: &Call| bound(call, |state| states.contains_key(&state));
    let made = variants(module, &before, "evicting", changed, |f, caches| Ok((evicting(f, caches, of)?, ())))?;
    for call in module.entries.iter_mut().flat_map(|entry| &mut entry.calls) {
        if let Some((func, ())) = made.get(&(call.func, changed(call))) {
            call.func = *func;
        }
    }
    for (at, cache) in states {
        module.states[*at] = state(of, cache);
    }
    Ok(())
}

/// The state that a cache becomes.
fn state(of: Eviction, cache: &KvSpec) -> StateSpec {
    of.state(cache.kv_heads, cache.key_dim, cache.value_dim).into()
}

/// A function whose caches, these parameters, drop tokens.
fn evicting(f: &Func, caches: &[usize], of: Eviction) -> Result<Func, Mistake> {
    let mut b = FuncBuilder::new(&f.name);
    let mut values = vec![];
    for (i, p) in f.params.iter().enumerate() {
        let spec = p.ty.state().and_then(|state| state.paged()).filter(|_| caches.contains(&i));
        let ty = spec.map_or(p.ty.clone(), |kv| state(of, kv).into());
        values.push(b.param(&p.name, ty, p.role));
    }
    // Keys, values and state of caches, by their values before.
    let mut appended: BTreeMap<Value, [Value; 3]> = BTreeMap::new();
    for (i, node) in f.nodes.iter().enumerate() {
        let args: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize]).collect();
        let to = node.args.first().is_some_and(|v| caches.contains(&(v.0 as usize)));
        let new = match (node, &args[..]) {
            (Node { op: Op::KvAppend, .. }, [state, k, v, ..]) if to => {
                appended.insert(f.node_value(i), [*k, *v, *state]);
                *state
            }
            (Node { op: Op::Attention { heads, scale, .. }, args: before, .. }, [q, _, positions, ..]) => {
                match before.get(1).and_then(|cache| appended.get(cache)) {
                    Some([k, v, state]) => b.op(attention((*heads, *scale), of), &[*q, *k, *v, *positions, *state]),
                    None => b.op(node.op.clone(), &args),
                }
            }
            _ => b.op(node.op.clone(), &args),
        };
        values.push(new);
    }
    let results: Vec<Value> = f.results.iter().map(|v| values[v.0 as usize]).collect();
    b.try_finish(&results)
}

fn attention((heads, scale): (usize, F32), of: Eviction) -> Op {
    let Eviction { criterion, budget, recent, drop, window, level, together } = of;
    Op::EvictingAttention { heads, scale, criterion, budget, recent, drop, window, level, together }
}
