//! Matrices of adapters that sequences choose.

use super::FixedSpec;
use super::kind::{Kept, Lifetime, NewKept, ReadState, StateKind, outside, slot};
use crate::eval::{EvalError, dot};
use crate::quant::{Format, pack_block, unpack_row};
use crate::text::{Parsed, Parser};
use crate::ty::DType;
use std::fmt;

/// A matrix of adapters that are loaded while the model runs: bf16 or f32 `[n, k]`, one for each of `slots`
/// adapters, packed as weights are for a CPU. A sequence has the one of its adapter, which no step
/// changes, and none if it has no adapter. Text: `adapter<bf16, 48x64, slots 4>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterSpec {
    /// Rows (outputs); whole blocks of 16.
    pub n: usize,
    /// Columns (inputs).
    pub k: usize,
    /// Adapters that there is room for.
    pub slots: usize,
    /// Type of the numbers: bf16 or f32.
    pub dtype: DType,
}

impl AdapterSpec {
    /// Rows that are packed together.
    pub const BLOCK: usize = llmcc_abi::layout::BLOCK;
    /// Most adapters that there may be room for.
    pub const MOST: usize = 1 << 12;

    /// Bytes of one adapter's matrix.
    pub fn bytes(&self) -> usize {
        llmcc_abi::layout::packed_bytes(&self.format().encoding(), self.n, self.k)
    }

    /// How matrices are packed.
    pub fn format(&self) -> Format {
        if self.dtype == DType::F32 { Format::F32 } else { Format::BF16 }
    }
}

impl StateKind for AdapterSpec {
    fn lifetime(&self) -> Lifetime {
        Lifetime::Chosen(self.slots)
    }

    fn bytes(&self) -> usize {
        AdapterSpec::bytes(self)
    }

    fn columns(&self) -> usize {
        self.k
    }

    /// It holds something: whole blocks of rows, for a number of adapters there can be.
    fn verify(&self) -> Vec<(&'static str, String)> {
        let AdapterSpec { n, k, slots, dtype } = *self;
        let whole = n > 0 && n.is_multiple_of(AdapterSpec::BLOCK) && k > 0;
        let kept = matches!(dtype, DType::Bf16 | DType::F32);
        let few = n.saturating_mul(k) <= FixedSpec::MOST && (1..=AdapterSpec::MOST).contains(&slots);
        let most = AdapterSpec::MOST;
        let message = || {
            format!("{self}: bf16 or f32 in whole blocks of 16 rows, for 1 to {most} adapters, are what there may be")
        };
        if whole && few && kept { vec![] } else { vec![("state-spec", message())] }
    }
}

impl ReadState for AdapterSpec {
    /// `adapter<bf16, 48x64, slots 4>`
    fn read(p: &mut Parser<'_>) -> Parsed<AdapterSpec> {
        p.expect_word("adapter")?;
        p.expect(b'<')?;
        let dtype = match p.peek_word() {
            "bf16" => DType::Bf16,
            "f32" => DType::F32,
            _ => return Err(p.unexpected("`bf16` or `f32`")),
        };
        p.next();
        p.expect(b',')?;
        let n = p.size("`rows x columns`, as in `48x64`")?;
        // `48x64` is the number 48 and the word `x64`.
        let by = p.peek_word().strip_prefix('x').and_then(|k| k.parse().ok());
        let Some(k) = by else { return Err(p.unexpected("`x` and the columns, as in `48x64`")) };
        p.next();
        p.expect(b',')?;
        p.expect_word("slots")?;
        let slots = p.size("how many adapters there is room for")?;
        p.expect(b'>')?;
        Ok(AdapterSpec { n, k, slots, dtype })
    }
}

impl fmt::Display for AdapterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adapter<{}, {}x{}, slots {}>", self.dtype, self.n, self.k, self.slots)
    }
}

/// A matrix of adapters by sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterState {
    /// Shape.
    pub spec: AdapterSpec,
    /// `[n · k]` of the adapter of each sequence; empty, or beyond the last: it has none.
    seqs: Vec<Vec<f64>>,
}

impl AdapterState {
    /// No sequence has an adapter.
    pub fn new(spec: AdapterSpec) -> AdapterState {
        AdapterState { spec, seqs: vec![] }
    }

    /// Gives a sequence an adapter with this matrix `[n, k]`, row by row, rounded to its type.
    pub fn set(&mut self, seq: usize, matrix: Vec<f64>) {
        if self.seqs.len() <= seq {
            self.seqs.resize(seq + 1, vec![]);
        }
        self.seqs[seq] = matrix;
    }

    /// One more than the largest number of a sequence that has an adapter.
    pub fn sequences(&self) -> usize {
        self.seqs.len()
    }

    /// The matrix of a sequence, if it has one.
    pub fn of(&self, seq: usize) -> Option<&[f64]> {
        self.seqs.get(seq).map(Vec::as_slice).filter(|m| m.len() == self.spec.n * self.spec.k)
    }
}

impl Kept for AdapterState {
    fn sequences(&self) -> usize {
        AdapterState::sequences(self)
    }

    /// Packed as weights are; slot 0 is nobody's.
    fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
        let (AdapterSpec { n, k, .. }, bytes) = (self.spec, self.spec.bytes());
        for seq in 0..self.seqs.len() {
            let Some(matrix) = self.of(seq) else { continue };
            let at = slot(tables, seq, bytes).filter(|at| at.start > 0);
            let to = at.and_then(|at| pool.get_mut(at)).ok_or_else(|| outside(seq))?;
            let blocks = to.chunks_exact_mut(bytes / (n / AdapterSpec::BLOCK).max(1));
            for (rows, to) in matrix.chunks_exact(AdapterSpec::BLOCK * k).zip(blocks) {
                let rows: Vec<f32> = rows.iter().map(|x| *x as f32).collect();
                pack_block(self.spec.format(), &rows, k, to).map_err(|_| outside(seq))?;
            }
        }
        Ok(())
    }
}

impl NewKept<AdapterSpec> for AdapterState {
    fn empty(spec: AdapterSpec) -> AdapterState {
        AdapterState::new(spec)
    }

    fn from_pool(spec: AdapterSpec, tables: &[Vec<u32>], _: &[usize], pool: &[u8]) -> Result<AdapterState, EvalError> {
        let mut state = AdapterState::new(spec);
        for seq in 0..tables.len() {
            let Some(at) = slot(tables, seq, spec.bytes()).filter(|at| at.start > 0) else { continue };
            let bytes = pool.get(at).ok_or_else(|| outside(seq))?;
            let mut matrix = vec![];
            for row in 0..spec.n {
                let mut numbers = vec![0f32; spec.k];
                unpack_row(spec.format(), bytes, spec.k, row, &mut numbers);
                matrix.extend(numbers.into_iter().map(f64::from));
            }
            state.set(seq, matrix);
        }
        Ok(state)
    }
}

/// A row times the matrix of its sequence's adapter by parts: see `adapter_matmul` of the graph
/// level.
pub(crate) fn adapted(state: &AdapterState, seq: usize, x: &[f64], parts: &[usize]) -> Vec<f64> {
    let AdapterSpec { n, k, .. } = state.spec;
    let Some(matrix) = state.of(seq) else { return vec![0.0; n] };
    let mut rows = matrix.chunks_exact(k);
    let inputs = x.chunks_exact(k).zip(parts);
    inputs.flat_map(|(x, part)| rows.by_ref().take(*part).map(|w| dot(x, w)).collect::<Vec<f64>>()).collect()
}
