//! Codes and scales by weighted least squares, for every format of codes with scales.
//!
//! A format's own quantizer ([`FormatDef::quantize`](super::FormatDef)) derives scales from the extremes of a group. A
//! [`Fit`] searches scales that make `Σ hᵢ·(ŵᵢ − wᵢ)²` small, `hᵢ` being the importance of column `i`: with the second
//! moment of a product's input as importance, this is the part of the product's squared error that the diagonal of its
//! Hessian shows. Larger scales round finely, smaller ones clip outliers; for each of some candidates the nearest codes
//! are taken, and the scale (and minimum) that is best for these codes is computed in closed form. The quantizer's own
//! result is the first candidate, so the search never makes a group worse.

use super::pack::{Columns, kinds, quantize};
use super::trellis::Search;
use super::w4::two_of_four;
use super::{Code, CodedRow, E4M3_MAX, Encoding, Float, Format, ScaleKind, e4m3_from_f32, e4m3_to_f32, round_f16};
use half::bf16;

/// Partial sums of a loop: vector code on every target, and the same sums.
const LANES: usize = 8;

/// Rounds of choosing codes by scales and scales by codes, for scales that are codes themselves.
const ROUNDS: usize = 3;

/// Codes of columns that are quantized together, and their scales.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unit {
    /// One per column.
    pub codes: Vec<u8>,
    /// Scale and minimum of each group, as [`CodedRow::factors`] has them.
    pub factors: Vec<(f32, f32)>,
    /// Scale and minimum above these, where there are any.
    pub above: (f32, f32),
}

/// The search for a format.
#[derive(Clone, Debug)]
pub struct Fit {
    format: Format,
    e: Encoding,
    levels: Levels,
    /// Scales that are tried, by the part of the extreme that they reach.
    reaches: Vec<f32>,
}

impl Fit {
    /// The search for a format; `None` where there are no codes with scales, or where codes are floats, whose steps
    /// are finer near zero, so that no scale is better than another.
    pub fn of(format: Format) -> Option<Fit> {
        let e = format.encoding();
        if !e.is_quantized() || matches!(e.code, Code::Float(_)) {
            return None;
        }
        // Few codes pay for clipping, many do not.
        let bits = if matches!(e.code, Code::Pairs) { e.by_itself().bits() } else { e.bits() };
        let (step, count) = match bits {
            0..=2 => (0.06, 12),
            3 => (0.05, 10),
            4 => (0.04, 9),
            5 => (0.03, 6),
            _ => (0.01, 3),
        };
        let reaches = (-1..count).map(|i| 1.0 - step * i as f32).collect();
        Some(Fit { format, e, levels: Levels::of(&e), reaches })
    }

    /// Columns that are quantized together in rows of `k` columns.
    fn unit_columns(&self, k: usize) -> usize {
        Columns::of(&self.e, self.format.padded_k(k)).unit
    }

    /// The encoding.
    pub fn encoding(&self) -> &Encoding {
        &self.e
    }

