//! Numbers that look random and are always the same: of tokens and rows that stand in for some.

/// The next number of a SplitMix64 sequence (Steele et al. 2014).
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The next number of the sequence, brought below `n`, which is at least 1: by multiplication, since the remainder of a
/// division favours small numbers.
pub fn below(state: &mut u64, n: u64) -> u64 {
    ((u128::from(split_mix(state)) * u128::from(n)) >> 64) as u64
}
