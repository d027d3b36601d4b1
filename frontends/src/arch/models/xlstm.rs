//! xLSTM (arXiv 2405.04517), with matrices for memories (mLSTM) in all layers, as the 7B model has them (2503.13427): a
//! recurrence whose gates forget and write, and whose results are divided by the sum of their weights.

use crate::arch::blocks::attention::{capped, parts, product, scaled, stored};
use crate::arch::blocks::embedding_and_head::{embedded, picked};
use crate::arch::blocks::families::mamba_decoder::LONGEST;
use crate::arch::blocks::mlp::Mlp;
use crate::arch::blocks::prelude::*;
use llmcc_ir::graph::Update;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlstm",
    class: "xLSTMForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: fixed! {
        // The class always has it.
        On => add_out_norm;
        Off => tie_word_embeddings;
        // How the same is computed.
        Any => mode;
        Any => chunk_size max_inference_chunksize chunkwise_kernel sequence_kernel step_kernel return_last_states
            autocast_kernel_dtype norm_reduction_force_float32;
        Words(&["float32"]) => inference_state_dtype;
    },
    goldens: &["xlstm_large"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Xlstm::read(f)?)),
};

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size | embedding_dim, num_hidden_layers | num_blocks,
    bos_token_id, eos_token_id, num_heads, use_bias, norm_eps, eps, qk_dim_factor, v_dim_factor, ffn_proj_factor,
    ffn_round_up_to_multiple_of, gate_soft_cap, output_logit_soft_cap,
    weight_mode: Accepts::OneOf(&["single", "fused"]),
};

/// Queries, keys, values and the output gates; all in one.
const EACH: [Part; 4] = [Part("cell.q"), Part("cell.k"), Part("cell.v"), Part("cell.open")];
const ALL: Part = Part("cell.qkvo");
/// Gates of writing and of keeping; both in one.
const GATES: [Part; 2] = [Part("cell.write"), Part("cell.keep")];
const BOTH_GATES: Part = Part("cell.gates");
const CELL_NORM: Part = Part("cell.norm");
const CELL_OUT: Part = Part("cell.out");

const NAMES: Table = names! {
    "backbone." { TABLE => "embeddings", NORM => "out_norm" }
    "" { HEAD => "lm_head" }
    "backbone.blocks.{}." {
        ATTN_NORM => "norm_mlstm", EACH[0] => "mlstm_layer.q", EACH[1] => "mlstm_layer.k", EACH[2] => "mlstm_layer.v",
        EACH[3] => "mlstm_layer.ogate_preact", ALL => "mlstm_layer.qkv_opreact",
        GATES[0] => "mlstm_layer.igate_preact", GATES[1] => "mlstm_layer.fgate_preact",
        BOTH_GATES => "mlstm_layer.ifgate_preact", CELL_NORM => "mlstm_layer.multihead_norm",
        CELL_OUT => "mlstm_layer.out_proj", MLP_NORM => "norm_ffn", MLP_GATE => "ffn.proj_up_gate",
        MLP_UP => "ffn.proj_up", MLP_GATE_UP => "ffn.proj_up_gate_z", MLP_DOWN => "ffn.proj_down",
    }
};

/// A model of such layers.
#[derive(Debug)]
struct Xlstm {
    facts: Facts,
    norm: Norm,
    heads: usize,
    /// Columns of a head's queries and keys.
    keys: usize,
    /// Columns of its values.
    values: usize,
    /// Matrices that read the same are stored as one.
    fused: bool,
    mlp: Mlp,
    /// No gate is larger before its exponential or its sigmoid.
    cap: f32,
    /// No logit is larger.
    logit_cap: f32,
}

/// With larger gates, exponentials and their sums over long texts would overflow f32.
const MOST_CAP: f64 = 60.0;

impl Xlstm {
    fn read(f: &Fields) -> Result<Xlstm, ConfigError> {
        let facts = Facts::read(f, Some(50_304), LONGEST, false)?;
        let heads = f.size("num_heads").or(8);
        let part = |field, default| {
            let wide = f.factor_or(field, default)? * facts.hidden as f64;
            match wide as usize {
                n if n > 0 && n < 1 << 20 && n.is_multiple_of(heads) => Ok(n / heads),
                n => Err(f.unsupported(
                    field,
                    format!("one that makes {n} columns"),
                    format!("this architecture expects heads of equal columns, `num_heads` ({heads}) of them"),
                )),
            }
        };
        let (keys, values) = (part("qk_dim_factor", 0.5)?, part("v_dim_factor", 1.0)?);
        let to = f.size("ffn_round_up_to_multiple_of").or(64);
        let ffn = (f.factor_or("ffn_proj_factor", 2.667)? * facts.hidden as f64 + to as f64 - 1.0) / to as f64;
        let ffn = (ffn.clamp(0.0, 1e6) as usize).saturating_mul(to).clamp(1, 1 << 20);
        let cap = |field, default, most: f64| match f.number(field).unwrap_or(default) {
            cap if (cap as f32).is_normal() && cap > 0.0 && cap <= most => Ok(cap as f32),
            cap => Err(f.invalid(field, &cap, format!("above 0 and at most {most}"))),
        };
        if let Some(eps) = f.number("eps").filter(|eps| !(0.0..=1e-6).contains(eps)) {
            let help = "this architecture supports at most 1e-6, which its norm of heads cancels".into();
            return Err(f.unsupported("eps", eps.to_string(), help));
        }
        let (bias, fused) = (f.flag("use_bias"), f.text("weight_mode") == Some("fused"));
        Ok(Xlstm {
            norm: Norm { bias, ..Norm::rms(common::eps(f, "norm_eps", 1e-6)?) },
            heads,
            keys,
            values,
            fused,
            mlp: Mlp { bias, joined: fused.then_some(Joined::GateUp), ..Mlp::gated(ffn, UnaryOp::Silu) },
            cap: cap("gate_soft_cap", 15.0, MOST_CAP)?,
            logit_cap: cap("output_logit_soft_cap", 30.0, 1e6)?,
            facts,
        })
    }

