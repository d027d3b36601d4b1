//! Sounds: their files, and spectrograms of them.
//!
//! All numbers are f64, the tables are by `libm`, and sums have an order: a sound gives the same rows on every
//! processor. (Crates for Fourier transforms and resampling choose instructions by the processor, and take sines from
//! the system.)

mod fourier;
mod hearing;
mod mel;
mod resample;
mod wav;

pub use hearing::{Hearing, Transcription};
pub use mel::{Spectrogram, WINDOW_FRAMES};
pub use resample::{HIGHEST_RATE, LOWEST_RATE, resampled, resampling_bytes};
pub use wav::{Sound, read_wav};
