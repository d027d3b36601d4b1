//! Refused images.

use super::limits::{MOST_PIXELS, MOST_SIDE};
use std::fmt;

/// Why an image is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The artifact's document is damaged.
    Document(String),
    /// The bytes are in no format that is read.
    Unknown,
    /// The file is broken.
    Broken(String),
    /// There are too many pixels.
    Large {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// A decoder needs more than it may.
    Limits(String),
    /// The bytes of pixels are not as many as the sides say.
    Bytes {
        /// Bytes that there are.
        found: usize,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Numbers that are no image for the tower.
    Pixels {
        /// Numbers that there are.
        found: usize,
        /// Channels.
        channels: usize,
        /// Rows of pixels.
        height: usize,
        /// Columns of pixels.
        width: usize,
    },
    /// One side is too long for the other.
    Narrow {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// A prompt has another number of markers than there are images.
    Markers {
        /// The marker.
        marker: String,
        /// Markers in the prompt.
        markers: usize,
        /// Images.
        images: usize,
    },
    /// A prompt has tokens of images already.
    Expanded {
        /// The text of such a token.
        placeholder: String,
        /// The text that stands for a whole image.
        marker: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Document(what) => {
                write!(f, "the artifact's description of its images is damaged: {what}; compile the model again")
            }
            Error::Unknown => f.write_str("this is no image in a format that is read: PNG, JPEG, WebP, GIF or BMP"),
            Error::Broken(what) => write!(f, "the image is broken: {what}"),
            Error::Large { width, height } => write!(
                f,
                "an image of {width}x{height} pixels is too large: at most {MOST_PIXELS} pixels, {MOST_SIDE} a side; \
                 make it smaller"
            ),
            Error::Limits(what) => write!(
                f,
                "the image is too large to decode, at most {MOST_PIXELS} pixels, {MOST_SIDE} a side: {what}; make it \
                 smaller"
            ),
            Error::Bytes { found, width, height } => {
                write!(f, "an image of {width}x{height} pixels has 3 bytes for each, but {found} are given")
            }
            Error::Pixels { found, channels, height, width } => {
                write!(f, "{found} numbers are no image of {channels} channels of {width}x{height} pixels")
            }
            Error::Narrow { width, height } => write!(
                f,
                "an image of {width}x{height} pixels is too narrow: one side may be 200 times the other; cut it"
            ),
            Error::Markers { marker, markers: 0, images } if *images > 0 => {
                write!(f, "there are {images} images and no {marker}")
            }
            Error::Markers { marker, markers, images } => {
                write!(f, "the prompt has {markers} {marker}, but {images} images are given: give one for each")
            }
            Error::Expanded { placeholder, marker } => {
                write!(
                    f,
                    "the prompt has {placeholder}, which stands for a part of an image: write {marker} for a whole one"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
