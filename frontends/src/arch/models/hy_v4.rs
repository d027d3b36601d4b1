//! Hunyuan 4 (Tencent, 2026): several residual streams, latent attention with a gate, sinks and tokens
//! selected by an indexer, experts as DeepSeek-V3 chooses them, whose gates and inputs are limited.
//! Contexts of which no token is left out are compiled.

use crate::arch::blocks::attention::norm;
use crate::arch::blocks::attention_gates::Gate;
use crate::arch::blocks::clamps::Limits;
use crate::arch::blocks::decoder::{Decoder, Defaults, embedding, feed, output};
use crate::arch::blocks::decoder_experts::silu_alone;
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::experts::{CORRECTION, Experts, sparse_by_types};
use crate::arch::blocks::families::indexer::{SELECTION, dense};
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::independent_hyper_connections::{ATTN_SITE, HEAD_SITE, IndependentStreams, MLP_SITE, STREAMS};
use crate::arch::blocks::latent_attention::{self, LATENT, Latent};
use crate::arch::blocks::latent_decoder;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::{
    ATTN_GATE, ATTN_NORM, ATTN_SINKS, DEEPSEEK_EXPERTS, HUGGING_FACE, MLP_GATE, MLP_NORM, NORM, Names, SHARED_GATE,
    Table,
};
use crate::arch::blocks::token_mixer::{Context, mixed};
use crate::config::Facts;
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hy_v4",
    class: "HYV4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, MIXTURE, SELECTION, STREAMS, OWN],
    fixed: &[
        ("mlp_bias", Neutral::Off),
        ("scoring_func", Neutral::Words(&["sigmoid"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("first_k_dense_replace", Neutral::One),
        ("layer_types", Neutral::All("indexed_attention")),
        ("index_n_heads", Neutral::Any),
        ("index_head_dim", Neutral::Any),
        ("index_topk_freq", Neutral::Any),
        ("index_topk_pattern", Neutral::Any),
        ("index_skip_topk_offset", Neutral::Any),
        ("indexer_types", Neutral::Any),
        // Before training.
        ("learnable_sink_init", Neutral::Any),
    ],
    goldens: &["hy_v4"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        Latent::short_queries(f)?;
        let defaults =
            Defaults { vocab: Some(120_832), heads: Some(32), max_position: 262_144, eps: 1e-5, ..Defaults::LLAMA };
        let latent =
            Latent { bias: f.flag("attention_bias"), nope: 192, value: 256, interleaved: false, ..Latent::DEEPSEEK };
        let d = dense(f, latent_decoder::decoder(f, defaults, latent)?);
        silu_alone(f, &d)?;
        let d = d.with_attention(|_, a| (a.gate, a.sinks) = (Some(Gate::Columns), true));
        let limit = common::limit(f, "swiglu_limit")?.unwrap_or(10.0);
        let experts = Experts {
            correction: Some(CORRECTION),
            limits: Some(Limits::Entering(limit)),
            ..experts(f, &d, sigmoids(f, 8, 2.827)?, [256, 1, 768])?
        };
        let sparse = sparse_by_types(f, d.layers.len(), 1)?;
        let streams = IndependentStreams::read(f, d.norm.eps)?;
        Ok(Box::new(HyV4 { decoder: d.with_experts(|i| sparse[i].then_some(experts)), streams }))
    },
};

const OWN: &[Field] = &[Field::new("mlp_layer_types", Accepts::Any), Field::new("swiglu_limit", Accepts::Number)];

/// A decoder with several streams in place of one.
#[derive(Debug)]
struct HyV4 {
    decoder: Decoder,
    streams: IndependentStreams,
}

impl HyV4 {
    /// Layer `i`, of the streams `x`.
    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried, ropes: &[Carried]) -> Result<Carried, FrontendError> {
        let (d, spec, streams) = (&self.decoder, &self.decoder.layers[i], self.streams);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let context = Context::of(&mut f, spec, ropes);
        let x = streams.around(&mut f, ATTN_SITE, x, |f, h| {
            let h = norm(f, ATTN_NORM, d.norm, h, d.facts.hidden);
            mixed(f, d.norm, spec, context, h)
        });
        let x = streams.around(&mut f, MLP_SITE, x, |f, h| {
            let h = norm(f, MLP_NORM, d.norm, h, d.facts.hidden);
            feed(f, d, spec, h, h)
        });
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

impl Shape for HyV4 {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    fn chooses(&self, tensor: &str) -> bool {
        self.decoder.chooses(tensor)
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = embedding(l, d)?;
        let mut f = l.func("streams");
        let x = f.carried("x", &x);
        let x = self.streams.begin(&mut f, x);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for i in 0..d.layers.len() {
            x = self.layer(l, i, &x, &ropes)?;
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
const NAMES: Table = &[
    (ATTN_GATE, "model.layers.{}.self_attn.linear_gate"),
    (ATTN_GATE, "model.layers.{}.self_attn.gate_proj"),
    (ATTN_SINKS, "model.layers.{}.self_attn.learnable_sink_param"),
    (ATTN_SINKS, "model.layers.{}.self_attn.sinks"),
    (MLP_GATE, "model.layers.{}.mlp.gate_proj"),
    (MLP_GATE, "model.layers.{}.mlp.linear_gate"),
    (SHARED_GATE, "model.layers.{}.mlp.shared_experts.gate_proj"),
    (SHARED_GATE, "model.layers.{}.mlp.shared_experts.linear_gate"),
    (CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias"),
    (ATTN_SITE.rows, "model.layers.{}.hc_attn_layer.hc_pre.hc_fn"),
    (ATTN_SITE.rows, "model.layers.{}.attn_hc.fn"),
    (ATTN_SITE.rows, "model.layers.{}.hc_pre.hc_attn_layer.hc_fn"),
    (ATTN_SITE.base, "model.layers.{}.hc_attn_layer.hc_pre.hc_base"),
    (ATTN_SITE.base, "model.layers.{}.attn_hc.base"),
    (ATTN_SITE.base, "model.layers.{}.hc_pre.hc_attn_layer.hc_base"),
    (ATTN_SITE.scale, "model.layers.{}.hc_attn_layer.hc_pre.hc_scale"),
    (ATTN_SITE.scale, "model.layers.{}.attn_hc.scale"),
    (ATTN_SITE.scale, "model.layers.{}.hc_pre.hc_attn_layer.hc_scale"),
    (MLP_SITE.rows, "model.layers.{}.hc_mlp_layer.hc_pre.hc_fn"),
    (MLP_SITE.rows, "model.layers.{}.ffn_hc.fn"),
    (MLP_SITE.rows, "model.layers.{}.hc_pre.hc_mlp_layer.hc_fn"),
    (MLP_SITE.base, "model.layers.{}.hc_mlp_layer.hc_pre.hc_base"),
    (MLP_SITE.base, "model.layers.{}.ffn_hc.base"),
    (MLP_SITE.base, "model.layers.{}.hc_pre.hc_mlp_layer.hc_base"),
    (MLP_SITE.scale, "model.layers.{}.hc_mlp_layer.hc_pre.hc_scale"),
    (MLP_SITE.scale, "model.layers.{}.ffn_hc.scale"),
    (MLP_SITE.scale, "model.layers.{}.hc_pre.hc_mlp_layer.hc_scale"),
    (HEAD_SITE.rows, "model.hc_head.hc_head_fn"),
    (HEAD_SITE.rows, "model.hc_head.hc_fn"),
    (HEAD_SITE.rows, "model.hc_pre.hc_head.hc_head_fn"),
    (HEAD_SITE.base, "model.hc_head.hc_head_base"),
    (HEAD_SITE.base, "model.hc_head.hc_base"),
    (HEAD_SITE.base, "model.hc_pre.hc_head.hc_head_base"),
    (HEAD_SITE.scale, "model.hc_head.hc_head_scale"),
    (HEAD_SITE.scale, "model.hc_head.hc_scale"),
    (HEAD_SITE.scale, "model.hc_pre.hc_head.hc_head_scale"),
];
