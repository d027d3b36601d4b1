//! Running a grid: blocks one after another, warps of a block in turns.

use crate::asyncs::InFlight;
use crate::clocks::Clocks;
use crate::fault::{Fault, FaultKind, Other, Trap, trap};
use crate::machine::{BARRIERS, Barrier, Counter, Counters, Cta, Cx, Env, Next, Path, State, Warp};
use crate::mbarrier::MBarriers;
use crate::memory::Memory;
use crate::module::{Kernel, Module, Special, Step};
use crate::shared::Shared;
use crate::{Conflict, Dim, Options, Stats};

/// Instructions that a warp runs before others get their turn.
const TURN: u32 = 4096;
/// Turns in which all warps only polled and nothing happened, before it counts as a deadlock.
const IDLE_TURNS: u32 = 64;
/// Largest shared memory of a block on any target.
const MAX_SHARED: u64 = 227 * 1024;

/// Why a warp stopped running.
enum Stop {
    Turn,
    Polled,
    Blocked,
}

/// A trap of warp `warp` at instruction `pc`.
struct Stopped {
    warp: u32,
    pc: u32,
    trap: Box<Trap>,
}

/// A block and its warps.
struct Block {
    cta: Cta,
    warps: Vec<Warp>,
    threads: u32,
}

pub(crate) fn launch(
    module: &Module,
    kernel: &Kernel,
    grid: Dim,
    block: Dim,
    dynamic_shared: u64,
    params: &[u8],
    mem: &mut Memory,
    options: &Options,
) -> Result<Stats, Fault> {
    check(kernel, grid, block, dynamic_shared, params).map_err(|what| launch_fault(kernel, what))?;
    let links = place_globals(module, mem);
    let env = Env { kernel, options, grid, block, params, dynamic_shared };
    let mut count = Counters { code: vec![Counter::default(); kernel.code.len()], ..Counters::default() };
    let mut b = Block::new(&env, &links);
    let mut left = options.instruction_limit;
    mem.blocks.begin(kernel.global_granule, options.check_races, options.overlaps);
    let mut index = 0u32;
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                b.start(&env, [x, y, z]);
                mem.blocks.start_block(index);
                index = index.wrapping_add(1);
                b.run(&env, mem, &mut count, &mut left).map_err(|s| locate(&env, [x, y, z], s))?;
            }
        }
    }
    if options.overlaps && !mem.blocks.waited {
        let what = "no thread waits for the launches before (griddepcontrol.wait): those behind rely on it";
        return Err(launch_fault(kernel, what.into()));
    }
    Ok(stats(kernel, &count))
}

fn launch_fault(kernel: &Kernel, what: String) -> Fault {
    Fault {
        kernel: kernel.name.as_str().into(),
        line: 0,
        text: Box::default(),
        block: [0; 3],
        thread: [0; 3],
        kind: FaultKind::Launch(what),
    }
}

fn check(kernel: &Kernel, grid: Dim, block: Dim, dynamic_shared: u64, params: &[u8]) -> Result<(), String> {
    let threads: u64 = block.iter().map(|d| u64::from(*d)).fold(1, u64::saturating_mul);
    if threads == 0 || threads > 1024 {
        return Err(format!("a block of {threads} threads: 1 to 1024 are possible"));
    }
    if grid.contains(&0) || grid[1] > 65535 || grid[2] > 65535 || grid[0] > i32::MAX as u32 {
        return Err(format!("a grid of {grid:?} blocks is not possible"));
    }
    if let Some(max) = kernel.max_threads
        && threads > max.iter().map(|d| u64::from(*d)).fold(1, u64::saturating_mul)
    {
        return Err(format!("a block of {threads} threads is larger than .maxntid {max:?}"));
    }
    if let Some(exact) = kernel.exact_threads
        && exact != block
    {
        return Err(format!("a block of {block:?} threads where .reqntid is {exact:?}"));
    }
    let shared = kernel.static_shared as u64 + dynamic_shared;
    if shared > MAX_SHARED {
        return Err(format!("{shared} bytes of shared memory: at most {MAX_SHARED}"));
    }
    if params.len() != kernel.param_bytes {
        return Err(format!("{} bytes of parameters where the kernel takes {}", params.len(), kernel.param_bytes));
    }
    Ok(())
}

