//! Byte layouts that packing, generated code and microkernels agree on.
//!
//! **Weights** `W[n, k]` are stored as blocks of [`BLOCK`] = 16 rows (the last block padded with
//! zero rows), block after block, each block a multiple of 64 bytes and 64-byte aligned. Inside a
//! block, for each format:
//!
//! - `f32`: `[k][16]` f32.
//! - `f16`: `[k][16]` f16, rounded up to 64 bytes.
//! - `bf16`: `[ceil(k/2)][16][2]` bf16: 16 rows of a pair `(k, k+1)` per 64 bytes; an odd `k` is
//!   padded with zero.
//! - quantized: `kp = round_up(k, 32)`, `groups = ceil(kp / group)` (the last group may be short),
//!   in records of as many groups as have their factors in 64 bytes (two with f16 scales, one with
//!   minima as well) that are read from start to end, each
//!   1. the factors, rounded up to 64 bytes: for each group its scales `[16]`, then its minima
//!      `[16]` if there are any (of the last record of an odd number of groups only the first half
//!      is used). With two levels of scales a record is a super-group, and the scales above (and
//!      their minima) come first. Scales of 6 bits that take no byte each ([`ScaleKind::Six`]) lie in two planes
//!      behind the f16 above: the upper 2 bits, `[16]` u16, then the lower 4 bits, `[16]` u32, group `g` of the
//!      record in bits `2g` and `4g` ([`six_places`]): 128 bytes together;
//!   2. the codes of its groups in chunks of 64 bytes, `[16][4]` bytes: a row's four bytes hold
//!      `32 / bits` columns, byte `j` those whose number is `j` modulo 4, the first in its lowest
//!      bits. So `w8` is `[columns/4][16][4]` bytes, and a byte of 4-bit codes holds columns
//!      `8c + j` (low) and `8c + 4 + j`. Codes of other widths than 1, 2, 4 and 8 are cut into
//!      planes of these widths ([`Encoding::planes`]), the lowest bits in the
//!      widest; each 32 columns have one plane after the other. Codes of a
//!      [trellis](crate::encoding::trellis) have a plane for each bit. [Pairs](Code::Pairs) have
//!      for each 32 columns two chunks of codes, each of 16 columns, and one of places ([`pair_at`]).
//!
//!   So a block is one stream. With all factors in front of all codes it was two, a thin and a
//!   thick one, and prefetchers lost track: one thread read 24 GB/s where it now reads 30 of the 32
//!   that it can (Zen 4, 4 bits, groups of 128; `benches/kernels`).
//!
//! - With one scale per row (`fp8`): one record, `kp` columns, its scales `[16]` in the first 64
//!   bytes.
//!
//! [`Encoding`] defines the meaning of codes. Padding has the code of 0, where there is one, and
//! activations in the padding are 0; a padding row has scale 0 and minimum 0.
//!
//! That is [`Packing::Panel`], for CPUs. **[`Packing::Fragment`]**, for the tensor cores of GPUs,
//! keeps the blocks of 16 rows (`kp = round_up(k, 64)` for every format, plain ones too) with all
//! factors in front, scales `[groups][16]` before minima `[groups][16]` (before the scales above,
//! and their minima), rounded up to 64 bytes together, and orders the elements by tiles of 16 rows
//! × 64 columns, in the order in which a warp holds the A operand of `mma.m16n8k16`, with the
//! columns permuted so that lane `t` of a quad owns 16 adjacent ones: element `(r, c)` of a tile
//! belongs to lane `4·(r mod 8) + c/16`, to mma step `(c/4) mod 4`, and is there half
//! `(c mod 2) + 2·(r/8) + 4·(c mod 4 / 2)` of the lane's eight. [`fragment_at`] says where it lies;
//! every lane reads pieces of 16 bytes, and the columns it multiplies are 16 adjacent elements of
//! the other operand:
//!
//! - `f16`, `bf16`: a tile is `[4 steps][32 lanes][8 halves]`; `f32`: `[4 steps][2][32 lanes][4]`,
//!   the halves 0–3 before 4–7;
//! - codes of a trellis: as [`Encoding::by_itself`] has them;
//! - 8-bit codes, and codes of 5 to 7 bits: `[2][32 lanes][2 steps][8 halves]` bytes;
//! - 8-bit floats: `[2][32 lanes][2 steps][2 rows][4 columns]` bytes, rows `r mod 8` and
//!   `r mod 8 + 8`: a piece of 16 bytes is also the A operand of `mma.m16n8k32` and `wgmma` for
//!   8-bit types, whose column `16h + 4t + j` is then column `16t + 8p + 4h + j` of the tile in
//!   piece `p`;
//! - codes of up to 4 bits: `[32 lanes][4 steps]` u32; half `i` in nibble `i/2 + 4·(i mod 2)`, so
//!   that `(w >> 4j) & 0x000f000f` is the pair `(2j, 2j + 1)`.
//!
//! **Half rows** of activations (f16, bf16): elements, the row rounded up to 16 bytes; the padding
//! has no meaning.
//!
//! **fp8 activation rows** ([`Fp8Row`]): e4m3 codes, `kp = round_up(k, 64)` of them (zeros beyond
//! `k`), then one f32 scale; the row is a multiple of 16 bytes. The codes of 64 columns lie in the
//! order in which 8-bit tensor-core instructions take the columns of `fp8` weights in fragment
//! order: column `16t + 8p + 4h + j` at byte `32p + 16h + 4t + j` ([`fp8_place`]). Value:
//! `scale·code`; `scale = amax/448` of the row, code = e4m3 nearest (ties to even, saturated) to
//! `x·(448/amax)`, 0 when `amax` is 0.
//!
//! **int8 activation rows** ([`Q8Row`]): `kp` int8 codes, then `groups` f32 scales, then `groups`
//! i32 sums of the codes; the row is rounded up to an odd number of 64 bytes. Groups of 256 have behind each sum the
//! [excesses](EXCESS) of its eight parts of 32 columns, 0 where the row ends before. Value: `scale·code`;
//! `scale = amax/127` of the group, code = round-to-nearest-even of `x·(127/amax)`, 0 when `amax`
//! is 0. Rows of integers are stored alike: `scale = 1`, code = round-to-nearest-even of `x`, −128 to
//! 127; where some `x` of a group is no number its code is 0 and the scale of the group NaN.

