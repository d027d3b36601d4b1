//! Buffers against inaccessible memory, random operands, and a packer written from the layout's
//! description, not from the kernels.
#![allow(dead_code)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

mod guarded;

pub use guarded::Guarded;
use half::f16;
use llmcc_abi::encoding::{Encoding, Float};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_abi::{PanelArgs, PanelFn, QuantRowsFn, Uk, UkTable};
use llmcc_ukernels::{Level, detect, table};

/// Levels that this machine can run.
pub fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|&level| level <= detect())
}

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Uniform in `-1..1`.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A panel microkernel.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub uk: Uk,
    pub weights: Encoding,
    pub rows: Rows,
}

/// Activation rows of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    F32,
    Bf16,
    Int8,
}

pub const KINDS: [Kind; 11] = [
    Kind { uk: Uk::PanelF32, weights: Encoding::F32, rows: Rows::F32 },
    Kind { uk: Uk::PanelF16, weights: Encoding::F16, rows: Rows::F32 },
    Kind { uk: Uk::PanelBf16, weights: Encoding::BF16, rows: Rows::F32 },
    Kind { uk: Uk::PanelW8, weights: Encoding::W8, rows: Rows::F32 },
    Kind { uk: Uk::PanelW4, weights: Encoding::W4, rows: Rows::F32 },
    Kind { uk: Uk::PanelW4a, weights: Encoding::W4A, rows: Rows::F32 },
    Kind { uk: Uk::PanelW8A8, weights: Encoding::W8, rows: Rows::Int8 },
    Kind { uk: Uk::PanelW4A8, weights: Encoding::W4, rows: Rows::Int8 },
    Kind { uk: Uk::PanelW4aA8, weights: Encoding::W4A, rows: Rows::Int8 },
    Kind { uk: Uk::PanelQ4kA8, weights: Encoding::Q4K, rows: Rows::Int8 },
    Kind { uk: Uk::PanelBf16Rows, weights: Encoding::BF16, rows: Rows::Bf16 },
];

impl Kind {
    /// Quantization groups to test.
    pub fn groups(self) -> &'static [usize] {
        match (self.weights.group(), self.weights.super_group()) {
            (Some(_), None) => &[32, 64, 128],
            (Some(_), Some(_)) => &[32],
            (None, _) => &[0],
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
    /// `[n, groups]`, or `[n, super-groups]` where there are those.
    pub scales: Vec<f16>,
    /// The same, asymmetric formats only.
    pub mins: Vec<f16>,
    /// `[n, groups]` codes of scale and minimum, where there are super-groups.
    pub factors: Vec<(u8, u8)>,
}

impl Matrix {
    pub fn groups(&self) -> usize {
        if self.group == 0 { 0 } else { self.k.next_multiple_of(32).div_ceil(self.group) }
    }

    /// Groups that share an f16.
    fn together(&self) -> usize {
        self.weights.super_group().map_or(1, |columns| columns / self.group)
    }

    /// Random elements; `extreme` makes codes the largest or the smallest there are.
    pub fn random(weights: Encoding, n: usize, k: usize, group: usize, extreme: bool, rng: &mut Rng) -> Matrix {
        let mut w = Matrix {
            weights,
            n,
            k,
            group,
            dense: vec![],
            codes: vec![],
            scales: vec![],
            mins: vec![],
            factors: vec![],
        };
        if let Some(float) = weights.float() {
            w.dense = (0..n * k).map(|_| round_to(float, rng.signed())).collect();
            return w;
        }
        let largest = (1 << weights.bits()) - 1;
        let mut code = || if extreme { largest * rng.below(2) } else { rng.below(largest + 1) };
        w.codes = (0..n * k).map(|_| code() as u8).collect();
        let count = n * w.groups().div_ceil(w.together());
        // Zero, subnormal and ordinary scales.
        let mut scale = || match rng.below(16) {
            0 => f16::ZERO,
            1 => f16::from_bits(1 + rng.below(1023) as u16),
            _ => f16::from_f32(rng.signed().abs() / 16.0),
        };
        w.scales = (0..count).map(|_| scale()).collect();
        if weights.has_minimum() {
            w.mins = (0..count).map(|_| f16::from_f32(rng.signed() / 4.0)).collect();
        }
        if weights.super_group().is_some() {
            w.factors = (0..n * w.groups()).map(|_| (rng.below(64) as u8, rng.below(64) as u8)).collect();
        }
        w
    }

    /// Scale and minimum of the group that holds column `k`.
    pub fn scale_min(&self, n: usize, group: usize) -> (f64, f64) {
        let i = n * self.groups().div_ceil(self.together()) + group / self.together();
        let min = if self.weights.has_minimum() { self.mins[i].to_f64() } else { 0.0 };
        let (scale, of_min) = match self.factors.get(n * self.groups() + group) {
            Some((scale, min)) => (f64::from(*scale), f64::from(*min)),
            None => (1.0, 1.0),
        };
        (self.scales[i].to_f64() * scale, min * of_min)
    }

