//! Mixers, with a block of attention and an MLP over the rows and the embeddings side by side
//! before some of them (Zamba, arXiv 2405.16712). There are few such blocks, which take turns.

use crate::arch::blocks::attention::{Attention, Norm, attend, linear, norm};
use crate::arch::blocks::decoder::inv_freq;
use crate::arch::blocks::embedding_and_head::{embedded, head};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, Kind, MLP_DOWN, MLP_GATE, MLP_GATE_UP, MLP_NORM, MLP_UP, NORM,
    Part, TABLE, Table, names,
};
use crate::arch::blocks::recurrent::{SSM_A, SSM_CONV, SSM_D, SSM_IN, SSM_OUT, split_cols};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common::Facts;
use crate::config::fields::Fields;
use crate::error::FrontendError;
use crate::rope::RopeConfig;
use llmcc_ir::graph::{Input, Op, UnaryOp, Value};

/// The rest of a layer adds this product of its block's output.
const LINEAR: Part = Part("shared.linear");
/// An adapter of the matrix of gate and up.
pub(crate) const GATE_UP_DOWN: Part = Part("mlp.gate_up.adapter_down");
/// Its second matrix.
pub(crate) const GATE_UP_UP: Part = Part("mlp.gate_up.adapter_up");
/// Adapters of queries, keys and values.
pub(crate) const ADAPTERS: [(Part, Part); 3] = [
    (Part("attn.q.adapter_down"), Part("attn.q.adapter_up")),
    (Part("attn.k.adapter_down"), Part("attn.k.adapter_up")),
    (Part("attn.v.adapter_down"), Part("attn.v.adapter_up")),
];
/// Norm before the mixer.
const MIXER_NORM: Part = Part("ssm.before");

/// Names common to both models.
pub(crate) const NAMES: Table = names! {
    "model." { TABLE => "embed_tokens", NORM => "final_layernorm" }
    "" { HEAD => "lm_head" }
    "model.layers.{}." {
        MIXER_NORM => "input_layernorm", MIXER_NORM => "mamba_decoder.input_layernorm", SSM_IN => "mamba.in_proj",
        SSM_IN => "mamba_decoder.mamba.in_proj", SSM_CONV => "mamba.conv1d", SSM_CONV => "mamba_decoder.mamba.conv1d",
        SSM_A => "mamba.A_log", SSM_A => "mamba_decoder.mamba.A_log", SSM_D => "mamba.D",
        SSM_D => "mamba_decoder.mamba.D", SSM_OUT => "mamba.out_proj", SSM_OUT => "mamba_decoder.mamba.out_proj",
        LINEAR => "linear",
    }
};

/// A model of mixers and shared blocks.
#[derive(Debug)]
pub(crate) struct Zamba {
    /// Facts common to all models.
    pub facts: Facts,
    /// All norms.
    pub norm: Norm,
    /// All mixers.
    pub mixer: Mixer,
    /// Which layers have a shared block.
    pub hybrid: Vec<bool>,
    /// The blocks.
    pub block: SharedBlock,
}

/// A block that layers share.
#[derive(Debug)]
pub(crate) struct SharedBlock {
    /// How many there are.
    pub count: usize,
    /// Attention over rows twice as wide as the model's.
    pub attention: Attention,
    /// Its rotary table.
    pub rope: Option<RopeConfig>,
    /// Width of the MLP.
    pub ffn: usize,
    /// Its activation.
    pub act: UnaryOp,
    /// Its biases.
    pub bias: bool,
    /// Rank of the adapters that each use has of its own, of gate and up, which are one matrix then.
    pub rank: Option<usize>,
    /// Attention has some, too.
    pub adapted: bool,
}

/// Which of the uses of shared blocks one is.
#[derive(Clone, Copy)]
struct Use {
    /// The layer under whose name the block is stored.
    owner: usize,
    /// Its number among all uses.
    number: usize,
}

/// Kinds of layers; the last two are refused with a word of their own.
pub(crate) const KINDS: &[&str] = &["linear_attention", "mamba", "hybrid", "full_attention", "sliding_attention"];

/// Which layers have a shared block by `layers_block_type`, if it is there.
pub(crate) fn hybrid(f: &Fields, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let field = "layers_block_type";
    let Some(v) = f.get(field).value() else { return Ok(None) };
    let kinds: Vec<&str> = v.as_array().into_iter().flatten().filter_map(|kind| kind.as_str()).collect();
    if kinds.iter().any(|kind| kind.ends_with("_attention") && *kind != "linear_attention") {
        let help = "this architecture supports mixers, some of them behind a shared block".to_string();
        return Err(f.unsupported(field, v.to_string(), help));
    }
    if kinds.len() != layers {
        let help = format!("this architecture expects a layer for each name of `{field}`");
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help));
    }
    Ok(Some(kinds.into_iter().map(|kind| kind == "hybrid").collect()))
}

impl Shape for Zamba {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut f = l.func("embed");
        let mut results = vec![embedded(&mut f)];
        if let Some(rope) = &self.block.rope {
            let (frequencies, op) = inv_freq(&mut f, rope, 0);
            let positions = f.input(Input::Positions);
            results.push(f.op(op, &[positions, frequencies]));
        }
        let mut carried = f.call(&results)?.into_iter();
        let first = carried.next().unwrap_or_default();
        let rope = carried.next();
        let (mut x, mut owners, mut number) = (first.clone(), vec![], 0);
        for i in 0..self.facts.layers {
            let mut used = None;
            if self.hybrid[i] {
                if owners.len() < self.block.count {
                    owners.push(i);
                }
                used = Some(Use { owner: owners[number % owners.len()], number });
                number += 1;
            }
            x = self.layer(l, i, [&x, &first], rope.as_ref(), used)?;
        }
        head(l, self.norm, &x)
    }
}

