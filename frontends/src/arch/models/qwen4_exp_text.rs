//! Qwen4-Exp, the text models (Qwen, 2026): Qwen3.5 with experts, with several residual streams, which
//! every block reads and changes all of, and in some layers rows of large tables by the last tokens.
//!
//! Layers with attention select blocks of tokens by an indexer: only contexts in which none is dropped are compiled.

mod ngrams;
mod streams;
#[cfg(test)]
mod tests;

use crate::arch::blocks::families::indexer::{Selection, dense_of};
use crate::arch::blocks::families::qwen_gated_delta::{self, DELTA, EXPERTS, delta, experts, linear_layers};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::GatedDelta;
use ngrams::{NGRAMS, NGram};
use streams::{ATTN, LAST, MLP, STREAMS, Streams};

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen4_exp_text",
    class: "Qwen4ExpForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, DELTA, EXPERTS, ngrams::FIELDS, OWN],
    fixed: fixed! {
        On => attn_output_gate;
        // Fields of the indexer.
        Any => indexer_n_heads;
        One => indexer_kv_heads;
        Any => indexer_head_dim number_of_conv_states;
    },
    goldens: &["qwen4_exp"],
    names: Names(&[NGRAMS, STREAMS, qwen_gated_delta::NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 248_320, heads: 16, kv_heads: 2, head_dim: 256, max_position: 32_768,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let d = qwen_gated_delta::decoder(f, &defaults, GatedDelta { gate_act: gate(f)?, ..delta(f)? })?;
        let experts = experts(f, &d, [512, 10], f.flag_or("norm_topk_prob", true))?;
        let linear = linear_layers(f, d.layers.len())?;
        let ngrams = ngrams::read(f, &d.facts, &linear)?;
        let d = selected(f, d.with_experts(|_| Some(experts)), linear.contains(&false))?;
        let streams = Streams { count: f.size("hc_count").or(4), rank: f.size("hc_lowrank").or(320) };
        if streams.count < 2 {
            return Err(f.invalid("hc_count", &streams.count, "at least 2".into()));
        }
        Ok(Box::new(Qwen4 { decoder: d, streams, ngrams }))
    },
};

/// The activation of the gate of the delta rule.
fn gate(f: &Fields) -> Result<UnaryOp, ConfigError> {
    match f.text("output_gate_type").or(f.text("hidden_act")) {
        None | Some("silu" | "swish") => Ok(UnaryOp::Silu),
        Some("sigmoid") => Ok(UnaryOp::Sigmoid),
        Some(other) => {
            let help = "without `output_gate_type` this architecture expects \"silu\"".to_string();
            Err(f.unsupported("hidden_act", format!("{other:?}"), help))
        }
    }
}

/// Limits contexts to those in which nothing is dropped, if there is attention.
fn selected(f: &Fields, d: Decoder, attends: bool) -> Result<Decoder, ConfigError> {
    if !attends {
        return Ok(d);
    }
    let (tokens, block) = (f.required_size("indexer_budget")?, f.required_size("indexer_compress_ratio")?);
    if !tokens.is_multiple_of(block) {
        let help = format!("this architecture selects whole blocks of `indexer_compress_ratio` ({block})");
        return Err(f.unsupported("indexer_budget", tokens.to_string(), help));
    }
    Ok(dense_of(f, d, Selection { tokens, field: "indexer_budget" }))
}

/// A decoder whose blocks read and change all of several streams.
#[derive(Debug)]
struct Qwen4 {
    decoder: Decoder,
    streams: Streams,
    /// Addends of some layers by the last tokens.
    ngrams: Option<NGram>,
}

impl Qwen4 {
    /// The norms of streams and of n-grams' rows.
    fn norm(&self) -> Norm {
        self.decoder.norm
    }

    /// The streams after layer `i`.
    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried, ropes: &[Carried]) -> Result<Carried, FrontendError> {
        let (d, spec) = (&self.decoder, &self.decoder.layers[i]);
        let mut f = l.layer("attend", i);
        let x = f.carried("x", x);
        let context = Context::of(&mut f, spec, ropes);
        let (h, normed) = self.streams.mixed(&mut f, ATTN, self.norm(), x);
        let y = mixed(&mut f, d.norm, spec, context, h);
        let x = self.streams.injected(&mut f, ATTN, (x, normed), y);
        let x = f.call(&[x])?.pop().unwrap_or_default();
        let mut f = l.layer("feed", i);
        let x = f.carried("x", &x);
        let (h, normed) = self.streams.mixed(&mut f, MLP, self.norm(), x);
        let y = match &spec.experts {
            Some(experts) => mixture(&mut f, experts, h, h),
            None => f.stop(),
        };
        let x = self.streams.injected(&mut f, MLP, (x, normed), y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

impl Shape for Qwen4 {
    answered_by! { decoder: facts yields chooses }

    fn integers(&self, tensor: &str) -> Option<Vec<i64>> {
        self.ngrams.as_ref()?.integers(tensor)
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = decoder::embedding(l, d)?;
        let last = self.ngrams.as_ref().map(|n| n.last_tokens(l)).transpose()?;
        let mut x = self.streams.begin(l, &x)?;
        for i in 0..d.layers.len() {
            if let (Some(ngrams), Some(last)) = (&self.ngrams, &last) {
                x = ngrams.added(l, i, (self.streams, self.norm()), last, x)?;
            }
            x = self.layer(l, i, &x, &ropes)?;
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let wanted = f.input(Input::OutRows);
        let x = f.op(Op::GatherRows, &[x, wanted]);
        let (x, _) = self.streams.mixed(&mut f, LAST, self.norm(), x);
        decoder::output(f, d, x)
    }
}

const OWN: &[Field] = fields! {
    rms_norm_eps, hidden_act, full_attention_interval,
    // Layers called full attention select too; the last kind is refused with its own message.
    layer_types: Accepts::ListOf(&["linear_attention", "full_attention", "indexed_attention", "sliding_attention"]),
    output_gate_type: Accepts::OneOf(&["silu", "sigmoid"]), norm_topk_prob, indexer_budget, indexer_compress_ratio,
    hc_count, hc_lowrank,
};
