//! Mistral Large 4 (Mistral AI, 2026), the text models: latent attention whose queries grow with
//! the position by learned numbers (scalable softmax, arXiv 2501.19399), layers that do not rotate,
//! layers that read the latents of earlier ones, learned frequencies, tokens selected by an
//! indexer, whose queries are made of the layer's input and grow likewise.

use crate::arch::blocks::decoder::ROPE_POWERS;
use crate::arch::blocks::families::indexer::{INDEXER, INDEXERS, indexed, shared};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, probabilities};
use crate::arch::blocks::indexer::{
    self, INDEX_K, INDEX_K_NORM, INDEX_Q, INDEX_Q_NORM, INDEX_TUNING, INDEX_TUNING_BIAS, INDEX_WEIGHTS, Indexer,
};
use crate::arch::blocks::latent_attention::{KV_DOWN, KV_DOWN_NORM, KV_UP, TUNING, TUNING_BIAS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mistral_large4_text",
    class: "MistralLarge4ForConditionalGeneration",
    fields: &[
        IDENTITY,
        MODEL,
        ATTENTION,
        ROTARY,
        MLP,
        ATTENTION_BIAS,
        LATENT,
        EXPERTS,
        INDEXER,
        INDEXERS,
        UNROTATED,
        OWN,
    ],
    fixed: fixed! {
        All("indexed_attention") => layer_types;
    },
    goldens: &["mistral_large4", "mistral_large4_select"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, indexer::NAMES, HUGGING_FACE]),
    read: |f| {
        if let Some(rank) = f.size("q_lora_rank").value() {
            let help = "this architecture makes queries from the row itself".to_string();
            return Err(f.unsupported("q_lora_rank", rank.to_string(), help));
        }
        if !f.flag_or("norm_topk_prob", true) {
            let help = "this architecture divides the weights of experts by their sum".to_string();
            return Err(f.unsupported("norm_topk_prob", "false".into(), help));
        }
        let defaults = defaults! { vocab: 204_800, heads: 64, max_position: 1_048_576, eps: 1e-5, ..LLAMA };
        let latent = Latent { q_rank: None, nope: 64, ..Latent::of(f) };
        let indexer = Indexer { heads: 32, interleaved: true, tuned: true, ..Indexer::DEEPSEEK };
        let mut d = shared(f, indexed(f, latent_decoder::decoder(f, defaults, latent)?, indexer)?, 1)?;
        d.scales.cap = common::limit(f, "final_logit_softcapping")?.or(Some(30.0));
        d.embedding.learned_rope = true;
        extended(f, &mut d)?;
        let (layers, eps) = (d.facts.layers, d.norm.eps);
        let rotates = common::rotating_layers(f, layers)?;
        share(f, &mut d, &rotates)?;
        let mut d = d.with_attention(|i, a| {
            let Form::Latent(latent) = &mut a.form else { return };
            latent.head_tuning = true;
            latent.eps = eps;
            if !rotates[i] {
                (latent.whole, latent.nope, a.rotary) = (true, latent.nope + latent.rope, None);
            }
        });
        let router = probabilities(f, 4, 1.0)?;
        let experts = experts(f, &d, router, [128, 1, 6144])?;
        d = d.with_sparse(f, f.count("first_k_dense_replace").unwrap_or(1), experts)?;
        Ok(Box::new(d))
    },
};

const SOURCES: &str = "kv_source_layers";

const OWN: &[Field] = fields! { mlp_layer_types, kv_source_layers, final_logit_softcapping };

/// YaRN from 512 tokens on, where the file describes no rotation.
fn extended(f: &Fields, d: &mut Decoder) -> Result<(), ConfigError> {
    if rope::described(f)? {
        return Ok(());
    }
    if let Some(theta) = f.number("rope_theta").filter(|theta| *theta != 1e4) {
        let help = "this architecture has a base of 10000 where `rope_parameters` says nothing".to_string();
        return Err(f.unsupported("rope_theta", theta.to_string(), help));
    }
    let (beta_fast, beta_slow, original) = (32.0, 1.0, 512.0);
    let scaling =
        RopeScaling::Yarn { factor: 2048.0, attention_factor: 1.0, beta_fast, beta_slow, original, truncate: true };
    d.ropes.iter_mut().for_each(|r| *r = RopeConfig { scaling: scaling.clone(), ..r.clone() });
    Ok(())
}

