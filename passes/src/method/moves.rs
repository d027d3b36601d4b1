//! Scales moved between the columns of products and the producers of their inputs.
//!
//! For each group of products ([`crate::module::scales`]) a method offers vectors of scales. The one whose rounded
//! products have the least squared error is taken: `Σ e·H·eᵀ` over rows of the group's matrices, `e` being the
//! rounding error of a row of `W·diag(s)` divided by `s`, `H` the means of products of two columns of the unscaled
//! inputs (their diagonal where only mean squares are known). Rows are coded by least squares. Large matrices are
//! represented by rows at equal distances.

use super::inputs::runs;
use super::job::{Columns, Job, Moves, Prepared};
use super::moments::{Inputs, Run};
use crate::module::migrate;
use crate::module::scales::{self, Group, Operand};
use crate::pack::rows::Rows;
use crate::pack::{PackError, WeightSource, leaf_names};
use llmcc_ir::graph::{Call, Module};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::Format;
use llmcc_ir::quant::fit::Fit;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Elements of a matrix that are coded for each candidate.
const SAMPLE: usize = 1 << 19;
/// The same of formats whose codes take long to find.
const SMALL_SAMPLE: usize = 1 << 15;
/// Rows of a matrix that are coded at least.
const ROWS: usize = 16;

/// The groups of products of a module, in all of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Groups that have scales now.
    pub moved: usize,
    /// Groups for which no scales are better than ones.
    pub kept: usize,
    /// Groups whose inputs nothing can divide, or whose moments are not known.
    pub left: usize,
}

/// Scales by group and by the matrices that a call binds.
type Found = BTreeMap<(usize, Vec<WeightExpr>), Option<Vec<f32>>>;

/// Moves scales as the method of `source` says; weights will be stored in `format`.
///
/// # Errors
/// A missing or misshapen tensor.
pub fn move_scales(module: &mut Module, source: &dyn WeightSource, format: Format) -> Result<Moved, PackError> {
    let Some(moves) = source.method().moves else { return Ok(Moved::default()) };
    crate::threads::prepare();
    let scales::Groups { movable, fixed } = scales::find(module);
    let fit = Fit::of(format);
    let (mut found, mut moved) = (Found::new(), Moved::default());
    for call in module.calls_once() {
        moved.left += fixed.get(call.func).copied().unwrap_or(0);
        for (at, group) in movable.iter().enumerate().filter(|(_, g)| g.func == call.func) {
            let Entry::Vacant(entry) = found.entry((at, matrices(module, group, call))) else { continue };
            let chosen = match &fit {
                Some(fit) => Search { module, source, moves, fit }.scales(group, &entry.key().1)?,
                None => Chosen::Unknown,
            };
            match chosen {
                Chosen::Scales(_) => moved.moved += 1,
                Chosen::Ones => moved.kept += 1,
                Chosen::Unknown => moved.left += 1,
            }
            entry.insert(chosen.scales());
        }
    }
    let wanted = |at: &usize| found.iter().any(|((group, _), s)| group == at && s.is_some());
    let kept: Vec<usize> = (0..movable.len()).filter(wanted).collect();
    let groups: Vec<Group> = kept.iter().map(|at| movable[*at].clone()).collect();
    let before = module.clone();
    let of_call = |at: usize, call: &Call| {
        let key = (kept[at], matrices(&before, &groups[at], call));
        found.get(&key).cloned().flatten()
    };
    migrate::apply(module, &groups, &of_call)
        .map_err(|e| PackError::Expression { tensor: before.name.clone(), what: e.to_string() })?;
    Ok(moved)
}

/// The matrices of a group's products in a call.
fn matrices(module: &Module, group: &Group, call: &Call) -> Vec<WeightExpr> {
    let f = &module.funcs[group.func];
    let of = |o: &Operand| scales::bound(f, call, *f.nodes.get(o.node)?.args.get(o.arg)?);
    group.readers.iter().filter_map(of).collect()
}

/// The scales of a group.
enum Chosen {
    Scales(Vec<f32>),
    /// None are better than ones.
    Ones,
    /// Nothing is known of the inputs.
    Unknown,
}

impl Chosen {
    fn scales(self) -> Option<Vec<f32>> {
        match self {
            Chosen::Scales(s) => Some(s),
            Chosen::Ones | Chosen::Unknown => None,
        }
    }
}

struct Search<'a> {
    module: &'a Module,
    source: &'a dyn WeightSource,
    moves: Moves,
    fit: &'a Fit,
}

/// A matrix of a group.
struct Reader<'a> {
    rows: Rows<'a>,
    runs: Vec<Run<'a>>,
    operand: &'a Operand,
}

