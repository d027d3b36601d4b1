//! GPT-J (Wang and Komatsuzaki, 2021): attention and MLP side by side behind one LayerNorm, rotation of neighbours in a
//! part of each head, no biases but the MLP's, the norms' and the head's.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gptj",
    class: "GPTJForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, GPT_MLP, fields! { layer_norm_epsilon, rotary_dim }],
    fixed: &[],
    goldens: &["gptj"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { vocab: 50_400, heads: 16, max_position: 2048, tied: false, ..GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |heads, _| {
            let dim = f.size("rotary_dim").or_null(64).unwrap_or(heads.dim);
            rope::check_rotary_dim(f, dim, heads.dim)?;
            Ok(vec![RopeConfig { theta: 10_000.0, dim, scaling: RopeScaling::Default }])
        })?;
        (d.norm, d.norms) = (Norm::layer(d.norm.eps), Norms::Parallel { own: false });
        d.head.bias = true;
        let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
        let d = d.with_heads(|_, _, h| h.neighbours = rotated);
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "ln_1", ATTN_Q => "attn.q_proj", ATTN_K => "attn.k_proj", ATTN_V => "attn.v_proj",
        ATTN_OUT => "attn.out_proj", MLP_UP => "mlp.fc_in", MLP_DOWN => "mlp.fc_out",
    }
};
