//! Layouts as linear maps over bits: the tests describe the emitters with them.
//!
//! Where an element of a tile lies (its offset in shared memory, the lane and register that hold
//! it) is in all layouts of tensor-core kernels a linear function over GF(2) of the bits of its
//! index: each index bit contributes a fixed pattern of output bits, and contributions are XORed.
//! Bit permutations, swizzles, the operand fragments of `mma` and `wgmma` and our weight packing
//! ([`fragment`]) are such maps, so they compose, invert and can be searched for bank conflicts.

use super::layout::{Swizzle, conflict_degree};
use crate::quant::{Encoding, FORMATS};
use llmcc_abi::layout::{fragment_at, fragment_bits};
use proptest::prelude::*;
use std::fmt;

/// A named run of bits of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Axis {
    /// Name of the counted dimension: `row`, `lane`, `byte`...
    name: &'static str,
    /// Bits: the axis has 2^bits values.
    bits: u32,
}

/// Shorthand for an axis.
const fn axis(name: &'static str, bits: u32) -> Axis {
    Axis { name, bits }
}

/// A linear map from the bits of some axes to the bits of others. An index is packed into a number,
/// the first axis in the lowest bits; at most 63 bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LinearLayout {
    inputs: Vec<Axis>,
    outputs: Vec<Axis>,
    /// Image of each input bit, lowest first.
    columns: Vec<u64>,
}

fn width(axes: &[Axis]) -> u32 {
    axes.iter().map(|a| a.bits).sum()
}

impl LinearLayout {
    /// The map that sends each input bit, lowest first, to the output bits of its column. `None` if
    /// there is not a column per input bit, a column has bits that the outputs lack, or there are
    /// too many bits.
    fn new(inputs: &[Axis], outputs: &[Axis], columns: Vec<u64>) -> Option<LinearLayout> {
        let (from, to) = (width(inputs), width(outputs));
        let fits = from < 64 && to < 64 && from as usize == columns.len() && columns.iter().all(|c| c >> to == 0);
        fits.then(|| LinearLayout { inputs: inputs.to_vec(), outputs: outputs.to_vec(), columns })
    }

    /// The map that `f` is on packed indices, if it is linear. Every index is tried.
    fn of(inputs: &[Axis], outputs: &[Axis], f: impl Fn(u64) -> u64) -> Option<LinearLayout> {
        let columns = (0..width(inputs)).map(|b| f(1 << b)).collect();
        let map = LinearLayout::new(inputs, outputs, columns)?;
        (0..1u64 << width(inputs)).all(|x| f(x) == map.map(x)).then_some(map)
    }

    /// The map that leaves every bit in its place, under other names.
    fn identity(inputs: &[Axis], outputs: &[Axis]) -> Option<LinearLayout> {
        LinearLayout::new(inputs, outputs, (0..width(inputs)).map(|b| 1 << b).collect())
    }

    /// The image of a packed index; bits beyond the inputs are ignored.
    fn map(&self, index: u64) -> u64 {
        self.columns.iter().enumerate().filter(|(b, _)| index >> b & 1 == 1).fold(0, |sum, (_, c)| sum ^ c)
    }

    /// The image of an index given by axis; axes not given are 0. Unknown names are ignored.
    fn apply(&self, index: &[(&str, u64)]) -> u64 {
        let mut packed = 0;
        let mut at = 0;
        for a in &self.inputs {
            let value = index.iter().find(|(n, _)| *n == a.name).map_or(0, |(_, v)| *v);
            packed |= (value & ((1u64 << a.bits) - 1)) << at;
            at += a.bits;
        }
        self.map(packed)
    }

    /// The value of one axis of a packed result; 0 if there is no such axis.
    fn output(&self, name: &str, result: u64) -> u64 {
        let mut at = 0;
        for a in &self.outputs {
            if a.name == name {
                return result >> at & ((1u64 << a.bits) - 1);
            }
            at += a.bits;
        }
        0
    }

    /// First this map, then `next`, whose inputs must be this map's outputs.
    fn then(&self, next: &LinearLayout) -> Option<LinearLayout> {
        (self.outputs == next.inputs).then(|| LinearLayout {
            inputs: self.inputs.clone(),
            outputs: next.outputs.clone(),
            columns: self.columns.iter().map(|c| next.map(*c)).collect(),
        })
    }

