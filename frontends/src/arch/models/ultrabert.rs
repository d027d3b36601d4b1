//! UltraBERT (Korea University, 2026): EuroBERT with a window on both sides in two layers of three, which rotate by
//! a table of their own.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::encoder::{ClassHead, Encoder};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, TABLE,
    Table,
};
use crate::config::ConfigError;
use crate::config::common::{
    self, ATTENTION, ATTENTION_BIAS, DefaultHeads, Facts, Heads, MLP, MLP_BIAS, MODEL, WINDOW,
};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope_kinds::{Beside, TwoRopes, read_two};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ultrabert",
    class: "UltrabertModel",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, ATTENTION_BIAS, MLP_BIAS, WINDOW, OWN],
    // Of the head for masked tokens.
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
        (e.norm, e.norm_first, e.table_norm, e.ropes) = (Norm::rms(eps), true, false, ropes);
        for (layer, slides) in e.layers.iter_mut().zip(sliding) {
            let a = &mut layer.attention;
            (a.qkv_bias, a.out_bias, a.rotary) = (bias, bias, Some(usize::from(slides)));
            // So many tokens on either side, and the token itself.
            a.window = slides.then_some(window.saturating_add(1));
            (layer.mlp.gated, layer.mlp.bias) = (true, mlp_bias);
        }
        let pool = match f.text("classifier_pooling") {
            None | Some("cls") => Pool::First,
            Some("mean") => Pool::Mean,
            Some(other) => {
                let found = format!("\"{other}\"");
                return Err(f.unsupported(
                    "classifier_pooling",
                    found,
                    "this architecture has `cls` and `mean`".into(),
                ));
            }
        };
        e.classes = ClassHead { pool, dense: false, ..ClassHead::BERT };
        e.spare = &["head.", "decoder.", "cls."];
        Ok(Box::new(e))
    },
};

/// Which layers have windows, and how far these reach. Older files list those of all layers, 0 or null for
/// none.
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

const OWN: &[Field] = &[
    Field::new(BASE, Accepts::Any),
    Field::new("rope_parameters", Accepts::Object),
    Field::new(WINDOWS, Accepts::Any),
    Field::new("classifier_pooling", Accepts::Text).unless(Neutral::Words(&["cls", "mean"])),
];

/// As they are published, and as Transformers has them in memory.
const NAMES: Table = &[
    (TABLE, "model.embed_tokens"),
    (TABLE, "ultrabert.embed_tokens"),
    (NORM, "model.norm"),
    (NORM, "ultrabert.norm"),
    (ATTN_NORM, "model.layers.{}.input_layernorm"),
    (ATTN_NORM, "ultrabert.layers.{}.input_layernorm"),
    (ATTN_Q, "model.layers.{}.self_attn.q_proj"),
    (ATTN_Q, "ultrabert.layers.{}.self_attn.q_proj"),
    (ATTN_K, "model.layers.{}.self_attn.k_proj"),
    (ATTN_K, "ultrabert.layers.{}.self_attn.k_proj"),
    (ATTN_V, "model.layers.{}.self_attn.v_proj"),
    (ATTN_V, "ultrabert.layers.{}.self_attn.v_proj"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj"),
    (ATTN_OUT, "ultrabert.layers.{}.self_attn.o_proj"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_NORM, "ultrabert.layers.{}.post_attention_layernorm"),
    (MLP_GATE, "model.layers.{}.mlp.gate_proj"),
    (MLP_GATE, "ultrabert.layers.{}.mlp.gate_proj"),
    (MLP_UP, "model.layers.{}.mlp.up_proj"),
    (MLP_UP, "ultrabert.layers.{}.mlp.up_proj"),
    (MLP_DOWN, "model.layers.{}.mlp.down_proj"),
    (MLP_DOWN, "ultrabert.layers.{}.mlp.down_proj"),
    (CLASSES, "classifier"),
];
