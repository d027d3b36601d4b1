//! Pages by bounds of their keys (Quest, Tang et al. 2024, arXiv 2406.10774): a cache keeps the whole sequence, and a
//! token reads the pages whose keys may have the largest products with its queries, and its own page.
//!
//! A second state has the least and the largest elements of the keys of each page. Each KV head chooses its own pages,
//! by the sum of the bounds of its queries.

use super::caches::bound;
use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Chosen, Model};
use super::scored;
use super::variants::variants;
use llmcc_ir::graph::{Arg, Call, Func, FuncBuilder, Mistake, Module, Node, Op, Role, Value};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::{FixedSpec, StateSpec};
use std::collections::BTreeMap;

/// Tokens of a page.
const PAGE: usize = 16;

/// See the file's text.
pub(super) const QUEST: Policy = Policy {
    name: "quest",
    about: "all tokens; a token reads the pages with the largest bounds of products",
    source: "Quest, Tang et al. 2024, arXiv 2406.10774",
    settings: &[("budget", "most tokens that a token reads, pages of 16 of them, its own page included"), LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let budget = given.count("budget", 1 << 20)?;
    let pages = budget / PAGE;
    if !budget.is_multiple_of(PAGE) || pages < 2 {
        return Err(format!("`budget={budget}` is not of at least 2 whole pages of {PAGE} tokens"));
    }
    let Chosen { states, applied } = model.chosen(&given.layers()?, |m, state| scored::unfit(m, state, budget))?;
    let chosen: Vec<usize> = states.into_iter().map(|(_, state)| state).collect();
    change(model.module, &chosen, pages - 1).map_err(|mistake| mistake.to_string())?;
    Ok(applied)
}

/// The states beside a cache: bounds of its pages, and of the page at hand.
fn beside(cache: &KvSpec) -> (KvSpec, FixedSpec) {
    let columns = cache.kv_heads * cache.key_dim;
    let row = 2 * columns;
    let (window, first) = (None, None);
    let dtype = cache.dtype;
    let bounds = KvSpec { dtype, kv_heads: 1, key_dim: row, value_dim: row, latent: true, window, every: PAGE, first };
    (bounds, FixedSpec { heads: 1, rows: 2, cols: columns })
}

/// Lets attention to these caches choose pages.
fn change(module: &mut Module, caches: &[usize], windows: usize) -> Result<(), Mistake> {
    let before = module.clone();
    let mut added: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
    for state in caches {
        let Some(cache) = before.states[*state].paged() else { continue };
        let (bounds, at_hand) = beside(cache);
        let first = module.states.len();
        module.states.extend([StateSpec::from(bounds), at_hand.into()]);
        added.insert(*state, [first, first + 1]);
    }
    let changed = |call: &Call| bound(call, |state| added.contains_key(&state));
    let made = variants(module, &before, "pages", changed, |f, caches| Ok((choosing(f, caches, windows)?, ())))?;
    for call in module.entries.iter_mut().flat_map(|entry| &mut entry.calls) {
        let Some((func, ())) = made.get(&(call.func, changed(call))) else { continue };
        let more = changed(call).into_iter().filter_map(|param| match call.args[param] {
            Arg::State(state) => added.get(&state).copied(),
            _ => None,
        });
        let more: Vec<Arg> = more.flatten().map(Arg::State).collect();
        call.func = *func;
        call.args.extend(more);
    }
    Ok(())
}

/// A cache of a function, by values of the new one.
#[derive(Clone, Copy)]
struct Cache {
    spec: KvSpec,
    bounds: Value,
    at_hand: Value,
}

/// A function that reads chosen pages of these caches.
fn choosing(f: &Func, caches: &[usize], windows: usize) -> Result<Func, Mistake> {
    let mut b = FuncBuilder::new(&f.name);
    let mut values: Vec<Value> = f.params.iter().map(|p| b.param(&p.name, p.ty.clone(), p.role)).collect();
    let mut states: BTreeMap<Value, Cache> = BTreeMap::new();
    for param in caches {
        let p = &f.params[*param];
        let Some(spec) = p.ty.state().and_then(StateSpec::paged).copied() else { continue };
        let (bounds, at_hand) = beside(&spec);
        let bounds = b.param(format!("{}.bounds", p.name), StateSpec::from(bounds), Role::State);
        let at_hand = b.param(format!("{}.page", p.name), StateSpec::from(at_hand), Role::State);
        states.insert(Value(*param as u32), Cache { spec, bounds, at_hand });
    }
    for (i, node) in f.nodes.iter().enumerate() {
        let args: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize]).collect();
        let cache = node.args.iter().find_map(|v| states.get(v)).copied();
        let new = match (node, &args[..], cache) {
            (Node { op: Op::KvAppend, .. }, [_, k, _, positions], Some(cache)) => {
                let row = b.op(Op::WindowBounds { width: PAGE }, &[*k, *positions, cache.at_hand]);
                let bounds = b.op(Op::KvAppend, &[cache.bounds, row, row, *positions]);
                states.insert(f.node_value(i), Cache { bounds, ..cache });
                b.op(Op::KvAppend, &args)
            }
            (Node { op: Op::Attention { heads, scale, .. }, .. }, [q, kv, positions, ..], Some(cache)) => {
                let (heads, scale, kv_heads) = (*heads, *scale, cache.spec.kv_heads);
                let select = Op::SelectWindows { heads, kv_heads, windows };
                let selection = b.op(select, &[*q, cache.bounds, *positions]);
                let attend = Op::SelectedAttention { heads, scale, sums: false, by_head: true };
                b.op(attend, &[*q, *kv, *positions, selection])
            }
            _ => b.op(node.op.clone(), &args),
        };
        values.push(new);
    }
    let results: Vec<Value> = f.results.iter().map(|v| values[v.0 as usize]).collect();
    b.try_finish(&results)
}
