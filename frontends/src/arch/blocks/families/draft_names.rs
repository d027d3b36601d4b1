//! What files call a draft head.

use crate::arch::blocks::names::{self, HEAD, Kind, NORM, Names, Part, TABLE, Table};

/// Norm of the embeddings.
pub(crate) const EMBED_NORM: Part = Part("draft.embed_norm");
/// Norm of the rows that come with tokens.
pub(crate) const ROW_NORM: Part = Part("draft.row_norm");
/// Both to one row, `[hidden, 2·hidden]`, the embedding first.
pub(crate) const JOIN: Part = Part("draft.join");

/// What checkpoints call a draft head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftNames {
    /// As a layer with a number after the last, with the further parts beside its blocks.
    OfLayer,
    /// `mtp.layers.N`, with the further parts, of all together, in `mtp`.
    Apart,
}

impl DraftNames {
    /// Its tensors beside those that a layer has.
    fn own(self) -> Table {
        match self {
            DraftNames::OfLayer => &[
                (TABLE, "model.layers.{}.embed_tokens"),
                (HEAD, "model.layers.{}.shared_head.head"),
                (NORM, "model.layers.{}.shared_head.norm"),
                (EMBED_NORM, "model.layers.{}.enorm"),
                (ROW_NORM, "model.layers.{}.hnorm"),
                (JOIN, "model.layers.{}.eh_proj"),
            ],
            DraftNames::Apart => &[
                (TABLE, "mtp.embed_tokens"),
                (NORM, "mtp.norm"),
                (EMBED_NORM, "mtp.pre_fc_norm_embedding"),
                (ROW_NORM, "mtp.pre_fc_norm_hidden"),
                (JOIN, "mtp.fc"),
            ],
        }
    }

    /// What the tensor of a layer is called, if that is the head's.
    fn of_layer(self, tensor: &str) -> String {
        match (self, tensor.strip_prefix("model.")) {
            (DraftNames::Apart, Some(rest)) => format!("mtp.{rest}"),
            _ => tensor.to_string(),
        }
    }
}

/// A draft head of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftHead {
    /// The number that it has as a layer.
    pub layer: usize,
    /// What files call it.
    pub names: DraftNames,
}

impl DraftHead {
    /// Whether a tensor is of this head, or of all.
    pub(crate) fn has(self, tensor: &str) -> bool {
        let name = names::alone(tensor);
        let layer = format!("layers.{}.", self.layer);
        match self.names {
            DraftNames::OfLayer => name.strip_prefix("model.").is_some_and(|rest| rest.starts_with(&layer)),
            DraftNames::Apart => {
                name.strip_prefix("mtp.").is_some_and(|rest| rest.starts_with(&layer) || !rest.starts_with("layers."))
            }
        }
    }

    /// What a checkpoint that `has` some tensors calls one of what is lifted.
    pub(crate) fn tensor_of(
        self,
        names: Names,
        (part, kind): (Part, Kind),
        place: (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let own = self.names.own().iter().find(|(p, _)| *p == part).map(|(_, name)| {
            let module = name.replace("{}", &self.layer.to_string());
            kind.named(&module)
        });
        // Table and head are the model's where there are no others.
        let own = own.filter(|name| !matches!(part, TABLE | HEAD) || has(name));
        own.or_else(|| match place.0 {
            Some(_) => {
                let name = names.tensor_of(part, kind, place, |name| has(&self.names.of_layer(name)))?;
                Some(self.names.of_layer(&name))
            }
            None => names.tensor_of(part, kind, place, has),
        })
    }
}
