//! Weights before packing, and a packer written from the layout's description.

use half::f16;
use llmcc_abi::encoding::trellis::Trellis;
use llmcc_abi::encoding::{Code, Encoding, Float, Per, Scale, ScaleKind, e4m3_to_f32};
use llmcc_abi::layout::{self, BLOCK};

use super::{Guarded, Rng};

/// A scale or a minimum: its bytes, and its value.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    bytes: [u8; 4],
    value: f64,
}

impl Factor {
    const NONE: Factor = Factor { bytes: [0; 4], value: 0.0 };

    fn new(bytes: &[u8], value: f64) -> Factor {
        let mut all = [0; 4];
        all[..bytes.len()].copy_from_slice(bytes);
        Factor { bytes: all, value }
    }

    /// Scales are zero, subnormal and ordinary; minima have both signs. Codes have all their bits.
    fn random(kind: ScaleKind, minimum: bool, rng: &mut Rng) -> Factor {
        let x = if minimum { rng.signed() / 4.0 } else { rng.signed().abs() / 16.0 };
        match kind {
            ScaleKind::F16 => {
                let half = match rng.below(16) {
                    0 if !minimum => f16::ZERO,
                    1 if !minimum => f16::from_bits(1 + rng.below(1023) as u16),
                    _ => f16::from_f32(x),
                };
                Factor::new(&half.to_le_bytes(), half.to_f64())
            }
            ScaleKind::F32 => Factor::new(&x.to_le_bytes(), x.into()),
            ScaleKind::Bf16 => {
                let half = half::bf16::from_f32(x);
                Factor::new(&half.to_le_bytes(), half.to_f64())
            }
            ScaleKind::E8m0 => {
                let code = 60 + rng.below(90) as u8;
                Factor::new(&[code], 2f64.powi(i32::from(code) - 127))
            }
            ScaleKind::Unsigned { bits } => {
                let code = rng.below(1 << bits) as u8;
                Factor::new(&[code], code.into())
            }
            ScaleKind::Signed { bits } => {
                let code = rng.below(1 << bits) as i64 - (1 << (bits - 1));
                Factor::new(&[code as i8 as u8], code as f64)
            }
            ScaleKind::Six => {
                let code = rng.below(64) as i64 - 32;
                Factor::new(&[code as i8 as u8], code as f64)
            }
            ScaleKind::E4m3 => {
                let code = rng.below(0x7f) as u8;
                Factor::new(&[code], e4m3_to_f32(code).into())
            }
        }
    }

    /// The one that changes nothing.
    fn one(kind: ScaleKind, minimum: bool) -> Factor {
        if minimum {
            return Factor::NONE;
        }
        match kind {
            ScaleKind::F16 => Factor::new(&f16::ONE.to_le_bytes(), 1.0),
            ScaleKind::F32 => Factor::new(&1f32.to_le_bytes(), 1.0),
            ScaleKind::Bf16 => Factor::new(&half::bf16::ONE.to_le_bytes(), 1.0),
            ScaleKind::E8m0 => Factor::new(&[127], 1.0),
            ScaleKind::Unsigned { .. } | ScaleKind::Signed { .. } | ScaleKind::Six => Factor::new(&[1], 1.0),
            ScaleKind::E4m3 => Factor::new(&[7 << 3], 1.0),
        }
    }
}

/// A matrix `[n, k]`, before packing.
pub struct Matrix {
    pub weights: Encoding,
    pub n: usize,
    pub k: usize,
    pub group: usize,
    /// Unquantized elements `[n, k]`.
    pub dense: Vec<f32>,
    /// Stored (unsigned) codes `[n, k]`.
    pub codes: Vec<u8>,
    /// Factors by level of scales, `[n, runs]`: scale and minimum of the columns that share them.
    pub levels: [Vec<[Factor; 2]>; 2],
}

impl Matrix {
    pub fn groups(&self) -> usize {
        if self.group == 0 { 0 } else { self.k.next_multiple_of(32).div_ceil(self.group) }
    }

    /// Runs of columns that share the scales of `level`.
    fn runs(&self, level: usize) -> usize {
        match self.weights.scales[level].map(|s| s.per) {
            None => 0,
            Some(Per::Row | Per::TokenHead) => 1,
            Some(Per::Group(columns)) => {
                let columns = if level == 0 { self.group } else { columns.into() };
                self.k.next_multiple_of(32).div_ceil(columns)
            }
        }
    }

