//! Elementwise work on its own.

use super::part::family;
use super::{Family, Outcome, Param, RowElem, Segment};
use crate::eval::{EvalError, KernelRun};
use crate::verify::KernelVerifier;

family! {
    /// Elementwise kernel. Work items are rows.
    Pointwise {
        /// Outputs; their expressions have no accumulators.
        segments: Vec<Segment>,
    }
}

impl Family for Pointwise {
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
}
