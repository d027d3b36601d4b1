//! Indices of trellis codes as 128-bit vector code: see [`llmcc_abi::encoding::trellis`].

use super::emit::{Emit, I32, I32X4};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::encoding::trellis::Trellis;
use llmcc_abi::layout::{BLOCK, K_PAD};

/// Bytes of a plane of a slice.
const PLANE: usize = BLOCK * 4;

/// Where the codes of a slice of 32 columns are.
pub(super) struct Slice {
    of: &'static Trellis,
    now: Value,
    /// The slice before, or the same where that is of another group.
    before: Value,
    /// All bits of 4 words; none where the slice begins a group.
    kept: Value,
}

impl Slice {
    /// The slice at `now`; `first` (a flag) says whether it begins a group.
    pub fn new(e: &mut Emit, of: &'static Trellis, now: Value, first: Value) -> Slice {
        let back = e.int(-((of.bits as usize * PLANE) as i64));
        let (zero, none, all) = (e.int(0), e.b.ins().iconst(I32, 0), e.b.ins().iconst(I32, -1));
        let back = e.b.ins().select(first, zero, back);
        let before = e.add(now, back);
        let kept = e.b.ins().select(first, none, all);
        Slice { of, now, before, kept: e.splat(kept) }
    }

    /// The slice of column `k` of codes in groups of `group` columns, and the bit of the column in its words (i32).
    pub fn at(e: &mut Emit, of: &'static Trellis, group: usize, codes: Value, k: Value) -> (Slice, Value) {
        let (slice, within) = e.div_mod(k, K_PAD);
        let now = e.index(codes, slice, of.bits as usize * PLANE);
        let (_, of_group) = e.div_mod(k, group.max(1));
        let first = e.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, of_group, K_PAD as i64);
        let (quad, byte) = e.div_mod(within, 4);
        let byte = e.times(byte, 8);
        let place = e.add(byte, quad);
        let place = e.b.ins().ireduce(I32, place);
        (Slice::new(e, of, now, first), place)
    }

    /// A word for each bit of an index: that bit of 32 columns, for the rows whose words `load(e, address, offset)`
    /// loads.
    pub fn words(&self, e: &mut Emit, load: impl Fn(&mut Emit, Value, usize) -> Value) -> Vec<Value> {
        let planes: Vec<(Value, Value)> = (0..self.of.bits as usize)
            .map(|plane| {
                let (now, before) = (load(e, self.now, plane * PLANE), load(e, self.before, plane * PLANE));
                (now, e.b.ins().band(before, self.kept))
            })
            .collect();
        (0..self.of.index_bits())
            .map(|bit| {
                let terms = self.of.taps(bit).map(|tap| {
                    let (now, before) = planes[tap.plane];
                    if tap.age == 0 {
                        return now;
                    }
                    let up = e.b.ins().ishl_imm_u(now, tap.age as i64);
                    let down = e.b.ins().ushr_imm_u(before, 32 - tap.age as i64);
                    e.b.ins().bor(up, down)
                });
                let first = e.b.ins().bxor(terms[0], terms[1]);
                e.b.ins().bxor(first, terms[2])
            })
            .collect()
    }

    /// The indices of vector `v` of a block in the column whose bit of the words is `place`, as i32.
    pub fn column(&self, e: &mut Emit, v: usize, place: Value) -> Value {
        let words = self.words(e, |e, p, offset| e.load(I32X4, p, offset + v * 16));
        joined(e, &words, place, 1)
    }

    /// The indices of 8 columns of a row, the first of them at `place`, as i32; the address of the slice is the row's.
    pub fn eight(&self, e: &mut Emit, place: Value) -> [Value; 2] {
        let words = self.words(e, |e, p, offset| {
            let word = e.load(I32, p, offset);
            e.splat(word)
        });
        let next = e.b.ins().iadd_imm_s(place, 1);
        [place, next].map(|place| {
            let four = joined(e, &words, place, 0x0101_0101);
            let word = e.b.ins().extractlane(four, 0);
            e.bytes(word)
        })
    }
}

/// The bits of `mask` of words, moved down by `place`, as bits of indices.
pub(super) fn joined(e: &mut Emit, words: &[Value], place: Value, mask: u32) -> Value {
    let mut out = e.ints(0);
    for (bit, word) in words.iter().enumerate() {
        let moved = e.b.ins().ushr(*word, place);
        let mask = e.ints(mask);
        let one = e.b.ins().band(moved, mask);
        let up = e.b.ins().ishl_imm_u(one, bit as i64);
        out = e.b.ins().bor(out, up);
    }
    out
}
