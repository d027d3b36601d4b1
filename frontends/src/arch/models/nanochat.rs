//! nanochat (Karpathy, 2025): norms without gains, also of embeddings and of rotated queries and
//! keys, squared ReLU without gate, positions rotated backwards.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nanochat",
    class: "NanoChatForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["nanochat"],
    names: Names(&[names! { "model.layers.{}." { MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.fc2" } }, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 50_304, heads: 6, act: Relu2, ..LLAMA };
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults)?;
        d.norm.gain = false;
        d.embedding.norm = Some(d.norm);
        d.scales.cap = match f.get("final_logit_softcapping") {
            Given::Absent => Some(15.0),
            Given::Null | Given::Value(_) => common::limit(f, "final_logit_softcapping")?,
        };
        for rope in &mut d.ropes {
            if rope.scaling != RopeScaling::Default {
                let help = "this architecture does not support scaled frequencies".to_string();
                return Err(f.unsupported("rope_scaling", "a scaling".into(), help));
            }
            // Backwards.
            rope.scaling = RopeScaling::Linear { factor: -1.0 };
        }
        let d = d.with_heads(|_, _, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::BareAfter));
        });
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size, hidden_act: SIMPLE_ACTS,
    rms_norm_eps, final_logit_softcapping, rope_theta, rope_scaling, rope_parameters,
};
