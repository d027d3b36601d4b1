//! How checkpoints have the matrices of experts.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{
    EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_DOWN_BIAS, EXPERTS_DOWN_ROWS, EXPERTS_GATE,
    EXPERTS_GATE_BIAS, EXPERTS_GATE_UP, EXPERTS_GATE_UP_BIAS, EXPERTS_UP, EXPERTS_UP_BIAS, Kind, Part,
};
use crate::arch::blocks::weight_forms::filled;
use llmcc_ir::graph::{Op, Value};
use llmcc_ir::quant::BLOCK;

/// The matrices of all experts, which are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    pub stored: Stored,
    /// Numbers of a row that experts read and write, and width of each.
    pub width: usize,
    pub ffn: usize,
    pub count: usize,
    /// How many more a stack may have that compute nothing.
    pub zero: usize,
    pub gated: bool,
}

/// How the matrices of experts are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Three of each expert, as checkpoints are published; or [`JoinedBare`](Stored::JoinedBare), as
    /// Transformers 5 has them in memory and writes them if it is told to (the matrices up of experts
    /// without gates are a stack of their own then).
    Each,
    /// Two stacks of all experts, `[experts, 2·ffn, hidden]` (gate, then up) and
    /// `[experts, hidden, ffn]`.
    Joined,
    /// The same, as tensors that are no module's weight.
    JoinedBare,
    /// The same, transposed: `[experts, hidden, 2·ffn]` and `[experts, ffn, hidden]`.
    JoinedTurned,
    /// [`JoinedBare`](Stored::JoinedBare), or, of any other shape, [`JoinedTurned`](Stored::JoinedTurned).
    JoinedEitherWay,
    /// Three stacks, the last one of transposed matrices, `[experts, ffn, hidden]` all of them.
    Stacks,
    /// Three stacks, `[experts, ffn, hidden]` (gate, up) and `[experts, hidden, ffn]`.
    Three,
    /// Two stacks of transposed matrices, `[experts, hidden, 2·ffn]`, whose columns are gate and up
    /// in turns, and `[experts, ffn, hidden]`; a bias of each column. Codes are stored as the
    /// untransposed matrices, one below the other. In GGUF files three stacks of matrices that are
    /// not transposed.
    Turned,
}

/// The form in a checkpoint: some have joined matrices, others separate ones.
fn stored_as(f: &Draft, stored: Stored) -> Stored {
    match stored {
        Stored::Each | Stored::Joined if f.stores(EXPERTS_GATE_UP, Kind::Bare) => Stored::JoinedBare,
        // GGUF files have these separate where Transformers joins them.
        Stored::Joined
        | Stored::JoinedBare
        | Stored::JoinedTurned
        | Stored::JoinedEitherWay
        | Stored::Stacks
        | Stored::Three
            if f.stores(EXPERT_UP, Kind::Matrix) =>
        {
            Stored::Each
        }
        other => other,
    }
}

/// Three stacks of all experts: gate, up, down.
fn three(f: &mut Draft, kind: Kind, [gate, up, down]: [[usize; 3]; 3]) -> [Value; 3] {
    [(EXPERTS_GATE, gate), (EXPERTS_UP, up), (EXPERTS_DOWN, down)].map(|(part, shape)| f.weight(part, kind, &shape))
}

