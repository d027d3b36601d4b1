//! How the last tokens are hashed to a row of a table, in Qwen's models with n-grams.

/// Factors of ids in the table number `table`: odd numbers by SplitMix64, so small that no product
/// has more than 63 bits.
pub(crate) fn factors(vocab: usize, size: usize, table: usize, seed: u64) -> Vec<usize> {
    const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
    let most = i64::MAX as u64 / vocab.max(1) as u64;
    let half = (most / 2).max(1);
    let seed = seed.wrapping_add(10_007u64.wrapping_mul(table as u64));
    let factor = |i: u64| {
        let z = seed.wrapping_add(GAMMA.wrapping_mul(i + 2));
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (2 * ((z ^ z >> 31) % half) + 1) as usize
    };
    (0..size as u64).map(factor).collect()
}

/// The first prime above `n`.
pub(crate) fn next_prime(n: usize) -> usize {
    let prime = |n: &usize| *n >= 2 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (n.saturating_add(1)..).find(prime).unwrap_or(n)
}
