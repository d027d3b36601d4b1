//! Images in prompts.

use crate::error::Result;
use crate::model::Model;
use std::ptr;

impl Model {
    /// The rows of an image, by the bytes of its file: for [`crate::Params::images`].
    ///
    /// # Errors
    /// The model sees no images; the bytes are none, or a broken or too large one.
    pub fn image_rows(&self, file: &[u8]) -> Result<Vec<f32>> {
        self.rows_of_image(file, 0, 0)
    }

    /// The same by pixels from the upper left on, three bytes each: red, green and blue.
    ///
    /// # Errors
    /// The model sees no images; the pixels are not as many as the sides say.
    pub fn image_rows_of_pixels(&self, pixels: &[u8], width: u32, height: u32) -> Result<Vec<f32>> {
        self.rows_of_image(pixels, width, height)
    }

    fn rows_of_image(&self, data: &[u8], width: u32, height: u32) -> Result<Vec<f32>> {
        let mut needed = 0;
        let call = |out: *mut f32, capacity: usize, needed: &mut usize| {
            let (start, n) = (data.as_ptr().cast(), data.len());
            // SAFETY: there are so many bytes, and `out` has room for `capacity` floats.
            unsafe { (self.api().llmcc_image_rows)(self.handle(), start, n, width, height, out, capacity, needed) }
        };
        self.check(call(ptr::null_mut(), 0, &mut needed))?;
        self.fetch(needed, call)
    }

    /// A prompt with so many images, in which each marker of one has become the tokens that stand for its rows. Where
    /// there are no markers the images come first.
    ///
    /// # Errors
    /// The model sees no images; the prompt has another number of markers.
    pub fn image_prompt(&self, prompt: &str, images: usize) -> Result<String> {
        self.text(prompt.len() + 256, |out, capacity, needed| {
            let (start, len) = (prompt.as_ptr().cast(), prompt.len());
            // SAFETY: the text has this length, `out` room for `capacity` bytes.
            unsafe { (self.api().llmcc_image_prompt)(self.handle(), start, len, images, out, capacity, needed) }
        })
    }
}
