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

/// Means of products of inputs whose columns have much in common, and so much that is their own.
pub fn hessian(k: usize, own: f32) -> Vec<f64> {
    let (mixing, noise) = (random(5, k * 8), random(6, 4 * k * (8 + k)));
    let mut h = vec![0f64; k * k];
    for sample in noise.chunks_exact(8 + k) {
        let common = |c: usize| (0..8).map(|i| mixing[c * 8 + i] * sample[i]).sum::<f32>();
        let x: Vec<f64> = (0..k).map(|c| f64::from(common(c) + own * sample[8 + c])).collect();
        (0..k).for_each(|i| (0..k).for_each(|j| h[i * k + j] += x[i] * x[j] / (4 * k) as f64));
    }
    h
}
