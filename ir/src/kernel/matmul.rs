//! Matrix products.

use super::part::{Or1, family};
use super::{Family, Norm, Outcome, Param, ParamId, Product, RowElem, Segment, Use};
use crate::eval::{EvalError, KernelRun, RowValues};
use crate::quant::ROW_GROUPS;
use crate::verify::{Input, KernelVerifier};

family! {
    /// Matrix products sharing one input. Work items are column tiles, numbered through all segments.
    Matmul {
        /// Input rows.
        x: ParamId as Use::READ,
        /// Applied to `x` by every thread for itself, into its scratch (worth it for few rows: it saves
        /// a kernel and a barrier).
        prologue: Option<Prologue>,
        /// Rows processed per pass over a tile's weights.
        tile_m: usize,
        /// Parts of the input's columns, each with a block of its own on a GPU, whose sums are added in
        /// order. Processors take all columns together.
        k_parts: usize as Or1,
        /// Outputs.
        segments: Vec<Segment>,
    }
}

/// Row-wise work fused before a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prologue {
    /// Normalization.
    pub norm: Option<Norm>,
    /// Gain `[K]`.
    pub gain: Option<ParamId>,
    /// Added after the gain, `[K]`.
    pub bias: Option<ParamId>,
    /// Storage of the result: the rows that the weights multiply.
    pub elem: RowElem,
}

impl Family for Matmul {
    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn segments_mut(&mut self) -> &mut [Segment] {
        &mut self.segments
    }

    fn product(&self) -> Option<Product<'_>> {
        Some(Product { x: self.x, prologue: self.prologue.as_ref(), experts: None })
    }

    fn tile_m_mut(&mut self) -> Option<&mut usize> {
        Some(&mut self.tile_m)
    }

    fn has_whole_groups(&self, _: &[Param], elem: RowElem) -> bool {
        !elem.by_row() && self.segments.len() == 1
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (self.segments.iter().map(Segment::tiles).sum(), false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        if self.tile_m == 0 {
            v.error("tile-m", "processes 0 rows per pass");
        }
        if self.k_parts == 0 {
            v.error("k-parts", "cuts the columns of the input in 0 parts");
        }
        let x = v.rows(self.x, v.kernel.rows);
        let input = x.map(|(cols, elem)| Input { cols, elem: self.prologue.map_or(elem, |p| p.elem) });
        if let (Some(p), Some((cols, elem))) = (&self.prologue, x) {
            p.verify(v, cols, elem);
        }
        v.segments(&self.segments, Some(input.unwrap_or(Input { cols: 0, elem: RowElem::F32 })));
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let input: RowValues = (0..x.m)
            .map(|i| match &self.prologue {
                Some(p) => p.eval(x, x.row(self.x, i)),
                None => x.row(self.x, i),
            })
            .collect();
        let segment = |s: &Segment| {
            let lanes: Vec<RowValues> = s.weights.iter().map(|w| x.product(&input, *w)).collect();
            Ok((s.store.clone(), x.segment(s, &lanes)?))
        };
        Ok(Outcome::rows(self.segments.iter().map(segment).collect::<Result<_, EvalError>>()?))
    }
}

impl Prologue {
    /// Rows as they are, in the storage `elem`.
    pub fn plain(elem: RowElem) -> Prologue {
        Prologue { norm: None, gain: None, bias: None, elem }
    }

    fn verify(&self, v: &mut KernelVerifier<'_>, cols: usize, elem: RowElem) {
        if elem != RowElem::F32 {
            v.error("prologue-input", "a prologue needs f32 rows");
        }
        if *self == Prologue::plain(RowElem::F32) {
            v.error("prologue-empty", "the prologue does nothing");
        }
        if let Some(norm) = &self.norm {
            v.norm(norm, cols);
        }
        for (name, vector) in [("gain", self.gain), ("bias", self.bias)] {
            if let Some(len) = vector.and_then(|g| v.vector(g)).filter(|len| *len != cols) {
                v.error("vector-length", format!("the {name} has {len} elements for {cols} columns"));
            }
        }
        if let Some(group) = self.elem.group().filter(|g| !ROW_GROUPS.contains(g)) {
            v.error("prologue-quant", format!("quantizes in groups of {group}"));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>, mut row: Vec<f64>) -> Vec<f64> {
        if let Some(norm) = &self.norm {
            x.norm(&mut row, norm);
        }
        x.gain(&mut row, self.gain);
        x.bias(&mut row, self.bias);
        x.stored(row, self.elem)
    }
}
