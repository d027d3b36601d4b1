//! Runs a chunk on a GPU.
//!
//! Per step: one copy of the inputs to the device; one graph launch (or, in the regime for any
//! number of tokens and when kernels are timed, one launch per kernel); one copy of the requested
//! rows back (their most probable tokens, or their logits); one wait.

use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use llmcc_abi::{GpuDim, NONE, OperandDesc, StateDesc, StepDesc, operand, rows};

use super::budget::{Budget, largest, workspace};
use super::copier::Copier;
use super::device::{Device, DeviceMemory};
use super::event::Event;
use super::graph::Graph;
use super::inputs::InputBlock;
use super::launch::{KernelLaunch, launch, overlaps};
use super::module::Modules;
use super::results::Results;
use super::upload::upload;
use crate::engine::{Executor, Limits, Opened, Options, Profile, Step, Tapped, slot_offsets};
use crate::error::{Error, Result, Status};
use crate::image::{Image, Tap};
use crate::kv::{Layout, PageStore, of_group, other_size, page_at};

/// Most blocks in y and z.
const MAX_GRID_YZ: u64 = 65535;

/// A model on a GPU.
pub(crate) struct Gpu {
    // Graphs and modules go before the memory they refer to, all before the device.
    graphs: Vec<Option<Graph>>,
    modules: Modules,
    inputs: InputBlock,
    /// By entry.
    results: Vec<Results>,
    /// The entry of the last step.
    entry: usize,
    memory: Memory,
    /// Operands of all steps, as device addresses.
    operands: Vec<u64>,
    /// Address of each kernel's workspace.
    workspaces: Vec<u64>,
    events: Vec<Event>,
    limits: Limits,
    device_bytes: u64,
    copier: Copier,
    opened: Opened,
    /// Kernels may begin before the ones before have ended.
    overlaps: bool,
    device: Arc<Device>,
}

/// A model's device memory, except inputs and cache.
struct Memory {
    weights: DeviceMemory,
    activations: DeviceMemory,
    /// Offset of each slot in `activations`.
    offsets: Vec<usize>,
    workspace: DeviceMemory,
}

/// The states of sequences: a pool for each.
pub(crate) struct DevicePages {
    device: Arc<Device>,
    pools: Vec<DeviceMemory>,
    page_bytes: Vec<usize>,
    /// Group of each pool.
    groups: Vec<usize>,
}

impl Gpu {
    /// Loads `image` to `device`. Returns also the cache and its layout.
    pub fn new(
        image: &Image,
        device: &Arc<Device>,
        limits: Limits,
        options: &Options,
    ) -> Result<(Gpu, DevicePages, Layout)> {
        let _current = device.current()?;
        let start = Instant::now();
        let (free, total) = device.memory()?;
        let budget = Budget::new(image, limits, options.max_tokens, free)?;
        budget.check(device.facts(), free, total)?;
        check_grids(image, limits)?;
        let pages = DevicePages::new(device, &image.states, &budget.cache)?;
        let memory = Memory::new(image, device, limits)?;
        let workspace = workspace(image, limits).map(|w| w.offsets).unwrap_or_default();
        let inputs = InputBlock::new(device, limits.tokens, (0..image.groups()).map(|g| image.track(g)).collect())?;
        let mut gpu = Gpu {
            graphs: image.regimes.iter().map(|_| None).collect(),
            modules: Modules::none(device),
            results: image.entries.iter().map(|e| Results::new(e, limits, |slot| memory.slot(slot))).collect(),
            entry: 0,
            operands: image.operands.iter().map(|o| memory.address(image, &pages, o)).collect(),
            workspaces: workspace.iter().map(|offset| memory.workspace.address() + *offset as u64).collect(),
            events: Vec::new(),
            limits,
            device_bytes: (budget.total() + inputs.len()) as u64,
            inputs,
            memory,
            copier: Copier::new(options.threads),
            opened: Opened { driver: device.took(), memory: start.elapsed(), ..Opened::default() },
            overlaps: overlaps(image, device),
            device: device.clone(),
        };
        gpu.load(image)?;
        Ok((gpu, pages, budget.cache))
    }

