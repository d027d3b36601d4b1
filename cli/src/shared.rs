//! Weights of an artifact with versions for several machines: versions that read weights in the
//! same order share them.
//!
//! Processors of all levels read panels, GPUs of all kinds fragments. So there is one list of
//! distinct weights per order, packed once; each version finds its own in it. The first version's
//! weights come first and in its plan's order.

use llmcc_abi::Span;
use llmcc_ir::plan::{PackedWeight, Plan};
use llmcc_ir::target::TargetSpec;
use llmcc_passes::pack::{ALIGN, PackReport, weight_offsets};

/// The weights of all versions.
pub struct SharedWeights {
    /// Plans with distinct weights, to be packed one after the other.
    pub lists: Vec<Plan>,
    /// For each version: its list, and the place in the list of each of its weights.
    places: Vec<(usize, Vec<usize>)>,
}

impl SharedWeights {
    /// Collects the weights of versions.
    pub fn new<'a>(versions: impl IntoIterator<Item = (&'a Plan, &'a TargetSpec)>) -> SharedWeights {
        let mut orders = vec![];
        let mut shared = SharedWeights { lists: vec![], places: vec![] };
        for (plan, target) in versions {
            let list = orders.iter().position(|p| *p == target.packing()).unwrap_or_else(|| {
                orders.push(target.packing());
                shared.lists.push(Plan { weights: vec![], ..plan.clone() });
                orders.len() - 1
            });
            let weights = &mut shared.lists[list].weights;
            let place = |w: &PackedWeight| {
                weights.iter().position(|known| known == w).unwrap_or_else(|| {
                    weights.push(w.clone());
                    weights.len() - 1
                })
            };
            let places = plan.weights.iter().map(place).collect();
            shared.places.push((list, places));
        }
        shared
    }

    /// Bytes of each list.
    pub fn bytes(&self) -> Vec<u64> {
        self.lists.iter().map(list_bytes).collect()
    }

    /// Where each weight begins in the segment, ascending.
    pub fn offsets(&self) -> Vec<u64> {
        let mut start = 0;
        let mut all = vec![];
        for (list, bytes) in self.lists.iter().zip(self.bytes()) {
            all.extend(weight_offsets(list).into_iter().map(|at| start + at));
            start += bytes;
        }
        all
    }

    /// For each version the relative errors of its weights, in its plan's order, from reports of
    /// packing the lists; 0 where packing was exact.
    pub fn errors(&self, reports: &[PackReport]) -> Vec<Vec<f64>> {
        let error = |list: usize, i: usize| reports.get(list)?.tensors.get(i)?.error.map(|e| e.relative_rms);
        self.places
            .iter()
            .map(|(list, places)| places.iter().map(|i| error(*list, *i).unwrap_or(0.0)).collect())
            .collect()
    }

    /// For each version: the part of the weights segment that it reads, and the offsets in it of
    /// its weights.
    pub fn spans(&self) -> Vec<(Span, Vec<u64>)> {
        let bytes = self.bytes();
        let span = |(list, places): &(usize, Vec<usize>)| {
            let offsets = weight_offsets(&self.lists[*list]);
            let span = Span { off: bytes[..*list].iter().sum(), len: bytes[*list] };
            (span, places.iter().map(|i| offsets[*i]).collect())
        };
        self.places.iter().map(span).collect()
    }
}

fn list_bytes(list: &Plan) -> u64 {
    let last = weight_offsets(list).pop().zip(list.weights.last());
    last.map_or(0, |(at, w)| (at + w.storage.bytes() as u64).next_multiple_of(ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::plan::{Storage, WeightExpr};
    use llmcc_ir::target::find;

    fn plan(weights: &[usize]) -> Plan {
        let vector =
            |i: &usize| PackedWeight { expr: WeightExpr::Weight(*i), storage: Storage::Vector { len: 16 * (i + 1) } };
        Plan {
            name: String::new(),
            info: llmcc_ir::graph::ModelInfo { vocab: 1, hidden: 1, max_context: 1 },
            states: vec![],
            kernels: vec![],
            weights: weights.iter().map(vector).collect(),
            slots: vec![],
            entries: vec![],
            regimes: vec![],
        }
    }

    #[test]
    fn equal_weights_of_one_order_are_packed_once() {
        let (a, b, c) = (plan(&[0, 1, 2]), plan(&[2, 0, 3]), plan(&[0, 1]));
        let target = |name| find(name).expect("a target");
        let shared = SharedWeights::new([(&a, target("x86-64-v3")), (&b, target("x86-64-v4")), (&c, target("sm90"))]);
        assert_eq!(shared.bytes(), [64 + 128 + 192 + 256, 64 + 128]);
        assert_eq!(shared.offsets(), [0, 64, 192, 384, 640, 704]);
        let spans = shared.spans();
        assert_eq!((spans[0].0.off, spans[0].0.len, &spans[0].1[..]), (0, 640, &[0, 64, 192][..]));
        assert_eq!((spans[1].0.off, spans[1].0.len, &spans[1].1[..]), (0, 640, &[192, 0, 384][..]));
        assert_eq!((spans[2].0.off, spans[2].0.len, &spans[2].1[..]), (640, 192, &[0, 64][..]));
    }
}
