//! Sounds: their files, and spectrograms of them.
