//! Which tensors of a checkpoint are what to a model.

use super::Model;
use super::names::{ATTN_K, ATTN_K_NORM, ATTN_V, HEAD, Kind, Part, TABLE};
use super::nested;
use crate::checkpoint::Checkpoint;
use llmcc_ir::output::Output;

impl Model {
    /// What the checkpoint calls embedding table and head, if they are the same.
    pub(crate) fn tied_tensors(&self, ckpt: &Checkpoint) -> Option<[String; 2]> {
        let name = |part, kind| {
            let name = self.arch.names.tensor_of(part, kind, (None, None), |name| ckpt.info(name).is_some())?;
            Some(if self.nested { nested::located(ckpt, name) } else { name })
        };
        self.facts().tied.then_some([name(TABLE, Kind::Table)?, name(HEAD, Kind::Matrix)?])
    }

    /// Whether a tensor is one of a part that is left out of a model with this output.
    pub(crate) fn leaves_out(&self, tensor: &str, output: Output) -> bool {
        let layers = self.facts().layers;
        let layer = || self.layer_of(&tensor.replacen("language_model.", "", 1));
        let ahead = || layer().is_some_and(|i| i >= layers && i - layers < self.ahead);
        let shares = || self.is_shared(tensor);
        self.nested && !nested::of_text(tensor)
            || ahead()
            || shares()
            || self.shape.chooses(tensor)
            || output != Output::Logits && self.spares(&tensor.replacen("language_model.", "", 1))
    }

    /// What a tensor of integers holds that follows from the configuration.
    pub(crate) fn integers(&self, tensor: &str) -> Option<Vec<i64>> {
        self.shape.integers(tensor)
    }

    /// Whether a tensor is for keys or values of a layer that reads those of another.
    fn is_shared(&self, tensor: &str) -> bool {
        let name = tensor.replacen("language_model.", "", 1);
        let Some(layer) = self.layer_of(&name).filter(|i| self.shape.shares_keys(*i)) else { return false };
        let of = |part: Part| {
            let mut kinds = [Kind::Matrix, Kind::Bias, Kind::Gain].into_iter();
            kinds.any(|kind| self.arch.names.tensor(part, kind, Some(layer)).is_some_and(|n| n == name))
        };
        [ATTN_K, ATTN_V, ATTN_K_NORM].into_iter().any(of)
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
