//! Convolutions over time and recurrences.
//!
//! A work item is some columns of a state, for all tokens of the step one after the other: each
//! finds the slot of its sequence, so that a sequence's tokens make the same chain of operations,
//! however tokens of sequences are mixed and cut into steps.

use super::Lowering;
use super::emit::{Emit, F32, LANES};
use super::microkernel::Microkernel;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, StackSlot, Value};
use llmcc_abi::recur::{RecurArgs, Update};
use llmcc_abi::{StepCtx, Uk};
use llmcc_ir::kernel::{CHANNELS, CausalConv, ParamId, ParamKind, Recurrence, WindowBounds, WindowMeans, Wkv};
use llmcc_ir::state::FixedSpec;
use std::mem::offset_of;

/// Where tokens find their states.
pub(super) struct Slots {
    seqs: Value,
    tables: Value,
    stride: Value,
    pool: Value,
    bytes: usize,
}

impl Slots {
    fn new(low: &Lowering, e: &mut Emit, state: ParamId) -> Slots {
        Slots::of_bytes(low, e, state, low.kernel.fixed(state).bytes())
    }

    /// Slots of so many bytes in the pool of `state`.
    pub fn of_bytes(low: &Lowering, e: &mut Emit, state: ParamId, bytes: usize) -> Slots {
        Slots {
            seqs: low.args.step(e, offset_of!(StepCtx, seqs)),
            tables: low.args.step(e, offset_of!(StepCtx, block_tables)),
            stride: low.args.step(e, offset_of!(StepCtx, block_stride)),
            pool: low.args.operand(state),
            bytes,
        }
    }

    /// Address of the state of a token's sequence.
    fn of(&self, e: &mut Emit, token: Value) -> Value {
        let slot = self.number(e, token);
        self.address(e, slot)
    }

    /// The slot of a token's sequence.
    pub fn number(&self, e: &mut Emit, token: Value) -> Value {
        let p = e.index(self.seqs, token, 4);
        let seq = e.load_index(p, 0);
        let entry = e.b.ins().imul(seq, self.stride);
        let p = e.index(self.tables, entry, 4);
        e.b.ins().uload32(MemFlagsData::new().with_notrap(), p, 0)
    }

    /// Address of a slot.
    pub fn address(&self, e: &mut Emit, slot: Value) -> Value {
        e.index(self.pool, slot, self.bytes)
    }
}

/// Vectors over `width` columns: byte offsets and lanes.
fn vectors(width: usize) -> Vec<(usize, usize)> {
    (0..width).step_by(LANES).map(|j| (j * 4, LANES.min(width - j))).collect()
}

fn load(e: &mut Emit, p: Value, vectors: &[(usize, usize)]) -> Vec<Value> {
    vectors.iter().map(|(at, lanes)| e.load_lanes(p, *at, *lanes)).collect()
}

fn store(e: &mut Emit, x: &[Value], p: Value, vectors: &[(usize, usize)]) {
    x.iter().zip(vectors).for_each(|(x, (at, lanes))| e.store_lanes(*x, p, *at, *lanes));
}

/// Emits the items `lo..hi`.
pub(super) fn convolution(low: &Lowering, e: &mut Emit, k: &CausalConv) {
    let channels = low.kernel.fixed(k.state).cols;
    let slots = Slots::new(low, e, k.state);
    each_block(low, e, channels, |e, item, width| block(low, e, k, &slots, (item, width)));
}

/// The items `lo..hi` of [`CHANNELS`] each, with the number of channels that they have.
fn each_block(low: &Lowering, e: &mut Emit, channels: usize, mut block: impl FnMut(&mut Emit, Value, usize)) {
    let (whole, rest) = (channels / CHANNELS, channels % CHANNELS);
    let end = e.int(whole as i64);
    let stop = e.min(low.args.hi, end);
    e.each(low.args.lo, stop, 1, |e, item| block(e, item, CHANNELS));
    if rest > 0 {
        // The last item, if it is among these, has fewer channels.
        let from = e.max(low.args.lo, end);
        e.each(from, low.args.hi, 1, |e, item| block(e, item, rest));
    }
}

/// The tokens of the step, each with the address of its sequence's state, `at` bytes further on.
fn each_token(
    low: &Lowering,
    e: &mut Emit,
    (slots, at): (&Slots, Value),
    mut of_token: impl FnMut(&mut Emit, Value, Value),
) {
    let zero = e.int(0);
    e.each(zero, low.args.m, 1, |e, token| {
        let state = slots.of(e, token);
        let state = e.add(state, at);
        of_token(e, token, state);
    });
}