    /// The search for codes of a trellis, where the format has one.
    pub fn search(&self) -> Option<&'static Search> {
        Search::of(&self.e)
    }

    /// Codes and scales of a row. `importance` has a weight of at least 0 for each column.
    pub fn row(&self, x: &[f32], importance: &[f32]) -> CodedRow {
        self.joined(x.len(), self.units(x, importance))
    }

    /// The parts of a row whose columns are quantized together, in order.
    pub fn units(&self, x: &[f32], importance: &[f32]) -> impl Iterator<Item = Unit> {
        let columns = self.unit_columns(x.len());
        x.chunks(columns).zip(importance.chunks(columns)).map(|(x, h)| self.unit(x, h))
    }

    /// Codes and scales of a row as the format's own quantizer has them.
    pub fn own_row(&self, x: &[f32]) -> CodedRow {
        let group = self.e.group().unwrap_or(x.len()).max(1);
        self.joined(x.len(), x.chunks(self.unit_columns(x.len())).map(|x| self.own(x, group)))
    }

    /// The row of `k` columns with these units.
    pub fn joined(&self, k: usize, units: impl IntoIterator<Item = Unit>) -> CodedRow {
        let mut row = CodedRow::new(&self.e, k);
        units.into_iter().enumerate().for_each(|(at, unit)| self.store(&unit, &mut row, at));
        row
    }

    /// Writes unit `at` of a row to its place.
    fn store(&self, unit: &Unit, row: &mut CodedRow, at: usize) {
        let columns = self.unit_columns(row.codes.len());
        let groups = self.e.group().map_or(1, |group| columns / group.max(1)).max(1);
        let to = row.codes.iter_mut().skip(at * columns);
        to.zip(&unit.codes).for_each(|(to, code)| *to = *code);
        let to = row.factors.iter_mut().skip(at * groups);
        to.zip(&unit.factors).for_each(|(to, factors)| *to = *factors);
        if let Some(above) = row.above.get_mut(at) {
            *above = unit.above;
        }
    }

    /// Codes and scales of columns that are quantized together.
    fn unit(&self, x: &[f32], importance: &[f32]) -> Unit {
        let kept = matches!(self.e.code, Code::Pairs).then(|| two_of_four(x));
        let x = kept.as_deref().unwrap_or(x);
        let group = self.e.group().unwrap_or(x.len()).max(1);
        let own = self.own(x, group);
        let finite = |f: &(f32, f32)| f.0.is_finite() && f.1.is_finite();
        // (Values beyond the format's range: the caller refuses them.)
        if !own.factors.iter().chain([&own.above]).all(finite) || importance.iter().all(|h| *h == 0.0) {
            return own;
        }
        let found = match (self.search(), self.e.scales) {
            // (Long to search, and the same.)
            (Some(_), _) if importance.windows(2).all(|h| h[0] == h[1]) => return own,
            (Some(search), _) => {
                let (codes, scale) = search.group(x, importance);
                Unit { codes, factors: vec![(scale, 0.0)], above: (0.0, 0.0) }
            }
            (None, [Some(_), Some(_)]) => self.two_levels(x, importance, group, &own),
            (None, _) => self.one_level(x, importance),
        };
        let better = self.error(&found, x, importance, group) < self.error(&own, x, importance, group);
        if better { found } else { own }
    }

    /// The code whose value is nearest to `value`, with this scale and minimum.
    pub fn nearest(&self, value: f32, (scale, min): (f32, f32)) -> u8 {
        if scale == 0.0 {
            return self.e.zero_code();
        }
        self.levels.code(self.levels.nearest((value - min) / scale))
    }

    /// The scale and minimum of each group of a unit, as values are computed with them.
    pub fn effective(&self, unit: &Unit) -> Vec<(f32, f32)> {
        let [_, above] = self.e.scales;
        let Some(above) = above else { return unit.factors.clone() };
        let min = |m: f32| if above.minimum { unit.above.1 * m } else { m };
        unit.factors.iter().map(|(s, m)| (unit.above.0 * s, min(*m))).collect()
    }

    /// The result of the format's quantizer.
    fn own(&self, x: &[f32], group: usize) -> Unit {
        let (mut codes, mut factors) = (vec![self.e.zero_code(); x.len()], vec![(0.0, 0.0); x.len().div_ceil(group)]);
        let above = quantize(self.format, x, &mut codes, &mut factors);
        Unit { codes, factors, above }
    }

    /// `Σ h·(ŵ − w)²`.
    fn error(&self, unit: &Unit, x: &[f32], importance: &[f32], group: usize) -> f64 {
        let (mut sum, effective) = (0f64, self.effective(unit));
        for (at, (x, h)) in x.chunks(group).zip(importance.chunks(group)).enumerate() {
            let Some((scale, min)) = effective.get(at).map(|f| (f64::from(f.0), f64::from(f.1))) else { break };
            // (There are none where values are beyond the format's range.)
            let Some(codes) = unit.codes.get(at * group..at * group + x.len()) else { return f64::INFINITY };
            self.e.decode_each(codes, |c, number| {
                let d = scale * f64::from(number) + min - f64::from(x[c]);
                sum += f64::from(h[c]) * d * d;
            });
        }
        sum
    }

    fn one_level(&self, x: &[f32], h: &[f32]) -> Unit {
        let kind = kinds(&self.e).0;
        let ideal = self.ideal(x, h, kind);
        let mut best = Unit { factors: vec![ideal], ..Unit::default() };
        let mut least = f64::INFINITY;
        // (The ideal scale may lie between those that are stored.)
        for scale in stored(kind, ideal.0) {
            let factors = (scale, rounded(kind, ideal.1));
            let unit = Unit { codes: self.codes(x, factors), factors: vec![factors], above: (0.0, 0.0) };
            let error = self.error(&unit, x, h, x.len().max(1));
            if error < least {
                (best, least) = (unit, error);
            }
        }
        best
    }

    /// The scale and the minimum that are best for a group, as far as the candidates show, before they are stored.
    fn ideal(&self, x: &[f32], h: &[f32], kind: ScaleKind) -> (f32, f32) {
        if self.e.has_minimum() { self.ideal_with_minimum(x, h) } else { (self.ideal_scale(x, h, kind), 0.0) }
    }

    fn ideal_scale(&self, x: &[f32], h: &[f32], kind: ScaleKind) -> f32 {
        let (low, high) = x.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
        let (first, last) = self.levels.ends();
        // A scale that brings the extreme to either end; where its sign is free, to the other end, too.
        let mut starts = vec![if first < 0.0 { (low / first).max(high / last) } else { high / last }];
        if signed(kind) {
            starts.push(-(low / last).abs().max(high / first.abs().max(f32::MIN_POSITIVE)));
        }
        let (mut best, mut most) = (0.0, 0.0);
        for scale in starts.iter().flat_map(|s| self.reaches.iter().map(move |r| s * r)) {
            if scale == 0.0 || !scale.is_finite() {
                continue;
            }
            let [xq, qq, ..] = self.sums(x, h, (1.0 / scale, 0.0));
            // By these codes the error is less by (Σ hxq)² / Σ hq² than that of zeros.
            let gain = f64::from(xq) * f64::from(xq) / f64::from(qq);
            if qq > 0.0 && gain > most && (signed(kind) || xq > 0.0) {
                (best, most) = (xq / qq, gain);
            }
        }
        best
    }

    /// Least squares of two unknowns, for the codes of each candidate.
    fn ideal_with_minimum(&self, x: &[f32], h: &[f32]) -> (f32, f32) {
        let (low, high) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        // Minima above zero are not stored everywhere.
        let low = if matches!(kinds(&self.e).0, ScaleKind::Unsigned { .. }) { low.min(0.0) } else { low };
        let (_, last) = self.levels.ends();
        let (mut best, mut most) = ((0.0, low), f64::NEG_INFINITY);
        for reach in &self.reaches {
            // Both ends move by the same part, then one of them alone.
            for (from, to) in [(0.5, 0.5), (0.0, 1.0), (1.0, 0.0)] {
                let width = (high - low) * reach;
                let start = low + (high - low) * (1.0 - reach) * from / (from + to);
                let scale = width / last;
                if scale <= 0.0 || !scale.is_finite() {
                    continue;
                }
                let [xq, qq, q, hx, hh] = self.sums(x, h, (1.0 / scale, start)).map(f64::from);
                let Some(found) = line(xq, qq, q, hx, hh, self.unsigned_minimum()) else { continue };
                let (s, m) = found;
                // Σ h(sq + m − x)² without Σ hx².
                let gain = 2.0 * (s * xq + m * hx) - (s * s * qq + 2.0 * s * m * q + m * m * hh);
                if gain > most && s > 0.0 {
                    (best, most) = ((s as f32, m as f32), gain);
                }
            }
        }
        best
    }

    /// Whether minima are stored as codes, which are below zero or zero.
    fn unsigned_minimum(&self) -> bool {
        matches!(kinds(&self.e).0, ScaleKind::Unsigned { .. })
    }

    /// `Σ hxq, Σ hq², Σ hq, Σ hx, Σ h` of the nearest numbers `q` of `(x − start)·inverse`.
    fn sums(&self, x: &[f32], h: &[f32], by: (f32, f32)) -> [f32; 5] {
        match &self.levels {
            Levels::Steps { low, high, .. } => {
                // As in `encode`: the integer nearest to a small number.
                const ROUND: f32 = 12_582_912.0;
                sums(x, h, by, |t| (t.clamp(*low, *high) + ROUND) - ROUND)
            }
            Levels::Table { values, middles, .. } => sums(x, h, by, |t| {
                let mut q = values[0];
                for (middle, value) in middles.iter().zip(&values[1..]) {
                    q = if t > *middle { *value } else { q };
                }
                q
            }),
        }
    }

    fn codes(&self, x: &[f32], (scale, min): (f32, f32)) -> Vec<u8> {
        if scale == 0.0 {
            return vec![self.e.zero_code(); x.len()];
        }
        let code = |v: &f32| self.levels.code(self.levels.nearest((v - min) / scale));
        x.iter().map(code).collect()
    }

    /// Groups whose scales are codes: first each by itself, then the scale above them by the largest, then in turns the
    /// codes of scales, the codes, and the scale above.
    fn two_levels(&self, x: &[f32], h: &[f32], group: usize, own: &Unit) -> Unit {
        let (kind, Some(above)) = kinds(&self.e) else { return own.clone() };
        let groups = || x.chunks(group).zip(h.chunks(group));
        let ideal: Vec<(f32, f32)> = groups().map(|(x, h)| self.ideal(x, h, kind)).collect();
        let reach = |of: &dyn Fn(&(f32, f32)) -> f32, most: f32| {
            let extreme = ideal.iter().map(of).fold(0f32, |m, v| if v.abs() > m.abs() { v } else { m });
            rounded(above, (extreme / most).abs())
        };
        let most = largest(kind);
        let mut scale = reach(&|f| f.0, most);
        let min = if self.e.has_minimum() { -reach(&|f| f.1, most) } else { 0.0 };
        let (mut best, mut least) = (own.clone(), self.error(own, x, h, group));
        for _ in 0..ROUNDS {
            let unit = self.with_above(x, group, &ideal, (scale, min));
            let error = self.error(&unit, x, h, group);
            let next = rounded(above, self.best_above(&unit, x, h, group));
            if error < least {
                (best, least) = (unit, error);
            }
            if next == scale || next <= 0.0 || !next.is_finite() {
                break;
            }
            scale = next;
        }
        best
    }

    /// Codes of scales nearest to the ideal ones, and the codes that go with them.
    fn with_above(&self, x: &[f32], group: usize, ideal: &[(f32, f32)], above: (f32, f32)) -> Unit {
        let kind = kinds(&self.e).0;
        let coded = |v: f32, unit: f32| if unit == 0.0 { 0.0 } else { rounded(kind, v / unit) };
        let factors: Vec<(f32, f32)> = ideal.iter().map(|(s, m)| (coded(*s, above.0), coded(*m, above.1))).collect();
        let mut unit = Unit { codes: vec![], factors, above };
        let effective = self.effective(&unit);
        unit.codes = x.chunks(group).zip(effective).flat_map(|(x, f)| self.codes(x, f)).collect();
        unit
    }

    /// The scale above, by least squares for the codes of a unit.
    fn best_above(&self, unit: &Unit, x: &[f32], h: &[f32], group: usize) -> f32 {
        let (mut xq, mut qq) = (0f64, 0f64);
        let effective = self.effective(unit);
        let groups = x.chunks(group).zip(h.chunks(group)).zip(unit.codes.chunks(group));
        for (((x, h), codes), ((_, min), (step, _))) in groups.zip(effective.iter().zip(&unit.factors)) {
            for ((x, h), u) in x.iter().zip(h).zip(codes) {
                let q = f64::from(*step) * f64::from(self.e.number(*u));
                xq += f64::from(*h) * q * f64::from(x - min);
                qq += f64::from(*h) * q * q;
            }
        }
        if qq > 0.0 { (xq / qq) as f32 } else { 0.0 }
    }
}

