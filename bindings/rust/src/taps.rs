//! Inputs of a model's products, and their moments: what calibration asks of a text. For artifacts compiled with
//! `--tap`.

use crate::Token;
use crate::capi::*;
use crate::error::Result;
use crate::model::Model;
use crate::rows::TokenRows;
use crate::sys::{Api, RawModel, RawStatus};
use std::ptr;

/// Inputs that products of a model share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Columns of an input.
    pub columns: usize,
    /// Experts that an input may be for; 0: the products are the same for all tokens.
    pub experts: usize,
    /// Number of the call: taps of a layer have the same.
    pub call: usize,
    /// Names of the weights that multiply it, and the only expert that each belongs to.
    pub weights: Vec<(String, Option<usize>)>,
}

/// Moments of the inputs of a tap, `E` being its experts, or 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Number of the tap.
    pub tap: usize,
    /// Inputs, `[E]`.
    pub count: Vec<u64>,
    /// Sums of squares of each column, `[E, columns]`.
    pub squares: Vec<f64>,
    /// The least number of each column, the same way.
    pub min: Vec<f32>,
    /// The largest number of each column, the same way.
    pub max: Vec<f32>,
    /// Sums of products of two columns, `[E, columns, columns]`; empty: not wanted.
    pub products: Vec<f64>,
}

impl Moments {
    /// Moments of no inputs; with the products of two columns if `full`.
    pub fn new(number: usize, tap: &Tap, full: bool) -> Moments {
        let experts = tap.experts.max(1);
        let all = experts * tap.columns;
        Moments {
            tap: number,
            count: vec![0; experts],
            squares: vec![0.0; all],
            min: vec![f32::INFINITY; all],
            max: vec![f32::NEG_INFINITY; all],
            products: vec![0.0; if full { all * tap.columns } else { 0 }],
        }
    }

    /// Whether the arrays have the sizes that a tap needs.
    fn fits(&self, tap: &llmcc_tap_info) -> bool {
        let (experts, columns) = ((tap.experts as usize).max(1), tap.columns as usize);
        let all = experts * columns;
        self.count.len() == experts
            && [self.squares.len(), self.min.len(), self.max.len()] == [all; 3]
            && [0, all * columns].contains(&self.products.len())
    }

    fn raw(&mut self) -> llmcc_moments {
        llmcc_moments {
            tap: self.tap,
            count: self.count.as_mut_ptr(),
            squares: self.squares.as_mut_ptr(),
            min: self.min.as_mut_ptr(),
            max: self.max.as_mut_ptr(),
            products: if self.products.is_empty() { ptr::null_mut() } else { self.products.as_mut_ptr() },
        }
    }
}

impl Model {
    /// Its taps, ascending by their calls; none where it was compiled without `--tap`.
    ///
    /// # Errors
    /// The system fails.
    pub fn taps(&self) -> Result<Vec<Tap>> {
        // SAFETY: the handle is that of this model.
        unsafe { read(self.api(), self.handle()) }.map_err(|status| match self.check(status) {
            Err(error) => error,
            Ok(()) => unreachable!("a status that is no error"),
        })
    }

    /// Runs rows of tokens and adds the inputs of taps to their moments, in the order of the tokens.
    ///
    /// # Errors
    /// A model without taps, an empty row, a token outside the vocabulary, an input that is not finite.
    ///
    /// # Panics
    /// Arrays of moments that have other sizes than [`Moments::new`] gives them.
    pub fn add_moments<R: AsRef<[Token]>>(&self, rows: &[R], moments: &mut [Moments]) -> Result<()> {
        // SAFETY: the handle is that of this model.
        self.check(unsafe { add(self.api(), self.handle(), rows, moments) })
    }
}

/// The taps of a model.
///
/// # Errors
/// The status of a call that failed.
///
/// # Safety
/// `model` is a model of the library that `api` is of.
pub unsafe fn read(api: &Api, model: *const RawModel) -> std::result::Result<Vec<Tap>, RawStatus> {
    let mut n = 0;
    // SAFETY: the caller's promise; the result goes to a variable of this type.
    ok(unsafe { (api.llmcc_taps)(model, &mut n) })?;
    let mut taps = vec![];
    for tap in 0..n {
        // SAFETY: the caller's promise.
        let info = unsafe { info(api, model, tap)? };
        let mut weights = vec![];
        for weight in 0..info.n_weights as usize {
            let (mut expert, mut needed) = (-1, 0);
            // SAFETY: as above; without a buffer only the length is stored.
            ok(unsafe { (api.llmcc_tap_weight)(model, tap, weight, &mut expert, ptr::null_mut(), 0, &mut needed) })?;
            let mut name = vec![0u8; needed + 1];
            let (to, room) = (name.as_mut_ptr().cast(), name.len());
            // SAFETY: the buffer has that room.
            ok(unsafe { (api.llmcc_tap_weight)(model, tap, weight, &mut expert, to, room, &mut needed) })?;
            name.truncate(needed);
            weights.push((String::from_utf8_lossy(&name).into_owned(), usize::try_from(expert).ok()));
        }
        taps.push(Tap {
            columns: info.columns as usize,
            experts: info.experts as usize,
            call: info.call as usize,
            weights,
        });
    }
    Ok(taps)
}

/// Sizes of a tap.
///
/// # Safety
/// As [`read`].
unsafe fn info(api: &Api, model: *const RawModel, tap: usize) -> Called<llmcc_tap_info> {
    let mut info = llmcc_tap_info { size: size_of::<llmcc_tap_info>(), ..llmcc_tap_info::default() };
    // SAFETY: the caller's promise; the result goes to a variable of this type.
    ok(unsafe { (api.llmcc_tap)(model, tap, &mut info) })?;
    Ok(info)
}

/// The result of calls of the C API, or the status of the one that failed.
type Called<T> = std::result::Result<T, RawStatus>;

fn ok(status: RawStatus) -> Called<()> {
    if status == 0 { Ok(()) } else { Err(status) }
}

/// Adds the inputs of rows of tokens to moments of taps. Returns the status of the last call.
///
/// # Panics
/// Arrays of moments that have other sizes than [`Moments::new`] gives them.
///
/// # Safety
/// As [`read`].
pub unsafe fn add<R: AsRef<[Token]>>(
    api: &Api,
    model: *const RawModel,
    rows: &[R],
    moments: &mut [Moments],
) -> RawStatus {
    for m in &*moments {
        // SAFETY: the caller's promise.
        match unsafe { info(api, model, m.tap) } {
            Ok(info) => assert!(m.fits(&info), "arrays of tap {} have other sizes", m.tap),
            Err(status) => return status,
        }
    }
    let rows = TokenRows::new(rows);
    let raw: Vec<llmcc_moments> = moments.iter_mut().map(Moments::raw).collect();
    // SAFETY: the caller's promise; the arrays have the lengths stated.
    unsafe { (api.llmcc_tap_moments)(model, &rows.raw(0), raw.as_ptr(), raw.len()) }
}
