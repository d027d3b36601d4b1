//! Attention over depth in place of a residual stream that grows (attention residuals of Kimi K3,
//! Moonshot AI, 2026): layers come in groups, and the sum of a group's layers is kept as a source.
//! Each block reads a mean of the embeddings, of the earlier groups' sums and of its own group's
//! sum so far, weighted by the softmax of products of a learned vector with their norms.

use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::decoder::{self, Decoder, feed};
use crate::arch::blocks::entry::{Shape, answered_by};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{ATTN_NORM, Kind, MLP_NORM, NORM, Part, Table, names};
use crate::arch::blocks::token_mixer::{Context, mixed};
use crate::error::FrontendError;
use llmcc_ir::graph::{BinaryOp, F32, Input, Op, UnaryOp, Value};

/// Parts that make the weights of a mean.
#[derive(Clone, Copy)]
struct Site {
    /// Gains of the norm of a source, `[hidden]`.
    norm: Part,
    /// The learned vector, `[1, hidden]`.
    query: Part,
}

/// Before attention, or the mixer in its place.
const ATTN_SITE: Site = Site { norm: Part("attn.sources.norm"), query: Part("attn.sources.query") };
/// Before the MLP, or the experts.
const MLP_SITE: Site = Site { norm: Part("mlp.sources.norm"), query: Part("mlp.sources.query") };
/// Before the last norm.
const LAST_SITE: Site = Site { norm: Part("head.sources.norm"), query: Part("head.sources.query") };

pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_SITE.norm => "self_attention_res_norm", ATTN_SITE.query => "self_attention_res_proj",
        MLP_SITE.norm => "mlp_res_norm", MLP_SITE.query => "mlp_res_proj",
    }
    "model." { LAST_SITE.norm => "output_attn_res_norm", LAST_SITE.query => "output_attn_res_proj" }
};

/// A decoder whose blocks read means of earlier sums.
#[derive(Debug)]
pub(crate) struct OverDepth {
    /// The layers, with norms before their blocks.
    pub decoder: Decoder,
    /// Layers of a group.
    pub group: usize,
}

impl Shape for OverDepth {
    answered_by! { decoder: facts yields }

    /// The first layer has a vector and a norm too, for a mean of the embeddings alone.
    fn chooses(&self, tensor: &str) -> bool {
        let first = ["norm", "proj"].map(|part| format!("model.layers.0.self_attention_res_{part}.weight"));
        first.iter().any(|name| tensor.ends_with(name)) || self.decoder.chooses(tensor)
    }

    /// Each block is a function of its own: kernels are chosen for one at a time.
    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let (mut sum, ropes) = decoder::embedding(l, d)?;
        let mut sources = Sources::default();
        for (i, spec) in d.layers.iter().enumerate() {
            let begins = i.is_multiple_of(self.group);
            let mut f = l.layer("attend", i);
            let (x, h) = read(&mut f, (ATTN_SITE, d.norm), &sources, &sum);
            let context = Context::of(&mut f, spec, &ropes);
            let h = norm(&mut f, ATTN_NORM, d.norm, h, hidden);
            let y = mixed(&mut f, d.norm, spec, context, h);
            let y = if begins { y } else { f.add(x, y) };
            let attended = f.call(&[y])?.pop().unwrap_or_default();
            if begins {
                sources.push(l, sum)?;
            }
            let mut f = l.layer("feed", i);
            let (x, h) = read(&mut f, (MLP_SITE, d.norm), &sources, &attended);
            let h = norm(&mut f, MLP_NORM, d.norm, h, hidden);
            let y = feed(&mut f, d, spec, x, h);
            let y = f.add(x, y);
            sum = f.call(&[y])?.pop().unwrap_or_default();
        }
        let mut f = l.func("head");
        let rows = f.input(Input::OutRows);
        let gathered = |f: &mut Draft, x| f.op(Op::GatherRows, &[x, rows]);
        let all = Read::of(&mut f, &sources, &sum).map(|x| gathered(&mut f, x));
        let x = all.mean(&mut f, (LAST_SITE, d.norm));
        let x = norm(&mut f, NORM, d.norm, x, hidden);
        decoder::output(f, d, x)
    }
}

/// The earlier groups' sums, the embeddings first.
#[derive(Default)]
struct Sources {
    each: Vec<Carried>,
    /// All of them in one row, side by side.
    row: Carried,
}

impl Sources {
    /// Adds a group's sum.
    fn push(&mut self, l: &mut Lifter, sum: Carried) -> Result<(), FrontendError> {
        self.each.push(sum);
        if let [one] = &self.each[..] {
            self.row = one.clone();
            return Ok(());
        }
        let mut f = l.func("sources");
        let all = carried(&mut f, &self.each);
        let row = f.op(Op::ConcatCols, &all);
        self.row = f.call(&[row])?.pop().unwrap_or_default();
        Ok(())
    }
}

