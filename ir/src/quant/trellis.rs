//! Trellis codes of 2 and 3 bits: their definition, and an encoder that finds the best codes. No storage format has
//! them yet.
//!
//! The number of a column depends on its code and on the codes before it (trellis coded quantization: Marcellin and
//! Fischer 1990; for weights QTIP, Tseng et al. 2024, arXiv 2406.11235). The **state** of a column is the last
//! [`STATE_BITS`] bits of the row's codes, one after the other; before a row all bits are 0. Two polynomials over GF(2)
//! make the index of an int8 **level** of it: bit `j` of either half is the parity of the state's bits under the
//! polynomial, moved up by `j`. A polynomial has three terms and the same ones in every column, so two shifts and two
//! exclusive ors of a register give a bit for each column that has its codes there. The state of any column follows
//! from the codes of the few columns before it: decoding may start anywhere.

/// Bits of a state.
pub const STATE_BITS: u32 = 12;

/// States.
const STATES: usize = 1 << STATE_BITS;

/// A trellis code.
#[derive(Clone, Copy, Debug)]
pub struct Trellis {
    /// Bits of a code.
    pub bits: u32,
    /// Polynomials of the upper and of the lower half of an index; bit `i` stands for the state's bit `i`.
    pub polynomials: [usize; 2],
    /// Levels, `2^(2·bits)` of them.
    pub levels: &'static [i8],
    /// The scale with which levels fit numbers of variance 1.
    pub unit: f64,
}

/// 2 bits, 16 levels: 26.7 % root mean square error of normally distributed numbers.
pub static T2: Trellis = Trellis {
    bits: 2,
    polynomials: [0x481, 0x0c8],
    levels: &[-127, -84, -64, -49, -36, -26, -13, -6, 5, 16, 27, 34, 51, 64, 84, 127],
    unit: 0.0168,
};

/// 3 bits, 64 levels: 13.6 %.
pub static T3: Trellis = Trellis {
    bits: 3,
    polynomials: [0x281, 0x007],
    levels: &[
        -127, -100, -84, -77, -67, -67, -57, -57, -53, -50, -46, -41, -39, -39, -36, -30, -28, -29, -26, -25, -23, -17,
        -18, -13, -13, -11, -7, -5, -8, -8, 2, 0, 1, 5, 6, 7, 8, 9, 12, 12, 16, 19, 24, 20, 26, 26, 28, 28, 36, 32, 41,
        39, 44, 46, 50, 52, 53, 60, 65, 69, 73, 85, 98, 123,
    ],
    unit: 0.02186,
};

impl Trellis {
    /// The state after a column with code `code`, where that before it was `state`.
    pub fn next(&self, state: usize, code: u8) -> usize {
        (state << self.bits | usize::from(code)) % STATES
    }

    /// The index of the level of a column in state `state`.
    pub fn index(&self, state: usize) -> usize {
        let half = |polynomial: usize| {
            let bit = |j: u32| ((state & (polynomial << j)).count_ones() as usize % 2) << j;
            (0..self.bits).map(bit).sum::<usize>()
        };
        half(self.polynomials[0]) << self.bits | half(self.polynomials[1])
    }

    /// The level of a column in state `state`.
    pub fn level(&self, state: usize) -> i8 {
        self.levels.get(self.index(state)).copied().unwrap_or(0)
    }

    /// The levels of a row's codes, each of [`Trellis::bits`] bits.
    pub fn decode(&self, codes: &[u8]) -> Vec<i8> {
        let mut state = 0;
        let level = |code: &u8| {
            state = self.next(state, *code);
            self.level(state)
        };
        codes.iter().map(level).collect()
    }

