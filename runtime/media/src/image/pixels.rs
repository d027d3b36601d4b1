//! From images to the numbers that a tower reads: resized, cut, normalized, and in patches.

use super::error::Error;
use super::picture::Picture;
use super::spec::{Grid, Patches, Processor, Sides, Size, Spec};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

impl Spec {
    /// The numbers of an image `[channels, height, width]`.
    ///
    /// # Errors
    /// It would become larger than the limits.
    pub fn pixels(&self, picture: &Picture) -> Result<Vec<f32>, Error> {
        let p = &self.processor;
        let resized = p.resized(picture)?;
        let cut = match p.crop {
            Some(sides) => resized.cut(sides),
            None => resized,
        };
        Ok(p.normalized(&cut))
    }

    /// The rows of an image's tokens, `[tokens, columns]`, of its numbers `[channels, height, width]`, which are so
    /// many patches.
    ///
    /// # Errors
    /// They are not as many as the tower reads.
    pub fn patches(&self, pixels: &[f32], grid: Grid) -> Result<Vec<f32>, Error> {
        let Patches { side, channels, class, frames, .. } = self.patches;
        let (height, width) = (side * grid.rows, side * grid.columns);
        if pixels.len() != channels * height * width {
            return Err(Error::Pixels { found: pixels.len(), channels, height, width });
        }
        let mut rows = Vec::with_capacity(self.tokens(grid) * self.columns());
        rows.resize(if class { self.columns() } else { 0 }, 0.0);
        for (y, x) in self.places(grid) {
            for channel in 0..channels {
                let start = rows.len();
                for line in 0..side {
                    let at = (channel * height + y * side + line) * width + x * side;
                    rows.extend_from_slice(&pixels[at..at + side]);
                }
                let end = rows.len();
                (1..frames).for_each(|_| rows.extend_from_within(start..end));
            }
        }
        Ok(rows)
    }
}

impl Processor {
    /// The sides that an image of these gets first.
    ///
    /// # Errors
    /// They are too unlike each other, or would become longer than the limits.
    pub(super) fn sides(&self, height: u32, width: u32) -> Result<Sides, Error> {
        let sides = match self.size {
            Size::Whole(sides) => sides,
            Size::Shortest { shortest_edge } => with_shortest(height, width, shortest_edge),
            Size::Area { min_pixels, max_pixels, multiple } => {
                smart(height, width, (min_pixels, max_pixels), f64::from(multiple))?
            }
        };
        Picture::check(sides.width, sides.height)?;
        Ok(sides)
    }

    /// The picture in the size that images get first.
    fn resized(&self, picture: &Picture) -> Result<Picture, Error> {
        let Sides { height, width } = self.sides(picture.height, picture.width)?;
        // Pillow does rows before columns, and rounds to 8 bits between.
        self.resampled(&self.resampled(picture, width, picture.height)?, width, height)
    }

    /// The picture with other sides.
    fn resampled(&self, picture: &Picture, width: u32, height: u32) -> Result<Picture, Error> {
        if (height, width) == (picture.height, picture.width) {
            return Ok(picture.clone());
        }
        let failed = |e: &dyn std::fmt::Display| Error::Broken(e.to_string());
        let from =
            ImageRef::new(picture.width, picture.height, &picture.pixels, PixelType::U8x3).map_err(|e| failed(&e))?;
        let mut to = Image::new(width, height, PixelType::U8x3);
        let filter = if self.resample == 3 { FilterType::CatmullRom } else { FilterType::Bilinear };
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(false);
        Resizer::new().resize(&from, &mut to, &options).map_err(|e| failed(&e))?;
        Ok(Picture { width, height, pixels: to.into_vec() })
    }

    /// Channel after channel, rescaled, less the mean, over the deviation.
    fn normalized(&self, picture: &Picture) -> Vec<f32> {
        let of = |channel: usize| {
            // As the processors' one step for all: mean and deviation in units of the channels.
            let units = (1.0 / self.rescale) as f32;
            let (mean, std) = (self.mean[channel] as f32 * units, self.std[channel] as f32 * units);
            picture.pixels.iter().skip(channel).step_by(3).map(move |x| (f32::from(*x) - mean) / std)
        };
        (0..3).flat_map(of).collect()
    }
}

/// The sides with this length of the shorter one.
fn with_shortest(height: u32, width: u32, shortest: u32) -> Sides {
    let (short, long) = (width.min(height), width.max(height));
    let long = u64::from(shortest) * u64::from(long) / u64::from(short.max(1));
    let long = u32::try_from(long).unwrap_or(u32::MAX);
    match width <= height {
        true => Sides { height: long, width: shortest },
        false => Sides { height: shortest, width: long },
    }
}

/// The longest side in units of the shorter one.
const MOST_RATIO: f64 = 200.0;

/// Multiples of `factor` near these sides, of so many pixels in all: `smart_resize` of Transformers, in f64 as there.
fn smart(height: u32, width: u32, (least, most): (u64, u64), factor: f64) -> Result<Sides, Error> {
    let (h, w) = (f64::from(height), f64::from(width));
    if h.max(w) / h.min(w) > MOST_RATIO {
        return Err(Error::Narrow { width, height });
    }
    let (least, most) = (least as f64, most as f64);
    let both = |f: &dyn Fn(f64) -> f64| (f(h) * factor, f(w) * factor);
    let mut sides = both(&|side| (side / factor).round_ties_even());
    if sides.0 * sides.1 > most {
        let beta = (h * w / most).sqrt();
        sides = both(&|side| (side / beta / factor).floor().max(1.0));
    } else if sides.0 * sides.1 < least {
        let beta = (least / (h * w)).sqrt();
        sides = both(&|side| (side * beta / factor).ceil());
    }
    Ok(Sides { height: sides.0 as u32, width: sides.1 as u32 })
}

impl Picture {
    /// So many pixels of the middle; where there are fewer, black ones around them.
    fn cut(&self, to: Sides) -> Picture {
        let first = |whole: u32, part: u32| (i64::from(whole) - i64::from(part)) / 2;
        let (top, left) = (first(self.height, to.height), first(self.width, to.width));
        let mut pixels = vec![0; to.height as usize * to.width as usize * 3];
        for (y, line) in pixels.chunks_exact_mut(to.width as usize * 3).enumerate() {
            let Some(from) = self.line(top + y as i64) else { continue };
            let skip = left.min(0).unsigned_abs() as usize * 3;
            let from = &from[left.max(0) as usize * 3..];
            let n = from.len().min(line.len().saturating_sub(skip));
            line[skip..skip + n].copy_from_slice(&from[..n]);
        }
        Picture { width: to.width, height: to.height, pixels }
    }

    /// The pixels of a line, if there is such a line.
    fn line(&self, y: i64) -> Option<&[u8]> {
        let width = self.width as usize * 3;
        let y = usize::try_from(y).ok().filter(|y| *y < self.height as usize)?;
        self.pixels.get(y * width..(y + 1) * width)
    }
}
