//! Joining modules: the entry of another module becomes an entry of this one.

use super::{Arg, Call, Entry, Func, Module, Role, Weight};
use std::collections::HashMap;

impl Module {
    /// Adds the first entry of `other`, a module of the same model, under the name `name`: the weights of both, their
    /// equal functions and their states are shared.
    ///
    /// # Errors
    /// A message saying in what the modules differ: sizes, states, or a weight that has the same name in both.
    pub fn join(&mut self, name: &str, other: Module) -> Result<(), String> {
        if self.states != other.states {
            return Err(format!("entry `{name}` has other states than the model"));
        }
        self.add_entry(name, other, 0)
    }

    /// [`Module::join`] of a module whose states become further ones: its entry appends to a track of its own.
    ///
    /// # Errors
    /// As there, but for states.
    pub fn join_apart(&mut self, name: &str, other: Module) -> Result<(), String> {
        let first_state = self.states.len();
        self.states.extend(&other.states);
        self.add_entry(name, other, first_state)?;
        self.share_weights();
        Ok(())
    }

    /// Marks weights that several calls read, each beside other weights, as shared: a pass that rewrote one for a call
    /// (by the gains of a norm) would store it once more.
    fn share_weights(&mut self) {
        let mut calls_of: HashMap<usize, Vec<&Call>> = HashMap::new();
        for call in self.entries.iter().flat_map(|e| &e.calls) {
            for arg in &call.args {
                if let Arg::Weight(w) = arg {
                    calls_of.entry(*w).or_default().push(call);
                }
            }
        }
        let mut shared: Vec<(usize, usize)> = vec![];
        for (weight, calls) in &calls_of {
            if calls.windows(2).all(|two| two[0].binds_as(two[1])) {
                continue;
            }
            for call in calls {
                let at = call.args.iter().enumerate().filter(|(_, arg)| **arg == Arg::Weight(*weight));
                shared.extend(at.map(|(param, _)| (call.func, param)));
            }
        }
        for (func, param) in shared {
            let param = self.funcs.get_mut(func).and_then(|f| f.params.get_mut(param));
            if let Some(param) = param.filter(|p| p.role == Role::Weight) {
                param.role = Role::SharedWeight;
            }
        }
    }

    /// Adds the first entry of `other`; its state 0 is state `first_state` here.
    fn add_entry(&mut self, name: &str, other: Module, first_state: usize) -> Result<(), String> {
        if self.info != other.info {
            return Err(format!("entry `{name}` has other sizes than the model"));
        }
        let Module { weights, funcs, entries, .. } = other;
        let Some(Entry { calls, outputs, taps, context, .. }) = entries.into_iter().next() else {
            return Err(format!("there is no entry to be called `{name}`"));
        };
        let of_weight = self.add_weights(name, weights)?;
        let of_func: Vec<usize> = funcs.into_iter().map(|f| self.add_func(name, f)).collect();
        let arg = |arg: Arg| match arg {
            Arg::Weight(w) => Arg::Weight(of_weight.get(w).copied().unwrap_or(usize::MAX)),
            Arg::State(s) => Arg::State(first_state + s),
            other => other,
        };
        let call = |c: Call| Call {
            func: of_func.get(c.func).copied().unwrap_or(usize::MAX),
            args: c.args.into_iter().map(arg).collect(),
        };
        let calls = calls.into_iter().map(call).collect();
        self.entries.push(Entry { name: name.to_string(), calls, outputs, taps, context });
        Ok(())
    }

    /// The index of each of the weights; weights that are new are added.
    ///
    /// # Errors
    /// A message naming a weight of the entry `of` whose name another one has.
    fn add_weights(&mut self, of: &str, weights: Vec<Weight>) -> Result<Vec<usize>, String> {
        let known: HashMap<String, usize> = self.weights.iter().map(|w| w.name.clone()).zip(0..).collect();
        let mut indices = vec![];
        for w in weights {
            match known.get(&w.name) {
                Some(at) if self.weights[*at] != w => {
                    return Err(format!("entry `{of}` has another weight `{}` than the model", w.name));
                }
                Some(at) => indices.push(*at),
                None => {
                    indices.push(self.weights.len());
                    self.weights.push(w);
                }
            }
        }
        Ok(indices)
    }

    /// The index of an equal function, or of `func`, which gets the name of the entry `of` in front of its own if
    /// another function has that.
    fn add_func(&mut self, of: &str, func: Func) -> usize {
        if let Some(at) = self.funcs.iter().position(|f| f.computes_as(&func)) {
            return at;
        }
        let mut func = func;
        while self.funcs.iter().any(|f| f.name == func.name) {
            func.name = format!("{of}.{}", func.name);
        }
        self.funcs.push(func);
        self.funcs.len() - 1
    }
}
