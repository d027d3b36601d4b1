//! Query rows of a warp, in tiles of sixteen, against pages in shared memory, on tensor cores.
//!
//! `S = Q·Kᵀ` and `O = P·V` with `mma.m16n8k16`: rows are queries, so that the accumulators of `S`
//! are, rounded to 16 bits, the left operand of the second product. Keys lie as `[D][16 tokens]`
//! and values as `[16 tokens][D]`: both are read with transposing `ldmatrix`.
//!
//! A lane has rows `g` and `g + 8` of each tile (its *halves*; only the first when no more than
//! eight rows are used) and tokens `2t`, `2t + 1` of every eight, where `g = lane / 4` and `t =
//! lane % 4`. For int8 pages it has other tokens and columns: see [`codes`](super::codes).

use super::codes::{self, Scales};
use super::shape::{Range, Scores};
use crate::mlir::{Builder, Cmp, Elem, I1, I32, Ty, V};
use llmcc_abi::PAGE_TOKENS;

/// Shape of the products.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// f16 or bf16.
    pub(super) elem: Elem,
    /// The cache has int8 codes, which become f16.
    pub(super) int8: bool,
    /// Head size, a multiple of 16.
    pub(super) d: usize,
    /// Tiles of sixteen rows of a warp; they share the words read from pages.
    pub(super) tiles: usize,
    /// Halves of a tile. 1: rows 0 to 7 only, 2: all.
    pub(super) halves: usize,
    /// How products become scores.
    pub(super) scores: Scores,
}

/// Values of a lane.
pub(super) struct Lane {
    pub(super) lane: V,
    /// Its (first) row.
    pub(super) g: V,
    /// Its first token within a product, and its first column of a run of results.
    pub(super) first: V,
    /// Twice its number in its row: its first column of every eight of the queries.
    t2: V,
    /// Offset of its rows in a page of keys and of values.
    pub(super) k: V,
    v: V,
}

/// The left operands of `Q·Kᵀ`.
pub(super) struct Queries {
    /// For each half, the address of the lane's first columns; how queries are stored.
    rows: Vec<V>,
    stored: Elem,
    /// The word of a half that is not used.
    none: V,
    /// The words of each tile, where registers have room for them: four for every 16 columns. Else
    /// they are read anew for the pages of a stage.
    held: Option<Vec<Vec<V>>>,
}

/// Largest head whose queries stay in registers beside the weighted values of 16 rows, and whose
/// values of eight rows may take the registers of 16.
const HELD: usize = 128;
/// Above that, steps of 16 columns whose queries and keys are read ahead.
const AHEAD: usize = 3;

/// A page in shared memory.
#[derive(Clone, Copy)]
pub(super) struct PageAt {
    pub(super) k: V,
    pub(super) v: V,
    /// Scales of the keys and then of the values, if it is int8.
    pub(super) scales: V,
}

/// The online softmax of a warp's rows: maximum and (the lane's part of the) sum of each half of
/// each tile, then their weighted values.
#[derive(Clone)]
pub(super) struct State(Vec<V>);

const _: () = assert!(PAGE_TOKENS == 16);

impl Lane {
    pub(super) fn new(b: &mut Builder, tile: &Tile) -> Lane {
        let tid = b.sreg("tid.x");
        Lane::of_thread(b, tile, tid)
    }

    /// The lane of the thread with this number in its warps.
    pub(super) fn of_thread(b: &mut Builder, tile: &Tile, thread: V) -> Lane {
        let lane = b.lane_of(thread);
        let g = b.shrc(lane, 2);
        let t = b.andc(lane, 3);
        let t2 = b.shlc(t, 1);
        // Lane l gives row l % 8 of matrix l / 8: bit 0 of the matrix number chooses the eight k,
        // bit 1 the eight n.
        let low = b.andc(lane, 15);
        let high = b.shrc(lane, 4);
        let row = b.mulc(low, tile.v_stride() as i64);
        let column = b.shlc(high, 4);
        let v = b.add(row, column);
        if tile.int8 {
            return Lane { lane, g, first: b.shlc(t, 2), t2, k: b.shlc(lane, 4), v };
        }
        let piece = b.shlc(low, 1);
        let piece = b.or(piece, high);
        let turn = b.shrc(low, 2);
        let turn = b.andc(turn, 1);
        let piece = b.xor(piece, turn);
        Lane { lane, g, first: t2, t2, k: b.shlc(piece, 4), v }
    }

