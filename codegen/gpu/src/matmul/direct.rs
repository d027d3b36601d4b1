//! Weights from global memory to registers, without a stop in shared memory: a lane loads the 16-byte
//! pieces that it multiplies, a unit (one or several adjacent column tiles of a warp's strips) ahead.
//!
//! Codes pass the first-level cache, which they would only sweep. Factors are loaded as they are
//! stored and become numbers when they are used: a conversion would wait for them.

use super::decode::{self, Scales};
use super::weights::Weights;
use crate::codes;
use crate::mlir::{Builder, I32, Ty, V};
use llmcc_ir::gpu::schedule::{self, FactorRun, lane_words};
use llmcc_ir::quant::Format;

/// Where a lane finds a unit of a warp's strips.
pub struct Sources {
    strips: Vec<StripSource>,
    /// Whether there is such a unit; the addresses belong to some unit in any case.
    exists: V,
}

struct StripSource {
    /// The lane's piece of the first column tile's codes.
    codes: V,
    /// The factor of the lane's first row and of the first column tile, in each run.
    runs: Vec<V>,
}

/// Whether column tile `j` of a unit has factors of a run that the one before has not.
fn is_new(run: &FactorRun, j: usize) -> bool {
    j == 0 || run.line_in(j) != run.line_in(j - 1)
}

impl Weights<'_> {
    fn format_of(&self, i: usize) -> Format {
        self.p.formats[self.strips()[i].0]
    }

    /// Where unit `unit` of output tile `tile` is. If it does not `exist`, nothing but its factors is
    /// loaded.
    pub fn sources(&self, b: &mut Builder, (tile, unit): (V, V), exists: V) -> Sources {
        let tiles = self.p.tiles;
        let (g, t) = (b.shrc(self.lane, 2), b.andc(self.lane, 3));
        let piece = b.shlc(self.lane, 4);
        let mut strips = vec![];
        for (l, j) in self.strips() {
            let from = self.strip(b, tile, l, j);
            let format = self.p.formats[l];
            let layout = format.block(self.plan.k);
            let skip = b.mulc(unit, (tiles * format.tile_bytes()) as i64);
            let skip = b.add(skip, piece);
            let codes = b.at(from, skip);
            let codes = b.atc(codes, layout.codes as i64);
            let factors = schedule::factor_runs(format);
            let runs = factors.iter().map(|run| {
                let mut at = b.atc(from, run.in_block(&layout) as i64);
                if run.lines > 1 || run.units().is_some_and(|units| units <= tiles) {
                    let line = b.mulc(unit, (run.lines_of(tiles) * run.line_bytes()) as i64);
                    at = b.at(at, line);
                } else if let Some(units) = run.units() {
                    let line = b.divc(unit, (units / tiles) as i64);
                    let line = b.mulc(line, run.line_bytes() as i64);
                    at = b.at(at, line);
                }
                let index = decode::factor_of(b, run, g, t);
                let index = b.mulc(index, run.of.kind.bytes() as i64);
                b.at(at, index)
            });
            strips.push(StripSource { codes, runs: runs.collect() });
        }
        Sources { strips, exists }
    }

    /// Loads column tile `j` of strip `i`: its words, and the factors that are new with it.
    pub fn load(&self, b: &mut Builder, from: &Sources, i: usize, j: usize) -> Vec<V> {
        let (format, source) = (self.format_of(i), &from.strips[i]);
        let mut out = vec![];
        for c in 0..lane_words(format) / 4 {
            let p = b.atc(source.codes, (j * format.tile_bytes() + c * 512) as i64);
            out.extend(b.load_once(p, from.exists));
        }
        for (run, at) in schedule::factor_runs(format).iter().zip(&source.runs).filter(|(run, _)| is_new(run, j)) {
            for h in 0..2 {
                let skip = run.line_in(j) * run.line_bytes() + 8 * run.of.kind.bytes() * h;
                let p = b.atc(*at, skip as i64);
                out.push(b.load_const(p, codes::stored(run.of.kind)));
            }
        }
        out
    }

    /// Types of the values of [`Weights::load`].
    fn types(&self, i: usize, j: usize) -> Vec<Ty> {
        let format = self.format_of(i);
        let runs = schedule::factor_runs(format);
        let new = runs.iter().filter(|run| is_new(run, j)).flat_map(|run| [codes::stored(run.of.kind); 2]);
        std::iter::repeat_n(I32, lane_words(format)).chain(new).collect()
    }

    /// Types of the values loaded for a unit: column tile by column tile, strip by strip.
    pub fn unit_types(&self) -> Vec<Ty> {
        let strips = self.strips().len();
        (0..self.p.tiles).flat_map(|j| (0..strips).flat_map(move |i| self.types(i, j))).collect()
    }

    /// Loads a unit: values of [`Weights::unit_types`].
    pub fn load_unit(&self, b: &mut Builder, from: &Sources) -> Vec<V> {
        let strips = self.strips().len();
        let mut out = vec![];
        for (j, i) in (0..self.p.tiles).flat_map(|j| (0..strips).map(move |i| (j, i))) {
            out.extend(self.load(b, from, i, j));
        }
        out
    }

    /// Index of the values loaded for column tile `j` of strip `i` among the values of a unit.
    fn start(&self, i: usize, j: usize) -> usize {
        let strips = self.strips().len();
        let before = (0..self.p.tiles).flat_map(|j| (0..strips).map(move |i| (j, i))).take_while(|at| *at != (j, i));
        before.map(|(j, i)| self.types(i, j).len()).sum()
    }

    /// The words of column tile `j` of strip `i`, and its factors, among the values of a unit.
    pub fn loaded(&self, b: &mut Builder, unit: &[V], i: usize, j: usize) -> (Vec<V>, Option<Scales>) {
        let format = self.format_of(i);
        let first = self.start(i, j);
        let codes = unit[first..first + lane_words(format)].to_vec();
        let runs = schedule::factor_runs(format);
        let mut pairs = vec![];
        for (number, run) in runs.iter().enumerate() {
            // Loaded with the first column tile that has it.
            let from = (0..=j).rev().find(|j| is_new(run, *j)).unwrap_or(0);
            let skip = runs[..number].iter().filter(|run| is_new(run, from)).count();
            let at = self.start(i, from) + lane_words(format) + 2 * skip;
            pairs.push([unit[at], unit[at + 1]]);
        }
        if pairs.is_empty() {
            return (codes, None);
        }
        if !schedule::has_f32_factors(format) {
            return (codes, Some(Scales { scale: pairs[0], min: pairs.get(1).copied() }));
        }
        (codes, decode::factors_of(b, format, &pairs))
    }
}
