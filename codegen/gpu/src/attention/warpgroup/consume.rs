//! The warps that multiply: 16 rows each, 64 in a group. While the products of a tile's values run,
//! the next tile's scores become probabilities.

use super::order::Order;
use super::products::Matrix;
use super::softmax::{self, ROWS, Rows, row};
use super::{Attend, Event, QUERIES_AT, TILE, WARPS, Walk};
use crate::attention::rows::Row;
use crate::attention::shape::Range;
use crate::mlir::{Builder, Cmp, V};

/// A thread's place.
struct Thread {
    /// Its rows.
    rows: Vec<Row>,
    /// Twice its number in its row.
    column: V,
    /// The queries of its group.
    queries: Matrix,
    order: Order,
}

/// The state of a lane: its rows and their weighted values.
struct State {
    rows: Rows,
    values: Vec<V>,
}

impl State {
    fn carried(&self) -> Vec<V> {
        [self.rows.values(), self.values.clone()].concat()
    }

    fn of(values: &[V]) -> State {
        State { rows: Rows::of(values), values: values[2 * ROWS..].to_vec() }
    }
}

/// Values carried by the loop over a walk's tiles: a tile whose products with the values are to be
/// started.
struct Turn {
    rows: Rows,
    /// Stage of the values, which have arrived.
    stage: V,
    /// The probabilities.
    words: Vec<V>,
    values: Vec<V>,
}

impl Turn {
    fn carried(&self) -> Vec<V> {
        [self.rows.values(), vec![self.stage], self.words.clone(), self.values.clone()].concat()
    }

    fn of(all: &[V]) -> Turn {
        let (rows, all) = all.split_at(2 * ROWS);
        let (words, values) = all[1..].split_at(TILE / 4);
        Turn { rows: Rows::of(rows), stage: all[0], words: words.to_vec(), values: values.to_vec() }
    }
}

