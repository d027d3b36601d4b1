//! Attention to the last tokens, and to rows that many earlier tokens share (DeepSeek-V4).
//!
//! One row per token is key and value of all heads; its last elements are rotated, so the same
//! elements of a head's result are rotated back. Layers that see more than a window have further
//! rows, one for every window of some tokens: sums of its tokens' rows, weighted by the softmax of
//! a gate for each element, or sums over the tokens of two windows; then each token has a second
//! row for the next window. A softmax covers both: two attentions return the sums of their weights.
//!
//! An indexer selects the best of such rows, by rows of its own that are made in the same way.

use crate::arch::blocks::indexer::{INDEX_Q, INDEX_WEIGHTS};
use crate::arch::blocks::latent_attention::{Q_DOWN, Q_DOWN_NORM, Q_UP};
use crate::arch::blocks::names::ATTN_SINKS;
use crate::arch::blocks::prelude::*;
use llmcc_ir::quant::BLOCK;

/// The row of a token.
const ROW: Part = Part("attn.row");
const ROW_NORM: Part = Part("attn.row_norm");
/// From the columns of some heads to fewer.
const OUT_DOWN: Part = Part("attn.out_down");
/// A token's contribution to the rows of windows, and its weight.
const WINDOW_ROW: Part = Part("attn.window.row");
const WINDOW_GATE: Part = Part("attn.window.gate");
/// Added to the gate by the token's place in its window.
const WINDOW_PLACES: Part = Part("attn.window.places");
const WINDOW_NORM: Part = Part("attn.window.norm");

/// The parts of rows of windows: attention's, and the indexer's.
const ROWS: Pool =
    Pool { row: WINDOW_ROW, gate: WINDOW_GATE, places: WINDOW_PLACES, norm: WINDOW_NORM, state: "window" };
const KEYS: Pool = Pool {
    row: Part("index.window.row"),
    gate: Part("index.window.gate"),
    places: Part("index.window.places"),
    norm: Part("index.window.norm"),
    state: "index.window",
};

/// Names as Transformers writes them, and as they were published.
pub(super) const NAMES: Table = names! {
    "model.layers.{}." | "layers.{}." {
        Q_DOWN => "attn.wq_a", Q_DOWN_NORM => "attn.q_norm", Q_UP => "attn.wq_b", ROW => "attn.wkv",
        ATTN_SINKS => "attn.attn_sink", OUT_DOWN => "attn.wo_a", ATTN_OUT => "attn.wo_b",
        WINDOW_ROW => "attn.compressor.wkv", WINDOW_GATE => "attn.compressor.wgate",
        WINDOW_PLACES => "attn.compressor.ape", WINDOW_NORM => "attn.compressor.norm",
    }
    "model.layers.{}.attn.indexer." | "layers.{}.attn.indexer." {
        INDEX_Q => "wq_b", INDEX_WEIGHTS => "weights_proj", KEYS.row => "compressor.wkv",
        KEYS.gate => "compressor.wgate", KEYS.places => "compressor.ape", KEYS.norm => "compressor.norm",
    }
    "model.layers.{}." { ROW_NORM => "attn.norm" }
    "layers.{}." { ROW_NORM => "attn.kv_norm" }
};

/// Sizes of the attention of all layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSizes {
    pub heads: usize,
    /// Elements of a head, and of a row; those at its end that are rotated.
    pub dim: usize,
    pub rotated: usize,
    /// Width of the rows that queries are made of.
    pub q_rank: usize,
    /// Groups of heads, and the width of each group's row.
    pub groups: usize,
    pub out_rank: usize,
    /// Tokens that are seen by themselves.
    pub window: usize,
    pub norm: Norm,
    /// The indexer of rows of windows.
    pub index: Index,
    /// Begins the names of its constants.
    pub named: &'static str,
}

/// The indexer of rows of windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index {
    /// Heads, and elements of each.
    pub heads: usize,
    pub dim: usize,
    /// Rows selected.
    pub top: usize,
}

/// Parts of rows that windows have.
#[derive(Clone, Copy)]
struct Pool {
    row: Part,
    gate: Part,
    places: Part,
    norm: Part,
    state: &'static str,
}

/// Windows whose tokens have a row in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Tokens of each.
    pub len: usize,
    /// A token has a row for the next window, too.
    pub overlap: bool,
}

/// The layer's inputs beside its row.
#[derive(Clone, Copy)]
pub(super) struct ForLayer {
    pub positions: Value,
    /// The rotary table of the tokens, `[T, rotated]`, and of the first tokens of their windows.
    pub rope: Value,
    pub before: Option<Value>,
}

