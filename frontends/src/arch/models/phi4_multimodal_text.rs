//! The text model of Phi-4-multimodal (arXiv 2503.01743): Phi-3, with the names of Transformers and of its authors,
//! whose file has adapters for images and for sound beside its matrices. Without either they are off.

use crate::arch::blocks::families::phi_decoder::{ROTARY, decoder};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "phi4_multimodal_text",
    class: "Phi4MultimodalForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, WINDOW, ROTARY],
    fixed: fixed! { Words(&["phi4mm_text"]) => model_type; Words(&["Phi4MMForCausalLM"]) => architectures; },
    goldens: &["phi4_multimodal"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let sizes = defaults! { vocab: 200_064, heads: 32, kv_heads: 8, ..LLAMA };
        Ok(Box::new(decoder(f, &defaults! { max_position: 131_072, ..sizes })?))
    },
};

/// With adapters beside them matrices have another name.
const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_QKV => "self_attn.qkv_proj", ATTN_QKV => "self_attn.qkv_proj.base_layer", ATTN_OUT => "self_attn.o_proj",
        ATTN_OUT => "self_attn.o_proj.base_layer", MLP_GATE_UP => "mlp.gate_up_proj",
        MLP_GATE_UP => "mlp.gate_up_proj.base_layer", MLP_DOWN => "mlp.down_proj",
        MLP_DOWN => "mlp.down_proj.base_layer",
    }
};
