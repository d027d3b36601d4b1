//! Elementwise work on its own.

use super::expr::segment_operands;
use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, RowElem, Segment, Use};
use crate::eval::{EvalError, KernelRun};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// Elementwise kernel. Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointwise {
    /// Outputs; their expressions have no accumulators.
    pub segments: Vec<Segment>,
}

impl Family for Pointwise {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        segment_operands(&mut self.segments, f);
    }

    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn segments_mut(&mut self) -> &mut [Segment] {
        &mut self.segments
    }

    fn has_whole_groups(&self, _: &[Param], elem: RowElem) -> bool {
        !elem.by_row() && self.segments.len() == 1
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.segments(&self.segments, None);
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let stores = self.segments.iter().map(|s| Ok((s.store.clone(), x.segment(s, &[])?)));
        Ok(Outcome::rows(stores.collect::<Result<_, EvalError>>()?))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![("segments", Field::Segments(&self.segments))]
    }
}

impl ReadFamily for Pointwise {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Pointwise> {
        Ok(Pointwise { segments: r.segments(p)? })
    }
}
