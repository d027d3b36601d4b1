//! Joining modules: the entry of another module becomes an entry of this one.

use super::{Arg, Call, Entry, Func, Module, Weight};
use std::collections::HashMap;

impl Module {
    /// Adds the first entry of `other`, a module of the same model, under the name `name`: the weights of both, their
    /// equal functions and their states are shared.
    ///
    /// # Errors
    /// A message saying in what the modules differ: sizes, states, or a weight that has the same name in both.
    pub fn join(&mut self, name: &str, other: Module) -> Result<(), String> {
        if self.info != other.info || self.states != other.states {
            return Err(format!("entry `{name}` has other sizes or states than the model"));
        }
        let Module { weights, funcs, entries, .. } = other;
        let Some(Entry { calls, outputs, taps, .. }) = entries.into_iter().next() else {
            return Err(format!("there is no entry to be called `{name}`"));
        };
        let of_weight = self.add_weights(name, weights)?;
        let of_func: Vec<usize> = funcs.into_iter().map(|f| self.add_func(name, f)).collect();
        let arg = |arg: Arg| match arg {
            Arg::Weight(w) => Arg::Weight(of_weight.get(w).copied().unwrap_or(usize::MAX)),
            other => other,
        };
        let call = |c: Call| Call {
            func: of_func.get(c.func).copied().unwrap_or(usize::MAX),
            args: c.args.into_iter().map(arg).collect(),
        };
        let calls = calls.into_iter().map(call).collect();
        self.entries.push(Entry { name: name.to_string(), calls, outputs, taps });
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
