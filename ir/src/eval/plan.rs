//! Plan level.

use super::kernel::{OperandData, eval_kernel};
use super::moments::TappedRows;
use super::{
    Batch, EvalError, Rows, fp8_rows_from_bytes, fp8_rows_to_bytes, half_rows_from_bytes, half_rows_to_bytes,
    q8_rows_from_bytes, q8_rows_to_bytes, rows_from_bytes, rows_to_bytes,
};
use crate::kernel::{Kernel, ParamKind, RowElem};
use crate::output::EntryOutput;
use crate::plan::{Buffer, Launch, Operand, Plan, Regime};
use crate::state::State;
use crate::tap::Tap;
use crate::ty::Dim;
use crate::verify::accesses;
use std::borrow::Cow;

/// Runs the first entry as the plan says. Returns its first output, f32 `[R, columns]`. See [`eval_plan_entry`].
///
/// # Errors
/// As [`eval_plan_entry`].
pub fn eval_plan(
    plan: &Plan,
    weights: &[Cow<'_, [u8]>],
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<f32>, EvalError> {
    eval_plan_watched(plan, weights, states, batch, &mut |_, _| ())
}

/// [`eval_plan`]; `watch` sees the rows that each kernel stores, and may change them.
///
/// # Errors
/// As [`eval_plan_entry`].
pub fn eval_plan_watched(
    plan: &Plan,
    weights: &[Cow<'_, [u8]>],
    states: &mut [State],
    batch: &Batch,
    watch: &mut dyn FnMut(&Kernel, &mut Rows),
) -> Result<Vec<f32>, EvalError> {
    let outputs = eval_plan_entry(plan, 0, weights, states, batch, watch)?;
    outputs.into_iter().next().ok_or_else(|| EvalError::malformed(&plan.name, "the plan has no output"))
}

/// Runs entry `entry` as the plan says: picks the regime by `T`, runs its launches through [`eval_kernel`]
/// on real memory slots. Returns its outputs in order, f32 rows. `watch` sees the rows that each kernel stores, and
/// may change them.
///
/// `weights[i]` are the packed bytes of [`Plan::weights`] `i`; there is one of `states` for each
/// that the plan has. Slots start as NaN, and a buffer becomes NaN when it is first written: a
/// wrong lifetime or a missing launch shows in the output.
///
/// # Errors
/// [`EvalError`] when the plan is malformed, or as [`eval_kernel`].
pub fn eval_plan_entry(
    plan: &Plan,
    entry: usize,
    weights: &[Cow<'_, [u8]>],
    states: &mut [State],
    batch: &Batch,
    watch: &mut dyn FnMut(&Kernel, &mut Rows),
) -> Result<Vec<Vec<f32>>, EvalError> {
    let mut run = Run::new(plan, entry, weights, states, batch)?;
    for (i, launch) in run.regime.launches.iter().enumerate() {
        run.launch(i, launch, states, watch)?;
    }
    let outputs = plan.entries.get(entry).map_or(&[][..], |e| &e.outputs);
    let rows = |o: &EntryOutput| {
        let (rows, columns) = plan.info.rows(o.output);
        run.rows(o.at, rows, columns)
    };
    outputs.iter().map(rows).collect()
}

/// [`eval_plan_entry`] for the rows of the entry's taps, each read when its call has ended.
///
/// # Errors
/// As there.
pub fn eval_plan_taps(
    plan: &Plan,
    entry: usize,
    weights: &[Cow<'_, [u8]>],
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<TappedRows>, EvalError> {
    let mut run = Run::new(plan, entry, weights, states, batch)?;
    let mut launches = run.regime.launches.iter().enumerate().peekable();
    let mut out = vec![];
    for tap in plan.entries.get(entry).map_or(&[][..], |e| &e.taps) {
        while let Some((i, launch)) = launches.next_if(|(_, l)| l.call <= tap.call) {
            run.launch(i, launch, states, &mut |_, _| ())?;
        }
        out.push(run.tapped(tap)?);
    }
    Ok(out)
}

impl<'a> Run<'a> {
    /// The start of a step of an entry.
    fn new(
        plan: &'a Plan,
        entry: usize,
        weights: &'a [Cow<'a, [u8]>],
        states: &[State],
        batch: &'a Batch,
    ) -> Result<Run<'a>, EvalError> {
        batch.check()?;
        let env = batch.env();
        if states.len() != plan.states.len() || weights.len() != plan.weights.len() {
            let want = (plan.states.len(), plan.weights.len());
            return Err(EvalError::malformed(
                &plan.name,
                format!("{} states and {} weights given, not {want:?}", states.len(), weights.len()),
            ));
        }
        let regime = plan.regime_for(entry, env.tokens);
        let regime = regime.ok_or_else(|| {
            EvalError::malformed(&plan.name, format!("no regime of entry {entry} serves {} tokens", env.tokens))
        })?;
        let slots = plan.slots.iter().map(|s| vec![0xFF; s.per_token * env.tokens + s.per_row * env.rows]).collect();
        Ok(Run { plan, regime, weights, batch, slots, written: vec![false; regime.buffers.len()] })
    }
}

/// A step in progress.
struct Run<'a> {
    plan: &'a Plan,
    regime: &'a Regime,
    weights: &'a [Cow<'a, [u8]>],
    batch: &'a Batch,
    /// Memory.
    slots: Vec<Vec<u8>>,
    /// Buffers that a launch has written.
    written: Vec<bool>,
}

impl<'a> Run<'a> {
    /// The f32 rows in a slot.
    fn rows(&self, slot: usize, rows: Dim, columns: usize) -> Result<Vec<f32>, EvalError> {
        let bytes = rows.eval(self.batch.env()) * columns * 4;
        let found = self.slots.get(slot).and_then(|s| s.get(..bytes));
        let missing = || EvalError::malformed(&self.plan.name, format!("slot {slot} cannot hold its rows"));
        Ok(rows_from_bytes(columns, found.ok_or_else(missing)?).data)
    }

    /// The rows of a tap whose call has just ended.
    fn tapped(&self, tap: &Tap) -> Result<TappedRows, EvalError> {
        let wide = |rows: Vec<f32>| rows.into_iter().map(f64::from).collect();
        let routes = tap.routes.map(|r| self.rows(r.at, tap.rows, r.width())).transpose()?;
        let rows = self.rows(tap.at, tap.rows, tap.width())?;
        Ok(TappedRows { rows: wide(rows), routes: wide(routes.unwrap_or_default()) })
    }

    fn launch(
        &mut self,
        i: usize,
        launch: &Launch,
        states: &mut [State],
        watch: &mut dyn FnMut(&Kernel, &mut Rows),
    ) -> Result<(), EvalError> {
        let kernel = self.plan.kernels.get(launch.kernel);
        let kernel = kernel
            .ok_or_else(|| EvalError::malformed(format!("launch {i}"), format!("no kernel {}", launch.kernel)))?;
        let fail = |message: String| EvalError::malformed(format!("launch {i} of `{}`", kernel.name), message);
        if launch.operands.len() != kernel.params.len() {
            return Err(fail(format!("{} operands for {} parameters", launch.operands.len(), kernel.params.len())));
        }
        let stored = stored_params(kernel);
        self.poison(launch, &stored).map_err(fail)?;
        let mut operands = vec![];
        for (j, (param, operand)) in kernel.params.iter().zip(&launch.operands).enumerate() {
            let data = self
                .bind(&param.kind, *operand, states)
                .ok_or_else(|| fail(format!("operand `{}` cannot be {operand:?}", param.name)))?;
            if let Operand::State(_) = operand
                && launch.operands[..j].contains(operand)
            {
                return Err(fail(format!("{operand:?} is bound twice")));
            }
            operands.push(data);
        }
        let done = eval_kernel(kernel, self.batch, &mut operands);
        for (j, (mut data, operand)) in operands.into_iter().zip(&launch.operands).enumerate() {
            if stored.contains(&j)
                && let OperandData::Rows(rows) = &mut data
            {
                watch(kernel, rows);
            }
            match (data, operand) {
                (OperandData::State(state), Operand::State(s)) => states[*s] = state,
                (data, Operand::Buffer(b)) if stored.contains(&j) => self.write_back(*b, &data),
                _ => {}
            }
        }
        done
    }

    /// Fills buffers about to be written for the first time with NaN.
    fn poison(&mut self, launch: &Launch, stored: &[usize]) -> Result<(), String> {
        for j in stored {
            let Some(Operand::Buffer(b)) = launch.operands.get(*j) else { continue };
            let bytes = self.memory(*b).ok_or_else(|| format!("buffer {b} does not fit its slot"))?;
            let slot = self.regime.buffers[*b].slot;
            if !std::mem::replace(&mut self.written[*b], true) {
                self.slots[slot][..bytes].fill(0xFF);
            }
        }
        Ok(())
    }

    /// Bytes of a buffer in this step, if it exists and its slot can hold it.
    fn memory(&self, buffer: usize) -> Option<usize> {
        let b = self.regime.buffers.get(buffer)?;
        let bytes = b.row_bytes() * b.rows.eval(self.batch.env());
        (bytes <= self.slots.get(b.slot)?.len()).then_some(bytes)
    }

    /// An operand as a parameter of the given kind; `None` if the operand cannot be that.
    fn bind(&self, kind: &ParamKind, operand: Operand, states: &mut [State]) -> Option<OperandData<'a>> {
        match (kind, operand) {
            (ParamKind::Rows { rows, cols, elem }, Operand::Buffer(b)) => {
                let bytes = self.memory(b)?;
                let Buffer { rows: have_rows, cols: have_cols, elem: have, slot } = self.regime.buffers[b];
                let bytes = &self.slots[slot][..bytes];
                match elem {
                    _ if (have_rows, have_cols, have) != (*rows, *cols, *elem) => None,
                    RowElem::F32 => Some(OperandData::Rows(rows_from_bytes(*cols, bytes))),
                    RowElem::F16 | RowElem::Bf16 => Some(OperandData::Rows(half_rows_from_bytes(*cols, *elem, bytes))),
                    RowElem::Q8 { group } | RowElem::I8 { group } => {
                        Some(OperandData::Q8(q8_rows_from_bytes(*cols, *group, bytes)))
                    }
                    RowElem::Fp8 => Some(OperandData::Fp8(fp8_rows_from_bytes(*cols, bytes))),
                }
            }
            (ParamKind::Matrix { .. }, Operand::Weight(w)) => {
                Some(OperandData::Matrix(Cow::Borrowed(self.weights.get(w)?)))
            }
            (ParamKind::Vector { len }, Operand::Weight(w)) => {
                let bytes = self.weights.get(w)?.get(..len * 4)?;
                Some(OperandData::Vector(Cow::Owned(rows_from_bytes(*len, bytes).data)))
            }
            (ParamKind::State(spec), Operand::State(s)) => {
                Some(OperandData::State(std::mem::replace(states.get_mut(s)?, State::new(*spec))))
            }
            _ => None,
        }
    }

    fn write_back(&mut self, buffer: usize, data: &OperandData<'_>) {
        let bytes = match data {
            OperandData::Rows(r) if self.regime.buffers[buffer].elem.is_half() => {
                half_rows_to_bytes(r, self.regime.buffers[buffer].elem)
            }
            OperandData::Rows(r) => rows_to_bytes(r),
            OperandData::Q8(r) => q8_rows_to_bytes(r),
            OperandData::Fp8(r) => fp8_rows_to_bytes(r),
            OperandData::Matrix(_) | OperandData::Vector(_) | OperandData::State(_) => return,
        };
        let slot = self.regime.buffers[buffer].slot;
        self.slots[slot][..bytes.len()].copy_from_slice(&bytes);
    }
}

/// Parameters that a kernel stores into.
fn stored_params(kernel: &Kernel) -> Vec<usize> {
    let mut params: Vec<usize> = accesses(kernel).into_iter().filter(|a| a.write).map(|a| a.param).collect();
    params.sort_unstable();
    params.dedup();
    params
}