    /// Code with its zero point subtracted.
    pub fn code(&self, n: usize, k: usize) -> i32 {
        self.codes[n * self.k + k] as i32 - self.weights.zero()
    }

    /// Decoded element, exact.
    pub fn value(&self, n: usize, k: usize) -> f64 {
        if self.group == 0 {
            return self.dense[n * self.k + k] as f64;
        }
        let (scale, min) = self.scale_min(n, k / self.group);
        scale * self.code(n, k) as f64 + min
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
            None if !self.factors.is_empty() => {
                for first in (0..self.groups()).step_by(self.together()) {
                    let at = |n: usize| n * self.groups().div_ceil(self.together()) + first / self.together();
                    for table in [&self.scales, &self.mins] {
                        out.extend((0..BLOCK).flat_map(|r| row(r).map_or(f16::ZERO, |n| table[at(n)]).to_le_bytes()));
                    }
                    let record = first..self.groups().min(first + self.together());
                    for g in first..first + self.together() {
                        let of = |r: usize| {
                            let found = row(r).filter(|_| g < self.groups());
                            found.map_or((0, 0), |n| self.factors[n * self.groups() + g])
                        };
                        out.extend((0..BLOCK).map(|r| of(r).0).chain((0..BLOCK).map(|r| of(r).1)));
                    }
                    out.resize(out.len().next_multiple_of(64), 0);
                    record.for_each(|g| self.pack_codes(g, &row, &mut out));
                }
            }
            Some(Float::E4m3) | None => {
                let factors = |out: &mut Vec<u8>, table: &[f16], g: usize| {
                    out.extend(
                        (0..BLOCK)
                            .flat_map(|r| row(r).map_or(f16::ZERO, |n| table[n * self.groups() + g]).to_le_bytes()),
                    );
                };
                let together = if self.weights.has_minimum() { 1 } else { 2 };
                for first in (0..self.groups()).step_by(together) {
                    let record = first..self.groups().min(first + together);
                    record.clone().for_each(|g| factors(&mut out, &self.scales, g));
                    if self.weights.has_minimum() {
                        factors(&mut out, &self.mins, first);
                    }
                    out.resize(out.len().next_multiple_of(64), 0);
                    record.for_each(|g| self.pack_codes(g, &row, &mut out));
                }
            }
        }
        out.resize(out.len().next_multiple_of(64), 0);
        out
    }

