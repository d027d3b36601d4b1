//! Rows of tokens to rows of floats: the output of each row's tokens, pooled, and scaled to length
//! 1 where that is wanted.
//!
//! A row is a sequence of its own, which ends with the call. Pooling and scaling are in f64, in the
//! order of the tokens, so results do not depend on how rows are put together.

use llmcc_abi::output::pool;

use crate::engine::{Batch, Engine};
use crate::error::{Error, Result, Status};
use crate::image::Entry;
use crate::kv::SeqId;
use crate::reserve::need;

/// Below this length a row is not scaled up to 1 (as in PyTorch's `normalize`).
const SHORTEST: f64 = 1e-12;

/// Token rows to embed.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Tokens of all rows, one row after the other.
    pub tokens: &'a [i32],
    /// Tokens of each row, at least 1; together as many as there are.
    pub lengths: &'a [usize],
    /// Types of all tokens; empty: all of type 0.
    pub types: &'a [i32],
    /// Whether results have length 1; `None`: as the model says.
    pub normalize: Option<bool>,
    /// How the rows of a sequence become one ([`llmcc_abi::output::pool`]); `None`: as the model says.
    pub pool: Option<u32>,
}

/// The output of each row: f32 `[rows, columns]`. No sequence is left.
///
/// # Errors
/// The model has logits; a row is empty, too long, or has a token outside the vocabulary; no room
/// in the cache; a result is not finite; the machine fails.
pub fn embed(engine: &mut Engine, rows: &Rows) -> Result<Vec<f32>> {
    let index = engine.pooled()?;
    let image = engine.shared_image();
    let entry = &image.entries[index];
    check_pool(rows)?;
    check_rows(engine, entry, (rows.tokens, rows.types), rows.lengths)?;
    let columns = entry.columns();
    let pooling = rows.pool.or(entry.output.map(|o| o.pool)).unwrap_or(pool::MEAN);
    let room = rows.lengths.len().checked_mul(columns);
    let room = room.ok_or_else(|| Error::invalid("the results do not fit in memory; give fewer rows"))?;
    // Sums in f64 beside the results, and the request for each token.
    need(room.saturating_mul(16).saturating_add(rows.tokens.len().saturating_mul(64)))?;
    let watch = engine.interrupts().watch();
    let mut out = Vec::with_capacity(room);
    let (mut row, mut token) = (0, 0);
    while row < rows.lengths.len() {
        watch.check()?;
        let lengths = &rows.lengths[row..][..together(engine, &rows.lengths[row..])];
        let tokens = &rows.tokens[token..][..lengths.iter().sum()];
        let mut seqs = Vec::with_capacity(lengths.len());
        let types = rows.types.get(token..token + tokens.len()).unwrap_or_default();
        let pooled = pooled(engine, (index, pooling, columns), (tokens, types), lengths, &mut seqs);
        // Whatever happened: freeing a sequence that is there cannot fail.
        seqs.into_iter().for_each(|seq| drop(engine.kv_mut().seq_free(seq)));
        let normalize = rows.normalize.unwrap_or(entry.normalizes());
        for (i, values) in pooled?.chunks_exact(columns).enumerate() {
            finish(values, normalize, &mut out).ok_or_else(|| not_finite(row + i))?;
        }
        (row, token) = (row + lengths.len(), token + tokens.len());
    }
    Ok(out)
}

fn not_finite(row: usize) -> Error {
    Error::new(
        Status::Numeric,
        format!("the output of row {row} is not finite: the model's values overflow on its tokens"),
    )
}

fn check_pool(rows: &Rows) -> Result<()> {
    match rows.pool.filter(|p| !(pool::MEAN..=pool::LARGEST).contains(p)) {
        Some(pool) => {
            Err(Error::invalid(format!("there is no pooling {pool}: give LLMCC_POOL_MEAN or another of these")))
        }
        None => Ok(()),
    }
}

