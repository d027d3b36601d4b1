//! Buffers against inaccessible memory, random operands, and a packer written from the layout's
//! description, not from the kernels.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

mod guarded;
pub mod matrix;

pub use guarded::Guarded;
use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{self, BLOCK};
use llmcc_abi::{FLOAT_PANELS, FloatRows, INT8_PANELS, PanelArgs, PanelFn, QuantRowsFn, Uk, UkTable};
pub use llmcc_ukernels::levels;
use llmcc_ukernels::{Level, table};

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

/// All panels.
pub fn kinds() -> Vec<Kind> {
    let floats = FLOAT_PANELS.map(|(uk, weights, rows)| match rows {
        FloatRows::F32 => (uk, weights, Rows::F32),
        FloatRows::Bf16 => (uk, weights, Rows::Bf16),
    });
    let int8 = INT8_PANELS.map(|(uk, weights)| (uk, weights, Rows::Int8));
    floats.into_iter().chain(int8).map(|(uk, weights, rows)| Kind { uk, weights, rows }).collect()
}

impl Kind {
    /// Quantization groups to test: all, where the description leaves them open.
    pub fn groups(self) -> Vec<usize> {
        match self.weights.group() {
            Some(_) if self.weights.has_integer_scales() => self.weights.integer_group().into_iter().collect(),
            Some(0) => vec![32, 64, 128],
            Some(group) => vec![group],
            None => vec![self.weights.integer_group().unwrap_or(0)],
        }
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
    /// `least`: rows as with fixed scales, which have −128 too; some rows, and some columns.
    pub fn random(m: usize, k: usize, group: usize, (extreme, least): (bool, bool), rng: &mut Rng) -> Int8Rows {
        let mut code = || if extreme { 127 - 254 * (rng.below(2) as i32) } else { rng.below(255) as i32 - 127 };
        let mut codes: Vec<i8> = (0..m * k).map(|_| code() as i8).collect();
        for row in codes.chunks_mut(k.max(1)) {
            let each = if least { [0, 0, 1, 40][rng.below(4)] } else { 0 };
            row.iter_mut().filter(|_| each > 0 && rng.below(each) == 0).for_each(|c| *c = -128);
        }
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
            for part in (0..8).filter(|_| self.group == 256) {
                let first = g * 256 + part * 32;
                let codes = self.codes[m * self.k..][..self.k].iter().skip(first).take(32);
                out.extend((codes.map(|c| i32::from(*c)).sum::<i32>() * -128).to_le_bytes());
            }
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
    /// volume 2): for each 32 columns the products of even ones, and of odd ones, each in one chain
    /// from zero, whose sum is added to the total so far.
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