    /// The map back, if every result has exactly one index.
    fn invert(&self) -> Option<LinearLayout> {
        let n = self.columns.len();
        if n as u32 != width(&self.outputs) {
            return None;
        }
        // Gauss–Jordan on pairs (image, index bits that make it).
        let mut rows: Vec<(u64, u64)> = self.columns.iter().enumerate().map(|(i, c)| (*c, 1 << i)).collect();
        for bit in 0..n {
            let pivot = (bit..n).find(|r| rows[*r].0 >> bit & 1 == 1)?;
            rows.swap(bit, pivot);
            let (image, from) = rows[bit];
            for (r, row) in rows.iter_mut().enumerate() {
                if r != bit && row.0 >> bit & 1 == 1 {
                    *row = (row.0 ^ image, row.1 ^ from);
                }
            }
        }
        let columns = rows.into_iter().map(|(_, from)| from).collect();
        Some(LinearLayout { inputs: self.outputs.clone(), outputs: self.inputs.clone(), columns })
    }

    /// Number of different results, as a power of two.
    fn rank(&self) -> u32 {
        rank(self.columns.iter().copied())
    }

    /// Ways in which the accesses of a warp collide in the banks of shared memory, as
    /// [`conflict_degree`]: each of the 32 values of axis `lane` reads or writes `width` bytes at
    /// the offset in axis `byte` of the result. All other index bits shift all lanes by the same
    /// XOR, which maps banks one to one, so the answer does not depend on them (the memory must be
    /// aligned to the size of the map). `None` if an axis is missing.
    fn bank_conflicts(&self, width: u32) -> Option<u32> {
        let lane = self.inputs.iter().any(|a| a.name == "lane" && a.bits == 5);
        let byte = self.outputs.iter().any(|a| a.name == "byte");
        let offsets: Vec<u32> = (0..32).map(|l| self.output("byte", self.apply(&[("lane", l)])) as u32).collect();
        (lane && byte).then(|| conflict_degree(&offsets, width))
    }
}

impl fmt::Display for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |axes: &[Axis]| axes.iter().map(|a| format!("{}:{}", a.name, a.bits)).collect::<Vec<_>>().join(" ");
        write!(f, "({}) -> ({}) [", list(&self.inputs), list(&self.outputs))?;
        for (i, c) in self.columns.iter().enumerate() {
            write!(f, "{}{c:#x}", if i == 0 { "" } else { " " })?;
        }
        f.write_str("]")
    }
}

fn rank(columns: impl Iterator<Item = u64>) -> u32 {
    let mut basis: Vec<u64> = vec![];
    for mut c in columns {
        for b in &basis {
            c = c.min(c ^ b);
        }
        if c != 0 {
            basis.push(c);
        }
    }
    basis.len() as u32
}

/// The swizzle of a memory of 2^bits bytes, as a map of axis `byte` to itself.
fn swizzled(swizzle: Swizzle, bits: u32) -> LinearLayout {
    let byte = [axis("byte", bits)];
    let columns = (0..bits).map(|b| swizzle.apply(1 << b)).collect();
    LinearLayout { inputs: byte.to_vec(), outputs: byte.to_vec(), columns }
}

/// `(half, lane) -> (row, k)` of the A operand of `mma.m16n8k16`: 8 halves per lane.
fn mma_a() -> LinearLayout {
    fixed(
        &[axis("half", 3), axis("lane", 5)],
        &[axis("row", 4), axis("k", 4)],
        &[0x10, 0x8, 0x80, 0x20, 0x40, 0x1, 0x2, 0x4],
    )
}

/// `(half, lane) -> (k, col)` of the B operand of `mma.m16n8k16`: 4 halves per lane.
fn mma_b() -> LinearLayout {
    fixed(&[axis("half", 2), axis("lane", 5)], &[axis("k", 4), axis("col", 3)], &[0x1, 0x8, 0x2, 0x4, 0x10, 0x20, 0x40])
}

/// `(register, lane) -> (row, col)` of the f32 accumulator of `mma.m16n8k16`: 4 registers per lane.
fn mma_c() -> LinearLayout {
    fixed(
        &[axis("register", 2), axis("lane", 5)],
        &[axis("row", 4), axis("col", 3)],
        &[0x10, 0x8, 0x20, 0x40, 0x1, 0x2, 0x4],
    )
}

