//! Numbers for the tests of methods.

/// Pseudo-random numbers in −0.5…0.5.
pub fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// Normally distributed numbers: sums of twelve that are evenly distributed.
pub fn normal(seed: u64, count: usize) -> Vec<f32> {
    random(seed, 12 * count).chunks_exact(12).map(|all| all.iter().sum()).collect()
}