/// Sources in order.
fn carried(f: &mut Draft, sources: &[Carried]) -> Vec<Value> {
    sources.iter().enumerate().map(|(i, x)| f.carried(&format!("source{i}"), x)).collect()
}

/// The sources that a function reads.
struct Read {
    each: Vec<Value>,
    /// All of them side by side; none without any.
    row: Option<Value>,
    /// The sum of its own group.
    sum: Value,
}

impl Read {
    fn of(f: &mut Draft, sources: &Sources, sum: &Carried) -> Read {
        let each = carried(f, &sources.each);
        let row = match each[..] {
            [] => None,
            [one] => Some(one),
            _ => Some(f.carried("sources", &sources.row)),
        };
        Read { each, row, sum: f.carried("x", sum) }
    }

    fn map(self, mut of: impl FnMut(Value) -> Value) -> Read {
        let row = match self.each[..] {
            [_] => None,
            _ => self.row.map(&mut of),
        };
        let each: Vec<Value> = self.each.into_iter().map(&mut of).collect();
        Read { row: row.or(each.first().copied()), each, sum: of(self.sum) }
    }

    /// The weighted mean of all, `[T, hidden]`; a single one is its own mean.
    #[track_caller]
    fn mean(&self, f: &mut Draft, (site, spec): (Site, Norm)) -> Value {
        let Some(row) = self.row else { return self.sum };
        let hidden = f.facts().hidden;
        let gain = f.weight(site.norm, Kind::Gain, &[hidden]);
        let query = f.matrix(site.query, [1, hidden]);
        let score = |f: &mut Draft, x: Value| {
            let x = f.op(Op::Normalize { eps: F32::new(spec.eps), width: hidden }, &[x]);
            let x = f.mul(x, gain);
            f.matmul(x, query)
        };
        let scores: Vec<Value> = self.each.iter().chain([&self.sum]).map(|x| score(f, *x)).collect();
        let earlier = self.each.len();
        // One row of all: as sums of a term for each source, scores, powers and means would have a kernel for every
        // choice of the kernels of the others.
        let scores = f.op(Op::ConcatCols, &scores);
        let weights = softmax(f, earlier + 1, scores);
        let of_earlier = f.op(Op::SliceCols { start: 0, len: earlier }, &[weights]);
        let of_sum = f.op(Op::SliceCols { start: earlier, len: 1 }, &[weights]);
        let parts = [(of_earlier, row), (of_sum, self.sum)].map(|(w, x)| f.op(Op::Combine, &[w, x]));
        f.add(parts[0], parts[1])
    }
}

/// The sum of the group so far, and the mean that a block reads.
fn read(f: &mut Draft, site: (Site, Norm), sources: &Sources, sum: &Carried) -> (Value, Value) {
    let all = Read::of(f, sources, sum);
    (all.sum, all.mean(f, site))
}

/// The softmax of rows of `count` columns.
#[track_caller]
fn softmax(f: &mut Draft, count: usize, x: Value) -> Value {
    let most = largest(f, count, x);
    let below = f.op(Op::Binary(BinaryOp::Sub), &[x, most]);
    let powers = f.unary(UnaryOp::Exp, below);
    // A row of ones, as powers are not negative.
    let one = f.scalar(1.0);
    let above = f.add(powers, one);
    let ones = f.op(Op::Binary(BinaryOp::Min), &[above, one]);
    let total = f.op(Op::Combine, &[ones, powers]);
    let total = columns(f, "total", total, vec![0; count]);
    f.op(Op::Binary(BinaryOp::Div), &[powers, total])
}

/// The largest of rows of `count` columns, in each of them: of runs that become twice as long each time.
#[track_caller]
fn largest(f: &mut Draft, count: usize, x: Value) -> Value {
    let runs = std::iter::successors(Some(1), |run| Some(2 * run)).take_while(|run| *run < count);
    runs.fold(x, |most, run| {
        let others = columns(f, &format!("run{run}"), most, (0..count).map(|i| (i + run) % count).collect());
        f.op(Op::Binary(BinaryOp::Max), &[most, others])
    })
}

/// The columns of `x` in this order.
#[track_caller]
fn columns(f: &mut Draft, name: &str, x: Value, order: Vec<usize>) -> Value {
    let (name, count) = (format!("sources.{name}"), order.len());
    let order = f.shared_constant(&name, &format!("${name}.{count}"), order.into_iter().map(|i| i as f32).collect());
    f.op(Op::PickCols, &[x, order])
}
