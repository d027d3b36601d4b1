//! The largest images.

/// Most pixels of a side.
pub const MOST_SIDE: u32 = 1 << 15;
/// Most pixels.
pub const MOST_PIXELS: u64 = 1 << 27;
