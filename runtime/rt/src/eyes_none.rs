//! Stands in for the module `eyes` when the runtime is built without media.

use crate::engine::Engine;
use crate::error::Result;
use crate::image::Image;

/// Cannot exist: the runtime reads no images.
pub enum Eyes {}

/// Cannot exist, either.
pub enum Seen {}

impl Eyes {
    /// No artifact sees with this runtime.
    ///
    /// # Errors
    /// None.
    pub fn of(_: &Image) -> Result<Option<Eyes>> {
        Ok(None)
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn patches(&self, _: &[u8], _: Option<(u32, u32)>) -> Result<Seen> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn grid(&self, _: &[u8], _: Option<(u32, u32)>) -> Result<[u32; 2]> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn rows(&self, _: &mut Engine, _: &Seen) -> Result<Vec<f32>> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn prompt(&self, _: &str, _: &[usize]) -> Result<String> {
        match *self {}
    }

    /// Never called.
    pub fn tokens(&self) -> Option<usize> {
        match *self {}
    }
}