    /// The row of half `part` of a warp: halves are numbered through its tiles.
    pub(super) fn row(&self, b: &mut Builder, tile: &Tile, part: usize) -> V {
        b.addc(self.g, (part / tile.halves * 16 + part % tile.halves * 8) as i64)
    }

    /// Rows whose values the lane has in a [turned](Tile::turned) tile.
    pub(super) fn rows(&self, b: &mut Builder) -> [V; 2] {
        [self.t2, b.addc(self.t2, 1)]
    }

    /// The lane's two columns of every 16 in a turned tile: the first, and the distance to the
    /// other. (Codes lie in pairs: see [`State::values`].)
    pub(super) fn columns(&self, b: &mut Builder, tile: &Tile) -> (V, usize) {
        if tile.int8 { (b.shlc(self.g, 1), 1) } else { (self.g, 8) }
    }

    /// The numbers of these rows, from one of each row.
    fn of_rows(&self, b: &mut Builder, x: V) -> [V; 2] {
        self.rows(b).map(|row| {
            let lane = b.shlc(row, 2);
            b.shuffle_from(x, lane)
        })
    }
}

impl Tile {
    /// Bytes of a page of keys in shared memory. With 16 bits: rows of 16 tokens, 32 bytes, whose
    /// halves change places in every other four rows, so that eight rows fill all banks; rows of
    /// codes have 16 bytes and fill them anyway.
    pub(super) const fn k_bytes(&self) -> usize {
        self.d * PAGE_TOKENS * self.bytes()
    }

    /// Bytes from one token's values to the next in shared memory: an odd number of 16-byte pieces,
    /// for the same reason.
    pub(super) const fn v_stride(&self) -> usize {
        ((self.d * self.bytes() / 16) | 1) * 16
    }

    /// Bytes of a page in shared memory.
    pub(super) const fn page_bytes(&self) -> usize {
        self.k_bytes() + PAGE_TOKENS * self.v_stride() + if self.int8 { 2 * codes::SCALE_BYTES } else { 0 }
    }

    /// Bytes of an element in the cache.
    pub(super) const fn bytes(&self) -> usize {
        if self.int8 { 1 } else { 2 }
    }

    /// A page whose copy begins at `base`.
    pub(super) fn page_at(&self, b: &mut Builder, base: V) -> PageAt {
        let v = b.atc(base, self.k_bytes() as i64);
        PageAt { k: base, v, scales: b.atc(v, (PAGE_TOKENS * self.v_stride()) as i64) }
    }

    fn pair(&self) -> Ty {
        Ty::Vec(2, self.elem)
    }

    /// Two f32 as a word of two 16-bit floats.
    pub(super) fn narrow(&self, b: &mut Builder, x: V, y: V) -> V {
        let two = b.pack(&[x, y]);
        let two = b.ftrunc(two, self.pair());
        b.bitcast(two, I32)
    }

    /// Whether weighted values are computed as `Vᵀ·Pᵀ`: with eight rows, half of the sums of `P·V`
    /// would be zeros, which take registers all the same. The words of both operands are the same,
    /// and so are the places of keys and queries; but a lane has the values of two rows, at one of
    /// each eight columns.
    pub(super) fn turned(&self) -> bool {
        self.halves == 1 && self.d > HELD
    }

    /// Whether the values of 16 rows leave no registers for values that could be computed or read
    /// once for all pages.
    pub(super) fn crowded(&self) -> bool {
        self.halves == 2 && self.d > HELD
    }

    /// Halves of all tiles.
    pub(super) fn parts(&self) -> usize {
        self.tiles * self.halves
    }

    /// The left operands of `Q·Kᵀ`, for each tile; `at` gives the address of the query of a half at
    /// column 0 of its head.
    pub(super) fn queries(
        &self,
        b: &mut Builder,
        lane: &Lane,
        stored: Elem,
        at: impl Fn(&mut Builder, usize) -> V,
    ) -> Queries {
        let offset = b.shlc(lane.t2, stored.bytes().trailing_zeros().into());
        let rows: Vec<V> = (0..self.parts())
            .map(|part| {
                let p = at(b, part);
                b.at(p, offset)
            })
            .collect();
        let mut q = Queries { rows, stored, none: b.i32(0), held: None };
        if !self.crowded() {
            let words = |b: &mut Builder, tile: usize| {
                (0..self.d / 16).flat_map(|step| self.query(b, &q, tile, step)).collect::<Vec<V>>()
            };
            q.held = Some((0..self.tiles).map(|tile| words(b, tile)).collect());
        }
        q
    }

