//! Linear recurrences: some columns of a head's matrix per warp, in registers for as long as a
//! sequence has tokens in the step.
//!
//! The rows of a column are spread over some lanes; each lane has several pieces of adjacent rows,
//! and several columns. Sums over rows go per lane, in as many chains as a piece has rows, then
//! over chains and lanes in a fixed tree; so a column's numbers depend on its sequence alone,
//! whatever else is in the batch and however it was cut into steps. Queries, keys and values of the
//! next token are on their way while one is computed, and the lanes join the result of the one
//! before; common reads of a block's warps come from the first-level cache.
//!
//! The tokens of a sequence follow one another: a long prompt takes the time of one token, some
//! hundred cycles, times their number.

mod inputs;

use crate::Source;
use crate::cx::{Args, Cx};
use crate::expr::unary;
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::tokens::{Tokens, each_sequence, sequence_grid};
use inputs::{Line, TokenInputs};
use llmcc_ir::graph::{UnaryOp, Update};
use llmcc_ir::kernel::{Recurrence, RowElem};
use llmcc_ir::state::FixedSpec;

/// Most warps of a block.
const WARPS: usize = 4;
/// Rows that a lane has of a column, unless there are more than a warp holds so.
const ROWS: usize = 16;
/// Lanes of a column, if there are as many pieces.
const LANES: usize = 8;
/// Numbers of the state that a lane has.
const HELD: usize = 32;
/// Most rows of a state: with queries and keys they are in registers. (Models have up to 256.)
pub const MOST: usize = 1024;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Recurrence) -> Source {
    let plan = Division::new(cx, k);
    let threads = (plan.warps * WARP) as u32;
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        let m = cx.row_count(b, args);
        let t = plan.thread(b, args, m);
        each_sequence(b, args, |b, seq| plan.sequence(b, &t, seq));
    });
    let of_sequence = plan.state.heads * plan.blocks();
    Source::new(cx.entry(), (mlir, program), threads, sequence_grid(of_sequence))
}

/// How the work is divided.
struct Division<'k> {
    k: &'k Recurrence,
    state: FixedSpec,
    q: Line,
    key: Line,
    v: Line,
    decay: Line,
    with: Line,
    write: Option<Line>,
    /// A decay per row of the state, else per head.
    per_row: bool,
    /// Rows of a piece.
    piece: usize,
    /// Lanes that share a column.
    lanes: usize,
    /// Columns of a lane.
    width: usize,
    warps: usize,
}

/// A thread's place.
struct Owner<'a> {
    args: Args<'a>,
    m: V,
    lane: V,
    /// Its number among the lanes of its columns.
    part: V,
    head: V,
    /// Group of queries and keys of the head.
    group: V,
    /// Whether it has columns, and the first of them; else of the last that there are.
    inside: V,
    column: V,
}