use crate::encoding::{Code, Encoding, Float, Per, Scale, ScaleKind};

/// Rows in a weight block.
pub const BLOCK: usize = 16;
/// `k` is padded to a multiple of this in quantized weights and int8 rows.
pub const K_PAD: usize = 32;
const _: () = assert!(K_PAD == crate::encoding::trellis::SLICE);
/// Columns whose products with f32 rows are summed in one chain from 0; the chains' sums are added
/// in ascending order. A chain over all of `k` adds each product to a sum of everything before it:
/// its error is some √(k/2) roundings; with short chains √(16 + k/64) are left.
pub const CHAIN: usize = 32;

/// The unit in which numbers of codes are multiplied with f32 rows where scales multiply the sums of chains, not each
/// weight: a chain's sum is of `number / unit`, and its factor is `scale · unit`. So it is with 8-bit floats whose
/// scales are of whole chains; `None` for all others. In this power of two each normal number is a normal bf16.
pub const fn chain_unit(weights: &Encoding) -> Option<f32> {
    let [Some(scale), None] = weights.scales else { return None };
    let whole_chains = match scale.per {
        Per::Row => true,
        Per::Group(columns) => (columns as usize).is_multiple_of(CHAIN),
        Per::TokenHead => false,
    };
    if whole_chains && !scale.minimum && matches!(weights.code, Code::Float(Float::E4m3)) { Some(256.0) } else { None }
}

