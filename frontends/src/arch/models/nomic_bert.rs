//! Nomic BERT (arXiv 2402.01613): BERT with rotary positions and gated MLPs, without biases in
//! products.

use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE, MLP_POST_NORM, MLP_UP, Names, POOLER, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::common::{self, ATTENTION, DefaultHeads, Facts, GPT_SIZES, Heads, ROTARY, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nomic_bert",
    class: "NomicBertModel",
    fields: &[IDENTITY, GPT_SIZES, OWN],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        // These are in the authors' files.
        ("causal", Neutral::Off),
        ("use_rms_norm", Neutral::Off),
        ("prenorm", Neutral::Off),
        ("parallel_block", Neutral::Off),
        ("qkv_proj_bias", Neutral::Off),
        ("mlp_fc1_bias", Neutral::Off),
        ("mlp_fc2_bias", Neutral::Off),
        ("rotary_emb_interleaved", Neutral::Off),
        ("rotary_emb_scale_base", Neutral::Off),
        ("pad_vocab_size_multiple", Neutral::Any),
    ],
    goldens: &["nomic_bert"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut facts = Facts::read(f, Some(30_528), 2048, true)?;
        // Changes the frequencies of longer texts than were trained with.
        if f.number("rotary_scaling_factor").is_some() {
            facts.max_position = facts.max_position.min(f.size("max_trained_positions").or(2048));
        }
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let act = match f.text("hidden_act") {
            Some("geglu") => UnaryOp::Gelu,
            _ => common::activation(f, "hidden_act", UnaryOp::Silu),
        };
        let ffn = f.required_size("intermediate_size")?;
        let rope = rope::read(f, heads.dim, facts.max_position, 1000.0)?;
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", 1e-12)?);
        e.types = f.size("type_vocab_size").or(2);
        e.ropes = vec![rope];
        for layer in &mut e.layers {
            let a = &mut layer.attention;
            (a.fused, a.qkv_bias, a.out_bias, a.rotary) = (true, false, false, Some(0));
            (layer.mlp.gated, layer.mlp.bias) = (true, false);
        }
        e.spare = &["nomic_bert.pooler.", "pooler.", "cls."];
        Ok(Box::new(e))
    },
};

/// Activations of gates by their names in Transformers, and by those of gated MLPs in the authors' files.
const ACTS: &[&str] =
    &["silu", "swish", "swiglu", "gelu", "geglu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu"];

/// The second names are those of the authors' files.
const OWN: &[Field] = &[
    ATTENTION[1],
    ATTENTION[2],
    Field::new("rope_theta", Accepts::Number).or(&["rotary_emb_base"]),
    ROTARY[1],
    ROTARY[2],
    ROTARY[3],
    Field::new("rotary_scaling_factor", Accepts::Number),
    Field::new("max_trained_positions", TOKENS).unless(Neutral::Any),
    Field::new("intermediate_size", WIDTH).or(&["n_inner"]),
    Field::new("hidden_act", Accepts::OneOf(ACTS)).or(&["activation_function"]),
    Field::new("layer_norm_eps", Accepts::Number).or(&["layer_norm_epsilon"]),
    Field::new("type_vocab_size", Accepts::Size(1 << 14)),
];

const NAMES: Table = &[
    (TABLE, "nomic_bert.embeddings.word_embeddings"),
    (TYPES, "nomic_bert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "nomic_bert.emb_ln"),
    (ATTN_QKV, "nomic_bert.encoder.layers.{}.attn.Wqkv"),
    (ATTN_OUT, "nomic_bert.encoder.layers.{}.attn.out_proj"),
    (ATTN_POST_NORM, "nomic_bert.encoder.layers.{}.norm1"),
    (MLP_GATE, "nomic_bert.encoder.layers.{}.mlp.fc12"),
    (MLP_UP, "nomic_bert.encoder.layers.{}.mlp.fc11"),
    (MLP_DOWN, "nomic_bert.encoder.layers.{}.mlp.fc2"),
    (MLP_POST_NORM, "nomic_bert.encoder.layers.{}.norm2"),
    (POOLER, "nomic_bert.pooler.dense"),
    (CLASSES, "classifier"),
];
