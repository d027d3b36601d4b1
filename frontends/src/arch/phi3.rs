//! Phi-3 and the Phi-4 of its shape (arXiv 2404.14219, 2412.08905): Mistral with Q, K and V in one
//! matrix, gate and up in one, and rotation of a part of each head.
//!
//! Longrope, whose frequencies depend on the length of the sequence, is refused.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::rope::RopeScaling;

pub(super) const ARCH: Arch = Arch {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, WINDOW, ROTARY],
    // It matters to longrope only.
    fixed: &[("original_max_position_embeddings", Neutral::Same("max_position_embeddings"))],
    goldens: &["phi3"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let window = WindowRule::Given;
        let d = Decoder::read(f, &Defaults { max_position: 4096, eps: 1e-5, window, ..Defaults::LLAMA })?;
        // Its class takes what others call "yarn" for longrope, and nothing else.
        if d.ropes.iter().any(|rope| rope.scaling != RopeScaling::Default) {
            return Err(f.unsupported(
                "rope_scaling",
                "a scaling of frequencies".into(),
                "this architecture has none but longrope".into(),
            ));
        }
        Ok(Box::new(d.with_attention(|_, a| a.fused = true).with_mlp(|m| m.fused = true)))
    },
};

const ROTARY: &[Field] = &[
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("partial_rotary_factor", Accepts::Number).unless(Neutral::One),
];
