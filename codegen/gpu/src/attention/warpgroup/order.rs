//! The two groups that multiply take turns in starting their products: while one turns scores into
//! probabilities, the tensor cores work for the other.
//!
//! Left alone both would start together and then both compute, with the tensor cores idle. Each
//! group has a barrier, at which it waits for the other to have arrived there.

use super::WARPS;
use crate::mlir::{Builder, Cmp, V, WARP};

/// Barrier of the first group; 0 belongs to the block and 1 to all that multiply.
const FIRST: i64 = 2;

/// A group's place.
pub(super) struct Order {
    /// 0 or 1.
    pub(super) group: V,
}

impl Order {
    /// Before anything: the first group may begin.
    pub(super) fn start(&self, b: &mut Builder) {
        let second = b.cmpc(Cmp::Ne, self.group, 0);
        b.if_(second, |b| self.leave(b));
    }

    /// Waits for the other group to have left.
    pub(super) fn enter(&self, b: &mut Builder) {
        let id = b.addc(self.group, FIRST);
        b.barrier_of(id, WARPS as i64 * WARP as i64);
    }

    /// The other group may enter.
    pub(super) fn leave(&self, b: &mut Builder) {
        let other = b.xorc(self.group, 1);
        let id = b.addc(other, FIRST);
        b.barrier_arrive(id, WARPS as i64 * WARP as i64);
    }

    /// After as many turns of both: the second group has left once more than the first has entered.
    pub(super) fn finish(&self, b: &mut Builder) {
        let first = b.cmpc(Cmp::Eq, self.group, 0);
        b.if_(first, |b| self.enter(b));
    }
}
