//! The parts before and after the layers of most models: rows of a table, and logits.

use crate::arch::blocks::attention::{Norm, norm, product};
use crate::arch::blocks::attention_scores::mean_so_far;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{HEAD, Kind, NORM, Part, TABLE};
use crate::embedding::Embedding;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op, Value};
use llmcc_ir::output::Output;

/// The table of embeddings `[vocab, width]`. If the model's head is tied to it, both read the same
/// table.
#[track_caller]
pub(crate) fn table(f: &mut Draft, width: usize) -> Value {
    let facts = f.facts();
    let shape = [facts.vocab, width];
    let shared = facts.tied && (f.output() == Output::Logits || f.stands_beside());
    if shared { f.tied_table(shape) } else { f.weight(TABLE, Kind::Table, &shape) }
}

/// Rows of a second table, which follow the first's.
pub(crate) const MORE_ROWS: Part = Part("table.more");

/// The same for a table with so many rows after the vocabulary's, or for two tables with as many
/// together.
#[track_caller]
pub(crate) fn table_with(f: &mut Draft, more: usize, width: usize) -> Value {
    if more == 0 {
        return table(f, width);
    }
    let len = f.facts().vocab;
    let rows = len.saturating_add(more);
    let first = f.shape_of(TABLE, Kind::Bare).and_then(|shape| shape.first().copied()).filter(|n| *n < rows);
    let all = match first {
        Some(first) => {
            let table = f.weight(TABLE, Kind::Bare, &[first, width]);
            if first >= len {
                table
            } else {
                let rest = f.weight(MORE_ROWS, Kind::Bare, &[rows - first, width]);
                f.op(Op::ConcatRows, &[table, rest])
            }
        }
        None => f.weight(TABLE, Kind::Table, &[rows, width]),
    };
    f.op(Op::SliceRows { start: 0, len }, &[all])
}

/// The embeddings of the step's tokens, `[T, hidden]`.
#[track_caller]
pub(crate) fn embedded(f: &mut Draft) -> Value {
    let table = table(f, f.facts().hidden);
    let tokens = f.input(Input::Tokens);
    f.op(Op::Embed, &[table, tokens])
}

/// The requested rows of `x`, normalized if asked for, `[R, hidden]`: picked first, so that norm
/// and head cost only as much as requested.
#[track_caller]
pub(crate) fn picked(f: &mut Draft, last: Option<Norm>, x: &Carried) -> Value {
    let x = f.carried("x", x);
    let normed = |f: &mut Draft, x| match last {
        Some(last) => norm(f, NORM, last, x, f.facts().hidden),
        None => x,
    };
    if f.embedding().is_some_and(|e| e.means_first()) {
        let x = normed(f, x);
        let x = mean_so_far(f, x);
        return gathered(f, x);
    }
    if f.keeps_hidden() {
        let x = normed(f, x);
        f.keep(x);
        return gathered(f, x);
    }
    let x = gathered(f, x);
    normed(f, x)
}

/// The wanted rows of `x`.
#[track_caller]
pub(crate) fn gathered(f: &mut Draft, x: Value) -> Value {
    let rows = f.input(Input::OutRows);
    f.op(Op::GatherRows, &[x, rows])
}

/// `head` without anything beside the norm `last` and a matrix.
///
/// # Errors
/// The checkpoint lacks a tensor, or has it in another shape.
#[track_caller]
pub(crate) fn head(l: &mut Lifter, last: Norm, x: &Carried) -> Result<(), FrontendError> {
    let mut f = l.func("head");
    let x = picked(&mut f, Some(last), x);
    let facts = f.facts();
    let shape = [facts.vocab, facts.hidden];
    let table = if facts.tied { f.tied_table(shape) } else { f.matrix(HEAD, shape) };
    let logits = f.matmul(x, table);
    f.call(&[logits])?;
    Ok(())
}

/// Whether the head has a matrix of its own: the checkpoint has one, or, without a checkpoint, its
/// configuration says so.
pub(crate) fn head_apart(f: &Draft) -> bool {
    f.matrix_of(HEAD).map_or(!f.facts().tied, |(ckpt, name)| ckpt.info(&name).is_some())
}

/// The rows of an embedding: the output of its linear layers for `x`, cut to the kept columns.
#[track_caller]
pub(crate) fn projected(f: &mut Draft, embedding: &Embedding, x: Value) -> Value {
    let made = embedding.layers.iter().enumerate().fold(x, |x, (i, layer)| {
        let [w, b] = ["weight", "bias"].map(|end| format!("{}/linear.{end}", layer.folder));
        let w = f.named_weight(&format!("dense{i}.w"), w, Kind::Matrix, &[layer.out, layer.inner]);
        let b = layer.bias.then(|| f.named_weight(&format!("dense{i}.b"), b, Kind::Bias, &[layer.out]));
        let y = product(f, x, w, b);
        layer.act.map_or(y, |act| f.unary(act, y))
    });
    match embedding.keep {
        Some(len) => f.op(Op::SliceCols { start: 0, len }, &[made]),
        None => made,
    }
}