    /// Memories' values for the queries of `h`.
    ///
    /// With gates `i` and `f`, keys over the root of their columns apart, a memory is `C = σ(f)·C + e^i·k·vᵀ`, its
    /// weights are `n = σ(f)·n + e^i·k`, and the result is `Cᵀq / max(|nᵀq|, 1)`. The class has all of these over
    /// `e^m`, the largest weight so far, and adds `eps` to the divisor; gates are limited, so that f32 has them as they
    /// are, and a norm of heads follows, which divides by the divisor again.
    fn cell(&self, f: &mut Draft, h: Value) -> Value {
        let (hidden, bias, heads) = (self.facts.hidden, self.norm.bias, self.heads);
        let [keys, values] = [self.keys, self.values].map(|n| n * heads);
        let rows = [keys, keys, values, values];
        let made = |f: &mut Draft, (w, b)| product(f, h, w, b);
        let [q, k, v, open] = if self.fused {
            let all = stored(f, ALL, [rows.iter().sum(), hidden], bias, false);
            parts(f, all, rows).map(|part| made(f, part))
        } else {
            [0, 1, 2, 3].map(|i| linear(f, EACH[i], [rows[i], hidden], bias, h))
        };
        let gates = if self.fused {
            let both = stored(f, BOTH_GATES, [2 * heads, hidden], true, false);
            parts(f, both, [heads; 2]).map(|part| made(f, part))
        } else {
            GATES.map(|part| linear(f, part, [heads, hidden], true, h))
        };
        let [write, keep] = gates.map(|gate| capped(f, gate, Some(self.cap)));
        let (write, keep) = (f.unary(UnaryOp::Exp, write), f.unary(UnaryOp::Sigmoid, keep));
        let q = scaled(f, q, Some((1.0 / (self.keys as f64).sqrt()) as f32));
        let memory = f.fixed("memory", [heads, self.keys, self.values]);
        let y = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, v, keep, write, memory]);
        let [none, one] = [0.0, 1.0].map(|x| f.scalar(x));
        let ones = f.mul(keep, none);
        let ones = f.add(ones, one);
        let weights = f.fixed("weights", [heads, self.keys, 1]);
        let sum = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, ones, keep, write, weights]);
        let minus = f.unary(UnaryOp::Neg, sum);
        let sum = f.op(Op::Binary(BinaryOp::Max), &[sum, minus]);
        let sum = f.op(Op::Binary(BinaryOp::Max), &[sum, one]);
        let share = f.op(Op::Binary(BinaryOp::Div), &[ones, sum]);
        let y = self.of_heads(f, share, y);
        let y = f.op(Op::Standardize { eps: F32::new(self.norm.eps), width: self.values }, &[y]);
        let gain = f.weight(CELL_NORM, Kind::Gain, &[values]);
        let mut y = f.mul(y, gain);
        if bias {
            let b = f.bias(CELL_NORM, values);
            y = f.add(y, b);
        }
        let open = f.unary(UnaryOp::Sigmoid, open);
        let y = f.mul(open, y);
        linear(f, CELL_OUT, [hidden, values], bias, y)
    }

    /// Each head of `y` times its number.
    fn of_heads(&self, f: &mut Draft, share: Value, y: Value) -> Value {
        if f.ty(y).is_none() {
            return f.stop();
        }
        let order = (0..self.heads * self.values).map(|j| (j / self.values) as f32).collect();
        let order = f.shared_constant("cell.heads", "$cell.heads", order);
        let share = f.op(Op::PickCols, &[share, order]);
        f.mul(y, share)
    }

    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried) -> Result<Carried, FrontendError> {
        let hidden = self.facts.hidden;
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let h = norm(&mut f, ATTN_NORM, self.norm, x, hidden);
        let y = self.cell(&mut f, h);
        let x = f.add(x, y);
        let h = norm(&mut f, MLP_NORM, self.norm, x, hidden);
        let y = mlp(&mut f, &self.mlp, h);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

impl Shape for Xlstm {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut f = l.func("embed");
        let x = embedded(&mut f);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for i in 0..self.facts.layers {
            x = self.layer(l, i, &x)?;
        }
        let mut f = l.func("head");
        let x = picked(&mut f, Some(Norm { bias: false, ..self.norm }), &x);
        let w = f.matrix(HEAD, [self.facts.vocab, self.facts.hidden]);
        let logits = f.matmul(x, w);
        let logits = capped(&mut f, logits, Some(self.logit_cap));
        f.call(&[logits])?;
        Ok(())
    }
}
