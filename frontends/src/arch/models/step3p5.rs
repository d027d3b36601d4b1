//! Step-3.5 and Step-3.7 (StepFun, 2026), the text model: windows in most layers, with more heads
//! and another rotation there, gates of whole heads, experts chosen by corrected sigmoids beside an
//! MLP for all tokens, and limits of the last layers' operands.

use crate::arch::blocks::names::{EXPERTS_GATE, EXPERTS_UP};
use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "step3p5",
    class: "Step3p7ForConditionalGeneration",
    fields: &[IDENTITY, MODEL, HEADS, ROTATION, ATTENTION_BIAS, WINDOW, OWN],
    // Fields of the authors' own class.
    fixed: fixed! {
        On => gating use_head_wise_attn_gate use_qk_norm zero_centered use_moe_router_bias norm_expert_weight;
        Off => sink;
        Words(&["sigmoid"]) => moe_router_activation;
        All("full_attention") => yarn_only_types;
        Any => mtp_layer_types mtp_mlp_layer_types;
    },
    goldens: &["step3p5", "step3p7"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_815, heads: 64, kv_heads: 8, head_dim: 128, max_position: 128_000, eps: 1e-5, ..LLAMA
        };
        let layers = f.required_size("num_hidden_layers")?;
        let slides = sliding(f, layers)?;
        let mut d = Decoder::read_with(f, &defaults, |heads, max| {
            let theta = match f.number("rope_theta") {
                Some(theta) => [theta; 2],
                None => by_kind(f, "rope_theta", &slides, 1e4)?,
            };
            let parts = by_kind(f, PARTS, &slides, 1.0)?;
            read_two(
                f,
                heads.dim,
                max,
                TwoRopes { parts, partial: true, beside: Beside::Older, ..TwoRopes::new(theta) },
            )
        })?;
        d.norm.from_one = true;
        let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").value());
        let queries = queries(f, &d, &slides)?;
        let scale =
            f.factor_or("query_pre_attn_scalar", d.layers.first().map_or(1, |l| l.attention.heads.dim) as f64)?;
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, a.gate) = (bias, bias, Some(QkNorm::Head), Some(Gate::Heads));
            (a.window, a.rotary) = (window.filter(|_| slides[i]), Some(usize::from(slides[i])));
            a.scale = (1.0 / scale.sqrt()) as f32;
            a.heads.queries = queries[i];
        });
        let experts = experts(f, &d)?;
        let sparse = sparse(f, layers)?;
        let [own, beside] = [limits(f, "swiglu_limits", layers)?, limits(f, "swiglu_limits_shared", layers)?];
        let mut d = d.with_experts(|i| {
            let shared = experts.shared.map(|shared| Shared { limits: beside[i], ..shared });
            sparse[i].then_some(Experts { limits: own[i], shared, ..experts })
        });
        d.layers.iter_mut().zip(beside).for_each(|(layer, limits)| layer.mlp.limits = limits);
        Ok(Box::new(d))
    },
};

/// A list's entries for the layers: it may have more entries for layers after the last, which predict further tokens.
fn of_layers<'a>(f: &Fields<'a>, field: &str, layers: usize) -> Result<Option<&'a [Value]>, ConfigError> {
    let Some(v) = f.get(field).value() else { return Ok(None) };
    let list = v.as_array().and_then(|list| list.get(..layers));
    list.map(Some).ok_or_else(|| f.invalid_value(field, v, format!("a list for {layers} layers")))
}

/// Which layers have a window.
fn sliding(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let list = of_layers(f, "layer_types", layers)?;
    Ok(list.map_or(vec![false; layers], |list| list.iter().map(|v| v == "sliding_attention").collect()))
}

/// A number for each layer as one of those without a window and one of those with: they agree.
fn by_kind(f: &Fields, field: &str, slides: &[bool], default: f64) -> Result<[f64; 2], ConfigError> {
    let Some(list) = of_layers(f, field, slides.len())? else { return Ok([default; 2]) };
    let numbers: Option<Vec<f64>> = list.iter().map(Value::as_f64).collect();
    let of = |kind: bool| {
        let mut own = numbers.as_ref()?.iter().zip(slides).filter(|(_, slides)| **slides == kind).map(|(x, _)| *x);
        let first = own.next().unwrap_or(default);
        own.all(|x| x == first).then_some(first)
    };
    let both = of(false).zip(of(true)).map(|(full, sliding)| [full, sliding]);
    let expected = || "the same number in all layers with a window, and in all without".into();
    both.ok_or_else(|| f.invalid(field, &list, expected()))
}