/// The matrices of all experts, one below the other, and their biases: gates (if there are any),
/// up, down.
pub(crate) fn matrices(f: &mut Draft, m: &Matrices) -> (Option<Stack>, [Stack; 2]) {
    let (hidden, ffn, count) = (m.width, m.ffn, m.count);
    let both = ffn.saturating_mul(2);
    let (all, down) = match stored_as(f, m.stored) {
        Stored::Turned => {
            let [gate, up, down] =
                if f.stores(EXPERTS_DOWN_ROWS, Kind::Bare) { apart_with_biases(f, m) } else { turned(f, m) };
            return (Some(gate), [up, down]);
        }
        // Transformers 5 has these in stacks, too.
        Stored::Each if !m.gated && f.stores(EXPERTS_UP, Kind::Bare) => {
            let up = f.weight(EXPERTS_UP, Kind::Bare, &[count, ffn, hidden]);
            let down = f.weight(EXPERTS_DOWN, Kind::Bare, &[count, hidden, ffn]);
            return plain(None, [up, down].map(|w| f.op(Op::Flatten, &[w])));
        }
        Stored::Each => {
            let gate = m.gated.then(|| each(f, EXPERT_GATE, count, [ffn, hidden]));
            let up = each(f, EXPERT_UP, count, [ffn, hidden]);
            return plain(gate, [up, each(f, EXPERT_DOWN, count, [hidden, ffn])]);
        }
        Stored::Stacks => return stacks(f, [count, ffn, hidden]),
        Stored::Three => return three_stacks(f, [count, ffn, hidden]),
        Stored::Joined => {
            let all = f.weight(EXPERTS_GATE_UP, Kind::Matrix, &[count, both, hidden]);
            (all, f.weight(EXPERTS_DOWN, Kind::Matrix, &[count, hidden, ffn]))
        }
        Stored::JoinedBare => {
            // The class of LongCat's models has such matrices also of experts that compute nothing.
            let more = [count.saturating_add(m.zero), both, hidden];
            if m.zero > 0 && f.shape_of(EXPERTS_GATE_UP, Kind::Bare) == Some(&more[..]) {
                let all = f.weight(EXPERTS_GATE_UP, Kind::Bare, &more);
                let all = f.op(Op::Flatten, &[all]);
                let all = f.op(Op::SliceRows { start: 0, len: count.saturating_mul(both) }, &[all]);
                let down = f.weight(EXPERTS_DOWN, Kind::Bare, &[count, hidden, ffn]);
                return joined(f, ffn, all, down);
            }
            let all = f.weight(EXPERTS_GATE_UP, Kind::Bare, &[count, both, hidden]);
            (all, f.weight(EXPERTS_DOWN, Kind::Bare, &[count, hidden, ffn]))
        }
        Stored::JoinedTurned => {
            let all = turned_stack(f, EXPERTS_GATE_UP, [count, both, hidden]);
            (all, turned_stack(f, EXPERTS_DOWN, [count, hidden, ffn]))
        }
        Stored::JoinedEitherWay => {
            let mut stack = |part, shape: [usize; 3]| match f.shape_of(part, Kind::Bare) == Some(&shape[..]) {
                true => f.weight(part, Kind::Bare, &shape),
                false => turned_stack(f, part, shape),
            };
            (stack(EXPERTS_GATE_UP, [count, both, hidden]), stack(EXPERTS_DOWN, [count, hidden, ffn]))
        }
    };
    let all = f.op(Op::Flatten, &[all]);
    joined(f, ffn, all, down)
}

/// Matrices without biases, as [`matrices`] gives them.
fn plain(gate: Option<Value>, w: [Value; 2]) -> (Option<Stack>, [Stack; 2]) {
    (gate.map(|w| (w, None)), w.map(|w| (w, None)))
}

/// Matrices of [`Stored::Stacks`].
fn stacks(f: &mut Draft, shape: [usize; 3]) -> (Option<Stack>, [Stack; 2]) {
    let [gate, up, down] = three(f, Kind::Stack, [shape; 3]);
    let down = f.op(Op::Transpose, &[down]);
    let [gate, up, down] = [gate, up, down].map(|w| f.op(Op::Flatten, &[w]));
    plain(Some(gate), [up, down])
}

/// Matrices of [`Stored::Three`].
fn three_stacks(f: &mut Draft, [count, ffn, hidden]: [usize; 3]) -> (Option<Stack>, [Stack; 2]) {
    let shapes = [[count, ffn, hidden], [count, ffn, hidden], [count, hidden, ffn]];
    let parts = [EXPERTS_GATE, EXPERTS_UP, EXPERTS_DOWN];
    // Codes are rows of one matrix already, also beside a stack of floats.
    // (Decoded ones, too.)
    let below = shapes.map(|[count, n, k]| [count.saturating_mul(n), k]);
    let coded: [bool; 3] = std::array::from_fn(|i| {
        f.is_coded(parts[i], Kind::Matrix) || f.shape_of(parts[i], Kind::Matrix) == Some(&below[i][..])
    });
    let all: [Value; 3] = std::array::from_fn(|i| match (coded[i], shapes[i]) {
        (true, [count, n, k]) => f.weight(parts[i], Kind::Matrix, &[count.saturating_mul(n), k]),
        (false, shape) => f.weight(parts[i], Kind::Matrix, &shape),
    });
    let [gate, up, down] = std::array::from_fn(|i| if coded[i] { all[i] } else { f.op(Op::Flatten, &[all[i]]) });
    plain(Some(gate), [up, down])
}

