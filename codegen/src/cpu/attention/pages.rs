//! Pages of the cache in f32, in the order in which attention reads them.

use super::{Plan, Tile, VECTORS};
use crate::cpu::Lowering;
use crate::cpu::emit::{Emit, F32, F32X4, I8X16, I32, LANES};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::kv::KvDType;

impl Plan {
    /// Brings a page of one KV head to f32 and computes its masks.
    pub(super) fn load(&self, low: &Lowering, e: &mut Emit, page: Value, head: Value, from: Value, to: Value) -> Tile {
        let k = e.index(page, head, self.spec.head_bytes(true) * PAGE_TOKENS);
        let v = match self.spec.uniform() {
            true => k,
            false => e.index(page, head, self.spec.head_bytes(false) * PAGE_TOKENS),
        };
        let v = e.offset(v, self.page.v);
        let (keys, values) = (self.spec.own_dim() * PAGE_TOKENS, self.spec.value_dim * PAGE_TOKENS);
        let (k, v) = match self.spec.dtype {
            KvDType::F32 if self.spec.latent => (self.widen(low, e, k, (self.k_buffer, keys)), v),
            KvDType::F32 => (k, v),
            KvDType::F16 | KvDType::Bf16 => {
                (self.widen(low, e, k, (self.k_buffer, keys)), self.widen(low, e, v, (self.v_buffer, values)))
            }
            KvDType::Int4 => unreachable!("`supported` refuses it without microkernels"),
            KvDType::Int8 => {
                let scales = e.index(page, head, PAGE_TOKENS * 4);
                (self.decode_keys(low, e, k, scales), self.decode_values(low, e, v, scales))
            }
        };
        if self.spec.latent {
            self.turn(e, v, k);
        }
        let (a, b) = (e.b.ins().ireduce(I32, from), e.b.ins().ireduce(I32, to));
        let (a, b) = (e.splat(a), e.splat(b));
        let valid = std::array::from_fn(|i| {
            let slots = e.lane_numbers((i * LANES) as u32);
            let after = e.compare(IntCC::SignedGreaterThanOrEqual, slots, a);
            let before = e.compare(IntCC::SignedLessThan, slots, b);
            e.b.ins().band(after, before)
        });
        Tile { k, v, from, to, valid }
    }

    /// Values in f32, `[16][value_dim]`, behind the part stored as keys: `[value_dim][16]`.
    fn turn(&self, e: &mut Emit, values: Value, keys: Value) {
        let to = e.offset(keys, self.spec.own_dim() * PAGE_TOKENS * 4);
        e.each_fixed(self.spec.value_dim, 1, |e, i| {
            let (from, to) = (e.index(values, i, 4), e.index(to, i, PAGE_TOKENS * 4));
            for slot in 0..PAGE_TOKENS {
                let x = e.load(F32, from, slot * self.spec.value_dim * 4);
                e.store(x, to, slot * 4);
            }
        });
    }

    /// So many floats to f32, in the same order.
    fn widen(&self, low: &Lowering, e: &mut Emit, from: Value, (to, count): (usize, usize)) -> Value {
        let to = e.offset(low.args.scratch, to);
        let bytes = self.spec.dtype.bits() / 8;
        e.each_fixed(count, PAGE_TOKENS, |e, i| {
            let (from, to) = (e.index(from, i, bytes), e.index(to, i, 4));
            for v in 0..VECTORS {
                let x = match self.spec.dtype {
                    KvDType::F16 => {
                        let halves = e.load_halves(from, v * LANES * 2);
                        e.f16_to_f32(halves)
                    }
                    KvDType::Bf16 => {
                        let halves = e.load_halves(from, v * LANES * 2);
                        e.bf16_to_f32(halves)
                    }
                    KvDType::F32 => e.load_lanes(from, v * 16, LANES),
                    KvDType::Int8 | KvDType::Int4 => unreachable!("codes have scales"),
                };
                e.store(x, to, v * 16);
            }
        });
        to
    }

    /// int8 keys `[own_dim][16]` times a scale per column.
    fn decode_keys(&self, low: &Lowering, e: &mut Emit, from: Value, scales: Value) -> Value {
        let to = e.offset(low.args.scratch, self.k_buffer);
        let scales: Vec<Value> =
            (0..VECTORS).map(|i| e.load_lanes(scales, self.page.k_scales + i * 16, LANES)).collect();
        e.each_fixed(self.spec.own_dim(), 1, |e, d| {
            let p = e.index(from, d, PAGE_TOKENS);
            let out = e.index(to, d, PAGE_TOKENS * 4);
            let bytes = e.load(I8X16, p, 0);
            let (low, high) = (e.b.ins().swiden_low(bytes), e.b.ins().swiden_high(bytes));
            for (i, part) in [low, high].into_iter().enumerate() {
                let parts = [e.b.ins().swiden_low(part), e.b.ins().swiden_high(part)];
                for (j, part) in parts.into_iter().enumerate() {
                    let x = e.b.ins().fcvt_from_sint(F32X4, part);
                    let x = e.fmul(x, scales[2 * i + j]);
                    e.store(x, out, (2 * i + j) * 16);
                }
            }
        });
        to
    }

    /// int8 values `[16][value_dim]` times a scale per row.
    fn decode_values(&self, low: &Lowering, e: &mut Emit, from: Value, scales: Value) -> Value {
        let to = e.offset(low.args.scratch, self.v_buffer);
        let d = self.spec.value_dim;
        e.each_fixed(PAGE_TOKENS, 1, |e, slot| {
            let scale = e.index(scales, slot, 4);
            let scale = e.load_splat(scale, self.page.v_scales);
            let (from, to) = (e.index(from, slot, d), e.index(to, slot, d * 4));
            // Bytes past the row are still in the page: scales follow.
            let step = |e: &mut Emit, from: Value, to: Value, lanes: usize| {
                let x = e.load_bytes(from, 0);
                let x = e.b.ins().fcvt_from_sint(F32X4, x);
                let x = e.fmul(x, scale);
                e.store_lanes(x, to, 0, lanes);
            };
            let whole = d / LANES * LANES;
            e.each_fixed(whole, LANES, |e, i| {
                let (from, to) = (e.add(from, i), e.index(to, i, 4));
                step(e, from, to, LANES);
            });
            if whole < d {
                let (from, to) = (e.offset(from, whole), e.offset(to, whole * 4));
                step(e, from, to, d - whole);
            }
        });
        to
    }
}