    /// Random elements; `extreme` makes codes the largest or the smallest there are.
    pub fn random(weights: Encoding, n: usize, k: usize, group: usize, extreme: bool, rng: &mut Rng) -> Matrix {
        let group = if weights.has_integer_scales() { weights.group().unwrap_or(group) } else { group };
        let mut w = Matrix { weights, n, k, group, dense: vec![], codes: vec![], levels: [vec![], vec![]] };
        if let Some(float) = weights.float() {
            w.dense = (0..n * k).map(|_| round_to(float, rng.signed())).collect();
            return w;
        }
        let largest = (1 << if weights.code == Code::Pairs { 4 } else { weights.bits() }) - 1;
        let mut code = || if extreme { largest * rng.below(2) } else { rng.below(largest + 1) };
        w.codes = (0..n * k).map(|_| code() as u8).collect();
        if weights.code == Code::Pairs {
            w.codes.chunks_mut(k.max(1)).flat_map(|row| row.chunks_mut(4)).for_each(|four| two_of_four(four, rng));
        }
        if weights.code == Code::Float(Float::E4m3) {
            w.make_small_ones_rare(rng);
        }
        w.fill_levels(|scale, minimum| Factor::random(scale.kind, minimum, rng));
        w
    }

    /// Leaves all zeros and subnormal numbers of e4m3, which microkernels compute apart, or some, or none;
    /// replaces NaN, which weights never are.
    fn make_small_ones_rare(&mut self, rng: &mut Rng) {
        let each = [1, 300, usize::MAX][rng.below(3)];
        for code in &mut self.codes {
            if *code & 0x78 == 0 && rng.below(each) > 0 {
                *code |= 8 << rng.below(4);
            }
            if *code & 0x7f == 0x7f {
                *code ^= 1;
            }
        }
    }

    /// Multiplies the f32 scales next to the codes by a power of two.
    pub fn multiply_scales(&mut self, by: f32) {
        for [scale, _] in &mut self.levels[0] {
            let x = scale.value as f32 * by;
            *scale = Factor::new(&x.to_le_bytes(), x.into());
        }
    }

    /// Scales of 1, and minima of 0.
    pub fn without_scales(&mut self) {
        self.fill_levels(|scale, minimum| Factor::one(scale.kind, minimum));
    }

    fn fill_levels(&mut self, mut factor: impl FnMut(Scale, bool) -> Factor) {
        self.levels = [0, 1].map(|level| {
            let Some(scale) = self.weights.scales[level] else { return vec![] };
            let mut both = || [factor(scale, false), if scale.minimum { factor(scale, true) } else { Factor::NONE }];
            (0..self.n * self.runs(level)).map(|_| both()).collect()
        });
    }

    /// Scale and minimum of group `group` of columns.
    pub fn scale_min(&self, n: usize, group: usize) -> (f64, f64) {
        let column = group * self.group;
        let (mut scale, mut min) = (1.0, 1.0);
        for (level, factors) in self.levels.iter().enumerate().filter(|(_, factors)| !factors.is_empty()) {
            let run = column / self.columns_of(level);
            let [s, m] = factors[n * self.runs(level) + run];
            (scale, min) = (scale * s.value, min * m.value);
        }
        (scale, min)
    }

    /// Columns of a run.
    fn columns_of(&self, level: usize) -> usize {
        match self.weights.scales[level].map(|s| s.per) {
            Some(Per::Group(_)) if level == 0 => self.group,
            Some(Per::Group(columns)) => columns.into(),
            _ => self.k.next_multiple_of(32).max(1),
        }
    }

    /// The number that a code stands for.
    pub fn number(&self, n: usize, k: usize) -> f64 {
        let code = self.codes[n * self.k + k];
        match self.weights.code {
            Code::Int { zero, .. } => f64::from(i32::from(code) - zero),
            Code::Pairs => f64::from(i32::from(code) - 8),
            Code::Table { values, .. } => f32::from_bits(values[usize::from(code)]).into(),
            Code::Signed { bits } => f64::from(((i32::from(code)) << (32 - bits)) >> (32 - bits)),
            Code::Float(_) => e4m3_to_f32(code).into(),
            Code::Trellis(of) => of.level(self.state(of, n, k)).into(),
        }
    }

    /// The state of a column: the codes of its group up to it, in the order of the trellis.
    fn state(&self, of: &Trellis, n: usize, k: usize) -> usize {
        let first = k / self.group * self.group;
        let order = |k: usize| (k - first) / 32 * 32 + k % 4 * 8 + k % 32 / 4;
        let mut columns: Vec<usize> = (first..(k + 32).min(first + self.group)).collect();
        columns.retain(|c| order(*c) <= order(k));
        columns.sort_by_key(|c| order(*c));
        let code = |c: usize| if c < self.k { self.codes[n * self.k + c] } else { 0 };
        columns.iter().fold(0, |state, c| (state << of.bits | usize::from(code(*c))) & 0xfff)
    }

