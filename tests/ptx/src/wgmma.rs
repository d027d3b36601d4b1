//! State of a warp's asynchronous matrix products.
//!
//! Each warp computes its own 16 rows when the instruction is issued, so the four warps of a group
//! need not run together; their accesses before the wait are checked.

use crate::fault::{FaultKind, Trapped, trap};
use crate::machine::{Cx, Slot};
use crate::module::{Inst, Kernel};
use crate::shared::Who;

struct Issue {
    group: u32,
    /// Accumulators.
    sums: Vec<Slot>,
    /// Registers of the first matrix.
    fragments: Vec<Slot>,
    /// Shared addresses of the 16-byte pieces that it reads.
    reads: Vec<u64>,
    pc: u32,
}

/// The products of one warp.
#[derive(Default)]
pub(crate) struct Group {
    pending: Vec<Issue>,
    open: u32,
    /// How many pending products use each register; empty in kernels without wgmma.
    busy: Vec<u16>,
    /// Registers written since the last `wgmma.fence`.
    dirty: Vec<bool>,
    /// Products so far: the same for the four warps of a group.
    pub executed: u64,
}

/// Registers and memory of one product.
pub(crate) struct Product<'a> {
    pub sums: &'a [Slot],
    pub fragments: &'a [Slot],
    pub reads: Vec<u64>,
}

impl Group {
    pub fn reset(&mut self, kernel: &Kernel) {
        *self = Group::default();
        if kernel.has_wgmma {
            self.busy = vec![0; kernel.names.len()];
            self.dirty = vec![true; kernel.names.len()];
        }
    }

    /// Checks the registers of an ordinary instruction and notes its writes.
    pub fn observe(&mut self, kernel: &Kernel, inst: &Inst) -> Result<(), FaultKind> {
        if inst.wgmma {
            return Ok(());
        }
        if !self.pending.is_empty()
            && let Some(&s) = inst.uses.iter().chain(&inst.defs).find(|s| self.busy[**s as usize] > 0)
        {
            return Err(FaultKind::Accumulator { register: kernel.names[s as usize].clone() });
        }
        for &s in &inst.defs {
            self.dirty[s as usize] = true;
        }
        Ok(())
    }

    fn check(&self, kernel: &Kernel, p: &Product<'_>) -> Result<(), FaultKind> {
        let name = |s: Slot| kernel.names[s as usize].clone();
        if let Some(&s) = p.sums.iter().chain(p.fragments).find(|s| self.dirty[**s as usize]) {
            return Err(FaultKind::WgmmaFence { register: name(s) });
        }
        for i in &self.pending {
            // The same accumulators may be used again at once; anything else must wait.
            let overlap = p.fragments.iter().find(|s| i.sums.contains(s)).or_else(|| {
                let different = i.sums != p.sums;
                p.sums.iter().find(|s| (different && i.sums.contains(s)) || i.fragments.contains(s))
            });
            if let Some(&s) = overlap {
                return Err(FaultKind::Accumulator { register: name(s) });
            }
        }
        Ok(())
    }

    pub fn idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Cx<'_> {
    /// Notes a product that was just computed.
    pub fn issue(&mut self, lane: u32, p: Product<'_>) -> Result<(), Trapped> {
        let group = &mut self.warp.group;
        group.check(self.env.kernel, &p).map_err(|k| trap(lane, k))?;
        for s in p.sums.iter().chain(p.fragments) {
            group.busy[*s as usize] += 1;
        }
        let new = Issue {
            group: group.open,
            sums: p.sums.to_vec(),
            fragments: p.fragments.to_vec(),
            reads: p.reads,
            pc: self.pc,
        };
        group.pending.push(new);
        group.executed += 1;
        Ok(())
    }

    /// `wgmma.fence`.
    pub fn wgmma_fence(&mut self) {
        self.warp.group.dirty.fill(false);
    }

    /// `wgmma.commit_group`.
    pub fn wgmma_commit(&mut self) {
        self.warp.group.open += 1;
    }

    /// `wgmma.wait_group`: all but the `left` newest groups are done.
    pub fn wgmma_wait(&mut self, left: u32) {
        let warp = self.warp.index;
        let group = &mut self.warp.group;
        let done = group.open.saturating_sub(left);
        let (finished, rest) = std::mem::take(&mut group.pending).into_iter().partition(|i: &Issue| i.group < done);
        group.pending = rest;
        for i in finished {
            for s in i.sums.iter().chain(&i.fragments) {
                group.busy[*s as usize] -= 1;
            }
            for address in i.reads {
                self.cta.shared.end_async_read(Who { warp, lane: 255, pc: i.pc }, address, 16);
            }
        }
        self.cta.shared.clocks.synchronise(warp as usize);
    }
}