    /// The four words of a tile's queries that are multiplied with columns `16 · step` on of the
    /// keys.
    fn query(&self, b: &mut Builder, q: &Queries, tile: usize, step: usize) -> Vec<V> {
        if let Some(held) = &q.held {
            return held[tile][step * 4..][..4].to_vec();
        }
        let rows = &q.rows[tile * self.halves..][..self.halves];
        let word = |(eight, half): (usize, usize)| match rows.get(half) {
            Some(p) => {
                let p = b.atc(*p, ((step * 16 + eight * 8) * q.stored.bytes()) as i64);
                self.query_pair(b, p, q.stored)
            }
            None => q.none,
        };
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(word).to_vec()
    }

    /// Two adjacent elements of a query, as a word.
    pub(super) fn query_pair(&self, b: &mut Builder, p: V, stored: Elem) -> V {
        // Plainly: a load that is known to give the same again would be made once, before the loop,
        // and where registers are short its result spilled.
        if stored == self.elem {
            return b.load(p, I32);
        }
        let x = b.load(p, Ty::Vec(2, stored));
        let x = if stored == Elem::F32 { x } else { b.fext(x, Ty::Vec(2, Elem::F32)) };
        let x = b.ftrunc(x, self.pair());
        b.bitcast(x, I32)
    }

    /// Nothing seen.
    pub(super) fn start(&self, b: &mut Builder) -> State {
        let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        let mut all = vec![none; self.parts()];
        all.resize(self.parts() * 2 + self.tiles * self.values(), zero);
        State(all)
    }

    /// Accumulators of a tile's weighted values.
    fn values(&self) -> usize {
        self.d / 8 * 2 * self.halves
    }

    /// Adds adjacent pages, the first at position `start`, to the state. `ranges`: one per half.
    pub(super) fn attend(
        &self,
        b: &mut Builder,
        lane: &Lane,
        (start, pages): (V, &[PageAt]),
        q: &Queries,
        ranges: &[Range],
        state: &State,
    ) -> State {
        let parts = self.parts();
        // Words read from the queries serve all pages.
        let together = if q.held.is_some() { 1 } else { pages.len() };
        let scores: Vec<Vec<[[V; 4]; 2]>> =
            pages.chunks(together).flat_map(|pages| self.scores(b, lane, pages, q)).collect();
        let scales: Vec<Scales> =
            if self.int8 { pages.iter().map(|p| Scales::load(b, lane.first, p.scales)).collect() } else { vec![] };
        let (mut maxima, mut sums, mut values) = (vec![], vec![], state.0[parts * 2..].to_vec());
        // For each half, two words per page.
        let mut probabilities: Vec<Vec<V>> = vec![];
        for (part, range) in ranges.iter().enumerate() {
            let (tile, half) = (part / self.halves, part % self.halves);
            let mine: Vec<V> = scores.iter().flat_map(|s| self.in_order(s[tile], half)).collect();
            let (p, maximum, sum, change) =
                self.softmax(b, lane, start, (&mine, &scales), range, (state.0[part], state.0[parts + part]));
            let changes = if self.turned() { lane.of_rows(b, change) } else { [change; 2] };
            for four in values[tile * self.values()..][..self.values()].chunks_mut(2 * self.halves) {
                for (x, change) in four[2 * half..][..2].iter_mut().zip(changes) {
                    *x = b.fmul(*x, change);
                }
            }
            let words = p.chunks(2).map(|two| self.narrow(b, two[0], two[1])).collect();
            maxima.push(maximum);
            sums.push(sum);
            probabilities.push(words);
        }
        for (i, page) in pages.iter().enumerate() {
            let two: Vec<[V; 2]> = probabilities.iter().map(|words| [words[2 * i], words[2 * i + 1]]).collect();
            self.weigh(b, lane, page.v, &two, &mut values);
        }
        State([maxima, sums, values].concat())
    }

    /// A half's scores of a page, by token.
    fn in_order(&self, [x, y]: [[V; 4]; 2], half: usize) -> [V; 4] {
        let h = 2 * half;
        if self.int8 { [x[h], y[h], x[h + 1], y[h + 1]] } else { [x[h], x[h + 1], y[h], y[h + 1]] }
    }