    /// Brings weights and code to the device.
    fn load(&mut self, image: &Image) -> Result<()> {
        let start = Instant::now();
        let (modules, copier) = (&mut self.modules, &mut self.copier);
        let to = self.memory.weights.address();
        upload(image, &self.device, copier, to, &mut || modules.load_next(image).map(|_| ()))?;
        copier.rest();
        self.opened.weights = start.elapsed();
        while modules.load_next(image)? {}
        self.opened.code = modules.took();
        Ok(())
    }

    /// Launches step `number` of the plan for `m` rows; `overlaps` where it may begin before the launch
    /// before has ended.
    fn launch(&self, image: &Image, number: usize, m: usize, overlaps: bool) -> Result<()> {
        let step = &image.steps[number];
        let index = step.kernel as usize;
        let kernel = &image.gpu[index];
        let first = step.first_operand as usize;
        let mut values: Vec<u64> = Vec::with_capacity(step.operands as usize + 2);
        values.extend_from_slice(&self.operands[first..first + step.operands as usize]);
        values.extend([self.inputs.context(image.step_group(number)), self.workspaces[index]]);
        let mut parameters: Vec<*mut c_void> = values.iter_mut().map(|v| ptr::from_mut(v).cast()).collect();
        let l = KernelLaunch {
            function: self.modules.functions()[index],
            grid: kernel.grid.map(|d| d.blocks(m as u64) as c_uint),
            threads: kernel.threads,
            shared: kernel.shared,
            overlaps: overlaps && self.overlaps,
            parameters: &mut parameters,
        };
        // SAFETY: the function takes these parameters, by the ABI; sizes were checked with the
        // image and by `check_grids`.
        let code = unsafe { launch(&self.device, l) };
        self.device.check(code, format_args!("cannot launch kernel `{}`", image.kernel_name(index)))
    }

    /// Launches the regime's kernels one by one for the step at hand, timing them if wanted.
    fn launch_all(&mut self, step: &Step) -> Result<()> {
        if step.profile.is_some() {
            let wanted = step.part.len() + 1;
            while self.events.len() < wanted {
                self.events.push(Event::new(&self.device)?);
            }
            self.events[0].record()?;
        }
        let (tokens, out) = (step.inputs.tokens.len(), step.inputs.out_rows.len());
        let first = step.part.start;
        // The first launch follows a copy; timed kernels run alone.
        let mut follows = false;
        for (i, s) in step.image.steps[step.part.clone()].iter().enumerate() {
            let m = if s.rows == rows::TOKENS { tokens } else { out };
            if m > 0 {
                self.launch(step.image, first + i, m, follows && step.profile.is_none())?;
                follows = true;
            }
            if step.profile.is_some() {
                self.events[i + 1].record()?;
            }
        }
        Ok(())
    }

    /// Launches the regime's graph, capturing it first when it is new.
    fn launch_graph(&mut self, image: &Image, regime: usize) -> Result<()> {
        if self.graphs[regime].is_none() {
            let graph = Graph::capture(&self.device, || {
                let regime = image.regimes[regime];
                let first = regime.first_step as usize;
                let most = |i: usize| largest(&image.steps[i], regime.max_tokens, self.limits);
                (first..first + regime.steps as usize).try_for_each(|i| self.launch(image, i, most(i), i > first))
            })?;
            self.graphs[regime] = Some(graph);
        }
        self.graphs[regime].as_ref().map_or(Ok(()), Graph::launch)
    }

    /// Adds up the times between the events of a step that is over.
    fn read_times(&self, step: &Step, profile: &Profile) -> Result<()> {
        let first = step.part.start;
        for (i, s) in step.image.steps[step.part.clone()].iter().enumerate() {
            if s.rows == rows::TOKENS || !step.inputs.out_rows.is_empty() {
                profile.add(first + i, self.events[i + 1].nanoseconds_since(&self.events[i])?);
            }
        }
        Ok(())
    }
}

impl Executor for Gpu {
    fn ready(&self) -> Result<()> {
        self.device.check_usable()
    }

