//! Factors of the matrices of all experts (`target_parameters` of PEFT, and its form of experts'
//! modules): `lora_A` `[experts·rank, in]`, a run of rows for each expert, and `lora_B` `[out,
//! experts·rank]`, a run of columns for each rank. A module's two parameters have wrappers one in
//! the other, so that a name does not say which of them it is of: their sizes do.

use super::merged::{add_product, round};
use super::merging::{LowRank, Merging};
use super::{AGAIN, BASE, is_float};
use crate::checkpoint::quantized::Wrong;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use crate::checkpoint::views::{View, row_of};
use llmcc_ir::quant::CodedRow;
use llmcc_ir::ty::DType;
use std::ops::Range;
use std::sync::Arc;

/// The two parameters of a module of experts.
const NAMES: [&str; 2] = ["gate_up_proj", "down_proj"];

/// Configurations' names of the number of experts.
const COUNTS: [&str; 3] = ["num_local_experts", "num_experts", "n_routed_experts"];

/// One of a base's tensors that an expert's part of a parameter is.
struct PartOfParameter {
    name: String,
    /// `None`: of all experts, one below the other.
    expert: Option<usize>,
    /// Its first row in the parameter.
    first: usize,
}

/// A parameter of all experts, each `[rows, columns]`.
struct Parameter {
    name: &'static str,
    experts: usize,
    rows: usize,
    columns: usize,
    /// Each is `[in, out]`.
    turned: bool,
    parts: Vec<PartOfParameter>,
}

impl Parameter {
    /// Whether factors of so many inputs and outputs make it, and if so, whether their product has
    /// to be turned. Older versions of PEFT take the rows of an `[out, in]` matrix for inputs.
    fn fits(&self, inputs: usize, outputs: usize) -> Option<bool> {
        let [plain, across] = [[self.rows, self.columns], [self.columns, self.rows]].map(|s| s == [outputs, inputs]);
        if plain && across { Some(self.turned) } else { (plain || across).then_some(across) }
    }
}

