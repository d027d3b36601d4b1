//! Decoders: embedding, layers of attention and a gated MLP, head. What their architectures differ
//! in is data.

use super::blocks::{Attention, GatedMlp, Norm, attention, capped, gated_mlp, norm, scaled};
use super::entry::Shape;
use super::lifter::{Carried, Draft, Lifter};
use super::names::{ATTN_NORM, ATTN_POST_NORM, HEAD, Kind, MLP_NORM, MLP_POST_NORM, NORM, Part, TABLE};
use crate::config::common::{self, DefaultHeads, Facts, Heads, WindowRule};
use crate::config::fields::Fields;
use crate::config::{ConfigError, rope as read_rope};
use crate::error::FrontendError;
use crate::rope::{self, RopeConfig};
use llmcc_ir::graph::{F32, Input, Op, UnaryOp, Value};
use llmcc_ir::ty::DType;

/// A decoder.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    /// What is known of any model.
    pub facts: Facts,
    /// All norms.
    pub norm: Norm,
    /// Where the norms of a block are.
    pub norms: Norms,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Rotary tables, which the layers share.
    pub ropes: Vec<RopeConfig>,
    /// Multiply embeddings, what a block adds, and logits.
    pub scales: Scales,
}

/// A layer of a [`Decoder`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    /// Its attention.
    pub attention: Attention,
    /// Its MLP.
    pub mlp: GatedMlp,
}

/// Where the norms of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norms {
    /// `x += f(norm(x))`
    Before,
    /// `x += norm(f(x))`
    After,
    /// `x += norm(f(norm(x)))`
    Both,
}

/// Numbers that multiply; `None` = 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scales {
    /// Rows of the embedding table.
    pub embedding: Option<f32>,
    /// What a block adds to the residual stream.
    pub residual: Option<f32>,
    /// Rows of the embedding table, by the root of their width, rounded to the type of the table.
    pub embedding_root: bool,
    /// Logits.
    pub logits: Option<f32>,
    /// Logits come closer to this than to any larger number: `cap·tanh(x/cap)`.
    pub cap: Option<f32>,
}

/// What an architecture's Transformers configuration class fills in for absent fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    /// `vocab_size`; `None` = it must be given.
    pub vocab: Option<usize>,
    /// `num_attention_heads`; `None` = it must be given.
    pub heads: Option<usize>,
    /// `num_key_value_heads`; `None` = as many as query heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; `None` = `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// `max_position_embeddings`.
    pub max_position: usize,
    /// How the attention windows of the layers are chosen.
    pub window: WindowRule,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// `rms_norm_eps`.
    pub eps: f64,
    /// `rope_theta`.
    pub theta: f64,
    /// The field with the activation of the MLP.
    pub act: (&'static str, UnaryOp),
}

impl Defaults {
    /// Those of Llama.
    pub(super) const LLAMA: Defaults = Defaults {
        vocab: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        max_position: 2048,
        window: WindowRule::None,
        tied: false,
        eps: 1e-6,
        theta: 10_000.0,
        act: ("hidden_act", UnaryOp::Silu),
    };
}

impl Decoder {
    /// Reads [`common::MODEL`], [`common::ATTENTION`], [`common::ROTARY`], [`common::MLP`] and the
    /// fields about windows. Layers are all alike, but for their windows: pre-norm, without biases.
    pub(super) fn read(f: &Fields, d: &Defaults) -> Result<Decoder, ConfigError> {
        Decoder::read_with(f, d, |heads, max_position| Ok(vec![read_rope::read(f, heads.dim, max_position, d.theta)?]))
    }

    /// [`read`](Decoder::read) with other rotary tables, made of the heads and the longest
    /// sequence.
    pub(super) fn read_with(
        f: &Fields,
        d: &Defaults,
        ropes: impl FnOnce(Heads, usize) -> Result<Vec<RopeConfig>, ConfigError>,
    ) -> Result<Decoder, ConfigError> {
        let facts = Facts::read(f, d.vocab, d.max_position, d.tied)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads { queries: d.heads, kv: d.kv_heads, dim: d.head_dim })?;
        let ffn = f.required_size("intermediate_size")?;
        let norm = Norm { eps: common::eps(f, "rms_norm_eps", d.eps)?, from_one: false };
        let ropes = ropes(heads, facts.max_position)?;
        let mlp = GatedMlp { ffn, act: common::activation(f, d.act.0, d.act.1), bias: false, fused: false };
        let windows = common::windows(f, d.window, facts.layers)?;
        let layers =
            windows.into_iter().map(|window| Layer { attention: Attention::plain(heads, window), mlp }).collect();
        Ok(Decoder { facts, norm, norms: Norms::Before, layers, ropes, scales: Scales::default() })
    }

    /// Changes the attention of every layer.
    pub(super) fn with_attention(mut self, change: impl Fn(usize, &mut Attention)) -> Decoder {
        self.layers.iter_mut().enumerate().for_each(|(i, l)| change(i, &mut l.attention));
        self
    }

    /// Changes the MLP of every layer.
    pub(super) fn with_mlp(mut self, change: impl Fn(&mut GatedMlp)) -> Decoder {
        self.layers.iter_mut().for_each(|l| change(&mut l.mlp));
        self
    }
}

