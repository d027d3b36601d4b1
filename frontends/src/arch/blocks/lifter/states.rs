//! States that a function under construction binds.

use super::Draft;
use llmcc_ir::graph::{Arg, Role, Value};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::{FixedSpec, StateSpec};

impl Draft<'_, '_> {
    /// The keys and values of a new attention layer. A window that no sequence can outgrow is none.
    pub(crate) fn kv(
        &mut self,
        name: &str,
        kv_heads: usize,
        (key_dim, value_dim): (usize, usize),
        window: Option<usize>,
    ) -> Value {
        let dtype = self.lifter.kv_dtype;
        self.paged(name, KvSpec { dtype, kv_heads, key_dim, value_dim, latent: false, window, every: 1, first: None })
    }

    /// The same of a layer whose keys have `key_dim` elements, the last `value_dim` of them being
    /// the values.
    pub(crate) fn latent_kv(
        &mut self,
        name: &str,
        (key_dim, value_dim): (usize, usize),
        window: Option<usize>,
    ) -> Value {
        let dtype = self.lifter.kv_dtype;
        self.paged(name, KvSpec { dtype, kv_heads: 1, key_dim, value_dim, latent: true, window, every: 1, first: None })
    }

    /// The same of rows of `dim` elements that are key and value, one for each `every` tokens.
    pub(crate) fn kv_of_windows(&mut self, name: &str, dim: usize, every: usize) -> Value {
        let dtype = self.lifter.kv_dtype;
        let (key_dim, value_dim) = (dim, dim);
        self.paged(
            name,
            KvSpec { dtype, kv_heads: 1, key_dim, value_dim, latent: true, window: None, every, first: None },
        )
    }

    fn paged(&mut self, name: &str, spec: KvSpec) -> Value {
        let most = self.lifter.module.info.max_context;
        let window = spec.window.filter(|w| *w < most);
        self.state(name, KvSpec { window, ..spec }.into())
    }

    /// A state of fixed size, `[heads, rows, cols]`, that no other function has.
    pub(crate) fn fixed(&mut self, name: &str, [heads, rows, cols]: [usize; 3]) -> Value {
        self.state(name, FixedSpec { heads, rows, cols }.into())
    }

    /// The keys and values of an earlier layer, which are only read.
    pub(crate) fn kv_of(&mut self, name: &str, layer: usize) -> Value {
        let at = self.lifter.owners.iter().position(|of| *of == Some(layer));
        match at.and_then(|i| Some((i, *self.lifter.module.states.get(i)?))) {
            Some((i, spec)) => self.bind(name, spec, Role::State, Arg::State(i)),
            None => {
                let what = format!("layer {layer} has no keys and values that others could read");
                self.refuse(self.structure(what))
            }
        }
    }

    /// The number of the state that was added last.
    pub(crate) fn last_state(&self) -> usize {
        self.lifter.module.states.len().saturating_sub(1)
    }

    /// State number `state`, which a function of another entry has added.
    pub(crate) fn state_of(&mut self, name: &str, state: usize) -> Value {
        match self.lifter.module.states.get(state).copied() {
            Some(spec) => self.bind(name, spec, Role::State, Arg::State(state)),
            None => self.misfit("there is no such state"),
        }
    }

    fn state(&mut self, name: &str, spec: StateSpec) -> Value {
        self.lifter.owners.push(self.layer);
        let states = &mut self.lifter.module.states;
        states.push(spec);
        let i = states.len() - 1;
        self.bind(name, spec, Role::State, Arg::State(i))
    }
}