/// Order of the elements in the blocks of a packed matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Packing {
    /// 16 rows side by side: vector lanes of a CPU.
    #[default]
    Panel = 0,
    /// Operand fragments of tensor cores, see the [module](self).
    Fragment = 1,
}

/// Columns of a tile of [`Packing::Fragment`]; its `k` is padded to a multiple.
pub const FRAGMENT_K: usize = 64;

/// `x` rounded up to a multiple of `to`.
pub const fn round_up(x: usize, to: usize) -> usize {
    x.div_ceil(to) * to
}

/// Padded columns of quantized weights and int8 rows.
pub const fn padded_k(k: usize) -> usize {
    round_up(k, K_PAD)
}

/// Groups of a quantized row of `k` columns.
pub const fn groups(k: usize, group: usize) -> usize {
    padded_k(k).div_ceil(group)
}

/// Byte layout of one 16-row block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Groups in a record: see the [module](self). In fragment order all of them.
    pub groups: usize,
    /// From one record to the next.
    pub record: usize,
    /// From the start of a record to the scales of its first group, and from one group's to the
    /// next.
    pub scales: usize,
    /// See `scales`.
    pub step: usize,
    /// From the scales of a group to its minima (asymmetric formats only).
    pub mins: usize,
    /// Scales above the groups' scales: offset of the first, step from one to the next, and offset
    /// from them to their minima.
    pub above: usize,
    /// See `above`.
    pub above_step: usize,
    /// See `above`.
    pub above_mins: usize,
    /// From the start of a record to its codes; of a plain format, to its elements.
    pub codes: usize,
    /// Codes of a whole group. (In fragment order groups are not contiguous: see [`fragment_at`].)
    pub group_codes: usize,
    /// Bytes of the block.
    pub bytes: usize,
}

impl Block {
    /// A block of nothing but elements.
    const fn plain(bytes: usize) -> Block {
        Block {
            groups: 1,
            record: 0,
            scales: 0,
            step: 0,
            mins: 0,
            above: 0,
            above_step: 0,
            above_mins: 0,
            codes: 0,
            group_codes: 0,
            bytes,
        }
    }

    /// Offset of the scales, `[16]`, of group `g`.
    #[inline(always)]
    pub const fn scales_of(&self, g: usize) -> usize {
        g / self.groups * self.record + self.scales + g % self.groups * self.step
    }

    /// Offset of the scales, `[16]`, above the groups' scales in super-group `s`.
    #[inline(always)]
    pub const fn above_of(&self, s: usize) -> usize {
        self.above + s * self.above_step
    }

    /// Offset of the codes of group `g` in a panel.
    #[inline(always)]
    pub const fn codes_of(&self, g: usize) -> usize {
        g / self.groups * self.record + self.codes + g % self.groups * self.group_codes
    }
}

/// Groups in a record of a panel.
pub const fn groups_per_record(e: &Encoding) -> usize {
    match (e.scales[0], e.super_group()) {
        (Some(Scale { per: Per::Group(group), .. }), Some(above)) if group > 0 => above / group as usize,
        (Some(scale @ Scale { per: Per::Group(_), .. }), None) => {
            let factors = BLOCK * scale.kind.bytes() * scale.factors();
            if factors >= 64 { 1 } else { 64 / factors }
        }
        _ => 1,
    }
}

/// From the plane of upper bits of [`ScaleKind::Six`] to that of lower bits, where [`Block::scales`] is.
pub const SIX_LOW: usize = BLOCK * 2;

/// Where the bits of [`ScaleKind::Six`] of row `row` and group `group` of a record lie: from [`Block::scales_of`] the
/// byte of the lower four and the first of them, and from [`SIX_LOW`] bytes before it the byte of the upper two.
pub const fn six_places(row: usize, group: usize) -> [(usize, u32); 2] {
    [(row * 4 + group / 2, group as u32 % 2 * 4), (row * 2 + group / 4, group as u32 % 4 * 2)]
}

