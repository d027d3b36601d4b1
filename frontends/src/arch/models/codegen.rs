//! CodeGen (arXiv 2203.13474): GPT-J whose queries, values and keys are stored as one matrix, in four
//! parts as it was trained on as many chips.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_UP, NORM, Names, TABLE, Table};
use crate::config::common::GPT_MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use crate::rope::{RopeConfig, RopeScaling};

/// Parts of the matrix, whatever the size of the model.
const PARTS: usize = 4;

pub(crate) const ARCH: Arch = Arch {
    model_type: "codegen",
    class: "CodeGenForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    fixed: &[],
    goldens: &["codegen"],
    names: Names(&[NAMES]),
    read: |f| {
        // CodeGen2 is said to be of this type; the code that its files come with has eight parts.
        if f.object("auto_map").is_some() {
            let help = "this architecture has four parts, and code of their own is not read".to_string();
            return Err(f.unsupported("auto_map", "an object".into(), help));
        }
        let defaults =
            Defaults { vocab: Some(50_400), heads: Some(16), max_position: 2048, tied: false, ..Defaults::GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |heads, _| {
            if !heads.queries.is_multiple_of(PARTS) {
                let expected = format!("a multiple of {PARTS}: this architecture has heads in so many parts");
                return Err(f.invalid("num_attention_heads", &heads.queries, expected));
            }
            let dim = f.size("rotary_dim").or(64);
            rope::check_rotary_dim(f, dim, heads.dim)?;
            Ok(vec![RopeConfig { theta: 10_000.0, dim, scaling: RopeScaling::Default }])
        })?;
        (d.norm, d.norms) = (Norm::layer(d.norm.eps), Norms::Parallel { own: false });
        d.head_bias = true;
        let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
        let d = d.with_attention(|_, a| (a.parts, a.neighbours) = (Some(PARTS), rotated));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("rotary_dim", Accepts::Size(1 << 14)),
    Field::new("auto_map", Accepts::Object).unless(Neutral::Any),
];

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (ATTN_NORM, "transformer.h.{}.ln_1"),
    (ATTN_QKV, "transformer.h.{}.attn.qkv_proj"),
    (ATTN_OUT, "transformer.h.{}.attn.out_proj"),
    (MLP_UP, "transformer.h.{}.mlp.fc_in"),
    (MLP_DOWN, "transformer.h.{}.mlp.fc_out"),
];
