//! Several generations in one step.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::generation::{Gen, State, llmcc_gen};
use super::handles::{GENERATIONS, Held};
use super::types::llmcc_piece;
use super::{array, checked_size, guard, null, write_struct};
use crate::continuous;
use crate::error::{Error, Result};

/// One more token for each of several generations of one model, as far as there is room for them.
///
/// # Safety
/// `gens` has `n` elements, each alive; `pieces` has `n` structures, all of the size that the first
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_next_batch(gens: *const *mut llmcc_gen, n: usize, pieces: *mut llmcc_piece) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let gens = array(gens, n, "gens")?;
            let gens = gens.iter().map(|g| GENERATIONS.get(g.cast_const())).collect::<Result<Vec<Held<Gen>>>>()?;
            let pieces = checked_pieces(pieces, n)?;
            next_batch(&gens, |i, value| write_struct(pieces(i), &value))
        }
    })
}

/// Where each of `n` pieces lies, whatever size the caller knows; all have to have the same.
///
/// # Safety
/// `pieces` is null or has room for `n` structures of the size that the first says.
unsafe fn checked_pieces(pieces: *mut llmcc_piece, n: usize) -> Result<impl Fn(usize) -> *mut llmcc_piece> {
    let mut size = 0;
    for i in 0..n {
        if pieces.is_null() {
            return Err(null("pieces"));
        }
        // SAFETY: the caller's promise; all before were of this size.
        let found = unsafe { checked_size(pieces.byte_add(i * size).cast_const())? };
        if i > 0 && found != size {
            return Err(Error::invalid(format!(
                "pieces[{i}].size is {found}, but pieces[0].size is {size}; set all to sizeof(llmcc_piece)"
            )));
        }
        size = found;
    }
    // SAFETY: as above.
    Ok(move |i: usize| unsafe { pieces.byte_add(i * size) })
}

fn next_batch(gens: &[Held<Gen>], mut write: impl FnMut(usize, llmcc_piece) -> Result<()>) -> Result<()> {
    let Some(first) = gens.first() else { return Ok(()) };
    if let Some(i) = gens.iter().position(|g| !Arc::ptr_eq(&g.model, &first.model)) {
        return Err(Error::invalid(format!(
            "generation {i} belongs to another model than the first; call once for each model"
        )));
    }
    // Locked by address, so that two callers with the same generations cannot wait for each other.
    let mut order: Vec<usize> = (0..gens.len()).collect();
    order.sort_unstable_by_key(|&i| Arc::as_ptr(&gens[i]));
    if let Some(two) = order.windows(2).find(|two| Arc::ptr_eq(&gens[two[0]], &gens[two[1]])) {
        return Err(Error::invalid(format!(
            "generations {} and {} are the same; give each once",
            two[0].min(two[1]),
            two[0].max(two[1])
        )));
    }
    let mut states: Vec<(usize, MutexGuard<State>)> =
        order.iter().map(|&i| (i, gens[i].state.lock().unwrap_or_else(PoisonError::into_inner))).collect();
    states.sort_unstable_by_key(|(i, _)| *i);
    // The callers' functions guess while no engine is locked.
    states.iter_mut().try_for_each(|(_, state)| state.generation()?.consult())?;
    let next = {
        let mut list = states.iter_mut().map(|(_, state)| state.generation()).collect::<Result<Vec<_>>>()?;
        continuous::next(&mut list, &mut first.model.engine(), first.model.text())?
    };
    states.iter_mut().zip(next).try_for_each(|((i, state), piece)| write(*i, state.show(piece)))
}
