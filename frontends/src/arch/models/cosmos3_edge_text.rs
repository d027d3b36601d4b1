//! The reasoner of Cosmos 3 Edge (NVIDIA, 2026): Llama with a squared ReLU and no gate. Positions of
//! texts are the same in all three sections of its rotation.

use crate::arch::blocks::families::cosmos3::COSMOS3;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cosmos3_edge_text",
    class: "Cosmos3EdgeForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS],
    fixed: &[],
    goldens: &["cosmos3_edge"],
    names: Names(&[NAMES, COSMOS3, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 131_072, heads: 16, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5, theta: 1e8,
            act: Relu2, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_biases(f).with_mlp(|m| m.gated = false)))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." {
        MLP_UP => "mlp.up_proj", MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.down_proj", MLP_DOWN => "mlp.fc2",
    }
};
