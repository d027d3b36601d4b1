//! The use products make of packed weights: operands of tensor cores or numbers, and the places of
//! their factors.

use crate::kernel::RowElem;
use crate::quant::{BLOCK, Code, Encoding, Float, Format, Per, Scale, ScaleKind};
use llmcc_abi::layout::{Block, FRAGMENT_K};

/// Columns of a unit.
pub const TILE_K: usize = FRAGMENT_K;

/// 32-bit words of codes that each lane of a warp has of a tile of 16 rows and 64 columns.
pub fn lane_words(format: Format) -> usize {
    format.tile_bytes() / 128
}

/// Adjacent factors that a unit needs: scales of all its groups, or minima, of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactorRun {
    /// The level.
    pub of: Scale,
    /// Its number: 0 for scales of codes, 1 for scales of those.
    pub level: usize,
    /// Whether they are minima.
    pub minima: bool,
    /// Lines of factors of 16 rows: one per group in a unit, or per unit in a group.
    pub lines: usize,
    /// Where they begin in a unit, behind the codes.
    pub at: usize,
}

impl FactorRun {
    /// Bytes in a unit: whole pieces of 16.
    pub fn bytes(&self) -> usize {
        self.lines * BLOCK * self.of.kind.bytes()
    }

    /// Lines that `tiles` adjacent units need; the number of the first is a multiple of `tiles`.
    pub fn lines_of(&self, tiles: usize) -> usize {
        match self.units() {
            _ if self.lines > 1 => tiles * self.lines,
            Some(units) => (tiles / units).max(1),
            None => 1,
        }
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> usize {
        BLOCK * self.of.kind.bytes()
    }

    /// Which of the lines of adjacent units ([`FactorRun::lines_of`]) is the first of unit `tile`.
    pub fn line_in(&self, tile: usize) -> usize {
        match self.units() {
            _ if self.lines > 1 => tile * self.lines,
            Some(units) => tile / units,
            None => 0,
        }
    }

    /// Where they begin in a block of 16 rows.
    pub fn in_block(&self, block: &Block) -> usize {
        match (self.level, self.minima) {
            (0, false) => 0,
            (0, true) => block.mins,
            (_, false) => block.above,
            (_, true) => block.above + block.above_mins,
        }
    }

    /// Units that share a line; `None`: all of a row.
    pub fn units(&self) -> Option<usize> {
        match self.of.per {
            Per::Group(group) => Some((usize::from(group) / TILE_K).max(1)),
            Per::Row | Per::TokenHead => None,
        }
    }
}

/// The factors in a unit, one run after the other. fp8 has none: the epilogue applies the scales.
pub fn factor_runs(format: Format) -> Vec<FactorRun> {
    let mut out: Vec<FactorRun> = vec![];
    if is_fp8(format) {
        return out;
    }
    for (level, of) in format.encoding().scales.into_iter().enumerate().filter_map(|(i, s)| Some((i, s?))) {
        for minima in [false, true].into_iter().take(of.factors()) {
            let lines = match of.per {
                Per::Group(group) => TILE_K.div_ceil(usize::from(group).max(1)),
                Per::Row | Per::TokenHead => 1,
            };
            let at = out.last().map_or(0, |last| last.at + last.bytes());
            out.push(FactorRun { of, level, minima, lines, at });
        }
    }
    out
}

/// Whether weights suit fp8 products: 8-bit floats with a scale per row, as f16, which the epilogue
/// applies.
pub fn is_fp8(format: Format) -> bool {
    format.encoding() == Encoding::FP8
}

/// Whether tensor cores multiply weights of a format by rows of `elem`.
pub fn on_tensor_cores(format: Format, elem: RowElem) -> bool {
    match (format.encoding().float(), elem) {
        (_, RowElem::F32) | (Some(Float::F32 | Float::E4m3), _) => false,
        (Some(float), elem) => elem.float() == Some(float),
        (None, _) => has_operands(format),
    }
}

/// Whether operands of tensor cores are made of quantized weights: of integers of up to 8 bits, of
/// codes of up to 4 bits that are numbers of a table, and of 8-bit floats, with factors of any kind in
/// whole runs of 16 columns. Others are decoded to f32 one by one.
pub fn has_operands(format: Format) -> bool {
    let e = format.encoding().by_itself();
    let codes = match e.code {
        Code::Int { bits, .. } => bits <= 8,
        Code::Signed { bits } => bits == 8,
        Code::Table { bits, .. } => bits <= 4,
        Code::Float(float) => float == Float::E4m3,
        Code::Trellis(_) | Code::Pairs => false,
    };
    let whole = |scale: &Scale| match scale.per {
        Per::Group(group) => [16, 32, 64, 128, 256].contains(&group),
        Per::Row => true,
        Per::TokenHead => false,
    };
    codes && e.is_quantized() && e.scales.iter().flatten().all(whole)
}

/// Whether weights are quantized with factors that become f32 before they enter. Two kinds enter as
/// they are: factors of one level of f16, for groups of at least 32 columns, and fp8's, which the
/// epilogue applies.
pub fn has_f32_factors(format: Format) -> bool {
    let halves = match format.encoding().scales {
        [Some(Scale { per: Per::Group(group), kind: ScaleKind::F16, .. }), None] => group >= 32,
        _ => is_fp8(format),
    };
    format.is_quantized() && !halves
}
