//! Common parts of all versions of RWKV: a mixture over time and one over channels, each behind a
//! LayerNorm, that see a token and the one before it.

use crate::arch::blocks::attention::{Norm, linear, norm};
use crate::arch::blocks::embedding_and_head::{embedded, head};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{
    ATTN_NORM, HEAD, Kind, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Part, TABLE, TABLE_NORM, Table, names,
};
use crate::config::ConfigError;
use crate::config::common::{self, Facts};
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp, Update, Value};
use std::fmt;

/// Receptance: the read vector.
pub(crate) const R: Part = Part("time.r");
/// Keys.
pub(crate) const K: Part = Part("time.k");
/// Values.
pub(crate) const V: Part = Part("time.v");
/// Gates.
pub(crate) const G: Part = Part("time.g");
/// Output of the mixture over time.
pub(crate) const OUT: Part = Part("time.out");
/// Decays.
pub(crate) const DECAY: Part = Part("time.decay");
/// How much more the token itself counts.
pub(crate) const BONUS: Part = Part("time.bonus");
/// Norm of the output, head by head.
pub(crate) const READ_NORM: Part = Part("time.norm");
/// How much of a token, or of the one before, goes into each of these.
pub(crate) const MIX_R: Part = Part("time.mix_r");
/// See [`MIX_R`].
pub(crate) const MIX_K: Part = Part("time.mix_k");
/// See [`MIX_R`].
pub(crate) const MIX_V: Part = Part("time.mix_v");
/// See [`MIX_R`].
pub(crate) const MIX_G: Part = Part("time.mix_g");
/// The same of the mixture over channels.
pub(crate) const CHANNEL_MIX_K: Part = Part("channel.mix_k");
/// See [`CHANNEL_MIX_K`].
pub(crate) const CHANNEL_MIX_R: Part = Part("channel.mix_r");
/// Receptance of the mixture over channels: a gate of its output.
pub(crate) const CHANNEL_R: Part = Part("channel.r");

/// Names of the parts common to all versions; Transformers' names come second.
pub(crate) const NAMES: Table = names! {
    "" { TABLE => "emb", TABLE_NORM => "blocks.0.ln0", HEAD => "head", NORM => "ln_out" }
    "rwkv." { TABLE => "embeddings", TABLE_NORM => "blocks.0.pre_ln", NORM => "ln_out" }
    "blocks.{}." {
        ATTN_NORM => "ln1", MLP_NORM => "ln2", R => "att.receptance", K => "att.key", V => "att.value",
        G => "att.gate", OUT => "att.output", READ_NORM => "att.ln_x", MLP_UP => "ffn.key",
        CHANNEL_R => "ffn.receptance", MLP_DOWN => "ffn.value",
    }
    "rwkv.blocks.{}." {
        ATTN_NORM => "ln1", MLP_NORM => "ln2", R => "attention.receptance", K => "attention.key",
        V => "attention.value", G => "attention.gate", OUT => "attention.output", READ_NORM => "attention.ln_x",
        MLP_UP => "feed_forward.key", CHANNEL_R => "feed_forward.receptance", MLP_DOWN => "feed_forward.value",
    }
};

/// And names common to versions 4 and 5.
pub(crate) const MIX_NAMES: Table = names! {
    "blocks.{}." {
        MIX_K => "att.time_mix_k", MIX_V => "att.time_mix_v", MIX_R => "att.time_mix_r", DECAY => "att.time_decay",
        CHANNEL_MIX_K => "ffn.time_mix_k", CHANNEL_MIX_R => "ffn.time_mix_r",
    }
    "rwkv.blocks.{}." {
        MIX_K => "attention.time_mix_key", MIX_V => "attention.time_mix_value",
        MIX_R => "attention.time_mix_receptance", DECAY => "attention.time_decay",
        CHANNEL_MIX_K => "feed_forward.time_mix_key", CHANNEL_MIX_R => "feed_forward.time_mix_receptance",
    }
};

/// Fields of all versions but the last.
pub(crate) const FIELDS: &[Field] = fields! {
    max_position_embeddings | context_length, intermediate_size, layer_norm_epsilon,
};

/// Heads of versions 5 and 6.
pub(crate) const HEADS: &[Field] = fields! { head_size, head_size_divisor };

