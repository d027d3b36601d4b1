//! The purpose of a checkpoint's tensors to a model.

use super::model::Model;
use crate::arch::blocks::names::{self, ATTN_K, ATTN_K_NORM, ATTN_V, HEAD, Kind, Part, TABLE};
use crate::arch::reading::nested;
use crate::checkpoint::Checkpoint;
use llmcc_ir::output::Output;

impl Model {
    /// The checkpoint's names of embedding table and head, if they are the same tensor.
    pub(crate) fn tied_tensors(&self, ckpt: &Checkpoint) -> Option<[String; 2]> {
        let name = |part, kind| {
            let has = |name: &str| ckpt.info(&self.located(ckpt, name)).is_some();
            Some(self.located(ckpt, &self.arch.names.tensor_of(part, kind, (None, None), has)?))
        };
        self.facts().tied.then_some([name(TABLE, Kind::Table)?, name(HEAD, Kind::Matrix)?])
    }

    /// The checkpoint's name of a text model's tensor.
    pub(crate) fn located(&self, ckpt: &Checkpoint, tensor: &str) -> String {
        let tensor = tensor.to_string();
        if self.nested { nested::located(ckpt, tensor) } else { tensor }
    }

    /// Whether a tensor is one of a part that is left out of a model with this output.
    pub(crate) fn leaves_out(&self, tensor: &str, output: Output) -> bool {
        let name = names::alone(tensor);
        self.nested && nested::of_other_part(tensor)
            || self.layer_of(&name).is_some_and(|i| self.leaves_out_of_layer(i, &name))
            || self.shape.chooses(tensor)
            || output != Output::Logits && self.spares(&name)
    }

    /// Whether a tensor only chooses among tokens; here all tokens are taken.
    pub(crate) fn chooses(&self, tensor: &str) -> bool {
        self.shape.chooses(tensor)
    }

    /// The same of a tensor of a layer: of one that predicts further tokens, or is passed over, or reads the
    /// keys of another.
    fn leaves_out_of_layer(&self, layer: usize, name: &str) -> bool {
        let layers = self.facts().layers;
        let ahead = layer >= layers && layer - layers < self.ahead;
        ahead || self.shape.passes(layer) || self.is_shared(layer, name)
    }

    /// Contents of a tensor of integers that follow from the configuration.
    pub(crate) fn integers(&self, tensor: &str) -> Option<Vec<i64>> {
        self.shape.integers(&names::alone(tensor))
    }

    /// Whether a tensor of a layer is for keys or values, and the layer reads another's.
    fn is_shared(&self, layer: usize, name: &str) -> bool {
        let of = |part: Part| {
            let mut kinds = [Kind::Matrix, Kind::Bias, Kind::Gain].into_iter();
            kinds.any(|kind| self.arch.names.tensor(part, kind, Some(layer)).is_some_and(|n| n == name))
        };
        self.shape.shares_keys(layer) && [ATTN_K, ATTN_V, ATTN_K_NORM].into_iter().any(of)
    }

    /// Whether a tensor is of no use for embeddings.
    fn spares(&self, tensor: &str) -> bool {
        let head = |kind| self.arch.names.tensor_of(HEAD, kind, (None, None), |n| n == tensor);
        [Kind::Matrix, Kind::Bias].into_iter().filter_map(head).any(|n| n == tensor)
            || self.shape.spare().iter().any(|start| tensor.starts_with(start))
    }

    /// The layer that a tensor belongs to by its name.
    pub(crate) fn layer_of(&self, tensor: &str) -> Option<usize> {
        self.arch.names.layer(tensor)
    }

    /// For the bias of a layer of the model by its name: whether it is one of attention's.
    pub(crate) fn bias_of_attention(&self, tensor: &str) -> Option<bool> {
        let of_model = self.layer_of(tensor).is_some_and(|i| i < self.facts().layers);
        self.arch.names.bias_of_attention(tensor).filter(|_| of_model)
    }
}