    /// Decoded element, exact.
    pub fn value(&self, n: usize, k: usize) -> f64 {
        if self.weights.float().is_some() {
            return self.dense[n * self.k + k] as f64;
        }
        let (scale, min) = self.scale_min(n, k.checked_div(self.group).unwrap_or(0));
        let min = if self.weights.has_minimum() { min } else { 0.0 };
        scale * self.number(n, k) + min
    }

    /// Packs as `layout` describes, with `gap` bytes (a multiple of 64) between blocks. Returns the
    /// buffer and the block stride.
    pub fn pack(&self, gap: usize) -> (Guarded, usize) {
        let bytes = layout::block(&self.weights.in_groups(self.group), self.k).bytes;
        assert_eq!(
            layout::packed_bytes(&self.weights.in_groups(self.group), self.n, self.k),
            bytes * self.n.div_ceil(BLOCK)
        );
        let blocks: Vec<Vec<u8>> = (0..self.n.div_ceil(BLOCK)).map(|b| self.pack_block(b)).collect();
        let mut all = vec![];
        for block in &blocks {
            assert_eq!(block.len(), bytes, "{:?} k={} group={}", self.weights, self.k, self.group);
            if !all.is_empty() {
                all.extend(std::iter::repeat_n(0xff, gap));
            }
            all.extend(block);
        }
        (Guarded::from_bytes(&all), bytes + gap)
    }

    fn pack_block(&self, b: usize) -> Vec<u8> {
        let mut out = vec![];
        let row = |r: usize| (b * BLOCK + r < self.n).then_some(b * BLOCK + r);
        let dense = |r: usize, k: usize| row(r).filter(|_| k < self.k).map_or(0.0, |n| self.dense[n * self.k + k]);
        match self.weights.float() {
            Some(Float::F32) => {
                for (k, r) in pairs(self.k, BLOCK) {
                    out.extend(dense(r, k).to_le_bytes());
                }
            }
            Some(Float::F16) => {
                for (k, r) in pairs(self.k, BLOCK) {
                    out.extend(f16::from_f32(dense(r, k)).to_le_bytes());
                }
            }
            Some(Float::Bf16) => {
                for (pair, r) in pairs(self.k.div_ceil(2), BLOCK) {
                    out.extend(half::bf16::from_f32(dense(r, 2 * pair)).to_le_bytes());
                    out.extend(half::bf16::from_f32(dense(r, 2 * pair + 1)).to_le_bytes());
                }
            }
            Some(Float::E4m3) | None => self.pack_records(&row, &mut out),
        }
        out.resize(out.len().next_multiple_of(64), 0);
        out
    }

    /// Groups in a record: a super-group's, or as many as have their factors in a line.
    fn together(&self) -> usize {
        match (self.weights.scales, self.weights.super_group()) {
            (_, Some(columns)) => columns / self.group,
            ([Some(scale), _], None) if scale.per != Per::Row => {
                (64 / (BLOCK * scale.kind.bytes() * scale.factors())).max(1)
            }
            _ => usize::MAX,
        }
    }

    fn pack_records(&self, row: &dyn Fn(usize) -> Option<usize>, out: &mut Vec<u8>) {
        let (groups, padded) = (self.runs(0), self.k.next_multiple_of(32));
        let together = self.together().min(groups.max(1));
        // A super-group has room for the factors of all its groups.
        let room = if self.weights.super_group().is_some() { self.together() } else { 0 };
        let six = self.weights.has_integer_scales();
        for (record, first) in (0..groups).step_by(together).enumerate() {
            self.pack_factors(1, record, row, out);
            if six {
                self.pack_six(first..groups.min(first + together), row, out);
                self.pack_codes(first * self.group..padded.min((first + together) * self.group), row, out);
                continue;
            }
            for g in first..groups.min(first + together) {
                self.pack_factors(0, g, row, out);
            }
            let line = self.weights.scales[0].map_or(0, |s| BLOCK * s.kind.bytes() * s.factors());
            out.resize(out.len() + room.saturating_sub(groups - first) * line, 0);
            out.resize(out.len().next_multiple_of(64), 0);
            let columns = if self.weights.by_row() { padded } else { self.group };
            self.pack_codes(first * columns..padded.min((first + together) * columns), row, out);
        }
    }

    /// Scales of 16 rows, then their minima.
    fn pack_factors(&self, level: usize, run: usize, row: &dyn Fn(usize) -> Option<usize>, out: &mut Vec<u8>) {
        let Some(scale) = self.weights.scales[level] else { return };
        for which in 0..scale.factors() {
            for r in 0..BLOCK {
                let factor = row(r).map_or(Factor::NONE, |n| self.levels[level][n * self.runs(level) + run][which]);
                out.extend(&factor.bytes[..scale.kind.bytes()]);
            }
        }
    }

