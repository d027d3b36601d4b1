//! Trees of tokens.

use super::handles::MODELS;
use super::types::llmcc_batch;
use super::{array, array_mut, guard, llmcc_model, null, read_struct};
use crate::engine::{Engine, Row, Tree};
use crate::error::{Error, Result, Status};
use crate::image::Entry;
use crate::kv::SeqId;
use crate::reserve::need;

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
        if !given.hidden.is_null() || !given.hidden_out.is_null() {
            return Err(Error::invalid(
                "batch.hidden and batch.hidden_out are for llmcc_run: leave them out of a tree",
            ));
        }
        // SAFETY: the caller's promise.
        let tree = unsafe {
            Tree {
                tokens: array(given.tokens, given.n_tokens, "batch.tokens")?,
                seqs: array(given.seqs, given.n_tokens, "batch.seqs")?,
                parents: array(parents, given.n_tokens, "parents")?,
                out_rows: array(given.out_rows, given.n_out, "batch.out_rows")?,
            }
        };
        if !needed.is_aligned() {
            return Err(Error::invalid("the pointer to the number of branches is misaligned"));
        }
        need(64 * tree.tokens.len())?;
        let leaves = tree.leaves()?;
        let mut engine = model.engine();
        let columns = engine.image().entries.get(entry as usize).map_or(0, Entry::columns);
        let floats = tree.out_rows.len().saturating_mul(columns);
        // SAFETY: the caller's promise.
        let say = || unsafe { needed.as_mut().map_or((), |needed| *needed = leaves) };
        if n_branches < leaves || capacity < floats {
            say();
            let message = format!(
                "the tree has {leaves} ways and {floats} floats of rows; there is room for {n_branches} and {capacity}"
            );
            return Err(Error::new(Status::Buffer, message));
        }
        // SAFETY: the caller's promise.
        let (out, branches) = unsafe { (array_mut(rows, floats, "rows")?, array_mut(branches, leaves, "branches")?) };
        let seqs = run(&mut engine, entry as usize, &tree, (out, columns))?;
        branches.copy_from_slice(&seqs);
        say();
        Ok(())
    })
}

/// Runs a tree, whose rows of `columns` go to `out`.
fn run(engine: &mut Engine, entry: usize, tree: &Tree, (out, columns): (&mut [f32], usize)) -> Result<Vec<SeqId>> {
    let mut failed: Result<()> = Ok(());
    let mut store = |i: usize, mut row: Row| match row.values() {
        Ok(values) => out[i * columns..][..columns].copy_from_slice(values),
        Err(error) => failed = Err(error),
    };
    let seqs = engine.run_tree(entry, tree, &[], &mut store)?;
    if let Err(error) = failed {
        seqs.into_iter().try_for_each(|seq| engine.kv_mut().seq_free(seq))?;
        return Err(error);
    }
    Ok(seqs)
}
