//! The state of a running block: warps, their registers, barriers.

use crate::asyncs::{Copies, InFlight};
use crate::fault::{FaultKind, Trapped, trap};
use crate::mbarrier::MBarriers;
use crate::memory::Memory;
use crate::module::Kernel;
use crate::shared::Shared;
use crate::wgmma::Group;
use crate::{Dim, Options};
use std::collections::HashMap;

/// One register: a value for each lane.
pub(crate) type Reg = [u64; 32];
/// Index of a register in a warp's file.
pub(crate) type Slot = u32;

/// Generic addresses of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// Generic addresses of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3_0000_0000;
/// First address that is not in a window.
pub(crate) const WINDOWS_END: u64 = 0x4_0000_0000;
/// First address of shared memory: the driver keeps the addresses before, so that a null address is
/// wrong here too.
pub(crate) const SHARED_BASE: u64 = 1024;
/// Number of named barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// An instruction's request to the scheduler.
pub(crate) enum Next {
    Step,
    /// Go on, but let other warps run first.
    Yield,
    /// Go on once the warp's state is `Ready` again.
    Block,
}

/// A decoded instruction: runs the lanes of a mask.
pub(crate) type Exec = Box<dyn Fn(&mut Cx<'_>, u32) -> Result<Next, Trapped> + Send + Sync>;

/// A set of lanes at one place, until they join the others at `join`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub pc: u32,
    pub join: u32,
    pub mask: u32,
}

/// Whether a warp can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// At a named barrier.
    Waiting(u32),
    Done,
}

/// A warp.
#[derive(Default)]
pub(crate) struct Warp {
    pub index: u32,
    pub regs: Vec<Reg>,
    pub stack: Vec<Path>,
    /// Lanes that have not exited.
    pub live: u32,
    pub local: Vec<u8>,
    pub copies: Copies,
    pub group: Group,
    /// Registers of each thread, as far as `setmaxnreg` counts them.
    pub registers: u32,
    /// Lanes that have waited for the launches before.
    pub waited: u32,
    /// Executed instructions, for `%clock`.
    pub clock: u64,
}

/// A named barrier.
#[derive(Clone, Default)]
pub(crate) struct Barrier {
    /// Threads that arrived.
    pub arrived: u32,
    /// Threads awaited, if the instruction says so; else all that live.
    pub expected: Option<u32>,
    pub waiting: Vec<u32>,
    /// Line of the last arrival, as an instruction index.
    pub pc: u32,
}

/// A block.
pub(crate) struct Cta {
    pub shared: Shared,
    pub states: Vec<State>,
    pub barriers: Vec<Barrier>,
    pub mbarriers: MBarriers,
    pub flight: InFlight,
    /// Threads that have not exited.
    pub live: u32,
    /// Registers that `setmaxnreg.dec` gave up.
    pub free_registers: u32,
    /// Counts whatever may let a waiting warp go on.
    pub events: u64,
}

/// Counts of one instruction of the kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counter {
    pub lanes: u64,
    pub warps: u64,
    /// Extra phases because of bank conflicts, and the most banks' accesses of one phase.
    pub conflicts: u64,
    pub degree: u32,
}

/// Counts of a launch.
#[derive(Default)]
pub(crate) struct Counters {
    pub code: Vec<Counter>,
    pub read: u64,
    pub written: u64,
    /// Bytes that `cp.async` reads of each line of 128 bytes.
    pub copied: HashMap<u64, u64>,
}

/// Constants of a launch.
pub(crate) struct Env<'a> {
    pub kernel: &'a Kernel,
    pub options: &'a Options,
    pub grid: Dim,
    pub block: Dim,
    pub params: &'a [u8],
    pub dynamic_shared: u64,
}

/// An instruction's view of the machine.
pub(crate) struct Cx<'a> {
    pub warp: &'a mut Warp,
    pub cta: &'a mut Cta,
    pub mem: &'a mut Memory,
    pub count: &'a mut Counters,
    pub env: &'a Env<'a>,
    pub pc: u32,
}

/// The lanes of a mask.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(lane)
    })
}

