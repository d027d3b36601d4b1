//! OLMo 3 (Allen Institute for AI, 2025): OLMo 2 with windows in most layers, whose frequencies are not rescaled.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmo3",
    class: "Olmo3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY_OF_KINDS, MLP, ATTENTION_BIAS, WINDOW],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["olmo3"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! { eps: 1e-5, window: Most(4096, 4), ..LLAMA };
        let mut d = Decoder::read_with(f, &defaults, |heads, max| ropes(f, heads.dim, max))?;
        d.norms = Norms::After;
        Ok(Box::new(d.with_heads(|_, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Row));
            a.rotary = Some(usize::from(a.window.is_some()));
        })))
    },
};

/// The embeddings have one base, which files of older versions say once. Transformers 5 reads it
/// there for layers without a window and forgets it for the others, so a value other than its
/// default means one thing to it and another to the versions before.
fn ropes(f: &Fields, dim: usize, max_position: usize) -> Result<Vec<RopeConfig>, ConfigError> {
    const BASE: &str = "rope_theta";
    let class = TwoRopes { beside: Beside::Scaling { bases: [BASE, ""], both: false }, ..TwoRopes::new([5e5; 2]) };
    let ropes = read_two(f, dim, max_position, class)?;
    let nested =
        f.object("rope_parameters").is_some_and(|m| m.get("sliding_attention").is_some_and(|v| v.get(BASE).is_some()));
    match f.number(BASE) {
        Some(theta) if theta != 5e5 && !nested => {
            let help = "this architecture has a base of 500000 in layers with a window: give the base of each kind of \
                layers in `rope_parameters`";
            Err(f.unsupported(BASE, theta.to_string(), help.into()))
        }
        _ => Ok(ropes),
    }
}