/// Rows of tokens, and of their types, fit an entry as sequences of their own.
pub(crate) fn check_rows(
    engine: &Engine,
    entry: &Entry,
    (tokens, types): (&[i32], &[i32]),
    lengths: &[usize],
) -> Result<()> {
    let (context, most) = (engine.kv().max_context(), engine.max_batch_tokens());
    for (i, &n) in lengths.iter().enumerate() {
        if n == 0 {
            return Err(Error::invalid(format!("row {i} has no tokens; give at least one")));
        }
        if n > context {
            let message = format!("row {i} has {n} tokens: the model's longest context is {context}; cut the text");
            return Err(Error::new(Status::ContextFull, message));
        }
        if entry.whole && n > most {
            return Err(Error::invalid(format!(
                "row {i} has {n} tokens, which see each other and so go through the model at once: open it with \
                    max_batch_tokens of at least that many (it is {most}), or cut the text"
            )));
        }
    }
    engine.check_types(entry, types, tokens.len())?;
    let vocab = engine.image().desc().vocab;
    match tokens.iter().position(|t| *t < 0 || *t as u64 >= vocab) {
        Some(i) => {
            let token = tokens[i];
            Err(Error::invalid(format!("token {token} at index {i} is outside the vocabulary of {vocab}")))
        }
        None => Ok(()),
    }
}

/// How many of the next rows go through the model together: at least one.
pub(crate) fn together(engine: &Engine, lengths: &[usize]) -> usize {
    let (kv, most) = (engine.kv(), engine.max_batch_tokens());
    let mut free: Vec<usize> = (0..kv.groups()).map(|g| kv.free_pages(g)).collect();
    let mut tokens = 0;
    let fits = |n: &&usize| {
        tokens += **n;
        let pages = free.iter_mut().enumerate().all(|(group, free)| {
            let left = free.checked_sub(kv.pages_for(group, **n, most));
            *free = left.unwrap_or(0);
            left.is_some()
        });
        pages && tokens <= most
    };
    lengths.iter().take_while(fits).count().max(1)
}

/// Runs rows (tokens, and their types) as new sequences, which `seqs` gets, through an entry, and pools their outputs:
/// `[rows, columns]`.
fn pooled(
    engine: &mut Engine,
    (entry, pooling, columns): (usize, u32, usize),
    (tokens, types): (&[i32], &[i32]),
    lengths: &[usize],
    seqs: &mut Vec<SeqId>,
) -> Result<Vec<f64>> {
    // The row of each token that is wanted.
    let (mut of_tokens, mut wanted, mut of_wanted) = (vec![], vec![], vec![]);
    for (row, &n) in lengths.iter().enumerate() {
        let start = of_tokens.len() as u32;
        let seq = engine.kv_mut().seq_new()?;
        seqs.push(seq);
        of_tokens.resize(of_tokens.len() + n, seq);
        let end = of_tokens.len() as u32;
        let tokens = match pooling {
            pool::FIRST => start..start + 1,
            pool::LAST => end - 1..end,
            _ => start..end,
        };
        of_wanted.resize(of_wanted.len() + tokens.len(), row);
        wanted.extend(tokens);
    }
    let mut sums = vec![if pooling == pool::MAX { f64::NEG_INFINITY } else { 0.0 }; lengths.len() * columns];
    let mut taken = vec![0u32; lengths.len()];
    let batch = Batch { tokens, seqs: &of_tokens, out_rows: &wanted, types, ..Batch::default() };
    // In the order of the tokens.
    let mut add = |i: usize, values: &[f32]| {
        let row = of_wanted[i];
        taken[row] += 1;
        let weight = if pooling == pool::WEIGHTED { f64::from(taken[row]) } else { 1.0 };
        for (sum, x) in sums[row * columns..][..columns].iter_mut().zip(values) {
            let x = f64::from(*x);
            // (NaN stays NaN.)
            *sum = if pooling != pool::MAX {
                *sum + weight * x
            } else if sum.is_nan() || *sum > x {
                *sum
            } else {
                x
            };
        }
    };
    engine.run_each(entry, &batch, &mut add, None)?;
    for (sums, &n) in sums.chunks_exact_mut(columns).zip(lengths) {
        let by = divisor(pooling, n as f64);
        sums.iter_mut().for_each(|sum| *sum /= by);
    }
    Ok(sums)
}

/// The divisor of a sum of `n` rows.
fn divisor(pooling: u32, n: f64) -> f64 {
    match pooling {
        pool::MEAN => n,
        pool::ROOT => n.sqrt(),
        pool::WEIGHTED => n * (n + 1.0) / 2.0,
        _ => 1.0,
    }
}

/// Appends a pooled row, scaled if it is to be; `None` where it is not finite.
fn finish(values: &[f64], normalize: bool, out: &mut Vec<f32>) -> Option<()> {
    let length = values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if normalize { length.max(SHORTEST) } else { 1.0 };
    out.extend(values.iter().map(|x| (x / scale) as f32));
    length.is_finite().then_some(())
}