impl Shape for Decoder {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = embedding(l, self)?;
        for (i, spec) in self.layers.iter().enumerate() {
            x = layer(l, self, i, spec, &x, &ropes)?;
        }
        head(l, self, &x)
    }
}

/// `embed`: rows of the table, and the rotary tables that layers share.
fn embedding(l: &mut Lifter, d: &Decoder) -> Result<(Carried, Vec<Carried>), FrontendError> {
    let mut f = l.func("embed");
    let shape = [d.facts.vocab, d.facts.hidden];
    let table = if d.facts.tied { f.tied_table(shape) } else { f.weight(TABLE, Kind::Table, &shape) };
    let frequencies: Vec<(Value, f32)> =
        d.ropes.iter().enumerate().map(|(i, rope)| inv_freq(&mut f, rope, i)).collect();
    let tokens = f.input(Input::Tokens);
    let x = f.op(Op::Embed, &[table, tokens]);
    let x = scaled(&mut f, x, d.scales.embedding);
    let root = d.scales.embedding_root.then(|| root_of_width(&f, table, d.facts.hidden));
    let x = scaled(&mut f, x, root);
    let mut results = vec![x];
    if !frequencies.is_empty() {
        let positions = f.input(Input::Positions);
        let table =
            |f: &mut Draft, (inv_freq, scale)| f.op(Op::RopeTable { scale: F32::new(scale) }, &[positions, inv_freq]);
        results.extend(frequencies.into_iter().map(|freq| table(&mut f, freq)));
    }
    let mut carried = f.call(&results)?.into_iter();
    let x = carried.next();
    Ok((x.unwrap_or_default(), carried.collect()))
}

/// `√hidden`, as a number of the type that the embedding table has: what models were trained with.
fn root_of_width(f: &Draft, table: Value, hidden: usize) -> f32 {
    let root = (hidden as f64).sqrt() as f32;
    match f.ty(table).and_then(|t| t.tensor()).map(|t| t.dtype) {
        Some(DType::Bf16) => half::bf16::from_f32(root).to_f32(),
        Some(DType::F16) => half::f16::from_f32(root).to_f32(),
        _ => root,
    }
}

/// The frequencies of rotary table `i`, and what multiplies its sines and cosines.
fn inv_freq(f: &mut Draft, rope: &RopeConfig, i: usize) -> (Value, f32) {
    let rope = rope::frequencies(rope);
    let number = if i == 0 { String::new() } else { i.to_string() };
    (f.computed(&format!("inv_freq{number}"), &format!("$rope.inv_freq{number}"), rope.inv_freq), rope.scale)
}

/// One layer; gives the new residual stream.
fn layer(
    l: &mut Lifter,
    d: &Decoder,
    i: usize,
    spec: &Layer,
    x: &Carried,
    ropes: &[Carried],
) -> Result<Carried, FrontendError> {
    let a = &spec.attention;
    let mut f = l.layer("layer", i);
    let x = f.carried("x", x);
    let rope = a.rotary.and_then(|table| ropes.get(table)).map(|rope| f.carried("rope", rope));
    let positions = f.input(Input::Positions);
    let kv = f.kv("kv", a.heads.kv, a.heads.dim, a.window);
    let x = residual(&mut f, d, [ATTN_NORM, ATTN_POST_NORM], x, |f, h| attention(f, a, d.norm, h, kv, positions, rope));
    let x = residual(&mut f, d, [MLP_NORM, MLP_POST_NORM], x, |f, h| gated_mlp(f, &spec.mlp, h));
    Ok(f.call(&[x])?.pop().unwrap_or_default())
}

/// `x` and what a block adds to it, with its norms before and after.
fn residual(
    f: &mut Draft,
    d: &Decoder,
    [before, after]: [Part; 2],
    x: Value,
    block: impl FnOnce(&mut Draft, Value) -> Value,
) -> Value {
    let h = if d.norms == Norms::After { x } else { norm(f, before, d.norm, x, d.facts.hidden) };
    let y = block(f, h);
    let y = if d.norms == Norms::Before { y } else { norm(f, after, d.norm, y, d.facts.hidden) };
    let y = scaled(f, y, d.scales.residual);
    f.add(x, y)
}

/// `head`: picks the wanted rows first, so that norm and head cost only what is asked for.
fn head(l: &mut Lifter, d: &Decoder, x: &Carried) -> Result<(), FrontendError> {
    let mut f = l.func("head");
    let x = f.carried("x", x);
    let rows = f.input(Input::OutRows);
    let x = f.op(Op::GatherRows, &[x, rows]);
    let x = norm(&mut f, NORM, d.norm, x, d.facts.hidden);
    let shape = [d.facts.vocab, d.facts.hidden];
    let table = if d.facts.tied { f.tied_table(shape) } else { f.matrix(HEAD, shape) };
    let logits = f.matmul(x, table);
    let logits = scaled(&mut f, logits, d.scales.logits);
    let logits = capped(&mut f, logits, d.scales.cap);
    f.call(&[logits])?;
    Ok(())
}
