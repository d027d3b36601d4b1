//! Models that see images: from the bytes of a file to rows for a step, and images in prompts.

use llmcc_media::image::{self, Picture, Spec, decode};

use crate::engine::{Engine, STEP};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::reserve::need;

/// The knowledge that a model has of its images.
pub struct Eyes(Spec);

fn wrong(e: image::Error) -> Error {
    match e {
        image::Error::Document(_) => Error::artifact(e.to_string()),
        _ => Error::invalid(e.to_string()),
    }
}

impl Eyes {
    /// The knowledge of the model of `image`; `None`: it does not see.
    ///
    /// # Errors
    /// The artifact's description of images is damaged, or of another tower.
    pub fn of(image: &Image) -> Result<Option<Eyes>> {
        if image.text_config().is_empty() {
            return Ok(None);
        }
        let Some(spec) = Spec::parse(image.text_config()).map_err(wrong)? else { return Ok(None) };
        let tower = image.tower().map(|entry| &image.entries[entry]);
        let suits = tower.is_some_and(|e| e.given == spec.columns() && e.context == spec.tokens());
        match suits && image.entries[STEP].placeholder == Some(spec.text.token) {
            true => Ok(Some(Eyes(spec))),
            false => {
                Err(Error::artifact("the artifact describes images that its tower does not see; compile it again"))
            }
        }
    }

    /// The rows of an image's patches: of the bytes of its file, or with `sides` (width and height) of its pixels,
    /// three bytes each. The engine is free meanwhile.
    ///
    /// # Errors
    /// It is no image, or too large.
    pub fn patches(&self, bytes: &[u8], sides: Option<(u32, u32)>) -> Result<Vec<f32>> {
        let picture = match sides {
            None => {
                // Headers are small; what the pixels need is known when one has been read.
                need(2 * bytes.len() + (1 << 20))?;
                decode(bytes).map_err(wrong)?
            }
            Some((width, height)) => {
                need(bytes.len())?;
                Picture::new(width, height, bytes.to_vec()).map_err(wrong)?
            }
        };
        need(3 * picture.pixels.len() + 12 * self.0.tokens() * self.0.columns())?;
        let pixels = self.0.pixels(&picture).map_err(wrong)?;
        self.0.patches(&pixels).map_err(wrong)
    }

    /// The rows of an image for its places in a prompt, by those of its patches.
    ///
    /// # Errors
    /// The machine fails.
    pub fn rows(&self, engine: &mut Engine, patches: &[f32]) -> Result<Vec<f32>> {
        engine.see(patches, &self.0.chosen().collect::<Vec<_>>())
    }

    /// A prompt whose markers have become the tokens of `images` images.
    ///
    /// # Errors
    /// It has another number of markers.
    pub fn prompt(&self, text: &str, images: usize) -> Result<String> {
        let (markers, place) = (text.matches(&self.0.text.marker).count().max(images), &self.0.text);
        let each = place.before.len() + place.after.len() + place.count * place.placeholder.len();
        need(2 * text.len() + markers.saturating_mul(each))?;
        place.expanded(text, images).map_err(wrong)
    }

    /// Tokens of an image in a prompt that stand for its rows.
    pub fn tokens(&self) -> usize {
        self.0.text.count
    }
}
