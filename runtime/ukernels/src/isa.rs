//! The operations panels need from an instruction set.
//!
//! The panels are written once over [`Isa`] and monomorphised per implementation inside functions
//! that carry the matching `#[target_feature]`. Every method but [`Isa::apart`] is `#[inline(always)]`: only after
//! inlining into such a function does an intrinsic become one instruction. For the same reason the
//! panels fill arrays in loops and avoid closures, which would be functions of their own without
//! the features.

/// Codes of 8 and of 4 bits by the implementation's `field`, which needs no preparation.
macro_rules! codes_by_field {
    () => {
        #[inline(always)]
        unsafe fn prepare_bytes(x: Self::I) -> Self::I {
            x
        }
        #[inline(always)]
        unsafe fn byte_value(x: Self::I, shift: i32) -> Self::F {
            unsafe { Self::field(x, shift, 255, 128.0) }
        }
        #[inline(always)]
        unsafe fn prepare_nibbles(x: Self::I) -> Self::I {
            x
        }
        #[inline(always)]
        unsafe fn nibble_value(x: Self::I, shift: i32) -> Self::F {
            unsafe { Self::field(x, shift, 15, 8.0) }
        }
        #[inline(always)]
        unsafe fn nibble_unsigned(x: Self::I, shift: i32) -> Self::F {
            unsafe { Self::field(x, shift, 15, 0.0) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod sse2;

/// Largest tile of a family of panels. `tokens * vectors` accumulators must leave registers for
/// weights and activations.
pub(crate) struct Shape {
    /// Activation rows of a tile.
    pub tokens: usize,
    /// Weight vectors of a tile: 1 or 2.
    pub vectors: usize,
    /// Weight vectors at once when there is a single row: 4 or 2, where only more vectors keep
    /// several chains of accumulation in flight, or as many as a block has, where it is read
    /// fastest as one stream.
    pub single: usize,
    /// Most rows with which that is as fast, if it is one stream.
    pub few: usize,
}

/// Most rows with which weights are read at the speed of memory, if as one stream: [`Shape::few`]
/// unless more were measured to be.
pub(crate) const FEW: usize = 3;

/// A part of a microkernel that is compiled apart from the rest: see [`Isa::apart`].
pub(crate) trait Apart<A> {
    /// # Safety
    /// As the part says; the processor has the features that it is compiled for.
    unsafe fn run(args: A);
}

/// One instruction set.
///
/// # Safety
/// The methods of an implementation may only run on a processor with its features. Pointers need no
/// alignment; a load reads exactly the bytes named in its documentation.
pub(crate) trait Isa: Copy {
    /// Rows (32-bit lanes) of a vector; divides 16.
    const LANES: usize;
    /// Tile of the panel with f32 weights. (Of this and the next shape: more f32 rows share widened
    /// weights. At least 4.)
    const FLOAT: Shape;
    /// Tile of the panels with f16 and bf16 weights and f32 rows: as many as memory bounds, since a
    /// tile over all of `k` reads it faster.
    const HALVES: Shape;
    /// Tile of the panel with bf16 rows.
    const BF16: Shape;
    /// Tile of the panels that decode quantized weights to f32. More rows share widened weights.
    const DECODE: Shape;
    /// Tile of the panels with int8 rows.
    const INT8: Shape;
    /// Most rows of a tile of two vectors of widened weights: at most 12.
    const MANY: usize;
    /// Attention: most pairs of a row and a page whose scores are computed at once.
    const ATTEND_SCORES: usize;
    /// Attention: most rows whose weighted values are computed at once, with 4 vectors each.
    const ATTEND_WEIGHS: usize;
    /// Integer dot products that must be in flight to keep the multipliers busy.
    const DOT_CHAINS: usize;
    /// Whether [`Isa::dot8`] sees the codes of 8-bit weights unsigned, i.e. 128 too large.
    const W8_UNSIGNED: bool;
    /// Whether tables of 64 bytes take one instruction ([`Isa::look_up_64`]).
    const LARGE_TABLES: bool = false;
    /// Whether [`Isa::dot8`] takes activations of −128 as well.
    const DOT8_LEAST: bool = true;

    /// `LANES` f32.
    type F: Copy;
    /// `LANES` i32, or `4 * LANES` bytes.
    type I: Copy;
    /// 8-bit weights made ready for [`Isa::dot8`].
    type W8: Copy;
    /// Running integer dot products, one per lane.
    type Dot: Copy;

    /// Runs a part as a function of its own, with the features of the instruction set. Compilers
    /// take more than proportionally long for large functions: attention as one of them took three
    /// quarters of the time of the whole crate. For code that runs once in thousands of operations.
    unsafe fn apart<A, P: Apart<A>>(args: A);
    /// `x` in all lanes.
    unsafe fn splat(x: f32) -> Self::F;
    /// `LANES` f32.
    unsafe fn load(p: *const u8) -> Self::F;
    /// `LANES` f16, widened.
    unsafe fn load_f16(p: *const u8) -> Self::F;
    /// Writes `LANES` f16, rounded to nearest even; NaN becomes that without a payload.
    unsafe fn store_f16(p: *mut u16, x: Self::F);
    /// Brings the cache line at `p` closer. Any address will do.
    unsafe fn prefetch(p: *const u8);
    /// Brings the cache line at `p` to the second level. Any address will do.
    unsafe fn prefetch_far(p: *const u8);
    /// Writes `LANES` f32.
    unsafe fn store(p: *mut f32, x: Self::F);
    /// `a * b`.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// `4 * LANES` bytes.
    unsafe fn load_words(p: *const u8) -> Self::I;
    /// Writes `4 * LANES` bytes.
    unsafe fn store_words(p: *mut u8, x: Self::I);
    /// The low bf16 of each word, widened.
    unsafe fn bf16_low(x: Self::I) -> Self::F;
    /// The high bf16 of each word, widened.
    unsafe fn bf16_high(x: Self::I) -> Self::F;
    /// Adds to each lane the products of two bf16: `fma(low, low, fma(high, high, acc))`. (The
    /// instruction that does it takes subnormals for zeros.)
    #[inline(always)]
    unsafe fn dot_bf16(acc: Self::F, w: Self::I, a: Self::I) -> Self::F {
        unsafe {
            Self::fma(Self::bf16_low(w), Self::bf16_low(a), Self::fma(Self::bf16_high(w), Self::bf16_high(a), acc))
        }
    }
    /// `x` in all lanes, as bits.
    unsafe fn splat_bits(x: u32) -> Self::I;
    /// Nearest f32 of each i32.
    unsafe fn to_f32(x: Self::I) -> Self::F;

    /// Words of 8-bit codes, made ready for [`Isa::byte_value`].
    unsafe fn prepare_bytes(x: Self::I) -> Self::I;
    /// Byte at bit `shift` of each prepared word, minus 128.
    unsafe fn byte_value(x: Self::I, shift: i32) -> Self::F;
    /// Words of symmetric 4-bit codes, made ready for [`Isa::nibble_value`].
    unsafe fn prepare_nibbles(x: Self::I) -> Self::I;
    /// Nibble at bit `shift` of each prepared word, minus 8.
    unsafe fn nibble_value(x: Self::I, shift: i32) -> Self::F;
    /// Nibble at bit `shift` of each (unprepared) word.
    unsafe fn nibble_unsigned(x: Self::I, shift: i32) -> Self::F;
    /// The entry of a table that the nibble at bit `shift` of each word is the number of.
    unsafe fn nibble_of(x: Self::I, shift: i32, table: &[u32; 16]) -> Self::F;

    /// Dot products starting at `x`.
    unsafe fn dot(x: i32) -> Self::Dot;
    /// The 4 bytes at `p` in each lane.
    unsafe fn splat_word(p: *const u8) -> Self::I;
    /// Adds to each lane the dot product of 4 numbers from 0 to `most`, at most 127, and 4 i8 of
    /// `a`, whose words are all the same. Between two calls of [`Isa::settle`] there may be as many calls as there are
    /// `2·128·most` in `−i16::MIN`.
    unsafe fn dot4(acc: Self::Dot, w: Self::I, a: Self::I) -> Self::Dot;
    /// [`Isa::dot4`] with words of `a` that differ.
    #[inline(always)]
    unsafe fn dot4_each(acc: Self::Dot, w: Self::I, a: Self::I) -> Self::Dot {
        unsafe { Self::dot4(acc, w, a) }
    }
    /// 8-bit codes made ready.
    unsafe fn prepare_dot8(x: Self::I) -> Self::W8;
    /// Adds to each lane the dot product of 4 codes (see [`Isa::W8_UNSIGNED`]) and 4 i8 of `a` in
    /// `-127..=127`, or −128 too if [`Isa::DOT8_LEAST`].
    unsafe fn dot8(acc: Self::Dot, w: Self::W8, a: Self::I) -> Self::Dot;
    /// 8-bit codes made ready for [`Isa::dot8_any`].
    #[inline(always)]
    unsafe fn prepare_dot8_any(x: Self::I) -> Self::W8 {
        unsafe { Self::prepare_dot8(x) }
    }
    /// [`Isa::dot8`] for any i8.
    #[inline(always)]
    unsafe fn dot8_any(acc: Self::Dot, w: Self::W8, a: Self::I) -> Self::Dot {
        unsafe { Self::dot8(acc, w, a) }
    }
    /// Moves narrow partial sums to wide ones.
    unsafe fn settle(acc: Self::Dot) -> Self::Dot;
    /// The sums, after [`Isa::settle`].
    unsafe fn total(acc: Self::Dot) -> Self::I;

    /// The bits of `mask` of each byte, after moving the words of 16 bits down by `right` (up, if
    /// negative).
    unsafe fn field_of_bytes(x: Self::I, right: i32, mask: u8) -> Self::I;
    /// The words of 16 bits, moved down by `bits`.
    unsafe fn words_right(x: Self::I, bits: i32) -> Self::I;
    /// The words of 16 bits, moved up by `bits`.
    unsafe fn words_left(x: Self::I, bits: i32) -> Self::I;
    /// The words of 32 bits of `x`, moved up by `bits`, below which come the upper bits of those of `before`.
    unsafe fn funnel(x: Self::I, before: Self::I, bits: i32) -> Self::I;
    /// Bits of one, but not of both.
    unsafe fn xor_words(a: Self::I, b: Self::I) -> Self::I;
    /// The bits of each byte of `a` that are set in `mask`, the others of `b`.
    unsafe fn merge(mask: u8, a: Self::I, b: Self::I) -> Self::I;
    /// Each byte, below 64, replaced by that entry of a table, with [`Isa::LARGE_TABLES`].
    #[inline(always)]
    unsafe fn look_up_64(x: Self::I, _table: &[u8; 64]) -> Self::I {
        x
    }
    /// Bytes of the 8 at `p`, for each byte of `at`, below 4: the lower two of each word are of the first four, the
    /// upper two of the others.
    #[inline(always)]
    unsafe fn pick(p: *const u8, at: Self::I) -> Self::I {
        unsafe {
            let mut four = [Self::zero_words(); 4];
            for (i, x) in four.iter_mut().enumerate() {
                let (low, high) = (u32::from(p.add(i).read()), u32::from(p.add(4 + i).read()));
                *x = Self::splat_bits((low * 0x0101) | (high * 0x0101_0000));
            }
            // All bits of the bytes whose bit is set.
            let all = Self::splat_bits(255);
            let odd = Self::mul_words(Self::field_of_bytes(at, 0, 1), all);
            let upper = Self::mul_words(Self::field_of_bytes(at, 1, 1), all);
            for i in 0..2 {
                let other = Self::xor_words(four[2 * i], four[2 * i + 1]);
                four[i] = Self::xor_words(four[2 * i], Self::and_words(other, odd));
            }
            Self::xor_words(four[0], Self::and_words(Self::xor_words(four[0], four[1]), upper))
        }
    }
    /// Bits of either.
    unsafe fn or_words(a: Self::I, b: Self::I) -> Self::I;
    /// Each byte, below 16, replaced by that entry of a table.
    unsafe fn look_up(x: Self::I, table: &[u8; 16]) -> Self::I;
    /// `LANES` powers of two `2^(u − 127)`, of bytes `u` below 255.
    unsafe fn load_powers(p: *const u8) -> Self::F;

    /// `LANES` e4m3, widened; none is NaN.
    unsafe fn load_e4m3(p: *const u8) -> Self::F;
    /// Bytes that are e4m3 as bf16, the even ones of each word and the odd ones, 2⁸ times too small.
    /// Zeros and subnormal numbers become others ([`Isa::e4m3_exact`]), NaN a number.
    unsafe fn e4m3_halves(x: Self::I) -> [Self::I; 2];
    /// Those numbers again, `x` being one of [`Isa::e4m3_halves`] of a word, as f32.
    unsafe fn e4m3_exact(x: Self::F) -> Self::F;
    /// The lesser of each byte of `least` and the magnitude of e4m3 in `x`.
    unsafe fn e4m3_least(least: Self::I, x: Self::I) -> Self::I;
    /// Whether a byte is the magnitude of zero or of a subnormal e4m3.
    unsafe fn e4m3_small(least: Self::I) -> bool;
    /// Bits of both.
    unsafe fn and_words(a: Self::I, b: Self::I) -> Self::I;

    /// `LANES` zeros.
    unsafe fn zero_words() -> Self::I;
    /// Lane-wise sum.
    unsafe fn add_words(a: Self::I, b: Self::I) -> Self::I;
    /// Lower 32 bits of the lane-wise product.
    unsafe fn mul_words(a: Self::I, b: Self::I) -> Self::I;
    /// `LANES` u16, widened.
    unsafe fn load_shorts(p: *const u8) -> Self::I;
    /// Two's complement of 6 bits: the lower four are field `field` of 4 bits of the words of `low`, the upper two are
    /// field `field` of 2 bits of `high`, whose words have 16 bits.
    unsafe fn six(low: Self::I, high: Self::I, field: i32) -> Self::I;
    /// Lane-wise maximum of `acc` and the bits of `|x|`. As integers, NaN compares above infinity,
    /// so it is never lost.
    unsafe fn max_magnitude(acc: Self::I, x: Self::F) -> Self::I;
    /// Nearest integer of each lane, ties to even.
    unsafe fn round(x: Self::F) -> Self::I;
    /// Writes the low byte of each lane, whose value fits i8: `LANES` bytes.
    unsafe fn store_bytes(p: *mut u8, x: Self::I);
    /// Largest lane (no lane is negative).
    unsafe fn max_lane(x: Self::I) -> i32;
    /// Sum of all lanes.
    unsafe fn sum_lanes(x: Self::I) -> i32;

    /// `LANES` bf16, widened.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// Writes `LANES` numbers rounded to bf16, to nearest even; NaN becomes a quiet NaN.
    unsafe fn store_bf16(p: *mut u16, x: Self::F);
    /// `LANES` i8 as f32.
    unsafe fn load_i8(p: *const u8) -> Self::F;
    /// `a + b`.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// `a` where it is greater, else `b`.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `a` where it is less, else `b`.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// Numbers of those bits of `x` that are set in `mask`.
    unsafe fn keep_bits(x: Self::F, mask: u32) -> Self::F;
    /// `yes` where `x < bound`, else `no`.
    unsafe fn where_less(x: Self::F, bound: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// `2^n` for `n` in `-126..=127`.
    unsafe fn pow2(n: Self::I) -> Self::F;
    /// `y · 2^n` for `n` in `-252..=254`, rounded once where `y` is between ½ and 2.
    unsafe fn scale(y: Self::F, n: Self::I) -> Self::F;
    /// 0 where `x < bound`, else `value`.
    unsafe fn zero_where_less(value: Self::F, x: Self::F, bound: Self::F) -> Self::F;
    /// `x` in lanes `from..to` (bounds may lie outside), `other` elsewhere.
    unsafe fn keep_lanes(x: Self::F, other: Self::F, from: i32, to: i32) -> Self::F;
    /// Largest lane.
    unsafe fn max_float_lane(x: Self::F) -> f32;
    /// Sum of 16 numbers, halves onto halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1. `high` is ignored where
    /// `low` has all of them.
    unsafe fn sum_float_lanes(low: Self::F, high: Self::F) -> f32;
}