/// Where a row's `i`-th code of the four columns from `k` on lies in codes of [`Code::Pairs`], and where its place
/// among the four: for each the byte, and the first of its 4 and of its 2 bits. A row's four bytes of a chunk of codes
/// have eight columns' in their lower halves and the next eight columns' in their upper ones; in the chunk of places
/// each two bits are for eight columns.
pub const fn pair_at(row: usize, k: usize, i: usize) -> [(usize, u32); 2] {
    let (slice, four) = (k / K_PAD * PAIR_SLICE, k % K_PAD / 4);
    let byte = slice + row * 4 + four % 2 * 2 + i;
    [(byte + four / 4 * 64, (four % 4 / 2 * 4) as u32), (byte + PAIR_PLACES, (four / 2 * 2) as u32)]
}

/// Bytes of the codes of [`K_PAD`] columns of [`Code::Pairs`].
pub const PAIR_SLICE: usize = 3 * 64;
/// From these to their places.
pub const PAIR_PLACES: usize = 2 * 64;

/// Layout of a block of `k` columns as a panel.
#[inline]
pub const fn block(e: &Encoding, k: usize) -> Block {
    let kp = padded_k(k);
    // Bytes of the codes of a column.
    let column = BLOCK / 8 * e.bits() as usize;
    let Some(scale) = e.scales[0] else {
        return match e.code {
            Code::Float(Float::F32) => Block::plain(k * 64),
            Code::Float(Float::F16) => Block::plain(round_up(k * 32, 64)),
            Code::Float(Float::Bf16) => Block::plain(k.div_ceil(2) * 64),
            Code::Float(Float::E4m3)
            | Code::Int { .. }
            | Code::Signed { .. }
            | Code::Table { .. }
            | Code::Pairs
            | Code::Trellis(_) => Block::plain(kp * column),
        };
    };
    // Bytes of a group's scales; 0 where these lie between those of other groups.
    let line = if matches!(scale.kind, ScaleKind::Six) { 0 } else { BLOCK * scale.kind.bytes() };
    let (above, mins) = match e.scales[1] {
        Some(above) => (BLOCK * above.kind.bytes() * above.factors(), BLOCK * above.kind.bytes()),
        None => (0, 0),
    };
    let together = groups_per_record(e);
    let (group, count) = match scale.per {
        Per::Group(group) => (group as usize, groups(k, group as usize)),
        Per::Row | Per::TokenHead => (kp, 1),
    };
    // Bytes up to the groups' scales, and of all of these.
    let (before, all) = match scale.kind {
        ScaleKind::Six => (above + SIX_LOW, BLOCK * 4),
        _ => (above, together * line * scale.factors()),
    };
    let codes = round_up(before + all, 64);
    let record = codes + together * group * column;
    Block {
        groups: together,
        record,
        scales: before,
        step: line * scale.factors(),
        mins: if scale.minimum { line } else { 0 },
        above: 0,
        above_step: record,
        above_mins: mins,
        codes,
        group_codes: group * column,
        bytes: count.div_ceil(together) * codes + kp * column,
    }
}

/// Layout of a block in fragment order.
pub const fn fragment_block(e: &Encoding, k: usize) -> Block {
    let kp = round_up(k, FRAGMENT_K);
    // Scales, then minima, then the same of the level above.
    let (step, scales, minima) = fragment_scales(e.scales[0], kp);
    let (above_step, above, above_minima) = fragment_scales(e.scales[1], kp);
    let codes = round_up(scales + minima + above + above_minima, 64);
    Block {
        groups: usize::MAX,
        record: 0,
        scales: 0,
        step,
        mins: scales,
        above: scales + minima,
        above_step,
        above_mins: above,
        codes,
        group_codes: 0,
        bytes: codes + kp / FRAGMENT_K * fragment_tile_bytes(e),
    }
}

/// Bytes of the scales of a group, of all groups, and of all minima in fragment order.
const fn fragment_scales(scale: Option<Scale>, kp: usize) -> (usize, usize, usize) {
    let Some(scale) = scale else { return (0, 0, 0) };
    let count = match scale.per {
        Per::Group(group) => kp.div_ceil(group as usize),
        Per::Row | Per::TokenHead => 1,
    };
    let step = BLOCK * scale.kind.bytes();
    (step, count * step, if scale.minimum { count * step } else { 0 })
}