impl Cx<'_> {
    pub fn reg(&self, slot: Slot) -> &Reg {
        &self.warp.regs[slot as usize]
    }

    pub fn reg_mut(&mut self, slot: Slot) -> &mut Reg {
        &mut self.warp.regs[slot as usize]
    }

    /// The instruction needs every lane of the warp that still lives.
    pub fn aligned(&self, mask: u32) -> Result<(), Trapped> {
        if mask == self.warp.live {
            return Ok(());
        }
        Err(trap(mask.trailing_zeros() & 31, FaultKind::Diverged { active: mask, expected: self.warp.live }))
    }

    /// The member mask of a `.sync` instruction: every executing lane must be in it, and every
    /// living lane in it must execute.
    pub fn members(&self, mask: u32, slot: Slot) -> Result<(), Trapped> {
        for lane in lanes(mask) {
            let named = self.reg(slot)[lane as usize] as u32;
            if named & self.warp.live != mask || named >> lane & 1 == 0 {
                return Err(trap(lane, FaultKind::Diverged { active: mask, expected: named & self.warp.live }));
            }
        }
        Ok(())
    }

    /// `setmaxnreg`: `n` registers per thread from here on; `more` waits until others have given up
    /// as many.
    pub fn set_registers(&mut self, n: u32, more: bool) -> Result<Next, Trapped> {
        let own = self.warp.registers;
        if (more && n < own) || (!more && n > own) {
            let what = if more { "inc" } else { "dec" };
            return Err(trap(0, FaultKind::Operand(format!("setmaxnreg.{what} to {n} registers, of {own}"))));
        }
        if !more {
            self.cta.free_registers += (own - n) * 32;
        } else if let Some(left) = self.cta.free_registers.checked_sub((n - own) * 32) {
            self.cta.free_registers = left;
        } else {
            // Once more, when others have run.
            if let Some(path) = self.warp.stack.last_mut() {
                path.pc = self.pc;
            }
            return Ok(Next::Yield);
        }
        self.warp.registers = n;
        self.cta.events += 1;
        Ok(Next::Step)
    }

    /// Arrives at barrier `id`; waits there if `wait`.
    pub fn barrier(&mut self, mask: u32, id: u32, expected: Option<u32>, wait: bool) -> Result<Next, Trapped> {
        self.aligned(mask)?;
        let lane = mask.trailing_zeros();
        let bad = |what: String| Err(trap(lane, FaultKind::Operand(what)));
        if id as usize >= BARRIERS {
            return bad(format!("barrier {id} does not exist: there are {BARRIERS}"));
        }
        if let Some(n) = expected
            && (n == 0 || n % 32 != 0)
        {
            return bad(format!("a barrier of {n} threads: the number must be a multiple of the warp size"));
        }
        let w = self.warp.index;
        let barrier = &mut self.cta.barriers[id as usize];
        if barrier.arrived > 0 && barrier.expected != expected {
            return bad(format!(
                "barrier {id} is used with {expected:?} and {:?} threads at the same time",
                barrier.expected
            ));
        }
        barrier.expected = expected;
        // A warp counts as a whole, also where its last lanes do not exist.
        barrier.arrived += if expected.is_some() { 32 } else { mask.count_ones() };
        barrier.pc = self.pc;
        self.cta.shared.clocks.arrive(id as usize, w as usize);
        if wait {
            barrier.waiting.push(w);
            self.cta.states[w as usize] = State::Waiting(id);
        }
        self.cta.release(id as usize);
        Ok(if wait { Next::Block } else { Next::Step })
    }
}

impl Cta {
    /// Opens barrier `id` if all that it waits for are there.
    pub fn release(&mut self, id: usize) {
        let barrier = &mut self.barriers[id];
        let needed = barrier.expected.unwrap_or(self.live);
        if barrier.arrived == 0 || barrier.arrived < needed {
            return;
        }
        let waiting = std::mem::take(&mut barrier.waiting);
        barrier.arrived = 0;
        barrier.expected = None;
        for w in waiting {
            self.states[w as usize] = State::Ready;
            self.shared.clocks.depart(id, w as usize);
        }
        self.shared.clocks.reset(id);
        self.events += 1;
    }

    /// Lanes exited: barriers no longer wait for them.
    pub fn exited(&mut self, lanes: u32) {
        self.live -= lanes;
        self.events += 1;
        for id in 0..self.barriers.len() {
            self.release(id);
        }
    }
}
