//! UltraBERT (Korea University, 2026): EuroBERT with a window on both sides in two layers of three, which rotate by
//! a table of their own.

use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ultrabert",
    class: "UltrabertModel",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, ATTENTION_BIAS, MLP_BIAS, WINDOW, OWN],
    // Field of the head for masked tokens.
    fixed: &[("prediction_head_size", Neutral::Any)],
    goldens: &["ultrabert", "ultrabert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(32_000), 32_768, false)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads { queries: Some(32), ..DefaultHeads::default() })?;
        let (ffn, act) = (f.size("intermediate_size").or(11_008), common::activation(f, "hidden_act", UnaryOp::Silu));
        let eps = common::eps(f, "rms_norm_eps", 1e-6)?;
        let (sliding, window) = windows(f, facts.layers)?;
        let class = TwoRopes { beside: Beside::Older, ..TwoRopes::new(bases(f, &sliding)?) };
        let ropes = read_two(f, heads.dim, facts.max_position, class)?;
        let (bias, mlp_bias) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let mut e = Encoder::alike(facts, heads, (ffn, act), eps);
        (e.norm, e.norm_first, e.embedding.norm, e.ropes) = (Norm::rms(eps), true, false, ropes);
        for (layer, slides) in e.layers.iter_mut().zip(sliding) {
            let a = &mut layer.attention;
            a.rotary = Some(usize::from(slides));
            a.change_heads(|_, h| (h.qkv_bias, h.out_bias) = (bias, bias));
            // So many tokens on either side, and the token itself.
            a.window = slides.then_some(window.saturating_add(1));
            (layer.mlp.gated, layer.mlp.bias) = (true, mlp_bias);
        }
        let pool = ClassHead::pool(f)?;
        e.classes = ClassHead { pool, dense: false, ..ClassHead::BERT };
        e.spare = &["head.", "decoder.", "cls."];
        Ok(Box::new(e))
    },
};

/// Which layers have windows, and how far these reach. Older files list the windows of all layers, 0 or null for none.
fn windows(f: &Fields, layers: usize) -> Result<(Vec<bool>, usize), ConfigError> {
    let types = common::sliding_layers(f, layers)?;
    let window = f.size("sliding_window").or(128);
    let Some(said) = f.get(WINDOWS).value() else {
        return Ok((types.unwrap_or_else(|| (1..=layers).map(|i| !i.is_multiple_of(3)).collect()), window));
    };
    let number = |v: &Value| if v.is_null() { Some(0.0) } else { v.as_f64() };
    let list: Option<Vec<f64>> = said.as_array().and_then(|list| list.iter().map(number).collect());
    let list = list.unwrap_or_default();
    let mut lengths = list.iter().filter(|x| **x != 0.0);
    let first = lengths.next().copied().unwrap_or(window as f64);
    let whole = first.fract() == 0.0 && (1.0..=f64::from(1 << 28)).contains(&first);
    if list.len() != layers || !whole || lengths.any(|x| *x != first) {
        return Err(f.invalid_value(WINDOWS, said, format!("0 or the same length for each of {layers} layers")));
    }
    Ok((types.unwrap_or_else(|| list.iter().map(|x| *x != 0.0).collect()), first as usize))
}

/// The bases of layers without a window and with one, which older files list for all layers.
fn bases(f: &Fields, sliding: &[bool]) -> Result<[f64; 2], ConfigError> {
    let absent = [2_560_000.0, 10_000.0];
    let said = f.get(BASE).value().filter(|_| f.object("rope_parameters").is_none());
    let (Some(v), None) = (said, f.number(BASE)) else { return Ok(f.number(BASE).map_or(absent, |base| [base; 2])) };
    let list: Option<Vec<f64>> = v.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
    let list = list.filter(|list| list.len() == sliding.len());
    let of = |kind: bool, absent: f64| {
        let mut own = list.iter().flatten().zip(sliding).filter(|(_, slides)| **slides == kind).map(|(x, _)| *x);
        let first = own.next().unwrap_or(absent);
        (first > 1.0 && own.all(|x| x == first)).then_some(first)
    };
    match [of(false, absent[0]), of(true, absent[1])] {
        [Some(full), Some(own)] if list.is_some() => Ok([full, own]),
        _ => {
            let expected = "a base for each layer, two of them: with a window and without";
            Err(f.invalid_value(BASE, v, expected.into()))
        }
    }
}

const BASE: &str = "rope_theta";
const WINDOWS: &str = "attention_windows";

const OWN: &[Field] = fields! { rope_theta: Accepts::Any, rope_parameters, attention_windows, classifier_pooling };

/// As they are published, and as Transformers has them in memory.
const NAMES: Table = names! {
    "model." { TABLE => "embed_tokens", NORM => "norm" }
    "ultrabert." { TABLE => "embed_tokens", NORM => "norm" }
    "model.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.o_proj", MLP_NORM => "post_attention_layernorm",
        MLP_GATE => "mlp.gate_proj", MLP_UP => "mlp.up_proj", MLP_DOWN => "mlp.down_proj",
    }
    "ultrabert.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.o_proj", MLP_NORM => "post_attention_layernorm",
        MLP_GATE => "mlp.gate_proj", MLP_UP => "mlp.up_proj", MLP_DOWN => "mlp.down_proj",
    }
    "" { CLASSES => "classifier" }
};