/// Bits of an element in fragment order: codes take 4 or 8.
pub const fn fragment_bits(e: &Encoding) -> u32 {
    match e.by_itself().bits() {
        0..=4 => 4,
        5..=8 => 8,
        bits => bits,
    }
}

/// Bytes of a 16×64 tile in fragment order.
pub const fn fragment_tile_bytes(e: &Encoding) -> usize {
    BLOCK * FRAGMENT_K / 8 * fragment_bits(e) as usize
}

/// Whether the codes of a row stay together by fours in fragment order, as 8-bit tensor-core
/// instructions take them: only 8-bit floats.
pub const fn by_fours(e: &Encoding) -> bool {
    matches!(e.code, Code::Float(Float::E4m3))
}

/// Where element `(r, k)` of a block in fragment order lies: byte offset from the block's codes,
/// and bit offset in that byte (4-bit codes only).
pub const fn fragment_at(e: &Encoding, r: usize, k: usize) -> (usize, u32) {
    let tile = k / FRAGMENT_K * fragment_tile_bytes(e);
    let (lane, step) = (r % 8 * 4 + k % FRAGMENT_K / 16, k / 4 % 4);
    let half = k % 2 + r / 8 * 2 + k % 4 / 2 * 4;
    let (at, bit) = match fragment_bits(e) {
        32 => ((step * 2 + half / 4) * 512 + lane * 16 + half % 4 * 4, 0),
        16 => (step * 512 + lane * 16 + half * 2, 0),
        8 if by_fours(e) => (step / 2 * 512 + lane * 16 + step % 2 * 8 + r / 8 * 4 + k % 4, 0),
        8 => (step / 2 * 512 + lane * 16 + step % 2 * 8 + half, 0),
        _ => {
            let nibble = half / 2 + half % 2 * 4;
            (lane * 16 + step * 4 + nibble / 2, (nibble % 2 * 4) as u32)
        }
    };
    (tile + at, bit)
}

/// Bytes of a packed matrix of `n` rows, as panels.
pub const fn packed_bytes(e: &Encoding, n: usize, k: usize) -> usize {
    n.div_ceil(BLOCK) * block(e, k).bytes
}

/// Bytes of a row of `cols` f16 or bf16 activations.
pub const fn half_row(cols: usize) -> usize {
    round_up(cols * 2, 16)
}

/// f32 from one row of a product's tile in scratch to the next, of `cols` columns. Rows take an odd
/// number of cache lines: columns of many rows are summed up together, and would drive each other
/// from the cache if rows were a power of two apart.
pub const fn tile_row(cols: usize) -> usize {
    round_up(cols, 2 * BLOCK) + BLOCK
}

/// Byte layout of an int8 activation row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q8Row {
    /// Offset of the f32 scales.
    pub scales: usize,
    /// Offset of the i32 sums, [`q8_sum_bytes`] apart.
    pub sums: usize,
    /// Bytes of the row.
    pub bytes: usize,
}

/// Excess of a sum of products of codes of rows with numbers that are multiplied 128 too large, for each 1 of the
/// codes, negated: a sum starts with it.
pub const EXCESS: i32 = -128;

/// Columns of a part of a group of 256, whose excess is stored.
pub const EXCESS_PART: usize = 32;

/// Parts of a group of an int8 row whose excesses are stored.
pub const fn excess_parts(group: usize) -> usize {
    if group == 256 { group / EXCESS_PART } else { 0 }
}

/// Bytes from the sum of a group of an int8 row to that of the next.
pub const fn q8_sum_bytes(group: usize) -> usize {
    4 + 4 * excess_parts(group)
}