/// The numbers of codes, without scales.
#[derive(Clone, Debug)]
enum Levels {
    /// Integers; the code is the integer plus `bias`.
    Steps { low: f32, high: f32, bias: f32, mask: u8 },
    /// Ascending, with their codes, and what lies between two neighbours.
    Table { values: Vec<f32>, codes: Vec<u8>, middles: Vec<f32> },
}

impl Levels {
    fn of(e: &Encoding) -> Levels {
        match e.code {
            // Symmetric where quantizers are: of 8 bits and of three codes.
            Code::Int { bits: 8, zero: 128 } => Levels::Steps { low: -127.0, high: 127.0, bias: 128.0, mask: 255 },
            Code::Int { bits: 2, zero: 1 } => Levels::Steps { low: -1.0, high: 1.0, bias: 1.0, mask: 3 },
            Code::Int { bits, zero } => {
                let high = ((1 << bits) - 1 - zero) as f32;
                Levels::Steps { low: -zero as f32, high, bias: zero as f32, mask: 255 >> (8 - bits) }
            }
            Code::Pairs => Levels::Steps { low: -8.0, high: 7.0, bias: 8.0, mask: 15 },
            Code::Signed { bits } => {
                let most = ((1u32 << (bits - 1)) - 1) as f32;
                Levels::Steps { low: -most, high: most, bias: 0.0, mask: 255 >> (8 - bits) }
            }
            Code::Table { values, .. } => {
                let mut all: Vec<(f32, u8)> = values.iter().zip(0u8..).map(|(v, u)| (f32::from_bits(*v), u)).collect();
                all.sort_by(|a, b| a.0.total_cmp(&b.0));
                all.dedup_by(|b, a| a.0 == b.0);
                let middles = all.windows(2).map(|w| (w[0].0 + w[1].0) / 2.0).collect();
                let (values, codes) = all.into_iter().unzip();
                Levels::Table { values, codes, middles }
            }
            // Not by levels alone.
            Code::Trellis(_) | Code::Float(Float::F32 | Float::F16 | Float::Bf16 | Float::E4m3) => {
                Levels::Steps { low: 0.0, high: 0.0, bias: 0.0, mask: 0 }
            }
        }
    }

