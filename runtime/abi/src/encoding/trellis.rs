//! Trellis codes of 2 and 3 bits.
//!
//! The number of a column depends on its code and on the codes before it (trellis coded quantization: Marcellin and
//! Fischer 1990; for weights QTIP, Tseng et al. 2024, arXiv 2406.11235). Columns of a slice of [`SLICE`] = 32 are
//! taken in the order 0, 4, 8, …, 28, 1, 5, … ([`trellis_place`]), slice after slice; in every group of columns that
//! share a scale the trellis begins anew, with zeros before it.
//!
//! The **state** of a column has [`STATE_BITS`] bits: its code in the lowest bits, the codes before it above. Bit `j`
//! of a half of its **index** is the parity of the state's bits under the half's polynomial, moved up by `j`. The index
//! selects a **level**, an integer of 7 bits.
//!
//! Panels store bit `b` of the codes of 32 columns as a plane of one word per row, in the order of the trellis. So a
//! bit of the indices of 32 columns is the exclusive or of [three words](Trellis::taps), each moved up by some columns.

/// Columns whose codes lie together.
pub const SLICE: usize = 32;

/// Bits of a state.
pub const STATE_BITS: u32 = 12;

/// States.
pub const STATES: usize = 1 << STATE_BITS;

/// Bits of an index at most.
pub const INDEX_BITS: usize = 6;

/// A trellis code.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trellis {
    /// Bits of a code.
    pub bits: u32,
    /// Polynomials of the upper and of the lower half of an index; bit `i` stands for the state's bit `i`. Each has
    /// three terms.
    pub polynomials: [usize; 2],
    /// The levels of indices.
    pub levels: Levels,
}

/// A bit of the codes of all columns, some columns earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Bit of the codes.
    pub plane: usize,
    /// Columns, in the order of the trellis.
    pub age: usize,
}

/// The levels of indices: integers of 7 bits. Adding [`LEVEL_ZERO`] makes them numbers from 0 to 127.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Levels {
    /// By the whole index, of 4 bits.
    Whole([i8; 16]),
    /// The sum of one by the upper half of the index and one by the lower half, of 3 bits each: two small tables take
    /// fewer instructions than one of 64.
    Sum([[i8; 8]; 2]),
}

/// See [`Levels`].
pub const LEVEL_ZERO: i32 = 64;

/// 2 bits: 26.8 % root mean square error of normally distributed numbers. (`cargo run --release -p llmcc-benches --bin
/// trellis` finds tables like these.)
pub const T2: Trellis = Trellis {
    bits: 2,
    polynomials: [0x481, 0x0c8],
    levels: Levels::Whole([-63, -41, -33, -23, -19, -12, -8, -1, 2, 8, 12, 19, 23, 33, 41, 63]),
};

/// 3 bits: 13.8 %.
pub const T3: Trellis = Trellis {
    bits: 3,
    polynomials: [0x301, 0x038],
    levels: Levels::Sum([[-38, -21, -11, -4, 3, 12, 21, 38], [-25, -14, -7, -3, 3, 7, 14, 25]]),
};

/// The place of column `k` of a slice in the order of the trellis.
pub const fn trellis_place(k: usize) -> usize {
    SLICE / 4 * (k % 4) + k % SLICE / 4
}

/// The column of a slice at a place in the order of the trellis: the inverse of [`trellis_place`].
pub const fn trellis_column(place: usize) -> usize {
    place % (SLICE / 4) * 4 + place / (SLICE / 4)
}

impl Trellis {
    /// Bits of an index.
    pub const fn index_bits(&self) -> usize {
        2 * self.bits as usize
    }

    /// The state after a column with code `code`, where that before it was `state`.
    pub const fn next(&self, state: usize, code: u8) -> usize {
        (state << self.bits | code as usize) % STATES
    }

    /// The bits of a state whose parity is bit `bit` of its index.
    const fn terms(&self, bit: usize) -> usize {
        let half = (bit < self.bits as usize) as usize;
        self.polynomials[half] << (bit % self.bits as usize)
    }

    /// The terms of bit `bit` of an index.
    pub const fn taps(&self, bit: usize) -> [Tap; 3] {
        let terms = self.terms(bit);
        let (mut out, mut found, mut i) = ([Tap { plane: 0, age: 0 }; 3], 0, 0);
        while i < STATE_BITS as usize {
            if terms >> i & 1 == 1 {
                out[found] = Tap { plane: i % self.bits as usize, age: i / self.bits as usize };
                found += 1;
            }
            i += 1;
        }
        assert!(found == 3, "a polynomial has three terms");
        out
    }

    /// The index of the level of a column in state `state`.
    pub const fn index(&self, state: usize) -> usize {
        let (mut index, mut bit) = (0, 0);
        while bit < self.index_bits() {
            index |= ((state & self.terms(bit)).count_ones() as usize % 2) << bit;
            bit += 1;
        }
        index
    }

    /// The level of an index.
    pub const fn level_of(&self, index: usize) -> i8 {
        match &self.levels {
            Levels::Whole(table) => table[index % 16],
            Levels::Sum([upper, lower]) => upper[index / 8 % 8] + lower[index % 8],
        }
    }

    /// The level of a column in state `state`.
    pub const fn level(&self, state: usize) -> i8 {
        self.level_of(self.index(state))
    }

    /// Levels plus [`LEVEL_ZERO`], for products of unsigned numbers: by the index; or two tables by its upper and its
    /// lower half, whose sums they are.
    pub const fn tables(&self) -> [[u8; 16]; 2] {
        let (mut out, mut i) = ([[0; 16]; 2], 0);
        match &self.levels {
            Levels::Whole(table) => {
                while i < 16 {
                    out[0][i] = (table[i] as i32 + LEVEL_ZERO) as u8;
                    i += 1;
                }
            }
            Levels::Sum([upper, lower]) => {
                // Tables ascend: less their first entries, none is below zero.
                while i < 8 {
                    out[0][i] = (upper[i] as i32 + LEVEL_ZERO + lower[0] as i32) as u8;
                    out[1][i] = (lower[i] as i32 - lower[0] as i32) as u8;
                    i += 1;
                }
            }
        }
        out
    }

    /// Calls `f` with the column and the state of each code of a group, in the order of the trellis.
    pub fn each_state(&self, codes: &[u8], mut f: impl FnMut(usize, usize)) {
        let mut state = 0;
        for slice in 0..codes.len().div_ceil(SLICE) {
            for place in 0..SLICE {
                let column = slice * SLICE + trellis_column(place);
                // (Columns after the last have code 0.)
                state = self.next(state, codes.get(column).copied().unwrap_or(0));
                if column < codes.len() {
                    f(column, state);
                }
            }
        }
    }
}
