//! Stands in for the module `hearing` when the runtime is built without the feature `media`.

use crate::engine::Engine;
use crate::error::Result;
use crate::image::Image;
use crate::kv::SeqId;

/// Cannot exist: the runtime reads no sounds.
pub enum Ears {}

/// Sizes of clips and their rows.
pub struct Clip {
    /// Samples per second.
    pub rate: u32,
    /// Samples of a clip.
    pub samples: usize,
    /// Rows of a clip.
    pub rows: usize,
    /// Columns of a row.
    pub columns: usize,
}

impl Ears {
    /// No artifact hears with this runtime.
    pub fn of(_: &Image) -> Result<Option<Ears>> {
        Ok(None)
    }

    /// Never called.
    pub fn clip(&self) -> Clip {
        match *self {}
    }

    /// Never called.
    pub fn of_file(&self, _: &[u8]) -> Result<Vec<f32>> {
        match *self {}
    }

    /// Never called.
    pub fn of_samples(&self, _: &[f32], _: u32) -> Result<Vec<f32>> {
        match *self {}
    }

    /// Never called.
    pub fn rows(&self, _: &[f32]) -> Result<Vec<f32>> {
        match *self {}
    }

    /// Never called.
    pub fn prompt(&self, _: &mut Engine, _: SeqId, _: Option<&str>, _: Option<&str>) -> Result<Vec<i32>> {
        match *self {}
    }
}
