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

/// A height and a width, or the length of the shorter side, the longer one keeping its ratio.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Size {
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
    /// Patches of an image's side.
    pub grid: usize,
    /// Channels.
    pub channels: usize,
    /// Patches come in squares of so many a side, the patches of a square one after the other.
    pub square: usize,
    /// A row of zeros comes first.
    pub class: bool,
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
    /// How many there are.
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
        let Patches { side, grid, channels, square, class } = self.patches;
        let of_patches = side.checked_mul(grid).filter(|n| *n > 0 && *n < 1 << 15);
        let small = of_patches.and_then(|n| n.checked_mul(n)?.checked_mul(channels)).is_some_and(|n| n <= MOST);
        let whole = |sides: Sides| Some([sides.height as usize, sides.width as usize]) == of_patches.map(|n| [n; 2]);
        let sees = match (self.processor.crop, self.processor.size) {
            (Some(crop), _) => whole(crop),
            (None, Size::Whole(sides)) => whole(sides),
            (None, Size::Shortest { .. }) => false,
        };
        let Chosen { first, every } = self.rows;
        let tokens = grid.saturating_mul(grid).saturating_add(usize::from(class));
        let rows = tokens.checked_sub(first).map_or(0, |n| n.div_ceil(every.max(1)));
        let divides = square > 0 && grid.is_multiple_of(square);
        small
            && sees
            && channels == 3
            && divides
            && every > 0
            && rows == self.text.count
            && rows > 0
            && self.text.token >= 0
    }

    /// Tokens of the tower for an image.
    pub fn tokens(&self) -> usize {
        self.patches.grid * self.patches.grid + usize::from(self.patches.class)
    }

    /// Elements of a token's row.
    pub fn columns(&self) -> usize {
        self.patches.channels * self.patches.side * self.patches.side
    }

    /// The numbers of the tokens whose rows are asked for.
    pub fn chosen(&self) -> impl Iterator<Item = u32> + use<> {
        (self.rows.first..self.tokens()).step_by(self.rows.every).map(|n| n as u32)
    }
}
