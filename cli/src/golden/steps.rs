//! The steps that golden vectors are of, and what they compute.

use crate::Error;
use crate::digest::hex;
use crate::loaded::{EngineOptions, Model};
use crate::numbers::split_mix;
use llmcc_abi::tree::Hash;
use llmcc_codegen::artifact;
use llmcc_ir::plan::{Plan, PlanEntry};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Version of the steps and of what is stored: changes with `SHAPES`, `ENTRIES`, [`seed`] or
/// [`Computed`].
pub const SCHEME: u32 = 3;

/// Tokens of each step as runs of `(sequence, tokens)`: a prompt over two page borders, single
/// tokens, a batch of a prompt around a single token of the first sequence, both sequences at once.
/// Every regime of the plan is used.
pub(super) const SHAPES: &[&[(usize, usize)]] =
    &[&[(0, 40)], &[(0, 1)], &[(0, 1)], &[(1, 9), (0, 1), (1, 8)], &[(0, 1), (1, 1)]];

/// Logits kept per row; the hash covers all.
pub(super) const ENTRIES: usize = 32;

/// Tokens that the cache must hold for all steps.
pub(super) const CACHE_TOKENS: u64 = 128;

/// The sizes of a model by which its steps are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Longest sequence.
    pub max_context: usize,
    /// Entries.
    pub entries: Vec<Shape>,
}

/// The sizes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Columns of its output.
    pub columns: usize,
    /// Whether a sequence is computed in one step.
    pub whole: bool,
    /// Longest sequence, where that is not the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
}

impl Sizes {
    /// The sizes of an open model.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn of_model(model: &Model) -> Result<Sizes, Error> {
        let info = model.info();
        let shape =
            |entry| model.entry(entry).map(|e| Shape { columns: e.columns, whole: e.whole, context: e.context });
        let entries = (0..info.entries).map(shape).collect::<Result<_, Error>>()?;
        Ok(Sizes { vocab: info.vocab, max_context: info.max_context, entries })
    }

    /// The sizes of a plan.
    pub fn of_plan(plan: &Plan) -> Sizes {
        let columns = |e: &PlanEntry| e.requested().map_or(0, |o| plan.info.rows(o.output).1);
        let shape = |(i, e): (usize, &PlanEntry)| Shape {
            columns: columns(e),
            whole: artifact::whole(plan, i),
            context: e.context,
        };
        let entries = plan.entries.iter().enumerate().map(shape).collect();
        Sizes { vocab: plan.info.vocab, max_context: plan.info.max_context, entries }
    }
}

/// One call of `llmcc_run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the entry.
    pub entry: usize,
    /// Columns of its output.
    pub columns: usize,
    /// Token ids.
    pub tokens: Vec<i32>,
    /// Sequence of each token: counted from 0, and used from then on.
    pub seqs: Vec<usize>,
    /// Token rows whose logits are wanted.
    pub out_rows: Vec<u32>,
}

/// The results of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// Tokens of the step.
    pub tokens: usize,
    /// SHA-256 of all rows' bits (f32, little endian, `[rows, columns]`), hex.
    pub sha256: String,
    /// For each row the bits of [`entries`] of its logits: 8 hexadecimal digits each.
    pub rows: Vec<String>,
}

/// The seed of the steps of an artifact: the first bytes of a SHA-256 of the hashes of its code and
/// weights ([`llmcc_abi::tree`]).
pub fn seed((code, weights): (Hash, Hash)) -> u64 {
    let hash = Sha256::new().chain_update(code).chain_update(weights).finalize();
    hash.iter().take(8).fold(0, |s, b| s << 8 | u64::from(*b))
}

/// The steps of a model, entry by entry, each in sequences of its own.
pub fn steps(seed: u64, sizes: &Sizes) -> Vec<Step> {
    let mut all = vec![];
    // An entry without rows (of taps, say) has nothing to compare.
    for entry in (0..sizes.entries.len()).filter(|e| sizes.entries[*e].columns > 0) {
        let first = sequences(&all);
        let own = steps_of(seed.wrapping_add(entry as u64), sizes, entry);
        all.extend(own.into_iter().map(|s| Step { seqs: s.seqs.iter().map(|seq| first + seq).collect(), ..s }));
    }
    all
}

/// The steps of an entry. A short context cuts them; where a sequence is whole in one step, each run is one of its own.
fn steps_of(seed: u64, sizes: &Sizes, entry: usize) -> Vec<Step> {
    let (Shape { columns, whole, context }, vocab) = (sizes.entries[entry], sizes.vocab);
    let max_context = context.unwrap_or(sizes.max_context);
    let mut lengths: Vec<usize> = vec![];
    let mut state = seed;
    let mut out: Vec<Step> = vec![];
    for shape in SHAPES {
        let mut step = Step { entry, columns, tokens: vec![], seqs: vec![], out_rows: vec![] };
        for (seq, wanted) in *shape {
            let seq = if whole { lengths.len() } else { *seq };
            lengths.resize(lengths.len().max(seq + 1), 0);
            // The first prompt leaves room for single tokens after it.
            let room = if out.is_empty() { max_context.div_ceil(2) } else { max_context - lengths[seq] };
            let n = room.min(*wanted);
            lengths[seq] += n;
            step.tokens.extend((0..n).map(|_| (split_mix(&mut state) % vocab.max(1) as u64) as i32));
            step.seqs.extend(std::iter::repeat_n(seq, n));
        }
        let last = |i: usize| !step.seqs[i + 1..].contains(&step.seqs[i]);
        step.out_rows =
            (0..step.tokens.len()).filter(|i| matches!(i, 0 | 15 | 16) || last(*i)).map(|i| i as u32).collect();
        if !step.tokens.is_empty() {
            out.push(step);
        }
    }
    out
}

