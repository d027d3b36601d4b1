//! The document that an artifact has of its images.

use super::error::Error;
use serde::Deserialize;

/// Most elements that an artifact may ask for of an image.
const MOST: usize = 1 << 28;

/// An artifact's description of its images.
#[derive(Clone, Debug, Deserialize)]
pub struct Spec {
    /// From an image to pixels.
    pub processor: Processor,
    /// From pixels to rows.
    pub patches: Patches,
    /// The rows of a tower's tokens that are rows for the text model.
    pub rows: Chosen,
    /// How images stand in texts.
    pub text: Place,
}

/// How pixels are made of an image, as image processors of Transformers do it.
#[derive(Clone, Debug, Deserialize)]
pub struct Processor {
    /// The size that images get first.
    pub size: Size,
    /// The size that is cut from the middle then.
    pub crop: Option<Sides>,
    /// How new pixels are made, by Pillow's numbers: 2 is bilinear, 3 bicubic.
    pub resample: u32,
    /// Multiplies channels of 8 bits.
    pub rescale: f64,
    /// Subtracted from channels.
    pub mean: [f64; 3],
    /// Divides them then.
    pub std: [f64; 3],
    /// Images become RGB.
    pub rgb: bool,
}

/// A height and a width; the length of the shorter side, the longer one keeping its ratio; or both as they are, but for
/// limits.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// Multiples of a number of pixels that keep the ratio as nearly as they can (`smart_resize` of Qwen2-VL).
    Area {
        /// Fewest pixels of an image.
        min_pixels: u64,
        /// Most pixels of an image.
        max_pixels: u64,
        /// The number that divides both sides.
        multiple: u32,
    },
    /// Both sides.
    Whole(Sides),
    /// The shorter one.
    Shortest {
        /// Pixels.
        shortest_edge: u32,
    },
}

/// Pixels of both sides.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct Sides {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
}

/// How pixels become rows of numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Patches {
    /// Pixels of a patch's side.
    pub side: usize,
    /// Patches of an image's side; 0: images have sides of their own.
    pub grid: usize,
    /// Most patches of an image with sides of its own.
    #[serde(default)]
    pub most: usize,
    /// How often each channel of a patch comes, one after the other: an image is so many frames of a film.
    #[serde(default = "once")]
    pub frames: usize,
    /// Channels.
    pub channels: usize,
    /// Patches come in squares of so many a side, the patches of a square one after the other.
    pub square: usize,
    /// A row of zeros comes first.
    pub class: bool,
}

fn once() -> usize {
    1
}

/// Rows and columns, of an image's patches or of its tokens in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl Grid {
    /// How many there are.
    pub fn count(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

/// The rows of a tower that are asked for.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Chosen {
    /// The first one.
    pub first: usize,
    /// From each to the next.
    pub every: usize,
}

/// How an image stands in a text.
#[derive(Clone, Debug, Deserialize)]
pub struct Place {
    /// Stands for an image in a prompt.
    pub marker: String,
    /// The text before the tokens of its rows.
    pub before: String,
    /// The text of such a token.
    pub placeholder: String,
    /// How many there are; 0: as many as the image has.
    pub count: usize,
    /// The text after them.
    pub after: String,
    /// The id of the token.
    pub token: i32,
}

impl Spec {
    /// Reads it from an artifact's description of its texts, as `media.image`.
    ///
    /// # Errors
    /// It is damaged.
    pub fn parse(document: &str) -> Result<Option<Spec>, Error> {
        #[derive(Deserialize)]
        struct Texts {
            media: Option<Media>,
        }
        #[derive(Deserialize)]
        struct Media {
            image: Option<Spec>,
        }
        let texts: Texts = serde_json::from_str(document).map_err(|e| Error::Document(e.to_string()))?;
        match texts.media.and_then(|media| media.image) {
            Some(spec) if spec.is_sound() => Ok(Some(spec)),
            Some(_) => Err(Error::Document("its numbers do not fit each other".into())),
            None => Ok(None),
        }
    }

    fn is_sound(&self) -> bool {
        let Patches { side, grid, channels, square, class, frames, .. } = self.patches;
        let Chosen { first, every } = self.rows;
        let common = channels == 3 && side > 0 && square > 0 && every > 0 && (1..=16).contains(&frames);
        common && self.text.token >= 0 && if grid == 0 { self.is_free() } else { self.is_fixed(grid, first, class) }
    }

