//! RWKV-7, "Goose" (arXiv 2503.14456): a matrix per head, whose rows decay by the token; a part of
//! its value for one key is subtracted at another key.

use crate::arch::blocks::families::rwkv_blocks::{
    CHANNEL_MIX_K, ChannelMix, FIELDS, K, MIX_G, MIX_K, MIX_R, MIX_V, NAMES, OUT, Pair, R, Rwkv, TimeMix, Toward, V,
    minus, read_norm,
};
use crate::arch::blocks::prelude::*;
use llmcc_ir::graph::Update;
use llmcc_ir::quant::BLOCK;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rwkv7",
    class: "RWKV7ForCausalLM",
    fields: &[IDENTITY, OWN_FIELDS, FIELDS, MODEL],
    // How the same is computed.
    fixed: fixed! {
        Any => attn_mode num_heads value_dim hidden_ratio;
        Words(&["sqrelu"]) => hidden_act;
        On => norm_first norm_bias;
        Off => attn;
    },
    goldens: &["rwkv7_paper"],
    names: Names(&[OWN, NAMES]),
    read: |f| {
        let channels = ChannelMix { ffn: 0, gated: false, toward: Toward::Before };
        Ok(Box::new(Rwkv::read(f, (channels, |hidden| hidden.saturating_mul(4)), |facts| Goose::read(f, facts))?))
    },
};

const OWN_FIELDS: &[Field] = fields! {
    head_dim: Accepts::Size(256), layer_norm_epsilon | norm_eps, decay_low_rank_dim, a_low_rank_dim, v_low_rank_dim,
    gate_low_rank_dim,
};

const MIX_W: Part = Part("time.mix_w");
const MIX_A: Part = Part("time.mix_a");
/// Which keys are erased, and how much of the keys is written.
const ERASED: Part = Part("time.erased");
const WRITTEN: Part = Part("time.written");
/// How much of a token is read by itself.
const OWN_READ: Part = Part("time.own");

/// A vector plus a product by two matrices of low rank.
#[derive(Clone, Copy)]
struct Low {
    fixed: Option<Part>,
    down: Part,
    up: Part,
}

const W: Low = Low { fixed: Some(Part("time.w0")), down: Part("time.w1"), up: Part("time.w2") };
const A: Low = Low { fixed: Some(Part("time.a0")), down: Part("time.a1"), up: Part("time.a2") };
const FIRST: Low = Low { fixed: Some(Part("time.v0")), down: Part("time.v1"), up: Part("time.v2") };
const GATE: Low = Low { fixed: None, down: Part("time.g1"), up: Part("time.g2") };

const OWN: Table = names! {
    "blocks.{}." {
        MIX_R => "att.x_r", MIX_W => "att.x_w", MIX_K => "att.x_k", MIX_V => "att.x_v", MIX_A => "att.x_a",
        MIX_G => "att.x_g", Part("time.w0") => "att.w0", W.down => "att.w1", W.up => "att.w2",
        Part("time.a0") => "att.a0", A.down => "att.a1", A.up => "att.a2", Part("time.v0") => "att.v0",
        FIRST.down => "att.v1", FIRST.up => "att.v2", GATE.down => "att.g1", GATE.up => "att.g2",
        ERASED => "att.k_k", WRITTEN => "att.k_a", OWN_READ => "att.r_k", CHANNEL_MIX_K => "ffn.x_k",
    }
};

/// `e^−½`, the most that the logarithm of a decay is away from 0.
const MOST_DECAY: f32 = 0.606_530_67;

#[derive(Debug)]
struct Goose {
    head: usize,
    eps: f32,
    /// Ranks of decays, of erasure, of the share of the first layer's values, of gates.
    ranks: [usize; 4],
}

impl Goose {
    fn read(f: &Fields, facts: &Facts) -> Result<Goose, ConfigError> {
        let head = f.size("head_dim").or(64);
        if !facts.hidden.is_multiple_of(head) {
            let help = format!("this architecture expects heads that divide its {} columns", facts.hidden);
            return Err(f.unsupported("head_dim", head.to_string(), help));
        }
        let rank = |name: &str| f.required_size(name);
        let ranks =
            [rank("decay_low_rank_dim")?, rank("a_low_rank_dim")?, rank("v_low_rank_dim")?, rank("gate_low_rank_dim")?];
        let eps = f.number("layer_norm_epsilon").unwrap_or(1e-5);
        Ok(Goose { head, eps: (eps * head as f64) as f32, ranks })
    }

