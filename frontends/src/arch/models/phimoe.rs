//! Phi-3.5-MoE (arXiv 2404.14219, 2412.08905): LayerNorm, biases in attention and of the head, two
//! experts of each layer by the sparse mixer (arXiv 2409.12136).
//!
//! Longrope has the divisors of short contexts everywhere, as in Transformers; the factor of sines
//! and cosines follows the longest sequence.

#[cfg(test)]
mod tests;

use crate::arch::blocks::prelude::*;
use crate::rope::LongRopeFactors;

pub(crate) const ARCH: Arch = Arch {
    model_type: "phimoe",
    class: "PhimoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, BASE, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["phimoe"],
    names: Names(&[MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 32_064, heads: 32, kv_heads: 8, max_position: 131_072, window: Given, eps: 1e-5, theta: THETA,
            ..LLAMA
        };
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read_with(f, &defaults, |heads, longest| Ok(vec![rotation(f, heads.dim, longest)?]))?;
        (d.norm, d.head.bias) = (Norm::layer(d.norm.eps), f.flag("lm_head_bias"));
        let d = d.with_attention_bias(bias);
        let eps = F32::new(f.number("router_jitter_noise").unwrap_or(0.01) as f32);
        let top = f.size("num_experts_per_tok").or(2);
        if top != 2 {
            let help = "this architecture has two experts for each token".to_string();
            return Err(f.unsupported("num_experts_per_tok", top.to_string(), help));
        }
        let router = Router { score: Score::Mixer, eps, ..Router::softmax(top, false) };
        let experts = Experts::like(&d, router, f.size("num_local_experts").or(16));
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

/// Frequencies as they are, or by longrope.
fn rotation(f: &Fields, dim: usize, longest: usize) -> Result<RopeConfig, ConfigError> {
    let objects = [("rope_scaling.", f.object("rope_scaling")), ("rope_parameters.", f.object("rope_parameters"))];
    let given = objects.into_iter().find_map(|(at, map)| Some((at, map.filter(|m| !m.is_empty())?)));
    let kind = given.and_then(|(_, map)| map.get("rope_type").or(map.get("type"))?.as_str());
    let (Some((at, map)), Some("longrope")) = (given, kind) else {
        let rope = rope::read(f, dim, longest, THETA)?;
        if rope.scaling == RopeScaling::Default {
            return Ok(rope);
        }
        let help = "this architecture supports only longrope".into();
        return Err(f.unsupported("rope_scaling", kind.unwrap_or("a scaling").into(), help));
    };
    let r = f.inside_rope(map, at, &[LONGROPE])?;
    let said = |name: &str| r.number(name).or(f.number(name));
    let theta = said("rope_theta").unwrap_or(THETA);
    if !(theta > 1.0 && (theta as f32).is_finite()) {
        return Err(f.invalid("rope_theta", &theta, "a finite number above 1".into()));
    }
    let short = r.numbers("short_factor").ok_or_else(|| r.missing("short_factor"))?;
    if short.len() != dim / 2 || !short.iter().all(|x| *x > 0.0 && (1.0 / *x as f32).is_finite()) {
        let expected = format!("{} positive numbers, one for each pair of rotated elements", dim / 2);
        return Err(r.invalid("short_factor", &short, expected));
    }
    let original = r.size(ORIGINAL).or(longest);
    if let Some(outer) = f.size(ORIGINAL).value().filter(|n| *n != original) {
        return Err(f.invalid(ORIGINAL, &outer, format!("as `{at}{ORIGINAL}` ({original}), or absent")));
    }
    let scales = [r.factor("short_mscale", 0.0)?, r.factor("long_mscale", 0.0)?];
    if longest > original && scales[0] != scales[1] {
        r.leave_original(original);
    }
    let [short, long] = scales.map(|attention_factor| LongRopeFactors { divisors: short.clone(), attention_factor });
    Ok(RopeConfig { theta, dim, scaling: RopeScaling::LongRope { short, long, original } })
}

/// The base of the frequencies where none is given.
const THETA: f64 = 1e6;

const ORIGINAL: &str = "original_max_position_embeddings";

const LONGROPE: &[Field] = fields! {
    rope_type, type, rope_theta, short_factor,
    // Read by nobody: see above.
    long_factor, short_mscale, long_mscale, original_max_position_embeddings,
};

const BASE: &[Field] = fields! {
    // Without longrope nothing reads it.
    original_max_position_embeddings, rope_theta, rope_scaling, rope_parameters,
};

const OWN: &[Field] = fields! {
    num_local_experts | num_experts, num_experts_per_tok,
    // The others draw noise from it, in training.
    router_jitter_noise, lm_head_bias,
};
