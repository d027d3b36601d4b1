//! Keys and values: their shape is in [`crate::kv`], the evaluators' copy in [`crate::eval`].

use super::kind::{Kept, Lifetime, NewKept, ReadState, StateKind};
use crate::eval::{EvalError, KvState, kv_from_pages, kv_to_pages};
use crate::kv::{First, KvSpec};
use crate::text::{Parsed, Parser};

impl StateKind for KvSpec {
    fn lifetime(&self) -> Lifetime {
        match self.first {
            Some(first) => Lifetime::First(first.rows),
            None if self.every > 1 => Lifetime::Every(self.every),
            None => Lifetime::Window(self.window),
        }
    }

    fn bytes(&self) -> usize {
        self.page().bytes
    }

    fn columns(&self) -> usize {
        self.width(true)
    }

    /// Sizes are positive.
    fn verify(&self) -> Vec<(&'static str, String)> {
        let mut found = vec![];
        if self.latent && self.key_dim < self.value_dim {
            return vec![(
                "kv-spec",
                format!("{self}: a key is something of its own or nothing, followed by the value"),
            )];
        }
        let keyless = !self.latent && self.key_dim == 0;
        if self.kv_heads == 0 || keyless || self.value_dim == 0 || self.window == Some(0) {
            found.push(("kv-spec", format!("{self} has a size of 0")));
        }
        // (Other states could have fewer rows too, but nothing does, nor do kernels.)
        let rows_alone = self.latent && self.own_dim() == 0 && self.window.is_none();
        if self.every == 0 || self.every > 1 && !rows_alone {
            let message = format!("{self}: several tokens have a row where keys are the values, without a window");
            found.push(("kv-spec", message));
        }
        if let Some(First { rows, behind }) = self.first
            && (rows == 0 || behind == 0 || self.window.is_some() || self.every > 1 || self.latent)
        {
            let message = format!("{self}: the first tokens, at least one, are kept whole, without a window");
            found.push(("kv-spec", message));
        }
        if !self.dtype.holds(self.own_dim()) || !self.dtype.holds(self.value_dim) {
            found.push(("kv-spec", format!("{self}: codes of 4 bits come in pairs, heads have an even size")));
        }
        found
    }
}

impl ReadState for KvSpec {
    fn read(p: &mut Parser<'_>) -> Parsed<KvSpec> {
        p.kv_spec()
    }
}

impl Kept for KvState {
    fn sequences(&self) -> usize {
        KvState::sequences(self)
    }

    fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
        kv_to_pages(self, tables, pool)
    }
}

impl NewKept<KvSpec> for KvState {
    fn empty(spec: KvSpec) -> KvState {
        KvState::new(spec)
    }

    fn from_pool(spec: KvSpec, tables: &[Vec<u32>], lens: &[usize], pool: &[u8]) -> Result<KvState, EvalError> {
        kv_from_pages(spec, tables, lens, pool)
    }
}