    /// The erased key and its replacement: the key that is read, divided by the decays, since it is
    /// read before them, and the key that is written.
    #[track_caller]
    fn erased(&self, f: &mut Draft, k: Value, [decay, a]: [Value; 2]) -> [Value; 2] {
        let weights = f.weight(ERASED, Kind::Row, &[f.facts().hidden]);
        let kk = f.mul(k, weights);
        // Length 1, head by head: x/√(mean + ε), divided by √n.
        let unit = Op::Normalize { eps: F32::new(1e-26), width: self.head };
        let kk = f.op(unit, &[kk]);
        let scale = f.scalar((1.0 / (self.head as f64).sqrt()) as f32);
        let kk = f.mul(kk, scale);
        let read = f.op(Op::Binary(BinaryOp::Div), &[kk, decay]);
        [read, f.mul(kk, a)]
    }

    /// Values times the sum of `x` over each head.
    #[track_caller]
    fn by_sums(&self, f: &mut Draft, x: Value, v: Value) -> Value {
        let heads = f.facts().hidden / self.head;
        let shape = [heads * self.head.next_multiple_of(BLOCK), self.head];
        let ones = f.shared_table("time.ones", "$rwkv.ones", shape, vec![1.0; shape[0] * shape[1]]);
        let sums = f.op(Op::HeadMatMul { heads, cols: self.head }, &[x, ones]);
        f.mul(sums, v)
    }
}

/// The product of two matrices of low rank with `x`, with `act` between them, plus a vector.
#[track_caller]
fn low(f: &mut Draft, of: Low, rank: usize, act: Option<UnaryOp>, x: Value) -> Value {
    let hidden = f.facts().hidden;
    let [down, up] = [(of.down, [hidden, rank]), (of.up, [rank, hidden])].map(|(part, shape)| {
        let w = f.weight(part, Kind::Bare, &shape);
        f.op(Op::Transpose, &[w])
    });
    let x = f.matmul(x, down);
    let x = act.map_or(x, |act| f.unary(act, x));
    let x = f.matmul(x, up);
    of.fixed.map_or(x, |part| {
        let fixed = f.weight(part, Kind::Row, &[hidden]);
        f.add(x, fixed)
    })
}

/// `a + (b − a)·t`
fn toward(f: &mut Draft, a: Value, b: Value, t: Value) -> Value {
    let way = minus(f, b, a);
    let part = f.mul(way, t);
    f.add(a, part)
}

impl TimeMix for Goose {
    fn mix(&self, f: &mut Draft, h: Value, first: Option<Value>) -> (Value, Option<Value>) {
        let hidden = f.facts().hidden;
        let heads = hidden / self.head;
        let pair = Pair::new(f, "time.before", Toward::Before, h);
        let [r, w, k, v, a, g] = [MIX_R, MIX_W, MIX_K, MIX_V, MIX_A, MIX_G].map(|part| pair.mixed(f, part));
        let of_values = v;
        let [r, k, v] = [(R, r), (K, k), (V, v)].map(|(part, x)| linear(f, part, [hidden, hidden], false, x));
        let w = low(f, W, self.ranks[0], Some(UnaryOp::Tanh), w);
        let w = f.unary(UnaryOp::Sigmoid, w);
        let most = f.scalar(-MOST_DECAY);
        let w = f.mul(w, most);
        let decay = f.unary(UnaryOp::Exp, w);
        let (v, left) = match first {
            None => (v, Some(v)),
            Some(first) => {
                let share = low(f, FIRST, self.ranks[2], None, of_values);
                let share = f.unary(UnaryOp::Sigmoid, share);
                (toward(f, v, first, share), None)
            }
        };
        let a = low(f, A, self.ranks[1], None, a);
        let a = f.unary(UnaryOp::Sigmoid, a);
        let g = low(f, GATE, self.ranks[3], Some(UnaryOp::Sigmoid), g);
        let [read, write] = self.erased(f, k, [decay, a]);
        let written = f.weight(WRITTEN, Kind::Row, &[hidden]);
        let ka = f.mul(k, a);
        let k = toward(f, k, ka, written);
        let state = f.fixed("heads", [heads, self.head, self.head]);
        let y = f.op(Op::Recurrence { update: Update::Erase }, &[r, k, v, decay, read, state, write]);
        let y = read_norm(f, self.eps, self.head, y);
        let own = f.weight(OWN_READ, Kind::Bare, &[heads, self.head]);
        let own = f.op(Op::Flatten, &[own]);
        let rk = f.mul(r, k);
        let rk = f.mul(rk, own);
        let passed = self.by_sums(f, rk, v);
        let y = f.add(y, passed);
        let y = f.mul(y, g);
        (linear(f, OUT, [hidden, hidden], false, y), left)
    }
}