/// `width` channels from the first channel of item `item` on.
fn block(low: &Lowering, e: &mut Emit, k: &CausalConv, slots: &Slots, (item, width): (Value, usize)) {
    let channels = low.kernel.fixed(k.state).cols;
    let (row, vectors) = (channels * 4, vectors(width));
    let at = e.times(item, CHANNELS * 4);
    let taps = e.add(low.args.operand(k.taps), at);
    each_token(low, e, (slots, at), |e, token, state| {
        let x = columns_of(low, e, k.x, (token, k.start), at);
        let out = e.index(low.args.operand(k.out), token, row);
        let out = e.add(out, at);
        for (byte, lanes) in &vectors {
            let mut sum = None;
            for i in 0..k.width {
                let input = match i + 1 == k.width {
                    true => e.load_lanes(x, *byte, *lanes),
                    false => e.load_lanes(state, i * row + byte, *lanes),
                };
                if i > 0 {
                    e.store_lanes(input, state, (i - 1) * row + byte, *lanes);
                }
                let tap = e.load_lanes(taps, i * row + byte, *lanes);
                sum = Some(match sum {
                    None => e.fmul(input, tap),
                    Some(sum) => e.fma(input, tap, sum),
                });
            }
            if let Some(sum) = sum {
                e.store_lanes(sum, out, *byte, *lanes);
            }
        }
    });
}

/// The columns from `start` on of a token's row, `at` bytes further on.
fn columns_of(low: &Lowering, e: &mut Emit, rows: ParamId, (token, start): (Value, usize), at: Value) -> Value {
    let x = e.index(low.args.operand(rows), token, low.cols(rows) * 4);
    let x = e.offset(x, start * 4);
    e.add(x, at)
}

/// Emits the items `lo..hi`.
pub(super) fn wkv(low: &Lowering, e: &mut Emit, k: &Wkv) {
    let channels = low.kernel.fixed(k.state).cols;
    let slots = Slots::new(low, e, k.state);
    each_block(low, e, channels, |e, item, width| {
        let at = e.times(item, CHANNELS * 4);
        let [decay, bonus] = [k.decay, k.bonus].map(|p| e.add(low.args.operand(p), at));
        each_token(low, e, (&slots, at), |e, token, state| {
            let [key, value, out] = [(k.k, k.k_start), (k.v, k.v_start), (k.out, 0)]
                .map(|(p, start)| columns_of(low, e, p, (token, start), at));
            for (byte, lanes) in vectors(width) {
                let [decay, bonus, key, value] = [decay, bonus, key, value].map(|p| e.load_lanes(p, byte, lanes));
                let kept = [0, 1, 2].map(|i| e.load_lanes(state, i * channels * 4 + byte, lanes));
                let mean = Mean::new(e, kept, value);
                let weighted = e.fadd(key, bonus);
                let [sum, weights, _] = mean.with(e, mean.most, weighted);
                let y = e.fdiv(sum, weights);
                let decayed = e.fadd(mean.most, decay);
                for (i, x) in mean.with(e, decayed, key).into_iter().enumerate() {
                    e.store_lanes(x, state, i * channels * 4 + byte, lanes);
                }
                e.store_lanes(y, out, byte, lanes);
            }
        });
    });
}

/// Emits the items `lo..hi`.
pub(super) fn window_means(low: &Lowering, e: &mut Emit, k: &WindowMeans) {
    let (channels, series) = (low.kernel.fixed(k.state).cols, k.series(&low.kernel.params));
    let (slots, row) = (Slots::new(low, e, k.state), channels * 4);
    let positions = low.args.step(e, offset_of!(StepCtx, positions));
    each_block(low, e, channels, |e, item, width| {
        let at = e.times(item, CHANNELS * 4);
        each_token(low, e, (&slots, at), |e, token, state| {
            let [keys, values, out] = [(k.k, k.k_start), (k.v, k.v_start), (k.out, 0)]
                .map(|(p, start)| columns_of(low, e, p, (token, start), at));
            let (place, begins) = place_in_window(e, positions, token, k.width);
            let places = e.index(low.args.operand(k.places), place, series * row);
            let places = e.add(places, at);
            let none = e.floats(0.0);
            for (byte, lanes) in vectors(width) {
                let mut kept: Vec<Value> =
                    (0..3 * series).map(|i| e.load_lanes(state, i * row + byte, lanes)).collect();
                // A window begins with the columns kept for it.
                let next: Vec<Value> = kept.drain(3..).collect();
                for (i, x) in kept.iter_mut().enumerate() {
                    let first = next.get(i).copied().unwrap_or(none);
                    *x = e.choose(begins, first, *x);
                }
                let next: Vec<Value> = next.into_iter().map(|x| e.choose(begins, none, x)).collect();
                let joined = |e: &mut Emit, kept: &[Value], series: usize, to: usize| {
                    let [key, by_place, value] =
                        [keys, places, values].map(|p| e.load_lanes(p, series * row + byte, lanes));
                    let key = e.fadd(key, by_place);
                    let mean = Mean::new(e, [kept[0], kept[1], kept[2]], value);
                    let joined = mean.with(e, mean.most, key);
                    for (i, x) in joined.into_iter().enumerate() {
                        e.store_lanes(x, state, (to + i) * row + byte, lanes);
                    }
                    joined
                };
                if series > 1 {
                    joined(e, &next, 0, 3);
                }
                let [sum, weights, _] = joined(e, &kept, series - 1, 0);
                let y = e.fdiv(sum, weights);
                e.store_lanes(y, out, byte, lanes);
            }
        });
    });
}

