//! The text model of Llama 3.2 Vision (arXiv 2407.21783): Llama between layers that attend to images only, which
//! a text without images passes over, with rows of its table for tokens that stand for images.

use crate::arch::blocks::layer::Half;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mllama_text_model",
    class: "MllamaForConditionalGeneration",
    fields: &[IDENTITY, MODEL, DIVIDED, ROTARY, MLP, fields! { cross_attention_layers }],
    fixed: &[("architectures", Neutral::Words(&["MllamaForCausalLM"]))],
    goldens: &["mllama"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let f = &f.by_default(&[("hidden_size", 4096), ("num_hidden_layers", 40), ("intermediate_size", 14_336)]);
        let defaults = defaults! {
            vocab: 128_256, heads: 32, kv_heads: 8, max_position: 131_072, eps: 1e-5, theta: 5e5, ..LLAMA
        };
        // Rows of tokens that stand for images.
        let mut d = Decoder::read(f, &defaults)?.with_more_rows(f, 8, "table")?;
        // The layers that attend to images.
        let of_images = common::layer_numbers(f, "cross_attention_layers")?;
        for i in of_images.unwrap_or_else(|| (3..40).step_by(5).collect()) {
            if let Some(layer) = d.layers.get_mut(i) {
                layer.only = Some(Half::Neither);
            }
        }
        if d.layers.iter().all(|l| l.only.is_some()) {
            let expected = "fewer than all layers: without images nothing is left".into();
            return Err(f.invalid("cross_attention_layers", &d.layers.len(), expected));
        }
        Ok(Box::new(d))
    },
};
