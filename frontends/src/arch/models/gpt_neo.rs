//! GPT-Neo (Black et al., 2021): GPT-2 whose scores are not scaled, with windows in some layers, and
//! biases of what attention gives only.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neo",
    class: "GPTNeoForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["gpt_neo"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults { heads: Some(16), max_position: 2048, ..Defaults::GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.learned) = (Norm::layer(d.norm.eps), Some(0));
        let slides = local_layers(f, d.facts.layers)?;
        let local = |kind: &str, i: usize| kind == if slides[i] { "local" } else { "global" };
        common::follow(f, "attention_layers", d.facts.layers, local)?;
        let window = f.size("window_size").or(256);
        let d = d.with_attention(|i, a| {
            (a.out_bias, a.rotary, a.scale) = (true, None, 1.0);
            a.window = slides[i].then_some(window);
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH),
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["num_layers"]),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["num_heads"]),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)).or(&["activation_function"]),
    Field::new("max_position_embeddings", TOKENS),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new(TYPES, Accepts::Any),
    Field::new("attention_layers", Accepts::Any),
    Field::new("window_size", TOKENS),
];

const TYPES: &str = "attention_types";

/// Which layers have a window: lists of kinds, each with how often it is repeated.
fn local_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let runs = match f.get(TYPES).value() {
        Some(v) => {
            let runs = v.as_array().and_then(|runs| runs.iter().map(run).collect::<Option<Vec<_>>>());
            let expected = || "lists of \"global\" and \"local\", each with how often it is repeated".to_string();
            runs.ok_or_else(|| f.invalid_value(TYPES, v, expected()))?
        }
        None => vec![(vec![false, true], 12)],
    };
    let all = runs.iter().flat_map(|(kinds, times)| (0..*times).flat_map(|_| kinds.iter().copied()));
    let found: Vec<bool> = all.take(layers.saturating_add(1)).collect();
    if found.len() != layers {
        let help = format!("this architecture has a kind for each layer (`num_hidden_layers` is {layers})");
        return Err(f.unsupported(TYPES, format!("kinds of {} layers", found.len()), help));
    }
    Ok(found)
}

/// Kinds of layers, whether each has a window, and how often they are repeated.
fn run(v: &Value) -> Option<(Vec<bool>, usize)> {
    let [kinds, times] = v.as_array()?.as_slice() else { return None };
    let local = |kind: &Value| match kind.as_str()? {
        "global" => Some(false),
        "local" => Some(true),
        _ => None,
    };
    let kinds = kinds.as_array()?.iter().map(local).collect::<Option<Vec<_>>>()?;
    let times = usize::try_from(times.as_u64()?).ok()?;
    (!kinds.is_empty()).then_some((kinds, times))
}

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (POSITIONS, "transformer.wpe"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (ATTN_NORM, "transformer.h.{}.ln_1"),
    (ATTN_Q, "transformer.h.{}.attn.attention.q_proj"),
    (ATTN_K, "transformer.h.{}.attn.attention.k_proj"),
    (ATTN_V, "transformer.h.{}.attn.attention.v_proj"),
    (ATTN_OUT, "transformer.h.{}.attn.attention.out_proj"),
    (MLP_NORM, "transformer.h.{}.ln_2"),
    (MLP_UP, "transformer.h.{}.mlp.c_fc"),
    (MLP_DOWN, "transformer.h.{}.mlp.c_proj"),
];
