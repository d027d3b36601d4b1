//! The rows of a cache that tokens have selected: attention walks over a selection as it walks over the slots of a
//! cache without gaps, and finds each slot's row by its number.

use super::share::Item;
use crate::cx::{Args, row_stride};
use crate::mlir::{Builder, Cmp, F32, I1, I32, I64, V};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::kernel::{ParamId, RowElem};

/// The selections of a step: for each token the numbers of its rows, f32, ascending; a number of no row that the token
/// sees ends them.
#[derive(Clone, Copy)]
pub(super) struct Selections {
    /// Where they are, `[T, most]`.
    pub(super) rows: ParamId,
    /// Most rows of a token.
    pub(super) most: usize,
    /// Tokens of a row.
    pub(super) every: usize,
}

impl Selections {
    /// Rows that a token at `position` sees.
    fn seen(&self, b: &mut Builder, position: V) -> V {
        let end = b.addc(position, 1);
        b.divc(end, self.every as i64)
    }

    /// The selection of a token.
    fn of(&self, b: &mut Builder, args: Args<'_>, token: V, position: V) -> Selection {
        let token = b.zext(token, I64);
        let start = b.mulc(token, row_stride(self.most, RowElem::F32) as i64);
        Selection { line: b.at(args.operand(self.rows), start), seen: self.seen(b, position), most: self.most }
    }

    /// How many rows a token at `position` has selected.
    pub(super) fn count(&self, b: &mut Builder, args: Args<'_>, token: V, position: V) -> V {
        let selection = self.of(b, args, token, position);
        let most = b.i32(self.most as i64);
        let most = b.min(most, selection.seen);
        let (none, last) = (b.i32(0), b.addc(most, -1));
        let last = b.smax(last, none);
        let (_, whole) = selection.row(b, last);
        // Nearly always all that there may be; else numbers of rows come before the others.
        b.if_else(whole, &[I32], |_| vec![most], |b| vec![selection.search(b, most)])[0]
    }
}

/// The selection of one token.
#[derive(Clone, Copy)]
struct Selection {
    /// Its numbers.
    line: V,
    /// Rows that the token sees.
    seen: V,
    /// Numbers that are there.
    most: usize,
}

impl Selection {
    /// Number `at` as the row that it names, and whether the token sees that.
    fn row(&self, b: &mut Builder, at: V) -> (V, V) {
        let offset = b.shlc(at, 2);
        let p = b.at(self.line, offset);
        let (x, zero) = (b.load(p, F32), b.f32(0.0));
        let some = b.op(I1, format!("arith.cmpf oge, {x}, {zero} : f32"));
        let x = b.select(some, x, zero);
        let row = b.fptosi(x, I32);
        let below = b.cmp(Cmp::Ult, row, self.seen);
        (row, b.and(some, below))
    }

    /// The first of `most` numbers that is of no row.
    fn search(&self, b: &mut Builder, most: V) -> V {
        let (zero, one) = (b.i32(0), b.i32(1));
        let turns = b.i32(i64::from(self.most.ilog2()) + 1);
        let last = b.i32(self.most as i64 - 1);
        b.for_((zero, turns, one), &[zero, most], |b, _, limits| {
            let (low, high) = (limits[0], limits[1]);
            let sum = b.add(low, high);
            let half = b.shrc(sum, 1);
            let at = b.min(half, last);
            let (open, (_, there)) = (b.cmp(Cmp::Slt, low, high), self.row(b, at));
            let after = b.addc(half, 1);
            let (up, down) = (b.select(there, after, low), b.select(there, high, half));
            vec![b.select(open, up, low), b.select(open, down, high)]
        })[0]
    }
}

/// The rows of an item's token.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    selection: Selection,
    /// How many there are.
    count: V,
    /// The token's row of the block table.
    table: V,
}

impl Chosen {
    /// Those of an item, if its kernel goes by selections.
    pub(super) fn new(
        b: &mut Builder,
        selections: Option<Selections>,
        args: Args<'_>,
        (item, table): (&Item, V),
    ) -> Option<Chosen> {
        let selections = selections?;
        let position = args.position(b, item.token);
        Some(Chosen { selection: selections.of(b, args, item.token, position), count: item.seen, table })
    }

    /// Where row number `at` of the selection lies, as its slot in the pool; beyond the last, any row.
    pub(super) fn place(&self, b: &mut Builder, at: V) -> V {
        let (inside, last) = (b.cmp(Cmp::Ult, at, self.count), b.i32(self.selection.most as i64 - 1));
        let at = b.min(at, last);
        let (row, there) = self.selection.row(b, at);
        let (there, first) = (b.and(inside, there), b.i32(0));
        let row = b.select(there, row, first);
        let page = b.divc(row, PAGE_TOKENS as i64);
        let offset = b.shlc(page, 2);
        let p = b.at(self.table, offset);
        let entry = b.load_const(p, I32);
        let start = b.mulc(entry, PAGE_TOKENS as i64);
        let within = b.remc(row, PAGE_TOKENS as i64);
        b.add(start, within)
    }
}

/// The page of so many bytes that a slot of the pool is in, as bytes from the first one, and its number there.
pub(super) fn page_and_line(b: &mut Builder, bytes: usize, place: V) -> (V, V) {
    let page = b.divc(place, PAGE_TOKENS as i64);
    let page = b.zext(page, I64);
    (b.mulc(page, bytes as i64), b.remc(place, PAGE_TOKENS as i64))
}