/// `(register, lane, warp) -> (row, col)` of the f32 accumulator of `wgmma.m64nNk16` with
/// `N = 2^log_n ≥ 8`: `N/2` registers per lane, 4 warps.
fn wgmma_accumulator(log_n: u32) -> LinearLayout {
    let log_n = log_n.max(3);
    let (row, col) = (|b: u32| 1u64 << b, |b: u32| 1u64 << (6 + b));
    let mut columns = vec![col(0), row(3)];
    columns.extend((3..log_n).map(col));
    columns.extend([col(1), col(2), row(0), row(1), row(2), row(4), row(5)]);
    let inputs = [axis("register", log_n - 1), axis("lane", 5), axis("warp", 2)];
    LinearLayout { inputs: inputs.to_vec(), outputs: vec![axis("row", 6), axis("col", log_n)], columns }
}

/// `(row, k) -> (bit)` of a 16×64 tile of weights in fragment order: where the lowest bit of an
/// element lies, as [`fragment_at`] says.
fn fragment(e: &Encoding) -> LinearLayout {
    let place = |x: u64| {
        let (byte, bit) = fragment_at(e, x as usize % 16, x as usize / 16);
        byte as u64 * 8 + u64::from(bit)
    };
    let bits = 10 + fragment_bits(e).ilog2();
    fixed(&[axis("row", 4), axis("k", 6)], &[axis("bit", bits)], &(0..10).map(|b| place(1 << b)).collect::<Vec<_>>())
}

/// A map whose sizes are known to fit.
fn fixed(inputs: &[Axis], outputs: &[Axis], columns: &[u64]) -> LinearLayout {
    LinearLayout { inputs: inputs.to_vec(), outputs: outputs.to_vec(), columns: columns.to_vec() }
}

/// The fragments as the PTX ISA describes them.
#[test]
fn fragments_are_those_of_the_instruction_set() {
    for lane in 0..32u64 {
        let (group, thread) = (lane / 4, lane % 4);
        for i in 0..8 {
            let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
            let k = thread * 2 + (i & 1) + if i >= 4 { 8 } else { 0 };
            assert_eq!(mma_a().apply(&[("half", i), ("lane", lane)]), row | k << 4);
        }
        for i in 0..4 {
            let k = thread * 2 + (i & 1) + if i >= 2 { 8 } else { 0 };
            assert_eq!(mma_b().apply(&[("half", i), ("lane", lane)]), k | group << 4);
            let row = if i < 2 { group } else { group + 8 };
            assert_eq!(mma_c().apply(&[("register", i), ("lane", lane)]), row | (thread * 2 + (i & 1)) << 4);
        }
        for (warp, i) in (0..4).flat_map(|w| (0..64).map(move |i| (w, i))) {
            let acc = wgmma_accumulator(7);
            let result = acc.apply(&[("register", i), ("lane", lane), ("warp", warp)]);
            assert_eq!(acc.output("row", result), warp * 16 + group + 8 * (i / 2 % 2));
            assert_eq!(acc.output("col", result), i / 4 * 8 + thread * 2 + (i & 1));
        }
    }
}

#[test]
fn weight_packing_is_linear_and_one_to_one() {
    for d in FORMATS {
        let map = fragment(&d.encoding);
        for x in 0..1024u64 {
            let (byte, bit) = fragment_at(&d.encoding, x as usize % 16, x as usize / 16);
            assert_eq!(map.map(x), byte as u64 * 8 + u64::from(bit));
        }
        assert_eq!(map.rank(), 10);
    }
}

/// Step `s` of a tile: going from (half, lane) through the A fragment and the permutation of
/// columns lands on the lane's own 16-byte pieces.
#[test]
fn packed_weights_are_a_operands_with_permuted_columns() {
    // mma column c of step s is column 16·(c/2 mod 4) + 4s + (c mod 2) + 2·(c/8) of the tile.
    let permute =
        |step: u64| move |x: u64| (x & 15) | ((x >> 5 & 3) * 16 + 4 * step + (x >> 4 & 1) + 2 * (x >> 7)) << 4;
    for step in 0..4 {
        let a = mma_a();
        for index in 0..256 {
            let bit = fragment(&Encoding::F16).map(permute(step)(a.map(index)));
            assert_eq!(bit / 16, step * 256 + index, "halves of a step lie lane by lane");
        }
    }
}

#[test]
fn swizzles_are_involutions_within_their_rows() {
    for s in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
        let map = swizzled(s, 12);
        assert_eq!(map.then(&map), LinearLayout::identity(&[axis("byte", 12)], &[axis("byte", 12)]));
        let row = u64::from(s.row_bytes());
        assert!((0..4096).all(|x| map.map(x) / row == x / row));
    }
}

