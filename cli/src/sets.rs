//! Sets that have members in common.

use std::collections::BTreeSet;

/// Joins sets that have a member in common, or that others connect; in order.
pub fn joined(all: impl IntoIterator<Item = BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    let mut out: Vec<BTreeSet<usize>> = vec![];
    for mut own in all {
        let (connected, apart): (Vec<_>, Vec<_>) = out.into_iter().partition(|set| !set.is_disjoint(&own));
        own.extend(connected.into_iter().flatten());
        out = apart;
        out.push(own);
    }
    out.sort();
    out
}
