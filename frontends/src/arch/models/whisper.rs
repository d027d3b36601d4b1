//! Whisper (arXiv 2212.04356) and Distil-Whisper: an encoder of spectrograms, and a decoder that writes what is said.

use crate::arch::blocks::attention::HeadForm;
use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::encoder_decoder::EncoderDecoder;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::names::{
    ATTN_Q_BIAS, ATTN_V_BIAS, CROSS_K, CROSS_NORM, CROSS_OUT, CROSS_Q, CROSS_V, MLP_DOWN, MLP_NORM, MLP_UP,
};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::sound_rows::{FIRST_CONV, SECOND_CONV, SoundRows};

pub(crate) const ARCH: Arch = Arch {
    model_type: "whisper",
    class: "WhisperForConditionalGeneration",
    fields: &[IDENTITY, FIELDS, SIZES],
    fixed: fixed! {
        On => is_encoder_decoder;
        Off => scale_embedding;
        // Settings of training, of classifiers, and of timestamps of words.
        Any => num_hidden_layers apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks
            mask_feature_prob mask_feature_length mask_feature_min_masks use_weighted_layer_sum classifier_proj_size
            median_filter_width;
    },
    goldens: &["whisper", "whisper_128"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size, d_model, encoder_layers, decoder_layers, encoder_attention_heads,
    decoder_attention_heads, encoder_ffn_dim, decoder_ffn_dim,
    activation_function: Accepts::OneOf(&["gelu", "gelu_new", "relu", "silu", "swish"]), tie_word_embeddings,
    bos_token_id, eos_token_id,
};

/// Sizes of clips and texts, which parts of other models have under the same names.
const SIZES: &[Field] = &[
    Field::new("num_mel_bins", Accepts::Size(4096)).unless(Neutral::Any),
    Field::new("max_source_positions", Accepts::Size(1 << 20)).unless(Neutral::Any),
    Field::new("max_target_positions", Accepts::Size(1 << 20)).unless(Neutral::Any),
];

/// Addend of all norms.
const EPS: f32 = 1e-5;

fn read(f: &Fields) -> Result<EncoderDecoder, ConfigError> {
    let sound = SoundRows { mels: f.size("num_mel_bins").or(80), tokens: f.size("max_source_positions").or(1500) };
    let (encoder, decoder) = (
        stack(f, ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"])?,
        stack(f, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?,
    );
    let mut decoder = decoder;
    let rows = decoder.facts.max_position;
    decoder.embedding.positions = Some(Positions { rows, first: 0, filler: None });
    decoder.embedding.shared = true;
    // A copy of the table.
    decoder.spare = &["proj_out."];
    let mut cross = match decoder.layers.first() {
        Some(layer) => layer.attention,
        None => return Err(f.missing("decoder_layers")),
    };
    cross.change_heads(|_, h| (h.qkv_bias, h.bare_bias) = (true, BareBias::Absent));
    decoder.layers.iter_mut().for_each(|layer| layer.attention.causal = true);
    let encoder_names = Names(&[ENCODER]);
    Ok(EncoderDecoder {
        encoder,
        encoder_names,
        sound: Some(sound),
        decoder,
        cross,
        cross_key_bias: false,
        head_scale: None,
        head_bias: false,
    })
}

/// The layers of a stack, whose tokens all see each other; keys have no bias.
fn stack(f: &Fields, [layers, heads, ffn]: [&'static str; 3]) -> Result<Encoder, ConfigError> {
    let (hidden, vocab) = (f.size("d_model").or(384), f.size("vocab_size").or(51_865));
    let facts = Facts {
        name: None,
        vocab,
        hidden,
        layers: f.size(layers).or(4),
        max_position: f.size("max_target_positions").or(448),
        tied: f.flag_or("tie_word_embeddings", true),
        bos: f.token_ids("bos_token_id", vocab)?.first().copied(),
        eos: f.token_ids("eos_token_id", vocab)?,
    };
    let queries = f.size(heads).or(6);
    if !hidden.is_multiple_of(queries) {
        return Err(f.invalid(heads, &queries, format!("a divisor of `d_model`, which is {hidden}")));
    }
    let heads = Heads { queries, kv: queries, dim: hidden / queries };
    let act = common::activation(f, "activation_function", UnaryOp::Gelu);
    let mut e = Encoder::alike(facts, heads, (f.size(ffn).or(1536), act), EPS);
    (e.norm_first, e.embedding.norm) = (true, false);
    let biases = |h: &mut HeadForm| (h.qkv_bias, h.bare_bias) = (false, BareBias::QueriesAndValues);
    e.layers.iter_mut().for_each(|layer| layer.attention.change_heads(|_, h| biases(h)));
    Ok(e)
}

const NAMES: Table = names! {
    "model.decoder." { TABLE => "embed_tokens", POSITIONS => "embed_positions", NORM => "layer_norm" }
    "" { HEAD => "proj_out" }
    "model.decoder.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj", ATTN_Q_BIAS => "self_attn.q_proj.bias",
        ATTN_K => "self_attn.k_proj", ATTN_V => "self_attn.v_proj", ATTN_V_BIAS => "self_attn.v_proj.bias",
        ATTN_OUT => "self_attn.out_proj", CROSS_NORM => "encoder_attn_layer_norm", CROSS_Q => "encoder_attn.q_proj",
        CROSS_K => "encoder_attn.k_proj", CROSS_V => "encoder_attn.v_proj", CROSS_OUT => "encoder_attn.out_proj",
        MLP_NORM => "final_layer_norm", MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
};

/// Names that `encode` reads.
const ENCODER: Table = names! {
    "model.encoder." {
        FIRST_CONV => "conv1", SECOND_CONV => "conv2", POSITIONS => "embed_positions", NORM => "layer_norm",
    }
    "model.encoder.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj", ATTN_Q_BIAS => "self_attn.q_proj.bias",
        ATTN_K => "self_attn.k_proj", ATTN_V => "self_attn.v_proj", ATTN_V_BIAS => "self_attn.v_proj.bias",
        ATTN_OUT => "self_attn.out_proj", MLP_NORM => "final_layer_norm", MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
    "model.decoder.layers.{}." { CROSS_K => "encoder_attn.k_proj", CROSS_V => "encoder_attn.v_proj" }
};
