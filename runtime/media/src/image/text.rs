//! Images in texts.

use super::error::Error;
use super::spec::Place;

impl Place {
    /// A prompt with `images` images, in which each marker has become the text of an image's tokens. A prompt without
    /// any marker has its images at its beginning.
    ///
    /// # Errors
    /// It has another number of markers, or tokens of images already.
    pub fn expanded(&self, prompt: &str, images: usize) -> Result<String, Error> {
        let markers = prompt.matches(&self.marker).count();
        if self.placeholder != self.marker && prompt.contains(&self.placeholder) {
            return Err(Error::Expanded { placeholder: self.placeholder.clone(), marker: self.marker.clone() });
        }
        let first = if markers == 0 { images } else { 0 };
        if first == 0 && markers != images {
            return Err(Error::Markers { marker: self.marker.clone(), markers, images });
        }
        let image = format!("{}{}{}", self.before, self.placeholder.repeat(self.count), self.after);
        Ok(image.repeat(first) + &prompt.replace(&self.marker, &image))
    }
}
