//! Pairs of texts, for models that compare them.

use super::embed::{check_room, takes_types};
use super::handles::MODELS;
use super::types::{LLMCC_PAIR_TRUNCATE, llmcc_pair};
use super::{Model, array, guard, llmcc_model, owned, put_array, utf8};
use crate::embed::{Rows, embed};
use crate::error::{Error, Result, Status};
use crate::reserve::need;

/// Token ids and types of two texts.
///
/// # Safety
/// `model` is open, the texts have their lengths, `tokens` and `types` (unless null) have `capacity`
/// elements, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tokenize_pair(
    model: *const llmcc_model,
    pair: *const llmcc_pair,
    most: usize,
    tokens: *mut i32,
    types: *mut i32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let (first, second) = texts(array(pair, 1, "pair")?, 0)?;
            let (ids, mut of) = encode(&model, (first, second), Some(most).filter(|n| *n > 0))?;
            if !takes_types(&model.engine()) {
                of.fill(0);
            }
            if !types.is_aligned() {
                return Err(Error::invalid("types is misaligned"));
            }
            put_array(&ids, tokens, capacity, needed)?;
            if !types.is_null() && !tokens.is_null() {
                put_array(&of, types, capacity, std::ptr::null_mut())?;
            }
            Ok(())
        }
    })
}

/// Scores of classes of pairs of texts, f32 `[n, columns]`.
///
/// # Safety
/// `model` is open, `pairs` has `n` elements whose texts have their lengths, `out` has `capacity`
/// floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_score_pairs(
    model: *const llmcc_model,
    pairs: *const llmcc_pair,
    n: usize,
    flags: u32,
    out: *mut f32,
    capacity: usize,
) -> i32 {
    guard(|| {
        if flags & !LLMCC_PAIR_TRUNCATE != 0 {
            return Err(Error::invalid(format!("unknown flags {:#x}", flags & !LLMCC_PAIR_TRUNCATE)));
        }
        // SAFETY: the caller's promise.
        let (model, pairs) = unsafe { (MODELS.get(model)?, array(pairs, n, "pairs")?) };
        let (most, typed) = {
            let engine = model.engine();
            engine.need_scores()?;
            check_room(&engine, n, out, capacity)?;
            (engine.longest_row(), takes_types(&engine))
        };
        let cut = (flags & LLMCC_PAIR_TRUNCATE != 0).then_some(most);
        let (mut tokens, mut types, mut lengths) = (vec![], vec![], vec![]);
        let watch = model.watch();
        for i in 0..n {
            watch.check()?;
            // SAFETY: the caller's promise.
            let (first, second) = unsafe { texts(pairs, i)? };
            let (ids, of) = encode(&model, (first, second), cut)?;
            if ids.len() > most {
                let how = "shorten its texts, or have pairs cut (`--truncate`, `truncate=True`, LLMCC_PAIR_TRUNCATE)";
                let what = format!("pair {i} has {} tokens, but the model takes at most {most}: {how}", ids.len());
                return Err(Error::new(Status::ContextFull, what));
            }
            // (Lists grow by doubling.)
            need(32 * (ids.len() + 1))?;
            lengths.push(ids.len());
            tokens.extend(ids);
            types.extend(of);
        }
        let types = if typed { types.as_slice() } else { &[] };
        let found = embed(
            &mut model.engine(),
            &Rows { tokens: &tokens, lengths: &lengths, types, normalize: None, pool: None },
        )?;
        // SAFETY: there is room for as many, as was checked.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), out, found.len()) };
        Ok(())
    })
}

/// Ids and types of two texts.
fn encode(model: &Model, (first, second): (&str, &str), most: Option<usize>) -> Result<(Vec<i32>, Vec<i32>)> {
    model.tokenizer()?;
    let (a, b) = (owned(first)?, owned(second)?);
    model.with_text(first.len() + second.len(), move |t| t.tokenizer()?.encode_pair(&a, &b, most))
}

/// The texts of pair `i`.
///
/// # Safety
/// They have their lengths.
unsafe fn texts(pairs: &[llmcc_pair], i: usize) -> Result<(&str, &str)> {
    let p = &pairs[i];
    let named = |e: Error| Error::new(e.status, format!("pair {i}: {}", e.message));
    // SAFETY: the caller's promise.
    unsafe {
        let first = utf8(p.first, p.first_len, "first").map_err(named)?;
        let second = utf8(p.second, p.second_len, "second").map_err(named)?;
        Ok((first, second))
    }
}