/// The rotary table of the first token of each token's window of `len`, where `rope` has that of the token
/// itself, of `width` columns.
#[track_caller]
pub(super) fn first_of(f: &mut Draft, rope: Value, positions: Value, [width, len]: [usize; 2]) -> Value {
    // A mean in which all but the first token weigh nothing: elements of `rope` are no larger than 1, or
    // than some factor.
    let places = (0..len).flat_map(|i| std::iter::repeat_n(if i == 0 { 0.0 } else { -1e30 }, width)).collect();
    let places = f.shared_table("first.places", &format!("$first{len}.places"), [len, width], places);
    let state = f.fixed("first", [1, 3, width]);
    f.op(Op::WindowMeans, &[rope, rope, places, positions, state])
}

/// Attention of the layer to the last tokens, and to the rows of windows, if it has any.
#[track_caller]
pub(super) fn attention(f: &mut Draft, s: &WindowSizes, windows: Option<Windows>, given: ForLayer, h: Value) -> Value {
    let (hidden, width) = (f.facts().hidden, s.heads.saturating_mul(s.dim));
    let ForLayer { positions, rope, before } = given;
    let q = linear(f, Q_DOWN, [s.q_rank, hidden], false, h);
    let short = norm(f, Q_DOWN_NORM, s.norm, q, s.q_rank);
    let q = linear(f, Q_UP, [width, s.q_rank], false, short);
    let q = f.op(Op::Normalize { eps: F32::new(s.norm.eps), width: s.dim }, &[q]);
    let q = rotated(f, s, s.heads, q, rope);
    let row = linear(f, ROW, [s.dim, hidden], false, h);
    let row = norm(f, ROW_NORM, s.norm, row, s.dim);
    let row = rotated(f, s, 1, row, rope);
    let kv = f.latent_kv("kv", (s.dim, s.dim), Some(s.window));
    let kv = f.op(Op::KvAppend, &[kv, row, row, positions]);
    let sinks = f.weight(ATTN_SINKS, Kind::Bare, &[s.heads]);
    let mut y = f.op(attend(s, windows.is_some()), &[q, kv, positions, sinks]);
    if let (Some(windows), Some(before)) = (windows, before) {
        let row = pooled(f, (s, &ROWS), windows, positions, h);
        let row = rotated(f, s, 1, row, before);
        let kv = f.kv_of_windows("windows", s.dim, windows.len);
        let kv = f.op(Op::KvAppend, &[kv, row, row, positions]);
        let far = match s.selects(windows, f.max_context()) {
            false => f.op(attend(s, true), &[q, kv, positions]),
            true => {
                let selection = selected(f, s, windows, (given, before), (h, short));
                let Op::Attention { heads, scale, .. } = attend(s, true) else { return f.stop() };
                f.op(Op::SelectedAttention { heads, scale, sums: true, by_head: false }, &[q, kv, positions, selection])
            }
        };
        y = joined(f, s, [y, far]);
    }
    let back = [1.0, -1.0].into_iter().flat_map(|sign| std::iter::repeat_n(sign, s.rotated / 2)).collect();
    let back = f.shared_constant("attn.back", "$attention.back", back);
    let back = f.mul(rope, back);
    let y = rotated(f, s, s.heads, y, back);
    let down = f.matrix(OUT_DOWN, [s.groups.saturating_mul(s.out_rank), width / s.groups.max(1)]);
    let to = s.out_rank.next_multiple_of(BLOCK);
    let down = if to == s.out_rank { down } else { f.op(Op::FillRows { run: s.out_rank, to }, &[down]) };
    let y = f.op(Op::HeadMatMul { heads: s.groups, cols: s.out_rank }, &[y, down]);
    linear(f, ATTN_OUT, [hidden, s.groups.saturating_mul(s.out_rank)], false, y)
}

impl WindowSizes {
    /// Whether the indexer leaves rows of windows out of contexts of so many tokens; those of windows
    /// that do not overlap are all read.
    pub(super) fn selects(&self, windows: Windows, context: usize) -> bool {
        windows.overlap && context / windows.len.max(1) > self.index.top
    }
}

