//! The text model of Phi-4-multimodal (arXiv 2503.01743): Phi-3, by the names of Transformers and by those of its
//! authors, whose file has adapters for images and for sound beside its matrices. Without either they are off.

use crate::arch::blocks::decoder::Defaults;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::phi_decoder::{ROTARY, decoder};
use crate::arch::blocks::names::{ATTN_OUT, ATTN_QKV, HUGGING_FACE, MLP_DOWN, MLP_GATE_UP, Names, Table};
use crate::config::common::{ATTENTION, MLP, MODEL, WINDOW};
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "phi4_multimodal_text",
    class: "Phi4MultimodalForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, WINDOW, ROTARY],
    fixed: &[
        ("model_type", Neutral::Words(&["phi4mm_text"])),
        ("architectures", Neutral::Words(&["Phi4MMForCausalLM"])),
    ],
    goldens: &["phi4_multimodal"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let sizes = Defaults { vocab: Some(200_064), heads: Some(32), kv_heads: Some(8), ..Defaults::LLAMA };
        Ok(Box::new(decoder(f, &Defaults { max_position: 131_072, ..sizes })?))
    },
};

/// With adapters beside them matrices have another name.
const NAMES: Table = &[
    (ATTN_QKV, "model.layers.{}.self_attn.qkv_proj"),
    (ATTN_QKV, "model.layers.{}.self_attn.qkv_proj.base_layer"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj.base_layer"),
    (MLP_GATE_UP, "model.layers.{}.mlp.gate_up_proj"),
    (MLP_GATE_UP, "model.layers.{}.mlp.gate_up_proj.base_layer"),
    (MLP_DOWN, "model.layers.{}.mlp.down_proj"),
    (MLP_DOWN, "model.layers.{}.mlp.down_proj.base_layer"),
];
