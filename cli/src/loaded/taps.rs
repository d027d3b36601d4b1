//! Inputs of products, and their moments.

use super::Model;
use crate::Error;
use llmcc_model::taps::{self, Moments, Tap};

impl Model {
    /// Its taps; none where it was compiled without `--tap`.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn taps(&self) -> Result<Vec<Tap>, Error> {
        // SAFETY: the model is one of this library.
        match unsafe { taps::read(&self.api, self.model) } {
            Ok(taps) => Ok(taps),
            Err(status) => self.check(status).map(|()| vec![]),
        }
    }

    /// Adds the inputs of rows of tokens to moments that were made for its taps.
    ///
    /// # Errors
    /// Errors of the artifact.
    ///
    /// # Panics
    /// Moments that were made for another model's taps.
    pub fn add_moments(&self, rows: &[Vec<i32>], moments: &mut [Moments]) -> Result<(), Error> {
        // SAFETY: the model is one of this library.
        self.check(unsafe { taps::add(&self.api, self.model, rows, moments) })
    }
}