/// Numbers of the rows of windows that each token reads.
fn selected(
    f: &mut Draft,
    s: &WindowSizes,
    windows: Windows,
    (given, before): (ForLayer, Value),
    (h, short): (Value, Value),
) -> Value {
    let (hidden, Index { heads, dim, top }) = (f.facts().hidden, s.index);
    let own = WindowSizes { dim, named: "index.", ..*s };
    let row = pooled(f, (&own, &KEYS), windows, given.positions, h);
    let row = rotated(f, &own, 1, row, before);
    let keys = f.kv_of_windows("index", dim, windows.len);
    let keys = f.op(Op::KvAppend, &[keys, row, row, given.positions]);
    let q = linear(f, INDEX_Q, [heads.saturating_mul(dim), s.q_rank], false, short);
    let q = rotated(f, &own, heads, q, given.rope);
    let weights = linear(f, INDEX_WEIGHTS, [heads, hidden], false, h);
    f.op(Op::Select { heads, top }, &[q, weights, keys, given.positions])
}

fn attend(s: &WindowSizes, sums: bool) -> Op {
    let (scale, softcap) = (F32::new((1.0 / (s.dim as f64).sqrt()) as f32), F32::new(0.0));
    Op::Attention { heads: s.heads, scale, softcap, causal: true, chunked: false, biased: false, sums }
}

/// The heads of `x` with their last elements rotated, neighbours being pairs.
fn rotated(f: &mut Draft, s: &WindowSizes, heads: usize, x: Value, table: Value) -> Value {
    let (dim, turned, half) = (s.dim, s.rotated, s.rotated / 2);
    let still = dim - turned;
    let tails = (0..heads).flat_map(|h| {
        let pair = move |j: usize| h * dim + still + 2 * (j % half) + j / half;
        (0..turned).map(pair)
    });
    let tails = f.shared_constant(
        &format!("{}tails{heads}", s.named),
        &format!("$attention.{}tails{heads}", s.named),
        tails.map(|j| j as f32).collect(),
    );
    let tail = f.op(Op::PickCols, &[x, tails]);
    let tail = f.op(Op::Rope { head_dim: turned }, &[tail, table]);
    let both = f.op(Op::ConcatCols, &[x, tail]);
    let whole = (0..heads * dim).map(|i| match (i % dim).checked_sub(still) {
        None => i,
        Some(j) => heads * dim + i / dim * turned + j % 2 * half + j / 2,
    });
    let whole = f.shared_constant(
        &format!("{}whole{heads}", s.named),
        &format!("$attention.{}whole{heads}", s.named),
        whole.map(|j| j as f32).collect(),
    );
    f.op(Op::PickCols, &[both, whole])
}

/// For each token that is the last of a window, the window's row before it is rotated; anything for
/// other tokens.
fn pooled(f: &mut Draft, (s, of): (&WindowSizes, &Pool), windows: Windows, positions: Value, h: Value) -> Value {
    let Windows { len, overlap } = windows;
    // The first of a token's two rows counts in the next window.
    let (hidden, series) = (f.facts().hidden, if overlap { 2 } else { 1 });
    let width = s.dim.saturating_mul(series);
    let row = linear(f, of.row, [width, hidden], false, h);
    let gate = linear(f, of.gate, [width, hidden], false, h);
    let places = f.weight(of.places, Kind::Bare, &[len, width]);
    let state = f.fixed(of.state, [1, 3 * series, s.dim]);
    let row = f.op(Op::WindowMeans, &[gate, row, places, positions, state]);
    norm(f, of.norm, s.norm, row, s.dim)
}

/// The result of a softmax over the scores of both attentions.
fn joined(f: &mut Draft, s: &WindowSizes, found: [Value; 2]) -> Value {
    let width = s.heads * s.dim;
    let part = |f: &mut Draft, start, len| found.map(|x| f.op(Op::SliceCols { start, len }, &[x]));
    let values = part(f, 0, width);
    let (most, sums) = (part(f, width, s.heads), part(f, width + s.heads, s.heads));
    let of_all = f.op(Op::Binary(BinaryOp::Max), &most);
    let mut shares = sums;
    for (share, most) in shares.iter_mut().zip(most) {
        let less = f.op(Op::Binary(BinaryOp::Sub), &[most, of_all]);
        let by = f.unary(UnaryOp::Exp, less);
        *share = f.mul(*share, by);
    }
    let sum = f.add(shares[0], shares[1]);
    let of_heads = (0..width).map(|i| (i / s.dim) as f32).collect();
    let of_heads = f.shared_constant("attn.heads", "$attention.heads", of_heads);
    let mut part = |i: usize| {
        let share = f.op(Op::Binary(BinaryOp::Div), &[shares[i], sum]);
        let share = f.op(Op::PickCols, &[share, of_heads]);
        f.mul(share, values[i])
    };
    let (near, far) = (part(0), part(1));
    f.add(near, far)
}
