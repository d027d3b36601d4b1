//! GPT-J (Wang and Komatsuzaki, 2021): attention and MLP side by side behind one LayerNorm,
//! rotation of neighbours in a part of each head, no biases but the MLP's, the norms' and the
//! head's.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::common::GPT_MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::rope;
use crate::rope::{RopeConfig, RopeScaling};

pub(crate) const ARCH: Arch = Arch {
    model_type: "gptj",
    class: "GPTJForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    fixed: &[],
    goldens: &["gptj"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults =
            Defaults { vocab: Some(50_400), heads: Some(16), max_position: 2048, tied: false, ..Defaults::GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |heads, _| {
            let dim = f.size("rotary_dim").or_null(64).unwrap_or(heads.dim);
            rope::check_rotary_dim(f, dim, heads.dim)?;
            Ok(vec![RopeConfig { theta: 10_000.0, dim, scaling: RopeScaling::Default }])
        })?;
        (d.norm, d.norms) = (Norm::layer(d.norm.eps), Norms::Parallel { own: false });
        d.head_bias = true;
        let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
        let d = d.with_attention(|_, a| a.neighbours = rotated);
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] =
    &[Field::new("layer_norm_epsilon", Accepts::Number), Field::new("rotary_dim", Accepts::Size(1 << 14))];

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (ATTN_NORM, "transformer.h.{}.ln_1"),
    (ATTN_Q, "transformer.h.{}.attn.q_proj"),
    (ATTN_K, "transformer.h.{}.attn.k_proj"),
    (ATTN_V, "transformer.h.{}.attn.v_proj"),
    (ATTN_OUT, "transformer.h.{}.attn.out_proj"),
    (MLP_UP, "transformer.h.{}.mlp.fc_in"),
    (MLP_DOWN, "transformer.h.{}.mlp.fc_out"),
];