    /// The least and the largest.
    fn ends(&self) -> (f32, f32) {
        match self {
            Levels::Steps { low, high, .. } => (*low, *high),
            Levels::Table { values, .. } => {
                (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0))
            }
        }
    }

    /// The place of the nearest: the integer, or the place in the table.
    fn nearest(&self, t: f32) -> i32 {
        match self {
            Levels::Steps { low, high, .. } => t.clamp(*low, *high).round_ties_even() as i32,
            Levels::Table { middles, .. } => middles.iter().filter(|m| t > **m).count() as i32,
        }
    }

    fn code(&self, place: i32) -> u8 {
        match self {
            Levels::Steps { bias, mask, .. } => (place + *bias as i32) as u8 & mask,
            Levels::Table { codes, .. } => codes.get(place as usize).copied().unwrap_or(0),
        }
    }
}

/// See [`Fit::sums`].
#[inline(always)]
fn sums(x: &[f32], h: &[f32], (inverse, start): (f32, f32), nearest: impl Fn(f32) -> f32) -> [f32; 5] {
    let mut sums = [[0f32; LANES]; 5];
    let mut add = |x: &[f32; LANES], h: &[f32; LANES]| {
        for i in 0..LANES {
            let q = nearest((x[i] - start) * inverse);
            let (hq, hx) = (h[i] * q, h[i] * x[i]);
            sums[0][i] += hq * x[i];
            sums[1][i] += hq * q;
            sums[2][i] += hq;
            sums[3][i] += hx;
            sums[4][i] += h[i];
        }
    };
    let (whole, rest) = x.as_chunks::<LANES>();
    let (weights, left) = h.as_chunks::<LANES>();
    whole.iter().zip(weights).for_each(|(x, h)| add(x, h));
    if !rest.is_empty() {
        // (Columns without importance add nothing.)
        let (mut x, mut h) = ([0f32; LANES], [0f32; LANES]);
        x[..rest.len()].copy_from_slice(rest);
        h[..left.len()].copy_from_slice(left);
        add(&x, &h);
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// The scale and the minimum of least squares, by the sums of [`Fit::sums`]. Where minima are below zero only and the
/// best is not, that of 0.
fn line(xq: f64, qq: f64, q: f64, hx: f64, hh: f64, below: bool) -> Option<(f64, f64)> {
    let det = qq * hh - q * q;
    let free = (det > 1e-9 * qq * hh).then(|| ((xq * hh - hx * q) / det, (qq * hx - q * xq) / det));
    match free {
        Some((s, m)) if !below || m <= 0.0 => Some((s, m)),
        _ if below && qq > 0.0 => Some((xq / qq, 0.0)),
        _ => None,
    }
}

/// Whether scales of a kind may be below zero.
fn signed(kind: ScaleKind) -> bool {
    match kind {
        ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 | ScaleKind::Signed { .. } | ScaleKind::Six => true,
        ScaleKind::E8m0 | ScaleKind::E4m3 | ScaleKind::Unsigned { .. } => false,
    }
}

/// The largest scale that is a code.
fn largest(kind: ScaleKind) -> f32 {
    match kind {
        ScaleKind::Unsigned { bits } => ((1u32 << bits) - 1) as f32,
        ScaleKind::Signed { bits } => ((1u32 << (bits - 1)) - 1) as f32,
        ScaleKind::Six => 31.0,
        ScaleKind::E4m3 => E4M3_MAX,
        ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 | ScaleKind::E8m0 => 1.0,
    }
}

/// A scale as it is stored.
fn rounded(kind: ScaleKind, x: f32) -> f32 {
    match kind {
        ScaleKind::F32 => x,
        ScaleKind::F16 => round_f16(x),
        ScaleKind::Bf16 => bf16::from_f32(x).to_f32(),
        ScaleKind::E8m0 => power_below(x),
        ScaleKind::E4m3 => e4m3_to_f32(e4m3_from_f32(x.clamp(0.0, E4M3_MAX))),
        ScaleKind::Unsigned { .. } => x.round_ties_even().clamp(0.0, largest(kind)),
        ScaleKind::Signed { .. } | ScaleKind::Six => x.round_ties_even().clamp(-largest(kind), largest(kind)),
    }
}

/// The stored scales near an ideal one: where they are far apart, those on both sides.
fn stored(kind: ScaleKind, x: f32) -> Vec<f32> {
    match kind {
        ScaleKind::E8m0 => vec![power_below(x), (power_below(x) * 2.0).min(f32::from_bits(254 << 23))],
        _ => vec![rounded(kind, x)],
    }
}

/// The largest power of two that is not above `x`; the least there is for smaller numbers.
fn power_below(x: f32) -> f32 {
    f32::from_bits((x.max(f32::MIN_POSITIVE)).to_bits() & 0x7f80_0000)
}

#[cfg(test)]
mod tests;
