//! Which values are computed once and read several times.
//!
//! Absorbing the kernel of such a value into each of its readers would compute it several times,
//! unless all that is made of it meets again in one expression: then it is a part of that.

use super::MAX_EXPR;
use super::way::{Way, way};
use egg::Id;
use llmcc_ir::graph::{Func, Node};
use std::collections::BTreeMap;

/// The classes of values that no kernel absorbs: several operations read them (results of the
/// function count as read), and no expression brings those together. `values` has the class of each
/// value.
pub fn read_often(func: &Func, values: &[Id]) -> Vec<Id> {
    let readers = readers(func, values.len());
    let often = |v: &usize| readers[*v] > 1 && !meets(func, &readers, *v);
    (0..values.len()).filter(often).map(|v| values[v]).collect()
}

/// How many operations and results read each value.
fn readers(func: &Func, values: usize) -> Vec<usize> {
    let mut readers = vec![0; values];
    for node in &func.nodes {
        operands(node).into_iter().for_each(|v| readers[v] += 1);
    }
    func.results.iter().for_each(|v| readers[v.0 as usize] += 1);
    readers
}

/// The values that an operation reads, each once.
fn operands(node: &Node) -> Vec<usize> {
    let mut values: Vec<usize> = node.args.iter().map(|v| v.0 as usize).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Whether everything that is made of a value goes into one expression, which could compute all of
/// it at once.
fn meets(func: &Func, readers: &[usize], value: usize) -> bool {
    // Values made of it, and how many of their readers are still to come.
    let mut open = BTreeMap::from([(value, readers[value])]);
    let first = readers.len() - func.nodes.len();
    let mut size = 0;
    for (at, node) in func.nodes.iter().enumerate() {
        let read: Vec<usize> = operands(node).into_iter().filter(|v| open.contains_key(v)).collect();
        if read.is_empty() {
            continue;
        }
        size += 1;
        if !matches!(way(node.op.head()), Way::Expression(_)) || size > MAX_EXPR {
            return false;
        }
        for v in &read {
            open.entry(*v).and_modify(|left| *left -= 1);
        }
        open.retain(|_, left| *left > 0);
        if open.is_empty() {
            return true;
        }
        open.insert(first + at, readers[first + at]);
    }
    false
}