/// Lets layers read the latents of those that `kv_source_layers` names. The class reads those that are shared by the
/// last layer before, of those that rotate as the reading one does: where that is another layer, the file is refused.
fn share(f: &Fields, d: &mut Decoder, rotates: &[bool]) -> Result<(), ConfigError> {
    let Some(sources) = f.numbers(SOURCES) else { return Ok(()) };
    let refused = |help: String| f.unsupported(SOURCES, format!("{sources:?}"), help);
    if sources.len() != rotates.len() {
        let help = format!("this architecture expects a source for each of its {} layers", rotates.len());
        return Err(refused(help));
    }
    let of = |i: usize| sources.get(i).filter(|s| **s >= 0.0 && s.fract() == 0.0).map(|s| *s as usize);
    for (i, layer) in d.layers.iter_mut().enumerate() {
        let source = of(i).filter(|s| *s <= i && of(*s) == Some(*s));
        let Some(source) = source else {
            let help = format!("this architecture expects layers before layer {i} with latents of their own");
            return Err(refused(help));
        };
        if source == i {
            continue;
        }
        let shared = |j: &usize| {
            rotates[*j] == rotates[i] && of(*j) == Some(*j) && (j + 1..rotates.len()).any(|k| of(k) == Some(*j))
        };
        if (0..i).rev().find(shared) != Some(source) {
            let help = format!(
                "this architecture expects layer {i} to read the last shared latents before it (from a layer \
                    that rotates positions if it does), not layer {source}'s"
            );
            return Err(refused(help));
        }
        layer.shares = Some(source);
    }
    Ok(())
}

/// As Transformers has them in memory, with another prefix inside a larger model, and as Mistral AI publishes them.
const NAMES: Table = names! {
    "model." { TABLE => "embed_tokens", ROPE_POWERS => "rotary_emb.alpha" }
    "" { TABLE => "tok_embeddings", HEAD => "lm_head", HEAD => "output", ROPE_POWERS => "lerope.alpha" }
    "model." | "" { NORM => "norm" }
    "model.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj", TUNING => "self_attn.softmax_scaling.scale",
        TUNING_BIAS => "self_attn.softmax_scaling.bias", KV_DOWN => "self_attn.kv_a_proj_with_mqa",
        KV_DOWN_NORM => "self_attn.kv_a_layernorm", KV_UP => "self_attn.kv_b_proj", ATTN_OUT => "self_attn.o_proj",
        MLP_NORM => "post_attention_layernorm", MLP_GATE => "mlp.gate_proj", MLP_UP => "mlp.up_proj",
        MLP_DOWN => "mlp.down_proj", ROUTER => "mlp.gate", EXPERT_GATE => "mlp.experts.{e}.gate_proj",
        EXPERT_UP => "mlp.experts.{e}.up_proj", EXPERT_DOWN => "mlp.experts.{e}.down_proj",
        SHARED_GATE => "mlp.shared_experts.gate_proj", SHARED_UP => "mlp.shared_experts.up_proj",
        SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
    "layers.{}." {
        ATTN_NORM => "attention_norm", ATTN_Q => "attention.wq", TUNING => "attention.ssmax_scaling.s",
        TUNING_BIAS => "attention.ssmax_scaling.b", KV_DOWN => "attention.wkv_a_with_mqa",
        KV_DOWN_NORM => "attention.kv_a_norm", KV_UP => "attention.wkv_b", ATTN_OUT => "attention.wo",
        MLP_NORM => "ffn_norm", MLP_GATE => "feed_forward.w1", MLP_UP => "feed_forward.w3",
        MLP_DOWN => "feed_forward.w2", ROUTER => "gate", EXPERT_GATE => "experts.{e}.w1",
        EXPERT_UP => "experts.{e}.w3", EXPERT_DOWN => "experts.{e}.w2", SHARED_GATE => "shared_experts.w1",
        SHARED_UP => "shared_experts.w3", SHARED_DOWN => "shared_experts.w2",
    }
    "layers.{}.attention.indexer." {
        INDEX_Q => "wq_b", INDEX_K => "wk", INDEX_K_NORM => "k_norm", INDEX_WEIGHTS => "weights_proj",
        INDEX_Q_NORM => "q_input_norm", INDEX_TUNING => "ssmax_scaling.s", INDEX_TUNING_BIAS => "ssmax_scaling.b",
    }
};
