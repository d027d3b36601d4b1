//! Gemma 3n, the text models (Google, 2025): Gemma 3 with several residual streams (AltUp), a
//! branch of low rank beside attention (LAuReL, arXiv 2411.07501), embeddings for each layer, gates
//! that keep only the largest elements in the first layers, and caches that layers share.

#[cfg(test)]
mod tests;

use crate::arch::blocks::altup::{ALTUP, AltUp};
use crate::arch::blocks::attention::scaled;
use crate::arch::blocks::per_layer_embeddings::{self, LAYER_ROWS, LayerRows};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::row_statistics::normal_quantile;
use crate::arch::blocks::shared_kv::share_last;
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma3n_text",
    class: "Gemma3nForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY_OF_KINDS, ATTENTION_BIAS, WINDOW, OWN],
    // Fields about learning; and fields that the class has, and does not read: queries and keys are normalized.
    fixed: fixed! { Any => altup_coef_clip altup_lr_multiplier query_pre_attn_scalar; },
    goldens: &["gemma3n"],
    names: Names(&[NAMES, ALTUP, LAYER_ROWS, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! {
            vocab: 262_400, heads: 8, kv_heads: 2, head_dim: 256, max_position: 32_768, window: Most(512, 5),
            tied: true, act(hidden_activation): GeluTanh,
            // Read below: it may be a list.
            ffn: 1, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |heads, max| read_two(f, heads.dim, max, ROPES))?;
        (d.norms, d.scales.embedding_root) = (Norms::Both, true);
        d.scales.cap = match f.get("final_logit_softcapping") {
            Given::Absent => Some(30.0),
            Given::Null | Given::Value(_) => common::limit(f, "final_logit_softcapping")?,
        };
        let mut d = d.with_heads(|_, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, h.values.norm) = (bias, bias, Some(QkNorm::Head), true);
            (a.scale, a.rotary) = (1.0, Some(usize::from(a.window.is_some())));
        });
        mlps(f, &mut d)?;
        share_last(f, &mut d.layers, f.count("num_kv_shared_layers").unwrap_or(15))?;
        let rows = LayerRows {
            width: f.size("hidden_size_per_layer_input").or(256),
            vocab: Some(f.size("vocab_size_per_layer_input").or(262_144)),
        };
        let rows = rows.checked(f, "hidden_size_per_layer_input", d.facts.layers)?;
        Ok(Box::new(Gemma3n { decoder: d, altup: altup(f)?, rank: f.size("laurel_rank").or(64), rows }))
    },
};

/// Its rotary embeddings: files of older versions have the bases beside a scaling of the first.
const ROPES: TwoRopes = TwoRopes {
    beside: Beside::Scaling { bases: ["rope_theta", "rope_local_base_freq"], both: false },
    ..TwoRopes::new([1e6, 1e4])
};

/// All streams together.
fn altup(f: &Fields) -> Result<AltUp, ConfigError> {
    const ACTIVE: &str = "altup_active_idx";
    let (streams, active) = (f.size("altup_num_inputs").or(4), f.count(ACTIVE).unwrap_or(0));
    if active >= streams {
        return Err(f.invalid(ACTIVE, &active, format!("below `altup_num_inputs` ({streams}), or absent")));
    }
    Ok(AltUp { streams, active, corrected_scale: f.flag_or("altup_correct_scale", true) })
}

/// Widths and sparsity of the layers' MLPs.
fn mlps(f: &Fields, d: &mut Decoder) -> Result<(), ConfigError> {
    const WIDTHS: &str = "intermediate_size";
    const PARTS: &str = "activation_sparsity_pattern";
    let layers = d.facts.layers;
    let widths = match f.get(WIDTHS).value() {
        Some(v) => {
            let each = v.as_array().map_or_else(|| vec![v; layers], |list| list.iter().collect());
            let width = |v: &serde_json::Value| v.as_u64().filter(|n| (1..=1 << 20).contains(n)).map(|n| n as usize);
            let widths: Option<Vec<usize>> = each.into_iter().map(width).collect();
            let expected = || format!("a whole number from 1 to {}, or a list of one for each layer", 1 << 20);
            widths.filter(|w| w.len() == layers).ok_or_else(|| f.invalid_value(WIDTHS, v, expected()))?
        }
        None => vec![16_384; layers],
    };
    let sparse = if layers > 10 { 10 } else { 0 };
    let usual = || (0..layers).map(|i| if i < sparse { 0.95 } else { 0.0 }).collect();
    let parts: Vec<f64> = f.numbers(PARTS).unwrap_or_else(usual);
    if parts.len() != layers || !parts.iter().all(|p| (0.0..1.0).contains(p)) {
        let help = format!("this architecture expects a number for each of `num_hidden_layers` ({layers}), below 1");
        return Err(f.unsupported(PARTS, format!("{parts:?}"), help));
    }
    for (l, (ffn, part)) in d.layers.iter_mut().zip(widths.into_iter().zip(parts)) {
        l.mlp.ffn = ffn;
        l.mlp.gate.above = (part > 0.0).then(|| normal_quantile(part) as f32);
    }
    Ok(())
}

/// A decoder whose layers compute with one of several streams.
#[derive(Debug)]
struct Gemma3n {
    decoder: Decoder,
    altup: AltUp,
    /// Rank of the branch beside attention.
    rank: usize,
    rows: LayerRows,
}

