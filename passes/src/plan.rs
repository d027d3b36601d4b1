//! Assembly of the plan: function schedules, call by call, become launches on buffers, packed
//! weights and states.

use crate::PassError;
use crate::memory::{Kind, ResultBuffers, TapBuffers};
use crate::schedule::{FuncSchedule, Source, Step, output_params};
use llmcc_ir::graph::{Arg, Call, Entry, Module};
use llmcc_ir::kernel::{Kernel, ParamKind};
use llmcc_ir::output::EntryOutput;
use llmcc_ir::plan::{Buffer, Launch, Operand, PackedWeight, Plan, PlanEntry, Regime, Storage, WeightExpr};
use llmcc_ir::tap::Tap;
use std::collections::BTreeMap;

/// Builds a plan regime by regime; kernels and weights are shared by all entries.
pub struct Assembler<'a> {
    module: &'a Module,
    plan: Plan,
    kernels: BTreeMap<Kernel, usize>,
    names: BTreeMap<String, usize>,
    weights: BTreeMap<(WeightExpr, (usize, usize, String)), usize>,
    results: ResultBuffers,
}

/// A value of the entry while a regime is assembled.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Buffer(usize),
    Other,
}

impl<'a> Assembler<'a> {
    /// An empty plan for `module`.
    pub fn new(module: &'a Module) -> Assembler<'a> {
        let entry = |e: &Entry| PlanEntry {
            name: e.name.clone(),
            outputs: vec![],
            candidates: None,
            taps: e.taps.clone(),
            context: e.context,
        };
        let plan = Plan {
            name: module.name.clone(),
            info: module.info,
            states: module.states.clone(),
            kernels: vec![],
            weights: vec![],
            slots: vec![],
            entries: module.entries.iter().map(entry).collect(),
            regimes: vec![],
        };
        Assembler {
            module,
            plan,
            kernels: BTreeMap::new(),
            names: BTreeMap::new(),
            weights: BTreeMap::new(),
            results: ResultBuffers::default(),
        }
    }

    /// Adds a regime of entry `entry` from the schedule of each function.
    ///
    /// # Errors
    /// A call that binds a parameter to the wrong kind of thing; an output that no value has.
    pub fn regime(
        &mut self,
        entry: usize,
        max_tokens: Option<usize>,
        schedules: &[FuncSchedule],
    ) -> Result<(), PassError> {
        let module = self.module;
        let Some(Entry { name, calls, outputs, taps, .. }) = module.entries.get(entry) else {
            return Err(PassError::Invalid { func: module.name.clone(), what: format!("there is no entry {entry}") });
        };
        let mut regime = Regime { entry, max_tokens, buffers: vec![], launches: vec![] };
        let mut values: Vec<Bound> = vec![];
        for (index, call) in calls.iter().enumerate() {
            let schedule = schedules.get(call.func).ok_or_else(|| self.invalid(call, "is not defined"))?;
            let mut results: Vec<Vec<usize>> = vec![];
            for step in &schedule.steps {
                let mut operands = vec![];
                for source in &step.inputs {
                    operands.push(self.operand(call, source, &values, &results)?);
                }
                let outputs = self.outputs(step, &mut regime);
                operands.extend(outputs.iter().map(|b| Operand::Buffer(*b)));
                results.push(outputs);
                let kernel = self.kernel(call, &step.kernel);
                regime.launches.push(Launch { kernel, operands, call: index });
            }
            for r in &schedule.results {
                let bound = match self.operand(call, r, &values, &results)? {
                    Operand::Buffer(b) => Bound::Buffer(b),
                    Operand::Weight(_) | Operand::State(_) => Bound::Other,
                };
                values.push(bound);
            }
        }
        let result = |o: &EntryOutput| match values.get(o.at) {
            Some(Bound::Buffer(b)) => Ok((Kind::Output(o.output), *b)),
            _ => {
                let what = format!("its output `{}` is no value that it computes", o.output.word());
                Err(PassError::Invalid { func: name.clone(), what })
            }
        };
        self.results.by_regime.push(outputs.iter().map(result).collect::<Result<_, _>>()?);
        let buffer = |value: usize| match values.get(value) {
            Some(Bound::Buffer(b)) => Ok(*b),
            _ => {
                let what = format!("its tap of value {value} is no value that it computes");
                Err(PassError::Invalid { func: name.clone(), what })
            }
        };
        let tap = |t: &Tap| {
            let routes = t.routes.map(|r| buffer(r.at)).transpose()?;
            Ok(TapBuffers { call: t.call, rows: buffer(t.at)?, routes })
        };
        self.results.taps.push(taps.iter().map(tap).collect::<Result<_, PassError>>()?);
        self.plan.regimes.push(regime);
        Ok(())
    }

    /// The plan, its buffers not yet in slots, and the buffers that the caller reads.
    pub fn finish(self) -> (Plan, ResultBuffers) {
        (self.plan, self.results)
    }

    fn invalid(&self, call: &Call, what: &str) -> PassError {
        let func = self.module.funcs.get(call.func).map_or_else(|| call.func.to_string(), |f| f.name.clone());
        PassError::Invalid { func, what: what.to_string() }
    }

    fn operand(
        &mut self,
        call: &Call,
        source: &Source,
        values: &[Bound],
        results: &[Vec<usize>],
    ) -> Result<Operand, PassError> {
        let arg = |i: usize| call.args.get(i).copied();
        let found = match source {
            Source::Param(i) => match arg(*i) {
                Some(Arg::Value(v)) => match values.get(v) {
                    Some(Bound::Buffer(b)) => Some(Operand::Buffer(*b)),
                    _ => None,
                },
                _ => None,
            },
            Source::Result(launch, output) => {
                results.get(*launch).and_then(|r| r.get(*output)).map(|b| Operand::Buffer(*b))
            }
            Source::State(i) => match arg(*i) {
                Some(Arg::State(s)) => Some(Operand::State(s)),
                _ => None,
            },
            Source::Weight(expr, storage) => {
                let weight = |i: usize| if let Some(Arg::Weight(w)) = arg(i) { Some(w) } else { None };
                expr.substitute(&weight).map(|e| Operand::Weight(self.weight(e, *storage)))
            }
        };
        found.ok_or_else(|| {
            self.invalid(call, &format!("a call binds a parameter to the wrong kind of value ({source:?})"))
        })
    }

    fn weight(&mut self, expr: WeightExpr, storage: Storage) -> usize {
        let key = match storage {
            Storage::Matrix { n, k, format } => (n, k, format.to_string()),
            Storage::Vector { len } => (len, 0, String::new()),
        };
        let next = self.plan.weights.len();
        let index = *self.weights.entry((expr.clone(), key)).or_insert(next);
        if index == next {
            self.plan.weights.push(PackedWeight { expr, storage });
        }
        index
    }

    fn outputs(&self, step: &Step, regime: &mut Regime) -> Vec<usize> {
        let mut out = vec![];
        for p in output_params(step) {
            if let ParamKind::Rows { rows, cols, elem } = step.kernel.params[p].kind {
                regime.buffers.push(Buffer { rows, cols, elem, slot: 0 });
                out.push(regime.buffers.len() - 1);
            }
        }
        out
    }

    /// The index of a kernel, which gets a name when it is new.
    fn kernel(&mut self, call: &Call, kernel: &Kernel) -> usize {
        if let Some(i) = self.kernels.get(kernel) {
            return *i;
        }
        let func = self.module.funcs.get(call.func).map_or("step", |f| f.name.as_str());
        let stem = format!("{func}.{}", kernel.body.short_name());
        let number = self.names.entry(stem.clone()).or_insert(0);
        let named = Kernel { name: format!("{stem}{number}"), ..kernel.clone() };
        *number += 1;
        let index = self.plan.kernels.len();
        self.plan.kernels.push(named);
        self.kernels.insert(kernel.clone(), index);
        index
    }
}
