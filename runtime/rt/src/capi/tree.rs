//! Trees of tokens.

use super::handles::MODELS;
use super::types::llmcc_batch;
use super::{array, array_mut, guard, llmcc_model, null, read_struct};
use crate::engine::{Sink, Tree};
use crate::error::{Error, Status};
use crate::image::Entry;

/// Evaluates a tree of tokens in one step, in copies of their sequences.
///
/// # Safety
/// `model` is open, `batch` valid, `parents` has an element per token; `rows` has `capacity` floats, `branches` room
/// for `n_branches` numbers; `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_run_tree(
    model: *const llmcc_model,
    entry: u32,
    batch: *const llmcc_batch,
    parents: *const i32,
    rows: *mut f32,
    capacity: usize,
    branches: *mut i32,
    n_branches: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, given) = unsafe { (MODELS.get(model)?, read_struct(batch)?) };
        if batch.is_null() {
            return Err(null("batch"));
        }
        if !given.hidden.is_null() || !given.hidden_out.is_null() || !given.positions.is_null() {
            return Err(Error::invalid(
                "batch.hidden, batch.hidden_out and batch.positions are for llmcc_run: leave them out of a tree",
            ));
        }
        // SAFETY: the caller's promise.
        let (tree, out_rows) = unsafe {
            let (tokens, seqs) = (
                array(given.tokens, given.n_tokens, "batch.tokens")?,
                array(given.seqs, given.n_tokens, "batch.seqs")?,
            );
            let parents = array(parents, given.n_tokens, "parents")?;
            (Tree::new(tokens, seqs, parents)?, array(given.out_rows, given.n_out, "batch.out_rows")?)
        };
        if !needed.is_aligned() {
            return Err(Error::invalid("the pointer to the number of branches is misaligned"));
        }
        let ways = tree.ways();
        let mut engine = model.engine();
        let columns = engine.image().entries.get(entry as usize).map_or(0, Entry::columns);
        let floats = out_rows.len().saturating_mul(columns);
        // SAFETY: the caller's promise.
        let say = || unsafe { needed.as_mut().map_or((), |needed| *needed = ways) };
        if n_branches < ways || capacity < floats {
            say();
            let message = format!(
                "the tree has {ways} ways and {floats} floats of rows; there is room for {n_branches} and {capacity}"
            );
            return Err(Error::new(Status::Buffer, message));
        }
        // SAFETY: the caller's promise: buffers of his own, which may hold anything.
        let (out, branches) =
            unsafe { (array_mut(rows.cast(), floats, "rows")?, array_mut(branches, ways, "branches")?) };
        branches.copy_from_slice(&engine.run_tree(entry as usize, &tree, out_rows, &[], Sink::Memory(out))?);
        say();
        Ok(())
    })
}
