//! Exchange between the lanes of a warp.

use super::{Builder, Cmp, I1, I32, V};

pub use llmcc_ir::gpu::WARP;

impl Builder {
    /// The value of the lane whose number differs in `mask`.
    pub fn shuffle_xor(&mut self, v: V, mask: i64) -> V {
        self.shuffle("bfly", v, mask)
    }
    /// The value of lane `lane` (a value below 32).
    pub fn shuffle_from(&mut self, v: V, lane: V) -> V {
        let (all, clamp) = (self.i32(-1), self.i32(WARP as i64 - 1));
        let same = self.op(v.ty, format!("nvvm.shfl.sync idx {all}, {v}, {lane}, {clamp} : {0} -> {0}", v.ty));
        // Values exchanged this way are equal in all lanes.
        self.record_same(same, v);
        same
    }
    /// The number of the warp of thread `thread`, as each lane computes it for itself.
    pub fn own_warp(&mut self, thread: V) -> V {
        self.shrc(thread, WARP.ilog2().into())
    }
    /// The number of thread `thread` in its warp.
    pub fn lane_of(&mut self, thread: V) -> V {
        self.andc(thread, WARP as i64 - 1)
    }
    /// Both.
    pub fn warp_and_lane(&mut self, thread: V) -> (V, V) {
        (self.own_warp(thread), self.lane_of(thread))
    }
    /// The number of the warp of thread `thread`: the same in all lanes, and known to be.
    pub fn warp_of(&mut self, thread: V) -> V {
        let (warp, zero) = (self.own_warp(thread), self.i32(0));
        self.shuffle_from(warp, zero)
    }
    fn shuffle(&mut self, kind: &str, v: V, by: i64) -> V {
        let (all, by, clamp) = (self.i32(-1), self.i32(by), self.i32(WARP as i64 - 1));
        self.op(v.ty, format!("nvvm.shfl.sync {kind} {all}, {v}, {by}, {clamp} : {0} -> {0}", v.ty))
    }
    /// The sum of an `i32` over this lane and those before it.
    pub fn sum_up(&mut self, v: V, lane: V) -> V {
        [1, 2, 4, 8, 16].into_iter().fold(v, |sum, by| {
            let (all, distance, none) = (self.i32(-1), self.i32(by), self.i32(0));
            let other =
                self.op(I32, format!("nvvm.shfl.sync up {all}, {sum}, {distance}, {none} : {0} -> {0}", sum.ty));
            let first = self.cmpc(Cmp::Slt, lane, by);
            let other = self.select(first, none, other);
            self.add(sum, other)
        })
    }
    /// Combines over lanes whose numbers differ in `masks`, in that order: every lane gets the
    /// result.
    pub fn reduce(&mut self, v: V, masks: &[i64], combine: impl Fn(&mut Builder, V, V) -> V) -> V {
        masks.iter().fold(v, |acc, m| {
            let other = self.shuffle_xor(acc, *m);
            combine(self, acc, other)
        })
    }

    /// Combines the `i32`s of all lanes in one instruction; `kind` is `add`, `umax` or `umin`.
    pub fn redux(&mut self, v: V, kind: &str) -> V {
        let all = self.i32(-1);
        self.op(I32, format!("nvvm.redux.sync {kind} {v}, {all} : i32 -> i32"))
    }

    /// For which lanes `c` (`i1`) holds, a bit each: the same in all lanes.
    pub fn ballot(&mut self, c: V) -> V {
        debug_assert_eq!(c.ty, I1);
        let all = self.i32(-1);
        self.op(I32, format!("nvvm.vote.sync ballot {all}, {c} -> i32"))
    }
}