    /// Whether images of one size fit the tower.
    fn is_fixed(&self, grid: usize, first: usize, class: bool) -> bool {
        let Patches { side, channels, square, frames, .. } = self.patches;
        let of_patches = side.checked_mul(grid).filter(|n| *n > 0 && *n < 1 << 15);
        let all = |n: usize| n.checked_mul(n)?.checked_mul(channels)?.checked_mul(frames);
        let small = of_patches.and_then(all).is_some_and(|n| n <= MOST);
        let whole = |sides: Sides| Some([sides.height as usize, sides.width as usize]) == of_patches.map(|n| [n; 2]);
        let sees = match (self.processor.crop, self.processor.size) {
            (Some(crop), _) => whole(crop),
            (None, Size::Whole(sides)) => whole(sides),
            (None, Size::Shortest { .. } | Size::Area { .. }) => false,
        };
        let tokens = grid.saturating_mul(grid).saturating_add(usize::from(class));
        let rows = tokens.checked_sub(first).map_or(0, |n| n.div_ceil(self.rows.every));
        small && sees && grid.is_multiple_of(square) && rows == self.text.count && rows > 0
    }

    /// Whether images with sides of their own fit it: each square of patches is a token of the text.
    fn is_free(&self) -> bool {
        let Patches { side, channels, square, class, frames, most, .. } = self.patches;
        let Size::Area { min_pixels, max_pixels, multiple } = self.processor.size else { return false };
        let each = square.saturating_mul(square);
        let pixels = most.checked_mul(side).and_then(|n| n.checked_mul(side));
        let floats = pixels.and_then(|n| n.checked_mul(channels)?.checked_mul(frames));
        !class
            && self.processor.crop.is_none()
            && side.checked_mul(square) == Some(multiple as usize)
            && (self.rows.first, self.rows.every) == (each - 1, each)
            && self.text.count == 0
            && (1..=max_pixels).contains(&min_pixels)
            && pixels.is_some_and(|n| n as u64 >= max_pixels && max_pixels >= u64::from(multiple).pow(2))
            && floats.is_some_and(|n| n <= MOST)
    }

    /// Rows and columns of the patches of an image of these sides.
    ///
    /// # Errors
    /// Its sides are too unlike each other, or would become longer than the limits.
    pub fn grid(&self, height: u32, width: u32) -> Result<Grid, Error> {
        let Patches { side, grid, .. } = self.patches;
        if grid > 0 {
            return Ok(Grid { rows: grid, columns: grid });
        }
        let sides = self.processor.sides(height, width)?;
        let own = Grid { rows: sides.height as usize / side, columns: sides.width as usize / side };
        match own.count() <= self.patches.most {
            true => Ok(own),
            false => Err(Error::Large { width, height }),
        }
    }

    /// Rows and columns of the tokens of an image in a prompt; a single row, where images are of one size.
    pub fn place(&self, of: Grid) -> Grid {
        match self.patches {
            Patches { grid: 0, square, .. } => Grid { rows: of.rows / square, columns: of.columns / square },
            _ => Grid { rows: 1, columns: self.text.count },
        }
    }

    /// Most tokens of the tower for an image.
    pub fn most_tokens(&self) -> usize {
        match self.patches {
            Patches { grid: 0, most, .. } => most,
            Patches { grid, .. } => self.tokens(Grid { rows: grid, columns: grid }),
        }
    }

    /// Tokens of the tower for an image of these patches.
    pub fn tokens(&self, grid: Grid) -> usize {
        grid.count().saturating_add(usize::from(self.patches.class))
    }

    /// Elements of a token's row.
    pub fn columns(&self) -> usize {
        self.patches.channels * self.patches.frames * self.patches.side * self.patches.side
    }

    /// The numbers of the tokens whose rows are asked for.
    pub fn chosen(&self, grid: Grid) -> impl Iterator<Item = u32> + use<> {
        (self.rows.first..self.tokens(grid)).step_by(self.rows.every).map(|n| n as u32)
    }

    /// The places of patches, row and column, in the order of their rows: in squares.
    pub fn places(&self, grid: Grid) -> impl Iterator<Item = (usize, usize)> + use<> {
        let square = self.patches.square;
        let squares = (grid.columns / square).max(1);
        (0..grid.count()).map(move |i| {
            let (which, inside) = (i / (square * square), i % (square * square));
            (which / squares * square + inside / square, which % squares * square + inside % square)
        })
    }
}
