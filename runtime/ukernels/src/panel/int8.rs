//! Quantized weights × int8 rows: per group one exact integer dot product, then one f32 fused
//! multiply-add (two for asymmetric weights).
//!
//! One kernel for all lines of [`INT8_PANELS`](llmcc_abi::INT8_PANELS): the differences follow from
//! their descriptions at compile time.

use llmcc_abi::encoding::{Code, Encoding, ScaleKind};
use llmcc_abi::layout::{self, BLOCK, K_PAD};

use super::slice::{self, Dots, PanelWeights, parts};
use super::{Kernel, Place, Tile, levels};
use crate::isa::{Isa, Shape};

/// Starts the dot products of group `group`: the excess that the zero point of the weights will add
/// is subtracted in advance.
#[inline(always)]
pub(super) unsafe fn start<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    group: usize,
) -> Dots<I, MR, NV> {
    unsafe {
        let mut dots = [[[I::dot(0); NV]; MR]; 4];
        if const { PanelWeights::<F>::zero::<I>() != 0 } {
            for m in 0..MR {
                let sum = sum_at(t, m, group).cast::<i32>().read_unaligned();
                dots[0][m] = [I::dot(-const { PanelWeights::<F>::zero::<I>() } * sum); NV];
            }
        }
        if const { matches!(PanelWeights::<F>::ENCODING.code, Code::Pairs) } {
            let columns = t.group.min(t.kp - group * t.group);
            dots[0] = [[I::dot(slice::ones(columns)); NV]; MR];
        }
        dots
    }
}

/// Where the sum of the codes of group `group` of row `m` is.
#[inline(always)]
pub(super) unsafe fn sum_at(t: &Tile, m: usize, group: usize) -> *const u8 {
    unsafe { t.a.add(m * t.a_stride + t.q8.sums + group * t.sum_bytes) }
}

/// Whether the factors of a record are loaded when it is entered, not when they are needed, where
/// the processor would see reads go backwards and lose track of the stream (a row from memory: 85
/// instead of 95 % of its bandwidth). Larger tiles have no registers for that.
const fn early(weights: Encoding, mr: usize, nv: usize) -> bool {
    nv == 1 && mr <= 6 && weights.scales[1].is_none() && layout::groups_per_record(&weights) <= 2
}

/// Whether the scales of the scales of a record are loaded when it is entered.
const fn holds_above(weights: Encoding, mr: usize, nv: usize) -> bool {
    nv == 1 && mr <= 8 && weights.scales[1].is_some()
}

/// Lines at the start of a record, which have its factors.
const fn factor_lines(weights: Encoding) -> usize {
    // Neither the number of columns matters, nor that of a group whose size is not known here.
    let weights = if matches!(weights.group(), Some(0)) { weights.in_groups(K_PAD) } else { weights };
    layout::block(&weights, K_PAD).codes / 64
}

/// The kind of factors beside the codes.
pub(super) const fn kind(weights: Encoding) -> ScaleKind {
    match weights.scales[0] {
        Some(scale) => scale.kind,
        None => panic!("floats have no scales"),
    }
}

/// `LANES` factors.
#[inline(always)]
pub(super) unsafe fn load<I: Isa>(kind: ScaleKind, p: *const u8) -> I::F {
    unsafe {
        match kind {
            ScaleKind::F32 => I::load(p),
            ScaleKind::F16 => I::load_f16(p),
            ScaleKind::Bf16 => I::load_bf16(p),
            ScaleKind::E8m0 => I::load_powers(p),
            // Codes of up to 7 bits, if unsigned.
            ScaleKind::Unsigned { .. } | ScaleKind::Signed { .. } => I::load_i8(p),
            ScaleKind::Six => panic!("scales of 6 bits take no byte each"),
            ScaleKind::E4m3 => I::load_e4m3(p),
        }
    }
}

/// The first two factors of the record at byte `factors` of the block of a tile of one vector: two
/// groups' factors, or a scale and a minimum.
#[inline(always)]
unsafe fn halves<I: Isa, const F: usize, const NV: usize>(t: &Tile, factors: usize) -> [I::F; 2] {
    unsafe {
        let (kind, bytes) = const { (kind(PanelWeights::<F>::ENCODING), kind(PanelWeights::<F>::ENCODING).bytes()) };
        let p = t.vectors::<I, NV>(factors, bytes)[0];
        let first = load::<I>(kind, p);
        let two = const {
            PanelWeights::<F>::ENCODING.has_minimum() || layout::groups_per_record(&PanelWeights::<F>::ENCODING) > 1
        };
        [first, if two { load::<I>(kind, p.add(BLOCK * bytes)) } else { first }]
    }
}

