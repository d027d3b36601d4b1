//! Rows of a table by hashes of several tokens' ids: a block for each token and hash. Hashes are of 64
//! bits, the numbers of rows of 32.

use crate::cx::{Args, Cx, share_out, when_below};
use crate::embed::{self, Entry};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, V, WARP};
use crate::piece::row_at;
use crate::{Source, blocks, per_rows};
use llmcc_ir::kernel::{EmbedHashed, RowElem};

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &EmbedHashed) -> Source {
    let table = cx.kernel.matrix(k.table);
    let (cols, count) = (table.k, k.sizes.len());
    let threads = (cols / 4).next_multiple_of(WARP).clamp(WARP, 256) as u32;
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (row, number) = (b.sreg("ctaid.x"), b.sreg("ctaid.y"));
        when_below(b, row, m, |b| {
            let found = found(b, cx, args, k, (row, number));
            let entry = Entry::of(b, args.operand(k.table), cols, table.format, found);
            let line = row_at(b, args.operand(k.out), count * cols, RowElem::F32, row);
            let skip = b.mulc(number, cols as i64 * 4);
            let line = b.at(line, skip);
            let quads = b.i32(cols.div_ceil(4) as i64);
            share_out(b, quads, threads, |b, quad| {
                let values = entry.four(b, quad);
                embed::store(b, line, Elem::F32, cols, quad, &values);
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), threads, [per_rows(1), blocks(count), blocks(1)])
}

/// The row of the table that hash `number` of a token chooses.
fn found(b: &mut Builder, cx: &Cx<'_>, args: Args<'_>, k: &EmbedHashed, (row, number): (V, V)) -> V {
    let hashes = k.hashes();
    let ids = row_at(b, args.operand(k.ids), cx.cols(k.ids), RowElem::F32, row);
    let mut joined: Option<V> = None;
    let mut of_first = vec![];
    for (i, factor) in k.factors.iter().enumerate() {
        let p = b.atc(ids, i as i64 * 4);
        let id = b.load(p, F32);
        let id = b.fptosi(id, I64);
        let product = b.mulc(id, *factor as i64);
        let all = joined.map_or(product, |joined| b.xor(joined, product));
        of_first.push(all);
        joined = Some(all);
    }
    // State of each hash, from the last one on: where another begins, its own.
    let last = k.sizes.len() - 1;
    let of = |b: &mut Builder, i: usize| {
        (of_first[hashes.ids(i) - 1], b.i64(k.sizes[i] as i64), b.i32(hashes.first(i) as i64))
    };
    let mut chosen = of(b, last);
    for i in (0..last).rev() {
        let own = of(b, i);
        let is = b.cmpc(Cmp::Eq, number, i as i64);
        chosen = (b.select(is, own.0, chosen.0), b.select(is, own.1, chosen.1), b.select(is, own.2, chosen.2));
    }
    let (hash, size, first) = chosen;
    let rest = b.op(I64, format!("arith.remui {hash}, {size} : i64"));
    let rest = b.trunc(rest, I32);
    b.add(first, rest)
}
