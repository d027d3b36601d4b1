//! Attention without tensor cores: any head size, any cache.
//!
//! An item is a query head. A warp takes a page at a time: two lanes per slot make its score, all
//! lanes together weigh the values, a lane for every 32nd column.

use super::results::{Results, joined_bytes};
use super::selected::{Chosen, page_and_line};
use super::shape::{Rows, Shape};
use super::share::{Item, Split};
use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, I8, I32, I64, V, WARP};
use crate::piece::{self, col_at};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::quant::Float;

const WARPS: u32 = 4;
const RESIDENT: u32 = 2;

/// Bytes of shared memory that values of `d` elements take.
pub(super) fn shared_bytes(d: usize) -> usize {
    joined_bytes(WARPS, 1, d)
}

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape) -> Source {
    let split = Split::new(cx.gpu, RESIDENT, shape.spec.kv_heads * shape.group, (1, WARPS), 0);
    split.emit(cx, shape, Some(reason(shape)), RESIDENT, |b, args, item, chunks| {
        let walk = Walk::new(b, shape, args, item);
        chunks.each(b, &[], |b, pages, _, results| {
            let state = walk.run(b, pages);
            walk.leave(b, &state, results);
            vec![]
        });
    })
}

/// Why tensor cores do not do it.
fn reason(shape: &Shape) -> &'static str {
    let spec = &shape.spec;
    match (spec.dtype.float(), spec.dtype.bits()) {
        _ if shape.selected.is_some() => "attention over selected rows, without tensor cores",
        _ if shape.relative.is_some() => "attention with keys and queries of distances, without tensor cores",
        _ if shape.bias.is_some() => "attention with biases by distance, without tensor cores",
        _ if spec.latent => "attention over a latent cache, without tensor cores",
        _ if shape.sums.is_some() => "attention that returns the sums of its weights, without tensor cores",
        (Some(Float::F32), _) => "attention over an f32 cache, without tensor cores",
        (None, ..8) => "attention over an int4 cache, without tensor cores",
        _ if !spec.uniform() => "attention with keys and values of different width, without tensor cores",
        (None, _) => "attention over an int8 cache with a head size that is not a multiple of 32, without tensor cores",
        (Some(Float::F16 | Float::Bf16 | Float::E4m3), _) => {
            "attention with a head size that tensor cores do not support"
        }
    }
}

/// Where the rows of 16 slots lie.
#[derive(Clone, Copy)]
enum Places {
    /// In a page.
    Page(V),
    /// Each in the slot of the pool that its two lanes know.
    Own(V),
}

struct Walk<'a> {
    shape: &'a Shape,
    item: &'a Item,
    warp: V,
    lane: V,
    /// The head's query of the part stored as keys, and its storage.
    query: (V, Elem),
    /// In a latent cache: that of the values.
    latent: Option<(V, Elem)>,
    /// Row of the block table.
    table: V,
    /// The rows of a selection.
    chosen: Option<Chosen>,
    pool: V,
    args: Args<'a>,
    position: V,
}

