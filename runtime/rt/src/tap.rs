//! Moments of the inputs of products, for calibration.
//!
//! Rows of tokens go through the entry that has taps, each row as a sequence of its own, and every input of a tap is
//! added to sums that the caller owns. **Invariant:** a sum adds its terms in f64 one by one, in the order of the
//! tokens given, so its bits depend neither on threads nor on how tokens are cut into steps or calls. A product of
//! two f32 is exact in f64: each term is rounded once, when it is added, with fused multiplications as without them.

use std::ops::Range;

use crate::embed::{check_rows, together};
use crate::engine::{Batch, Engine, Io, Sink, Tapped};
use crate::error::{Error, Result, Status};
use crate::image::Tap;
use crate::kv::SeqId;
use crate::reserve::need;
use crate::threads::Pool;

/// Rows and columns of a block of sums that are held in registers.
const BLOCK: usize = 8;

/// Token rows whose moments are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Tokens of all rows, one row after the other.
    pub tokens: &'a [i32],
    /// Tokens of each row, at least 1; together as many as there are.
    pub lengths: &'a [usize],
    /// Types of all tokens; empty: all of type 0.
    pub types: &'a [i32],
}

/// Sums over the inputs of a tap, by expert (one where the products are the same for all tokens). New inputs are added
/// to them. Without inputs so far the sums are 0, and any least and largest numbers are forgotten.
pub struct Moments<'a> {
    /// The number of the tap in its entry.
    pub tap: usize,
    /// Inputs, `[experts]`.
    pub count: &'a mut [u64],
    /// Sums of squares of each column, `[experts, columns]`.
    pub squares: &'a mut [f64],
    /// The least number of each column, the same way.
    pub min: &'a mut [f32],
    /// The largest number of each column, the same way.
    pub max: &'a mut [f32],
    /// `Σ x_i·x_j`, `[experts, columns, columns]`; empty: not wanted.
    pub products: &'a mut [f64],
}

/// Adds the inputs of rows of tokens to the moments of some taps. No sequence is left. On an error during the run sums
/// may have been added to.
///
/// # Errors
/// The model has no taps; arrays of other sizes than the tap's; a row is empty, too long, or has a token outside the
/// vocabulary; no room in the cache; an input is not finite; the machine fails.
pub fn tap(engine: &mut Engine, rows: &Rows, moments: &mut [Moments]) -> Result<()> {
    let index = engine.tapped()?;
    let image = engine.shared_image();
    let entry = &image.entries[index];
    check_rows(engine, entry, (rows.tokens, rows.types), rows.lengths)?;
    moments.iter().try_for_each(|m| m.check(&entry.taps))?;
    // By tap: who wants it.
    let wanted: Vec<Vec<usize>> =
        (0..entry.taps.len()).map(|tap| (0..moments.len()).filter(|m| moments[*m].tap == tap).collect()).collect();
    let requested = entry.taps.iter().any(|t| t.requested);
    need(room(engine, &entry.taps, rows.tokens.len()))?;
    moments.iter_mut().for_each(Moments::start);
    let watch = engine.interrupts().watch();
    let mut panel = vec![];
    let (mut row, mut token) = (0, 0);
    while row < rows.lengths.len() {
        watch.check()?;
        let lengths = &rows.lengths[row..][..together(engine, &rows.lengths[row..])];
        let tokens = token..token + lengths.iter().sum::<usize>();
        let mut sink = |tap: usize, tapped: Tapped| {
            let Tapped { rows, routes, mut pool } = tapped;
            for m in &wanted[tap] {
                moments[*m].add(&entry.taps[tap], (rows, routes), pool.as_deref_mut(), &mut panel)?;
            }
            Ok(())
        };
        let types = rows.types.get(tokens.clone()).unwrap_or_default();
        let mut seqs = Vec::with_capacity(lengths.len());
        let of_tokens = (&rows.tokens[tokens.clone()], types);
        let done = run(engine, index, of_tokens, lengths, requested, &mut seqs, &mut sink);
        // Whatever happened: freeing a sequence that is there cannot fail.
        seqs.into_iter().for_each(|seq| drop(engine.kv_mut().seq_free(seq)));
        done?;
        (row, token) = (row + lengths.len(), tokens.end);
    }
    moments.iter_mut().for_each(Moments::mirror);
    Ok(())
}

/// Bytes that a call takes beside its sums: the requests of the tokens, and a chunk's inputs in f64.
fn room(engine: &Engine, taps: &[Tap], tokens: usize) -> usize {
    let widest = taps.iter().map(|t| t.width().next_multiple_of(BLOCK)).max().unwrap_or(0);
    let chunk = engine.max_batch_tokens().min(tokens);
    chunk.saturating_mul(widest).saturating_mul(16).saturating_add(tokens.saturating_mul(64))
}

