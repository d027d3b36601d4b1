//! LongCat-Flash (arXiv 2509.01322): layers of two halves, each latent attention and an MLP; experts
//! read what the first MLP reads, and what they make is added behind the second. Some experts give
//! back what they get; in their slots the last expert is computed, and weighs nothing.

use crate::arch::blocks::attention::norm;
use crate::arch::blocks::decoder::{self, Decoder, Defaults};
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::experts::{CORRECTION, Experts, mixture};
use crate::arch::blocks::latent_attention::{
    self, KV_DOWN, KV_DOWN_NORM, KV_UP, LATENT, Latent, Q_DOWN, Q_DOWN_NORM, Q_UP,
};
use crate::arch::blocks::latent_decoder;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::mlp::mlp;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE_UP, HUGGING_FACE, MLP_DOWN,
    MLP_GATE, MLP_NORM, MLP_UP, Names, ROUTER, Table,
};
use crate::config::common::{ACTIVATIONS, ATTENTION, ATTENTION_BIAS, Facts, MODEL, RMS_NORM, ROTARY, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use llmcc_ir::graph::{F32, Input, Router};

pub(crate) const ARCH: Arch = Arch {
    model_type: "longcat_flash",
    class: "LongcatFlashForCausalLM",
    fields: &[IDENTITY, OWN, ATTENTION, ROTARY, ATTENTION_BIAS, LATENT],
    fixed: &[
        ("attention_method", Neutral::Words(&["mla"])),
        ("mla_scale_q_lora", Neutral::On),
        ("mla_scale_kv_lora", Neutral::On),
        ("zero_expert_type", Neutral::Words(&["identity"])),
        ("router_bias", Neutral::Off),
        ("norm_topk_prob", Neutral::Off),
    ],
    goldens: &["longcat_flash"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(131_072),
            heads: Some(64),
            max_position: 131_072,
            eps: 1e-5,
            theta: 1e7,
            ffn: None,
            ..Defaults::LLAMA
        };
        let latent = Latent { bias: f.flag("attention_bias"), ..Latent::DEEPSEEK };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let hidden = d.facts.hidden as f64;
        let root = |rank: usize| (hidden / rank.max(1) as f64).sqrt();
        let d = d.with_attention(|_, a| {
            if let Some(latent) = &mut a.latent {
                latent.factor = Some(root(latent.kv_rank) as f32);
                a.scale = (f64::from(a.scale) * latent.q_rank.map_or(1.0, root)) as f32;
            }
        });
        let router = Router {
            scale: F32::new(f.factor_or("routed_scaling_factor", 6.0)? as f32),
            ..Router::softmax(f.size("num_experts_per_tok").or(12), false)
        };
        let experts = Experts {
            correction: Some(CORRECTION),
            zero: f.count("zero_expert_num").unwrap_or(256),
            ffn: f.size("moe_intermediate_size").or(2048),
            ..Experts::like(&d, router, f.size("n_routed_experts").or(512))
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        Ok(Box::new(Longcat { decoder: d, experts }))
    },
};

/// Its layers, of which each is a layer of the decoder twice.
#[derive(Debug)]
struct Longcat {
    decoder: Decoder,
    experts: Experts,
}

impl Longcat {
    /// A half of layer `i`, and what the experts make if it is the first; `more`: what they made.
    fn half(
        &self,
        l: &mut Lifter,
        (i, half): (usize, usize),
        (x, more): (&Carried, Option<&Carried>),
        ropes: &[Carried],
    ) -> Result<Vec<Carried>, FrontendError> {
        let (d, spec) = (&self.decoder, &self.decoder.layers[i]);
        let (a, hidden) = (&spec.attention, d.facts.hidden);
        let Some(latent) = &a.latent else { return Ok(vec![]) };
        let mut f = l.half(["first", "second"][half], i, half);
        let x = f.carried("x", x);
        let more = more.map(|more| f.carried("more", more));
        let rope = ropes.first().map(|rope| f.carried("rope", rope));
        let positions = f.input(Input::Positions);
        let kv = f.latent_kv("kv", (latent.rope + latent.kv_rank, latent.kv_rank), a.window);
        let h = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let y = latent_attention::attention(&mut f, (a, latent, false), d.norm, h, kv, positions, rope);
        let x = f.add(x, y);
        let h = norm(&mut f, MLP_NORM, d.norm, x, hidden);
        let made = (half == 0).then(|| mixture(&mut f, &self.experts, h, h));
        let y = mlp(&mut f, &spec.mlp, h);
        let mut x = f.add(x, y);
        if let Some(more) = more {
            x = f.add(x, more);
        }
        let results: Vec<_> = [Some(x), made].into_iter().flatten().collect();
        f.call(&results)
    }
}

impl Shape for Longcat {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    /// Transformers' class has matrices of experts that compute nothing, and writes them.
    fn chooses(&self, tensor: &str) -> bool {
        let number = tensor.split_once(".mlp.experts.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        let (count, zero) = (self.experts.count, self.experts.zero);
        number.is_some_and(|e: usize| e >= count && e - count < zero)
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = decoder::embedding(l, &self.decoder)?;
        for i in 0..self.decoder.layers.len() {
            let first = self.half(l, (i, 0), (&x, None), &ropes)?;
            let [y, more] = &first[..] else { return Ok(()) };
            x = self.half(l, (i, 1), (y, Some(more)), &ropes)?.pop().unwrap_or_default();
        }
        decoder::head(l, &self.decoder, &x)
    }
}

const OWN: &[Field] = &[
    MODEL[0],
    MODEL[1],
    MODEL[2],
    MODEL[3],
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["num_layers"]),
    Field::new("max_position_embeddings", TOKENS),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    RMS_NORM,
    Field::new("intermediate_size", WIDTH).or(&["ffn_hidden_size"]),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("moe_intermediate_size", WIDTH).or(&["expert_ffn_hidden_size"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)).or(&["moe_topk"]),
    Field::new("n_routed_experts", Accepts::Size(4096)),
    Field::new("zero_expert_num", Accepts::Count),
    Field::new("routed_scaling_factor", Accepts::Number),
];

/// `{e}` is the number of an expert, or of a half.
const NAMES: Table = &[
    (ATTN_NORM, "model.layers.{}.input_layernorm.{e}"),
    (Q_DOWN, "model.layers.{}.self_attn.{e}.q_a_proj"),
    (Q_DOWN_NORM, "model.layers.{}.self_attn.{e}.q_a_layernorm"),
    (Q_UP, "model.layers.{}.self_attn.{e}.q_b_proj"),
    (KV_DOWN, "model.layers.{}.self_attn.{e}.kv_a_proj_with_mqa"),
    (KV_DOWN_NORM, "model.layers.{}.self_attn.{e}.kv_a_layernorm"),
    (KV_UP, "model.layers.{}.self_attn.{e}.kv_b_proj"),
    (ATTN_OUT, "model.layers.{}.self_attn.{e}.o_proj"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm.{e}"),
    (MLP_GATE, "model.layers.{}.mlps.{e}.gate_proj"),
    (MLP_UP, "model.layers.{}.mlps.{e}.up_proj"),
    (MLP_DOWN, "model.layers.{}.mlps.{e}.down_proj"),
    (ROUTER, "model.layers.{}.mlp.router.classifier"),
    (CORRECTION, "model.layers.{}.mlp.router.e_score_correction_bias"),
    (EXPERT_GATE, "model.layers.{}.mlp.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.mlp.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.mlp.experts.{e}.down_proj"),
    (EXPERTS_GATE_UP, "model.layers.{}.mlp.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.mlp.experts.down_proj"),
];