/// Heads of queries of each layer: layers with a window may have others, and any layer its own number.
fn queries(f: &Fields, d: &Decoder, slides: &[bool]) -> Result<Vec<usize>, ConfigError> {
    let Some(heads) = d.layers.first().map(|l| l.attention.heads) else { return Ok(Vec::new()) };
    let mut sliding = f.size("num_sliding_attention_heads").value();
    if let (None, Some(map)) = (sliding, f.object(OTHER)) {
        let r = f.inside(map, "attention_other_setting.", &[OTHERS])?;
        for (name, n) in [("num_attention_groups", heads.kv), ("head_dim", heads.dim)] {
            if let Some(other) = r.size(name).value().filter(|other| *other != n) {
                return Err(r.unsupported(
                    name,
                    other.to_string(),
                    format!("this architecture expects {n} in all layers"),
                ));
            }
        }
        sliding = r.size("num_attention_heads").value();
    }
    let sliding = sliding.unwrap_or(heads.queries);
    let mut all: Vec<usize> = slides.iter().map(|slides| if *slides { sliding } else { heads.queries }).collect();
    if let Some(map) = f.object(EACH) {
        all = vec![heads.queries; slides.len()];
        for (layer, v) in map {
            let own = layer.parse().ok().and_then(|i: usize| all.get_mut(i)).zip(only_heads(v));
            let help = || "this architecture expects `num_attention_heads`, of layers by their numbers".into();
            let (of, n) = own.ok_or_else(|| f.unsupported(EACH, format!("{layer}: {v}"), help()))?;
            *of = n;
        }
    }
    if let Some(n) = all.iter().find(|n| !n.is_multiple_of(heads.kv)) {
        let expected = format!("a multiple of the {} heads of keys and values", heads.kv);
        return Err(f.invalid("num_sliding_attention_heads", n, expected));
    }
    Ok(all)
}

/// The number of heads, if an object says that and nothing else.
fn only_heads(v: &Value) -> Option<usize> {
    let map = v.as_object().filter(|map| map.len() == 1)?;
    map.get("num_attention_heads")?.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=1 << 14).contains(n))
}

/// Which layers have experts: those that one of two lists names, or those from the fourth on.
fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if f.get("mlp_layer_types").value().is_some() {
        return sparse_by_types(f, layers, 3);
    }
    let Some(v) = f.get("moe_layers_enum").value() else { return Ok((0..layers).map(|i| i >= 3).collect()) };
    let numbers: Option<Vec<u64>> = match v {
        Value::String(s) => s.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect(),
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        _ => None,
    };
    let numbers = numbers.ok_or_else(|| f.invalid_value("moe_layers_enum", v, "numbers of layers".into()))?;
    Ok((0..layers).map(|i| numbers.contains(&(i as u64))).collect())
}

/// Limits of each layer; 0 and `null`: none.
fn limits(f: &Fields, field: &str, layers: usize) -> Result<Vec<Option<Limits>>, ConfigError> {
    let Some(list) = of_layers(f, field, layers)? else { return Ok(vec![None; layers]) };
    let limit = |v: &Value| match v.as_f64() {
        None if v.is_null() => Some(None),
        Some(0.0) => Some(None),
        Some(x) if x > 0.0 && (x as f32).is_normal() => Some(Some(Limits::Activated(x as f32))),
        _ => None,
    };
    let all: Option<Vec<_>> = list.iter().map(limit).collect();
    all.ok_or_else(|| f.invalid(field, &list, "limits above 0, or 0 or null for none".into()))
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = sigmoid_router(f, 8, ("moe_router_scaling_factor", 1.0))?;
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(1280),
        correction: Some(CORRECTION),
        shared: Some(Shared::plain(f.size("share_expert_dim").or(1280))),
        stored: Stored::Three,
        ..Experts::like(d, router, f.size("n_routed_experts").or(288))
    };
    experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])
}

const HEADS: &[Field] = fields! {
    num_attention_heads, num_key_value_heads | num_attention_groups, head_dim, num_sliding_attention_heads,
    attention_other_setting, per_layer_config, query_pre_attn_scalar,
};

/// Settings of single layers.
const EACH: &str = "per_layer_config";
/// Settings of layers with a window, in older files.
const OTHER: &str = "attention_other_setting";

const OTHERS: &[Field] = fields! {
    attention_type: Accepts::OneOf(&["sliding_attention"]), num_attention_heads, num_attention_groups, head_dim,
};

/// How much of a head is rotated, for each layer.
const PARTS: &str = "partial_rotary_factors";

const ROTATION: &[Field] = fields! { rope_theta: Accepts::Any, rope_scaling, rope_parameters, partial_rotary_factors };

const OWN: &[Field] = fields! {
    intermediate_size, hidden_act, rms_norm_eps, mlp_layer_types, moe_layers_enum,
    n_routed_experts | num_local_experts | moe_num_experts, num_experts_per_tok | moe_top_k, moe_intermediate_size,
    share_expert_dim | share_expert_dims, moe_router_scaling_factor, swiglu_limits, swiglu_limits_shared,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.g_proj", ROUTER => "moe.gate", CORRECTION => "moe.router_bias",
        EXPERTS_GATE => "moe.gate_proj", EXPERTS_UP => "moe.up_proj", EXPERTS_DOWN => "moe.down_proj",
        SHARED_GATE => "share_expert.gate_proj", SHARED_UP => "share_expert.up_proj",
        SHARED_DOWN => "share_expert.down_proj",
    }
};
