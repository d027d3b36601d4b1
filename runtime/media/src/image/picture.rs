//! Decoded images.

use super::error::Error;
use super::limits::{MOST_PIXELS, MOST_SIDE};

/// A decoded image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Columns of pixels.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
    /// Red, green and blue of each pixel, line by line.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// An image of these channels of 8 bits, red, green and blue of each pixel, line by line.
    ///
    /// # Errors
    /// It has no pixels, more than there may be, or not as many bytes as its sides say.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Result<Picture, Error> {
        Picture::check(width, height)?;
        let count = u64::from(width) * u64::from(height);
        if count == 0 || count * 3 != pixels.len() as u64 {
            return Err(Error::Bytes { found: pixels.len(), width, height });
        }
        Ok(Picture { width, height, pixels })
    }

    /// Whether an image may have these sides.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn check(width: u32, height: u32) -> Result<(), Error> {
        match u64::from(width) * u64::from(height) > MOST_PIXELS || width > MOST_SIDE || height > MOST_SIDE {
            true => Err(Error::Large { width, height }),
            false => Ok(()),
        }
    }
}