impl Zamba {
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        [x, first]: [&Carried; 2],
        rope: Option<&Carried>,
        used: Option<Use>,
    ) -> Result<Carried, FrontendError> {
        let hidden = self.facts.hidden;
        let name = if used.is_some() { "hybrid" } else { "layer" };
        let mut f = l.layer(name, i);
        let x = f.carried("x", x);
        let mut h = x;
        if let Some(used) = used {
            let first = f.carried("first", first);
            let rope = rope.map(|rope| f.carried("rope", rope));
            let y = self.shared(&mut f, used, [x, first], rope);
            let y = linear(&mut f, LINEAR, [hidden, hidden], false, y);
            h = f.add(x, y);
        }
        let h = norm(&mut f, MIXER_NORM, self.norm, h, hidden);
        let y = self.mixer.mix(&mut f, Norm::rms(1e-5), None, h);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// A shared block's output for the rows and the embeddings.
    fn shared(&self, f: &mut Draft, used: Use, [x, first]: [Value; 2], rope: Option<Value>) -> Value {
        let (hidden, block) = (self.facts.hidden, &self.block);
        let wide = 2 * hidden;
        let h = f.op(Op::ConcatCols, &[x, first]);
        let h = self.gained(f, used, ATTN_NORM, wide, h);
        let a = &block.attention;
        let heads = [(ATTN_Q, a.heads.queries), (ATTN_K, a.heads.kv), (ATTN_V, a.heads.kv)];
        let qkv = [0, 1, 2].map(|i| {
            let rows = heads[i].1 * a.heads.dim;
            let w = f.of_layer(heads[i].0, Kind::Matrix, used.shared(), &[rows, wide]);
            let y = f.matmul(h, w);
            match block.rank.filter(|_| block.adapted) {
                Some(rank) => adapted(f, used, ADAPTERS[i], (rank, [rows, wide]), h, y),
                None => y,
            }
        });
        let positions = f.input(Input::Positions);
        let kv = f.kv("kv", a.heads.kv, (a.heads.dim, a.heads.dim), None);
        let y = attend(f, a, self.norm, qkv, kv, positions, rope);
        let w = f.of_layer(ATTN_OUT, Kind::Matrix, used.shared(), &[hidden, a.heads.queries * a.heads.dim]);
        let y = f.matmul(y, w);
        let h = self.gained(f, used, MLP_NORM, hidden, y);
        self.mlp(f, used, h)
    }

    fn mlp(&self, f: &mut Draft, used: Use, h: Value) -> Value {
        let (hidden, block) = (self.facts.hidden, &self.block);
        let [gate, x] = match block.rank {
            Some(rank) => {
                let shape = [2 * block.ffn, hidden];
                // Shared matrices are read unchanged.
                let w = f.of_layer(MLP_GATE_UP, Kind::Matrix, used.shared(), &shape);
                let y = f.matmul(h, w);
                let y = adapted(f, used, (GATE_UP_DOWN, GATE_UP_UP), (rank, shape), h, y);
                let y = self.biased(f, used, MLP_GATE_UP, shape[0], y);
                split_cols(f, y, [block.ffn; 2])
            }
            None => [MLP_GATE, MLP_UP].map(|part| {
                let w = f.of_layer(part, Kind::Matrix, used.shared(), &[block.ffn, hidden]);
                let y = f.matmul(h, w);
                self.biased(f, used, part, block.ffn, y)
            }),
        };
        let gate = f.unary(block.act, gate);
        let y = f.mul(gate, x);
        let w = f.of_layer(MLP_DOWN, Kind::Matrix, used.shared(), &[hidden, block.ffn]);
        let y = f.matmul(y, w);
        self.biased(f, used, MLP_DOWN, hidden, y)
    }

    /// With a bias of the block, if its matrices have some.
    fn biased(&self, f: &mut Draft, used: Use, part: Part, len: usize, y: Value) -> Value {
        if !self.block.bias {
            return y;
        }
        let b = f.of_layer(part, Kind::Bias, used.shared(), &[len]);
        f.add(y, b)
    }

    /// A norm of the block.
    fn gained(&self, f: &mut Draft, used: Use, part: Part, width: usize, x: Value) -> Value {
        let x = norm(f, part, Norm { gain: false, ..self.norm }, x, width);
        let gain = f.of_layer(part, Kind::Gain, used.shared(), &[width]);
        f.mul(x, gain)
    }
}

/// `y` plus the output of this use's adapter for `h`.
fn adapted(
    f: &mut Draft,
    used: Use,
    parts: (Part, Part),
    (rank, shape): (usize, [usize; 2]),
    h: Value,
    y: Value,
) -> Value {
    let down = f.of_layer(parts.0, Kind::Matrix, used.own(), &[rank, shape[1]]);
    let low = f.matmul(h, down);
    let up = f.of_layer(parts.1, Kind::Matrix, used.own(), &[shape[0], rank]);
    let more = f.matmul(low, up);
    f.add(y, more)
}

impl Use {
    /// Index of the part that all uses of a block share.
    fn shared(self) -> (usize, Option<usize>) {
        (self.owner, None)
    }

    /// Index of this use's own part.
    fn own(self) -> (usize, Option<usize>) {
        (self.owner, Some(self.number))
    }
}
