//! Models that see images: from the bytes of a file to rows for a step, and images in prompts.

use llmcc_media::image::{self, Grid, Picture, Spec, decode};

use crate::engine::{Engine, STEP};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::reserve::need;

/// The knowledge that a model has of its images.
pub struct Eyes(Spec);

/// The patches of an image.
pub struct Seen {
    rows: Vec<f32>,
    grid: Grid,
}

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
        let suits = tower.is_some_and(|e| e.given == spec.columns() && e.context == spec.most_tokens());
        match suits && image.entries[STEP].placeholder == Some(spec.text.token) {
            true => Ok(Some(Eyes(spec))),
            false => {
                Err(Error::artifact("the artifact describes images that its tower does not see; compile it again"))
            }
        }
    }

    /// The patches of an image: of the bytes of its file, or with `sides` (width and height) of its pixels, three bytes
    /// each. The engine is free meanwhile.
    ///
    /// # Errors
    /// It is no image, or too large.
    pub fn patches(&self, bytes: &[u8], sides: Option<(u32, u32)>) -> Result<Seen> {
        let picture = picture(bytes, sides)?;
        let grid = self.0.grid(picture.height, picture.width).map_err(wrong)?;
        need(3 * picture.pixels.len() + 12 * self.0.tokens(grid) * self.0.columns())?;
        let pixels = self.0.pixels(&picture).map_err(wrong)?;
        Ok(Seen { rows: self.0.patches(&pixels, grid).map_err(wrong)?, grid })
    }

    /// Rows and columns of the tokens of an image in a prompt, by the same.
    ///
    /// # Errors
    /// It is no image, or too large.
    pub fn grid(&self, bytes: &[u8], sides: Option<(u32, u32)>) -> Result<[u32; 2]> {
        let of = match (self.tokens(), sides) {
            (Some(_), _) => Grid { rows: 1, columns: 1 },
            (None, None) => {
                need_to_read(bytes)?;
                let (width, height) = image::sides(bytes).map_err(wrong)?;
                self.0.grid(height, width).map_err(wrong)?
            }
            (None, Some(_)) => {
                let picture = picture(bytes, sides)?;
                self.0.grid(picture.height, picture.width).map_err(wrong)?
            }
        };
        let place = self.0.place(of);
        Ok([place.rows as u32, place.columns as u32])
    }

    /// The rows of an image for its places in a prompt, by its patches.
    ///
    /// # Errors
    /// The machine fails.
    pub fn rows(&self, engine: &mut Engine, seen: &Seen) -> Result<Vec<f32>> {
        let chosen: Vec<u32> = self.0.chosen(seen.grid).collect();
        let axes = engine.image().entries[engine.tower()?].axes;
        // An image is at one time, its patches in rows and columns.
        let place = |(y, x): (usize, usize)| [0, y as i32, x as i32];
        let positions: Vec<i32> = match axes {
            0 => vec![],
            _ => self.0.places(seen.grid).flat_map(place).collect(),
        };
        engine.see((&seen.rows, &positions), &chosen)
    }

    /// A prompt whose markers have become the tokens of images, of so many tokens each.
    ///
    /// # Errors
    /// It has another number of markers; an image of the model has another number of tokens.
    pub fn prompt(&self, text: &str, counts: &[usize]) -> Result<String> {
        let place = &self.0.text;
        if let Some((own, other)) = self.tokens().and_then(|own| Some((own, *counts.iter().find(|n| **n != own)?))) {
            return Err(Error::invalid(format!("an image of this model has {own} tokens, not {other}")));
        }
        let all = counts.iter().fold(0, |sum: usize, n| sum.saturating_add(*n));
        let around = counts.len().saturating_mul(place.before.len() + place.after.len());
        need((2 * text.len()).saturating_add(around).saturating_add(all.saturating_mul(2 * place.placeholder.len())))?;
        place.expanded(text, counts).map_err(wrong)
    }

    /// Tokens of an image in a prompt that stand for its rows; none: as many as it has.
    pub fn tokens(&self) -> Option<usize> {
        Some(self.0.text.count).filter(|n| *n > 0)
    }
}

/// Memory to read a file: headers are small, and the memory of the pixels is known when one has been read.
fn need_to_read(bytes: &[u8]) -> Result<()> {
    need(2 * bytes.len() + (1 << 20))
}

/// The picture that a file has, or these pixels.
fn picture(bytes: &[u8], sides: Option<(u32, u32)>) -> Result<Picture> {
    match sides {
        None => {
            need_to_read(bytes)?;
            decode(bytes).map_err(wrong)
        }
        Some((width, height)) => {
            need(bytes.len())?;
            Picture::new(width, height, bytes.to_vec()).map_err(wrong)
        }
    }
}
