//! Queries that grow with the position, by learned numbers of each head (scalable softmax, arXiv 2501.19399).

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use llmcc_ir::graph::{Op, Value};

/// Queries of so many columns a head at position `p`, times `scale·ln(p + 1) + bias`, both learned
/// for each head, in this order.
#[track_caller]
pub(crate) fn tuned_by_heads<const N: usize>(
    f: &mut Draft,
    heads: usize,
    learned: [Part; 2],
    q: [(Value, usize); N],
    positions: Value,
) -> [Value; N] {
    let logs = (1..=f.max_context()).map(|p| libm::log(p as f64) as f32).collect();
    let table = f.shared_table("attn.logs", "$attention.logs", [f.max_context(), 1], logs);
    let logs = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
    let weights = learned.map(|part| f.weight(part, Kind::Bare, &[heads]));
    q.map(|(q, times)| {
        let [grown, same] = weights.map(|w| {
            let of_columns = f.op(Op::RepeatEach { times }, &[w]);
            f.mul(q, of_columns)
        });
        let grown = f.op(Op::Combine, &[logs, grown]);
        f.add(grown, same)
    })
}
