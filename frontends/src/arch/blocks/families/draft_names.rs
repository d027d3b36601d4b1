//! Names of a draft head in files.

use crate::arch::blocks::names::{self, HEAD, Kind, NORM, Names, Part, TABLE, Table, entries, names};

/// Norm of the embeddings.
pub(crate) const EMBED_NORM: Part = Part("draft.embed_norm");
/// Norm of the rows that come with tokens.
pub(crate) const ROW_NORM: Part = Part("draft.row_norm");
/// Both to one row, `[hidden, 2·hidden]`, the embedding first, unless [`DraftNames::rows_first`].
pub(crate) const JOIN: Part = Part("draft.join");

/// Naming schemes of draft heads in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftNames {
    /// As a layer with a number after the last, with the further parts beside its blocks.
    OfLayer,
    /// `mtp.layers.N`, with the further parts, of all together, in `mtp`.
    Apart,
    /// `model.mtp_layers.N`, with the further parts, each head's, beside its blocks (MiMo).
    OfModel,
}

impl DraftNames {
    /// Its tensors beside those that a layer has.
    fn own(self) -> Table {
        match self {
            DraftNames::OfLayer => names! {
                "model.layers.{}." {
                    TABLE => "embed_tokens", HEAD => "shared_head.head", NORM => "shared_head.norm",
                    EMBED_NORM => "enorm", ROW_NORM => "hnorm", JOIN => "eh_proj",
                }
            },
            DraftNames::Apart => names! {
                "mtp." {
                    TABLE => "embed_tokens", NORM => "norm", EMBED_NORM => "pre_fc_norm_embedding",
                    ROW_NORM => "pre_fc_norm_hidden", JOIN => "fc",
                }
            },
            DraftNames::OfModel => names! {
                "model.mtp_layers.{}." {
                    NORM => "final_layernorm", EMBED_NORM => "token_layernorm", ROW_NORM => "hidden_layernorm",
                    JOIN => "input_proj",
                }
            },
        }
    }

    /// Whether the columns of the given rows come before the embedding's.
    pub(crate) fn rows_first(self) -> bool {
        self == DraftNames::OfModel
    }

    /// The name of a layer's tensor, if it belongs to the head.
    fn of_layer(self, tensor: &str) -> String {
        match (self, tensor.strip_prefix("model.")) {
            (DraftNames::Apart, Some(rest)) => format!("mtp.{rest}"),
            (DraftNames::OfModel, Some(rest)) => match rest.strip_prefix("layers.") {
                Some(rest) => format!("model.mtp_layers.{rest}"),
                None => tensor.to_string(),
            },
            _ => tensor.to_string(),
        }
    }
}

/// A draft head of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftHead {
    /// The number that it has as a layer.
    pub layer: usize,
    /// Naming scheme in files.
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
            DraftNames::OfModel => name
                .strip_prefix("model.mtp_")
                .or(name.strip_prefix("mtp_"))
                .is_some_and(|rest| rest.starts_with(&layer)),
        }
    }

    /// The name of a tensor in a checkpoint that `has` some tensors.
    pub(crate) fn tensor_of(
        self,
        names: Names,
        (part, kind): (Part, Kind),
        place: (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let own = entries(self.names.own()).find(|(p, ..)| *p == part).map(|(_, prefix, name)| {
            let module = format!("{prefix}{name}").replace("{}", &self.layer.to_string());
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