    fn pack_codes(&self, group: usize, row: &dyn Fn(usize) -> Option<usize>, out: &mut Vec<u8>) {
        let zero = self.weights.zero() as u8;
        let code = |r: usize, k: usize| row(r).filter(|_| k < self.k).map_or(zero, |n| self.codes[n * self.k + k]);
        let from = group * self.group;
        let columns = self.group.min(self.k.next_multiple_of(32) - from);
        if self.weights.bits() == 8 {
            for (chunk, r) in pairs(columns / 4, BLOCK) {
                out.extend((0..4).map(|j| code(r, from + 4 * chunk + j)));
            }
        } else {
            for (chunk, r) in pairs(columns / 8, BLOCK) {
                out.extend((0..4).map(|j| code(r, from + 8 * chunk + j) | code(r, from + 8 * chunk + 4 + j) << 4));
            }
        }
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

/// int8 rows `[m, k]`.
pub struct Int8Rows {
    pub k: usize,
    pub group: usize,
    pub codes: Vec<i8>,
    /// `[m, groups]`.
    pub scales: Vec<f32>,
}

impl Int8Rows {
    pub fn random(m: usize, k: usize, group: usize, extreme: bool, rng: &mut Rng) -> Int8Rows {
        let mut code = || if extreme { 127 - 254 * (rng.below(2) as i32) } else { rng.below(255) as i32 - 127 };
        let codes = (0..m * k).map(|_| code() as i8).collect();
        let groups = k.next_multiple_of(32).div_ceil(group);
        Int8Rows { k, group, codes, scales: (0..m * groups).map(|_| rng.signed().abs() / 127.0).collect() }
    }

    pub fn groups(&self) -> usize {
        self.k.next_multiple_of(32).div_ceil(self.group)
    }

    pub fn columns(&self, group: usize) -> std::ops::Range<usize> {
        group * self.group..self.k.min((group + 1) * self.group)
    }

    pub fn sum(&self, m: usize, group: usize) -> i32 {
        self.columns(group).map(|k| self.codes[m * self.k + k] as i32).sum()
    }

    pub fn row_bytes(&self, m: usize) -> Vec<u8> {
        let mut out: Vec<u8> = self.codes[m * self.k..][..self.k].iter().map(|&c| c as u8).collect();
        out.resize(self.k.next_multiple_of(32), 0);
        for g in 0..self.groups() {
            out.extend(self.scales[m * self.groups() + g].to_le_bytes());
        }
        for g in 0..self.groups() {
            out.extend(self.sum(m, g).to_le_bytes());
        }
        // An odd number of cache lines.
        out.resize((out.len().div_ceil(64) | 1) * 64, 0);
        assert_eq!(out.len(), layout::q8_row(self.k, self.group).bytes);
        out
    }
}

/// Rows laid out one after the other with `gap` bytes between, the last one ending at the guard.
pub fn lay_out(rows: &[Vec<u8>], gap: usize) -> (Guarded, usize) {
    let mut all = vec![];
    for row in rows {
        if !all.is_empty() {
            all.extend(std::iter::repeat_n(0xff, gap));
        }
        all.extend(row);
    }
    (Guarded::from_bytes(&all), rows.first().map_or(0, Vec::len) + gap)
}

/// Packed operands of a panel.
pub struct Operands {
    pub kind: Kind,
    pub m: usize,
    pub blocks: usize,
    pub k: usize,
    pub group: usize,
    pub w: Guarded,
    pub w_stride: usize,
    pub a: Guarded,
    pub a_stride: usize,
}

const UNTOUCHED: u32 = 0x7fc0_1234;

impl Operands {
    /// Runs `rows` of `self.m` and `blocks` of `self.blocks` at `level`; returns
    /// `[rows, 16 * blocks]`.
    pub fn run(&self, level: Level, rows: std::ops::Range<usize>, blocks: std::ops::Range<usize>) -> Vec<f32> {
        let (m, n) = (rows.len(), blocks.len() * BLOCK);
        // Lines of rows may be cut anywhere, or be an odd number, as in the scratch of generated
        // code.
        let stride = if m.is_multiple_of(2) { (blocks.len() | 1) * BLOCK } else { n + 3 };
        let len = if m == 0 { 0 } else { (m - 1) * stride + n };
        let mut c = Guarded::from_bytes(&UNTOUCHED.to_le_bytes().repeat(len));
        let args = PanelArgs {
            w: self.w.as_ptr().wrapping_add(blocks.start * self.w_stride),
            w_stride: self.w_stride as u64,
            blocks: blocks.len() as u64,
            a: self.a.as_ptr().wrapping_add(rows.start * self.a_stride),
            a_stride: self.a_stride as u64,
            m: m as u64,
            c: c.as_mut_ptr().cast(),
            c_stride: stride as u64,
            k: self.k as u64,
            group: self.group as u64,
        };
        unsafe { panel(&table(level), self.kind.uk)(&args) };
        let bits: Vec<u32> =
            c.as_bytes().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let mut out = vec![];
        for row in bits.chunks(stride.max(1)).take(m) {
            out.extend(row[..n].iter().map(|&b| f32::from_bits(b)));
            assert!(row[n..].iter().all(|&b| b == UNTOUCHED), "wrote between rows");
        }
        out
    }

    pub fn run_all(&self, level: Level) -> Vec<f32> {
        self.run(level, 0..self.m, 0..self.blocks)
    }

    /// bf16 weights × bf16 rows in the order of `TDPBF16PS` (Intel's Software Developer's Manual,
    /// volume 2): of 32 columns the products of even ones, and of odd ones, each in one chain from
    /// zero, whose sum is added to what there was.
    pub fn bf16_in_tiles(&self) -> Vec<f32> {
        let bf16 = |bytes: &[u8], at: usize| flushed(half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32());
        let (a, w) = (self.a.as_bytes(), self.w.as_bytes());
        let output = |m: usize, n: usize| {
            (0..self.k).step_by(32).fold(0.0f32, |acc, start| {
                let chain = |odd: usize| {
                    (start..start + 32).step_by(2).fold(0.0f32, |sum, k| {
                        let w = bf16(w, n / BLOCK * self.w_stride + k / 2 * 64 + n % BLOCK * 4 + odd * 2);
                        flushed(w.mul_add(bf16(a, m * self.a_stride + (k + odd) * 2), sum))
                    })
                };
                flushed(acc + flushed(chain(0) + chain(1)))
            })
        };
        (0..self.m).flat_map(|m| (0..self.blocks * BLOCK).map(move |n| (m, n))).map(|(m, n)| output(m, n)).collect()
    }
}

/// Zero instead of a subnormal number, with its sign.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

pub fn panel(table: &UkTable, uk: Uk) -> PanelFn {
    unsafe { std::mem::transmute::<usize, PanelFn>(table.f[uk as usize]) }
}

pub fn quant_rows(level: Level) -> QuantRowsFn {
    unsafe { std::mem::transmute::<usize, QuantRowsFn>(table(level).f[Uk::QuantRows as usize]) }
}

/// Bit patterns, to compare floats without `-0 == 0` and `NaN != NaN`.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
