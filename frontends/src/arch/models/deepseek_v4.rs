//! DeepSeek-V4 (DeepSeek, 2026): several residual streams; attention to the last tokens and to rows
//! that windows of earlier tokens share; experts, in the first layers chosen by the token itself.
//!
//! An indexer selects the rows of short windows that are read.

mod attention;
mod fields;
#[cfg(test)]
mod tests;

use crate::arch::blocks::experts::TOKEN_EXPERTS;
use crate::arch::blocks::families::indexer::{INDEXER, wide_enough};
use crate::arch::blocks::hyper_connections::{self, ATTEND, FEED, STREAMS, Streams};
use crate::arch::blocks::prelude::*;
use crate::config::rope_kinds;
use attention::{ForLayer, Index, WindowSizes, Windows, attention, first_of};
use fields::{OWN, by_token, experts, rotated, windows};

pub(crate) const ARCH: Arch = Arch {
    model_type: "deepseek_v4",
    class: "DeepseekV4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, STREAMS, INDEXER, OWN],
    fixed: fixed! {
        Words(&["silu"]) => hidden_act;
        Off => attention_bias mlp_bias;
        On => norm_topk_prob;
        Words(&["sqrtsoftplus"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        One => n_shared_experts;
    },
    goldens: &["deepseek_v4", "deepseek_v4_select"],
    names: Names(&[NAMES, attention::NAMES, hyper_connections::NAMES]),
    read,
};

fn read(f: &Fields) -> Result<Box<dyn Shape>, ConfigError> {
    let defaults = defaults! {
        vocab: 129_280, heads: 64, kv_heads: 1, head_dim: 512, max_position: 1 << 20, eps: 1e-6, ffn: 1, ..LLAMA
    };
    let d = Decoder::read_with(f, &defaults, |heads, max| {
        rope_kinds::read_compressed(f, [rotated(f, heads.dim)?, heads.dim], max)
    })?;
    let heads = d.layers.first().map_or(Heads { queries: 1, kv: 1, dim: 2 }, |l| l.attention.heads);
    if heads.kv != 1 {
        let help = "this architecture has one row for the keys and values of all heads".into();
        return Err(f.unsupported("num_key_value_heads", heads.kv.to_string(), help));
    }
    let groups = f.size("o_groups").or(8);
    if !heads.queries.is_multiple_of(groups) {
        let expected = format!("a divisor of `num_attention_heads` ({})", heads.queries);
        return Err(f.invalid("o_groups", &groups, expected));
    }
    let sizes = WindowSizes {
        heads: heads.queries,
        dim: heads.dim,
        rotated: d.ropes.first().map_or(2, |r| r.dim),
        q_rank: f.size("q_lora_rank").or(1024),
        groups,
        out_rank: f.size("o_lora_rank").or(1024),
        window: f.size("sliding_window").or(128),
        norm: d.norm,
        index: Index {
            heads: f.size("index_n_heads").or(64),
            dim: f.size("index_head_dim").or(128),
            top: f.size("index_topk").or(512),
        },
        named: "",
    };
    wide_enough(f, sizes.index.dim, sizes.rotated)?;
    let windows = windows(f, d.facts.layers)?;
    let (experts, by_token) = (experts(f, &d)?, by_token(f, d.facts.layers)?);
    let streams = Streams::read(f, d.norm.eps)?;
    Ok(Box::new(DeepseekV4 { decoder: d, sizes, windows, experts, by_token, streams }))
}

/// Layers whose blocks read and write several streams.
#[derive(Debug)]
struct DeepseekV4 {
    decoder: Decoder,
    sizes: WindowSizes,
    windows: Vec<Option<Windows>>,
    experts: Experts,
    by_token: Vec<bool>,
    streams: Streams,
}

impl DeepseekV4 {
    /// The second rotary table for the first tokens of windows, of each length that there is.
    fn first_tokens(&self, l: &mut Lifter, rope: &Carried) -> Result<Vec<(usize, Carried)>, FrontendError> {
        let mut lens: Vec<usize> = self.windows.iter().flatten().map(|w| w.len).collect();
        lens.sort_unstable();
        lens.dedup();
        let each = lens.into_iter().map(|len| {
            let mut f = l.func("first_tokens");
            let rope = f.carried("rope", rope);
            let positions = f.input(Input::Positions);
            let table = first_of(&mut f, rope, positions, [self.sizes.rotated, len]);
            Ok((len, f.call(&[table])?.pop().unwrap_or_default()))
        });
        each.collect()
    }

    /// The streams after layer `i`.
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        x: &Carried,
        (ropes, first): (&[Carried], &[(usize, Carried)]),
    ) -> Result<Carried, FrontendError> {
        let (by, windows) = (self.decoder.norm, self.windows.get(i).copied().flatten());
        let Some(rope) = ropes.get(usize::from(windows.is_some())) else { return Ok(Carried::default()) };
        let of_windows = windows.and_then(|w| first.iter().find(|(len, _)| *len == w.len));
        let given = |f: &mut Draft| ForLayer {
            rope: f.carried("rope", rope),
            before: of_windows.map(|(_, table)| f.carried("rope_before", table)),
            positions: f.input(Input::Positions),
        };
        let attend = |f: &mut Draft, given, h| attention(f, &self.sizes, windows, given, h);
        let x = self.streams.block(l, (ATTEND, i), (x, by), given, attend)?;
        let by_token = self.by_token.get(i).copied().unwrap_or(false);
        let correction = if by_token { None } else { self.experts.correction };
        let routing = Routing { by_token, ..self.experts.routing };
        let experts = Experts { routing, correction, ..self.experts };
        self.streams.block(l, (FEED, i), (&x, by), |_| (), |f, (), h| mixture(f, &experts, h, h))
    }
}

impl Shape for DeepseekV4 {
    answered_by! { decoder: facts yields }

    fn chooses(&self, tensor: &str) -> bool {
        // Tables of experts are read, but as numbers.
        [".attn.indexer.", ".ffn.gate.tid2eid"].iter().any(|part| tensor.contains(part))
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = decoder::embedding(l, d)?;
        let first = match ropes.get(1) {
            Some(rope) => self.first_tokens(l, rope)?,
            None => vec![],
        };
        let mut x = self.streams.begun(l, &x)?;
        for i in 0..d.facts.layers {
            x = self.layer(l, i, &x, (&ropes, &first))?;
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let wanted = f.input(Input::OutRows);
        let x: Value = f.op(Op::GatherRows, &[x, wanted]);
        let x = self.streams.sum(&mut f, x);
        let x = norm(&mut f, NORM, d.norm, x, d.facts.hidden);
        decoder::output(f, d, x)
    }
}

/// Names as Transformers writes them, and as they were published.
const NAMES: Table = names! {
    "" { TABLE => "model.embed_tokens", TABLE => "embed", HEAD => "head", HEAD => "lm_head" }
    "model." | "" { NORM => "norm" }
    "model.layers.{}." | "layers.{}." {
        ATTN_NORM => "attn_norm", MLP_NORM => "ffn_norm", ROUTER => "ffn.gate", CORRECTION => "ffn.gate.bias",
        TOKEN_EXPERTS => "ffn.gate.tid2eid", EXPERT_GATE => "ffn.experts.{e}.w1", EXPERT_DOWN => "ffn.experts.{e}.w2",
        EXPERT_UP => "ffn.experts.{e}.w3", SHARED_GATE => "ffn.shared_experts.w1",
        SHARED_DOWN => "ffn.shared_experts.w2", SHARED_UP => "ffn.shared_experts.w3",
    }
};