/// Fields about details of computation: hidden rows are halved every few layers, and so are the
/// addends, so that 16 bits hold them.
pub(crate) const FIXED: &[(&str, Neutral)] =
    &[("rescale_every", Neutral::Any), ("attention_hidden_size", Neutral::Same("hidden_size"))];

/// Nothing in the models bounds a sequence; this only says how far block tables may reach.
pub(crate) const LONGEST: usize = 1 << 20;

/// The token that a mixture's weights belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    /// The token itself.
    Itself,
    /// The token before.
    Before,
}

/// A row and that of the token before.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    /// The row.
    pub now: Value,
    /// The one before, zeros before the first.
    pub before: Value,
    /// Their difference, in the direction of the weights.
    difference: Value,
    toward: Toward,
}

impl Pair {
    /// `x`, and its predecessor, which a state called `name` keeps.
    #[track_caller]
    pub(crate) fn new(f: &mut Draft, name: &str, toward: Toward, x: Value) -> Pair {
        let hidden = f.facts().hidden;
        let taps = [vec![1.0; hidden], vec![0.0; hidden]].concat();
        let taps = f.shared_table(&format!("{name}.taps"), "$rwkv.shift", [2, hidden], taps);
        let state = f.fixed(name, [1, 1, hidden]);
        let before = f.op(Op::CausalConv, &[x, taps, state]);
        let difference = match toward {
            Toward::Itself => minus(f, x, before),
            Toward::Before => minus(f, before, x),
        };
        Pair { now: x, before, difference, toward }
    }

    /// Both, mixed by a weight for each column.
    #[track_caller]
    pub(crate) fn mixed(&self, f: &mut Draft, weights: Part) -> Value {
        let weights = f.weight(weights, Kind::Row, &[f.facts().hidden]);
        self.mixed_by(f, weights)
    }

    /// Both, mixed by these weights.
    #[track_caller]
    pub(crate) fn mixed_by(&self, f: &mut Draft, weights: Value) -> Value {
        let moved = f.mul(self.difference, weights);
        match self.toward {
            Toward::Itself => f.add(self.before, moved),
            Toward::Before => f.add(self.now, moved),
        }
    }
}

/// The mixture over channels: squared ReLU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelMix {
    /// Width.
    pub ffn: usize,
    /// The output has a gate.
    pub gated: bool,
    /// How tokens are mixed.
    pub toward: Toward,
}

impl ChannelMix {
    #[track_caller]
    fn mix(&self, f: &mut Draft, h: Value) -> Value {
        let hidden = f.facts().hidden;
        let pair = Pair::new(f, "channel.before", self.toward, h);
        let k = pair.mixed(f, CHANNEL_MIX_K);
        let k = linear(f, MLP_UP, [self.ffn, hidden], false, k);
        let k = f.unary(UnaryOp::Relu2, k);
        let y = linear(f, MLP_DOWN, [hidden, self.ffn], false, k);
        if !self.gated {
            return y;
        }
        let r = pair.mixed(f, CHANNEL_MIX_R);
        let r = linear(f, CHANNEL_R, [hidden, hidden], false, r);
        let r = f.unary(UnaryOp::Sigmoid, r);
        f.mul(r, y)
    }
}

/// The differences of versions.
pub(crate) trait TimeMix: fmt::Debug + 'static {
    /// The mixture's output for `h`, with the first layer's values that later ones read.
    fn mix(&self, f: &mut Draft, h: Value, first: Option<Value>) -> (Value, Option<Value>);
}

/// A model.
#[derive(Debug)]
pub(crate) struct Rwkv<M> {
    /// Facts common to all models.
    pub facts: Facts,
    /// All norms over rows.
    pub norm: Norm,
    /// The mixtures over channels.
    pub channels: ChannelMix,
    /// Those over time.
    pub time: M,
}

impl<M: TimeMix> Rwkv<M> {
    /// Reads [`common::MODEL`] and [`FIELDS`]; `ffn`: the width of mixtures over channels that have
    /// none given, for the model's width.
    pub(crate) fn read(
        f: &Fields,
        (channels, ffn): (ChannelMix, fn(usize) -> usize),
        time: impl FnOnce(&Facts) -> Result<M, ConfigError>,
    ) -> Result<Rwkv<M>, ConfigError> {
        let facts = Facts::read(f, Some(65_536), LONGEST, false)?;
        let norm = Norm::layer(common::eps(f, "layer_norm_epsilon", 1e-5)?);
        let channels = ChannelMix { ffn: f.size("intermediate_size").or(ffn(facts.hidden)), ..channels };
        let time = time(&facts)?;
        Ok(Rwkv { facts, norm, channels, time })
    }
}

