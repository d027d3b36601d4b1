//! Weights that are too small for the scales of a format: f16 has no number below 2⁻²⁴, and ever fewer bits below
//! 2⁻¹⁴, so that groups of small weights lose bits that they would have as multiples of themselves.

use llmcc_ir::quant::trellis::LEVEL_ZERO;
use llmcc_ir::quant::{self, Code, Encoding, Float, Format, PAIRS_ZERO, ScaleKind};

/// Scales of f16 from here on have all of their bits.
const SMALLEST: f32 = 1.0 / 16_384.0;
/// By so much the square of a matrix's error may exceed that of the same matrix times a power of two.
const MOST: f64 = 1.5625;

/// The largest magnitude for which a format's f16 scales have too few bits; `None` where scales are
/// of other kinds.
fn limit(e: &Encoding) -> Option<f32> {
    let number = match e.code {
        Code::Float(Float::E4m3) => quant::E4M3_MAX,
        Code::Float(Float::F32 | Float::F16 | Float::Bf16) => return None,
        Code::Int { bits, zero } => zero.max((1 << bits) - 1 - zero) as f32,
        Code::Signed { bits } => (1u32 << (bits - 1)) as f32,
        Code::Trellis(_) => LEVEL_ZERO as f32,
        Code::Pairs => PAIRS_ZERO as f32,
        Code::Table { values, .. } => values.iter().fold(0f32, |m, v| m.max(f32::from_bits(*v).abs())),
    };
    let code = match e.scales {
        [Some(scale), Some(above)] if above.kind == ScaleKind::F16 => match scale.kind {
            ScaleKind::Unsigned { bits } => ((1u32 << bits) - 1) as f32,
            ScaleKind::Signed { bits } => ((1u32 << (bits - 1)) - 1) as f32,
            ScaleKind::Six => 31.0,
            ScaleKind::E4m3 => quant::E4M3_MAX,
            ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 | ScaleKind::E8m0 => 1.0,
        },
        [Some(scale), None] if scale.kind == ScaleKind::F16 => 1.0,
        _ => return None,
    };
    Some(SMALLEST * number * code)
}

/// Loss by the scales of a matrix.
pub(super) struct Small {
    limit: Option<f32>,
    format: Format,
}

/// For a matrix: the error that it would have with scales of any size, where its error is larger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Squares of errors, as they would be.
    error: f64,
    /// The first row of the block that loses most, its largest magnitude, and its loss.
    worst: Option<(usize, f32, f64)>,
}

impl Losses {
    pub(super) fn add(&mut self, other: &Losses) {
        self.error += other.error;
        let more = |(_, _, lost): &(usize, f32, f64)| self.worst.is_none_or(|(_, _, most)| *lost > most);
        self.worst = other.worst.filter(more).or(self.worst);
    }

    /// The row and the magnitude of values that are too small, in a matrix of this squared error.
    pub(super) fn too_small(&self, error: f64) -> Option<(usize, f32)> {
        self.worst.filter(|_| error > self.error * MOST).map(|(row, value, _)| (row, value))
    }
}

impl Small {
    pub(super) fn of(format: Format) -> Small {
        Small { limit: limit(&format.encoding()), format }
    }

    /// Adds a block of rows whose squared error is known.
    pub(super) fn block(&self, first: usize, values: &[f32], k: usize, error: f64, losses: &mut Losses) {
        let own = self.limit.and_then(|limit| self.ideal(values, k, limit)).filter(|(_, ideal)| *ideal < error);
        // A method that weighs errors leaves larger ones, whatever the scales: nearest codes are compared with such.
        let lost = own.and_then(|(largest, ideal)| {
            let nearest = self.error(values, k)?.min(error);
            (ideal < nearest).then(|| (largest, error * (1.0 - ideal / nearest)))
        });
        let Some((largest, lost)) = lost else {
            losses.error += error;
            return;
        };
        losses.add(&Losses { error: error - lost, worst: Some((first, largest, lost)) });
    }

    /// The squared error of rows of nearest codes.
    fn error(&self, values: &[f32], k: usize) -> Option<f64> {
        let mut packed = vec![0u8; self.format.block_bytes(k)];
        quant::pack_block(self.format, values, k, &mut packed).ok()?;
        let (mut back, mut error) = (vec![0f32; k], 0f64);
        for (r, row) in values.chunks_exact(k).enumerate() {
            quant::unpack_row(self.format, &packed, k, r, &mut back);
            error += row.iter().zip(&back).map(|(w, q)| f64::from(q - w).powi(2)).sum::<f64>();
        }
        Some(error)
    }

    /// The largest magnitude, and the squared error of the rows as multiples of themselves.
    fn ideal(&self, values: &[f32], k: usize, limit: f32) -> Option<(f32, f64)> {
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        if largest == 0.0 || largest >= limit {
            return None;
        }
        // Exact: a power of two.
        let times = (-f64::from(largest).log2().floor()).exp2();
        let many: Vec<f32> = values.iter().map(|v| (f64::from(*v) * times) as f32).collect();
        Some((largest, self.error(&many, k)? / (times * times)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::quant::BLOCK;

    /// Errors of a method that weighs them are no loss by scales; a loss is found beside them, too.
    #[test]
    fn larger_errors_of_a_method_are_no_loss() {
        let values = |size: f32| -> Vec<f32> {
            (0..BLOCK * 256).map(|i| size * ((i * 7919 % 2003) as f32 / 1001.0 - 1.0)).collect()
        };
        for name in ["c4", "c3", "q3k", "w4g32", "t3"] {
            let small = Small::of(Format::parse(name).expect("a format"));
            for (size, by_scales) in [(1e-2, false), (1e-7, true)] {
                let values = values(size);
                let nearest = small.error(&values, 256).expect("codes");
                for times in [1.0, 3.0] {
                    let (error, mut losses) = (nearest * times, Losses::default());
                    small.block(16, &values, 256, error, &mut losses);
                    let found = losses.too_small(error).map(|(row, _)| row);
                    assert_eq!(found, by_scales.then_some(16), "{name} {size} {times}");
                }
            }
        }
    }
}
