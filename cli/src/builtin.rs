//! The text of the compiler's own, for calibration and measurements.

/// Its name in options and records.
pub const NAME: &str = "builtin";
/// Prose, dialogue and data in English, German and French, code in Python, Rust and C; documents between lines with
/// [`SEPARATOR`].
pub const TEXT: &str = include_str!("calib/builtin.txt");
/// A line with this alone separates the documents of a text.
pub const SEPARATOR: &str = "<|document|>";
