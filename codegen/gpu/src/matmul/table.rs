//! Codes of up to 4 bits that index a table, as operands of tensor cores: the bytes of all sixteen
//! numbers are in registers, and one instruction looks up four codes among eight of them.

use crate::mlir::{Builder, Elem, I32, V};
use half::{bf16, f16};

/// The eight codes of a word as four pairs of numbers, each rounded to `half`: pair `r` is of codes
/// `r` and `r + 4`.
pub fn look_up(b: &mut Builder, half: Elem, word: V, values: &[u32]) -> [V; 4] {
    let bits = |v: &u32| {
        let x = f32::from_bits(*v);
        if half == Elem::Bf16 { bf16::from_f32(x).to_bits() } else { f16::from_f32(x).to_bits() }
    };
    let numbers: Vec<u16> = values.iter().map(bits).collect();
    // The lower three bits of codes choose in a half of the table; the highest, as a distance of
    // four bytes, chooses between the halves' results.
    let (within, highest) = (b.andc(word, 0x7777_7777), b.andc(word, 0x8888_8888u32.into()));
    let highest = b.shrc(highest, 1);
    let places = b.i32(0x3210_3210);
    let which = b.or(highest, places);
    let [first, second] = [0, 16].map(|shift| {
        let (within, which) = (b.shrc(within, shift), b.shrc(which, shift));
        let [low, high] = [0, 8].map(|from| byte_of_each(b, &numbers, from, (within, which)));
        [prmt(b, low, high, 0x5140), prmt(b, low, high, 0x7362)]
    });
    std::array::from_fn(|r| prmt(b, first[r / 2], second[r / 2], if r % 2 == 0 { 0x5410 } else { 0x7632 }))
}

/// The byte from bit `from` on of the numbers of four codes.
fn byte_of_each(b: &mut Builder, numbers: &[u16], from: u32, (within, which): (V, V)) -> V {
    let bytes: Vec<u8> = numbers.iter().map(|n| (n >> from) as u8).collect();
    if bytes.iter().all(|byte| *byte == 0) {
        return b.i32(0);
    }
    let word = |b: &mut Builder, i: usize| {
        b.i32(i32::from_le_bytes(std::array::from_fn(|j| bytes[(i + j) % bytes.len()])).into())
    };
    if bytes.len() <= 8 {
        let (x, y) = (word(b, 0), word(b, 4));
        return permute_bytes(b, x, y, within);
    }
    let [low, high] = [0, 8].map(|i| {
        let (x, y) = (word(b, i), word(b, i + 4));
        permute_bytes(b, x, y, within)
    });
    permute_bytes(b, low, high, which)
}

/// Four bytes of two words, by a selector.
pub fn prmt(b: &mut Builder, x: V, y: V, selector: u32) -> V {
    b.asm(I32, &format!("prmt.b32 $0, $1, $2, {selector:#06x};"), "=r,r,r", &[x, y])
}

/// Four bytes of two words, by a selector that is known when running.
pub fn permute_bytes(b: &mut Builder, x: V, y: V, selector: V) -> V {
    b.asm(I32, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", &[x, y, selector])
}