/// Gates and up of experts of width `ffn` in one matrix, and the stack of their down, as
/// [`matrices`] gives them.
fn joined(f: &mut Draft, ffn: usize, all: Value, down: Value) -> (Option<Stack>, [Stack; 2]) {
    let run = ffn.saturating_mul(2);
    let [gate, up] = [0, ffn].map(|start| f.op(Op::PickRows { run, start, len: ffn, pairs: 0 }, &[all]));
    let down = f.op(Op::Flatten, &[down]);
    (Some((gate, None)), [(up, None), (down, None)])
}

/// Matrices of all experts that are stored transposed.
fn turned_stack(f: &mut Draft, part: Part, [count, n, k]: [usize; 3]) -> Value {
    let w = f.weight(part, Kind::Bare, &[count, k, n]);
    f.op(Op::Transpose, &[w])
}

/// Matrices of all experts, and their biases.
pub(crate) type Stack = (Value, Option<Value>);

/// The matrices `[rows, columns]` of all experts as [`Stored::Turned`] and GGUF files have them, one
/// below the other, and their biases. `turned`: floats are stored as `[columns, rows]`. Codes share scales
/// along the inputs, so they are rows already.
fn stack(
    f: &mut Draft,
    m: &Matrices,
    [part, bias]: [Part; 2],
    [rows, columns]: [usize; 2],
    turned: bool,
) -> [Value; 2] {
    // Decoded codes keep their order.
    let below = [m.count.saturating_mul(rows), columns];
    let coded = f.is_coded(part, Kind::Bare) || f.shape_of(part, Kind::Bare) == Some(&below[..]);
    let w = match (coded, turned) {
        (true, _) => f.weight(part, Kind::Bare, &below),
        (false, true) => {
            let w = f.weight(part, Kind::Bare, &[m.count, columns, rows]);
            let w = f.op(Op::Transpose, &[w]);
            f.op(Op::Flatten, &[w])
        }
        (false, false) => {
            let w = f.weight(part, Kind::Bare, &[m.count, rows, columns]);
            f.op(Op::Flatten, &[w])
        }
    };
    let b = f.weight(bias, Kind::Bare, &[m.count, rows]);
    [w, f.op(Op::Flatten, &[b])]
}

/// Matrices of [`Stored::Turned`].
fn turned(f: &mut Draft, m: &Matrices) -> [(Value, Option<Value>); 3] {
    let (hidden, both) = (m.width, m.ffn.saturating_mul(2));
    let all = stack(f, m, [EXPERTS_GATE_UP, EXPERTS_GATE_UP_BIAS], [both, hidden], true);
    let part = |f: &mut Draft, start| {
        let pick = Op::PickRows { run: 2, start, len: 1, pairs: 0 };
        all.map(|x| f.op(pick.clone(), &[x]))
    };
    let (gate, up) = (part(f, 0), part(f, 1));
    let down = stack(f, m, [EXPERTS_DOWN, EXPERTS_DOWN_BIAS], [hidden, m.ffn], true);
    [gate, up, down].map(|[w, b]| (w, Some(b)))
}

/// Matrices of [`Stored::Turned`] in GGUF files.
fn apart_with_biases(f: &mut Draft, m: &Matrices) -> [(Value, Option<Value>); 3] {
    let hidden = m.width;
    let three = [
        ([EXPERTS_GATE, EXPERTS_GATE_BIAS], [m.ffn, hidden]),
        ([EXPERTS_UP, EXPERTS_UP_BIAS], [m.ffn, hidden]),
        ([EXPERTS_DOWN_ROWS, EXPERTS_DOWN_BIAS], [hidden, m.ffn]),
    ];
    three.map(|(parts, shape)| {
        let [w, b] = stack(f, m, parts, shape, false);
        (w, Some(b))
    })
}

/// Matrices of so many rows each, each filled up with rows of zeros to whole blocks, and how many
/// columns products with them have, if there are such rows.
pub(crate) fn in_blocks(f: &mut Draft, w: Value, rows: usize) -> (Value, usize) {
    (filled(f, w, rows), if rows.is_multiple_of(BLOCK) { 0 } else { rows })
}

/// A matrix per expert, each its own tensor, one below the other.
fn each(f: &mut Draft, part: Part, count: usize, shape: [usize; 2]) -> Value {
    let parts: Vec<Value> = (0..count).map(|e| f.expert(part, e, shape)).collect();
    match parts[..] {
        [one] => one,
        _ => f.op(Op::ConcatRows, &parts),
    }
}
