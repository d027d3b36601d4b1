//! Codes of two of each four columns as 128-bit vector code: see [`llmcc_abi::layout::pair_at`].

use super::emit::{Emit, I8X16, I32, I32X4};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::encoding::PAIRS_ZERO;
use llmcc_abi::layout::{K_PAD, PAIR_PLACES, PAIR_SLICE};

/// The place of each byte of a word, in four words.
const PLACES: u32 = 0x0302_0100;

/// Where the codes of the four columns of a column are.
pub(super) struct Pairs {
    /// The chunk of codes, and that of places; or a row's words of them.
    stored: Value,
    places: Value,
    /// The first of their bits in a word (i32).
    of_code: Value,
    of_place: Value,
    /// The column among the four (i32).
    column: Value,
}

impl Pairs {
    /// The places of column `k`.
    pub fn at(e: &mut Emit, codes: Value, k: Value) -> Pairs {
        let (slice, within) = e.div_mod(k, K_PAD);
        let slice = e.index(codes, slice, PAIR_SLICE);
        let (chunk, of_chunk) = e.div_mod(within, 16);
        let stored = e.index(slice, chunk, 64);
        let (half, of_half) = e.div_mod(of_chunk, 8);
        let (four, column) = e.div_mod(of_half, 4);
        let (eight, _) = e.div_mod(within, 8);
        let (bytes, half, eight) = (e.times(four, 16), e.times(half, 4), e.times(eight, 2));
        let (of_code, of_place) = (e.add(bytes, half), e.add(bytes, eight));
        let [of_code, of_place, column] = [of_code, of_place, column].map(|x| e.b.ins().ireduce(I32, x));
        Pairs { stored, places: e.offset(slice, PAIR_PLACES), of_code, of_place, column }
    }

    /// The codes of vector `v` of a block, as i32.
    pub fn column(&self, e: &mut Emit, v: usize) -> Value {
        let stored = e.load(I32X4, self.stored, v * 16);
        let places = e.load(I32X4, self.places, v * 16);
        let column = e.splat(self.column);
        let stored = e.b.ins().ushr(stored, self.of_code);
        let places = e.b.ins().ushr(places, self.of_place);
        let mut found = e.ints(PAIRS_ZERO as u32);
        for i in 0..2 {
            let code = field(e, stored, i * 8, 15);
            let place = field(e, places, i * 8, 3);
            let here = e.b.ins().icmp(IntCC::Equal, place, column);
            found = e.b.ins().bitselect(here, code, found);
        }
        found
    }

    /// The codes of 8 columns of a row from this one on, as i32; the addresses are the row's.
    pub fn eight(&self, e: &mut Emit) -> [Value; 2] {
        let (stored, places) = (e.load(I32, self.stored, 0), e.load(I32, self.places, 0));
        let stored = e.b.ins().ushr(stored, self.of_code);
        let places = e.b.ins().ushr(places, self.of_place);
        let (stored, places) = (e.splat(stored), e.splat(places));
        [0, 16].map(|up| {
            let bytes = dense(e, stored, places, up);
            let word = e.b.ins().extractlane(bytes, 0);
            e.bytes(word)
        })
    }
}

/// The codes of four columns of four rows, a byte each. The words `stored` and `places` have eight columns in their
/// lower bits; `up` is 0 for the first four columns, 16 for the others.
pub(super) fn dense(e: &mut Emit, stored: Value, places: Value, up: i64) -> Value {
    let (columns, mut codes) = (e.ints(PLACES), e.ints(PAIRS_ZERO as u32 * 0x0101_0101));
    for i in 0..2 {
        let code = spread(e, stored, up + i * 8, 15);
        let place = spread(e, places, up + i * 8, 3);
        let [place, columns, code, before] = [place, columns, code, codes].map(|x| e.cast(I8X16, x));
        let here = e.b.ins().icmp(IntCC::Equal, place, columns);
        let now = e.b.ins().bitselect(here, code, before);
        codes = e.cast(I32X4, now);
    }
    codes
}

/// The bits of `mask` of words moved down.
fn field(e: &mut Emit, words: Value, down: i64, mask: u32) -> Value {
    let words = e.b.ins().ushr_imm_u(words, down);
    let mask = e.ints(mask);
    e.b.ins().band(words, mask)
}

/// The same in each byte of a word.
fn spread(e: &mut Emit, words: Value, down: i64, mask: u32) -> Value {
    let field = field(e, words, down, mask);
    let up = e.b.ins().ishl_imm_u(field, 8);
    let two = e.b.ins().bor(field, up);
    let up = e.b.ins().ishl_imm_u(two, 16);
    e.b.ins().bor(two, up)
}