/// Runs rows as new sequences, which `seqs` gets.
fn run(
    engine: &mut Engine,
    entry: usize,
    (tokens, types): (&[i32], &[i32]),
    lengths: &[usize],
    requested: bool,
    seqs: &mut Vec<SeqId>,
    sink: &mut dyn FnMut(usize, Tapped) -> Result<()>,
) -> Result<()> {
    let mut of_tokens = Vec::with_capacity(tokens.len());
    for &n in lengths {
        let seq = engine.kv_mut().seq_new()?;
        seqs.push(seq);
        of_tokens.resize(of_tokens.len() + n, seq);
    }
    // Rows of all tokens are asked for, in their order.
    let out_rows: Vec<u32> = if requested { (0..tokens.len() as u32).collect() } else { vec![] };
    let batch = Batch { tokens, seqs: &of_tokens, out_rows: &out_rows, types, ..Batch::default() };
    let rows = Sink::Each(&mut |_, _| ());
    engine.run(entry, Io { batch: &batch, wants: &[], rows, keep: None, taps: Some(sink) })
}

impl Moments<'_> {
    /// The arrays have the sizes of the tap.
    fn check(&self, taps: &[Tap]) -> Result<()> {
        let Some(tap) = taps.get(self.tap) else {
            let message = format!("tap {} does not exist: the model has {}, counted from 0", self.tap, taps.len());
            return Err(Error::invalid(message));
        };
        let (experts, columns) = (tap.experts(), tap.columns);
        let all = experts.saturating_mul(columns);
        let sizes = [self.squares.len(), self.min.len(), self.max.len()];
        let products = self.products.is_empty() || Some(self.products.len()) == all.checked_mul(columns);
        if self.count.len() == experts && sizes == [all; 3] && products {
            return Ok(());
        }
        Err(Error::invalid(format!("tap {} needs arrays for {experts} experts and {columns} columns", self.tap)))
    }

    /// Forgets what arrays hold that have no inputs yet.
    fn start(&mut self) {
        let columns = self.squares.len() / self.count.len().max(1);
        for (expert, count) in self.count.iter().enumerate() {
            if *count == 0 {
                let own = expert * columns..(expert + 1) * columns;
                self.min[own.clone()].fill(f32::INFINITY);
                self.max[own].fill(f32::NEG_INFINITY);
            }
        }
    }

    /// Adds the inputs of a tap's rows, which have these routes.
    fn add(
        &mut self,
        tap: &Tap,
        (rows, routes): (&[f32], &[f32]),
        pool: Option<&mut Pool>,
        panel: &mut Vec<f64>,
    ) -> Result<()> {
        let columns = tap.columns;
        let Some(of) = tap.routes else {
            let inputs: Vec<&[f32]> = rows.chunks_exact(columns).collect();
            return self.add_inputs(0, &inputs, pool, panel, tap);
        };
        let mut inputs: Vec<Vec<&[f32]>> = vec![vec![]; of.experts];
        for (row, chosen) in rows.chunks_exact(tap.width()).zip(routes.chunks_exact(2 * of.top)) {
            for (slot, number) in chosen[..of.top].iter().enumerate() {
                // (A number that is none, or less than 0, is none of an expert.)
                let expert = inputs.get_mut(*number as usize).filter(|_| *number >= 0.0);
                let expert = expert.ok_or_else(|| {
                    Error::new(Status::Numeric, format!("the router before {} chose expert {number}", name(tap)))
                })?;
                expert.push(&row[if of.apart { slot * columns } else { 0 }..][..columns]);
            }
        }
        let (mut pool, mut of_experts) = (pool, inputs.into_iter().enumerate());
        of_experts.try_for_each(|(e, inputs)| self.add_inputs(e, &inputs, pool.as_deref_mut(), panel, tap))
    }

    fn add_inputs(
        &mut self,
        expert: usize,
        inputs: &[&[f32]],
        pool: Option<&mut Pool>,
        panel: &mut Vec<f64>,
        tap: &Tap,
    ) -> Result<()> {
        let columns = tap.columns;
        let own = expert * columns..(expert + 1) * columns;
        let (squares, min, max) = (&mut self.squares[own.clone()], &mut self.min[own.clone()], &mut self.max[own]);
        for x in inputs {
            for (((x, sum), min), max) in x.iter().zip(&mut *squares).zip(&mut *min).zip(&mut *max) {
                let wide = f64::from(*x);
                *sum += wide * wide;
                *min = if *x < *min { *x } else { *min };
                *max = if *x > *max { *x } else { *max };
            }
        }
        self.count[expert] += inputs.len() as u64;
        if !squares.iter().all(|s| s.is_finite()) {
            let message = format!("an input of {} is not finite: the model's values overflow on its tokens", name(tap));
            return Err(Error::new(Status::Numeric, message));
        }
        if !self.products.is_empty() {
            let size = columns * columns;
            add_products(&mut self.products[expert * size..][..size], columns, inputs, pool, panel);
        }
        Ok(())
    }

    /// Copies the products above the diagonal below it.
    fn mirror(&mut self) {
        let n = self.squares.len() / self.count.len().max(1);
        for of_expert in self.products.chunks_exact_mut((n * n).max(1)) {
            for i in 0..n {
                for j in 0..i {
                    of_expert[i * n + j] = of_expert[j * n + i];
                }
            }
        }
    }
}