impl<M: TimeMix> Shape for Rwkv<M> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut f = l.func("embed");
        let x = embedded(&mut f);
        let x = norm(&mut f, TABLE_NORM, self.norm, x, self.facts.hidden);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        let mut first: Option<Carried> = None;
        for i in 0..self.facts.layers {
            (x, first) = self.layer(l, i, &x, first)?;
        }
        // Transformers' class has PyTorch's default there, whatever is said.
        head(l, Norm { eps: 1e-5, ..self.norm }, &x)
    }
}

impl<M: TimeMix> Rwkv<M> {
    /// One layer: the new rows, and the first layer's values for all others.
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        x: &Carried,
        first: Option<Carried>,
    ) -> Result<(Carried, Option<Carried>), FrontendError> {
        let hidden = self.facts.hidden;
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let known = first.as_ref().map(|first| f.carried("first", first));
        let h = norm(&mut f, ATTN_NORM, self.norm, x, hidden);
        let (y, left) = self.time.mix(&mut f, h, known);
        let x = f.add(x, y);
        let h = norm(&mut f, MLP_NORM, self.norm, x, hidden);
        let y = self.channels.mix(&mut f, h);
        let x = f.add(x, y);
        let results: Vec<Value> = [Some(x), left].into_iter().flatten().collect();
        let mut carried = f.call(&results)?.into_iter();
        let x = carried.next().unwrap_or_default();
        Ok((x, carried.next().or(first)))
    }
}

/// `a − b`
#[track_caller]
pub(crate) fn minus(f: &mut Draft, a: Value, b: Value) -> Value {
    f.op(Op::Binary(BinaryOp::Sub), &[a, b])
}

/// The width of the mixtures over channels of versions 5 and 6, for that of the model.
pub(crate) fn ffn(hidden: usize) -> usize {
    hidden.saturating_mul(7) / 2 / 32 * 32
}

/// All heads' output, normalized head by head, with gains and biases of its own.
#[track_caller]
pub(crate) fn read_norm(f: &mut Draft, eps: f32, head: usize, y: Value) -> Value {
    let hidden = f.facts().hidden;
    let y = f.op(Op::Standardize { eps: F32::new(eps), width: head }, &[y]);
    let gain = f.weight(READ_NORM, Kind::Gain, &[hidden]);
    let bias = f.weight(READ_NORM, Kind::Bias, &[hidden]);
    let y = f.mul(y, gain);
    f.add(y, bias)
}

/// The matrices of versions 5 and 6, one per head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    /// Rows and columns of each.
    head: usize,
    /// Addend to the variance in [`read_norm`].
    eps: f32,
}

impl Matrices {
    /// Reads [`HEADS`]. Heads are divided by `head_size_divisor` before they are normalized.
    pub(crate) fn read(f: &Fields, facts: &Facts) -> Result<Matrices, ConfigError> {
        let head = f.size("head_size").or(64);
        if !facts.hidden.is_multiple_of(head) {
            let help = format!("this architecture expects heads that divide its {} columns", facts.hidden);
            return Err(f.unsupported("head_size", head.to_string(), help));
        }
        let divisor = f.factor_or("head_size_divisor", 8.0)?;
        Ok(Matrices { head, eps: (1e-5 * divisor * divisor) as f32 })
    }

    /// Heads and rows of each.
    pub(crate) fn shape(&self, hidden: usize) -> [usize; 2] {
        [hidden / self.head, self.head]
    }

    /// The output of the mixture: receptances applied to the heads after keys and values went in,
    /// with decays and bonuses, times gates.
    #[track_caller]
    pub(crate) fn read_out(&self, f: &mut Draft, [r, k, v, decay, bonus]: [Value; 5], g: Value) -> Value {
        let hidden = f.facts().hidden;
        let state = f.fixed("heads", [hidden / self.head, self.head, self.head]);
        let y = f.op(Op::Recurrence { update: Update::Bonus }, &[r, k, v, decay, bonus, state]);
        let y = read_norm(f, self.eps, self.head, y);
        let g = f.unary(UnaryOp::Silu, g);
        let y = f.mul(y, g);
        linear(f, OUT, [hidden, hidden], false, y)
    }
}