    /// Number in its page of a lane's `i`th token, less that of its first; `i` counts through all
    /// pages.
    fn token(&self, i: usize) -> usize {
        i / 4 * PAGE_TOKENS + if self.int8 { i % 4 } else { i % 4 / 2 * 8 + i % 2 }
    }

    /// Before load number `load` of a page's words: in a [crowded](Tile::crowded) tile, nothing is
    /// read earlier than that, every few loads. `ptxas` would read ahead until no register is left,
    /// and spill registers needed later.
    fn pause(&self, b: &mut Builder, load: usize) {
        if self.crowded() && (load * 2 / self.bytes()).is_multiple_of(AHEAD) {
            b.sync_warp();
        }
    }

    /// Scores of pages, of each for each tile: two products with eight tokens.
    fn scores(&self, b: &mut Builder, lane: &Lane, pages: &[PageAt], q: &Queries) -> Vec<Vec<[[V; 4]; 2]>> {
        let keys: Vec<V> = pages.iter().map(|p| b.at(p.k, lane.k)).collect();
        let zero = b.f32(0.0);
        let mut acc = vec![vec![[[zero; 4]; 2]; self.tiles]; pages.len()];
        let mut first = 0;
        for load in 0..self.k_bytes() / 512 {
            self.pause(b, load);
            let read = |k: &V| {
                let p = b.atc(*k, load as i64 * 512);
                let words = b.ldmatrix(p, true);
                self.operands(b, &words)
            };
            let right: Vec<Vec<[[V; 2]; 2]>> = keys.iter().map(read).collect();
            let steps = right.first().map_or(0, Vec::len);
            for (step, tile) in (0..steps).flat_map(|step| (0..self.tiles).map(move |tile| (step, tile))) {
                let left = self.query(b, q, tile, first + step);
                for (acc, right) in acc.iter_mut().zip(&right) {
                    for (acc, right) in acc[tile].iter_mut().zip(&right[step]) {
                        let c = b.mma(self.elem, &left, right, &acc[..]);
                        // The rows of an unused half stay zero.
                        acc[..2 * self.halves].copy_from_slice(&c[..2 * self.halves]);
                    }
                }
            }
            first += steps;
        }
        acc
    }

    /// Four words of a page as right operands of pairs of products.
    fn operands(&self, b: &mut Builder, words: &[V]) -> Vec<[[V; 2]; 2]> {
        match self.int8 {
            true => words.chunks(2).map(|words| codes::operands(b, words)).collect(),
            false => vec![[[words[0], words[1]], [words[2], words[3]]]],
        }
    }