/// Puts the module's variables into global memory, once.
fn place_globals(module: &Module, mem: &mut Memory) -> Vec<u64> {
    if let Some(places) = mem.modules.get(&module.id) {
        return places.clone();
    }
    let place = |g: &crate::module::Global| {
        let mut data = g.init.clone();
        data.resize(g.size, 0);
        if g.constant { mem.alloc_constant(&data) } else { mem.alloc_from(&data) }
    };
    let places: Vec<u64> = module.globals.iter().map(place).collect();
    mem.modules.insert(module.id, places.clone());
    places
}

fn locate(env: &Env<'_>, block: Dim, s: Stopped) -> Fault {
    let inst = env.kernel.code.get(s.pc as usize);
    let line = |pc: u32| env.kernel.code.get(pc as usize).map_or(0, |i| i.line);
    let named = |other: Other| Other { line: line(other.line), ..other };
    let kind = match s.trap.kind {
        FaultKind::Race { access, address, other_access, other } => {
            FaultKind::Race { access, address, other_access, other: named(other) }
        }
        FaultKind::InFlight { access, address, other } => FaultKind::InFlight { access, address, other: named(other) },
        FaultKind::ProxyFence { address, other } => FaultKind::ProxyFence { address, other: named(other) },
        FaultKind::Stale { address, line: pc } => FaultKind::Stale { address, line: line(pc) },
        FaultKind::BlockRace { access, address, other_access, block, line: pc } => {
            FaultKind::BlockRace { access, address, other_access, block, line: line(pc) }
        }
        kind => kind,
    };
    let t = s.warp * 32 + s.trap.lane.min(31);
    let [x, y, _] = env.block;
    Fault {
        kernel: env.kernel.name.as_str().into(),
        line: inst.map_or(0, |i| i.line),
        text: inst.map_or(Box::default(), |i| i.text.as_str().into()),
        block,
        thread: [t % x, t / x % y, t / x / y],
        kind,
    }
}

fn stats(kernel: &Kernel, count: &Counters) -> Stats {
    let hottest = count.copied.values().max().copied().unwrap_or(0);
    let mut out = Stats { read: count.read, written: count.written, hottest, ..Stats::default() };
    for (inst, c) in kernel.code.iter().zip(&count.code) {
        out.instructions += c.lanes;
        out.warp_instructions += c.warps;
        if c.warps > 0 {
            *out.classes.entry(kernel.classes[inst.class as usize].clone()).or_default() += c.lanes;
        }
        if c.conflicts > 0 {
            out.bank_conflicts += c.conflicts;
            out.conflicts.push(Conflict {
                line: inst.line,
                text: inst.text.clone(),
                degree: c.degree,
                extra: c.conflicts,
                accesses: c.warps,
            });
        }
    }
    out
}

impl Block {
    fn new(env: &Env<'_>, links: &[u64]) -> Block {
        let kernel = env.kernel;
        let threads: u32 = env.block.iter().product();
        let n = threads.div_ceil(32) as usize;
        let size = kernel.static_shared + env.dynamic_shared as usize;
        let options = env.options;
        let clocks = Clocks::new(n, BARRIERS);
        let shared = Shared::new(size, kernel.granule, clocks, options.check_uninitialised, options.check_races);
        // Registers never written hold a NaN of every format, not a harmless zero.
        let mut regs = vec![[0xffff_ffff_ffff_ffff; 32]; kernel.names.len()];
        for &(slot, bits) in &kernel.constants {
            regs[slot as usize] = [bits; 32];
        }
        for &(slot, var, offset) in &kernel.links {
            regs[slot as usize] = [links[var].wrapping_add_signed(offset); 32];
        }
        let warp =
            |index| Warp { index, regs: regs.clone(), local: vec![0; 32 * kernel.local_bytes], ..Warp::default() };
        let cta = Cta {
            shared,
            states: Vec::new(),
            barriers: Vec::new(),
            mbarriers: MBarriers::default(),
            flight: InFlight::default(),
            live: 0,
            free_registers: 0,
            events: 0,
        };
        Block { cta, warps: (0..n as u32).map(warp).collect(), threads }
    }

    /// Makes everything as at the start of block `at`.
    fn start(&mut self, env: &Env<'_>, at: Dim) {
        let n = self.warps.len();
        let cta = &mut self.cta;
        cta.shared.reset(Clocks::new(n, BARRIERS));
        cta.states = vec![State::Ready; n];
        cta.barriers = vec![Barrier::default(); BARRIERS];
        cta.mbarriers.reset();
        cta.flight = InFlight::default();
        cta.live = self.threads;
        cta.free_registers = 0;
        let registers = registers(env.kernel, self.threads);
        for w in &mut self.warps {
            let lanes = (self.threads - 32 * w.index).min(32);
            w.live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            w.stack = vec![Path { pc: 0, join: u32::MAX, mask: w.live }];
            w.copies.reset();
            w.group.reset(env.kernel);
            w.registers = registers;
            w.waited = 0;
            for &(slot, special) in &env.kernel.specials {
                let index = w.index;
                w.regs[slot as usize] = std::array::from_fn(|lane| special_value(env, special, at, index, lane as u32));
            }
        }
    }