impl Gemma3n {
    /// The streams after layer `i`. Each part is a function of its own: kernels are chosen for one at a
    /// time, and most layers have most of them in common.
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        (streams, rows): (&[Carried], &Carried),
        ropes: &[Carried],
    ) -> Result<Vec<Carried>, FrontendError> {
        let eps = self.decoder.norm;
        let mut f = l.layer("predict", i);
        let x = carried(&mut f, streams);
        let kinds = self.altup.kinds(&mut f, eps.eps);
        let predicted = self.altup.predict(&mut f, kinds, &x);
        let predicted = f.call(&predicted)?;
        let Some(active) = predicted.get(self.altup.active) else { return Ok(predicted) };
        let y = self.attend(l, i, active, ropes)?;
        let y = self.feed(l, i, &y)?;
        let mut f = l.layer("correct", i);
        let x = carried(&mut f, &predicted);
        let (y, rows) = (f.carried("y", &y), f.carried("rows", rows));
        let kinds = self.altup.kinds(&mut f, eps.eps);
        let mut x = self.altup.correct(&mut f, kinds, &x, y);
        let own = self.rows.own(&mut f, i, rows);
        let gate = self.altup.gate_input(&mut f, &x);
        let more = self.rows.gated(&mut f, eps, self.decoder.layers[i].mlp.act, gate, own);
        x.iter_mut().skip(1).for_each(|x| *x = f.add(*x, more));
        f.call(&x)
    }

    /// Attention of layer `i`, and the branch beside it.
    fn attend(&self, l: &mut Lifter, i: usize, x: &Carried, ropes: &[Carried]) -> Result<Carried, FrontendError> {
        let (d, spec) = (&self.decoder, &self.decoder.layers[i]);
        let hidden = d.facts.hidden;
        let mut f = l.layer("attend", i);
        let x = f.carried("x", x);
        let context = Context::of(&mut f, spec, ropes);
        let h = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let beside = self.laurel(&mut f, h);
        let y = mixed(&mut f, d.norm, spec, context, h);
        let y = norm(&mut f, ATTN_POST_NORM, d.norm, y, hidden);
        let x = f.add(x, y);
        let x = f.add(x, beside);
        let x = scaled(&mut f, x, Some(FRAC_1_SQRT_2 as f32));
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// The MLP of layer `i`.
    fn feed(&self, l: &mut Lifter, i: usize, x: &Carried) -> Result<Carried, FrontendError> {
        let d = &self.decoder;
        let mut f = l.layer("feed", i);
        let x = f.carried("x", x);
        let h = norm(&mut f, MLP_NORM, d.norm, x, d.facts.hidden);
        let y = mlp(&mut f, &d.layers[i].mlp, h);
        let y = norm(&mut f, MLP_POST_NORM, d.norm, y, d.facts.hidden);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// `h + norm(right(left(h)))`
    fn laurel(&self, f: &mut Draft, h: Value) -> Value {
        let hidden = self.decoder.facts.hidden;
        let y = linear(f, LEFT, [self.rank, hidden], false, h);
        let y = linear(f, RIGHT, [hidden, self.rank], false, y);
        let y = norm(f, LAUREL_NORM, self.decoder.norm, y, hidden);
        f.add(h, y)
    }
}

/// All streams, as parameters.
fn carried(f: &mut Draft, streams: &[Carried]) -> Vec<Value> {
    streams.iter().enumerate().map(|(j, x)| f.carried(&format!("x{j}"), x)).collect()
}

impl Shape for Gemma3n {
    answered_by! { decoder: facts yields shares_keys }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = decoder::embedding(l, d)?;
        let rows = per_layer_embeddings::all(l, self.rows, d.norm, &x)?;
        let mut streams = self.altup.begin(l, &x)?;
        for i in 0..d.layers.len() {
            streams = self.layer(l, i, (&streams, &rows), &ropes)?;
        }
        let mut f = l.func("head");
        let x = carried(&mut f, &streams);
        let wanted = f.input(Input::OutRows);
        let x: Vec<Value> = x.into_iter().map(|x| f.op(Op::GatherRows, &[x, wanted])).collect();
        let x = self.altup.end(&mut f, &x);
        let x = norm(&mut f, NORM, d.norm, x, d.facts.hidden);
        decoder::output(f, d, x)
    }
}

const OWN: &[Field] = fields! {
    intermediate_size: Accepts::Any, hidden_activation, rms_norm_eps, final_logit_softcapping, rope_local_base_freq,
    activation_sparsity_pattern, hidden_size_per_layer_input, vocab_size_per_layer_input, num_kv_shared_layers,
    laurel_rank, altup_num_inputs, altup_active_idx, altup_correct_scale,
};

/// Down to the rank of the branch beside attention, `[rank, hidden]`.
const LEFT: Part = Part("laurel.left");
/// Up from it.
const RIGHT: Part = Part("laurel.right");
/// Norm of its output.
const LAUREL_NORM: Part = Part("laurel.norm");

const NAMES: Table = names! {
    "model.layers.{}." {
        LEFT => "laurel.linear_left", RIGHT => "laurel.linear_right", LAUREL_NORM => "laurel.post_laurel_norm",
    }
};
