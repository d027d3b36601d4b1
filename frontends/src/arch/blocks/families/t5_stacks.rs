//! T5 and those after it as a whole: the encoder, and a decoder whose layers attend to their own tokens, to the
//! encoder's rows, and have an MLP, each behind an RMSNorm. Scores have no scale; those of a decoder's own tokens get a
//! learned number by the distance of the key, cross-attention none.

use crate::arch::blocks::attention::Attention;
use crate::arch::blocks::attention_scores::Distance;
use crate::arch::blocks::encoder_decoder::EncoderDecoder;
use crate::arch::blocks::families::t5_encoder::{self, Absent, BUCKETS};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, CROSS_K, CROSS_NORM, CROSS_OUT, CROSS_Q, CROSS_V, HEAD, MLP_DOWN,
    MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table, names,
};
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::{Neutral, fixed};

/// Fields that the classes decide which scale always or never.
pub(crate) const FIXED_SCALE: &[(&str, Neutral)] = fixed! {
    Off => is_decoder;
    On => is_encoder_decoder;
    Any => dropout_rate bos_token_id scalable_attention scale_decoder_outputs;
};

/// Fields that T5's class decides.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Off => is_decoder;
    On => is_encoder_decoder;
    Any => dropout_rate bos_token_id scalable_attention;
};

/// Their fields beside those of the encoder.
pub(crate) const FIELDS: &[Field] = fields! { num_decoder_layers, tie_word_embeddings };

/// Whether the rows that logits are made of are multiplied by `1/√d_model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadScale {
    /// They are.
    Always,
    /// They are not.
    Never,
    /// As `scale_decoder_outputs` says, or unless `tie_word_embeddings` is false, which says that the
    /// model is T5 1.1 or one after it.
    WhereTied,
}

/// Reads [`t5_encoder::FIELDS`] and [`FIELDS`]. The encoder's tensors have the names `encoder_names`.
pub(crate) fn read(
    f: &Fields,
    d: &Absent,
    scale: HeadScale,
    encoder_names: Names,
) -> Result<EncoderDecoder, ConfigError> {
    let mut encoder = t5_encoder::read(f, d)?;
    encoder.embedding.shared = true;
    let tied = f.flag_or("tie_word_embeddings", true);
    encoder.facts.tied = tied;
    let mut decoder = encoder.clone();
    // Copies of the table, and numbers of distances that cross-attention had in the first checkpoints and never read.
    decoder.spare = &["encoder.embed_tokens.", "decoder.embed_tokens."];
    decoder.passes = &["EncDecAttention.relative_attention_bias"];
    let layers = f.size("num_decoder_layers").or(encoder.facts.layers);
    decoder.facts.layers = layers;
    let mut own = encoder.layers.first().copied().ok_or_else(|| f.missing("num_layers"))?;
    own.attention.causal = true;
    own.attention.change_heads(|_, h| h.with_dot(|s| s.distance = Some(Distance::BucketsBehind(BUCKETS))));
    decoder.layers = vec![own; layers];
    let heads = own.attention.heads;
    let cross = Attention { scale: 1.0, rotary: None, causal: false, ..Attention::plain(heads, None) };
    let scaled = match scale {
        HeadScale::Always => true,
        HeadScale::Never => false,
        HeadScale::WhereTied => f.flag_or("scale_decoder_outputs", tied),
    };
    let head_scale = scaled.then(|| 1.0 / (decoder.facts.hidden as f64).sqrt()).map(|scale| scale as f32);
    Ok(EncoderDecoder {
        encoder,
        encoder_names,
        sound: None,
        decoder,
        cross,
        cross_key_bias: false,
        head_scale,
        head_bias: false,
    })
}

/// Names of the decoder, except the bias of scores by distance.
pub(crate) const NAMES: Table = names! {
    "" { TABLE => "shared" }
    "decoder." { TABLE => "embed_tokens", NORM => "final_layer_norm" }
    "" { HEAD => "lm_head" }
    "decoder.block.{}." {
        ATTN_NORM => "layer.0.layer_norm", ATTN_Q => "layer.0.SelfAttention.q", ATTN_K => "layer.0.SelfAttention.k",
        ATTN_V => "layer.0.SelfAttention.v", ATTN_OUT => "layer.0.SelfAttention.o",
        CROSS_NORM => "layer.1.layer_norm", CROSS_Q => "layer.1.EncDecAttention.q",
        CROSS_K => "layer.1.EncDecAttention.k", CROSS_V => "layer.1.EncDecAttention.v",
        CROSS_OUT => "layer.1.EncDecAttention.o", MLP_NORM => "layer.2.layer_norm",
        MLP_GATE => "layer.2.DenseReluDense.wi_0", MLP_UP => "layer.2.DenseReluDense.wi_1",
        MLP_UP => "layer.2.DenseReluDense.wi", MLP_DOWN => "layer.2.DenseReluDense.wo",
    }
};

/// Names that `encode` reads beside the encoder's: keys and values of the source, and a head of its own.
pub(crate) const SOURCES: Table = names! {
    "decoder.block.{}." { CROSS_K => "layer.1.EncDecAttention.k", CROSS_V => "layer.1.EncDecAttention.v" }
    "" { HEAD => "lm_head" }
};
