//! Which caches a policy may change: the attention that reads them, and the rotary tables of its queries.

use llmcc_ir::graph::{Arg, Call, Entry, Func, Module, Node, Op, Value};
use llmcc_ir::kv::KvSpec;
use std::collections::BTreeSet;

/// The states of attention that looks behind a token, in the order of their layers.
pub(super) fn caches(module: &Module) -> Vec<usize> {
    let read = |state: &usize| {
        let mut uses = uses(module, *state);
        module.states[*state].paged().is_some() && uses.any(|(_, call, param)| reads(&module.funcs[call.func], param))
    };
    (0..module.states.len()).filter(read).collect()
}

/// The calls that bind a state, with the parameter that each binds to it.
pub(super) fn uses(module: &Module, state: usize) -> impl Iterator<Item = (&Entry, &Call, usize)> {
    let calls = module.entries.iter().flat_map(|entry| entry.calls.iter().map(move |call| (entry, call)));
    calls.flat_map(move |(entry, call)| bound(call, |s| s == state).into_iter().map(move |param| (entry, call, param)))
}

/// The parameters that a call binds to states that `is` accepts.
pub(super) fn bound(call: &Call, is: impl Fn(usize) -> bool) -> Vec<usize> {
    let binds = |arg: &Arg| matches!(arg, Arg::State(state) if is(*state));
    (0..call.args.len()).filter(|param| binds(&call.args[*param])).collect()
}

/// Values of a function that are the cache of parameter `param`, before and after tokens are appended.
pub(super) fn cache_values(f: &Func, param: usize) -> BTreeSet<Value> {
    let mut all = BTreeSet::from([Value(param as u32)]);
    for (i, node) in f.nodes.iter().enumerate() {
        if node.op == Op::KvAppend && node.args.first().is_some_and(|kv| all.contains(kv)) {
            all.insert(f.node_value(i));
        }
    }
    all
}

/// Whether a function reads a cache by causal attention.
fn reads(f: &Func, param: usize) -> bool {
    let all = cache_values(f, param);
    let behind = |n: &Node| matches!(n.op, Op::Attention { causal: true, .. } | Op::LatentAttention { .. });
    f.nodes.iter().any(|n| behind(n) && n.args.iter().any(|v| all.contains(v)))
}

/// Why a cache must stay as it is, if so: the attention that reads it is to be of plain scores, the angles of its
/// queries of positions alone, and more than `most` tokens are kept.
pub(super) fn fixed(module: &Module, state: usize, most: usize) -> Option<String> {
    let spec = module.states.get(state)?.paged()?;
    if let Some(why) = no_cache(spec) {
        return Some(why);
    }
    if spec.window.is_some_and(|window| window <= most) {
        return Some(format!("{spec} keeps no more than that"));
    }
    uses(module, state).find_map(|of| misread(module, of))
}

/// Why a state does not keep a key and a value for each token of a sequence, or of a window of it, if so.
pub(super) fn no_cache(spec: &KvSpec) -> Option<String> {
    let other = spec.latent || spec.every > 1 || spec.first.is_some();
    other.then(|| format!("{spec} is no cache of keys and values"))
}

/// Why the attention of a call is of another kind, if so.
fn misread(module: &Module, (entry, call, param): (&Entry, &Call, usize)) -> Option<String> {
    let f = &module.funcs[call.func];
    let all = cache_values(f, param);
    for node in f.nodes.iter().filter(|n| n.args.iter().any(|v| all.contains(v))) {
        match node.op {
            Op::KvAppend => {}
            Op::Attention { causal: true, chunked: false, biased: false, sums: false, .. } => {
                let wrong = |table| origin(module, (entry, call), table).err();
                if let Some(why) = tables(f, node.args[0]).into_iter().find_map(wrong) {
                    return Some(why);
                }
            }
            Op::Attention { chunked: true, .. } => return Some("its windows are chunks".into()),
            Op::Attention { biased: true, .. } => return Some("its scores go by distances".into()),
            ref op => return Some(format!("`{}` reads it", op.name())),
        }
    }
    None
}

/// The rotary tables that make a query: values of the function.
pub(super) fn tables(f: &Func, query: Value) -> BTreeSet<Value> {
    let (mut todo, mut seen, mut found) = (vec![query], BTreeSet::new(), BTreeSet::new());
    while let Some(v) = todo.pop() {
        let Some(node) = node_of(f, v).filter(|n| seen.insert(v) && !makes_rows(&n.op)) else { continue };
        match (&node.op, &node.args[..]) {
            (Op::Rope { .. }, [x, table]) => {
                found.insert(*table);
                todo.push(*x);
            }
            (_, args) => todo.extend(args),
        }
    }
    found
}

/// Whether an operation makes new rows, which have nothing of the angles of its operands.
pub(super) fn makes_rows(op: &Op) -> bool {
    matches!(op, Op::MatMul | Op::HeadMatMul { .. } | Op::ExpertMatMul { .. } | Op::Attention { .. })
}

/// The node of a value that is no parameter.
pub(super) fn node_of(f: &Func, v: Value) -> Option<&Node> {
    f.nodes.get((v.0 as usize).checked_sub(f.params.len())?)
}

/// How a rotary table of a call is made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Origin {
    /// The operation, [`Op::RopeTable`].
    pub op: Op,
    /// The weight that holds the frequencies.
    pub frequencies: usize,
}

/// The origin of the rotary table that is a value of the function that `call` calls.
///
/// # Errors
/// Says why its angles cannot belong to other positions.
pub(super) fn origin(module: &Module, (entry, call): (&Entry, &Call), table: Value) -> Result<Origin, String> {
    let f = &module.funcs[call.func];
    let Some(node) = node_of(f, table) else {
        let Some(Arg::Value(value)) = call.args.get(table.0 as usize) else {
            return Err("its rotary table is not computed from positions".into());
        };
        let (call, result) = maker(module, entry, *value).ok_or("its rotary table is made by no call")?;
        return origin(module, (entry, call), result);
    };
    let Op::RopeTable { most: 0, .. } = node.op else {
        return Err(format!("its rotary table is made by `{}`, not of positions alone", node.op.name()));
    };
    match node.args.get(1).and_then(|v| call.args.get(v.0 as usize)) {
        Some(Arg::Weight(frequencies)) => Ok(Origin { op: node.op.clone(), frequencies: *frequencies }),
        _ => Err("its rotary frequencies are computed".into()),
    }
}

/// The call that makes a value of an entry, and the value of its function that this is.
fn maker<'a>(module: &'a Module, entry: &'a Entry, value: usize) -> Option<(&'a Call, Value)> {
    let mut left = value;
    for call in &entry.calls {
        let results = &module.funcs[call.func].results;
        match results.get(left) {
            Some(result) => return Some((call, *result)),
            None => left -= results.len(),
        }
    }
    None
}
