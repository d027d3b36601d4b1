//! GPT-Neo (Black et al., 2021): GPT-2 whose scores are not scaled, with windows in some layers,
//! and biases on attention's output only.

use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neo",
    class: "GPTNeoForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["gpt_neo"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { heads: 16, max_position: 2048, ..GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.embedding.positions) = (Norm::layer(d.norm.eps), Some(Positions::Learned(0)));
        let slides = local_layers(f, d.facts.layers)?;
        let local = |kind: &str, i: usize| kind == if slides[i] { "local" } else { "global" };
        common::follow(f, "attention_layers", d.facts.layers, local)?;
        let window = f.size("window_size").or(256);
        let d = d.with_heads(|i, a, h| {
            (h.out_bias, a.rotary, a.scale) = (true, None, 1.0);
            a.window = slides[i].then_some(window);
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size, num_hidden_layers | num_layers,
    num_attention_heads | num_heads, intermediate_size, hidden_act | activation_function, max_position_embeddings,
    tie_word_embeddings, bos_token_id, eos_token_id, layer_norm_epsilon, attention_types, attention_layers, window_size,
};

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
        let help = format!("this architecture expects a kind for each layer (`num_hidden_layers` is {layers})");
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

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", POSITIONS => "wpe", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "ln_1", ATTN_Q => "attn.attention.q_proj", ATTN_K => "attn.attention.k_proj",
        ATTN_V => "attn.attention.v_proj", ATTN_OUT => "attn.attention.out_proj", MLP_NORM => "ln_2",
        MLP_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj",
    }
};