/// The place of a token in its window of `width` tokens, and lanes that say whether it is the first.
fn place_in_window(e: &mut Emit, positions: Value, token: Value, width: usize) -> (Value, Value) {
    let position = e.index(positions, token, 4);
    let position = e.load_index(position, 0);
    let (_, place) = e.div_mod(position, width);
    let of_lanes = e.b.ins().fcvt_from_sint(F32, place);
    let (of_lanes, first) = (e.splat(of_lanes), e.floats(0.0));
    (place, e.lanes_where(FloatCC::Equal, of_lanes, first))
}

/// Emits the items `lo..hi`.
pub(super) fn window_bounds(low: &Lowering, e: &mut Emit, k: &WindowBounds) {
    let channels = low.kernel.fixed(k.state).cols;
    let (slots, row) = (Slots::new(low, e, k.state), channels * 4);
    let positions = low.args.step(e, offset_of!(StepCtx, positions));
    each_block(low, e, channels, |e, item, width| {
        let at = e.times(item, CHANNELS * 4);
        each_token(low, e, (&slots, at), |e, token, state| {
            let x = columns_of(low, e, k.x, (token, k.start), at);
            let out = columns_of(low, e, k.out, (token, 0), at);
            let (_, begins) = place_in_window(e, positions, token, k.width);
            for (byte, lanes) in vectors(width) {
                let x = e.load_lanes(x, byte, lanes);
                for (half, least) in [true, false].into_iter().enumerate() {
                    let kept = e.load_lanes(state, half * row + byte, lanes);
                    let bound = if least { e.fmin(x, kept) } else { e.fmax(x, kept) };
                    let bound = e.choose(begins, x, bound);
                    e.store_lanes(bound, state, half * row + byte, lanes);
                    e.store_lanes(bound, out, half * row + byte, lanes);
                }
            }
        });
    });
}

/// Weighted values and weights of four channels, the logarithm that they are over, and a value.
struct Mean {
    sum: Value,
    weights: Value,
    most: Value,
    value: Value,
}

impl Mean {
    fn new(e: &mut Emit, [sum, weights, most]: [Value; 3], value: Value) -> Mean {
        // Without weights, the values weighted count for nothing.
        let (zero, none) = (e.floats(0.0), e.floats(-1e38));
        let some = e.lanes_where(FloatCC::GreaterThan, weights, zero);
        Mean { sum, weights, most: e.choose(some, most, none), value }
    }

    /// With the value, weighted by `e^key`, where the others are over `e^most`.
    fn with(&self, e: &mut Emit, most: Value, key: Value) -> [Value; 3] {
        let new = e.fmax(most, key);
        let [old, weight] = [most, key].map(|x| {
            let less = e.fsub(x, new);
            e.exp(less)
        });
        let added = e.fmul(weight, self.value);
        [e.fma(old, self.sum, added), e.fma(old, self.weights, weight), new]
    }
}

/// Emits the items `lo..hi`.
pub(super) fn recurrence(low: &Lowering, e: &mut Emit, k: &Recurrence) {
    let FixedSpec { heads, rows, cols } = low.kernel.fixed(k.state);
    let slots = Slots::new(low, e, k.state);
    let width = Recurrence::block(cols);
    let per_row = columns(low, k.decay) != heads;
    let plan = Plan { k, rows, cols, vectors: vectors(width), per_row };
    let args = (!low.portable).then(|| plan.arguments(e, width));
    e.each(low.args.lo, low.args.hi, 1, |e, item| {
        let (head, block) = e.div_mod(item, cols / width);
        let (group, _) = e.div_mod(head, heads / k.groups);
        let column = e.times(block, width * 4);
        let of_head = e.index(column, head, cols * 4);
        let at = At { head, group, column, of_head };
        let zero = e.int(0);
        e.each(zero, low.args.m, 1, |e, token| {
            let state = slots.of(e, token);
            let token = plan.addresses(low, e, token, state, &at);
            match args {
                Some(args) => token.call(low, e, args),
                None => plan.token(e, &token),
            }
        });
    });
}

