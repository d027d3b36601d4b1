//! Gemma 3, the text models (arXiv 2503.19786): Gemma with norms before and after the blocks and of
//! queries and keys, and windows in most layers, which rotate positions by a table of their own.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma3_text",
    class: "Gemma3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY_OF_KINDS, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["gemma3", "gemma3_image", "embedding_gemma"],
    names: Names(&[SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let (bias, both_ways) = (f.flag("attention_bias"), f.flag("use_bidirectional_attention"));
        let defaults = defaults! {
            // Files of the larger models leave these out.
            vocab: 262_208, heads: 8, kv_heads: 4, head_dim: 256, max_position: 131_072, window: Most(4096, 6),
            tied: true, act(hidden_activation): GeluTanh, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |heads, max| read_two(f, heads.dim, max, ROPES))?;
        (d.norms, d.norm.from_one, d.scales.embedding_root) = (Norms::Both, true, true);
        d.scales.cap = common::limit(f, "final_logit_softcapping")?;
        let scale = (1.0 / f.factor_or("query_pre_attn_scalar", 256.0)?.sqrt()) as f32;
        Ok(Box::new(d.with_heads(|_, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, a.scale) = (bias, bias, Some(QkNorm::Head), scale);
            a.rotary = Some(usize::from(a.window.is_some()));
            // EmbeddingGemma (arXiv 2509.20354): half of the window on either side.
            if both_ways {
                (a.causal, a.window) = (false, a.window.map(|w| w / 2 + 1));
            }
        })))
    },
};

/// Its rotary embeddings: files of older versions have the bases beside a scaling of the first.
const ROPES: TwoRopes = TwoRopes {
    beside: Beside::Scaling { bases: ["rope_theta", "rope_local_base_freq"], both: false },
    ..TwoRopes::new([1e6, 1e4])
};

const OWN: &[Field] = fields! {
    intermediate_size, hidden_activation, rms_norm_eps, query_pre_attn_scalar, final_logit_softcapping,
    rope_local_base_freq, use_bidirectional_attention, sliding_window_pattern | _sliding_window_pattern,
};
