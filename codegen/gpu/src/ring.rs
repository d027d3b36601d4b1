//! Rings of stages in shared memory between warps that bring and warps that multiply: their turns,
//! and the `mbarrier`s that guard them.

use crate::mlir::{Builder, Cmp, Mbarrier, V};

/// The `mbarrier`s of a ring: of each event (something is there, something is free again) one for
/// every stage, 8 bytes each, event by event.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Where in shared memory, a multiple of 8.
    pub at: usize,
    /// Stages.
    pub stages: usize,
}

impl Ring {
    /// Where an event's first `mbarrier` is.
    fn array(self, event: usize) -> usize {
        self.at + event * self.stages * 8
    }

    /// An event's `mbarrier` of a stage.
    pub fn barrier(self, b: &mut Builder, event: usize, stage: V) -> Mbarrier {
        let base = b.shared();
        let base = b.atc(base, self.array(event) as i64);
        let base = b.shared_address(base);
        let offset = b.shlc(stage, 3);
        let at = b.add(base, offset);
        b.mbarrier(at, self.array(event), stage)
    }
}

/// Initializes the `mbarrier`s of rings; each named event awaits so many arrivals in every stage:
/// by one thread, and all threads of the block wait for it.
pub fn initialize(b: &mut Builder, rings: &[(Ring, &[(&str, i64)])]) {
    for (ring, events) in rings {
        for (event, (name, arrivals)) in events.iter().enumerate() {
            b.barriers(*name, ring.array(event), ring.stages, *arrivals as usize);
        }
    }
    let tid = b.sreg("tid.x");
    let first = b.cmpc(Cmp::Eq, tid, 0);
    b.if_(first, |b| {
        for (ring, events) in rings {
            for stage in 0..ring.stages {
                let stage = b.i32(stage as i64);
                for (event, (_, arrivals)) in events.iter().enumerate() {
                    let barrier = ring.barrier(b, event, stage);
                    b.mbarrier_init(&barrier, *arrivals);
                }
            }
        }
        b.fence_mbarriers();
    });
    b.barrier_all();
}

/// The stage `by` stages after `stage`, in a ring of so many stages; `by` is at most their number.
pub fn stage_after(b: &mut Builder, stage: V, by: i64, stages: usize) -> V {
    let sum = b.addc(stage, by);
    let less = b.addc(sum, -(stages as i64));
    let over = b.cmpc(Cmp::Sge, sum, stages as i64);
    b.select(over, less, sum)
}

/// A turn of a ring: which stage, and the parity of its phase.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The stage, an `i32`.
    pub stage: V,
    /// 0 in the first turn of the ring, 1 in the second, and so on.
    pub parity: V,
}

impl Turn {
    /// The first.
    pub fn start(b: &mut Builder) -> Turn {
        Turn { stage: b.i32(0), parity: b.i32(0) }
    }

    /// From a loop's carried values, see [`Turn::values`].
    pub fn of(values: &[V]) -> Turn {
        Turn { stage: values[0], parity: values[1] }
    }

    /// A loop's carried values.
    pub fn values(self) -> [V; 2] {
        [self.stage, self.parity]
    }

    /// The one after, in a ring of so many stages.
    pub fn next(self, b: &mut Builder, stages: usize) -> Turn {
        let up = b.addc(self.stage, 1);
        let over = b.cmpc(Cmp::Sge, up, stages as i64);
        let (zero, other) = (b.i32(0), b.xorc(self.parity, 1));
        Turn { stage: b.select(over, zero, up), parity: b.select(over, other, self.parity) }
    }
}