/// Columns of an operand that is rows or a vector.
fn columns(low: &Lowering, p: ParamId) -> usize {
    match low.kernel.params[p].kind {
        ParamKind::Vector { len } => len,
        ParamKind::Rows { cols, .. } => cols,
        ParamKind::Matrix { .. } | ParamKind::State(_) => 0,
    }
}

/// Values common to all tokens.
struct Plan<'a> {
    k: &'a Recurrence,
    rows: usize,
    cols: usize,
    vectors: Vec<(usize, usize)>,
    /// A decay per row of the state, else per head.
    per_row: bool,
}

/// A block of a head's columns.
struct At {
    head: Value,
    group: Value,
    /// Bytes before its first column in a row of the head's matrix, and in the columns of all heads.
    column: Value,
    of_head: Value,
}

/// Addresses that a token reads and writes for a block of a head's columns.
struct Token {
    state: Value,
    q: Value,
    key: Value,
    v: Value,
    decay: Value,
    with: Value,
    write: Value,
    out: Value,
}

impl Token {
    /// By the microkernel.
    fn call(&self, low: &Lowering, e: &mut Emit, args: StackSlot) {
        let args = e.b.ins().stack_addr(I64, args, 0);
        let addresses = [
            (offset_of!(RecurArgs, state), self.state),
            (offset_of!(RecurArgs, q), self.q),
            (offset_of!(RecurArgs, k), self.key),
            (offset_of!(RecurArgs, v), self.v),
            (offset_of!(RecurArgs, decay), self.decay),
            (offset_of!(RecurArgs, with), self.with),
            (offset_of!(RecurArgs, write), self.write),
            (offset_of!(RecurArgs, out), self.out),
        ];
        e.store_all(args, &addresses);
        Microkernel::new(low, e, Uk::Recur, &[I64], &[]).call(e, &[args]);
    }
}

