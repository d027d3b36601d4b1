//! Functions that become others in some of their calls.

use llmcc_ir::graph::{Call, Func, Mistake, Module};
use std::collections::{BTreeMap, BTreeSet};

/// Changed functions, by the function before and the changes: the index of each, and what else its maker returned.
pub(super) type Variants<K, M> = BTreeMap<(usize, Vec<K>), (usize, M)>;

/// Makes the functions of calls that have changes. One takes the place of the function before, if no call keeps that;
/// others are named by `word`.
///
/// # Errors
/// The first of `make`.
pub(super) fn variants<K: Clone + Ord, M>(
    module: &mut Module,
    before: &Module,
    word: &str,
    changes: impl Fn(&Call) -> Vec<K>,
    make: impl Fn(&Func, &[K]) -> Result<(Func, M), Mistake>,
) -> Result<Variants<K, M>, Mistake> {
    let (mut made, mut free) = (Variants::new(), (0..before.funcs.len()).collect::<BTreeSet<usize>>());
    before.calls().filter(|c| changes(c).is_empty()).for_each(|c| _ = free.remove(&c.func));
    for call in before.calls() {
        let key = (call.func, changes(call));
        if key.1.is_empty() || made.contains_key(&key) {
            continue;
        }
        let (mut func, more) = make(&before.funcs[call.func], &key.1)?;
        let at = if free.remove(&call.func) { call.func } else { module.funcs.len() };
        if at == module.funcs.len() {
            func.name = format!("{}.{word}{at}", func.name);
            module.funcs.push(func);
        } else {
            module.funcs[at] = func;
        }
        made.insert(key, (at, more));
    }
    Ok(made)
}
