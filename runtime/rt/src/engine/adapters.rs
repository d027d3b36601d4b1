//! Adapters in memory: which slots are in use, and by which sequences.

use super::Engine;
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use llmcc_abi::state;

/// An adapter's matrices: index of each state with the bytes of its slot.
pub type Matrices = Vec<(usize, Vec<u8>)>;

impl Engine {
    /// Puts an adapter into a slot that is free; returns its number, from 1 on.
    ///
    /// # Errors
    /// No slot is free; matrices of other sizes than the artifact's.
    pub fn add_adapter(&mut self, matrices: &Matrices) -> Result<u32> {
        let states = &self.image.states;
        let fits = |(state, bytes): &(usize, Vec<u8>)| {
            states.get(*state).is_some_and(|s| s.kind == state::ADAPTER && s.bytes == bytes.len() as u64)
        };
        let all = states.iter().filter(|s| s.kind == state::ADAPTER).count();
        if !matrices.iter().all(fits) || matrices.len() != all {
            return Err(Error::artifact(
                "the artifact's room for adapters differs from its manifest; compile it again",
            ));
        }
        let Some(free) = self.loaded.iter().position(|used| !used) else {
            let slots = self.loaded.len();
            let why = match slots {
                0 => "the artifact has no room for adapters: compile the model with `--lora-slots`".to_string(),
                _ => format!(
                    "all {slots} adapters are loaded: unload one, or compile the model with more `--lora-slots`"
                ),
            };
            return Err(Error::new(Status::Unsupported, why));
        };
        let slot = free as u32 + 1;
        for (state, bytes) in matrices {
            self.kv.write_adapter(*state, slot, bytes)?;
        }
        self.loaded[free] = true;
        Ok(slot)
    }

    /// Frees the slot of an adapter.
    ///
    /// # Errors
    /// It is not loaded, or sequences have it.
    pub fn remove_adapter(&mut self, adapter: i32) -> Result<()> {
        let slot = self.adapter(adapter)?;
        match self.kv.users(slot) {
            0 => self.loaded[slot as usize - 1] = false,
            n => {
                return Err(Error::invalid(format!(
                    "{n} sequences use adapter {adapter}: free them, or give them another one"
                )));
            }
        }
        Ok(())
    }

    /// Gives a sequence without tokens an adapter; 0: none.
    ///
    /// # Errors
    /// The adapter is not loaded, or the sequence has tokens.
    pub fn set_adapter(&mut self, seq: SeqId, adapter: i32) -> Result<()> {
        let slot = self.adapter_or_none(adapter)?;
        self.kv.set_adapter(seq, slot)
    }

    /// A new sequence with an adapter; 0: none.
    ///
    /// # Errors
    /// The adapter is not loaded; too many sequences.
    pub fn adapted_sequence(&mut self, adapter: i32) -> Result<SeqId> {
        let slot = self.adapter_or_none(adapter)?;
        let seq = self.kv.seq_new()?;
        self.kv.set_adapter(seq, slot)?;
        Ok(seq)
    }

    /// The slot of an adapter that is loaded; 0 for none.
    fn adapter_or_none(&self, adapter: i32) -> Result<u32> {
        if adapter == 0 { Ok(0) } else { self.adapter(adapter) }
    }

    /// The slot of an adapter that is loaded.
    fn adapter(&self, adapter: i32) -> Result<u32> {
        let index = usize::try_from(adapter).ok().and_then(|n| n.checked_sub(1));
        match index.and_then(|i| self.loaded.get(i)) {
            Some(true) => Ok(adapter as u32),
            Some(false) | None => Err(Error::invalid(format!(
                "no adapter {adapter} is loaded; use a number that llmcc_adapter_load returned"
            ))),
        }
    }
}
