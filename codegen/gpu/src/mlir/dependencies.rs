//! Launches that overlap (programmatic dependent launch, sm90): a kernel may begin while the kernels
//! before it still run, and waits for them with one instruction.
//!
//! [`Builder::wait_for_inputs`] is that instruction. Before it a kernel may only read memory that
//! no kernel writes: weights, tables and the step. The builder follows every pointer to anything
//! else from the parameters on, and records each use that the wait does not dominate
//! ([`Program::early`](llmcc_ir::gpu::program::Program::early)), which the verifier refuses.
//!
//! PTX ISA, `griddepcontrol`: `launch_dependents` lets the next kernel begin once every block has
//! issued it or ended; it orders no memory. `wait` returns when all kernels before are complete and
//! their writes are visible.

use std::collections::HashSet;

use super::record::{Key, key, named};
use super::{Builder, Ty, V};

/// The pointers that a kernel may not use before its wait, and whether it has waited.
pub(super) struct Dependencies {
    /// The kernel may begin before the ones before have ended.
    overlaps: bool,
    /// Pointers to memory that kernels write.
    made: HashSet<Key>,
    /// Whether the wait dominates the next operation, for each open region.
    waited: Vec<bool>,
    /// Uses of [`Dependencies::made`] that the wait does not dominate.
    early: Vec<String>,
}

impl Dependencies {
    pub(super) fn new(overlaps: bool, made: impl Iterator<Item = V>) -> Dependencies {
        Dependencies { overlaps, made: made.map(key).collect(), waited: vec![!overlaps], early: vec![] }
    }

    pub(super) fn open(&mut self) {
        self.waited.push(self.has_waited());
    }

    pub(super) fn close(&mut self) {
        self.waited.pop();
    }

    fn has_waited(&self) -> bool {
        self.waited.last().is_none_or(|w| *w)
    }

    /// Uses that came too early, as text.
    pub(super) fn into_early(self) -> Vec<String> {
        self.early
    }

    /// Whether an operation's text names a pointer to memory that kernels write.
    fn uses(&self, text: &str) -> bool {
        named(text).any(|key| self.made.contains(&key))
    }
}

impl Builder {
    /// Lets the next kernel begin as soon as every block of this one has come here. Nothing where
    /// launches do not overlap.
    pub(super) fn launch_dependents(&mut self) {
        if self.dependencies.overlaps {
            self.asm_effect("griddepcontrol.launch_dependents;", "", &[]);
        }
    }

    /// Waits until the kernels before this one have ended. Every thread that touches memory written
    /// by kernels comes here before; and in every launch some thread does, so that the end of a
    /// kernel says that all before it have ended too. Nothing where launches do not overlap.
    pub fn wait_for_inputs(&mut self) {
        if self.dependencies.overlaps {
            self.asm_effect("griddepcontrol.wait;", "~{memory}", &[]);
        }
        if let Some(waited) = self.dependencies.waited.last_mut() {
            *waited = true;
        }
    }

    /// Notes a use of memory that came too early.
    pub(super) fn check_use(&mut self, text: &str) {
        if !self.dependencies.has_waited() && self.dependencies.uses(text) {
            self.dependencies.early.push(text.to_owned());
        }
    }

    /// The result of an operation: a pointer derived from one to memory that kernels write is such
    /// a pointer as well; any other result is a use.
    pub(super) fn follow(&mut self, v: V, text: &str) {
        if v.ty != Ty::Global {
            self.check_use(text);
        } else if self.dependencies.uses(text) {
            self.dependencies.made.insert(key(v));
        }
    }

    /// `to` is one of `from`.
    pub(super) fn derive(&mut self, to: V, from: &[V]) {
        let made = &mut self.dependencies.made;
        if from.iter().any(|v| made.contains(&key(*v))) {
            made.insert(key(to));
        }
    }
}
