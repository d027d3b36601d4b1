//! What checkpoints call their tensors.
//!
//! The code that builds a model names no tensor: it asks for a [`Part`], and a table of [`Names`]
//! says what the checkpoint calls it. A family of checkpoints is one table; an architecture lists
//! the tables that hold for it, its own first.

/// What a tensor is for. The text is also the name of the parameter that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part(pub &'static str);

/// Embedding table.
pub(super) const TABLE: Part = Part("table");
/// Head, unless it is the embedding table.
pub(super) const HEAD: Part = Part("head");
/// Norm before the head.
pub(super) const NORM: Part = Part("norm");
/// Norm before attention.
pub(super) const ATTN_NORM: Part = Part("attn.norm");
/// Norm of what attention adds.
pub(super) const ATTN_POST_NORM: Part = Part("attn.post_norm");
/// Queries.
pub(super) const ATTN_Q: Part = Part("attn.q");
/// Keys.
pub(super) const ATTN_K: Part = Part("attn.k");
/// Values.
pub(super) const ATTN_V: Part = Part("attn.v");
/// Queries, keys and values in one matrix.
pub(super) const ATTN_QKV: Part = Part("attn.qkv");
/// Norm of queries.
pub(super) const ATTN_Q_NORM: Part = Part("attn.q_norm");
/// Norm of keys.
pub(super) const ATTN_K_NORM: Part = Part("attn.k_norm");
/// Output of attention.
pub(super) const ATTN_OUT: Part = Part("attn.out");
/// Norm before the MLP.
pub(super) const MLP_NORM: Part = Part("mlp.norm");
/// Norm of what the MLP adds.
pub(super) const MLP_POST_NORM: Part = Part("mlp.post_norm");
/// The gate of a gated MLP.
pub(super) const MLP_GATE: Part = Part("mlp.gate");
/// Into the MLP.
pub(super) const MLP_UP: Part = Part("mlp.up");
/// Gate and up in one matrix.
pub(super) const MLP_GATE_UP: Part = Part("mlp.gate_up");
/// Out of the MLP.
pub(super) const MLP_DOWN: Part = Part("mlp.down");

/// What of a part a tensor is: how its parameter and its tensor end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows that are looked up.
    Table,
    /// A matrix.
    Matrix,
    /// What a product adds.
    Bias,
    /// What a norm multiplies by.
    Gain,
}

impl Kind {
    /// Endings of the parameter and of the tensor.
    fn endings(self) -> (&'static str, &'static str) {
        match self {
            Kind::Table => ("", ".weight"),
            Kind::Matrix => (".w", ".weight"),
            Kind::Bias => (".b", ".bias"),
            Kind::Gain => (".g", ".weight"),
        }
    }

    /// The parameter that reads it.
    pub(super) fn parameter(self, part: Part) -> String {
        format!("{}{}", part.0, self.endings().0)
    }
}

/// Names without their endings, `{}` for the number of the layer.
pub(super) type Table = &'static [(Part, &'static str)];

/// The tables that hold for an architecture; the first that has a part counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names(pub &'static [Table]);

/// Checkpoints of Transformers, for most decoders.
pub(super) const HUGGING_FACE: Table = &[
    (TABLE, "model.embed_tokens"),
    (HEAD, "lm_head"),
    (NORM, "model.norm"),
    (ATTN_NORM, "model.layers.{}.input_layernorm"),
    (ATTN_Q, "model.layers.{}.self_attn.q_proj"),
    (ATTN_K, "model.layers.{}.self_attn.k_proj"),
    (ATTN_V, "model.layers.{}.self_attn.v_proj"),
    (ATTN_QKV, "model.layers.{}.self_attn.qkv_proj"),
    (ATTN_Q_NORM, "model.layers.{}.self_attn.q_norm"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.k_norm"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_GATE, "model.layers.{}.mlp.gate_proj"),
    (MLP_UP, "model.layers.{}.mlp.up_proj"),
    (MLP_GATE_UP, "model.layers.{}.mlp.gate_up_proj"),
    (MLP_DOWN, "model.layers.{}.mlp.down_proj"),
];

/// Where the norm after attention is called what most call the one before the MLP; the MLP's
/// follows. Before [`HUGGING_FACE`].
pub(super) const POST_NORMS: Table = &[
    (ATTN_POST_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_POST_NORM, "model.layers.{}.post_feedforward_layernorm"),
];

/// With norms before the blocks beside [`POST_NORMS`].
pub(super) const SANDWICH_NORMS: Table = &[(MLP_NORM, "model.layers.{}.pre_feedforward_layernorm")];

impl Names {
    /// What a checkpoint calls a tensor of layer `layer`; `None` where no table has the part.
    pub(super) fn tensor(&self, part: Part, kind: Kind, layer: Option<usize>) -> Option<String> {
        let (_, name) = self.0.iter().copied().flatten().find(|(p, _)| *p == part)?;
        let layer = layer.map_or(String::new(), |i| i.to_string());
        Some(format!("{}{}", name.replace("{}", &layer), kind.endings().1))
    }

    /// The layer that a tensor belongs to by its name.
    pub(super) fn layer(&self, tensor: &str) -> Option<usize> {
        let numbered = self.0.iter().copied().flatten().filter_map(|(_, name)| name.split_once("{}"));
        let mut rests = numbered.filter_map(|(before, _)| tensor.strip_prefix(before));
        rests.find_map(|rest| rest.split('.').next()?.parse().ok())
    }

    /// For a bias of a layer by its name: whether it is one of attention's, as the matrices in the
    /// same module are.
    pub(super) fn bias_of_attention(&self, tensor: &str) -> Option<bool> {
        let layer = self.layer(tensor)?;
        let numbered = self.0.iter().copied().flatten().filter(|(_, name)| name.contains("{}"));
        let mut modules = numbered
            .filter_map(|(part, name)| Some((part, name.rsplit_once('.')?.0.replace("{}", &layer.to_string()))));
        let inside = |module: &str| tensor.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        let of_layer = |module: &str| module.ends_with(&format!(".{layer}"));
        let (part, _) = modules.find(|(_, module)| inside(module) && !of_layer(module))?;
        tensor.ends_with(Kind::Bias.endings().1).then_some(part.0.starts_with("attn."))
    }
}
