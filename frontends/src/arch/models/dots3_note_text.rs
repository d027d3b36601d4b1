//! Dots 3 Note (rednote, 2026), the text model: DeepSeek-V3.2 with a norm of the rotated key,
//! larger short rows, gates of heads, and in three layers of four a window and sizes of their own.
//! The factor of short rows changes no choice of the indexer, whose queries are made of them too.

use crate::arch::blocks::families::indexer::{INDEXER, read};
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::families::windowed_latents::{FIELDS, Reach, WHERE, kinds, ropes, sparse, windowed};
use crate::arch::blocks::indexer::{self, Indexer};
use crate::arch::blocks::latent_attention::KEY_NORM;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "dots3_note_text",
    class: "Dots3NoteForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, MLP, ATTENTION_BIAS, LATENT, MIXTURE, INDEXER, FIELDS, WHERE, OWN],
    fixed: fixed! {
        On => rope_interleave use_sliding_window;
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
    },
    goldens: &["dots3_note", "dots3_note_select", "dots3_note_text"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, indexer::NAMES, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        Latent::short_queries(f)?;
        let defaults = defaults! {
            vocab: 152_064, heads: 128, head_dim: 64, max_position: 524_288, eps: 1e-5, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let (eps, layers) = (d.norm.eps, d.layers.len());
        let own = Latent { q_rank: Some(1024), eps, key_norm: true, ..Latent::of(f) };
        let full = Latent::read(f, f.size("num_attention_heads").or(128), own)?;
        let kinds = kinds(f, layers)?;
        let sliding = windowed(f, &kinds, full)?;
        d.ropes = ropes(f, [full.0.rope, sliding.0.rope])?;
        // As in GLM-5, it rotates neighbours.
        let neighbours = Indexer { interleaved: true, ..Indexer::DEEPSEEK };
        let selects = kinds.contains(&Reach::Indexed);
        let indexer = if selects { Some(read(f, neighbours, full.0.rope)?) } else { None };
        let (window, hidden) = (Some(f.size("sliding_window").value().unwrap_or(512)), d.facts.hidden as f64);
        let mut d = d.with_attention(|i, a| {
            let slides = kinds[i] == Reach::Sliding;
            let (latent, heads) = if slides { sliding } else { full };
            let larger = |rank: usize| (hidden / rank as f64).sqrt();
            let factor = Some(larger(latent.kv_rank) as f32).filter(|factor| *factor != 1.0);
            let indexer = indexer.filter(|_| kinds[i] == Reach::Indexed);
            (a.heads, a.form, a.gate) = (heads, Form::Latent(Latent { factor, indexer, ..latent }), Some(Gate::Heads));
            a.scale = (latent.q_rank.map_or(1.0, larger) / (heads.dim as f64).sqrt()) as f32;
            (a.window, a.rotary) = (window.filter(|_| slides), Some(usize::from(slides)));
        });
        // Where contexts are no longer than a selection.
        d.ignored.indexer = selects;
        let shared = f.size("shared_experts_intermediate_size").or(1536);
        let shared = Some(Shared::plain(shared.saturating_mul(f.size("n_shared_experts").or(1))));
        let experts = experts(f, &d, sigmoids(f, 8, 1.0)?, [256, 1, 1536])?;
        let experts = Experts { correction: Some(CORRECTION), shared, ..experts };
        let sparse = sparse(f, layers)?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = fields! { shared_experts_intermediate_size | moe_shared_expert_intermediate_size };

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.g_proj", KEY_NORM => "self_attn.k_rope_only_layernorm",
        CORRECTION => "mlp.gate.e_score_correction_bias",
    }
};
