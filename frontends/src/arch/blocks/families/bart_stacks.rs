//! BART (arXiv 1910.13461) and models after it: LayerNorm, biases everywhere, positions in a table, and norms after the
//! blocks, or before them with one more after the last.

use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::encoder_decoder::{EncoderDecoder, LOGITS_BIAS};
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CROSS_K, CROSS_NORM, CROSS_OUT, CROSS_POST_NORM,
    CROSS_Q, CROSS_V, HEAD, MLP_DOWN, MLP_NORM, MLP_POST_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, TABLE_NORM,
    Table, names,
};
use crate::arch::blocks::sinusoidal_positions::{Rates, Sines};
use crate::config::ConfigError;
use crate::config::common::{self, Facts, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use llmcc_ir::graph::UnaryOp;

/// Their activations.
const ACTS: &[&str] = &["gelu", "gelu_new", "relu", "silu", "swish"];

/// Their fields.
pub(crate) const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size, d_model, max_position_embeddings, encoder_layers, decoder_layers,
    encoder_attention_heads, decoder_attention_heads, encoder_ffn_dim, decoder_ffn_dim,
    activation_function: Accepts::OneOf(ACTS), scale_embedding, tie_word_embeddings, bos_token_id, eos_token_id,
};

/// Differences of the models.
pub(crate) struct Differences {
    /// Norms come before the blocks.
    pub norm_first: bool,
    /// There is a norm of the embeddings.
    pub norm_embedding: bool,
    /// Positions are sines, unless the file has a table of them; else learned, from row 2 on.
    pub sines: bool,
    /// `vocab_size`.
    pub vocab: usize,
}

/// Sizes of a stack.
struct Stack {
    layers: usize,
    heads: usize,
    ffn: usize,
    /// The field that says `heads`.
    of_heads: &'static str,
}

impl Stack {
    fn read(f: &Fields, [layers, heads, ffn]: [&'static str; 3]) -> Stack {
        Stack { layers: f.size(layers).or(12), heads: f.size(heads).or(16), ffn: f.size(ffn).or(4096), of_heads: heads }
    }

    /// The stack, whose tokens all see each other.
    fn encoder(&self, f: &Fields, d: &Differences) -> Result<Encoder, ConfigError> {
        let (hidden, vocab) = (f.size("d_model").or(1024), f.size("vocab_size").or(d.vocab));
        let facts = Facts {
            name: None,
            vocab,
            hidden,
            layers: self.layers,
            max_position: f.size("max_position_embeddings").or(1024),
            tied: f.flag_or("tie_word_embeddings", true),
            bos: f.token_ids("bos_token_id", vocab)?.first().copied(),
            eos: f.token_ids("eos_token_id", vocab)?,
        };
        if !hidden.is_multiple_of(self.heads) {
            return Err(f.invalid(self.of_heads, &self.heads, format!("a divisor of `d_model`, which is {hidden}")));
        }
        let heads = Heads { queries: self.heads, kv: self.heads, dim: hidden / self.heads };
        let act = common::activation(f, "activation_function", UnaryOp::Gelu);
        let rows = facts.max_position;
        let mut e = Encoder::alike(facts, heads, (self.ffn, act), EPS);
        (e.norm_first, e.embedding.norm, e.embedding.shared) = (d.norm_first, d.norm_embedding, true);
        e.embedding.scale = f.flag_or("scale_embedding", false).then(|| (hidden as f64).sqrt() as f32);
        let first = if d.sines { 0 } else { FIRST };
        e.embedding.positions = Some(Positions { rows: rows.saturating_add(first), first, filler: None });
        e.embedding.sines = d.sines.then_some(Sines { rates: Rates::InF64, skip: 0, zero: None });
        Ok(e)
    }
}

/// Row of the first position in its table.
const FIRST: usize = 2;

/// Addend of all norms.
const EPS: f32 = 1e-5;

/// Reads [`FIELDS`].
pub(crate) fn read(f: &Fields, d: &Differences) -> Result<EncoderDecoder, ConfigError> {
    let encoder = Stack::read(f, ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"]).encoder(f, d)?;
    let mut decoder = Stack::read(f, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"]).encoder(f, d)?;
    // Copies of the table.
    decoder.spare = &["model.encoder.embed_tokens.", "model.decoder.embed_tokens."];
    let cross = match decoder.layers.first() {
        Some(layer) => layer.attention,
        None => return Err(f.missing("decoder_layers")),
    };
    decoder.layers.iter_mut().for_each(|layer| layer.attention.causal = true);
    let encoder_names = Names(&[ENCODER]);
    Ok(EncoderDecoder {
        encoder,
        encoder_names,
        sound: None,
        decoder,
        cross,
        cross_key_bias: true,
        head_scale: None,
        head_bias: true,
    })
}

/// Names of the decoder.
pub(crate) const NAMES: Table = names! {
    "model." { TABLE => "shared", TABLE => "decoder.embed_tokens" }
    "" { HEAD => "lm_head", LOGITS_BIAS => "final_logits_bias" }
    "model.decoder." { POSITIONS => "embed_positions", TABLE_NORM => "layernorm_embedding", NORM => "layer_norm" }
    "model.decoder.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_POST_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj",
        ATTN_K => "self_attn.k_proj", ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj",
        CROSS_NORM => "encoder_attn_layer_norm", CROSS_POST_NORM => "encoder_attn_layer_norm",
        CROSS_Q => "encoder_attn.q_proj", CROSS_K => "encoder_attn.k_proj", CROSS_V => "encoder_attn.v_proj",
        CROSS_OUT => "encoder_attn.out_proj", MLP_NORM => "final_layer_norm", MLP_POST_NORM => "final_layer_norm",
        MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
};

/// Names that `encode` reads.
const ENCODER: Table = names! {
    "model." { TABLE => "shared", TABLE => "encoder.embed_tokens" }
    "" { HEAD => "lm_head" }
    "model.encoder." { POSITIONS => "embed_positions", TABLE_NORM => "layernorm_embedding", NORM => "layer_norm" }
    "model.encoder.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_POST_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj",
        ATTN_K => "self_attn.k_proj", ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj",
        MLP_NORM => "final_layer_norm", MLP_POST_NORM => "final_layer_norm", MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
    "model.decoder.layers.{}." { CROSS_K => "encoder_attn.k_proj", CROSS_V => "encoder_attn.v_proj" }
};