/// The first of the weights that multiply the rows of a tap.
fn name(tap: &Tap) -> &str {
    tap.weights.first().map_or("a product", |(name, _)| name)
}

/// Sums of products that several threads add to, each to rows of its own.
#[derive(Clone, Copy)]
struct Shared(*mut f64);

// SAFETY: threads touch different rows: see `add_products`.
unsafe impl Sync for Shared {}

/// Adds `x_i·x_j` of all inputs for `i ≤ j`, in blocks; each block's inputs in their order. `panel` is room for the
/// inputs in f64.
fn add_products(sums: &mut [f64], n: usize, inputs: &[&[f32]], pool: Option<&mut Pool>, panel: &mut Vec<f64>) {
    let width = n.next_multiple_of(BLOCK);
    // Blocks of columns one after the other, each with the inputs in order.
    panel.clear();
    panel.resize(width * inputs.len(), 0.0);
    for (block, to) in panel.chunks_exact_mut((BLOCK * inputs.len()).max(1)).enumerate() {
        for (x, to) in inputs.iter().zip(to.chunks_exact_mut(BLOCK)) {
            let from = &x[block * BLOCK..n.min((block + 1) * BLOCK)];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(*from));
        }
    }
    let (blocks, panel, shared) = (width / BLOCK, &panel[..], Shared(sums.as_mut_ptr()));
    let of_block = |block: usize| {
        let shared = &shared;
        let rows = block * BLOCK..n.min((block + 1) * BLOCK);
        // SAFETY: these rows are of this block alone, and within the sums.
        let own = unsafe { std::slice::from_raw_parts_mut(shared.0.add(rows.start * n), rows.len() * n) };
        strip(own, n, block, panel, inputs.len());
    };
    match pool {
        Some(pool) => {
            let threads = pool.threads();
            pool.run(&|thread, _| (thread..blocks).step_by(threads).for_each(of_block));
        }
        None => (0..blocks).for_each(of_block),
    }
}

/// Adds to the rows of a block, from the diagonal on.
fn strip(rows: &mut [f64], n: usize, block: usize, panel: &[f64], inputs: usize) {
    let of = |b: usize| &panel[b * BLOCK * inputs..][..BLOCK * inputs];
    for b in block..n.div_ceil(BLOCK) {
        let columns: Range<usize> = b * BLOCK..n.min((b + 1) * BLOCK);
        let mut sums = [[0.0; BLOCK]; BLOCK];
        for (sums, row) in sums.iter_mut().zip(rows.chunks_exact(n)) {
            sums[..columns.len()].copy_from_slice(&row[columns.clone()]);
        }
        for (x, y) in of(block).chunks_exact(BLOCK).zip(of(b).chunks_exact(BLOCK)) {
            for (sums, x) in sums.iter_mut().zip(x) {
                sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * y);
            }
        }
        for (sums, row) in sums.iter().zip(rows.chunks_exact_mut(n)) {
            row[columns.clone()].copy_from_slice(&sums[..columns.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks and threads add the same products in the same order as two loops.
    #[test]
    fn blocks_add_in_the_order_of_the_inputs() {
        for n in [1, 7, 8, 13, 24] {
            let values: Vec<f32> = (0..n * 29).map(|i| ((i * 7919 % 1000) as f32 - 500.0) * 0.37).collect();
            let inputs: Vec<&[f32]> = values.chunks_exact(n).collect();
            let mut want = vec![0.0f64; n * n];
            for x in &inputs {
                for i in 0..n {
                    (i..n).for_each(|j| want[i * n + j] += f64::from(x[i]) * f64::from(x[j]));
                }
            }
            let upper = |sums: &[f64]| {
                let all = (0..n).flat_map(|i| (i..n).map(move |j| i * n + j));
                all.map(|at| sums[at].to_bits()).collect::<Vec<_>>()
            };
            for (threads, cut) in [(1, 29), (2, 29), (3, 10), (2, 1)] {
                let mut pool = Pool::new(threads, false).unwrap();
                let mut got = vec![0.0; n * n];
                for part in inputs.chunks(cut) {
                    add_products(&mut got, n, part, Some(&mut pool), &mut vec![]);
                }
                assert_eq!(upper(&got), upper(&want), "{n} columns, {threads} threads, {cut} inputs at once");
            }
        }
    }
}
