//! Rows of the tokens beside a token.

use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{F32, Op, Value};

/// Scores of tokens that are not the one that is looked for: their weights are 0 in any floating point.
const NONE: f32 = -1e4;

/// The rows `[T, width]` of the next token of the text, and of the one before it; zeros where there is
/// none. By attention that sees a token on either side, whose scores say which one: where it is not
/// there, all the weight is the sink's.
#[track_caller]
pub(crate) fn neighbours(f: &mut Draft, x: Value, width: usize, positions: Value) -> [Value; 2] {
    let dim = (1..=DIM.min(width)).rev().find(|d| width.is_multiple_of(*d)).unwrap_or(1);
    let heads = width / dim;
    let kv = f.kv("neighbours.kv", heads, (dim, dim), Some(2));
    let kv = f.op(Op::KvAppend, &[kv, x, x, positions]);
    let sinks = f.computed("neighbours.sinks", "$neighbours.sinks", vec![NONE / 2.0; heads]);
    let of = |f: &mut Draft, name: &str, scores: [f32; 3]| {
        let scores = f.computed(name, &format!("${name}"), scores.repeat(heads));
        let op = Op::Attention {
            heads,
            scale: F32::new(0.0),
            softcap: F32::new(0.0),
            causal: false,
            chunked: false,
            biased: true,
            sums: false,
        };
        f.op(op, &[x, kv, positions, sinks, scores])
    };
    let next = of(f, "neighbours.next", [NONE, NONE, 0.0]);
    [next, of(f, "neighbours.before", [0.0, NONE, NONE])]
}

/// Columns of the heads that do it, at most.
const DIM: usize = 64;
