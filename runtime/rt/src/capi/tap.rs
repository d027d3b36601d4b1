//! Inputs of products, and their moments.

use std::ffi::c_char;

use super::embed::{TokenRows, token_rows};
use super::handles::MODELS;
use super::types::{llmcc_embed_rows, llmcc_moments, llmcc_tap_info};
use super::{Out, OutStruct, array, array_mut, guard, llmcc_model, null, put_text, read_struct};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::image::Tap;
use crate::tap::{Moments, Rows, tap};

/// The number of taps; 0: the artifact shows no inputs.
///
/// # Safety
/// `n` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_taps(model: *const llmcc_model, n: *mut usize) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, n) = unsafe { (MODELS.get(model)?, Out::new(n, "n")?) };
        n.set(all(&model.engine()).len());
        Ok(())
    })
}

/// Describes a tap.
///
/// # Safety
/// `info` is null, or a structure of as many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tap(model: *const llmcc_model, tap: usize, info: *mut llmcc_tap_info) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, info) = unsafe { (MODELS.get(model)?, OutStruct::new(info)?) };
        let engine = model.engine();
        let tap = one(&engine, tap)?;
        info.set(&llmcc_tap_info {
            size: size_of::<llmcc_tap_info>(),
            columns: tap.columns as u64,
            n_weights: tap.weights.len() as u64,
            experts: tap.routes.map_or(0, |r| r.experts as u32),
            call: tap.call,
        })
    })
}

/// Names a weight that multiplies the inputs of a tap, and stores the only expert that it belongs to, or -1.
///
/// # Safety
/// `expert` is writable, or null; `name` has room for `capacity` bytes, or is null; `needed` is writable, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tap_weight(
    model: *const llmcc_model,
    tap: usize,
    weight: usize,
    expert: *mut i32,
    name: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, expert) = unsafe { (MODELS.get(model)?, Out::new(expert, "expert")?) };
        let engine = model.engine();
        let weights = &one(&engine, tap)?.weights;
        let (found, of) = weights.get(weight).ok_or_else(|| {
            Error::invalid(format!(
                "weight {weight} of tap {tap} does not exist: it has {}, counted from 0",
                weights.len()
            ))
        })?;
        // SAFETY: the caller's promise.
        unsafe { put_text(found, name, capacity, needed)? };
        expert.set(of.map_or(-1, |e| e as i32));
        Ok(())
    })
}

/// Adds the inputs of rows of tokens to the moments of taps.
///
/// # Safety
/// `rows` is valid; there are `n_moments` of `moments`, whose arrays have the sizes that their taps need and do not
/// overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tap_moments(
    model: *const llmcc_model,
    rows: *const llmcc_embed_rows,
    moments: *const llmcc_moments,
    n_moments: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, given) = unsafe { (MODELS.get(model)?, read_struct(rows)?) };
        if rows.is_null() {
            return Err(null("rows"));
        }
        if given.flags != 0 || given.pool != 0 {
            return Err(Error::invalid("rows.flags and rows.pool are for llmcc_embed: leave them 0"));
        }
        // SAFETY: the caller's promise.
        let (TokenRows { tokens, lengths, types }, wanted) =
            unsafe { (token_rows(&model, &given)?, array(moments, n_moments, "moments")?) };
        let mut engine = model.engine();
        engine.tapped()?;
        // SAFETY: the caller's promise.
        let wanted = wanted.iter().map(|m| unsafe { arrays(&engine, m) }).collect::<Result<Vec<_>>>();
        tap(&mut engine, &Rows { tokens, lengths, types: &types }, &mut wanted?)
    })
}

/// The taps of a model.
fn all(engine: &Engine) -> &[Tap] {
    engine.tapped().map_or(&[], |entry| &engine.image().entries[entry].taps)
}

/// A tap by its number.
fn one(engine: &Engine, tap: usize) -> Result<&Tap> {
    engine.tapped()?;
    let taps = all(engine);
    taps.get(tap).ok_or_else(|| {
        Error::invalid(format!("tap {tap} does not exist: the model has {}, counted from 0", taps.len()))
    })
}

/// The caller's arrays.
///
/// # Safety
/// They have the sizes that the tap needs, and no other reference.
unsafe fn arrays<'a>(engine: &Engine, m: &llmcc_moments) -> Result<Moments<'a>> {
    let tap = one(engine, m.tap)?;
    let (experts, columns) = (tap.experts(), tap.columns);
    let products = if m.products.is_null() { 0 } else { columns };
    let all = experts * columns;
    // SAFETY: the caller's promise.
    unsafe {
        Ok(Moments {
            tap: m.tap,
            count: array_mut(m.count, experts, "moments.count")?,
            squares: array_mut(m.squares, all, "moments.squares")?,
            min: array_mut(m.min, all, "moments.min")?,
            max: array_mut(m.max, all, "moments.max")?,
            products: array_mut(m.products, all.saturating_mul(products), "moments.products")?,
        })
    }
}
