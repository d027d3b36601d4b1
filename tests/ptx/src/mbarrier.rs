//! mbarrier objects of shared memory.
//!
//! Their 64 bits are opaque in PTX; here the state lives beside the memory, and the bytes only
//! count as written.

use std::collections::HashMap;

use crate::clocks::Clock;
use crate::fault::{Access, FaultKind, Other};
use crate::machine::Cx;
use crate::shared::Who;

/// Largest number of arrivals, and of bytes of a transaction.
const LIMIT: i64 = (1 << 20) - 1;

struct MBarrier {
    count: i64,
    pending: i64,
    /// Bytes still awaited in this phase.
    transaction: i64,
    phase: u64,
    /// Knowledge of the warps that arrived.
    clock: Clock,
    done: Clock,
    init: Who,
    init_clock: u32,
    init_epoch: u32,
    /// Warp and time of the fence that showed the initialisation to the async proxy.
    shown: Option<(u32, u32)>,
}

/// The mbarriers of a block, by address.
#[derive(Default)]
pub(crate) struct MBarriers {
    map: HashMap<u64, MBarrier>,
}

impl MBarrier {
    fn complete(&mut self) -> bool {
        let full = self.pending == 0 && self.transaction == 0;
        if full {
            self.phase += 1;
            self.pending = self.count;
            self.done = self.clock;
        }
        full
    }
}

impl MBarriers {
    pub fn reset(&mut self) {
        self.map.clear();
    }