impl Merging<'_> {
    /// Adds the products of each expert's factors to its matrix.
    pub(super) fn add_parameter(&mut self, module: &str, factors: LowRank) -> Result<(), Wrong> {
        let LowRank { a: Some(a), b: Some(b), magnitudes: None, looked_up: false } = factors else {
            return Err((format!("module `{module}` does not have exactly two factors"), AGAIN));
        };
        if let Some(v) = [&a, &b].into_iter().find(|v| !v.info.dtype.dtype.is_some_and(is_float)) {
            return Err((format!("a factor of module `{module}` is stored as {}", v.info.dtype.name), AGAIN));
        }
        let parameters = self.parameters(module);
        if parameters.is_empty() {
            let what = format!("the adapter changes `{module}`, but the base has no matrices of all experts there");
            return Err((what, "merge it in Python (`merge_and_unload` of PEFT) and compile the result"));
        }
        let matrices = a.info.shape.len() == 2 && b.info.shape.len() == 2 && a.rows() == b.columns();
        let found = parameters.into_iter().filter(|p| matrices && p.experts > 0 && a.rows().is_multiple_of(p.experts));
        let mut found = found.filter_map(|p| Some((p.fits(a.columns(), b.rows())?, p)));
        let (Some((across, parameter)), None) = (found.next(), found.next()) else {
            let (a, b) = (&a.info.shape, &b.info.shape);
            return Err((format!("module `{module}`: factors {b:?} and {a:?} fit no matrix of experts"), BASE));
        };
        let rank = a.rows() / parameter.experts;
        let scale = self.settings.scale(&format!("{module}.{}", parameter.name), rank)? * self.scale;
        for PartOfParameter { name, expert, first } in parameter.parts {
            let Some(base) = self.ckpt.index.get(&name).cloned() else { continue };
            let (dtype, info) = self.float(&name, &base)?;
            let shard = base.shard;
            // A tensor has the matrices of all experts one below the other, or a part of one.
            let (of, span) = match expert {
                None => (0..parameter.experts, parameter.rows),
                Some(e) => (e..e + 1, base.info.shape.first().copied().unwrap_or(0)),
            };
            let factors = of.map(|e| {
                let of_a = a.part([e.saturating_mul(rank), 0], [rank, a.columns()], 1);
                [of_a, b.part([0, e], [b.rows(), rank], parameter.experts)]
            });
            let factors = factors.collect();
            let reads = [&a, &b].map(|v| (v.shard, v.info.bytes.clone()));
            let layout = ExpertSum { base, factors, reads, span, first, across, scale, dtype };
            self.ckpt.index.insert(name, Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info) });
            self.merged += 1;
        }
        Ok(())
    }

    /// The parameters of a module of experts: in the base one tensor each, or one of each expert.
    fn parameters(&self, module: &str) -> Vec<Parameter> {
        let shape = |name: &str| {
            let found = self.found(name)?;
            Some((found.clone(), self.ckpt.index.get(&found)?.info.shape.clone()))
        };
        // MXFP4 has all experts' matrices one below the other.
        let count = COUNTS.iter().find_map(|key| usize::try_from(self.ckpt.config.get(key)?.as_u64()?).ok());
        let stacked = NAMES.map(|name| {
            let (found, shape) = shape(&format!("{module}.{name}"))?;
            let sizes = match (&shape[..], count) {
                ([experts, rows, columns], _) => [*experts, *rows, *columns],
                ([all, columns], Some(count)) if count > 0 && all.is_multiple_of(count) => {
                    [count, all / count, *columns]
                }
                _ => return None,
            };
            Some((found, sizes))
        });
        if let [Some((both, [experts, p, q])), Some((down, [_, r, s]))] = stacked {
            // Twice as many outputs as the other has inputs.
            let turned = q == r.saturating_mul(2) && p == s;
            let one = |name, found: String, rows, columns| {
                let parts = vec![PartOfParameter { name: found, expert: None, first: 0 }];
                Parameter { name, experts, rows, columns, turned, parts }
            };
            return vec![one(NAMES[0], both, p, q), one(NAMES[1], down, r, s)];
        }
        let of = |name: &str| {
            let each = (0..).map_while(|e| shape(&format!("{module}.{e}.{name}.weight")));
            let each: Vec<(String, Vec<usize>)> = each.collect();
            let [rows, columns] = each.first()?.1[..] else { return None };
            each.iter().all(|(_, s)| s == &[rows, columns]).then_some((each, rows, columns))
        };
        let parameter = |name, sources: &[&str]| {
            let sources = sources.iter().map(|s| of(s)).collect::<Option<Vec<_>>>()?;
            let (each, rows, columns) = sources.first()?;
            let (experts, rows, columns) = (each.len(), *rows, *columns);
            if sources.iter().any(|(each, r, c)| (each.len(), *r, *c) != (experts, rows, columns)) {
                return None;
            }
            let all = rows.checked_mul(sources.len())?;
            let parts = sources.into_iter().enumerate().flat_map(|(i, (each, ..))| {
                let part = move |(e, (name, _))| PartOfParameter { name, expert: Some(e), first: i * rows };
                each.into_iter().enumerate().map(part)
            });
            Some(Parameter { name, experts, rows: all, columns, turned: false, parts: parts.collect() })
        };
        // Mixtral's own names of an expert's matrices are the second ones.
        let both = parameter(NAMES[0], &["gate_proj", "up_proj"]).or_else(|| parameter(NAMES[0], &["w1", "w3"]));
        let down = parameter(NAMES[1], &["down_proj"]).or_else(|| parameter(NAMES[1], &["w2"]));
        [both, down].into_iter().flatten().collect()
    }
}

/// A tensor of the base with the products of its experts' factors.
#[derive(Debug)]
struct ExpertSum {
    base: Entry,
    /// A and B of each expert that has rows in it, and the ranges of all.
    factors: Vec<[View; 2]>,
    reads: [(usize, Range<usize>); 2],
    /// Its rows of one expert; the first is this row of the expert's matrix.
    span: usize,
    first: usize,
    /// The matrix is `[in, out]`.
    across: bool,
    scale: f32,
    /// Results are rounded to it.
    dtype: DType,
}

impl Layout for ExpertSum {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        let mut parts = self.base.parts();
        parts.extend(self.reads.iter().cloned());
        parts
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        row_of(&self.base, shards, row, out);
        let (e, i) = (row / self.span.max(1), row % self.span.max(1));
        if let Some([a, b]) = self.factors.get(e) {
            add_product([a, b], (self.scale, self.across), shards, self.first + i, out);
        }
        round(self.dtype, out);
    }
}
