//! Images in texts.

use super::error::Error;
use super::spec::Place;

impl Place {
    /// A prompt with images of so many tokens, in which each marker has become the text of an image's tokens. A prompt
    /// without any marker has its images at its beginning.
    ///
    /// # Errors
    /// It has another number of markers, or tokens of images already.
    pub fn expanded(&self, prompt: &str, counts: &[usize]) -> Result<String, Error> {
        let images = counts.len();
        let markers = prompt.matches(&self.marker).count();
        if prompt.split(&self.marker).any(|part| part.contains(&self.placeholder)) {
            return Err(Error::Expanded { placeholder: self.placeholder.clone(), marker: self.marker.clone() });
        }
        let first = if markers == 0 { images } else { 0 };
        if first == 0 && markers != images {
            return Err(Error::Markers { marker: self.marker.clone(), markers, images });
        }
        let mut texts = counts.iter().map(|n| format!("{}{}{}", self.before, self.placeholder.repeat(*n), self.after));
        let mut out: String = texts.by_ref().take(first).collect();
        for (i, part) in prompt.split(&self.marker).enumerate() {
            // (There are as many as markers.)
            out += &texts.by_ref().take(usize::from(i > 0)).collect::<String>();
            out += part;
        }
        Ok(out)
    }
}