impl<'a> Search<'a> {
    fn scales(&self, group: &'a Group, matrices: &[WeightExpr]) -> Result<Chosen, PackError> {
        if matrices.len() != group.readers.len() {
            return Ok(Chosen::Unknown);
        }
        let reader = |(operand, e): (&'a Operand, &WeightExpr)| {
            let name = leaf_names(e, self.module);
            let rows = Rows::new(e, self.module, self.source).map_err(|e| e.into_error(&name))?;
            Ok(Reader { rows, runs: runs(e, self.module, self.source)?, operand })
        };
        let readers: Vec<Reader<'a>> =
            group.readers.iter().zip(matrices).map(reader).collect::<Result<_, PackError>>()?;
        let Some(columns) = self.columns(&readers, group.columns) else { return Ok(Chosen::Unknown) };
        let usable = |s: &Vec<f32>| s.iter().all(|v| v.is_normal() && *v > 0.0 && (1.0 / v).is_normal());
        let narrow = |s: Vec<f64>| s.into_iter().map(|v| v as f32).collect::<Vec<f32>>();
        let candidates: Vec<Vec<f32>> =
            (self.moves.candidates)(&columns).into_iter().map(narrow).filter(usable).collect();
        let errors =
            if candidates.len() > 1 { self.errors(&readers, &candidates) } else { vec![0.0; candidates.len()] };
        // The first of equal ones.
        let best = candidates.into_iter().zip(errors).reduce(|a, b| if b.1 < a.1 { b } else { a });
        Ok(match best {
            Some((s, _)) if s.iter().any(|v| *v != 1.0) => Chosen::Scales(s),
            Some(_) => Chosen::Ones,
            None => Chosen::Unknown,
        })
    }