/// `(row, piece) -> byte` of a tile of 128-byte rows read by `ldmatrix`: lanes are rows.
fn rows_of_128(swizzle: Swizzle) -> LinearLayout {
    let plain = LinearLayout::new(&[axis("lane", 5), axis("piece", 3)], &[axis("byte", 12)], {
        (0..5).map(|b| 128 << b).chain((0..3).map(|b| 16 << b)).collect()
    });
    plain.unwrap().then(&swizzled(swizzle, 12)).unwrap()
}

#[test]
fn bank_conflicts_by_hand() {
    assert_eq!(rows_of_128(Swizzle::None).bank_conflicts(16), Some(8));
    assert_eq!(rows_of_128(Swizzle::B32).bank_conflicts(16), Some(4));
    assert_eq!(rows_of_128(Swizzle::B64).bank_conflicts(16), Some(2));
    assert_eq!(rows_of_128(Swizzle::B128).bank_conflicts(16), Some(1));
    let lanes = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
    assert_eq!(conflict_degree(&lanes(|_| 64), 4), 1, "one word for all");
    assert_eq!(conflict_degree(&lanes(|l| l * 4), 4), 1);
    assert_eq!(conflict_degree(&lanes(|l| l * 2), 2), 1, "two lanes share a word");
    assert_eq!(conflict_degree(&lanes(|l| l * 8), 4), 2);
    assert_eq!(conflict_degree(&lanes(|l| l * 8), 8), 1, "half warps");
    assert_eq!(conflict_degree(&lanes(|l| l * 16), 16), 1, "quarter warps");
    assert_eq!(conflict_degree(&lanes(|l| l * 128), 4), 32);
    assert_eq!(conflict_degree(&lanes(|l| l * 132), 4), 1, "padded rows");
}

fn any_map(n: u32) -> impl Strategy<Value = LinearLayout> {
    proptest::collection::vec(0..1u64 << n, n as usize)
        .prop_map(move |columns| LinearLayout::new(&[axis("x", n)], &[axis("y", n)], columns).unwrap())
}

proptest! {
    #[test]
    fn inverses_undo(map in any_map(7)) {
        match map.invert() {
            Some(back) => for x in 0..128 {
                prop_assert_eq!(back.map(map.map(x)), x);
            },
            None => prop_assert!(map.rank() < 7),
        }
    }

    #[test]
    fn composition_applies_one_after_the_other(a in any_map(6), b in any_map(6)) {
        let b = LinearLayout::new(&[axis("y", 6)], &[axis("z", 6)], b.columns).unwrap();
        let both = a.then(&b).unwrap();
        for x in 0..64 {
            prop_assert_eq!(both.map(x), b.map(a.map(x)));
        }
        prop_assert_eq!(LinearLayout::of(&[axis("x", 6)], &[axis("z", 6)], |x| both.map(x)), Some(both.clone()));
    }

    /// In a linear map without other words, conflicts follow from the ranks of words and banks in a
    /// group.
    #[test]
    fn degrees_are_powers_of_ranks(columns in proptest::collection::vec(0..1u64 << 10, 5)) {
        let words: Vec<u64> = columns.iter().map(|c| c * 4).collect();
        let map = LinearLayout::new(&[axis("lane", 5)], &[axis("byte", 12)], words).unwrap();
        let want = 1 << (rank(columns.iter().copied()) - rank(columns.iter().map(|c| c % 32)));
        prop_assert_eq!(map.bank_conflicts(4), Some(want));
    }
}

#[test]
fn misfits_are_refused() {
    assert_eq!(LinearLayout::new(&[axis("x", 2)], &[axis("y", 2)], vec![1]), None);
    assert_eq!(LinearLayout::new(&[axis("x", 1)], &[axis("y", 2)], vec![4]), None);
    assert_eq!(LinearLayout::of(&[axis("x", 3)], &[axis("y", 4)], |x| (x * 3) & 15), None, "carries are not linear");
    assert_eq!(mma_a().then(&mma_b()), None);
    assert_eq!(mma_a().bank_conflicts(4), None);
    assert_eq!(mma_a().to_string(), "(half:3 lane:5) -> (row:4 k:4) [0x10 0x8 0x80 0x20 0x40 0x1 0x2 0x4]");
}
