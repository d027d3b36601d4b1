//! An architecture for tests: it computes the same as Llama, with keys, names of tensors and forms
//! of weights of its own, so that it needs all that a newcomer may need.
//!
//! Q, K and V lie in one matrix head by head, made for rotating neighbours; gate and up in one
//! matrix that is stored transposed, as is the output of attention.

use crate::arch::blocks::attention::attend;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::weight_forms::{halves, run_parts, transposed};
use crate::config::common::{TOKENS, WIDTH};
use crate::rope::frequencies;

pub(crate) const ARCH: Arch = Arch {
    model_type: "dummy",
    class: "DummyModel",
    fields: &[IDENTITY, FIELDS],
    fixed: &[],
    goldens: &[],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Dummy::read(f)?)),
};

const FIELDS: &[Field] = &[
    Field::new("n_vocab", WIDTH),
    Field::new("n_embd", WIDTH),
    Field::new("n_inner", WIDTH).or(&["d_inner"]),
    Field::new("n_layer", Accepts::Size(64)),
    Field::new("n_head", Accepts::Size(64)),
    Field::new("d_head", Accepts::Size(64)),
    Field::new("n_positions", TOKENS),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("dummy_scale", Accepts::Number).unless(Neutral::One),
];

const NAMES: Table = names! {
    "" { TABLE => "wte", HEAD => "out", NORM => "ln_f" }
    "h.{}." {
        ATTN_NORM => "ln_1", ATTN_QKV => "attn.c_attn", ATTN_OUT => "attn.c_proj", MLP_NORM => "ln_2",
        MLP_GATE_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj",
    }
};

#[derive(Debug)]
struct Dummy {
    facts: Facts,
    heads: Heads,
    ffn: usize,
    norm: Norm,
    scale: Option<f32>,
}

impl Dummy {
    fn read(f: &Fields) -> Result<Dummy, ConfigError> {
        let (heads, dim) = (f.required_size("n_head")?, f.required_size("d_head")?);
        let facts = Facts {
            name: None,
            vocab: f.required_size("n_vocab")?,
            hidden: f.required_size("n_embd")?,
            layers: f.required_size("n_layer")?,
            max_position: f.size("n_positions").or(1024),
            tied: false,
            bos: None,
            eos: vec![],
        };
        let norm = Norm::rms(common::eps(f, "layer_norm_epsilon", 1e-5)?);
        let heads = Heads { queries: heads, kv: heads, dim };
        Ok(Dummy { facts, heads, ffn: f.required_size("n_inner")?, norm, scale: common::factor(f, "dummy_scale")? })
    }

    fn layer(&self, l: &mut Lifter, i: usize, x: &Carried, rope: &Carried) -> Result<Carried, FrontendError> {
        let (hidden, heads) = (self.facts.hidden, self.heads);
        let width = heads.queries * heads.dim;
        let mut f = l.layer("layer", i);
        let (x, rope, positions) = (f.carried("x", x), f.carried("rope", rope), f.input(Input::Positions));
        let h = norm(&mut f, ATTN_NORM, self.norm, x, hidden);
        let qkv = f.matrix(ATTN_QKV, [3 * width, hidden]);
        let head = heads.dim;
        let [q, k, v] = [0, 1, 2].map(|i| run_parts(&mut f, qkv, 3 * head, i * head, head));
        let [q, k] = [q, k].map(|w| halves(&mut f, w, head, head));
        let qkv = [q, k, v].map(|w| f.matmul(h, w));
        let attention = Attention::plain(heads, None);
        let kv = f.kv("kv", heads.kv, (heads.dim, heads.dim), None);
        let y = attend(&mut f, &attention, self.norm, qkv, kv, positions, Some(rope));
        let out = transposed(&mut f, ATTN_OUT, [hidden, width]);
        let y = f.matmul(y, out);
        let x = f.add(x, y);
        let h = norm(&mut f, MLP_NORM, self.norm, x, hidden);
        let gate_up = transposed(&mut f, MLP_GATE_UP, [2 * self.ffn, hidden]);
        let [gate, up] = split_rows(&mut f, gate_up, [self.ffn; 2]).map(|w| f.matmul(h, w));
        let gate = f.unary(UnaryOp::Silu, gate);
        let h = f.mul(gate, up);
        let down = f.matrix(MLP_DOWN, [hidden, self.ffn]);
        let y = f.matmul(h, down);
        let x = f.add(x, y);
        Ok(f.call(&[x])?.remove(0))
    }
}

impl Shape for Dummy {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let rope = RopeConfig { theta: 10_000.0, dim: self.heads.dim, scaling: RopeScaling::Default };
        let rope = frequencies(&rope, self.facts.max_position);
        let mut f = l.func("embed");
        let table = f.weight(TABLE, Kind::Table, &[self.facts.vocab, self.facts.hidden]);
        let (tokens, positions) = (f.input(Input::Tokens), f.input(Input::Positions));
        let angles = rope.table();
        let inv_freq = f.computed("inv_freq", "$rope.inv_freq", rope.inv_freq);
        let x = f.op(Op::Embed, &[table, tokens]);
        let rope = f.op(angles, &[positions, inv_freq]);
        let [mut x, rope]: [Carried; 2] = f.call(&[x, rope])?.try_into().expect("two results");
        for i in 0..self.facts.layers {
            x = self.layer(l, i, &x, &rope)?;
        }
        let mut f = l.func("head");
        let (x, rows) = (f.carried("x", &x), f.input(Input::OutRows));
        let x = f.op(Op::GatherRows, &[x, rows]);
        let x = norm(&mut f, NORM, self.norm, x, self.facts.hidden);
        let head = f.matrix(HEAD, [self.facts.vocab, self.facts.hidden]);
        let logits = f.matmul(x, head);
        let logits = crate::arch::blocks::attention::scaled(&mut f, logits, self.scale);
        f.call(&[logits])?;
        Ok(())
    }
}
