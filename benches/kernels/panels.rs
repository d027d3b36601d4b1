//! Products of activation rows with packed matrices, as the compiler lays them out and calls them.

use llmcc_abi::encoding::{Code, Encoding, Float, ScaleKind};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_abi::{PanelArgs, PanelFn, Uk};
use llmcc_ukernels::{Level, table};
use std::mem::transmute;

use llmcc_benches::peaks::{Peaks, Rows};
use llmcc_benches::stream::Memory;
use llmcc_benches::team::Team;

/// A kernel: weights × rows.
pub struct Format {
    /// As on the command line.
    pub name: &'static str,
    uk: Uk,
    weights: Encoding,
    group: usize,
    /// Kind of the rows.
    pub rows: Rows,
}

/// All kernels.
pub const FORMATS: &[Format] = &[
    Format { name: "w4-int8", uk: Uk::PanelW4A8, weights: Encoding::W4, group: 128, rows: Rows::Int8 },
    Format { name: "w4s-int8", uk: Uk::PanelW4sA8, weights: Encoding::W4S, group: 128, rows: Rows::Int8 },
    Format { name: "w4a-int8", uk: Uk::PanelW4aA8, weights: Encoding::W4A, group: 128, rows: Rows::Int8 },
    Format { name: "w8-int8", uk: Uk::PanelW8A8, weights: Encoding::W8, group: 128, rows: Rows::Int8 },
    Format { name: "w4zg128-int8", uk: Uk::PanelW4zA8, weights: Encoding::from_zero(4), group: 128, rows: Rows::Int8 },
    Format { name: "w5-int8", uk: Uk::PanelW5A8, weights: Encoding::W5, group: 32, rows: Rows::Int8 },
    Format { name: "q2k-int8", uk: Uk::PanelQ2kA8, weights: Encoding::Q2K, group: 16, rows: Rows::Int8 },
    Format { name: "q3k-int8", uk: Uk::PanelQ3kA8, weights: Encoding::Q3K, group: 16, rows: Rows::Int8 },
    Format { name: "q4k-int8", uk: Uk::PanelQ4kA8, weights: Encoding::Q4K, group: 32, rows: Rows::Int8 },
    Format { name: "q5k-int8", uk: Uk::PanelQ5kA8, weights: Encoding::Q5K, group: 32, rows: Rows::Int8 },
    Format { name: "q6k-int8", uk: Uk::PanelQ6kA8, weights: Encoding::Q6K, group: 16, rows: Rows::Int8 },
    Format { name: "iq4nl-int8", uk: Uk::PanelIq4nlA8, weights: Encoding::IQ4NL, group: 32, rows: Rows::Int8 },
    Format { name: "iq4xs-int8", uk: Uk::PanelIq4xsA8, weights: Encoding::IQ4XS, group: 32, rows: Rows::Int8 },
    Format { name: "c4-int8", uk: Uk::PanelC4A8, weights: Encoding::C4, group: 256, rows: Rows::Int8 },
    Format { name: "c3-int8", uk: Uk::PanelC3A8, weights: Encoding::C3, group: 256, rows: Rows::Int8 },
    Format { name: "t3-int8", uk: Uk::PanelT3A8, weights: Encoding::T3, group: 256, rows: Rows::Int8 },
    Format { name: "t2-int8", uk: Uk::PanelT2A8, weights: Encoding::T2, group: 256, rows: Rows::Int8 },
    Format { name: "mxfp4-int8", uk: Uk::PanelMxfp4A8, weights: Encoding::MXFP4, group: 32, rows: Rows::Int8 },
    Format { name: "nvfp4-int8", uk: Uk::PanelNvfp4A8, weights: Encoding::NVFP4, group: 16, rows: Rows::Int8 },
    Format { name: "ternary-int8", uk: Uk::PanelTernaryA8, weights: Encoding::TERNARY, group: 256, rows: Rows::Int8 },
    Format {
        name: "ternaryr-int8",
        uk: Uk::PanelTernaryRowA8,
        weights: Encoding::TERNARY_ROW,
        group: 128,
        rows: Rows::Int8,
    },
    Format { name: "fp8-f32", uk: Uk::PanelFp8, weights: Encoding::FP8, group: 0, rows: Rows::F32 },
    Format { name: "fp8b-f32", uk: Uk::PanelFp8b, weights: Encoding::FP8B, group: 128, rows: Rows::F32 },
    Format { name: "nvfp4-f32", uk: Uk::PanelNvfp4, weights: Encoding::NVFP4, group: 16, rows: Rows::F32 },
    Format { name: "nf4-f32", uk: Uk::PanelNf4, weights: Encoding::NF4, group: 64, rows: Rows::F32 },
    Format { name: "bf16-bf16", uk: Uk::PanelBf16Rows, weights: Encoding::BF16, group: 0, rows: Rows::Bf16 },
    Format { name: "w4-f32", uk: Uk::PanelW4, weights: Encoding::W4, group: 128, rows: Rows::F32 },
    Format { name: "w8-f32", uk: Uk::PanelW8, weights: Encoding::W8, group: 128, rows: Rows::F32 },
    Format { name: "bf16-f32", uk: Uk::PanelBf16, weights: Encoding::BF16, group: 0, rows: Rows::F32 },
    Format { name: "f16-f32", uk: Uk::PanelF16, weights: Encoding::F16, group: 0, rows: Rows::F32 },
    Format { name: "f32-f32", uk: Uk::PanelF32, weights: Encoding::F32, group: 0, rows: Rows::F32 },
];