/// Layout of an int8 row of `k` elements with quantization group `group`. Rows take an odd number
/// of cache lines: columns of many rows are read together, and would drive each other from the
/// cache if rows were a power of two apart.
pub const fn q8_row(k: usize, group: usize) -> Q8Row {
    let (kp, groups) = (padded_k(k), groups(k, group));
    let sums = kp + groups * 4;
    Q8Row { scales: kp, sums, bytes: ((round_up(sums + groups * q8_sum_bytes(group), 64) / 64) | 1) * 64 }
}

/// Byte layout of an fp8 activation row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fp8Row {
    /// Offset of the f32 scale.
    pub scale: usize,
    /// Bytes of the row.
    pub bytes: usize,
}

/// Layout of an fp8 row of `k` elements.
pub const fn fp8_row(k: usize) -> Fp8Row {
    let scale = round_up(k, FRAGMENT_K);
    Fp8Row { scale, bytes: scale + 16 }
}

/// Where the code of column `k` of an fp8 row lies.
pub const fn fp8_place(k: usize) -> usize {
    let (t, piece, h) = (k % FRAGMENT_K / 16, k / 8 % 2, k / 4 % 2);
    k / FRAGMENT_K * FRAGMENT_K + 32 * piece + 16 * h + 4 * t + k % 4
}

/// Byte layout of a page of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Offset of `V`.
    pub v: usize,
    /// Offset of the scales of `K` (codes only; else equal to `bytes`).
    pub k_scales: usize,
    /// Offset of the scales of `V`.
    pub v_scales: usize,
    /// Bytes of the page.
    pub bytes: usize,
}

/// Layout of a page for `kv_heads` heads whose keys and values have `key_dim` and `value_dim`
/// elements of `bits` bits (8 and less: codes with scales).
pub const fn page(kv_heads: usize, key_dim: usize, value_dim: usize, bits: usize) -> Page {
    let k = round_up(kv_heads * key_dim * crate::PAGE_TOKENS * bits / 8, 64);
    let both = k + round_up(kv_heads * value_dim * crate::PAGE_TOKENS * bits / 8, 64);
    let scales = if bits <= 8 { kv_heads * crate::PAGE_TOKENS * 4 } else { 0 };
    Page { v: k, k_scales: both, v_scales: both + scales, bytes: both + 2 * scales }
}

/// Where a token has the 4-bit code of element `j` of a head: which of its bytes, and how many bits
/// up. Bytes of a key lie [`PAGE_TOKENS`](crate::PAGE_TOKENS) apart, bytes of a value side by side.
pub const fn kv_nibble(head_dim: usize, key: bool, j: usize) -> (usize, usize) {
    let half = head_dim / 2;
    if key { (j / 2, j % 2 * 4) } else { (j % half, j / half * 4) }
}

/// Pages that a sequence keeps behind its window, so that its last tokens can be taken back.
pub const KEPT_BEHIND: usize = 2;

/// Most pages that a sequence keeps for a window of `window` tokens while it grows in chunks of up
/// to `chunk` tokens; window and chunk begin and end within pages.
pub const fn window_pages(window: usize, chunk: usize) -> usize {
    window.div_ceil(crate::PAGE_TOKENS) + chunk.div_ceil(crate::PAGE_TOKENS) + KEPT_BEHIND + 2
}

/// f32 per row of candidates: `k` logits, `k` token ids, and the sum of exponentials (see
/// `llmcc_ir::kernel::TopK`).
pub const fn candidate_cols(k: usize) -> usize {
    k.saturating_mul(2).saturating_add(1)
}

/// Relative error of the sum of exponentials of a row of candidates. Terms are `2^y` with
/// `y = (x − max)·scale` in f32: three roundings and 2 ulp of the power make `|y|·2⁻²² + 2⁻²²`;
/// terms below `2⁻⁴⁰` do not count even 2²⁴ times, the others lose at most `41·2⁻²²`. Summing adds
/// less than 100 ulp.
pub const CANDIDATE_SUM_ERROR: f64 = 1.0 / (1 << 15) as f64;
