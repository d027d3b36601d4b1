//! Tensors of the parts of a model other than its text model: vision, audio, speech and image
//! parts, and the projections between these and the text model.

/// Words in the names of such parts: of modules in Transformers, and in files of the models' authors.
const WORDS: &[&str] = &[
    "vision",
    "visual",
    "image",
    "img",
    "pixel",
    "video",
    "audio",
    "speech",
    "sound",
    "voice",
    "acoustic",
    "semantic",
    "whisper",
    "siglip",
    "radio",
    "talker",
    "2wav",
    "vocoder",
    "projector",
    "projection",
    "connector",
    "aligner",
    "resampler",
    "merger",
    "patch_merge",
    "newline",
    "view_sep",
    "tile_indicators",
    "qformer",
    "query_tokens",
    "vqmodel",
    "sam_model",
    "embed_tokens_extend",
];

/// Names of whole modules.
const MODULES: &[&str] = &[
    "vit",
    "vpm",
    "apm",
    "tts",
    "vte",
    "mlp1",
    "clip",
    "encoder",
    "gen_head",
    "gen_embed",
    "qwen2_model",
    "generation_embeddings",
    "time_embedding",
    "time_embedder",
    "proj_in",
    "proj_out",
    "action_proj_in",
    "action_proj_out",
    "action_modality_embed",
];

/// Parts of names of tensors in the layers and tables of the text model that no text needs:
/// adapters for other inputs, rows of a second table, and a model in the same layers that makes
/// images and sound.
const WITHIN: &[&str] = &[
    ".lora_A.speech.",
    ".lora_B.speech.",
    ".lora_A.vision.",
    ".lora_B.vision.",
    ".wte.new_embedding",
    "_moe_gen.",
    ".self_attn.add_q_proj.",
    ".self_attn.add_k_proj.",
    ".self_attn.add_v_proj.",
    ".self_attn.to_add_out.",
    ".self_attn.norm_added_q.",
    ".self_attn.norm_added_k.",
    ".self_attn.k_norm_und_for_gen.",
];

/// Whether a tensor lies among the text model's and has another purpose.
pub(crate) fn within_text(tensor: &str) -> bool {
    WITHIN.iter().any(|part| tensor.contains(part))
}

/// Whether a tensor beside the text model belongs to a known part, by the modules that it is in down to the first that
/// is one of several.
pub(crate) fn is_other(tensor: &str) -> bool {
    let mut modules = tensor.split('.').take_while(|module| !module.bytes().all(|b| b.is_ascii_digit()));
    modules.any(|module| MODULES.contains(&module) || WORDS.iter().any(|word| module.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::is_other;

    #[test]
    fn parts_are_known_by_their_modules() {
        for tensor in [
            "visual.blocks.0.attn.qkv.weight",
            "model.vision_tower.encoder.layers.0.mlp.fc1.weight",
            "multi_modal_projector.linear_1.bias",
            "model.image_newline",
            "thinker.audio_tower.proj.weight",
            "talker.model.layers.0.mlp.up_proj.weight",
            "code2wav.decoder.0.conv.weight",
            "vpm.encoder.layers.0.layer_norm1.weight",
            "mlp1.1.weight",
            "vit.layers.0.norm1.weight",
        ] {
            assert!(is_other(tensor), "{tensor}");
        }
        for tensor in [
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
            "extra.layers.0.vision.weight",
            "model.adapter.0.down.weight",
            "model.layers2.0.mlp.up_proj.weight",
            "head.weight",
        ] {
            assert!(!is_other(tensor), "{tensor}");
        }
    }
}
