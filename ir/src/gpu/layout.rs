//! Layouts of shared memory: swizzles, and the cost of simultaneous accesses of lanes.

/// Passes of one access of a warp to shared memory relative to its size, 1 being the minimum: byte
/// offset of each lane, `width` bytes (4, 8, 16; fewer count as 4) per lane.
///
/// As the hardware does it: lanes are served in groups that move 128 bytes at once (all, halves,
/// quarters of the warp); in a group, different 4-byte words of one of the 32 banks take a pass
/// each, and equal words are one. A row pointer of `ldmatrix` counts as a 16-byte access.
pub fn conflict_degree(offsets: &[u32], width: u32) -> u32 {
    let (words, group) = match width {
        0..=4 => (1, 32),
        5..=8 => (2, 16),
        _ => (4, 8),
    };
    let degree = |lanes: &[u32]| {
        let mut banks = [const { Vec::new() }; 32];
        for word in lanes.iter().flat_map(|o| (0..words).map(move |w| o / 4 + w)) {
            let bank: &mut Vec<u32> = &mut banks[word as usize % 32];
            if !bank.contains(&word) {
                bank.push(word);
            }
        }
        banks.iter().map(Vec::len).max().unwrap_or(0) as u32
    };
    offsets.chunks(group).map(degree).max().unwrap_or(1).max(1)
}

/// Shared-memory swizzle of TMA copies and `wgmma` descriptors: 16-byte pieces of a 32-, 64- or
/// 128-byte row are XORed with the number of the row's 128-byte line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Swizzle {
    None,
    B32,
    B64,
    B128,
}

impl Swizzle {
    /// Bytes of a row; 16 without a swizzle.
    pub const fn row_bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// The byte at which byte `offset` of the unswizzled tile is stored.
    pub const fn apply(self, offset: u64) -> u64 {
        let mask = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 3,
            Swizzle::B128 => 7,
        };
        offset ^ (offset >> 7 & mask) << 4
    }
}