/// Sequences in steps.
pub(super) fn sequences(steps: &[Step]) -> usize {
    steps.iter().flat_map(|s| &s.seqs).max().map_or(0, |last| last + 1)
}

/// Columns whose values are kept: spread evenly.
pub fn entries(columns: usize) -> impl Iterator<Item = usize> {
    let n = ENTRIES.min(columns);
    (0..n).map(move |j| j * columns / n)
}

/// How to open an artifact for its golden steps: they are compared on other machines, too.
pub fn engine_options(threads: u32) -> EngineOptions {
    EngineOptions { threads, max_tokens: CACHE_TOKENS, portable: true, ..EngineOptions::default() }
}

/// Runs the golden steps.
///
/// # Errors
/// Errors of the artifact.
pub fn compute(model: &Model, seed: u64) -> Result<Vec<Computed>, Error> {
    let sizes = Sizes::of_model(model)?;
    let steps = steps(seed, &sizes);
    let mut out = vec![];
    for of_entry in steps.chunk_by(|a, b| a.entry == b.entry) {
        compute_entry(model, of_entry, sizes.entries[of_entry[0].entry].whole, &mut out)?;
    }
    Ok(out)
}

/// Runs the golden steps of an entry.
fn compute_entry(model: &Model, steps: &[Step], whole: bool, out: &mut Vec<Computed>) -> Result<(), Error> {
    let first = steps.iter().flat_map(|s| &s.seqs).min().copied().unwrap_or(0);
    let seqs: Vec<i32> = (first..sequences(steps)).map(|_| model.trial_seq()).collect::<Result<_, _>>()?;
    for step in steps {
        let of_tokens: Vec<i32> = step.seqs.iter().map(|s| seqs[*s - first]).collect();
        let rows = model.trial(step.entry, &step.tokens, &of_tokens, &step.out_rows)?;
        out.push(Computed::new(step, &rows));
        // Whole sequences are over: the cache need not hold the sequences of all steps.
        if whole {
            free(model, &of_tokens)?;
        }
    }
    if !whole {
        free(model, &seqs)?;
    }
    Ok(())
}

/// Frees sequences, which may be named several times, one after the other.
pub(super) fn free(model: &Model, seqs: &[i32]) -> Result<(), Error> {
    for run in seqs.chunk_by(|a, b| a == b) {
        model.seq_free(run[0])?;
    }
    Ok(())
}

impl Computed {
    /// From the rows `[step.out_rows.len(), columns]`.
    pub(super) fn new(step: &Step, rows_of: &[f32]) -> Computed {
        let columns = step.columns.max(1);
        let mut hash = Sha256::new();
        let mut rows = vec![];
        for row in rows_of.chunks_exact(columns) {
            hash.update(row.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect::<Vec<u8>>());
            rows.push(entries(columns).map(|e| format!("{:08x}", row[e].to_bits())).collect());
        }
        Computed { tokens: step.tokens.len(), sha256: hex(&hash.finalize()), rows }
    }

    /// The logits kept of a row.
    pub(super) fn row(&self, row: usize) -> Vec<f32> {
        let digits = self.rows.get(row).map_or("", String::as_str).as_bytes();
        let value = |d: &[u8]| {
            u32::from_str_radix(std::str::from_utf8(d).unwrap_or_default(), 16).map_or(f32::NAN, f32::from_bits)
        };
        digits.chunks(8).map(value).collect()
    }
}

/// How far logits are from golden vectors of another version, or from the logits of the same tokens in
/// steps of other sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Root mean square of the differences, relative to that of the logits; 0 where some are not
    /// finite.
    pub relative: f64,
    /// Whether all logits are finite.
    pub finite: bool,
    /// Whether all bits are the same.
    pub same_bits: bool,
}

impl Distance {
    /// The distance of logits from others.
    pub fn of(want: &[f32], got: &[f32]) -> Distance {
        let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>();
        let differences = squares(&mut want.iter().zip(got).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        let relative = (differences / squares(&mut want.iter().map(|v| f64::from(*v))).max(f64::MIN_POSITIVE)).sqrt();
        let finite = want.iter().chain(got).all(|v| v.is_finite());
        let same_bits = want.iter().zip(got).all(|(a, b)| a.to_bits() == b.to_bits());
        Distance { relative: if finite { relative } else { 0.0 }, finite, same_bits }
    }

    /// The distance of results from golden vectors, as far as their logits are kept; `None` when they
    /// are of other steps.
    pub fn between(want: &[Computed], got: &[Computed]) -> Option<Distance> {
        if want.len() != got.len()
            || want.iter().zip(got).any(|(w, g)| w.tokens != g.tokens || w.rows.len() != g.rows.len())
        {
            return None;
        }
        let logits =
            |all: &[Computed]| all.iter().flat_map(|s| (0..s.rows.len()).flat_map(|r| s.row(r))).collect::<Vec<f32>>();
        Some(Distance { same_bits: want == got, ..Distance::of(&logits(want), &logits(got)) })
    }
}
