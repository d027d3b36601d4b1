//! Hunyuan 4 (Tencent, 2026): several residual streams, latent attention with a gate, sinks and
//! tokens selected by an indexer, experts chosen as in DeepSeek-V3, with limited gates and inputs.

use crate::arch::blocks::decoder::{embedding, feed, output};
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::families::indexer::{INDEXER, indexed, shared};
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::independent_hyper_connections::{ATTN_SITE, HEAD_SITE, IndependentStreams, MLP_SITE, STREAMS};
use crate::arch::blocks::indexer::{self, Indexer};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::token_mixer::selecting;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hy_v4",
    class: "HYV4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, MIXTURE, INDEXER, STREAMS, OWN],
    fixed: fixed! {
        Off => mlp_bias;
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        One => first_k_dense_replace;
        All("indexed_attention") => layer_types;
        Any => index_topk_freq index_topk_pattern index_skip_topk_offset;
        // Before training.
        Any => learnable_sink_init;
    },
    goldens: &["hy_v4", "hy_v4_select"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, indexer::NAMES, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        Latent::short_queries(f)?;
        let defaults = defaults! { vocab: 120_832, heads: 32, max_position: 262_144, eps: 1e-5, ..LLAMA };
        let latent = Latent { nope: 192, value: 256, interleaved: false, ..Latent::of(f) };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let indexer = Indexer { heads: 16, last: true, eps: d.norm.eps, ..Indexer::DEEPSEEK };
        let d = shared(f, indexed(f, d, indexer)?, 4)?;
        silu_alone(f, &d)?;
        let d = d.with_attention(|_, a| (a.gate, a.sinks) = (Some(Gate::Columns), true));
        let limit = common::limit(f, "swiglu_limit")?.unwrap_or(10.0);
        let experts = Experts {
            correction: Some(CORRECTION),
            limits: Some(Limits::Entering(limit)),
            ..experts(f, &d, sigmoids(f, 8, 2.827)?, [256, 1, 768])?
        };
        let decoder = d.with_sparse(f, 1, experts)?;
        let streams = IndependentStreams::read(f, decoder.norm.eps)?;
        Ok(Box::new(HyV4 { decoder, streams }))
    },
};

const OWN: &[Field] = fields! { mlp_layer_types, swiglu_limit, indexer_types: Accepts::ListOf(&["full", "shared"]) };

/// A decoder with several streams in place of one.
#[derive(Debug)]
struct HyV4 {
    decoder: Decoder,
    streams: IndependentStreams,
}

impl HyV4 {
    /// Layer `i`, of the streams `x`, which may read the tokens that an earlier one has selected.
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        x: &Carried,
        ropes: &[Carried],
        selection: &mut Option<Carried>,
    ) -> Result<Carried, FrontendError> {
        let (d, spec, streams) = (&self.decoder, &self.decoder.layers[i], self.streams);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let context = Context::of(&mut f, spec, ropes).selecting(&mut f, spec, selection.as_ref());
        let mut selected = None;
        let x = streams.around(&mut f, ATTN_SITE, x, |f, h| {
            let h = norm(f, ATTN_NORM, d.norm, h, d.facts.hidden);
            let (y, of_layer) = selecting(f, d.norm, spec, context, h);
            selected = of_layer.filter(|_| d.shares_selection(i));
            y
        });
        let x = streams.around(&mut f, MLP_SITE, x, |f, h| {
            let h = norm(f, MLP_NORM, d.norm, h, d.facts.hidden);
            feed(f, d, spec, h, h)
        });
        let mut results = f.call(&[x].into_iter().chain(selected).collect::<Vec<_>>())?.into_iter();
        let x = results.next().unwrap_or_default();
        *selection = results.next().or(selection.take());
        Ok(x)
    }
}

impl Shape for HyV4 {
    answered_by! { decoder: facts chooses }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = embedding(l, d)?;
        let mut f = l.func("streams");
        let x = f.carried("x", &x);
        let x = self.streams.begin(&mut f, x);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        let mut selection = None;
        for i in 0..d.layers.len() {
            x = self.layer(l, i, &x, &ropes, &mut selection)?;
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let x = gathered(&mut f, x);
        let x = self.streams.end(&mut f, x);
        let x = norm(&mut f, NORM, d.norm, x, d.facts.hidden);
        output(f, d, x)
    }
}

/// As Tencent publishes them, as Transformers has them in memory, and as it writes them.
const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.linear_gate", ATTN_GATE => "self_attn.gate_proj",
        ATTN_SINKS => "self_attn.learnable_sink_param", ATTN_SINKS => "self_attn.sinks", MLP_GATE => "mlp.gate_proj",
        MLP_GATE => "mlp.linear_gate", SHARED_GATE => "mlp.shared_experts.gate_proj",
        SHARED_GATE => "mlp.shared_experts.linear_gate", CORRECTION => "mlp.gate.e_score_correction_bias",
        ATTN_SITE.rows => "hc_attn_layer.hc_pre.hc_fn", ATTN_SITE.rows => "attn_hc.fn",
        ATTN_SITE.rows => "hc_pre.hc_attn_layer.hc_fn", ATTN_SITE.base => "hc_attn_layer.hc_pre.hc_base",
        ATTN_SITE.base => "attn_hc.base", ATTN_SITE.base => "hc_pre.hc_attn_layer.hc_base",
        ATTN_SITE.scale => "hc_attn_layer.hc_pre.hc_scale", ATTN_SITE.scale => "attn_hc.scale",
        ATTN_SITE.scale => "hc_pre.hc_attn_layer.hc_scale", MLP_SITE.rows => "hc_mlp_layer.hc_pre.hc_fn",
        MLP_SITE.rows => "ffn_hc.fn", MLP_SITE.rows => "hc_pre.hc_mlp_layer.hc_fn",
        MLP_SITE.base => "hc_mlp_layer.hc_pre.hc_base", MLP_SITE.base => "ffn_hc.base",
        MLP_SITE.base => "hc_pre.hc_mlp_layer.hc_base", MLP_SITE.scale => "hc_mlp_layer.hc_pre.hc_scale",
        MLP_SITE.scale => "ffn_hc.scale", MLP_SITE.scale => "hc_pre.hc_mlp_layer.hc_scale",
    }
    "model." {
        HEAD_SITE.rows => "hc_head.hc_head_fn", HEAD_SITE.rows => "hc_head.hc_fn",
        HEAD_SITE.rows => "hc_pre.hc_head.hc_head_fn", HEAD_SITE.base => "hc_head.hc_head_base",
        HEAD_SITE.base => "hc_head.hc_base", HEAD_SITE.base => "hc_pre.hc_head.hc_head_base",
        HEAD_SITE.scale => "hc_head.hc_head_scale", HEAD_SITE.scale => "hc_head.hc_scale",
        HEAD_SITE.scale => "hc_pre.hc_head.hc_head_scale",
    }
};
