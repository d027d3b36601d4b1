//! Convolutions over time and linear recurrences.
//!
//! A work item is some columns of a state, for all tokens of the step one after the other: each
//! finds the slot of its sequence, so that however the tokens of sequences are mixed and cut into
//! steps, those of a sequence make the same chain of operations.

use super::Lowering;
use super::emit::{Emit, LANES};
use super::rope::microkernel;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, InstBuilder, MemFlagsData, Signature, StackSlot, StackSlotData, StackSlotKind, Value,
};
use cranelift_codegen::isa::CallConv;
use llmcc_abi::recur::RecurArgs;
use llmcc_abi::{StepCtx, Uk};
use llmcc_ir::kernel::{CausalConv, ParamId, Recurrence};
use llmcc_ir::state::FixedSpec;
use std::mem::offset_of;

/// Where tokens find their states.
struct Slots {
    seqs: Value,
    tables: Value,
    stride: Value,
    pool: Value,
    bytes: usize,
}

impl Slots {
    fn new(low: &Lowering, e: &mut Emit, state: ParamId) -> Slots {
        Slots {
            seqs: low.args.step(e, offset_of!(StepCtx, seqs)),
            tables: low.args.step(e, offset_of!(StepCtx, block_tables)),
            stride: low.args.step(e, offset_of!(StepCtx, block_stride)),
            pool: low.args.operand(state),
            bytes: low.kernel.fixed(state).bytes(),
        }
    }