impl Plan<'_> {
    /// The microkernel's arguments, with those that all tokens have in common.
    fn arguments(&self, e: &mut Emit, width: usize) -> StackSlot {
        let slot = e.stack_slot::<RecurArgs>();
        let args = e.b.ins().stack_addr(I64, slot, 0);
        let numbers = [
            (offset_of!(RecurArgs, stride), self.cols),
            (offset_of!(RecurArgs, rows), self.rows),
            (offset_of!(RecurArgs, cols), width),
            (offset_of!(RecurArgs, decays), usize::from(self.per_row)),
            (offset_of!(RecurArgs, update), self.k.update as usize),
        ];
        e.store_ints(args, &numbers);
        slot
    }

    /// The addresses of a token's operands; `state` is its sequence's.
    fn addresses(&self, low: &Lowering, e: &mut Emit, token: Value, state: Value, at: &At) -> Token {
        let (k, matrix) = (self.k, self.rows * self.cols * 4);
        let row = |e: &mut Emit, p: ParamId, start: usize| {
            let x = match low.kernel.params[p].kind {
                ParamKind::Rows { cols, .. } => e.index(low.args.operand(p), token, cols * 4),
                // The same for all tokens.
                ParamKind::Vector { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => low.args.operand(p),
            };
            e.offset(x, start * 4)
        };
        let keys = |e: &mut Emit, p: ParamId, start: usize| {
            let x = row(e, p, start);
            e.index(x, at.group, self.rows * 4)
        };
        let of_head = |e: &mut Emit, p: ParamId, bytes: usize| {
            let x = row(e, p, 0);
            e.index(x, at.head, bytes)
        };
        let values = |e: &mut Emit, p: ParamId, start: usize| {
            let x = row(e, p, start);
            e.add(x, at.of_head)
        };
        let decay = match k.update {
            Update::Scan => values(e, k.decay, 0),
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
                of_head(e, k.decay, if self.per_row { self.rows * 4 } else { 4 })
            }
        };
        let with = match k.update {
            Update::Plain | Update::Delta => of_head(e, k.with, 4),
            Update::Erase => keys(e, k.with, 0),
            Update::Bonus => of_head(e, k.with, self.rows * 4),
            Update::Scan => {
                let rates = of_head(e, k.with, matrix);
                e.add(rates, at.column)
            }
        };
        let state = e.index(state, at.head, matrix);
        Token {
            state: e.add(state, at.column),
            q: keys(e, k.q, k.q_start),
            key: keys(e, k.k, k.k_start),
            v: values(e, k.v, k.v_start),
            decay,
            with,
            // Nobody reads it where there is none.
            write: k.write.map_or(with, |p| keys(e, p, 0)),
            out: values(e, k.out, 0),
        }
    }

    /// The same operations as in the microkernel.
    fn token(&self, e: &mut Emit, t: &Token) {
        let update = self.k.update;
        let one_decay = update != Update::Scan && !self.per_row;
        let one = one_decay.then(|| e.load_splat(t.decay, 0));
        let steps = if update == Update::Scan { load(e, t.decay, &self.vectors) } else { vec![] };
        let (new, erased) = self.before(e, t, one);
        let zeros: Vec<Value> = new.iter().map(|_| e.floats(0.0)).collect();
        let y = e.fixed(self.rows, 1, &zeros, |e, i, y| {
            let p = e.index(t.state, i, self.cols * 4);
            let old = load(e, p, &self.vectors);
            let (key, query) = (element(e, t.key, i), element(e, t.q, i));
            let decays = if update == Update::Scan {
                let rates = e.index(t.with, i, self.cols * 4);
                let rates = load(e, rates, &self.vectors);
                let exponents: Vec<Value> = rates.iter().zip(&steps).map(|(rate, step)| e.fmul(*rate, *step)).collect();
                exponents.into_iter().map(|x| e.exp(x)).collect()
            } else {
                let decay = one.unwrap_or_else(|| element(e, t.decay, i));
                vec![decay; old.len()]
            };
            let mut s: Vec<Value> = old.iter().zip(decays).map(|(s, decay)| e.fmul(decay, *s)).collect();
            if update == Update::Erase {
                let write = element(e, t.write, i);
                s = s.iter().zip(&erased).map(|(s, erased)| e.fma(write, *erased, *s)).collect();
            }
            let s: Vec<Value> = s.iter().zip(&new).map(|(s, v)| e.fma(key, *v, *s)).collect();
            store(e, &s, p, &self.vectors);
            let read = if update == Update::Bonus {
                let bonus = element(e, t.with, i);
                let bonus = e.fmul(bonus, key);
                old.iter().zip(&new).map(|(s, v)| e.fma(bonus, *v, *s)).collect()
            } else {
                s
            };
            read.iter().zip(y).map(|(s, y)| e.fma(query, *s, *y)).collect()
        });
        store(e, &y, t.out, &self.vectors);
    }

    /// The additions to the state, and the erased part, negated.
    fn before(&self, e: &mut Emit, t: &Token, decay: Option<Value>) -> (Vec<Value>, Vec<Value>) {
        let v = load(e, t.v, &self.vectors);
        let zeros: Vec<Value> = v.iter().map(|_| e.floats(0.0)).collect();
        let held = |e: &mut Emit, keys: Value| {
            e.fixed(self.rows, 1, &zeros, |e, i, held| {
                let p = e.index(t.state, i, self.cols * 4);
                let a = decay.unwrap_or_else(|| element(e, t.decay, i));
                let key = element(e, keys, i);
                let s = load(e, p, &self.vectors);
                let s: Vec<Value> = s.into_iter().map(|s| e.fmul(a, s)).collect();
                s.iter().zip(held).map(|(s, held)| e.fma(key, *s, *held)).collect()
            })
        };
        let rated = |e: &mut Emit, v: Vec<Value>| {
            let rate = e.load_splat(t.with, 0);
            v.into_iter().map(|v| e.fmul(rate, v)).collect()
        };
        match self.k.update {
            Update::Plain => (rated(e, v), vec![]),
            Update::Delta => {
                let held = held(e, t.key);
                let new = v.iter().zip(held).map(|(v, held)| e.fsub(*v, held)).collect();
                (rated(e, new), vec![])
            }
            Update::Erase => {
                let held = held(e, t.with);
                let erased = held.iter().zip(&zeros).map(|(held, zero)| e.fsub(*zero, *held)).collect();
                (v, erased)
            }
            Update::Bonus | Update::Scan => (v, vec![]),
        }
    }
}

/// Element `i` in all lanes.
fn element(e: &mut Emit, p: Value, i: Value) -> Value {
    let p = e.index(p, i, 4);
    e.load_splat(p, 0)
}