    fn run(&mut self, env: &Env<'_>, mem: &mut Memory, count: &mut Counters, left: &mut u64) -> Result<(), Stopped> {
        let mut idle = 0;
        let mut events = self.cta.events;
        while self.cta.states.iter().any(|s| *s != State::Done) {
            let mut active = false;
            let mut ready = false;
            for w in 0..self.warps.len() {
                if self.cta.states[w] != State::Ready {
                    continue;
                }
                ready = true;
                let mut cx = Cx { warp: &mut self.warps[w], cta: &mut self.cta, mem, count, env, pc: 0 };
                match turn(&mut cx, left) {
                    Ok(Stop::Turn) => active = true,
                    Ok(Stop::Polled | Stop::Blocked) => {}
                    Err(trap) => return Err(Stopped { warp: w as u32, pc: cx.pc, trap }),
                }
            }
            idle = if active || self.cta.events != events { 0 } else { idle + 1 };
            events = self.cta.events;
            if !ready || idle > IDLE_TURNS {
                return Err(self.deadlock(env));
            }
        }
        self.finish()
    }

    /// Checks at the end of a block.
    fn finish(&mut self) -> Result<(), Stopped> {
        for group in self.warps.chunks(4) {
            let first = &group[0].group;
            if let Some(w) = group.iter().find(|w| w.group.executed != first.executed) {
                let what =
                    format!("warps of one group ran {} and {} wgmma instructions", first.executed, w.group.executed);
                return Err(Stopped { warp: w.index, pc: u32::MAX, trap: trap(0, FaultKind::Operand(what)) });
            }
            if let Some(w) = group.iter().find(|w| w.registers != group[0].registers) {
                let what = format!(
                    "setmaxnreg left warps of one group with {} and {} registers",
                    group[0].registers, w.registers
                );
                return Err(Stopped { warp: w.index, pc: u32::MAX, trap: trap(0, FaultKind::Operand(what)) });
            }
        }
        Ok(())
    }

    fn deadlock(&self, env: &Env<'_>) -> Stopped {
        let line = |pc: u32| env.kernel.code.get(pc as usize).map_or(0, |i| i.line);
        let mut at = Vec::new();
        for (w, s) in self.cta.states.iter().enumerate() {
            let pc = self.warps[w].stack.last().map_or(0, |p| p.pc);
            match s {
                State::Waiting(id) => {
                    at.push(format!("warp {w} waits at barrier {id} (line {})", line(pc.saturating_sub(1))))
                }
                State::Ready => at.push(format!("warp {w} polls at line {}", line(pc))),
                State::Done => {}
            }
        }
        let mbarriers = self.cta.mbarriers.describe();
        at.extend((!mbarriers.is_empty()).then_some(mbarriers));
        let first = self.cta.states.iter().position(|s| *s != State::Done).unwrap_or(0);
        let pc = self.warps[first].stack.last().map_or(0, |p| p.pc.saturating_sub(1));
        Stopped { warp: first as u32, pc, trap: trap(0, FaultKind::Deadlock { waiting: at.join(", ") }) }
    }
}

/// Registers of each thread at the start: a multiprocessor's share for a block of as many threads
/// as the kernel allows.
fn registers(kernel: &Kernel, threads: u32) -> u32 {
    let most = kernel
        .max_threads
        .or(kernel.exact_threads)
        .map_or(threads, |d| d.iter().fold(1, |n: u32, d| n.saturating_mul(*d)));
    (65_536 / most.max(32) / 8 * 8).min(256)
}

fn special_value(env: &Env<'_>, s: Special, at: Dim, warp: u32, lane: u32) -> u64 {
    let t = warp * 32 + lane;
    let [x, y, _] = env.block;
    u64::from(match s {
        Special::Tid(a) => [t % x, t / x % y, t / x / y][a],
        Special::Ntid(a) => env.block[a],
        Special::Ctaid(a) => at[a],
        Special::Nctaid(a) => env.grid[a],
        Special::Lane => lane,
        Special::Warp => warp,
        Special::Warps => env.block.iter().product::<u32>().div_ceil(32),
        Special::LaneMask(order, equal) => {
            (0..32u32).filter(|l| l.cmp(&lane) == order || (equal && *l == lane)).fold(0, |m, l| m | 1 << l)
        }
        Special::DynamicShared => env.dynamic_shared as u32,
        Special::TotalShared => env.kernel.static_shared as u32 + env.dynamic_shared as u32,
        Special::Value(v) => return v,
    })
}

