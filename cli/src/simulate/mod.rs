//! Predictions of workloads: the engine's scheduler, simulated step by step (`scheduler.rs`), over steps that take as
//! long as the plan's cost model says (`cost.rs`), on the artifact's target, on this machine after a calibration
//! (`calibration.rs`), or on a machine of [`crate::machines`].

pub mod cache;
pub mod calibration;
pub mod cost;
pub mod scheduler;

use crate::Error;
use crate::machines::{Machine, Rates};
use crate::manifest::{Manifest, Version};
use crate::memory;
use crate::workload::Workload;
use crate::workload::figures::{Figures, Targets};
use calibration::Calibration;
use cost::{Costs, Shape};
use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::pools::{self, Group};
use llmcc_codegen::artifact::isa;
use llmcc_codegen::tables::{Tables, tables};
use llmcc_ir::target::Family;
use scheduler::{Setup, Timing, simulate};
use std::path::Path;

/// An artifact whose service is predicted.
pub struct Subject {
    /// Its version.
    pub version: Version,
    /// Costs of its steps.
    pub costs: Costs,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Longest sequence.
    pub max_context: usize,
    tables: Tables,
    gpu: bool,
    /// Tokens of the largest step.
    chunk: usize,
    /// Bytes of its activations.
    activations: usize,
}

/// Where a workload is to be predicted for.
#[derive(Clone, Copy)]
pub enum On<'a> {
    /// The artifact's target, by the rates of its line.
    Target,
    /// This machine.
    Here(&'a Calibration),
    /// A machine by its data sheet.
    Machine(&'a Machine),
}

/// Choices about the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    /// Most requests in a step; `None`: as many as there are users, at least 64.
    pub running: Option<usize>,
    /// Tokens that the cache holds; `None`: the longest context, at least 16384.
    pub cache_tokens: Option<usize>,
    /// Times of good requests.
    pub targets: Targets,
}

impl Subject {
    /// The artifact at `path`, in its version for `target`; `None`: the first that this processor runs, or else the
    /// preferred one. No code of it runs.
    ///
    /// # Errors
    /// Not an artifact; no such version; a model that writes no text, or without predictions.
    pub fn open(path: &Path, target: Option<&str>) -> Result<Subject, Error> {
        let fail = |message: String| Error::Artifact { path: path.to_owned(), message };
        let manifest = Manifest::of(path)?;
        let wanted = |v: &&Version| match target {
            Some(name) => v.target == name,
            None => v.spec().is_some_and(llmcc_ir::target::TargetSpec::runs_here),
        };
        let found = manifest.versions.iter().find(wanted);
        let version = found.or(manifest.versions.first().filter(|_| target.is_none())).ok_or_else(|| {
            let known: Vec<&str> = manifest.versions.iter().map(|v| v.target.as_str()).collect();
            fail(format!("it has no version for {}: it has {}", target.unwrap_or("?"), known.join(", ")))
        })?;
        if !matches!(manifest.info.output.as_str(), "logits" | "") {
            return Err(fail(format!("it gives {} and writes no text: requests are for texts", manifest.info.output)));
        }
        let spec =
            version.spec().ok_or_else(|| fail(format!("{}: this llmcc knows no such target", version.target)))?;
        let unknown = || fail("its manifest has no predictions for its kernels; compile it again".into());
        let tables = tables(path)?.into_iter().find(|t| t.isa == isa(spec)).ok_or_else(unknown)?;
        let costs = Costs::of(version, &tables).ok_or_else(unknown)?;
        let (memory, info) = (&manifest.memory, &manifest.info);
        let gpu = spec.family() == Family::Nvidia;
        let by_default = if gpu { pools::GPU_STEP_TOKENS } else { pools::STEP_TOKENS };
        let chunk = if memory.step_tokens == 0 { by_default } else { memory.step_tokens };
        Ok(Subject {
            version: version.clone(),
            costs,
            vocab: info.vocab,
            max_context: info.max_context,
            tables,
            gpu,
            chunk,
            activations: memory.step,
        })
    }

    /// Groups of states with pages for so many tokens.
    fn groups(&self, tokens: usize) -> Vec<Group> {
        let mut groups = memory::groups(&self.tables.states);
        let pages = tokens.div_ceil(PAGE_TOKENS);
        match self.gpu {
            true => pools::allocate(&mut groups, pages, tokens, self.chunk),
            false => pools::reserve(&mut groups, pages),
        }
        groups
    }

    /// Bytes of weights and activations.
    fn fixed(&self) -> usize {
        self.version.weights + self.activations
    }

    /// The cache that a machine has room for: the default's or wanted tokens, or as many as fit into its memory.
    fn cache(&self, on: On, wanted: Option<usize>) -> Result<Vec<Group>, String> {
        let tokens = wanted.unwrap_or(self.max_context.max(pools::CACHE_TOKENS));
        let On::Machine(machine) = on else { return Ok(self.groups(tokens)) };
        let room = machine.bytes - self.fixed() as f64;
        let bytes = |tokens: usize| self.groups(tokens).iter().map(Group::bytes).sum::<usize>() as f64;
        match pools::most_tokens(tokens, |tokens| bytes(tokens) <= room) {
            0 => Err(format!(
                "{} are more than the {} of memory that it has",
                crate::units::bytes(self.fixed() as f64),
                crate::units::bytes(machine.bytes)
            )),
            tokens => Ok(self.groups(tokens)),
        }
    }

    /// Predicts a workload.
    ///
    /// # Errors
    /// The model or the cache has no room: why.
    pub fn predict(&self, workload: &Workload, on: On, choices: &Choices) -> Result<Figures, String> {
        let longest = workload.longest();
        if longest > self.max_context {
            let most = self.max_context;
            return Err(format!("a request has {longest} tokens, but the longest context is {most}: shorten it"));
        }
        let setup = Setup {
            running: choices.running.unwrap_or_else(|| workload.users.unwrap_or(0).max(llmcc_steps::RUNNING)),
            chunk: self.chunk,
            groups: self.cache(on, choices.cache_tokens)?,
            vocab: self.vocab,
            ..Setup::default()
        };
        let mut simulated = simulate(workload, &setup, &self.timing(on))?;
        simulated.totals.memory += self.fixed() as f64;
        if let On::Machine(Machine { watts: Some(watts), .. }) = on {
            simulated.totals.joules = Some(watts * simulated.totals.busy);
        }
        Ok(Figures::of(workload, &simulated.records, choices.targets, simulated.totals))
    }

    fn timing<'a>(&'a self, on: On<'a>) -> Steps<'a> {
        let rates = match on {
            On::Machine(machine) => Some(machine.rates()),
            On::Target | On::Here(_) => None,
        };
        let calibration = match on {
            On::Here(calibration) => Some(calibration),
            On::Target | On::Machine(_) => None,
        };
        Steps { costs: &self.costs, rates, calibration }
    }
}

/// Times of steps.
struct Steps<'a> {
    costs: &'a Costs,
    rates: Option<Rates>,
    calibration: Option<&'a Calibration>,
}

impl Timing for Steps<'_> {
    fn step(&self, shape: &Shape) -> f64 {
        let predicted = self.costs.seconds(shape, self.rates.as_ref());
        self.calibration.map_or(predicted.sum(), |calibration| calibration.seconds(shape, predicted))
    }

    fn between(&self) -> f64 {
        self.calibration.map_or(0.0, |calibration| calibration.between)
    }
}