    /// Scales of 6 bits of the groups of a record: 2 upper bits of each group in 16 bits, 4 lower ones in 32 bits.
    fn pack_six(&self, groups: std::ops::Range<usize>, row: &dyn Fn(usize) -> Option<usize>, out: &mut Vec<u8>) {
        let code = |n: usize, g: usize| u32::from(self.levels[0][n * self.runs(0) + g][0].bytes[0]);
        let fields = |r: usize, bits: usize, base: u32| {
            let of = |n: usize| {
                groups.clone().enumerate().map(|(i, g)| (code(n, g) >> base & ((1 << bits) - 1)) << (i * bits)).sum()
            };
            row(r).map_or(0u32, of)
        };
        (0..BLOCK).for_each(|r| out.extend(&fields(r, 2, 4).to_le_bytes()[..2]));
        (0..BLOCK).for_each(|r| out.extend(fields(r, 4, 0).to_le_bytes()));
    }

    /// Codes by slices of 32 columns, planes one after the other, each of 1, 2, 4 or 8 bits.
    fn pack_codes(&self, columns: std::ops::Range<usize>, row: &dyn Fn(usize) -> Option<usize>, out: &mut Vec<u8>) {
        let zero = self.weights.zero_code();
        let code = |r: usize, k: usize| row(r).filter(|_| k < self.k).map_or(zero, |n| self.codes[n * self.k + k]);
        let planes: Vec<u32> = match self.weights.code {
            Code::Trellis(of) => vec![1; of.bits as usize],
            _ => [8, 4, 2, 1].into_iter().filter(|bits| self.weights.bits() & bits != 0).collect(),
        };
        for slice in columns.step_by(32) {
            if self.weights.code == Code::Pairs {
                pack_pairs(slice, &code, out);
                continue;
            }
            let mut base = 0;
            for bits in &planes {
                for (chunk, r) in pairs(*bits as usize, BLOCK) {
                    let field = |k: usize| u32::from(code(r, k)) >> base & ((1 << bits) - 1);
                    let first = slice + chunk * 32 / *bits as usize;
                    let byte = |j: usize| (0..8 / bits).map(|i| field(first + 4 * i as usize + j) << (i * bits)).sum();
                    out.extend((0..4).map(|j| -> u32 { byte(j) }).map(|byte| byte as u8));
                }
                base += bits;
            }
        }
    }
}

/// Leaves two codes of four, or fewer, in any places.
fn two_of_four(four: &mut [u8], rng: &mut Rng) {
    let kept = [rng.below(4), rng.below(4)];
    four.iter_mut().enumerate().filter(|(c, _)| !kept.contains(c)).for_each(|(_, code)| *code = 8);
}

/// A slice of codes of two of each four columns: two chunks of numbers of 16 columns, and one of places. A byte of a
/// row has a number of one of the first two fours of columns in its lower half, and of one of the next two above; of
/// places it has one of each two fours.
fn pack_pairs(slice: usize, code: &dyn Fn(usize, usize) -> u8, out: &mut Vec<u8>) {
    // Place and code of the `i`-th that is stored of a four: those that are not zero, and others before or behind.
    let stored = |r: usize, four: usize, i: usize| {
        let at = |c: usize| code(r, slice + 4 * four + c);
        let mut kept: Vec<usize> = (0..4).filter(|c| at(*c) != 8).collect();
        kept.extend((0..4).filter(|c| at(*c) == 8));
        let mut kept = [kept[0], kept[1]];
        kept.sort_unstable();
        (kept[i] as u8, at(kept[i]))
    };
    for (chunk, r) in pairs(2, BLOCK) {
        let number = |four: usize, j: usize| stored(r, 4 * chunk + 2 * four + j / 2, j % 2).1;
        out.extend((0..4).map(|j| number(0, j) | number(1, j) << 4));
    }
    for r in 0..BLOCK {
        let place = |eight: usize, j: usize| stored(r, 2 * eight + j / 2, j % 2).0 << (2 * eight);
        out.extend((0..4).map(|j| (0..4).map(|eight| place(eight, j)).sum::<u8>()));
    }
}

/// `(i, j)` for all `i < n`, `j < m`, in order.
fn pairs(n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n * m).map(move |x| (x / m, x % m))
}

fn round_to(float: Float, x: f32) -> f32 {
    match float {
        Float::F16 => f16::from_f32(x).to_f32(),
        Float::Bf16 => half::bf16::from_f32(x).to_f32(),
        Float::F32 | Float::E4m3 => x,
    }
}
