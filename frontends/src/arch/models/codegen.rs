//! CodeGen (arXiv 2203.13474): GPT-J whose queries, values and keys are stored as one matrix, in four
//! parts as it was trained on as many chips.

use crate::arch::blocks::prelude::*;

/// Parts of the matrix, whatever the size of the model.
const PARTS: usize = 4;

pub(crate) const ARCH: Arch = Arch {
    model_type: "codegen",
    class: "CodeGenForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, GPT_MLP, fields! { layer_norm_epsilon, rotary_dim, auto_map }],
    fixed: &[],
    goldens: &["codegen"],
    names: Names(&[NAMES]),
    read: |f| {
        // CodeGen2 is said to be of this type; the code that its files come with has eight parts.
        if f.object("auto_map").is_some() {
            let help = "this architecture has four parts; custom code is not supported".to_string();
            return Err(f.unsupported("auto_map", "an object".into(), help));
        }
        let defaults = defaults! { vocab: 50_400, heads: 16, max_position: 2048, tied: false, ..GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |heads, _| {
            if !heads.queries.is_multiple_of(PARTS) {
                let expected = format!("a multiple of {PARTS}: this architecture stores heads in this many parts");
                return Err(f.invalid("num_attention_heads", &heads.queries, expected));
            }
            let dim = f.size("rotary_dim").or(64);
            rope::check_rotary_dim(f, dim, heads.dim)?;
            Ok(vec![RopeConfig { theta: 10_000.0, dim, scaling: RopeScaling::Default }])
        })?;
        (d.norm, d.norms) = (Norm::layer(d.norm.eps), Norms::Parallel { own: false });
        d.head.bias = true;
        let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
        let d = d.with_heads(|_, _, h| (h.projection, h.neighbours) = (Projection::Parts(PARTS), rotated));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "ln_1", ATTN_QKV => "attn.qkv_proj", ATTN_OUT => "attn.out_proj", MLP_UP => "mlp.fc_in",
        MLP_DOWN => "mlp.fc_out",
    }
};