/// Lanes of `mask` for which the guard holds.
#[inline]
fn guarded(cx: &Cx<'_>, guard: Option<(u32, bool)>, mask: u32) -> u32 {
    let Some((slot, negated)) = guard else { return mask };
    let reg = cx.reg(slot);
    let mut yes = 0;
    for (lane, v) in reg.iter().enumerate() {
        yes |= u32::from(*v != 0) << lane;
    }
    mask & if negated { !yes } else { yes }
}

/// Runs a warp until it waits, polls, ends or its turn is over.
fn turn(cx: &mut Cx<'_>, left: &mut u64) -> Result<Stop, Box<Trap>> {
    let kernel = cx.env.kernel;
    let end = kernel.code.len() as u32;
    for _ in 0..TURN {
        let Some(path) = cx.warp.stack.last().copied() else {
            cx.cta.states[cx.warp.index as usize] = State::Done;
            return Ok(Stop::Blocked);
        };
        if path.pc == path.join || path.mask == 0 {
            cx.warp.stack.pop();
            continue;
        }
        if path.pc >= end {
            exit(cx, path.mask)?;
            continue;
        }
        cx.pc = path.pc;
        let inst = &kernel.code[path.pc as usize];
        let mask = guarded(cx, inst.guard, path.mask);
        let active = u64::from(mask.count_ones());
        let c = &mut cx.count.code[path.pc as usize];
        c.lanes += active;
        c.warps += u64::from(mask != 0);
        cx.warp.clock += 1;
        *left = match left.checked_sub(active) {
            Some(l) => l,
            None => return Err(trap(0, FaultKind::Budget { limit: cx.env.options.instruction_limit })),
        };
        let top = cx.warp.stack.len() - 1;
        match &inst.step {
            Step::Run(run) => {
                cx.warp.stack[top].pc += 1;
                if mask == 0 {
                    continue;
                }
                if kernel.has_wgmma {
                    cx.warp.group.observe(kernel, inst).map_err(|k| trap(mask.trailing_zeros(), k))?;
                }
                cx.mem.blocks.early = cx.env.options.overlaps && cx.warp.waited & mask != mask;
                match run(cx, mask)? {
                    Next::Step => {}
                    Next::Yield => return Ok(Stop::Polled),
                    Next::Block => return Ok(Stop::Blocked),
                }
            }
            Step::Jump { target, join } => jump(cx, path, mask, *target, *join),
            Step::Exit => {
                cx.warp.stack[top].pc += 1;
                exit(cx, mask)?;
            }
        }
    }
    Ok(Stop::Turn)
}

/// Sends the lanes of `taken` to `target` and the others on.
fn jump(cx: &mut Cx<'_>, path: Path, taken: u32, target: u32, join: u32) {
    let top = cx.warp.stack.len() - 1;
    let others = path.mask & !taken;
    if others == 0 {
        cx.warp.stack[top].pc = target;
        return;
    }
    if taken == 0 {
        cx.warp.stack[top].pc += 1;
        return;
    }
    if path.join == join {
        // The path ends where the lanes meet: it is not needed any more.
        cx.warp.stack.pop();
    } else {
        cx.warp.stack[top].pc = join;
    }
    for (pc, mask) in [(path.pc + 1, others), (target, taken)] {
        if pc != join {
            cx.warp.stack.push(Path { pc, join, mask });
        }
    }
}

/// The lanes of `mask` end.
fn exit(cx: &mut Cx<'_>, mask: u32) -> Result<(), Box<Trap>> {
    if mask == 0 {
        return Ok(());
    }
    for lane in crate::machine::lanes(mask) {
        cx.finish_stores(lane).map_err(|k| trap(lane, k))?;
    }
    if !cx.warp.group.idle() {
        return Err(trap(0, FaultKind::Operand("a warp ends before wgmma.wait_group".into())));
    }
    for p in &mut cx.warp.stack {
        p.mask &= !mask;
    }
    cx.warp.live &= !mask;
    cx.cta.exited(mask.count_ones());
    Ok(())
}