    /// Statistics by scale: of the inputs of the first matrix whose inputs are known, and of all matrices.
    fn columns(&self, readers: &[Reader<'a>], scales: usize) -> Option<Columns> {
        let known =
            readers.iter().find(|r| r.runs.iter().any(|run| run.inputs.as_ref().is_some_and(|i| i.count > 0)))?;
        let (mut squares, mut counts, mut largest) = (vec![0f64; scales], vec![0f64; scales], vec![0f64; scales]);
        for inputs in known.runs.iter().filter_map(|run| run.inputs.as_ref()) {
            let of_columns = inputs.sums().zip(inputs.largest()).zip(&known.operand.scales);
            for ((sum, most), scale) in of_columns {
                squares[*scale] += sum;
                counts[*scale] += inputs.count as f64;
                largest[*scale] = largest[*scale].max(most);
            }
        }
        let rms: Vec<f64> = squares.iter().zip(&counts).map(|(s, n)| (s / n.max(1.0)).sqrt()).collect();
        if !rms.iter().all(|x| x.is_finite()) || rms.iter().all(|x| *x == 0.0) {
            return None;
        }
        let weights = if self.moves.ranges { ranges(readers, scales) } else { vec![] };
        Some(Columns { rms, largest, weights })
    }

    /// The squared error of the products by each candidate.
    fn errors(&self, readers: &[Reader<'a>], candidates: &[Vec<f32>]) -> Vec<f64> {
        let mut sums = vec![0f64; candidates.len()];
        let mut last: Option<(&Inputs<'a>, Moment)> = None;
        for reader in readers.iter().filter(|r| !r.operand.exact) {
            let (n, k) = reader.rows.shape();
            let sample = self.sample(n, k);
            // All rows of a matrix count, whichever are coded.
            let weight = n as f64 / sample.len().max(1) as f64;
            for (inputs, rows) in by_run(&reader.runs, &sample) {
                if !last.as_ref().is_some_and(|(of, _)| *of == inputs) {
                    last = Some((inputs, Moment::of(inputs)));
                }
                let Some((_, moment)) = &last else { continue };
                let mut x = vec![0f32; rows.len() * k];
                rows.iter().zip(x.chunks_exact_mut(k)).for_each(|(row, out)| reader.rows.fill(*row, out));
                let error = |s: &Vec<f32>| self.error(&x, &spread(&reader.operand.scales, s), inputs, moment);
                let found: Vec<f64> = candidates.par_iter().map(error).collect();
                sums.iter_mut().zip(found).for_each(|(sum, e)| *sum += weight * e);
            }
        }
        sums
    }

    /// Rows of a matrix of `n` at equal distances.
    fn sample(&self, n: usize, k: usize) -> Vec<usize> {
        let most = if self.fit.search().is_some() { SMALL_SAMPLE } else { SAMPLE };
        let count = (most / k.max(1)).max(ROWS).min(n);
        (0..count).map(|i| (2 * i + 1) * n / (2 * count)).collect()
    }

    /// `Σ e·H·eᵀ` of rows `x` whose columns are multiplied by `s`, times the inputs.
    fn error(&self, x: &[f32], s: &[f32], inputs: &Inputs<'a>, moment: &Moment) -> f64 {
        let k = s.len();
        let scaled: Vec<f32> = x.chunks_exact(k).flat_map(|row| row.iter().zip(s).map(|(w, s)| w * s)).collect();
        let by = |columns: &mut [(usize, f64)]| {
            columns.iter().zip(s).map(|((of, g), s)| (*of, g * f64::from(*s))).collect::<Vec<_>>()
        };
        let importance = inputs.with_columns(by).importance().unwrap_or_else(|| vec![1.0; k]);
        let prepared = Prepared::of(importance);
        let coded = (self.moves.then.rows)(&Job::new(self.fit, &scaled, k, &prepared));
        let (mut back, mut errors) = (vec![0f32; k], Vec::with_capacity(scaled.len()));
        for (row, of) in coded.iter().zip(scaled.chunks_exact(k)) {
            row.decode(self.fit.encoding(), &mut back);
            let each = back.iter().zip(of).zip(s);
            errors.extend(each.map(|((q, w), s)| (f64::from(*q) - f64::from(*w)) / f64::from(*s)));
        }
        moment.error(&errors, k)
    }
}

/// The scale of each column.
fn spread(scales: &[usize], s: &[f32]) -> Vec<f32> {
    scales.iter().map(|at| s[*at]).collect()
}

/// The rows of a sample with each of the known inputs.
fn by_run<'r, 'a>(runs: &'r [Run<'a>], sample: &[usize]) -> Vec<(&'r Inputs<'a>, Vec<usize>)> {
    let (mut out, mut first) = (vec![], 0);
    for run in runs {
        let own: Vec<usize> = sample.iter().copied().filter(|row| (first..first + run.rows).contains(row)).collect();
        first += run.rows;
        if let Some(inputs) = run.inputs.as_ref().filter(|i| i.count > 0 && !own.is_empty()) {
            out.push((inputs, own));
        }
    }
    out
}

/// The largest magnitude of the columns with each scale, over all matrices.
fn ranges(readers: &[Reader<'_>], scales: usize) -> Vec<f64> {
    let mut most = vec![0f64; scales];
    for reader in readers {
        let (n, k) = reader.rows.shape();
        let mut row = vec![0f32; k];
        for at in 0..n {
            reader.rows.fill(at, &mut row);
            for (scale, w) in reader.operand.scales.iter().zip(&row) {
                most[*scale] = most[*scale].max(f64::from(w.abs()));
            }
        }
    }
    most
}

/// Sums of products of two columns of inputs.
enum Moment {
    Whole(Vec<f64>),
    Diagonal(Vec<f64>),
}

/// Rows whose errors are multiplied side by side.
const LANES: usize = 8;

impl Moment {
    fn of(inputs: &Inputs<'_>) -> Moment {
        let count = inputs.count as f64;
        match inputs.hessian() {
            Some(mut h) => {
                h.iter_mut().for_each(|v| *v *= count);
                Moment::Whole(h)
            }
            None => Moment::Diagonal(inputs.sums().collect()),
        }
    }

    /// `Σ e·H·eᵀ` over rows of `k` columns.
    fn error(&self, errors: &[f64], k: usize) -> f64 {
        match self {
            Moment::Diagonal(d) => errors.chunks_exact(k).flat_map(|e| e.iter().zip(d)).map(|(e, d)| e * e * d).sum(),
            Moment::Whole(h) => errors.chunks(LANES * k).map(|rows| whole(h, rows, k)).sum(),
        }
    }
}

/// The same of at most [`LANES`] rows.
fn whole(h: &[f64], rows: &[f64], k: usize) -> f64 {
    let mut e = vec![[0f64; LANES]; k];
    for (r, row) in rows.chunks_exact(k).enumerate() {
        row.iter().zip(&mut e).for_each(|(v, lanes)| lanes[r] = *v);
    }
    let mut sum = 0f64;
    for (i, own) in e.iter().enumerate() {
        let mut lanes = [0f64; LANES];
        // Products on both sides of the diagonal are the same.
        for (h, other) in h[i * k..i * k + i].iter().zip(&e) {
            (0..LANES).for_each(|r| lanes[r] += 2.0 * h * other[r]);
        }
        let diagonal = h[i * k + i];
        sum += (0..LANES).map(|r| own[r] * (lanes[r] + diagonal * own[r])).sum::<f64>();
    }
    sum
}
