//! Phi-3 and the Phi-4 of its shape (arXiv 2404.14219, 2412.08905): Mistral with Q, K and V in one
//! matrix, gate and up in one, and rotation of a part of each head.
//!
//! Longrope's frequencies are those of each token's own position (Transformers takes those of the
//! largest one of a call for all of its tokens, so that a prompt longer than the context of
//! pretraining differs there from the same tokens one by one).

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, CAUSAL, MLP, MODEL, TOKENS, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::rope::RopeScaling;

pub(super) const ARCH: Arch = Arch {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, WINDOW, ROTARY, CAUSAL],
    fixed: &[],
    goldens: &["phi3", "phi3-longrope", "phi3-longrope-long"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let window = WindowRule::Given;
        let d = Decoder::read(f, &Defaults { max_position: 4096, eps: 1e-5, window, ..Defaults::LLAMA })?;
        // Its class takes what others call "yarn" for longrope, and nothing else.
        let known = |s: &RopeScaling| matches!(s, RopeScaling::Default | RopeScaling::LongRope { .. });
        if d.ropes.iter().any(|rope| !known(&rope.scaling)) {
            return Err(f.unsupported(
                "rope_scaling",
                "a scaling of frequencies".into(),
                "this architecture has none but longrope".into(),
            ));
        }
        let original = f.size("original_max_position_embeddings").value();
        if let Some(n) = original.filter(|n| *n != d.facts.max_position)
            && d.ropes.iter().all(|rope| rope.scaling == RopeScaling::Default)
        {
            let help = "this architecture has it for longrope only".into();
            return Err(f.unsupported("original_max_position_embeddings", n.to_string(), help));
        }
        Ok(Box::new(d.with_attention(|_, a| a.fused = true).with_mlp(|m| m.fused = true).both_ways_if_said(f)))
    },
};

const ROTARY: &[Field] = &[
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("original_max_position_embeddings", TOKENS),
    Field::new("partial_rotary_factor", Accepts::Number).unless(Neutral::One),
];