    fn run(&mut self, step: &Step) -> Result<()> {
        let device = self.device.clone();
        let _current = device.current()?;
        self.entry = step.entry;
        if step.image.entries[step.entry].output.is_some() {
            self.results[step.entry].make_room(&device, &step.inputs.wants)?;
        }
        if self.inputs.grow(&device, step.inputs)? {
            // The context has moved, and its address is in the graphs.
            self.graphs.iter_mut().for_each(|g| *g = None);
        }
        self.inputs.send(&device, step.inputs)?;
        let regime = step.image.regimes[step.regime];
        let bounded = regime.max_tokens != NONE && step.part.len() == regime.steps as usize;
        if bounded && step.profile.is_none() {
            self.launch_graph(step.image, step.regime)?;
        } else {
            self.launch_all(step)?;
        }
        if step.image.entries[step.entry].output.is_some() {
            self.results[step.entry].fetch(&device, &step.inputs.wants)?;
        }
        device.synchronize("the GPU failed in a step")?;
        step.profile.map_or(Ok(()), |profile| self.read_times(step, profile))
    }

    fn output(&mut self, row: usize) -> Result<&[f32]> {
        self.results[self.entry].output(&self.device, row)
    }

    fn store(&mut self, rows: &[(usize, usize)], out: &mut [MaybeUninit<f32>]) -> Result<()> {
        self.results[self.entry].store(&self.device, &mut self.copier, rows, out)
    }

    fn hidden(&mut self, tokens: usize) -> Result<&[f32]> {
        self.results[self.entry].hidden(&self.device, tokens)
    }

    fn tapped(&mut self, tap: &Tap, rows: usize) -> Result<Tapped<'_>> {
        let memory = &self.memory;
        self.results[self.entry].tapped(&self.device, tap, rows, |slot| memory.slot(slot))
    }

    fn candidates(&self, row: usize) -> &[f32] {
        self.results[self.entry].candidates(row)
    }

    fn fetched_bytes(&self) -> u64 {
        self.results.iter().map(Results::fetched_bytes).sum()
    }

    fn threads(&self) -> usize {
        1
    }

    fn device(&self) -> &str {
        &self.device.facts().name
    }

    fn rates(&self) -> (u32, u64) {
        let facts = self.device.facts();
        (facts.sms, facts.memory_rate)
    }

    fn activation_bytes(&self, image: &Image, tokens: usize, rows: usize) -> usize {
        let limits = Limits { tokens, rows };
        let bytes = || slot_offsets(image, tokens, rows)?.1.checked_add(workspace(image, limits)?.bytes);
        bytes().unwrap_or(usize::MAX)
    }

    fn arena_bytes(&self) -> usize {
        self.memory.activations.len() + self.memory.workspace.len()
    }

    fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    fn opened(&self) -> Opened {
        self.opened
    }
}

impl Memory {
    fn new(image: &Image, device: &Arc<Device>, limits: Limits) -> Result<Memory> {
        let overflow =
            || Error::new(Status::System, "a step needs more memory than available; use a smaller max_batch_tokens");
        let (offsets, bytes) = slot_offsets(image, limits.tokens, limits.rows).ok_or_else(overflow)?;
        let workspace = workspace(image, limits).ok_or_else(overflow)?;
        let activations = DeviceMemory::zeroed(device, bytes, "activations")?;
        Ok(Memory {
            weights: DeviceMemory::new(device, image.weights_len() as usize, "weights")?,
            workspace: DeviceMemory::zeroed(device, workspace.bytes, "workspace")?,
            activations,
            offsets,
        })
    }

    /// Device address of an activation slot.
    fn slot(&self, slot: u64) -> u64 {
        self.activations.address() + self.offsets[slot as usize] as u64
    }

    /// Device address of an operand.
    fn address(&self, image: &Image, pages: &DevicePages, o: &OperandDesc) -> u64 {
        match o.kind {
            operand::WEIGHT => self.weights.address() + (o.offset - image.desc().weights.off),
            operand::STATE => pages.pools[o.index as usize].address(),
            // The image was checked: there is no other kind.
            _ => self.slot(o.index.into()),
        }
    }
}

impl DevicePages {
    /// Pools, all zero: unused parts of a page must hold numbers, because kernels multiply them by
    /// zero.
    fn new(device: &Arc<Device>, descs: &[StateDesc], layout: &Layout) -> Result<DevicePages> {
        let page_bytes: Vec<usize> = descs.iter().map(|d| d.bytes as usize).collect();
        let pool = |(bytes, pages): (&usize, usize)| {
            DeviceMemory::zeroed(device, bytes.saturating_mul(pages), "the KV cache; use a smaller max_tokens")
        };
        let pools = page_bytes.iter().zip(layout.pages()).map(pool).collect::<Result<Vec<_>>>()?;
        Ok(DevicePages { device: device.clone(), pools, page_bytes, groups: layout.of_state.clone() })
    }
}