/// Scale and minimum of a group whose factors start at byte `factors` of the block (or are in
/// `record`, see [`early`] and [`holds_above`]), in the record at byte `record_at`.
#[inline(always)]
pub(super) unsafe fn factors_of<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    group: usize,
    (factors, record_at): (usize, usize),
    record: &[I::F; 2],
) -> [[I::F; NV]; 2] {
    let of = const { PanelWeights::<F>::ENCODING };
    unsafe {
        let mut scale = [I::splat(0.0); NV];
        let mut min = scale;
        if const { early(PanelWeights::<F>::ENCODING, MR, NV) } {
            scale[0] = record[group % const { layout::groups_per_record(&PanelWeights::<F>::ENCODING) }];
            min[0] = record[1];
        } else {
            let kind = const { kind(PanelWeights::<F>::ENCODING) };
            let p = t.vectors::<I, NV>(factors, kind.bytes());
            for v in 0..NV {
                scale[v] = load::<I>(kind, p[v]);
                if of.has_minimum() {
                    min[v] = load::<I>(kind, p[v].add(t.block.mins));
                }
            }
        }
        if let Some(above) = of.scales[1] {
            let p = t.vectors::<I, NV>(record_at + t.block.above, above.kind.bytes());
            for v in 0..NV {
                let held = const { holds_above(PanelWeights::<F>::ENCODING, MR, NV) };
                scale[v] = I::mul(scale[v], if held { record[0] } else { load::<I>(above.kind, p[v]) });
                if of.has_minimum() {
                    let above_mins = |p: *const u8| load::<I>(above.kind, p.add(t.block.above_mins));
                    min[v] = I::mul(min[v], if held { record[1] } else { above_mins(p[v]) });
                }
            }
        }
        // In a constant: the compiler leaves the search for the unit in the loop otherwise.
        if let Some(unit) = const { PanelWeights::<F>::ENCODING.unit() }
            && unit != 1.0
        {
            for v in 0..NV {
                scale[v] = I::mul(scale[v], I::splat(unit));
            }
        }
        [scale, min]
    }
}

/// Scales the dot products of group `group` into `acc`.
#[inline(always)]
pub(super) unsafe fn finish<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    group: usize,
    [scale, min]: [[I::F; NV]; 2],
    dots: &Dots<I, MR, NV>,
    acc: &mut [[I::F; NV]; MR],
) {
    unsafe {
        for m in 0..MR {
            let a = t.a.add(m * t.a_stride + group * 4);
            let a_scale = I::splat(a.add(t.q8.scales).cast::<f32>().read_unaligned());
            for v in 0..NV {
                let mut total = I::total(dots[0][m][v]);
                for part in 1..parts::<I, MR, NV>() {
                    total = I::add_words(total, I::total(dots[part][m][v]));
                }
                acc[m][v] = I::fma(I::to_f32(total), I::mul(scale[v], a_scale), acc[m][v]);
            }
            if const { PanelWeights::<F>::ENCODING.has_minimum() } {
                let sum = I::to_f32(I::splat_word(sum_at(t, m, group)));
                for v in 0..NV {
                    acc[m][v] = I::fma(I::mul(min[v], a_scale), sum, acc[m][v]);
                }
            }
        }
    }
}

/// The walk through the groups of a tile.
struct GroupWalk<I: Isa> {
    place: Place,
    /// See [`early`] and [`holds_above`].
    record: [I::F; 2],
    /// The next group, and its first column.
    group: usize,
    k: usize,
}

impl<I: Isa> GroupWalk<I> {
    /// Enters the next group. Returns where its factors are.
    #[inline(always)]
    unsafe fn enter<const F: usize, const MR: usize, const NV: usize>(&mut self, t: &Tile) -> usize {
        // One scale for a row is that of its first group.
        let factors = if const { PanelWeights::<F>::ENCODING.by_row() } && self.group > 0 {
            return self.place.record + t.block.scales;
        } else {
            self.place.enter(t, self.group)
        };
        if factors == self.place.record + t.block.scales {
            unsafe { self.enter_record::<F, MR, NV>(t, factors) };
        }
        factors
    }

