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

    /// A prompt with so many images, in which markers have become the tokens that stand for their rows.
    ///
    /// # Errors
    /// Errors of the artifact: it sees no images, or the prompt has another number of markers.
    pub fn image_prompt(&self, prompt: &str, images: usize) -> Result<String, Error> {
        self.text(|out, capacity, needed| {
            let (start, len) = (prompt.as_ptr().cast(), prompt.len());
            // SAFETY: the text has this length, `out` room for `capacity` bytes.
            unsafe { (self.api.llmcc_image_prompt)(self.model, start, len, images, out, capacity, needed) }
        })
    }
}
