//! Embeddings, and scores of classes.

use std::borrow::Cow;

use super::handles::MODELS;
use super::types::{LLMCC_EMBED_NORMALIZE, LLMCC_EMBED_RAW, llmcc_embed_rows};
use super::{Model, array, guard, llmcc_model, null, read_struct};
use crate::embed::{Rows, embed};
use crate::engine::Engine;
use crate::error::{Error, Result, Status};
use crate::reserve::need;
use llmcc_abi::output::pool;

/// Pooled rows of an embedder, or scores of a classifier, f32 `[n_rows, columns]`.
///
/// # Safety
/// `model` is open, `rows` valid, `out` has `capacity` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_embed(
    model: *const llmcc_model,
    rows: *const llmcc_embed_rows,
    out: *mut f32,
    capacity: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, given) = unsafe { (MODELS.get(model)?, read_struct(rows)?) };
        if rows.is_null() {
            return Err(null("rows"));
        }
        let normalize = normalize(given.flags)?;
        let pool = Some(given.pool).filter(|pool| *pool != pool::NONE);
        // SAFETY: the caller's promise.
        let TokenRows { tokens, lengths, types } = unsafe { token_rows(&model, &given)? };
        let mut engine = model.engine();
        check_room(&engine, lengths.len(), out, capacity)?;
        let found = embed(&mut engine, &Rows { tokens, lengths, types: &types, normalize, pool })?;
        // SAFETY: there is room for as many, as was just checked.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), out, found.len()) };
        Ok(())
    })
}

/// Tokens of several rows, one row after the other.
pub(super) struct TokenRows<'a> {
    /// All tokens.
    pub tokens: &'a [i32],
    /// Tokens of each row.
    pub lengths: &'a [usize],
    /// The type of each token; empty: all are 0.
    pub types: Cow<'a, [i32]>,
}

/// The caller's rows of tokens. Without types of the caller's, tokens have the types of texts alone.
///
/// # Errors
/// A null pointer, or lengths whose sum is too large.
///
/// # Safety
/// The arrays of `given` have the lengths that it says.
pub(super) unsafe fn token_rows<'a>(model: &Model, given: &llmcc_embed_rows) -> Result<TokenRows<'a>> {
    // SAFETY: the caller's promise.
    let lengths = unsafe { array(given.lengths, given.n_rows, "rows.lengths")? };
    let n = lengths.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
    let n = n.ok_or_else(|| Error::invalid("rows.lengths add up to more tokens than fit in memory"))?;
    // SAFETY: the caller's promise.
    let tokens = unsafe { array(given.tokens, n, "rows.tokens")? };
    let types = match given.types.is_null() {
        true => types_alone(model, tokens, lengths)?.into(),
        // SAFETY: the caller's promise.
        false => unsafe { array(given.types, n, "rows.types")? }.into(),
    };
    Ok(TokenRows { tokens, lengths, types })
}

/// Whether tokens of texts that become rows have types.
pub(super) fn takes_types(engine: &Engine) -> bool {
    let image = engine.image();
    image.entries[image.pooled().unwrap_or(0)].types > 0
}

/// Types of the tokens of texts alone; none where all are 0.
pub(super) fn types_alone(model: &Model, tokens: &[i32], lengths: &[usize]) -> Result<Vec<i32>> {
    if !takes_types(&model.engine()) {
        return Ok(vec![]);
    }
    // (Lists grow by doubling.)
    need(tokens.len().saturating_mul(2 * size_of::<i32>()))?;
    Ok(model.text().and_then(|text| text.types_alone(tokens, lengths)).unwrap_or_default())
}

/// The model has rows to pool, and `out` has room for `rows` of them.
pub(super) fn check_room(engine: &Engine, rows: usize, out: *mut f32, capacity: usize) -> Result<()> {
    let columns = engine.image().entries[engine.pooled()?].columns();
    if rows.checked_mul(columns).is_none_or(|n| n > capacity) {
        let message = format!("the buffer has room for {capacity} floats; {rows} rows of {columns} are needed");
        return Err(Error::new(Status::Buffer, message));
    }
    if out.is_null() && rows > 0 {
        return Err(null("out"));
    }
    if !out.is_aligned() {
        return Err(Error::invalid("out is misaligned"));
    }
    Ok(())
}

fn normalize(flags: u32) -> Result<Option<bool>> {
    match flags {
        0 => Ok(None),
        LLMCC_EMBED_NORMALIZE => Ok(Some(true)),
        LLMCC_EMBED_RAW => Ok(Some(false)),
        _ => Err(Error::invalid(format!(
            "llmcc_embed_rows.flags are {flags:#x}: give LLMCC_EMBED_NORMALIZE, LLMCC_EMBED_RAW or none"
        ))),
    }
}