    /// Address of the state of a token's sequence.
    fn of(&self, e: &mut Emit, token: Value) -> Value {
        let p = e.index(self.seqs, token, 4);
        let seq = e.load_index(p, 0);
        let entry = e.b.ins().imul(seq, self.stride);
        let p = e.index(self.tables, entry, 4);
        let slot = e.b.ins().uload32(MemFlagsData::new().with_notrap(), p, 0);
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
    let (whole, rest) = (channels / CausalConv::CHANNELS, channels % CausalConv::CHANNELS);
    let end = e.int(whole as i64);
    let stop = e.min(low.args.hi, end);
    e.each(low.args.lo, stop, 1, |e, item| block(low, e, k, &slots, (item, CausalConv::CHANNELS)));
    if rest > 0 {
        // The last item, if it is among these, has fewer channels.
        let from = e.max(low.args.lo, end);
        e.each(from, low.args.hi, 1, |e, item| block(low, e, k, &slots, (item, rest)));
    }
}

/// `width` channels from those of item `item` on.
fn block(low: &Lowering, e: &mut Emit, k: &CausalConv, slots: &Slots, (item, width): (Value, usize)) {
    let channels = low.kernel.fixed(k.state).cols;
    let (row, vectors) = (channels * 4, vectors(width));
    let at = e.times(item, CausalConv::CHANNELS * 4);
    let taps = e.add(low.args.operand(k.taps), at);
    let zero = e.int(0);
    e.each(zero, low.args.m, 1, |e, token| {
        let state = slots.of(e, token);
        let state = e.add(state, at);
        let x = e.index(low.args.operand(k.x), token, low.cols(k.x) * 4);
        let x = e.offset(x, k.start * 4);
        let x = e.add(x, at);
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

/// Emits the items `lo..hi`.
pub(super) fn recurrence(low: &Lowering, e: &mut Emit, k: &Recurrence) {
    let FixedSpec { heads, rows, cols } = low.kernel.fixed(k.state);
    let slots = Slots::new(low, e, k.state);
    let width = Recurrence::block(cols);
    let plan = Plan { k, rows, cols, vectors: vectors(width), per_row: low.cols(k.decay) != heads };
    let args = (!low.portable).then(|| plan.arguments(e, width));
    e.each(low.args.lo, low.args.hi, 1, |e, item| {
        let (head, block) = e.div_mod(item, cols / width);
        let (group, _) = e.div_mod(head, heads / k.groups);
        let column = e.times(block, width * 4);
        let of_head = e.index(column, head, cols * 4);
        let zero = e.int(0);
        e.each(zero, low.args.m, 1, |e, token| {
            let state = slots.of(e, token);
            let state = e.index(state, head, rows * cols * 4);
            let state = e.add(state, column);
            let row = |e: &mut Emit, p: ParamId, start: usize| {
                let x = e.index(low.args.operand(p), token, low.cols(p) * 4);
                e.offset(x, start * 4)
            };
            let (q, key) = (row(e, k.q, k.q_start), row(e, k.k, k.k_start));
            let [q, key] = [q, key].map(|p| e.index(p, group, rows * 4));
            let (v, out) = (row(e, k.v, k.v_start), row(e, k.out, 0));
            let [v, out] = [v, out].map(|p| e.add(p, of_head));
            let (decay, rate) = (row(e, k.decay, 0), row(e, k.rate, 0));
            let rate = e.index(rate, head, 4);
            let decay = e.index(decay, head, if plan.per_row { rows * 4 } else { 4 });
            let token = Token { state, q, key, v, decay, rate, out };
            match args {
                Some(args) => token.call(low, e, args),
                None => plan.token(e, &token),
            }
        });
    });
}

/// What all tokens have in common.
struct Plan<'a> {
    k: &'a Recurrence,
    rows: usize,
    cols: usize,
    vectors: Vec<(usize, usize)>,
    /// A decay per row of the state, else per head.
    per_row: bool,
}

/// Addresses of what a token reads and writes for a block of a head's columns.
struct Token {
    state: Value,
    q: Value,
    key: Value,
    v: Value,
    decay: Value,
    rate: Value,
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
            (offset_of!(RecurArgs, rate), self.rate),
            (offset_of!(RecurArgs, out), self.out),
        ];
        for (offset, value) in addresses {
            e.store(value, args, offset);
        }
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.push(AbiParam::new(I64));
        let signature = e.b.import_signature(signature);
        let function = microkernel(low, e, Uk::Recur);
        e.b.ins().call_indirect(signature, function, &[args]);
    }
}

impl Plan<'_> {
    /// The microkernel's arguments, with those that all tokens have in common.
    fn arguments(&self, e: &mut Emit, width: usize) -> StackSlot {
        let bytes = size_of::<RecurArgs>() as u32;
        let slot = e.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3));
        let args = e.b.ins().stack_addr(I64, slot, 0);
        let numbers = [
            (offset_of!(RecurArgs, stride), self.cols),
            (offset_of!(RecurArgs, rows), self.rows),
            (offset_of!(RecurArgs, cols), width),
            (offset_of!(RecurArgs, decays), usize::from(self.per_row)),
            (offset_of!(RecurArgs, delta), usize::from(self.k.delta)),
        ];
        for (offset, number) in numbers {
            let number = e.int(number as i64);
            e.store(number, args, offset);
        }
        slot
    }

    fn token(&self, e: &mut Emit, t: &Token) {
        let rate = e.load_splat(t.rate, 0);
        let decay = (!self.per_row).then(|| e.load_splat(t.decay, 0));
        let v = load(e, t.v, &self.vectors);
        let zeros: Vec<Value> = v.iter().map(|_| e.floats(0.0)).collect();
        let new: Vec<Value> = if self.k.delta {
            // The decayed state, and what it holds for the key.
            let held = e.fixed(self.rows, 1, &zeros, |e, i, held| {
                let (s, p) = self.decayed(e, t, i, decay);
                store(e, &s, p, &self.vectors);
                let key = element(e, t.key, i);
                s.iter().zip(held).map(|(s, held)| e.fma(key, *s, *held)).collect()
            });
            v.iter().zip(held).map(|(v, held)| e.fsub(*v, held)).collect()
        } else {
            v
        };
        let new: Vec<Value> = new.into_iter().map(|v| e.fmul(rate, v)).collect();
        let y = e.fixed(self.rows, 1, &zeros, |e, i, y| {
            let (s, p) = match self.k.delta {
                true => {
                    let p = e.index(t.state, i, self.cols * 4);
                    (load(e, p, &self.vectors), p)
                }
                false => self.decayed(e, t, i, decay),
            };
            let key = element(e, t.key, i);
            let s: Vec<Value> = s.iter().zip(&new).map(|(s, v)| e.fma(key, *v, *s)).collect();
            store(e, &s, p, &self.vectors);
            let q = element(e, t.q, i);
            s.iter().zip(y).map(|(s, y)| e.fma(q, *s, *y)).collect()
        });
        store(e, &y, t.out, &self.vectors);
    }

    /// Row `i` of the state, decayed, and its address.
    fn decayed(&self, e: &mut Emit, t: &Token, i: Value, decay: Option<Value>) -> (Vec<Value>, Value) {
        let p = e.index(t.state, i, self.cols * 4);
        let a = decay.unwrap_or_else(|| element(e, t.decay, i));
        let s = load(e, p, &self.vectors);
        (s.into_iter().map(|s| e.fmul(a, s)).collect(), p)
    }
}

/// Element `i` in all lanes.
fn element(e: &mut Emit, p: Value, i: Value) -> Value {
    let p = e.index(p, i, 4);
    e.load_splat(p, 0)
}