    /// Enters a record, whose first factors are at `factors`.
    #[inline(always)]
    unsafe fn enter_record<const F: usize, const MR: usize, const NV: usize>(&mut self, t: &Tile, factors: usize) {
        unsafe {
            // Factors take lines of the stream as well: without this, as many lines of codes
            // further on would not be asked for.
            if const { NV * I::LANES <= BLOCK } {
                for line in 0..const { factor_lines(PanelWeights::<F>::ENCODING) } {
                    t.prefetch::<I, MR, NV>(0, t.w.add(self.place.record + line * 64));
                }
            }
            if const { early(PanelWeights::<F>::ENCODING, MR, NV) } {
                self.record = halves::<I, F, NV>(t, factors);
            } else if const { holds_above(PanelWeights::<F>::ENCODING, MR, NV) } {
                let above = const { PanelWeights::<F>::ENCODING.scales[1] };
                let Some(above) = above else { return };
                let p = t.vectors::<I, NV>(self.place.record + t.block.above, above.kind.bytes())[0];
                self.record[0] = load::<I>(above.kind, p);
                if PanelWeights::<F>::ENCODING.has_minimum() {
                    self.record[1] = load::<I>(above.kind, p.add(t.block.above_mins));
                }
            }
        }
    }

    /// Where the next slice of codes is, in each vector.
    #[inline(always)]
    fn codes<const NV: usize>(&self, codes: &[*const u8; NV]) -> [*const u8; NV] {
        let mut w = *codes;
        for v in 0..NV {
            w[v] = w[v].wrapping_add(self.place.codes);
        }
        w
    }

    /// The next group: of each of its slices columns `8·FROM..8·TO`.
    #[inline(always)]
    unsafe fn group<
        const F: usize,
        const MR: usize,
        const NV: usize,
        const FROM: usize,
        const TO: usize,
        const ANY: bool,
    >(
        &mut self,
        t: &Tile,
        codes: &[*const u8; NV],
        acc: &mut [[I::F; NV]; MR],
    ) {
        unsafe {
            let (start_of_group, end) = (self.k, t.kp.min(self.k + t.group));
            let factors = self.enter::<F, MR, NV>(t);
            let mut dots = start::<I, F, MR, NV>(t, self.group);
            while self.k < end {
                let w = self.codes(codes);
                slice::add::<I, F, MR, NV, FROM, TO, ANY>(t, &mut dots, &w, t.a.add(self.k), self.k == start_of_group);
                // The rest of the slice is the next group.
                if const { TO * 8 < K_PAD } {
                    break;
                }
                self.place.codes += PanelWeights::<F>::SLICE_BYTES;
                self.k += K_PAD;
            }
            let factors = factors_of::<I, F, MR, NV>(t, self.group, (factors, self.place.record), &self.record);
            finish::<I, F, MR, NV>(t, self.group, factors, &dots, acc);
            self.group += 1;
        }
    }
}

/// The panel of line `F` of [`INT8_PANELS`](llmcc_abi::INT8_PANELS) with int8 rows, which have −128
/// only if `ANY`.
pub(crate) struct Int8<const F: usize, const ANY: bool>;

impl<const F: usize, const ANY: bool> Int8<F, ANY> {
    /// Whether the format has all tiles: the compiler's own formats, and `Q4_K`.
    const USED_MOST: bool = F < 8;
    /// Whether many rows have levels to multiply ([`levels`]), not codes.
    const FEW_ROWS: bool = matches!(PanelWeights::<F>::ENCODING.code, Code::Trellis(_));
}

impl<I: Isa, const F: usize, const ANY: bool> Kernel<I> for Int8<F, ANY> {
    const ENCODING: Encoding = PanelWeights::<F>::ENCODING;
    // Formats that are only read from checkpoints have fewer tiles.
    const SHAPE: Shape = if Self::FEW_ROWS {
        Shape { tokens: levels::FEW, vectors: 1, few: levels::FEW, ..I::INT8 }
    } else if Self::USED_MOST {
        I::INT8
    } else {
        Shape { single: 1, ..I::INT8 }
    };
    const SOME: bool = !Self::USED_MOST;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let codes = t.vectors::<I, NV>(0, 4);
            let mut acc = [[I::splat(0.0); NV]; MR];
            let place = const { Place::new(PanelWeights::<F>::ENCODING) };
            let mut groups = GroupWalk::<I> { place, record: [I::splat(0.0); 2], group: 0, k: 0 };
            while groups.k < t.kp {
                if const { matches!(PanelWeights::<F>::ENCODING.group(), Some(16)) } {
                    groups.group::<F, MR, NV, 0, 2, ANY>(t, &codes, &mut acc);
                    groups.group::<F, MR, NV, 2, 4, ANY>(t, &codes, &mut acc);
                } else {
                    groups.group::<F, MR, NV, 0, 4, ANY>(t, &codes, &mut acc);
                }
            }
            t.store::<I, MR, NV>(&acc);
        }
    }
}
