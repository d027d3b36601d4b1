//! The description of a family of GGUF models, and parts that several share.

use crate::checkpoint::gguf::file::{Config, File, Wrong, head_dim, size};
use crate::checkpoint::gguf::names::Names;
use crate::checkpoint::stored::{Entry, Order, Turns};
use std::collections::BTreeMap;

/// Models of one `general.architecture`.
pub(in crate::checkpoint::gguf) struct Family {
    /// Its name in GGUF, and the prefix of its keys.
    pub name: &'static str,
    /// `model_type` and class in Transformers.
    pub model_type: (&'static str, &'static str),
    /// If a name has several lines, the first that suits a file counts.
    pub suits: fn(&File) -> bool,
    /// Keys beside the common ones, and fields.
    pub keys: &'static [Keys],
    /// Keys that are read in other ways, or have no effect on the model's results.
    pub quiet: &'static [&'static str],
    /// Fields that follow from the family.
    pub fixed: &'static [(&'static str, bool)],
    /// Names before those that all families share.
    pub names: &'static [Names],
    /// Fields that are true if there is a tensor; `{}` is the number of any layer.
    pub found: &'static [(&'static str, &'static str)],
    /// How values of keys are read, and those that it has no key for.
    pub reading: Reading,
    /// How its tensors differ from those of Transformers.
    pub stored: Stored,
    /// A note for the user about a file.
    pub note: fn(&File) -> Option<String>,
    /// Fields that do not simply come from a key.
    pub adapt: fn(&File, &mut Config) -> Result<(), Wrong>,
}

/// How values of keys are read.
pub(in crate::checkpoint::gguf) struct Reading {
    /// Keys whose lists may have several sizes, one for each layer.
    pub lists: &'static [&'static str],
    /// Factors of frequencies are no scaling: `adapt` reads them.
    pub own_factors: bool,
    /// Layers of the model whose scores are scaled by its width instead of its heads.
    pub unscaled: Option<u64>,
    /// `expert_gating_func`, where a file has it.
    pub gating: u64,
}

impl Reading {
    pub(super) const PLAIN: Reading = Reading { lists: &[], own_factors: false, unscaled: None, gating: 1 };

    /// The reading of families whose experts are chosen by sigmoids.
    pub(super) const SIGMOIDS: Reading = Reading { gating: SIGMOID, ..Reading::PLAIN };
}

/// How tensors are stored.
pub(in crate::checkpoint::gguf) struct Stored {
    /// In which order rows of Q and K are.
    pub heads: Heads,
    /// Gains of norms.
    pub gains: Gains,
    /// Rates are stored without their sign.
    pub slopes: bool,
    /// Tensors that are made of others, or put in another order.
    pub joins: &'static [Recipe],
    /// Vectors that are metadata.
    pub values: fn(&File) -> Result<Constants, Wrong>,
    /// All tensors, where names and recipes do not suffice.
    pub tensors: Option<Make>,
}

impl Stored {
    /// As in Transformers.
    pub(super) const SAME: Stored = Stored {
        heads: Heads::Same,
        gains: Gains::Same,
        slopes: false,
        joins: &[],
        values: |_| Ok(vec![]),
        tensors: None,
    };

    /// With [`Heads::Neighbours`].
    pub(super) const NEIGHBOURS: Stored = Stored { heads: Heads::Neighbours, ..Stored::SAME };

    /// With [`Gains::OneMore`], but for those of states.
    pub(super) const ONE_MORE: Stored = Stored { gains: Gains::OneMore { but: STATES }, ..Stored::SAME };
}

/// The norm of what is read of states.
pub(super) const STATES: &[&str] = &["ssm_norm.weight"];

/// Gains of norms, as they are stored.
#[derive(Clone, Copy)]
pub(in crate::checkpoint::gguf) enum Gains {
    /// As in Transformers.
    Same,
    /// As factors, one more than in Transformers.
    OneMore {
        /// Ends of the names of those that are as in Transformers.
        but: &'static [&'static str],
    },
}

impl Gains {
    /// Whether that of a tensor is one more.
    pub fn is_more(self, name: &str) -> bool {
        let Gains::OneMore { but } = self else { return false };
        let kept = |end: &&str| name.strip_suffix(*end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        !but.iter().any(kept)
    }
}

/// The order of the rows of queries and keys of a head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::checkpoint::gguf) enum Heads {
    /// That of Transformers.
    Same,
    /// Those that rotate together are neighbours, instead of half a head apart.
    Neighbours,
    /// Those that rotate together are half of the rotated rows apart, instead of neighbours.
    Halves,
}

