//! Images: their files, and rows of their pixels, as image processors of Transformers make them.

mod decode;
mod error;
mod limits;
mod picture;
mod pixels;
mod spec;
mod text;

pub use decode::{decode, sides};
pub use error::Error;
pub use limits::{MOST_PIXELS, MOST_SIDE};
pub use picture::Picture;
pub use spec::{Chosen, Grid, Patches, Place, Processor, Sides, Size, Spec};
