//! Sparse matrices of compressed-tensors: `STEM.compressed` are the elements that are there, row by
//! row, and `STEM.bitmask` `[out, in / 8]` says which columns they are, the first of eight in the
//! lowest bit. Of four adjacent elements two are stored (`sparse-24-bitmask`), or as many as
//! `STEM.row_offsets` say (`sparse-bitmask`). Rows are filled up with zeros when they are read, so
//! that such a matrix is computed with like any other.

use super::{Part, Tensors, UNQUANTIZED, Wrong};
use crate::checkpoint::safetensors::{TensorInfo, stored_type};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout, read_f32};
use llmcc_ir::quant::CodedRow;
use std::ops::Range;
use std::sync::Arc;

/// The elements of a matrix that are there, and where.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    pub values: Part,
    mask: Part,
    /// The first element of each row; none where there are as many in each.
    starts: Option<Part>,
    /// Rows and columns of the matrix.
    pub shape: [usize; 2],
}

/// Takes the sparse matrix of a stem, `[out, in]`; `None` where it has none.
pub(super) fn take(tensors: &mut Tensors<'_>, stem: &str) -> Result<Option<Sparse>, Wrong> {
    let name = |ending: &str| format!("{stem}.{ending}");
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    if !tensors.index.contains_key(&name("bitmask")) {
        return Ok(None);
    }
    let shape = tensors.take_any(&name("shape"))?;
    if shape.dtype != "I64" || shape.to - shape.from != 16 {
        return Err(wrong("its `shape` are not two sizes".into()));
    }
    let [n, k] = [0, 1].map(|i| shape.integer(tensors.shards, i));
    let elements =
        n.checked_mul(k).filter(|e| *e > 0).ok_or_else(|| wrong(format!("it is {n} rows of {k} columns")))?;
    let mask = tensors.take(&name("bitmask"), &["U8"], &[n, k.div_ceil(8)])?;
    let values = tensors.take_any(&name("compressed"))?;
    let starts = match tensors.index.contains_key(&name("row_offsets")) {
        true => Some(tensors.take_any(&name("row_offsets"))?),
        false => None,
    };
    if starts.is_some_and(|s| s.dtype != "I64" || Some(s.to - s.from) != n.checked_mul(8)) {
        return Err(wrong(format!("its `row_offsets` do not fit {n} rows")));
    }
    let there = (values.to - values.from) / size(values.dtype);
    if there > elements {
        return Err(wrong(format!("it has {there} values for {n} rows of {k} columns")));
    }
    let sparse = Sparse { values, mask, starts, shape: [n, k] };
    sparse.check(tensors.shards, there).map_err(wrong)?;
    Ok(Some(sparse))
}

/// Bytes of an element.
fn size(dtype: &str) -> usize {
    match dtype {
        "F32" => 4,
        "F16" | "BF16" => 2,
        _ => 1,
    }
}

/// Every sparse matrix of floats.
pub(super) fn floats(tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    for stem in tensors.stems(".bitmask") {
        let Some(sparse) = take(tensors, &stem)? else { continue };
        let dtype = stored_type(sparse.values.dtype).filter(|t| t.dtype.is_some_and(|t| t.is_float()));
        let dtype = dtype.ok_or_else(|| {
            (format!("`{stem}`: its values are {}, without a scale", sparse.values.dtype), UNQUANTIZED)
        })?;
        let info = TensorInfo { dtype, shape: sparse.shape.to_vec(), bytes: sparse.values.from..sparse.values.to };
        let shard = sparse.values.shard;
        let weight = if stem.ends_with(".weight") { stem } else { format!("{stem}.weight") };
        let entry = Entry { layout: Some(Arc::new(sparse)), ..Entry::plain(shard, info) };
        tensors.index.insert(weight, entry);
    }
    Ok(())
}

impl Sparse {
    fn bits<'a>(&self, shards: &'a [Shard], row: usize) -> &'a [u8] {
        let across = self.shape[1].div_ceil(8);
        self.mask.bytes(shards).get(row * across..(row + 1) * across).unwrap_or_default()
    }

    /// The number of a row's first element.
    fn start(&self, shards: &[Shard], row: usize) -> usize {
        self.starts.map_or(row * (self.shape[1] / 2), |starts| starts.integer(shards, row))
    }

    /// Each row has the elements that its mask says.
    fn check(&self, shards: &[Shard], there: usize) -> Result<(), String> {
        let [n, k] = self.shape;
        let mut next = 0usize;
        for row in 0..n {
            let bits = self.bits(shards, row);
            let beyond = bits.last().is_some_and(|last| !k.is_multiple_of(8) && last >> (k % 8) != 0);
            if beyond || self.start(shards, row) != next {
                return Err(format!("the mask of row {row} does not fit its {k} columns, or the rows before it"));
            }
            next += bits.iter().map(|b| b.count_ones() as usize).sum::<usize>();
        }
        if next == there { Ok(()) } else { Err(format!("its mask has {next} elements, but there are {there} values")) }
    }

    /// Calls `f` with the column and the number of each element of a row.
    pub fn each(&self, shards: &[Shard], row: usize, mut f: impl FnMut(usize, usize)) {
        let mut place = self.start(shards, row);
        for (byte, mut bits) in self.bits(shards, row).iter().copied().enumerate() {
            while bits != 0 {
                f(byte * 8 + bits.trailing_zeros() as usize, place);
                bits &= bits - 1;
                place += 1;
            }
        }
    }

    /// Where its bytes are.
    pub fn places(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.values.place(), self.mask.place()]
    }
}

impl Layout for Sparse {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.places()
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let (bytes, size) = (self.values.bytes(shards), size(self.values.dtype));
        let Some(dtype) = stored_type(self.values.dtype).and_then(|t| t.dtype) else { return };
        out.fill(0.0);
        self.each(shards, row, |column, place| {
            let element = bytes.get(place * size..(place + 1) * size).unwrap_or_default();
            if let Some(out) = out.get_mut(column) {
                read_f32(dtype, element, std::slice::from_mut(out));
            }
        });
    }
}
