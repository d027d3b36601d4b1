//! EuroBERT (arXiv 2503.05500): Llama's layers, in which every token sees the whole text.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "eurobert",
    class: "EuroBertModel",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["eurobert", "eurobert_classes"],
    names: Names(&[names! { "" { POOLER => "dense", CLASSES => "classifier" } }, HUGGING_FACE]),
    read: |f| {
        let facts = Facts::read(f, Some(128_256), 8192, false)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let (ffn, act) = (f.size("intermediate_size").or(3072), common::activation(f, "hidden_act", UnaryOp::Silu));
        let eps = common::eps(f, "rms_norm_eps", 1e-5)?;
        let rope = rope::read(f, heads.dim, facts.max_position, 10_000.0)?;
        let (bias, mlp_bias) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let mut e = Encoder::alike(facts, heads, (ffn, act), eps);
        (e.norm, e.norm_first, e.embedding.norm, e.ropes) = (Norm::rms(eps), true, false, vec![rope]);
        for layer in &mut e.layers {
            layer.attention.change_heads(|a, h| (h.qkv_bias, h.out_bias, a.rotary) = (bias, bias, Some(0)));
            (layer.mlp.gated, layer.mlp.bias) = (true, mlp_bias);
        }
        let (pool, late) = match f.text("classifier_pooling") {
            None | Some("late") => (Pool::Mean, true),
            Some("mean") => (Pool::Mean, false),
            Some("bos") => (Pool::First, false),
            Some(other) => {
                let help = "this architecture supports `bos`, `mean` and `late`".into();
                return Err(f.unsupported("classifier_pooling", format!("\"{other}\""), help));
            }
        };
        e.classes = ClassHead { pool, dense: true, act: UnaryOp::Gelu, bias: true, norm: false, late };
        e.spare = &["lm_head."];
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! { classifier_pooling | clf_pooling };
