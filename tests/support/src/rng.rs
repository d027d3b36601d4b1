//! Random numbers, the same on every machine.

/// xorshift64*.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// Nearby seeds give unrelated numbers.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// In `from..to`.
    pub fn below(&mut self, from: usize, to: usize) -> usize {
        from + (self.bits() >> 33) as usize % (to - from)
    }

    /// True once in so many times.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(0, one_in) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(0, of.len())]
    }

    /// In −1…1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// In −2…2, of magnitudes a few apart, so that groups have different scales.
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float() * [0.3, 1.0, 2.0][self.below(0, 3)]).collect()
    }
}