    /// The codes whose levels times `scale` have the least squared error for a row, by dynamic programming over all
    /// states (Viterbi 1967); of equal paths the one of the lower state.
    pub fn encode(&self, row: &[f32], scale: f64) -> Vec<u8> {
        let (codes, before) = (1 << self.bits, STATES >> self.bits);
        let values: Vec<f64> = (0..STATES).map(|state| f64::from(self.level(state)) * scale).collect();
        let mut cost = vec![f64::INFINITY; STATES];
        cost[0] = 0.0;
        // For each column: of the states that share their lower bits, which leads to the next ones.
        let mut from = vec![0u8; row.len() * before];
        for (x, from) in row.iter().zip(from.chunks_mut(before)) {
            let mut least = cost[..before].to_vec();
            for code in 1..codes {
                let other = &cost[code * before..(code + 1) * before];
                for ((least, from), other) in least.iter_mut().zip(from.iter_mut()).zip(other) {
                    if *other < *least {
                        (*least, *from) = (*other, code as u8);
                    }
                }
            }
            let step = |(state, value): (usize, &f64)| least[state >> self.bits] + (f64::from(*x) - value).powi(2);
            cost = values.iter().enumerate().map(step).collect();
        }
        let mut state = (0..STATES).min_by(|a, b| cost[*a].total_cmp(&cost[*b])).unwrap_or(0);
        let mut out = vec![0; row.len()];
        for (out, from) in out.iter_mut().zip(from.chunks(before)).rev() {
            *out = (state % codes) as u8;
            let lower = state >> self.bits;
            state = lower + usize::from(from[lower]) * before;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::fixture::{normal, random};

    fn error(t: &Trellis, row: &[f32], codes: &[u8], scale: f64) -> f64 {
        let each = row.iter().zip(t.decode(codes)).map(|(x, level)| (f64::from(*x) - f64::from(level) * scale).powi(2));
        each.sum()
    }

    /// `a·b` over GF(2).
    fn product(a: usize, b: usize) -> usize {
        (0..usize::BITS / 2).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ a << i)
    }

    #[test]
    fn indices_are_bits_of_products_of_polynomials() {
        for t in [&T2, &T3] {
            assert_eq!(t.levels.len(), 1 << (2 * t.bits));
            let reversed = t.polynomials.map(|p| (0..STATE_BITS).map(|i| (p >> i & 1) << (STATE_BITS - 1 - i)).sum());
            for state in 0..STATES {
                let half = |p: usize| product(state, p) >> (STATE_BITS - 1) & ((1 << t.bits) - 1);
                assert_eq!(t.index(state), half(reversed[0]) << t.bits | half(reversed[1]), "{state:#x}");
            }
        }
    }

    /// By hand: 1 is bit 0 of the first polynomial alone, 0x480 its other two terms.
    #[test]
    fn some_states() {
        let indices = |t: &Trellis, states: &[usize]| states.iter().map(|s| t.index(*s)).collect::<Vec<_>>();
        assert_eq!(indices(&T2, &[0, 1, 2, 8, 0x10, 0x480, 0x481]), [0, 4, 8, 1, 2, 1 | 2, 1 | 2 | 4]);
        assert_eq!(indices(&T3, &[0, 1, 2, 4, 8]), [0, 1 | 8, 1 | 2 | 16, 1 | 2 | 4 | 32, 2 | 4]);
        assert_eq!(T2.decode(&[0, 1, 2]), [T2.levels[0], T2.levels[4], T2.levels[T2.index(0b110)]]);
    }

    /// All columns of a register at once: the newest code in the lowest bits.
    #[test]
    fn shifts_of_a_register_decode_all_its_columns() {
        let codes: Vec<u8> = random(5, 26).iter().map(|x| ((x + 1.0) * 2.0) as u8).collect();
        let row = codes.iter().fold(0u64, |row, code| row << 2 | u64::from(*code));
        let (high, low) = (row ^ row >> 7 ^ row >> 10, row >> 3 ^ row >> 6 ^ row >> 7);
        for (column, level) in T2.decode(&codes).into_iter().enumerate() {
            let at = 2 * (codes.len() - 1 - column);
            assert_eq!(level, T2.levels[((high >> at & 3) << 2 | low >> at & 3) as usize], "{column}");
        }
    }

    #[test]
    fn codes_are_the_best() {
        for (t, columns) in [(&T2, 5), (&T3, 3)] {
            for seed in 0..4 {
                let row = normal(seed, columns);
                let found = error(t, &row, &t.encode(&row, t.unit), t.unit);
                let all = (0..1usize << (t.bits as usize * columns)).map(|all| {
                    let code = |i: usize| (all >> (t.bits as usize * i)) as u8 & ((1 << t.bits) - 1);
                    error(t, &row, &(0..columns).map(code).collect::<Vec<_>>(), t.unit)
                });
                assert_eq!(found, all.fold(f64::INFINITY, f64::min));
            }
        }
    }

    #[test]
    fn errors_of_normal_rows() {
        for (t, most) in [(&T2, 0.272), (&T3, 0.14)] {
            let row = normal(9, 4096);
            let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
            let found = (error(t, &row, &t.encode(&row, t.unit), t.unit) / squares).sqrt();
            println!("{} bits: {found:.4}", t.bits);
            assert!(found <= most, "{} bits: {found}", t.bits);
        }
    }
}