    /// Where each mbarrier stands, for a report of a deadlock.
    pub fn describe(&self) -> String {
        let mut all: Vec<_> = self.map.iter().collect();
        all.sort_by_key(|(a, _)| **a);
        let one = |(a, m): (&u64, &MBarrier)| {
            format!(
                "mbarrier {a:#x} in phase {} awaits {} of {} arrivals and {} bytes",
                m.phase, m.pending, m.count, m.transaction
            )
        };
        all.into_iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl Cx<'_> {
    /// `mbarrier.init`.
    pub fn mbarrier_init(&mut self, lane: u32, address: u64, count: u32) -> Result<(), FaultKind> {
        let who = self.who(lane);
        if !address.is_multiple_of(8) {
            return Err(FaultKind::Misaligned { space: "shared", address, bytes: 8 });
        }
        let count = i64::from(count);
        if !(1..=LIMIT).contains(&count) {
            return Err(FaultKind::Operand(format!("an mbarrier of {count} arrivals: 1 to {LIMIT} are possible")));
        }
        if self.cta.mbarriers.map.contains_key(&address) {
            return Err(FaultKind::Operand(format!(
                "the mbarrier at {address:#x} is initialised twice without mbarrier.inval"
            )));
        }
        self.cta.shared.write(who, address, &[0; 8], true)?;
        let init_clock = self.cta.shared.clocks.now(who.warp as usize);
        let init_epoch = self.cta.shared.clocks.epoch(who.warp as usize);
        let new = MBarrier {
            count,
            pending: count,
            transaction: 0,
            phase: 0,
            clock: Clock::default(),
            done: Clock::default(),
            init: who,
            init_clock,
            init_epoch,
            shown: None,
        };
        self.cta.mbarriers.map.insert(address, new);
        Ok(())
    }

    /// `mbarrier.inval`.
    pub fn mbarrier_inval(&mut self, lane: u32, address: u64) -> Result<(), FaultKind> {
        self.mbarrier(lane, address)?;
        let who = self.who(lane);
        self.cta.mbarriers.map.remove(&address);
        self.cta.shared.claim(who, address, 8)
    }

    /// Checks that there is an mbarrier at `address` that this thread can know of.
    pub fn mbarrier(&mut self, lane: u32, address: u64) -> Result<(), FaultKind> {
        let who = self.who(lane);
        let clocks = &self.cta.shared.clocks;
        let Some(m) = self.cta.mbarriers.map.get(&address) else {
            return Err(FaultKind::Operand(format!("no mbarrier was initialised at {address:#x}")));
        };
        let same = m.init.warp == who.warp;
        let known = if same {
            m.init.lane == lane || m.init_epoch < clocks.epoch(who.warp as usize)
        } else {
            m.init_clock <= clocks.warps[who.warp as usize].seen[m.init.warp as usize]
        };
        if !known && self.env.options.check_races {
            let other = Other { thread: Some(m.init.warp * 32 + m.init.lane), line: m.init.pc };
            return Err(FaultKind::Race { access: Access::Atomic, address, other_access: Access::Write, other });
        }
        Ok(())
    }

    /// `fence.mbarrier_init`, and `fence.proxy.async` too: mbarriers that this warp initialised, or
    /// saw initialised, are shown to the async proxy.
    pub fn show_mbarriers(&mut self) {
        let w = self.warp.index as usize;
        let now = self.cta.shared.clocks.mark(w);
        let seen = self.cta.shared.clocks.warps[w].seen;
        for m in self.cta.mbarriers.map.values_mut() {
            if m.shown.is_none() && m.init_clock <= seen[m.init.warp as usize] {
                m.shown = Some((w as u32, now));
            }
        }
    }

    /// Checks that the async proxy knows of the mbarrier at `address`, as far as this thread can
    /// tell.
    pub fn mbarrier_shown(&self, address: u64) -> Result<(), FaultKind> {
        let Some(m) = self.cta.mbarriers.map.get(&address) else { return Ok(()) };
        let seen = &self.cta.shared.clocks.warps[self.warp.index as usize].seen;
        if !self.env.options.check_races || m.shown.is_some_and(|(w, at)| at <= seen[w as usize]) {
            return Ok(());
        }
        Err(FaultKind::ProxyFence {
            address,
            other: Other { thread: Some(m.init.warp * 32 + m.init.lane), line: m.init.pc },
        })
    }

    fn with(&mut self, address: u64, change: impl FnOnce(&mut MBarrier)) {
        if let Some(m) = self.cta.mbarriers.map.get_mut(&address) {
            change(m);
            self.cta.events += u64::from(m.complete());
        }
    }

    /// Orders the past of warp `warp` before the end of the mbarrier's phase.
    pub fn publish_to(&mut self, address: u64, warp: u32) {
        if let Some(m) = self.cta.mbarriers.map.get_mut(&address) {
            self.cta.shared.clocks.publish(warp as usize, &mut m.clock);
        }
    }

    /// `mbarrier.arrive`, with `bytes` also `.expect_tx`: the phase in which it arrived.
    pub fn mbarrier_arrive(&mut self, lane: u32, address: u64, count: u32, bytes: u32) -> Result<u64, FaultKind> {
        self.mbarrier(lane, address)?;
        let warp = self.warp.index;
        self.publish_to(address, warp);
        let mut out = Ok(0);
        self.with(address, |m| {
            out = Ok(m.phase);
            m.transaction += i64::from(bytes);
            m.pending -= i64::from(count);
            if m.pending < 0 || count == 0 {
                out = Err(FaultKind::Operand(format!(
                    "{count} arrivals at an mbarrier that awaits {}",
                    m.pending + i64::from(count)
                )));
            } else if m.transaction > LIMIT {
                out = Err(FaultKind::Operand(format!(
                    "an mbarrier transaction of {} bytes: at most {LIMIT}",
                    m.transaction
                )));
            }
        });
        out
    }

    /// `mbarrier.expect_tx` (positive) and `mbarrier.complete_tx` (negative).
    pub fn mbarrier_bytes(&mut self, lane: u32, address: u64, bytes: i64) -> Result<(), FaultKind> {
        self.mbarrier(lane, address)?;
        self.with(address, |m| m.transaction += bytes);
        Ok(())
    }

    /// `mbarrier.test_wait`: whether the phase `phase` (or the last one of that parity) is
    /// complete. Copies in flight land only now.
    pub fn mbarrier_test(&mut self, lane: u32, address: u64, phase: u64, parity: bool) -> Result<bool, FaultKind> {
        self.mbarrier(lane, address)?;
        let complete = |cx: &Self| {
            cx.cta
                .mbarriers
                .map
                .get(&address)
                .is_some_and(|m| if parity { m.phase & 1 != phase & 1 } else { m.phase > phase })
        };
        if !complete(self) {
            self.land_for(address)?;
        }
        if !complete(self) {
            return Ok(false);
        }
        let w = self.warp.index as usize;
        if let Some(m) = self.cta.mbarriers.map.get(&address) {
            self.cta.shared.clocks.observe(w, &m.done);
        }
        Ok(true)
    }

    /// Lands the copies that report to the mbarrier at `address`.
    fn land_for(&mut self, address: u64) -> Result<(), FaultKind> {
        let mut i = 0;
        while i < self.cta.flight.bulk.len() {
            if self.cta.flight.bulk[i].mbarrier != address {
                i += 1;
                continue;
            }
            let b = self.cta.flight.bulk.remove(i);
            self.cta.shared.land_at(b.who, b.clock, b.to, &b.data);
            self.with(address, |m| m.transaction -= b.data.len() as i64);
        }
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: lands this thread's `cp.async` copies and arrives for them.
    pub fn arrive_after_copies(&mut self, lane: u32, address: u64, increments: bool) -> Result<(), FaultKind> {
        self.land_copies(lane, None);
        if increments {
            self.with(address, |m| m.pending += 1);
        }
        self.mbarrier_arrive(lane, address, 1, 0).map(drop)
    }
}
