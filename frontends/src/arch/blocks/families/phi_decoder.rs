//! The decoder of Phi-3, and of the text model of Phi-4-multimodal.

use crate::arch::blocks::attention::Projection;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::mlp::Joined;
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::rope::RopeScaling;

/// A decoder, of these sizes where the file says none.
pub(crate) fn decoder(f: &Fields, sizes: &Defaults) -> Result<Decoder, ConfigError> {
    let d = Decoder::read(f, &defaults! { eps: 1e-5, window: Given, ..*sizes })?;
    // Its class takes "yarn" for longrope, and nothing else.
    let known = |s: &RopeScaling| matches!(s, RopeScaling::Default | RopeScaling::LongRope { .. });
    if d.ropes.iter().any(|rope| !known(&rope.scaling)) {
        let help = "this architecture supports only longrope".into();
        return Err(f.unsupported("rope_scaling", "a scaling of frequencies".into(), help));
    }
    // Without longrope nothing reads it; the classes write 4096 where nothing was said.
    let original = f.size("original_max_position_embeddings").value();
    if let Some(n) = original.filter(|n| ![d.facts.max_position, 4096].contains(n))
        && d.ropes.iter().all(|rope| rope.scaling == RopeScaling::Default)
    {
        let help = "this architecture supports it for longrope only".into();
        return Err(f.unsupported("original_max_position_embeddings", n.to_string(), help));
    }
    Ok(d.with_heads(|_, _, h| h.projection = Projection::Fused).with_mlp(|m| m.joined = Some(Joined::GateUp)))
}

/// Its rotary positions.
pub(crate) const ROTARY: &[Field] = fields! {
    rope_theta, rope_scaling, rope_parameters, original_max_position_embeddings, partial_rotary_factor,
};
