//! Images from the bytes of their files.

use super::error::Error;
use super::limits::MOST_SIDE;
use super::picture::Picture;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Most bytes that a decoder may take, beside the pixels.
const MOST_BYTES: u64 = 1 << 30;

/// The formats that are read, by their first bytes.
const FORMATS: [ImageFormat; 5] =
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp];

/// The width and the height of an image as [`decode`] gives it, by the beginning of its bytes.
///
/// # Errors
/// As [`decode`], as far as the beginning shows.
pub fn sides(bytes: &[u8]) -> Result<(u32, u32), Error> {
    let (decoder, orientation) = opened(bytes)?;
    let (width, height) = decoder.dimensions();
    Ok(match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            (height, width)
        }
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (width, height),
    })
}

/// Decodes an image as RGB, the first one of several: alpha is dropped, grey is the same in all channels, the upper 8
/// bits of 16 count. It is turned as its EXIF says. (So does `load_image` of Transformers with files, by Pillow.)
///
/// # Errors
/// The bytes are no image in a known format, or a broken one; it is larger than the limits.
pub fn decode(bytes: &[u8]) -> Result<Picture, Error> {
    let (decoder, orientation) = opened(bytes)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(refused)?;
    image.apply_orientation(orientation);
    let (width, height) = (image.width(), image.height());
    Ok(Picture { width, height, pixels: rgb(image) })
}

/// The decoder of an image that has read its beginning, and how the image is to be turned.
fn opened(bytes: &[u8]) -> Result<(impl ImageDecoder + '_, Orientation), Error> {
    let mut reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| Error::Broken(e.to_string()))?;
    if !reader.format().is_some_and(|format| FORMATS.contains(&format)) {
        return Err(Error::Unknown);
    }
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MOST_SIDE), Some(MOST_SIDE));
    limits.max_alloc = Some(MOST_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    Picture::check(width, height)?;
    if width == 0 || height == 0 {
        return Err(Error::Broken("it has no pixels".into()));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((decoder, orientation))
}

fn refused(error: ImageError) -> Error {
    match error {
        ImageError::Limits(limit) => Error::Limits(limit.to_string()),
        other => Error::Broken(other.to_string()),
    }
}

/// Channels of 8 bits, red, green and blue.
fn rgb(image: DynamicImage) -> Vec<u8> {
    let thrice = |grey: u8| [grey; 3];
    // Pillow has the upper 8 bits of colours with 16; grey with 16 it clips.
    let upper = |x: u16| (x >> 8) as u8;
    match image {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageLuma8(image) => image.into_raw().into_iter().flat_map(thrice).collect(),
        DynamicImage::ImageLumaA8(image) => image.pixels().flat_map(|p| thrice(p.0[0])).collect(),
        DynamicImage::ImageRgba8(image) => image.pixels().flat_map(|p| [p.0[0], p.0[1], p.0[2]]).collect(),
        DynamicImage::ImageLuma16(image) => {
            image.into_raw().into_iter().flat_map(|x| thrice(u8::try_from(x).unwrap_or(u8::MAX))).collect()
        }
        DynamicImage::ImageLumaA16(image) => image.pixels().flat_map(|p| thrice(upper(p.0[0]))).collect(),
        DynamicImage::ImageRgb16(image) => image.into_raw().into_iter().map(upper).collect(),
        DynamicImage::ImageRgba16(image) => image.pixels().flat_map(|p| [p.0[0], p.0[1], p.0[2]].map(upper)).collect(),
        other => other.to_rgb8().into_raw(),
    }
}
