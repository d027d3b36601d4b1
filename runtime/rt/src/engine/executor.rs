//! The machine that runs the kernels of a chunk.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::batch::Inputs;
use super::opened::Opened;
use super::profile::Profile;
use crate::error::Result;
use crate::image::{Image, Tap};
use crate::interrupt::Watch;
use crate::threads::Pool;

/// One chunk, ready to run: `T = inputs.tokens.len()`, `R = inputs.out_rows.len()`.
pub(crate) struct Step<'a> {
    /// The model.
    pub image: &'a Image,
    /// Index of the entry.
    pub entry: usize,
    /// Index of its regime that serves `T` tokens.
    pub regime: usize,
    /// The steps of the regime to run, all or a part of them.
    pub part: Range<usize>,
    /// Arrays of the step.
    pub inputs: &'a Inputs,
    /// Where times go, when they are wanted.
    pub profile: Option<&'a Profile>,
    /// Whether it is still wanted.
    pub watch: &'a Watch,
}

/// Takes the hidden states of the tokens of a batch from one on.
pub type Keep<'a> = &'a mut dyn FnMut(usize, &[f32]);

/// Takes the rows of a tap, by its number in the entry; an error ends the run.
pub type TapSink<'a> = &'a mut dyn FnMut(usize, Tapped<'_>) -> Result<()>;

/// Rows of a tap: of consecutive tokens of a batch, or of consecutive rows that are asked for.
pub struct Tapped<'a> {
    /// `[rows, width]`
    pub rows: &'a [f32],
    /// `[rows, 2·top]`; empty without experts.
    pub routes: &'a [f32],
    /// Threads that wait meanwhile, if there are some.
    pub pool: Option<&'a mut Pool>,
}

/// Runs the kernels of a chunk on some machine.
pub(crate) trait Executor: Send {
    /// Fails where the machine cannot be used (any more): in a fork of the process.
    fn ready(&self) -> Result<()>;

    /// Runs the kernels of the step's part and waits for them; within the [`Limits`](super::options::Limits).
    fn run(&mut self, step: &Step) -> Result<()>;

    /// Row `row` of the last step's output, which is fetched now if the step was not asked for it.
    fn output(&mut self, row: usize) -> Result<&[f32]>;

    /// Copies rows `.0` of the last step's output to rows `.1` of `out`, where there is room for
    /// them.
    fn store(&mut self, rows: &[(usize, usize)], out: &mut [MaybeUninit<f32>]) -> Result<()> {
        for &(row, to) in rows {
            let values = self.output(row)?;
            out[to * values.len()..][..values.len()].write_copy_of_slice(values);
        }
        Ok(())
    }

    /// The hidden states of all `tokens` tokens of the last step, `[tokens, width]`, of a model that leaves
    /// them.
    fn hidden(&mut self, tokens: usize) -> Result<&[f32]>;

    /// `rows` rows of a tap whose call has just ended.
    fn tapped(&mut self, tap: &Tap, rows: usize) -> Result<Tapped<'_>>;

    /// The candidates of row `row` of the last step, if it was asked for them
    /// ([`llmcc_abi::layout::candidate_cols`]).
    fn candidates(&self, _row: usize) -> &[f32] {
        &[]
    }

    /// Bytes fetched from a GPU since the model was opened.
    fn fetched_bytes(&self) -> u64 {
        0
    }

    /// Threads of this process that compute.
    fn threads(&self) -> usize;

    /// Name of the device.
    fn device(&self) -> &str;

    /// Multiprocessors of a GPU, and the bytes per second of its memory, as its driver says; 0 where
    /// there is none, or none is said.
    fn rates(&self) -> (u32, u64) {
        (0, 0)
    }

    /// Bytes of activations and scratch that steps of `tokens` tokens and `rows` logits rows need.
    fn activation_bytes(&self, image: &Image, tokens: usize, rows: usize) -> usize;

    /// Bytes of activations and scratch allocated now.
    fn arena_bytes(&self) -> usize;

    /// Bytes of a GPU's memory in use: weights, cache and activations.
    fn device_bytes(&self) -> u64;

    /// How long the parts of opening took, on a GPU.
    fn opened(&self) -> Opened {
        Opened::default()
    }

    /// See [`Engine::set_solo_bytes`](super::Engine::set_solo_bytes).
    fn set_solo_bytes(&mut self, _bytes: u64) {}
}
