//! Sizes of encoders that have short names for them: XLM and its successors.

use crate::config::ConfigError;
use crate::config::common::{Facts, Heads};
use crate::config::fields::Fields;

/// The sizes of such an encoder, whose width is the field `width`. `default`: entries of the vocabulary, width,
/// layers, heads.
pub(crate) fn short_sizes(f: &Fields, width: &'static str, default: [usize; 4]) -> Result<(Facts, Heads), ConfigError> {
    let [vocab, hidden, layers, queries] = default;
    let facts = Facts {
        name: None,
        vocab: f.size("vocab_size").or(vocab),
        hidden: f.size(width).or(hidden),
        layers: f.size("n_layers").or(layers),
        max_position: f.size("max_position_embeddings").or(512),
        tied: true,
        bos: None,
        eos: vec![],
    };
    let (hidden, queries) = (facts.hidden, f.size("n_heads").or(queries));
    if !hidden.is_multiple_of(queries) {
        return Err(f.invalid(width, &hidden, format!("a multiple of `n_heads` ({queries})")));
    }
    Ok((facts, Heads { queries, kv: queries, dim: hidden / queries }))
}
