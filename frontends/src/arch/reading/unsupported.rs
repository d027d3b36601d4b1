//! Kinds of models that are not compiled, with the reason: messages about them say more than that a
//! name is unknown.

/// Values of `model_type`, and the message for each.
const KINDS: &[(&str, &str)] = &[
    (
        "nllb-moe",
        "it has an encoder and a decoder that reads what the encoder made, and experts that leave tokens out when \
         too many chose them; models of one stack of layers are compiled",
    ),
    (
        "t5 mt5 umt5 switch_transformers longt5 udop pix2struct t5gemma t5gemma2 bart mbart plbart pegasus pegasus_x \
         bigbird_pegasus led marian m2m_100 fsmt blenderbot blenderbot-small prophetnet xlm-prophetnet mvp \
         encoder-decoder rag",
        "it has an encoder and a decoder that reads what the encoder made; models of one stack of layers are compiled",
    ),
    (
        "whisper moonshine speech_to_text speech-encoder-decoder speecht5 seamless_m4t seamless_m4t_v2 wav2vec2 \
         wav2vec2-bert hubert wavlm unispeech unispeech-sat data2vec-audio audio-spectrogram-transformer clap encodec \
         musicgen bark vits parler_tts",
        "it reads or makes sound; models that read and write text are compiled",
    ),
    (
        "clip siglip siglip2 altclip chinese_clip align blip vit vit_mae deit beit dinov2 dinov3_vit swin convnext \
         resnet detr yolos sam segformer owlvit vision-encoder-decoder vision-text-dual-encoder trocr",
        "it reads images; models that read and write text are compiled, and the text models of those that see images \
         as well",
    ),
    (
        "xmod",
        "its layers have adapters of each language, and every text says which is its own; models whose texts are \
         tokens alone are compiled",
    ),
    (
        "roc_bert",
        "it reads shapes and sounds of characters beside its tokens; models whose texts are tokens alone are compiled",
    ),
    (
        "layoutlm layoutlmv2 layoutlmv3 lilt",
        "it reads where on a page words are; models whose texts are tokens alone are compiled",
    ),
    (
        "glm_image",
        "it writes the tokens of an image, whose positions are places in it; models that read and write text are \
         compiled",
    ),
    (
        "unlimited_ocr",
        "tokens that it writes see the whole prompt, and of what it has written the last only: what they see depends \
         on where the prompt ends; models whose tokens are all alike are compiled",
    ),
    (
        "openai_privacy_filter",
        "it labels each token of a text; models that write text, embed it or score classes of it are compiled",
    ),
    (
        "paligemma colpali cpmant hrm_text",
        "tokens of a prompt see those after them too, which no step of a part of it could compute; models that read \
         from the first token to the last are compiled",
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