impl<'a> Walk<'a> {
    fn new(b: &mut Builder, shape: &'a Shape, args: Args<'a>, item: &'a Item) -> Walk<'a> {
        let thread = item.team.thread;
        let (warp, lane) = b.warp_and_lane(thread);
        let of = |b: &mut Builder, rows: Rows| {
            let col = b.mulc(item.head, rows.of_head as i64);
            (shape.element(b, args, rows, item.token, col), rows.storage())
        };
        let query = of(b, shape.own.unwrap_or(shape.q));
        let latent = shape.spec.latent.then(|| of(b, shape.q));
        let seq = args.seq(b, item.token);
        let table = args.table(b, seq);
        let chosen = Chosen::new(b, shape.selected, args, (item, table));
        let position =
            if shape.bias.is_some() || shape.relative.is_some() { args.position(b, item.token) } else { item.first };
        let pool = args.operand(shape.kv);
        Walk { shape, item, warp, lane, query, latent, table, chosen, pool, args, position }
    }

    /// Whether codes and scales are stored.
    fn has_scales(&self) -> bool {
        self.shape.spec.dtype.encoding().is_quantized()
    }

    /// Whether codes share their bytes.
    fn in_pairs(&self) -> bool {
        self.shape.spec.dtype.bits() < 8
    }

    /// Columns that a lane weighs.
    fn columns(&self) -> usize {
        self.shape.spec.value_dim.div_ceil(32)
    }

    /// Maximum, this lane's part of the sum, weighted values of this lane's columns.
    fn run(&self, b: &mut Builder, (first, end): (V, V)) -> Vec<V> {
        let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        let mut start = vec![none];
        start.resize(2 + self.columns(), zero);
        let first = b.add(first, self.warp);
        let step = b.i32(i64::from(WARPS));
        b.for_((first, end, step), &start, |b, page, state| self.page(b, page, state))
    }

    /// Page `number` of the sequence.
    fn page_of(&self, b: &mut Builder, number: V) -> V {
        let offset = b.shlc(number, 2);
        let p = b.at(self.table, offset);
        let entry = b.load_const(p, I32);
        let entry = b.zext(entry, I64);
        let offset = b.mulc(entry, self.shape.page.bytes as i64);
        b.at(self.pool, offset)
    }

    /// Where the 16 rows of page `number` lie.
    fn places(&self, b: &mut Builder, number: V) -> Places {
        let Some(chosen) = &self.chosen else { return Places::Page(self.page_of(b, number)) };
        let start = b.shlc(number, 4);
        let own = b.andc(self.lane, 15);
        let at = b.add(start, own);
        Places::Own(chosen.place(b, at))
    }

    /// The page of a slot of the pool, and the slot's number in it.
    fn line_of(&self, b: &mut Builder, place: V) -> (V, V) {
        let (skip, slot) = page_and_line(b, self.shape.page.bytes, place);
        (b.at(self.pool, skip), slot)
    }

    fn page(&self, b: &mut Builder, number: V, state: &[V]) -> Vec<V> {
        let places = self.places(b, number);
        let start = b.shlc(number, 4);
        let start = b.sub(start, self.item.first);
        let slot = b.andc(self.lane, 15);
        let at = b.add(start, slot);
        let seen = b.cmp(Cmp::Ult, at, self.item.seen);
        let (page, slot) = match places {
            Places::Page(page) => (page, slot),
            Places::Own(place) => self.line_of(b, place),
        };
        let score = self.score(b, page, (number, slot));
        let score = self.shape.biased(b, self.args, (self.item.head, self.position), (number, slot), score);
        let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        let score = b.select(seen, score, none);
        let largest = b.reduce(score, &[8, 4, 2, 1], |b, x, y| b.fmax(x, y));
        // Every page of the range has a slot that is seen, so the maximum is a number.
        let maximum = b.fmax(state[0], largest);
        let x = b.fsub(state[0], maximum);
        let change = b.exp2(x);
        let x = b.fsub(score, maximum);
        let p = b.exp2(x);
        let sum = b.fma(state[1], change, p);
        // Values of slots that are not seen are replaced, not multiplied by zero.
        let weight = if self.has_scales() {
            let scale = self.scale(b, page, self.shape.page.v_scales, slot);
            let p = b.fmul(p, scale);
            b.select(seen, p, zero)
        } else {
            p
        };
        let values: Vec<V> = state[2..].iter().map(|v| b.fmul(*v, change)).collect();
        let values = self.weigh(b, places, start, weight, &values);
        [vec![maximum, sum], values].concat()
    }

    /// The score of a slot, in both of its lanes.
    fn score(&self, b: &mut Builder, page: V, (number, slot): (V, V)) -> V {
        let d = self.shape.spec.own_dim();
        let part = b.shrc(self.lane, 4);
        let head = b.mulc(self.item.kv_head, (d * PAGE_TOKENS) as i64);
        let head = b.add(head, slot);
        let (end, two, zero) = (b.i32(d as i64), b.i32(2), b.f32(0.0));
        let near = self.near(b, (number, slot));
        let start = vec![zero; if near.is_some() { 2 } else { 1 }];
        let product = |b: &mut Builder, i: V, acc: &[V]| {
            let k = if self.in_pairs() {
                self.key_code(b, page, (slot, i))
            } else {
                let line = b.shlc(i, 4);
                let index = b.add(head, line);
                self.stored(b, page, index)
            };
            let q = query_at(b, self.query, i);
            let dot = b.fma(q, k, acc[0]);
            let Some(near) = &near else { return vec![dot] };
            let [key, query] = near.at(b, i);
            vec![b.fma(query, k, dot), b.fma(q, key, acc[1])]
        };
        let dot = if d > 0 { b.for_((part, end, two), &start, product) } else { start };
        let both = |b: &mut Builder, dot: V| {
            let other = b.shuffle_xor(dot, 16);
            b.fadd(dot, other)
        };
        let scales = (self.shape.page.k_scales, slot);
        let dot = match self.latent {
            Some(query) => {
                // Keys may be nothing but values.
                let dot = if d > 0 { self.scaled(b, page, scales, dot[0]) } else { zero };
                let more = self.score_of_value(b, page, slot, query);
                let dot = b.fadd(dot, more);
                both(b, dot)
            }
            None => {
                let of_key = both(b, dot[0]);
                let of_key = self.scaled(b, page, scales, of_key);
                match dot.get(1) {
                    Some(of_query) => {
                        let of_query = both(b, *of_query);
                        b.fadd(of_key, of_query)
                    }
                    None => of_key,
                }
            }
        };
        self.shape.scores.of(b, dot)
    }

    /// Operands for the distance of a slot of page `number` in the item's head.
    fn near(&self, b: &mut Builder, (number, slot): (V, V)) -> Option<Near> {
        let (tables, reach) = self.shape.relative?;
        let width = 2 * reach as i64 + 1;
        let key = b.shlc(number, 4);
        let key = b.add(key, slot);
        let distance = b.sub(key, self.position);
        let (most, zero) = (b.i32(width - 1), b.i32(0));
        let at = b.addc(distance, reach as i64);
        let at = b.smax(at, zero);
        let at = b.min(at, most);
        let head = b.mulc(self.item.head, self.shape.spec.key_dim as i64 * width);
        Some(Near { tables: tables.map(|t| self.args.operand(t)), first: b.add(head, at), width })
    }

    /// A lane's part of the product of a slot's value and the query of it.
    fn score_of_value(&self, b: &mut Builder, page: V, slot: V, query: (V, Elem)) -> V {
        let d = self.shape.spec.value_dim;
        let values = b.atc(page, self.shape.page.v as i64);
        let head = b.mulc(self.item.kv_head, (d * PAGE_TOKENS) as i64);
        let line = b.mulc(slot, d as i64);
        let line = b.add(head, line);
        let part = b.shrc(self.lane, 4);
        let (end, two, zero) = (b.i32(d as i64), b.i32(2), b.f32(0.0));
        let dot = b.for_((part, end, two), &[zero], |b, i, acc| {
            let v = self.value(b, values, line, (slot, i));
            let q = query_at(b, query, i);
            vec![b.fma(q, v, acc[0])]
        });
        self.scaled(b, page, (self.shape.page.v_scales, slot), dot[0])
    }

    /// A sum of products with the codes of a slot times their scale; of other numbers as it is.
    fn scaled(&self, b: &mut Builder, page: V, (scales, slot): (usize, V), dot: V) -> V {
        if !self.has_scales() {
            return dot;
        }
        let scale = self.scale(b, page, scales, slot);
        b.fmul(dot, scale)
    }

    /// Column `col` of a slot's value, whose head and slot begin at element `line` of the values.
    fn value(&self, b: &mut Builder, values: V, line: V, (slot, col): (V, V)) -> V {
        if self.in_pairs() {
            return self.value_code(b, values, (slot, col));
        }
        let index = b.add(line, col);
        self.stored(b, values, index)
    }

    fn weigh(&self, b: &mut Builder, places: Places, start: V, weight: V, values: &[V]) -> Vec<V> {
        let (d, of_values) = (self.shape.spec.value_dim, self.shape.page.v as i64);
        let places = match places {
            Places::Page(page) => Places::Page(b.atc(page, of_values)),
            Places::Own(place) => Places::Own(place),
        };
        let head = b.mulc(self.item.kv_head, (d * PAGE_TOKENS) as i64);
        let (first, end, step, zero) = (b.i32(0), b.i32(PAGE_TOKENS as i64), b.i32(1), b.f32(0.0));
        b.for_((first, end, step), values, |b, slot, values| {
            let weight = b.shuffle_from(weight, slot);
            let at = b.add(start, slot);
            let seen = b.cmp(Cmp::Ult, at, self.item.seen);
            let (page, slot) = match places {
                Places::Page(page) => (page, slot),
                Places::Own(place) => {
                    let place = b.shuffle_from(place, slot);
                    let (page, slot) = self.line_of(b, place);
                    (b.atc(page, of_values), slot)
                }
            };
            let line = b.mulc(slot, d as i64);
            let line = b.add(head, line);
            let last = b.i32(d as i64 - 1);
            values
                .iter()
                .enumerate()
                .map(|(i, acc)| {
                    // Columns beyond the last repeat it; their results are not stored.
                    let col = b.addc(self.lane, (i * WARP) as i64);
                    let col = b.min(col, last);
                    let v = self.value(b, page, line, (slot, col));
                    let v = b.select(seen, v, zero);
                    b.fma(weight, v, *acc)
                })
                .collect()
        })
    }

    /// Scale of a slot in the scales at byte `part` of a page.
    fn scale(&self, b: &mut Builder, page: V, part: usize, slot: V) -> V {
        let line = b.shlc(self.item.kv_head, 4);
        let index = b.add(line, slot);
        let offset = b.shlc(index, 2);
        let p = b.atc(page, part as i64);
        let p = b.at(p, offset);
        b.load(p, F32)
    }

    /// A stored number as f32, int8 codes without their scale.
    fn stored(&self, b: &mut Builder, base: V, index: V) -> V {
        let elem = piece::kv_storage(self.shape.spec.dtype);
        let p = col_at(b, base, elem, index);
        if elem == Elem::I8 {
            let x = b.load(p, I8);
            let x = b.sext(x, I32);
            return b.sitofp(x, F32);
        }
        piece::load(b, p, elem, 1)[0]
    }

    /// The 4-bit code of element `i` of a slot's key, as f32; see `layout::kv_nibble`.
    fn key_code(&self, b: &mut Builder, page: V, (slot, i): (V, V)) -> V {
        let half = self.shape.spec.own_dim() as i64 / 2;
        let head = b.mulc(self.item.kv_head, half);
        let pair = b.shrc(i, 1);
        let line = b.add(head, pair);
        let line = b.shlc(line, 4);
        let at = b.add(line, slot);
        let odd = b.andc(i, 1);
        let up = b.shlc(odd, 2);
        piece::nibble(b, page, at, up)
    }

    /// The same of a value, whose part of the page begins at `values`.
    fn value_code(&self, b: &mut Builder, values: V, (slot, col): (V, V)) -> V {
        let line = b.shlc(self.item.kv_head, 4);
        let line = b.add(line, slot);
        piece::value_nibble(b, values, (line, col), self.shape.spec.value_dim)
    }

    /// Leaves the warp's result in shared memory.
    fn leave(&self, b: &mut Builder, state: &[V], results: &Results) {
        let d = self.shape.spec.value_dim;
        let sum = b.reduce(state[1], &[8, 4, 2, 1], |b, x, y| b.fadd(x, y));
        let row = b.i32(0);
        for (i, v) in state[2..].iter().enumerate() {
            let col = b.addc(self.lane, (i * WARP) as i64);
            let inside = b.cmpc(Cmp::Ult, col, d as i64);
            b.if_(inside, |b| {
                let p = results.value(b, self.warp, row, col);
                b.store(*v, p);
            });
        }
        let first = b.cmpc(Cmp::Eq, self.lane, 0);
        b.if_(first, |b| {
            let p = results.stat(b, self.warp, row);
            b.store(state[0], p);
            let p = b.atc(p, 4);
            b.store(sum, p);
        });
    }
}

/// The key and the query of a distance: their elements lie `width` apart from the `first` on.
struct Near {
    tables: [V; 2],
    first: V,
    width: i64,
}

impl Near {
    /// Element `i` of both.
    fn at(&self, b: &mut Builder, i: V) -> [V; 2] {
        let line = b.mulc(i, self.width);
        let at = b.add(self.first, line);
        let offset = b.shlc(at, 2);
        self.tables.map(|table| {
            let p = b.at(table, offset);
            b.load_const(p, F32)
        })
    }
}

/// Element `col` of a query as f32.
fn query_at(b: &mut Builder, (query, elem): (V, Elem), col: V) -> V {
    let p = col_at(b, query, elem, col);
    piece::load(b, p, elem, 1)[0]
}
