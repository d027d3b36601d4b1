//! The decoder of Phi-3, and of the text model of Phi-4-multimodal.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::config::ConfigError;
use crate::config::common::{TOKENS, WindowRule};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use crate::rope::RopeScaling;

/// A decoder, of these sizes where the file says none.
pub(crate) fn decoder(f: &Fields, sizes: &Defaults) -> Result<Decoder, ConfigError> {
    let d = Decoder::read(f, &Defaults { eps: 1e-5, window: WindowRule::Given, ..*sizes })?;
    // Its class takes what others call "yarn" for longrope, and nothing else.
    let known = |s: &RopeScaling| matches!(s, RopeScaling::Default | RopeScaling::LongRope { .. });
    if d.ropes.iter().any(|rope| !known(&rope.scaling)) {
        let help = "this architecture has none but longrope".into();
        return Err(f.unsupported("rope_scaling", "a scaling of frequencies".into(), help));
    }
    // Without longrope nothing reads it; the classes write 4096 where nothing was said.
    let original = f.size("original_max_position_embeddings").value();
    if let Some(n) = original.filter(|n| ![d.facts.max_position, 4096].contains(n))
        && d.ropes.iter().all(|rope| rope.scaling == RopeScaling::Default)
    {
        let help = "this architecture has it for longrope only".into();
        return Err(f.unsupported("original_max_position_embeddings", n.to_string(), help));
    }
    Ok(d.with_attention(|_, a| a.fused = true).with_mlp(|m| m.fused = true))
}

/// Its rotary positions.
pub(crate) const ROTARY: &[Field] = &[
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("original_max_position_embeddings", TOKENS),
    Field::new("partial_rotary_factor", Accepts::Number).unless(Neutral::One),
];