impl Attend<'_> {
    pub(super) fn consume(&self, b: &mut Builder) {
        let th = self.consumer(b);
        let (zero, one, nothing) = (b.i32(0), b.i32(1), b.f32(0.0));
        th.order.start(b);
        let start = State { rows: Rows::start(b), values: vec![nothing; self.plan.d / 2] };
        let walks = self.plan.list().count(b);
        let done = b.for_((zero, walks, one), &[vec![zero], start.carried()].concat(), |b, number, carried| {
            let (before, state) = (carried[0], State::of(&carried[1..]));
            let walk = self.walk(b, number);
            let state = self.follow(b, &th, &walk, before, state);
            [vec![b.add(before, walk.tiles)], state.carried()].concat()
        });
        th.order.finish(b);
        let state = State::of(&done[1..]);
        self.give(b, &state.rows, &state.values);
    }

    fn consumer(&self, b: &mut Builder) -> Thread {
        let warp = b.own_warp(self.tid);
        let (g, t) = (b.shrc(self.lane, 2), b.andc(self.lane, 3));
        let first = b.shlc(warp, 4);
        let first = b.add(first, g);
        let rows = (0..ROWS as i64)
            .map(|half| {
                let row = b.addc(first, 8 * half);
                self.block.row(b, row)
            })
            .collect();
        let group = b.shrc(warp, 2);
        let skip = b.mulc(group, self.plan.query_bytes() as i64);
        let at = b.shared_at(QUERIES_AT);
        let at = b.at(at, skip);
        Thread { rows, column: b.shlc(t, 1), queries: self.plan.query_matrix(b, at), order: Order { group } }
    }

    /// Follows a walk, whose first tile is number `before` of the kernel.
    ///
    /// The next values are waited for between the softmax and the end of the products before: the
    /// assembler moves waits for products up as far as it can, but not beyond that loop, so the
    /// softmax stays beside the products.
    fn follow(&self, b: &mut Builder, th: &Thread, walk: &Walk, before: V, state: State) -> State {
        let ranges = self.ranges(b, th, walk);
        let (stage, scores) = self.start_scores(b, th, before);
        th.order.leave(b);
        let scores = b.wait_products(0, &scores, &[]);
        self.arrive(b, Event::KeysFree, stage);
        let (zero, one) = (b.i32(0), b.i32(1));
        let (tile, rows) = self.softmax(b, th, walk, (zero, &ranges), &scores, &state.rows);
        let stage = self.wait(b, Event::Values, before);
        let values = rescale(b, &state.values, &tile.change);
        let start = Turn { rows, stage, words: self.plan.narrow(b, &tile.probabilities), values };
        let out = b.for_((one, walk.tiles, one), &start.carried(), |b, i, carried| {
            let turn = Turn::of(carried);
            let number = b.add(before, i);
            let (stage, scores) = self.start_scores(b, th, number);
            let values = self.start_values(b, &turn);
            th.order.leave(b);
            let scores = b.wait_products(1, &scores, &[]);
            self.arrive(b, Event::KeysFree, stage);
            let (tile, rows) = self.softmax(b, th, walk, (i, &ranges), &scores, &turn.rows);
            let stage = self.wait(b, Event::Values, number);
            // The probabilities pass through, so that they take the place of the words only now.
            let through = b.wait_products(0, &[values, tile.probabilities].concat(), &turn.words);
            self.arrive(b, Event::ValuesFree, turn.stage);
            let (values, probabilities) = through.split_at(self.plan.d / 2);
            let values = rescale(b, values, &tile.change);
            Turn { rows, stage, words: self.plan.narrow(b, probabilities), values }.carried()
        });
        let turn = Turn::of(&out);
        let values = self.start_values(b, &turn);
        let values = b.wait_products(0, &values, &turn.words);
        self.arrive(b, Event::ValuesFree, turn.stage);
        State { rows: turn.rows, values }
    }

    /// Positions that the rows see in the sequence of a walk: rows of others see nothing.
    fn ranges(&self, b: &mut Builder, th: &Thread, walk: &Walk) -> [Range; ROWS] {
        std::array::from_fn(|i| {
            let row = &th.rows[i];
            let (here, none) = (b.cmp(Cmp::Eq, row.seq, walk.pages.seq), b.i32(0));
            Range { first: row.range.first, count: b.select(here, row.range.count, none) }
        })
    }

    /// Waits for the keys of tile `number`, and until the other group has started its products;
    /// starts those with the keys; returns their stage too.
    fn start_scores(&self, b: &mut Builder, th: &Thread, number: V) -> (V, Vec<V>) {
        let stage = self.wait(b, Event::Keys, number);
        let at = self.stage(b, self.plan.keys_at(), stage);
        let keys = self.plan.key_matrix(b, at);
        th.order.enter(b);
        (stage, self.plan.start_scores(b, th.queries, keys))
    }

    /// Starts the products of the probabilities with the values that have been waited for.
    fn start_values(&self, b: &mut Builder, turn: &Turn) -> Vec<V> {
        let at = self.stage(b, self.plan.values_at(), turn.stage);
        let values = self.plan.value_matrix(b, at);
        self.plan.start_values(b, &turn.words, values, &turn.values)
    }

    fn softmax(
        &self,
        b: &mut Builder,
        th: &Thread,
        walk: &Walk,
        (tile, ranges): (V, &[Range; ROWS]),
        scores: &[V],
        rows: &Rows,
    ) -> (softmax::Tile, Rows) {
        let first = walk.start(b, tile);
        let of = self.block.shape.scores;
        let capped: Vec<V> = match of.cap {
            None => scores.to_vec(),
            Some(_) => scores.iter().map(|s| of.inner(b, *s)).collect(),
        };
        let scores = softmax::mask(b, &capped, first, th.column, ranges);
        softmax::softmax(b, of.factor(), &scores, rows)
    }
}

/// Makes weighted values relative to new maxima.
fn rescale(b: &mut Builder, values: &[V], change: &[V; ROWS]) -> Vec<V> {
    values.iter().enumerate().map(|(i, x)| b.fmul(*x, change[row(i)])).collect()
}

const _: () = assert!(WARPS == 8 && TILE.is_multiple_of(16));