    /// Probabilities of a half's row, relative to the new maximum; new maximum and sum; the factor
    /// for the weighted values so far.
    pub(super) fn softmax(
        &self,
        b: &mut Builder,
        lane: &Lane,
        start: V,
        (scores, scales): (&[V], &[Scales]),
        range: &Range,
        (old, sum): (V, V),
    ) -> (Vec<V>, V, V, V) {
        let (scale, none, zero) = (b.f32(self.scores.factor()), b.f32(f32::NEG_INFINITY), b.f32(0.0));
        let offset = b.sub(start, range.first);
        let offset = b.add(offset, lane.first);
        let seen: Vec<V> = (0..scores.len())
            .map(|i| {
                let slot = b.addc(offset, self.token(i) as i64);
                b.cmp(Cmp::Ult, slot, range.count)
            })
            .collect();
        let scores: Vec<V> = scores
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let key = scales.get(i / 4).map(|of| of.keys[i % 4]);
                let s = match (self.scores.cap, key) {
                    (Some(_), Some(key)) => {
                        let product = b.fmul(*s, key);
                        let x = self.scores.inner(b, product);
                        b.fmul(x, scale)
                    }
                    (None, Some(key)) => {
                        let s = b.fmul(*s, scale);
                        b.fmul(s, key)
                    }
                    (_, None) => {
                        let x = self.scores.inner(b, *s);
                        b.fmul(x, scale)
                    }
                };
                b.select(seen[i], s, none)
            })
            .collect();
        // The masked scores to multiply: see `codes`.
        let masked: Vec<V> = scores
            .iter()
            .enumerate()
            .map(|(i, s)| scales.get(i / 4).map_or(*s, |of| b.fadd(*s, of.exponents[i % 4])))
            .collect();
        let largest = masked.iter().fold(old, |m, s| b.fmax(m, *s));
        let maximum = b.reduce(largest, &[1, 2], |b, x, y| b.fmax(x, y));
        // A row that has seen nothing yet: anything finite will do.
        let empty = b.op(I1, format!("arith.cmpf oeq, {maximum}, {none} : f32"));
        let base = b.select(empty, zero, maximum);
        let p: Vec<V> = scores
            .iter()
            .map(|s| {
                let x = b.fsub(*s, base);
                b.exp2(x)
            })
            .collect();
        let x = b.fsub(old, base);
        let change = b.exp2(x);
        let sum = b.fmul(sum, change);
        let sum = p.iter().fold(sum, |sum, x| b.fadd(sum, *x));
        let weighted = |(i, p): (usize, &V)| match scales.get(i / 4) {
            Some(of) => {
                let scaled = b.fmul(*p, of.values[i % 4]);
                b.select(seen[i], scaled, zero)
            }
            None => *p,
        };
        let p = p.iter().enumerate().map(weighted).collect();
        (p, maximum, sum, change)
    }

    /// `values += P·V` for a page; `p`: the two words of each half.
    pub(super) fn weigh(&self, b: &mut Builder, lane: &Lane, v: V, p: &[[V; 2]], values: &mut [V]) {
        let v = b.at(v, lane.v);
        let (none, zero) = (b.i32(0), b.f32(0.0));
        let each = 2 * self.halves;
        let left: Vec<[V; 4]> = p
            .chunks(self.halves)
            .map(|p| {
                let word = |half: usize, eight: usize| p.get(half).map_or(none, |words| words[eight]);
                [word(0, 0), word(1, 0), word(0, 1), word(1, 1)]
            })
            .collect();
        let mut eight = 0;
        for load in 0..self.d * self.bytes() / 32 {
            self.pause(b, load);
            let at = b.atc(v, load as i64 * 32);
            let words = b.ldmatrix(at, true);
            let right = self.operands(b, &words);
            if self.turned() {
                for (columns, values) in right.iter().zip(values[eight * each..].chunks_mut(4)) {
                    let [x, y] = columns;
                    let c = b.mma(self.elem, &[x[0], y[0], x[1], y[1]], &p[0], values);
                    values.copy_from_slice(&c);
                }
                eight += 2 * right.len();
                continue;
            }
            for right in right.iter().flatten() {
                for (a, values) in left.iter().zip(values.chunks_mut(self.values())) {
                    let mine = &mut values[eight * each..][..each];
                    let mut c = [zero; 4];
                    c[..each].copy_from_slice(mine);
                    let c = b.mma(self.elem, a, right, &c);
                    mine.copy_from_slice(&c[..each]);
                }
                eight += 1;
            }
        }
    }

    /// The sums over all lanes of a row.
    pub(super) fn sums(&self, b: &mut Builder, state: &State) -> Vec<V> {
        state.0[self.parts()..2 * self.parts()].iter().map(|s| b.reduce(*s, &[1, 2], |b, x, y| b.fadd(x, y))).collect()
    }
}

impl State {
    /// The values that a loop carries.
    pub(super) fn carried(&self) -> &[V] {
        &self.0
    }

    /// The state that a loop carries.
    pub(super) fn from_carried(values: &[V]) -> State {
        State(values.to_vec())
    }

    /// Maximum of a half.
    pub(super) fn maximum(&self, part: usize) -> V {
        self.0[part]
    }

    /// In a [turned](Tile::turned) tile, the weighted values of row `i` of the lane's two: for
    /// every 16 columns, the lane's [columns](Lane::columns).
    pub(super) fn of_row(&self, tile: &Tile, row: usize) -> Vec<[V; 2]> {
        self.0[tile.parts() * 2..].chunks(4).map(|c| [c[row], c[2 + row]]).collect()
    }

    /// Weighted values of a half in runs of adjacent columns, the first beginning at the lane's
    /// first column; and the columns from one run to the next.
    pub(super) fn values(&self, tile: &Tile, part: usize) -> (Vec<Vec<V>>, usize) {
        let half = part % tile.halves;
        let mine = &self.0[tile.parts() * 2 + part / tile.halves * tile.values()..][..tile.values()];
        let pairs: Vec<[V; 2]> = mine.chunks(2 * tile.halves).map(|c| [c[2 * half], c[2 * half + 1]]).collect();
        match tile.int8 {
            true => (pairs.chunks(2).map(|two| vec![two[0][0], two[1][0], two[0][1], two[1][1]]).collect(), 16),
            false => (pairs.into_iter().map(Vec::from).collect(), 8),
        }
    }
}