impl<'k> Division<'k> {
    fn new(cx: &Cx<'_>, k: &'k Recurrence) -> Division<'k> {
        let state = cx.kernel.fixed(k.state);
        let FixedSpec { heads, rows, cols } = state;
        let line = |p, start| Line::new(cx, p, start);
        let (q, key, v) = (line(k.q, k.q_start), line(k.k, k.k_start), line(k.v, k.v_start));
        let (decay, with) = (line(k.decay, 0), line(k.with, 0));
        let write = k.write.map(|p| line(p, 0));
        let out = cx.cols(k.out);
        let piece = piece::widest(4, [rows, q.unit(), key.unit(), k.q_start, k.k_start]);
        let pieces = rows / piece;
        let few = pieces.next_power_of_two().min(LANES);
        let lanes = rows.div_ceil(ROWS).next_power_of_two().clamp(few, WARP);
        let decays = decay.cols.unwrap_or_else(|| cx.kernel.vector(k.decay));
        let per_row = decays != heads;
        let mut plan = Division { k, state, q, key, v, decay, with, write, per_row, piece, lanes, width: 1, warps: 1 };
        plan.width = piece::widest(4, [cols, v.unit(), k.v_start, out]);
        // The rates of a scan are as many as the numbers of the state.
        let held = if k.update == Update::Scan { HELD / 2 } else { HELD };
        let sms = cx.gpu.sms as usize;
        // Fewer columns of a lane where there are few lanes: then the time of the last one matters.
        while plan.width > 1 && (plan.held() > held || heads * (cols / plan.width) * lanes < sms * WARPS * WARP) {
            plan.width /= 2;
        }
        plan.warps = cols.div_ceil(plan.of_warp()).min(WARPS);
        plan
    }

    /// Pieces of a lane; the last may not exist.
    fn pieces(&self) -> usize {
        (self.state.rows / self.piece).div_ceil(self.lanes)
    }

    /// Numbers of the state that a lane has.
    fn held(&self) -> usize {
        self.pieces() * self.piece * self.width
    }

    /// Columns of a warp.
    fn of_warp(&self) -> usize {
        WARP / self.lanes * self.width
    }

    /// Blocks of a head.
    fn blocks(&self) -> usize {
        self.state.cols.div_ceil(self.warps * self.of_warp())
    }

    fn thread<'a>(&self, b: &mut Builder, args: Args<'a>, m: V) -> Owner<'a> {
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let lane = b.lane_of(tid);
        let shift = i64::from(self.lanes.trailing_zeros());
        let (team, part) = (b.shrc(tid, shift), b.andc(tid, self.lanes as i64 - 1));
        let (head, within) = (b.divc(block, self.blocks() as i64), b.remc(block, self.blocks() as i64));
        let first = b.mulc(within, (self.warps * self.of_warp()) as i64);
        let column = b.mulc(team, self.width as i64);
        let column = b.add(first, column);
        let inside = b.cmpc(Cmp::Slt, column, self.state.cols as i64);
        let last = b.i32((self.state.cols - self.width) as i64);
        let column = b.min(column, last);
        let group = b.divc(head, (self.state.heads / self.k.groups) as i64);
        Owner { args, m, lane, part, head, group, inside, column }
    }

    /// The tokens of a sequence, and its state before and after.
    fn sequence(&self, b: &mut Builder, t: &Owner<'_>, seq: V) {
        let tokens = Tokens { args: t.args, lane: t.lane, seq, m: t.m };
        let slot = t.args.slot(b, t.args.operand(self.k.state), self.state.bytes(), seq);
        let FixedSpec { rows, cols, .. } = self.state;
        let matrix = b.mulc(t.head, (rows * cols) as i64);
        let first = b.add(matrix, t.column);
        let state = col_at(b, slot, Elem::F32, first);
        let rates = match self.k.update {
            Update::Scan => {
                let rates = col_at(b, t.args.operand(self.k.with), Elem::F32, first);
                self.load(b, t, rates)
            }
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => vec![],
        };
        let (zero, types) = (b.f32(0.0), vec![F32; self.held()]);
        let no = b.no();
        let init: Vec<V> = [&[no][..], &vec![zero; self.held()]].concat();
        let done = tokens.chunks(b, &init, |b, first, mask, carried| {
            let numbers = b.if_else(carried[0], &types, |_| carried[1..].to_vec(), |b| self.load(b, t, state));
            let numbers = self.chunk(b, t, first, mask, (&rates, &numbers));
            let yes = b.yes();
            [vec![yes], numbers].concat()
        });
        b.if_(done[0], |b| self.store(b, t, state, &done[1..]));
    }

    /// Number of the lane's piece `i`, and whether it exists if that is not known.
    fn number(&self, b: &mut Builder, t: &Owner<'_>, i: usize) -> (V, Option<V>) {
        let number = b.addc(t.part, (i * self.lanes) as i64);
        let all = self.state.rows / self.piece;
        let partial = (i + 1) * self.lanes > all;
        (number, partial.then(|| b.cmpc(Cmp::Slt, number, all as i64)))
    }

    /// The lane's numbers of the state, row by row; zeros where it has none.
    fn load(&self, b: &mut Builder, t: &Owner<'_>, state: V) -> Vec<V> {
        let mut all = vec![];
        for i in 0..self.pieces() {
            let (has, p) = self.place(b, t, state, i);
            let n = self.piece * self.width;
            let read = |b: &mut Builder| {
                let row = |i: usize| {
                    let p = b.atc(p, (i * self.state.cols * 4) as i64);
                    piece::load(b, p, Elem::F32, self.width)
                };
                (0..self.piece).flat_map(row).collect()
            };
            let none = |b: &mut Builder| {
                let zero = b.f32(0.0);
                vec![zero; n]
            };
            all.extend(b.if_else(has, &vec![F32; n], read, none));
        }
        all
    }

    fn store(&self, b: &mut Builder, t: &Owner<'_>, state: V, numbers: &[V]) {
        for (i, numbers) in numbers.chunks(self.piece * self.width).enumerate() {
            let (has, p) = self.place(b, t, state, i);
            b.if_(has, |b| {
                for (i, row) in numbers.chunks(self.width).enumerate() {
                    let p = b.atc(p, (i * self.state.cols * 4) as i64);
                    piece::store(b, row, p, Elem::F32);
                }
            });
        }
    }

    /// Whether the lane has piece `i` of the state, and its address.
    fn place(&self, b: &mut Builder, t: &Owner<'_>, state: V, i: usize) -> (V, V) {
        let (number, exists) = self.number(b, t, i);
        let at = b.mulc(number, (self.piece * self.state.cols) as i64);
        let p = col_at(b, state, Elem::F32, at);
        let has = exists.map_or(t.inside, |e| b.and(t.inside, e));
        (has, p)
    }

    /// The tokens of `mask` among the 32 from `first` on.
    fn chunk(&self, b: &mut Builder, t: &Owner<'_>, first: V, mask: V, (rates, numbers): (&[V], &[V])) -> Vec<V> {
        let bit = b.lowest(mask);
        let token = b.add(first, bit);
        let inputs = self.inputs(b, t, token);
        let (zero, count, one) = (b.i32(0), b.count_ones(mask), b.i32(1));
        let (none, nothing) = (b.i32(-1), b.f32(0.0));
        let init = [vec![mask, token, none], vec![nothing; self.width], inputs.flat(), numbers.to_vec()].concat();
        let done = b.for_((zero, count, one), &init, |b, _, carried| {
            let (mask, token, before) = (carried[0], carried[1], carried[2]);
            let (parts, rest) = carried[3..].split_at(self.width);
            let (now, numbers) = rest.split_at(rest.len() - self.held());
            // Lanes join their parts of the last result beside this token's loads.
            let result = self.joined(b, parts);
            // The lowest bit is this token's. After the last one it is read again, for nothing.
            let less = b.addc(mask, -1);
            let rest = b.and(mask, less);
            let (bit, last) = (b.lowest(rest), b.cmpc(Cmp::Eq, rest, 0));
            let next = b.add(first, bit);
            let next = b.select(last, token, next);
            let coming = self.inputs(b, t, next);
            let (numbers, parts) = self.token(b, &inputs.of(now), rates, numbers);
            let some = b.cmpc(Cmp::Sge, before, 0);
            self.result(b, t, before, some, &result);
            [vec![rest, next, token], parts, coming.flat(), numbers].concat()
        });
        let (last, yes) = (self.joined(b, &done[3..][..self.width]), b.yes());
        self.result(b, t, done[2], yes, &last);
        done[done.len() - self.held()..].to_vec()
    }

    /// Stores the result of a token, if there is one.
    fn result(&self, b: &mut Builder, t: &Owner<'_>, token: V, some: V, y: &[V]) {
        let first = b.cmpc(Cmp::Eq, t.part, 0);
        let stores = b.and(first, t.inside);
        let stores = b.and(stores, some);
        b.if_(stores, |b| {
            let cols = self.state.heads * self.state.cols;
            let line = row_at(b, t.args.operand(self.k.out), cols, RowElem::F32, token);
            let of_head = b.mulc(t.head, self.state.cols as i64);
            let column = b.add(of_head, t.column);
            let p = col_at(b, line, Elem::F32, column);
            piece::store(b, y, p, Elem::F32);
        });
    }

    fn inputs(&self, b: &mut Builder, t: &Owner<'_>, token: V) -> TokenInputs {
        let of_group = |b: &mut Builder, line: Line| {
            let line = line.of(b, t.args, token);
            self.rows(b, t, line, t.group, true)
        };
        let of_columns = |b: &mut Builder, line: Line| {
            let line = line.of(b, t.args, token);
            let of_head = b.mulc(t.head, self.state.cols as i64);
            let column = b.add(of_head, t.column);
            let p = col_at(b, line, Elem::F32, column);
            piece::load(b, p, Elem::F32, self.width)
        };
        let of_head = |b: &mut Builder, line: Line| {
            let line = line.of(b, t.args, token);
            let p = col_at(b, line, Elem::F32, t.head);
            vec![b.load(p, F32)]
        };
        let (q, k, v) = (of_group(b, self.q), of_group(b, self.key), of_columns(b, self.v));
        let decay = match self.k.update {
            Update::Scan => of_columns(b, self.decay),
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus if self.per_row => {
                let line = self.decay.of(b, t.args, token);
                self.rows(b, t, line, t.head, false)
            }
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => of_head(b, self.decay),
        };
        let with = match self.k.update {
            Update::Plain | Update::Delta => of_head(b, self.with),
            Update::Erase => of_group(b, self.with),
            Update::Bonus => {
                let line = self.with.of(b, t.args, token);
                self.rows(b, t, line, t.head, true)
            }
            Update::Scan => vec![],
        };
        let write = self.write.map_or(vec![], |line| of_group(b, line));
        TokenInputs { q, k, v, decay, with, write }
    }

    /// The lane's rows out of as many columns as the state has rows, from column `number` times
    /// that count on. A lane without rows gets zeros, or anything.
    fn rows(&self, b: &mut Builder, t: &Owner<'_>, line: V, number: V, zeros: bool) -> Vec<V> {
        let start = b.mulc(number, self.state.rows as i64);
        let line = col_at(b, line, Elem::F32, start);
        let mut all = vec![];
        for i in 0..self.pieces() {
            let (number, exists) = self.number(b, t, i);
            let last = b.i32((self.state.rows / self.piece) as i64 - 1);
            let number = if exists.is_some() { b.min(number, last) } else { number };
            let row = b.mulc(number, self.piece as i64);
            let p = col_at(b, line, Elem::F32, row);
            // Pieces of decays lie where pieces of keys do.
            let values = piece::load(b, p, Elem::F32, self.piece);
            let zero = b.f32(0.0);
            let value = |x: V| exists.filter(|_| zeros).map_or(x, |e| b.select(e, x, zero));
            all.extend(values.into_iter().map(value));
        }
        all
    }

    /// The numbers of the state after a token, and the lane's parts of the token's result.
    fn token(&self, b: &mut Builder, now: &TokenInputs, rates: &[V], numbers: &[V]) -> (Vec<V>, Vec<V>) {
        let update = self.k.update;
        let decay = |b: &mut Builder, i: usize| match update {
            Update::Scan => {
                let exponent = b.fmul(rates[i], now.decay[i % self.width]);
                unary(b, UnaryOp::Exp, exponent)
            }
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
                now.decay[(i / self.width).min(now.decay.len() - 1)]
            }
        };
        let decayed = |b: &mut Builder, (i, s): (usize, &V)| {
            let a = decay(b, i);
            b.fmul(a, *s)
        };
        let mut after: Vec<V> = numbers.iter().enumerate().map(|number| decayed(b, number)).collect();
        let held = |b: &mut Builder, keys: &[V], after: &[V]| {
            let parts = self.parts(b, keys, after);
            self.joined(b, &parts)
        };
        let mut new = now.v.clone();
        match update {
            Update::Delta => {
                let held = held(b, &now.k, &after);
                new = new.iter().zip(held).map(|(v, held)| b.fsub(*v, held)).collect();
            }
            Update::Erase => {
                let held: Vec<V> = held(b, &now.with, &after).into_iter().map(|held| b.fneg(held)).collect();
                after = self.added(b, &now.write, &held, &after);
            }
            Update::Plain | Update::Bonus | Update::Scan => {}
        }
        if let Update::Plain | Update::Delta = update {
            new = new.into_iter().map(|v| b.fmul(now.with[0], v)).collect();
        }
        let after = self.added(b, &now.k, &new, &after);
        let parts = if update == Update::Bonus {
            let bonus: Vec<V> = now.with.iter().zip(&now.k).map(|(u, k)| b.fmul(*u, *k)).collect();
            let read = self.added(b, &bonus, &new, numbers);
            self.parts(b, &now.q, &read)
        } else {
            self.parts(b, &now.q, &after)
        };
        (after, parts)
    }

    /// The numbers and the product of a column with a row.
    fn added(&self, b: &mut Builder, column: &[V], row: &[V], numbers: &[V]) -> Vec<V> {
        let sum = |(i, s): (usize, &V)| b.fma(column[i / self.width], row[i % self.width], *s);
        numbers.iter().enumerate().map(sum).collect()
    }

    /// For each of the lane's columns, the sum over its rows of products with `x`.
    fn parts(&self, b: &mut Builder, x: &[V], numbers: &[V]) -> Vec<V> {
        let column = |b: &mut Builder, j: usize| {
            let mut chains: Vec<Option<V>> = vec![None; self.piece];
            for (row, x) in x.iter().enumerate() {
                let (chain, s) = (&mut chains[row % self.piece], numbers[row * self.width + j]);
                *chain = Some(match *chain {
                    None => b.fmul(*x, s),
                    Some(sum) => b.fma(*x, s, sum),
                });
            }
            let mut sums: Vec<V> = chains.into_iter().flatten().collect();
            while sums.len() > 1 {
                sums = sums.chunks(2).map(|two| b.fadd(two[0], two[1])).collect();
            }
            sums[0]
        };
        (0..self.width).map(|j| column(b, j)).collect()
    }

    /// Sums each column over the lanes that share it; all get the total.
    fn joined(&self, b: &mut Builder, parts: &[V]) -> Vec<V> {
        let masks: Vec<i64> = [16, 8, 4, 2, 1].into_iter().filter(|m| *m < self.lanes as i64).collect();
        parts.iter().map(|part| b.reduce(*part, &masks, |b, x, y| b.fadd(x, y))).collect()
    }
}
