//! Architectures of GGUF files, as a table: their keys and tensors in Transformers, and llama.cpp's
//! converter's changes to values.

mod by_layer;
mod decoders;
mod delta;
mod encoders;
mod family;
mod gemma;
mod latent;
mod mixtures;
mod parallel;
mod recurrent;
mod streams;
mod t5;
mod time_mixes;
mod windowed;

use family::{
    ATTENTION_BIAS, Constants, EXPERTS, Gains, Keys, LATENT, LAYER_NORM, Made, PLAIN, Q_BIAS, Reading, SIGMOID, Stored,
    WINDOW, below, has_experts, head_by_head, rows,
};
pub(super) use family::{Family, Heads, Lines, Recipe};

/// All families.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    [
        decoders::FAMILIES,
        parallel::FAMILIES,
        mixtures::FAMILIES,
        by_layer::FAMILIES,
        windowed::FAMILIES,
        latent::FAMILIES,
        delta::FAMILIES,
        gemma::FAMILIES,
        recurrent::FAMILIES,
        streams::FAMILIES,
        time_mixes::FAMILIES,
        encoders::FAMILIES,
        t5::FAMILIES,
    ]
    .into_iter()
    .flatten()
}
