//! LongCat-Flash (arXiv 2509.01322): layers of two halves, each latent attention and an MLP;
//! experts read the first MLP's input, and their output is added behind the second. Some experts
//! return their input; in their slots the last expert is computed, with weight 0.

use crate::arch::blocks::latent_attention::{KV_DOWN, KV_DOWN_NORM, KV_UP, Over, Q_DOWN, Q_DOWN_NORM, Q_UP};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "longcat_flash",
    class: "LongcatFlashForCausalLM",
    fields: &[IDENTITY, OWN, ATTENTION, ROTARY, ATTENTION_BIAS, LATENT],
    fixed: fixed! {
        Words(&["mla"]) => attention_method;
        On => mla_scale_q_lora mla_scale_kv_lora;
        Words(&["identity"]) => zero_expert_type;
        Off => router_bias norm_topk_prob;
    },
    goldens: &["longcat_flash"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 131_072, heads: 64, max_position: 131_072, eps: 1e-5, theta: 1e7, ..LLAMA
        };
        let latent = Latent::of(f);
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let hidden = d.facts.hidden as f64;
        let root = |rank: usize| (hidden / rank.max(1) as f64).sqrt();
        let d = d.with_attention(|_, a| {
            if let Form::Latent(latent) = &mut a.form {
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
            routing: Routing { zero: f.count("zero_expert_num").unwrap_or(256), ..Routing::default() },
            ffn: f.size("moe_intermediate_size").or(2048),
            ..Experts::like(&d, router, f.size("n_routed_experts").or(512))
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        Ok(Box::new(Longcat { decoder: d, experts }))
    },
};

/// Its layers; each is a layer of the decoder twice.
#[derive(Debug)]
struct Longcat {
    decoder: Decoder,
    experts: Experts,
}

impl Longcat {
    /// A half of layer `i`, and the experts' output if it is the first; `more`: that output.
    fn half(
        &self,
        l: &mut Lifter,
        (i, half): (usize, usize),
        (x, more): (&Carried, Option<&Carried>),
        ropes: &[Carried],
    ) -> Result<Vec<Carried>, FrontendError> {
        let (d, spec) = (&self.decoder, &self.decoder.layers[i]);
        let (a, hidden) = (&spec.attention, d.facts.hidden);
        let Form::Latent(latent) = &a.form else { return Ok(vec![]) };
        let mut f = l.half(["first", "second"][half], i, half);
        let x = f.carried("x", x);
        let more = more.map(|more| f.carried("more", more));
        let rope = ropes.first().map(|rope| f.carried("rope", rope));
        let positions = f.input(Input::Positions);
        let kv = f.latent_kv("kv", (latent.rope + latent.kv_rank, latent.kv_rank), a.window);
        let h = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let over = Over { stored: false, kv, positions, rope, selection: None };
        let (y, _) = latent_attention::attention(&mut f, (a, latent), d.norm, h, over);
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
    answered_by! { decoder: facts }

    /// Transformers' class has matrices of experts that compute nothing, and writes them.
    fn chooses(&self, tensor: &str) -> bool {
        let number = tensor.split_once(".mlp.experts.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        let (count, zero) = (self.experts.count, self.experts.routing.zero);
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

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size, num_hidden_layers | num_layers,
    max_position_embeddings, tie_word_embeddings, bos_token_id, eos_token_id, rms_norm_eps,
    intermediate_size | ffn_hidden_size, hidden_act, moe_intermediate_size | expert_ffn_hidden_size,
    num_experts_per_tok | moe_topk, n_routed_experts, zero_expert_num, routed_scaling_factor,
};

/// `{e}` is the number of an expert, or of a half.
const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_NORM => "input_layernorm.{e}", Q_DOWN => "self_attn.{e}.q_a_proj",
        Q_DOWN_NORM => "self_attn.{e}.q_a_layernorm", Q_UP => "self_attn.{e}.q_b_proj",
        KV_DOWN => "self_attn.{e}.kv_a_proj_with_mqa", KV_DOWN_NORM => "self_attn.{e}.kv_a_layernorm",
        KV_UP => "self_attn.{e}.kv_b_proj", ATTN_OUT => "self_attn.{e}.o_proj",
        MLP_NORM => "post_attention_layernorm.{e}", MLP_GATE => "mlps.{e}.gate_proj", MLP_UP => "mlps.{e}.up_proj",
        MLP_DOWN => "mlps.{e}.down_proj", ROUTER => "mlp.router.classifier",
        CORRECTION => "mlp.router.e_score_correction_bias", EXPERT_GATE => "mlp.experts.{e}.gate_proj",
        EXPERT_UP => "mlp.experts.{e}.up_proj", EXPERT_DOWN => "mlp.experts.{e}.down_proj",
        EXPERTS_GATE_UP => "mlp.experts.gate_up_proj", EXPERTS_DOWN => "mlp.experts.down_proj",
    }
};