impl Family {
    /// Where the row of a head is that Transformers has at a place, by a configuration.
    pub fn order(&self, config: &Config) -> Option<Order> {
        let head_dim = head_dim(config)?;
        let part = config.get("partial_rotary_factor").and_then(serde_json::Value::as_f64).unwrap_or(1.0);
        match self.stored.heads {
            Heads::Same => None,
            Heads::Neighbours => Some(Order::Neighbours { head_dim }),
            Heads::Halves => Some(Order::Halves { head_dim, rotated: (head_dim as f64 * part).round() as usize }),
        }
    }

    /// Whether the model has queries, keys and values as one matrix, as any file may.
    pub fn has_whole_attention(&self) -> bool {
        let whole = |name: &str| name.contains("attn_qkv");
        let named = self.names.iter().copied().flatten().any(|(from, _)| whole(from));
        self.name == "phi3" || named || self.stored.joins.iter().any(|join| join.from.iter().any(|from| whole(from)))
    }
}

/// Makes a family's tensors itself.
pub(in crate::checkpoint::gguf) type Make = fn(&File) -> Result<Made, Wrong>;

/// Tensors by the names of the model, and notes for the user about them.
pub(in crate::checkpoint::gguf) type Made = (BTreeMap<String, Entry>, Vec<String>);

/// Vectors by the names of Transformers' tensors.
pub(in crate::checkpoint::gguf) type Constants = Vec<(String, Vec<f32>)>;

/// Keys after the prefix of the architecture, and the fields that they are.
pub(in crate::checkpoint::gguf) type Keys = &'static [(&'static str, &'static str)];

/// A tensor of Transformers.
pub(in crate::checkpoint::gguf) struct Recipe {
    /// Its name; `{}` is the number of the layer.
    pub to: &'static str,
    /// The tensors of files that it is made of, all required, one below the other.
    pub from: &'static [&'static str],
    /// The reordered dimension.
    pub lines: Lines,
    /// How they lie, by the configuration and the rows of each.
    pub turns: fn(&Config, &[usize]) -> Turns,
}

/// The reordered dimension of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::checkpoint::gguf) enum Lines {
    /// Its rows, or the elements of a vector.
    Rows,
    /// Its columns.
    Columns,
}

/// As they are, one below the other.
pub(super) fn below(_: &Config, rows: &[usize]) -> Turns {
    Turns { before: 0, groups: 1, parts: rows.to_vec() }
}

/// Queries, keys and values of each head, of as many as there are.
pub(super) fn head_by_head(config: &Config, _: &[usize]) -> Turns {
    Turns { before: 0, groups: size(config, "num_attention_heads"), parts: vec![head_dim(config).unwrap_or(0); 3] }
}

pub(super) const fn rows(
    to: &'static str,
    from: &'static [&'static str],
    turns: fn(&Config, &[usize]) -> Turns,
) -> Recipe {
    Recipe { to, from, lines: Lines::Rows, turns }
}

pub(super) fn has_experts(file: &File) -> bool {
    file.size("expert_count").unwrap_or(0) > 0
}

pub(super) const Q_BIAS: &str = "blk.0.attn_q.bias";

pub(super) const ATTENTION_BIAS: &[(&str, &str)] = &[("attention_bias", Q_BIAS)];

pub(super) const WINDOW: Keys = &[("attention.sliding_window", "sliding_window")];

/// Keys of latent attention.
pub(super) const LATENT: Keys = &[("attention.q_lora_rank", "q_lora_rank"), ("attention.kv_lora_rank", "kv_lora_rank")];

/// Keys of experts as in DeepSeek's models.
pub(super) const EXPERTS: Keys = &[
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("expert_count", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
];

/// `expert_gating_func` of experts that are chosen by sigmoids.
pub(super) const SIGMOID: u64 = 2;

pub(super) const LAYER_NORM: (&str, &str) = ("attention.layer_norm_epsilon", "layer_norm_eps");

pub(super) const PLAIN: Family = Family {
    name: "",
    model_type: ("", ""),
    suits: |_| true,
    keys: &[],
    quiet: &[],
    fixed: &[],
    found: &[],
    names: &[],
    reading: Reading::PLAIN,
    stored: Stored::SAME,
    note: |_| None,
    adapt: |_, _| Ok(()),
};
