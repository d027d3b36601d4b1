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

    /// Rows and columns of the tokens of an image in a prompt, by the bytes of its file: for [`Model::image_prompt`]
    /// and [`crate::Params::grids`].
    ///
    /// # Errors
    /// The model sees no images; the bytes are none, or a broken or too large one.
    pub fn image_grid(&self, file: &[u8]) -> Result<[u32; 2]> {
        self.grid_of_image(file, 0, 0)
    }

    /// The same by pixels, as [`Model::image_rows_of_pixels`] has them.
    ///
    /// # Errors
    /// The model sees no images; the pixels are not as many as the sides say.
    pub fn image_grid_of_pixels(&self, pixels: &[u8], width: u32, height: u32) -> Result<[u32; 2]> {
        self.grid_of_image(pixels, width, height)
    }

    fn grid_of_image(&self, data: &[u8], width: u32, height: u32) -> Result<[u32; 2]> {
        let mut grid = [0; 2];
        let (start, n) = (data.as_ptr().cast(), data.len());
        // SAFETY: there are so many bytes, and `grid` has room for two numbers.
        self.check(unsafe {
            (self.api().llmcc_image_grid)(self.handle(), start, n, width, height, grid.as_mut_ptr())
        })?;
        Ok(grid)
    }

    /// A prompt with images of so many rows and columns of tokens, in which each marker of one has become the tokens
    /// that stand for its rows. Where there are no markers the images come first.
    ///
    /// # Errors
    /// The model sees no images; the prompt has another number of markers.
    pub fn image_prompt(&self, prompt: &str, grids: &[[u32; 2]]) -> Result<String> {
        self.text(prompt.len() + 256, |out, capacity, needed| {
            let (start, len) = (prompt.as_ptr().cast(), prompt.len());
            let (grids, images) = (grids.as_ptr().cast(), grids.len());
            // SAFETY: the text has this length, `out` room for `capacity` bytes.
            unsafe {
                (self.api().llmcc_image_prompt_of)(self.handle(), start, len, grids, images, out, capacity, needed)
            }
        })
    }
}
