//! Changes of a module's caches: states, the functions that read them, and the arguments of calls.

use super::caches::{Origin, origin};
use super::kept::{Kept, Part};
use super::rebuild::{More, Rebuild};
use super::variants::variants;
use llmcc_ir::graph::{Arg, Call, Entry, Func, FuncBuilder, Input, Mistake, Module, Role, Value, Weight};
use llmcc_ir::ty::{DType, TensorType};
use std::collections::BTreeMap;

/// The states that a cache has become.
struct Change {
    part: Part,
    last: usize,
    first: usize,
}

struct Work {
    kept: Kept,
    changes: BTreeMap<usize, Change>,
    /// Rotary tables of places, and the functions that make them.
    tables: Vec<(Origin, usize)>,
}

/// Lets parts of caches keep what `kept` says.
///
/// # Errors
/// The first operation that is not well typed, which is a bug of the compiler.
pub(super) fn apply(module: &mut Module, kept: Kept, parts: Vec<(usize, Part)>) -> Result<(), Mistake> {
    let before = module.clone();
    let mut changes = BTreeMap::new();
    for (state, part) in parts {
        let Some(spec) = module.states[state].paged().copied() else { continue };
        let of = part.of(spec);
        let last = match part.rest(spec) {
            Some(rest) => {
                module.states[state] = rest.into();
                module.states.push(kept.last(of).into());
                module.states.len() - 1
            }
            None => {
                module.states[state] = kept.last(of).into();
                state
            }
        };
        module.states.push(kept.sinks(of).into());
        changes.insert(state, Change { part, last, first: module.states.len() - 1 });
    }
    Work { kept, changes, tables: vec![] }.all(module, &before)
}

impl Work {
    fn all(&mut self, module: &mut Module, before: &Module) -> Result<(), Mistake> {
        let make = |f: &Func, caches: &[(usize, Part)]| Rebuild::new(f, self.kept, caches).all();
        let made = variants(module, before, "kept", |call| self.changed(call), make)?;
        for (at, entry) in before.entries.iter().enumerate() {
            let mut tables: Vec<(Origin, usize)> = vec![];
            let mut more: Vec<Option<(usize, Vec<Arg>)>> = vec![];
            for call in &entry.calls {
                more.push(match made.get(&(call.func, self.changed(call))) {
                    Some((func, of)) => {
                        let args = of.iter().map(|of| self.argument(module, before, (entry, call), of, &mut tables));
                        Some((*func, args.collect::<Result<_, _>>()?))
                    }
                    None => None,
                });
            }
            // The tables come first, so all other values move up.
            let entry = &mut module.entries[at];
            entry.outputs.iter_mut().for_each(|output| output.at += tables.len());
            for (call, more) in entry.calls.iter_mut().zip(more) {
                let moved = |arg: &mut Arg| {
                    if let Arg::Value(at) = arg {
                        *at += tables.len()
                    }
                };
                call.args.iter_mut().for_each(moved);
                if let Some((func, args)) = more {
                    call.func = func;
                    call.args.extend(args);
                }
            }
            let made = |(of, func): &(Origin, usize)| Call {
                func: *func,
                args: vec![Arg::Weight(of.frequencies), Arg::Input(Input::Positions)],
            };
            entry.calls.splice(0..0, tables.iter().map(made));
        }
        Ok(())
    }

    /// Parameters of a call that are changed caches.
    fn changed(&self, call: &Call) -> Vec<(usize, Part)> {
        let of = |(param, arg): (usize, &Arg)| match arg {
            Arg::State(state) => self.changes.get(state).map(|change| (param, change.part.clone())),
            _ => None,
        };
        call.args.iter().enumerate().filter_map(of).collect()
    }

    /// The argument of a call for a new parameter; `tables` are the entry's tables of places, which are its first
    /// values.
    fn argument(
        &mut self,
        module: &mut Module,
        before: &Module,
        (entry, call): (&Entry, &Call),
        of: &More,
        tables: &mut Vec<(Origin, usize)>,
    ) -> Result<Arg, Mistake> {
        let change = |param: &usize| match call.args[*param] {
            Arg::State(state) => self.changes.get(&state),
            _ => None,
        };
        Ok(match of {
            More::First(param) => change(param).map_or(call.args[*param], |change| Arg::State(change.first)),
            More::Last(param) => change(param).map_or(call.args[*param], |change| Arg::State(change.last)),
            More::Columns(columns) => Arg::Weight(listed(&mut module.weights, columns)),
            More::Table(param) => {
                // Known to have one since caches were chosen.
                let Ok(from) = origin(before, (entry, call), Value(*param as u32)) else {
                    return Ok(call.args[*param]);
                };
                if !tables.iter().any(|(of, _)| *of == from) {
                    tables.push((from.clone(), self.table(module, &from)?));
                }
                Arg::Value(tables.iter().position(|(of, _)| *of == from).unwrap_or_default())
            }
        })
    }

    /// The function that makes a table of places in the cache.
    fn table(&mut self, module: &mut Module, from: &Origin) -> Result<usize, Mistake> {
        if let Some((_, at)) = self.tables.iter().find(|(of, _)| of == from) {
            return Ok(*at);
        }
        let at = module.funcs.len();
        let mut b = FuncBuilder::new(format!("places{at}"));
        let frequencies = b.param("inv_freq", module.weights[from.frequencies].ty.clone(), Role::SharedWeight);
        let positions = b.param("positions", Input::Positions.ty(0), Role::Data);
        let places = b.op(self.kept.placed(&from.op), &[positions, frequencies]);
        module.funcs.push(b.try_finish(&[places])?);
        self.tables.push((from.clone(), at));
        Ok(at)
    }
}

/// The weight that lists these columns; adds it, if there is none.
fn listed(weights: &mut Vec<Weight>, columns: &[f32]) -> usize {
    let own = |w: &Weight| w.name.starts_with("$kept.");
    if let Some(known) = weights.iter().position(|w| own(w) && w.data.as_deref() == Some(columns)) {
        return known;
    }
    let name = format!("$kept.columns{}", weights.iter().filter(|w| own(w)).count());
    let ty = TensorType::new(DType::F32, [columns.len().into()]);
    weights.push(Weight { name, ty, data: Some(columns.to_vec()) });
    weights.len() - 1
}
