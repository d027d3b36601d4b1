//! Kinds of models that are not compiled, with the reason: messages about them say more than that a
//! name is unknown.

/// Values of `model_type`, and the message for each.
const KINDS: &[(&str, &str)] = &[
    (
        "nllb-moe",
        "it has an encoder, a decoder that reads the encoder's output, and experts that drop tokens when too \
            many choose them; only models of one stack of layers are supported",
    ),
    (
        "switch_transformers longt5 udop pix2struct t5gemma t5gemma2 plbart pegasus pegasus_x bigbird_pegasus led \
         m2m_100 fsmt blenderbot blenderbot-small prophetnet xlm-prophetnet mvp \
         encoder-decoder rag",
        "it has an encoder and a decoder that reads the encoder's output; of such models T5, mT5, UMT5, BART, mBART \
            and Marian are supported",
    ),
    (
        "moonshine speech_to_text speech-encoder-decoder speecht5 seamless_m4t seamless_m4t_v2 wav2vec2 \
         wav2vec2-bert hubert wavlm unispeech unispeech-sat data2vec-audio audio-spectrogram-transformer clap encodec \
         musicgen bark vits parler_tts",
        "it reads or makes sound; of such models Whisper is supported",
    ),
    (
        "clip siglip siglip2 altclip chinese_clip align blip vit vit_mae deit beit dinov2 dinov3_vit swin convnext \
         resnet detr yolos sam segformer owlvit vision-encoder-decoder vision-text-dual-encoder trocr",
        "it reads images; only models that read and write text are supported, and the text models of multimodal ones",
    ),
    (
        "xmod",
        "its layers have an adapter per language, which each text selects; only models whose texts are tokens \
            alone are supported",
    ),
    (
        "roc_bert",
        "it reads shapes and sounds of characters beside its tokens; only models whose texts are tokens alone \
            are supported",
    ),
    (
        "layoutlm layoutlmv2 layoutlmv3 lilt",
        "it reads the places of words on a page; only models whose texts are tokens alone are supported",
    ),
    ("glm_image", "it writes the tokens of an image; only models that read and write text are supported"),
    (
        "unlimited_ocr",
        "tokens it writes see the whole prompt but only the last written token, so results depend on where the \
            prompt ends; only models whose tokens are all alike are supported",
    ),
    (
        "openai_privacy_filter",
        "it labels each token of a text; only models that write text, embed it or score classes of it are supported",
    ),
    (
        "paligemma colpali cpmant hrm_text",
        "tokens of a prompt also see later ones, which a step of a part of it cannot compute; only models that \
            read from the first token to the last are supported",
    ),
];

/// Why models of this type are not compiled, if there is more to say than that they are not known.
pub(crate) fn reason(model_type: &str) -> Option<&'static str> {
    let named = |types: &str| types.split_whitespace().any(|t| t == model_type);
    KINDS.iter().find(|(types, _)| named(types)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::KINDS;
    use crate::arch::ARCHS;

    #[test]
    fn what_is_compiled_is_not_beyond() {
        let names = KINDS.iter().flat_map(|(types, _)| types.split_whitespace());
        let compiled = |name: &&str| ARCHS.iter().any(|a| a.model_type == *name && !a.is_part());
        let both: Vec<&str> = names.filter(compiled).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}
