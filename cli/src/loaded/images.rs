//! Images for models that see them.

use super::Model;
use crate::Error;
use std::ptr;

impl Model {
    /// The rows of an image, by the bytes of its file.
    ///
    /// # Errors
    /// Errors of the artifact: it sees no images, or these bytes are none.
    pub fn image_rows(&self, file: &[u8]) -> Result<Vec<f32>, Error> {
        let call = |out: *mut f32, capacity, needed: &mut usize| {
            let (start, n) = (file.as_ptr().cast(), file.len());
            // SAFETY: there are so many bytes, and `out` has room for `capacity` floats.
            unsafe { (self.api.llmcc_image_rows)(self.model, start, n, 0, 0, out, capacity, needed) }
        };
        let mut needed = 0;
        self.check(call(ptr::null_mut(), 0, &mut needed))?;
        self.fetch(needed, call)
    }

    /// Rows and columns of the tokens of an image in a prompt, by the bytes of its file.
    ///
    /// # Errors
    /// Errors of the artifact: it sees no images, or these bytes are none.
    pub fn image_grid(&self, file: &[u8]) -> Result<[u32; 2], Error> {
        let mut grid = [0; 2];
        let (start, n) = (file.as_ptr().cast(), file.len());
        // SAFETY: there are so many bytes, and `grid` has room for two numbers.
        self.check(unsafe { (self.api.llmcc_image_grid)(self.model, start, n, 0, 0, grid.as_mut_ptr()) })?;
        Ok(grid)
    }

    /// A prompt with images of so many rows and columns of tokens, in which markers have become the tokens that stand
    /// for their rows.
    ///
    /// # Errors
    /// Errors of the artifact: it sees no images, or the prompt has another number of markers.
    pub fn image_prompt(&self, prompt: &str, grids: &[[u32; 2]]) -> Result<String, Error> {
        self.text(|out, capacity, needed| {
            let (start, len) = (prompt.as_ptr().cast(), prompt.len());
            let (grids, images) = (grids.as_ptr().cast(), grids.len());
            // SAFETY: the text has this length, `out` room for `capacity` bytes.
            unsafe { (self.api.llmcc_image_prompt_of)(self.model, start, len, grids, images, out, capacity, needed) }
        })
    }
}