impl PageStore for DevicePages {
    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()> {
        let device = &self.device;
        let _current = device.current()?;
        let all = self.pools.iter().zip(&self.page_bytes).zip(&self.groups);
        for ((pool, &bytes), _) in all.filter(|(_, g)| **g == group) {
            let at = |page: u32| pool.address() + page as u64 * bytes as u64;
            // SAFETY: both pages lie in the pool and differ; the steps that use them come later on
            // the same stream.
            let code = unsafe { (device.api().copy_on_device)(at(to), at(from), bytes, device.stream()) };
            device.check(code, "cannot copy a page of the cache on the GPU")?;
        }
        Ok(())
    }

    fn write(&mut self, state: usize, page: u32, bytes: &[u8]) -> Result<()> {
        let device = &self.device;
        let _current = device.current()?;
        let (pool, len) = (&self.pools[state], self.page_bytes[state]);
        let at = page_at(page, (bytes.len(), len), pool.len())?;
        // SAFETY: the page lies in the pool, and the bytes are not given back before the copy is done.
        let code = unsafe {
            (device.api().copy_to_device)(pool.address() + at as u64, bytes.as_ptr().cast(), len, device.stream())
        };
        device.check(code, "cannot copy a state to the GPU")?;
        device.synchronize("cannot copy a state to the GPU")
    }

    fn save(&mut self, group: usize, page: u32, out: &mut [u8]) -> Result<()> {
        let device = &self.device;
        let _current = device.current()?;
        for (state, range) in of_group(&self.groups, &self.page_bytes, group) {
            let (pool, len) = (&self.pools[state], self.page_bytes[state]);
            let out = out.get_mut(range).ok_or_else(other_size)?;
            let at = page_at(page, (out.len(), len), pool.len())?;
            // SAFETY: the page lies in the pool, and `out` lives until the copy is done.
            let code = unsafe {
                (device.api().copy_to_host)(out.as_mut_ptr().cast(), pool.address() + at as u64, len, device.stream())
            };
            device.check(code, "cannot copy a state from the GPU")?;
        }
        device.synchronize("cannot copy a state from the GPU")
    }

    fn load(&mut self, group: usize, page: u32, bytes: &[u8]) -> Result<()> {
        for (state, range) in of_group(&self.groups, &self.page_bytes, group) {
            self.write(state, page, bytes.get(range).ok_or_else(other_size)?)?;
        }
        Ok(())
    }

    fn clear(&mut self, group: usize, page: u32) -> Result<()> {
        let device = &self.device;
        let _current = device.current()?;
        let all = self.pools.iter().zip(&self.page_bytes).zip(&self.groups);
        for ((pool, &bytes), _) in all.filter(|(_, g)| **g == group) {
            // SAFETY: the page lies in the pool; the steps that use it come later on the same
            // stream.
            let code =
                unsafe { (device.api().fill)(pool.address() + page as u64 * bytes as u64, 0, bytes, device.stream()) };
            device.check(code, "cannot clear a recurrent state on the GPU")?;
        }
        Ok(())
    }
}

fn regime_steps(image: &Image, regime: usize) -> &[StepDesc] {
    let r = image.regimes[regime];
    &image.steps[r.first_step as usize..][..r.steps as usize]
}

/// The largest grid of every launch is one the device takes.
fn check_grids(image: &Image, limits: Limits) -> Result<()> {
    for regime in 0..image.regimes.len() {
        for step in regime_steps(image, regime) {
            let m = largest(step, image.regimes[regime].max_tokens, limits) as u64;
            let [x, y, z]: [GpuDim; 3] = image.gpu[step.kernel as usize].grid;
            if x.blocks(m) > i32::MAX as u64 || y.blocks(m) > MAX_GRID_YZ || z.blocks(m) > MAX_GRID_YZ {
                let name = image.kernel_name(step.kernel as usize);
                return Err(Error::invalid(format!(
                    "kernel `{name}` cannot take {m} rows at once; use a smaller max_batch_tokens"
                )));
            }
        }
    }
    Ok(())
}