/// A matrix of a model.
pub struct Shape {
    /// As on the command line.
    pub name: &'static str,
    n: usize,
    k: usize,
}

/// The matrices of Llama-3.2-1B, and one of a model of 135 M parameters.
pub const SHAPES: &[Shape] = &[
    Shape { name: "qkv", n: 3072, k: 2048 },
    Shape { name: "o", n: 2048, k: 2048 },
    Shape { name: "gate_up", n: 16384, k: 2048 },
    Shape { name: "down", n: 2048, k: 8192 },
    Shape { name: "head", n: 128_256, k: 2048 },
    Shape { name: "small", n: 3072, k: 576 },
];

/// Rows per call: as many as the compiler takes at once where codes are decoded for many.
const STRIP: usize = 128;

/// One product, ready to run.
pub struct Case<'a> {
    /// Kernel.
    pub format: &'a Format,
    /// Matrix.
    pub shape: &'a Shape,
    /// Activation rows.
    pub rows: usize,
    tile: usize,
    f: PanelFn,
    weights: Memory,
    matrix: usize,
    matrices: usize,
    input: Memory,
    input_stride: usize,
    output: Memory,
}

impl<'a> Case<'a> {
    /// Random operands for `rows` rows, and `pool` bytes of matrices to multiply them with in turn.
    pub fn new(
        format: &'a Format,
        shape: &'a Shape,
        rows: usize,
        tile: usize,
        level: Level,
        pool: usize,
        huge: bool,
        threads: usize,
    ) -> Case<'a> {
        let matrix = layout::packed_bytes(&format.weights.in_groups(format.group), shape.n, shape.k);
        let matrices = if rows < 64 { pool.div_ceil(matrix).max(1) } else { 1 };
        let input_stride = match format.rows {
            Rows::F32 => shape.k * 4,
            Rows::Bf16 => layout::half_row(shape.k),
            Rows::Int8 => layout::q8_row(shape.k, format.group).bytes,
        };
        let address = table(level).f[format.uk as usize];
        Case {
            format,
            shape,
            rows,
            tile: tile.next_multiple_of(BLOCK),
            // SAFETY: the entry of a panel has this type.
            f: unsafe { transmute::<usize, PanelFn>(address) },
            weights: noise(matrix * matrices, huge, always(&format.weights)),
            matrix,
            matrices,
            input: noise(input_stride * rows, true, 0),
            input_stride,
            output: noise(threads * STRIP * layout::tile_row(tile) * 4, true, 0),
        }
    }

    /// Makes the first code of each int8 row −128.
    pub fn put_least(&mut self) {
        for row in (0..self.rows).filter(|_| self.format.rows == Rows::Int8) {
            // SAFETY: the rows lie in the mapping, by its size in `new`.
            unsafe { self.input.ptr().add(row * self.input_stride).write(0x80) };
        }
    }

    /// Bytes of weights that one product reads.
    pub fn bytes(&self) -> f64 {
        self.matrix as f64
    }

    /// Multiply-adds of one product.
    pub fn macs(&self) -> f64 {
        (self.rows * self.shape.n * self.shape.k) as f64
    }

    /// Seconds that a product takes at least.
    pub fn bound(&self, peaks: &Peaks) -> f64 {
        (self.bytes() / peaks.bytes).max(self.macs() / peaks.macs)
    }

    /// Seconds of one product, on average over all matrices.
    pub fn run(&self, team: Team) -> f64 {
        // With a small pool, often enough that lines evicted meanwhile do not count.
        let passes = if self.rows < 64 { (64 << 20) / (self.matrix * self.matrices) + 1 } else { 1 };
        let seconds = team.time(&|thread| {
            for matrix in (0..passes).flat_map(|_| 0..self.matrices) {
                self.product(matrix, thread, team.part(self.shape.n.div_ceil(self.tile), thread));
            }
        });
        seconds / (passes * self.matrices) as f64
    }

    /// Computes some column tiles of a product in a thread's scratch, [`STRIP`] rows at a time, as
    /// generated code does.
    fn product(&self, matrix: usize, thread: usize, tiles: std::ops::Range<usize>) {
        let stride = layout::block(&self.format.weights.in_groups(self.format.group), self.shape.k).bytes;
        let columns = self.shape.n.next_multiple_of(BLOCK);
        for tile in tiles {
            let first = tile * self.tile;
            let blocks = self.tile.min(columns - first) / BLOCK;
            for row in (0..self.rows).step_by(STRIP) {
                // SAFETY: blocks, rows and results lie in their mappings, by the sizes in `new`;
                // the scratch of different threads is disjoint.
                unsafe {
                    let args = PanelArgs {
                        w: self.weights.ptr().add(matrix * self.matrix + first / BLOCK * stride),
                        w_stride: stride as u64,
                        blocks: blocks as u64,
                        a: self.input.ptr().add(row * self.input_stride),
                        a_stride: self.input_stride as u64,
                        m: STRIP.min(self.rows - row) as u64,
                        c: self.output.ptr().cast::<f32>().add(thread * STRIP * layout::tile_row(self.tile)),
                        c_stride: layout::tile_row(self.tile) as u64,
                        k: self.shape.k as u64,
                        group: self.format.group as u64,
                    };
                    (self.f)(&args);
                }
            }
        }
    }
}

/// Bits of all bytes of weights: of powers of two that are scales so many that their products with the
/// scales of rows are no subnormal numbers, which some processors are slow with; of e4m3 so many that
/// none is subnormal, as almost none is where the largest weight is the largest number.
fn always(weights: &Encoding) -> u64 {
    match (weights.code, weights.scales[0]) {
        (Code::Float(Float::E4m3), _) => 0x2020_2020_2020_2020,
        (_, Some(scale)) if scale.kind == ScaleKind::E8m0 => 0x7070_7070_7070_7070,
        _ => 0,
    }
}

/// Memory full of halves and floats of moderate size: no bit of an exponent's top is set, so that
/// nothing becomes infinite or subnormal for long. `always`: bits that are set.
fn noise(len: usize, huge: bool, always: u64) -> Memory {
    let memory = Memory::new(len, huge).unwrap_or_else(|| panic!("no memory for {len} bytes"));
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for word in 0..len / 8 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // SAFETY: within the mapping.
        unsafe {
            memory.ptr().cast::<u64>().add(word).write(x & 0x3f7f_3f7f_3f7f_3f7f | 0x3000_3000_3000_3000 | always)
        };
    }
    memory
}
