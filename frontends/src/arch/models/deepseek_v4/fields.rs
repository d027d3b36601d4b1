//! DeepSeek-V4's configuration of its layers.

use super::attention::Windows;
use crate::arch::blocks::prelude::*;

/// Elements of a head that are rotated.
pub(super) fn rotated(f: &Fields, dim: usize) -> Result<usize, ConfigError> {
    let part = f.size("qk_rope_head_dim").value();
    let rotated = match (f.number("partial_rotary_factor"), part) {
        (Some(factor), part) => {
            let rotated = (dim as f64 * factor) as usize;
            if let Some(part) = part.filter(|part| *part != rotated) {
                let help =
                    format!("this architecture rotates `qk_rope_head_dim` ({part}) of `head_dim` ({dim}) elements");
                return Err(f.unsupported("partial_rotary_factor", factor.to_string(), help));
            }
            rotated
        }
        (None, Some(part)) => part,
        (None, None) => dim / 8,
    };
    if rotated == 0 || rotated > dim || !rotated.is_multiple_of(2) {
        let expected = format!("even, and at most `head_dim` ({dim}), as pairs of elements are rotated");
        return Err(f.invalid("qk_rope_head_dim", &rotated, expected));
    }
    Ok(rotated)
}

/// The windows of each layer, if it has any: by `layer_types`, or by the lengths that older files have,
/// the longest in the first two layers and every other one where nothing is said.
pub(super) fn windows(f: &Fields, layers: usize) -> Result<Vec<Option<Windows>>, ConfigError> {
    let rates = match f.object("compress_rates") {
        Some(map) => {
            if let Some((kind, v)) = map.iter().find(|(kind, _)| !KINDS[1..].contains(&kind.as_str())) {
                let help = format!("this architecture expects windows in layers of {:?}", &KINDS[1..]);
                return Err(f.unsupported("compress_rates", format!("{kind}: {v}"), help));
            }
            Some(f.inside(map, "compress_rates.", &[RATES])?)
        }
        None => None,
    };
    let rate = |kind: usize, default: usize| {
        let older = f.size(["compress_rate_csa", "compress_rate_hca"][kind]).value();
        older.or(rates.as_ref().and_then(|r| r.size(KINDS[kind + 1]).value())).unwrap_or(default)
    };
    let short = Some(Windows { len: rate(0, 4), overlap: true });
    let long = Some(Windows { len: rate(1, 128), overlap: false });
    for (windows, field) in [(short, "compress_rate_csa"), (long, "compress_rate_hca")] {
        if let Some(Windows { len: 1, .. }) = windows {
            return Err(f.invalid(field, &1, "at least 2, as windows of one token have nothing in common".into()));
        }
    }
    const RATIOS: &str = "compress_ratios";
    if let Some(types) = common::layer_types(f, layers)? {
        let of = |kind: &&str| if *kind == KINDS[1] { short } else { long.filter(|_| *kind == KINDS[2]) };
        return Ok(types.iter().map(of).collect());
    }
    let Some(ratios) = f.numbers(RATIOS) else {
        return Ok((0..layers).map(|i| if i >= 2 && i % 2 == 1 { short } else { long }).collect());
    };
    let expected = || format!("0, 4 or 128 for each of {layers} layers");
    let of = |ratio: &f64| match *ratio {
        0.0 => Some(None),
        4.0 => Some(short),
        128.0 => Some(long),
        _ => None,
    };
    let all: Option<Vec<_>> = ratios.iter().take(layers).map(of).collect();
    all.filter(|all| all.len() == layers).ok_or_else(|| f.invalid(RATIOS, &ratios, expected()))
}

/// Layers whose experts are chosen by the token.
pub(super) fn by_token(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    const TYPES: &str = "mlp_layer_types";
    let first = f.count("num_hash_layers").unwrap_or(3);
    let Some(v) = f.get(TYPES).value() else { return Ok((0..layers).map(|i| i < first).collect()) };
    let list: Vec<bool> = v.as_array().into_iter().flatten().map(|v| v.as_str() == Some(MIXTURES[0])).collect();
    let expected = || format!("\"hash_moe\" or \"moe\" for each of {layers} layers");
    if list.len() < layers { Err(f.invalid_value(TYPES, v, expected())) } else { Ok(list) }
}

pub(super) fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let ffn = f.size("moe_intermediate_size").or(2048);
    let limits = Some(Limits::Entering(f.factor_or("swiglu_limit", 10.0)? as f32));
    let router = Router {
        score: Score::Given,
        eps: F32::new(1e-20),
        scale: F32::new(f.factor_or("routed_scaling_factor", 1.5)? as f32),
        ..Router::softmax(f.size("num_experts_per_tok").or(6), true)
    };
    let experts = Experts {
        ffn,
        act: UnaryOp::Silu,
        limits,
        routing: Routing { root_softplus: true, ..Routing::default() },
        correction: Some(CORRECTION),
        shared: Some(Shared { limits, ..Shared::plain(ffn) }),
        ..Experts::like(d, router, f.size("n_routed_experts").or(256))
    };
    experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])
}

/// Kinds of layers, the second with short windows, the third with long ones.
const KINDS: &[&str] = &["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"];

/// Kinds of mixtures, the first with experts by tokens.
const MIXTURES: &[&str] = &["hash_moe", "moe"];

/// Most tokens of a window.
const LENGTH: Accepts = Accepts::Size(1024);

const RATES: &[Field] = &[Field::new(KINDS[1], LENGTH), Field::new(KINDS[2], LENGTH)];

pub(super) const OWN: &[Field] = fields! {
    rms_norm_eps, q_lora_rank, o_lora_rank, o_groups, qk_rope_head_dim: Accepts::Size(1 << 14), sliding_window,
    layer_types: Accepts::ListOf(KINDS), compress_ratios, compress_rates, compress_rate_csa: LENGTH,
    compress_rate_hca: LENGTH, compress_rope_theta, n_routed_experts, num_experts_per_tok,
    moe_intermediate_size, routed_scaling_factor, swiglu_limit, mlp_layer_types: Accepts::ListOf(MIXTURES),
    num_hash_layers,
};
