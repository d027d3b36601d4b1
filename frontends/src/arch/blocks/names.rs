//! Names of tensors in checkpoints.
//!
//! The code that builds a model names no tensor: it asks for a [`Part`], and a table of [`Names`]
//! gives the checkpoint's name. A family of checkpoints is one table; an architecture lists the
//! tables that hold for it, its own first.

/// The purpose of a tensor. The text is also the name of the parameter that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part(pub &'static str);

/// Embedding table.
pub(crate) const TABLE: Part = Part("table");
/// Embeddings of positions.
pub(crate) const POSITIONS: Part = Part("position_table");
/// Embeddings of types of tokens.
pub(crate) const TYPES: Part = Part("type_table");
/// Embeddings of the tasks that texts are for.
pub(crate) const TASKS: Part = Part("task_table");
/// Norm of embeddings.
pub(crate) const TABLE_NORM: Part = Part("table.norm");
/// The layers between the rows and the scores of classes.
pub(crate) const POOLER: Part = Part("pooler");
/// Norm of that.
pub(crate) const POOLER_NORM: Part = Part("pooler.norm");
/// Scores of classes.
pub(crate) const CLASSES: Part = Part("classes");
/// Scores of classes by a decoder's last row.
pub(crate) const SCORE: Part = Part("score");
/// Head, unless it is the embedding table.
pub(crate) const HEAD: Part = Part("head");
/// Factor of a layer's output.
pub(crate) const LAYER_SCALE: Part = Part("layer.scale");
/// Norm before the head.
pub(crate) const NORM: Part = Part("norm");
/// Norm before attention.
pub(crate) const ATTN_NORM: Part = Part("attn.norm");
/// Norm of attention's output.
pub(crate) const ATTN_POST_NORM: Part = Part("attn.post_norm");
/// Queries.
pub(crate) const ATTN_Q: Part = Part("attn.q");
/// Keys.
pub(crate) const ATTN_K: Part = Part("attn.k");
/// Values.
pub(crate) const ATTN_V: Part = Part("attn.v");
/// Bias of queries, where that is no module's.
pub(crate) const ATTN_Q_BIAS: Part = Part("attn.q_bias");
/// Bias of values, where that is no module's.
pub(crate) const ATTN_V_BIAS: Part = Part("attn.v_bias");
/// Queries, keys and values in one matrix.
pub(crate) const ATTN_QKV: Part = Part("attn.qkv");
/// Norm of queries.
pub(crate) const ATTN_Q_NORM: Part = Part("attn.q_norm");
/// Norm of keys.
pub(crate) const ATTN_K_NORM: Part = Part("attn.k_norm");
/// A score of each head beside the keys' scores.
pub(crate) const ATTN_SINKS: Part = Part("attn.sinks");
/// Bias of scores by the distance of their keys, `[buckets, heads]`.
pub(crate) const ATTN_BIAS: Part = Part("attn.bias");
/// Output of attention.
pub(crate) const ATTN_OUT: Part = Part("attn.out");
/// Its bias, where that is no module's.
pub(crate) const ATTN_OUT_BIAS: Part = Part("attn.out_bias");
/// Before it.
pub(crate) const ATTN_OUT_NORM: Part = Part("attn.out_norm");
/// The gate of attention's result.
pub(crate) const ATTN_GATE: Part = Part("attn.gate");
/// Norm before attention to the source.
pub(crate) const CROSS_NORM: Part = Part("cross.norm");
/// Norm after it.
pub(crate) const CROSS_POST_NORM: Part = Part("cross.post_norm");
/// Queries of the source.
pub(crate) const CROSS_Q: Part = Part("cross.q");
/// Keys of the source.
pub(crate) const CROSS_K: Part = Part("cross.k");
/// Values of the source.
pub(crate) const CROSS_V: Part = Part("cross.v");
/// Output of attention to the source.
pub(crate) const CROSS_OUT: Part = Part("cross.out");
/// Norm before the MLP.
pub(crate) const MLP_NORM: Part = Part("mlp.norm");
/// Norm of the MLP's output.
pub(crate) const MLP_POST_NORM: Part = Part("mlp.post_norm");
/// The gate of a gated MLP.
pub(crate) const MLP_GATE: Part = Part("mlp.gate");
/// Into the MLP.
pub(crate) const MLP_UP: Part = Part("mlp.up");
/// Gate and up in one matrix.
pub(crate) const MLP_GATE_UP: Part = Part("mlp.gate_up");
/// Out of the MLP.
pub(crate) const MLP_DOWN: Part = Part("mlp.down");
/// Before it.
pub(crate) const MLP_DOWN_NORM: Part = Part("mlp.down_norm");

/// Learned parameter of xIELU where it is positive.
pub(crate) const XIELU_P: Part = Part("mlp.alpha_p");
/// Learned parameter of xIELU where it is negative.
pub(crate) const XIELU_N: Part = Part("mlp.alpha_n");

/// Logits of the experts.
pub(crate) const ROUTER: Part = Part("router");
/// Addend to the scores of experts for the choice only.
pub(crate) const CORRECTION: Part = Part("router.correction");
/// The gate of an expert.
pub(crate) const EXPERT_GATE: Part = Part("expert.gate");
/// Into an expert.
pub(crate) const EXPERT_UP: Part = Part("expert.up");
/// Out of an expert.
pub(crate) const EXPERT_DOWN: Part = Part("expert.down");
/// Gates and up of all experts in one stack.
pub(crate) const EXPERTS_GATE_UP: Part = Part("experts.gate_up");
/// Their biases.
pub(crate) const EXPERTS_GATE_UP_BIAS: Part = Part("experts.gate_up.b");
/// Down of all experts in one stack.
pub(crate) const EXPERTS_DOWN: Part = Part("experts.down");
/// Their biases.
pub(crate) const EXPERTS_DOWN_BIAS: Part = Part("experts.down.b");
/// Gates of all experts, without up.
pub(crate) const EXPERTS_GATE: Part = Part("experts.gate");
/// Their biases.
pub(crate) const EXPERTS_GATE_BIAS: Part = Part("experts.gate.b");
/// Up of all experts, without gates.
pub(crate) const EXPERTS_UP: Part = Part("experts.up");
/// Their biases.
pub(crate) const EXPERTS_UP_BIAS: Part = Part("experts.up.b");
/// Down of all experts, not transposed where others are.
pub(crate) const EXPERTS_DOWN_ROWS: Part = Part("experts.down_rows");
/// The gate of the MLP beside the experts.
pub(crate) const SHARED_GATE: Part = Part("shared.gate");
/// Into it.
pub(crate) const SHARED_UP: Part = Part("shared.up");
/// Its gate and up in one matrix.
pub(crate) const SHARED_GATE_UP: Part = Part("shared.gate_up");
/// Out of it.
pub(crate) const SHARED_DOWN: Part = Part("shared.down");
/// How much of it is added.
pub(crate) const SHARED_MIX: Part = Part("shared.mix");

/// The role of a tensor in a part: how its parameter and its tensor end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows that are looked up.
    Table,
    /// A matrix.
    Matrix,
    /// Addend of a product.
    Bias,
    /// Factor of a norm.
    Gain,
    /// Taps of a convolution `[channels, width]`, stored as `[channels, 1, width]`.
    Taps,
    /// A matrix `[out, 3·in]` of a convolution over three rows, stored as `[out, in, 3]`: the columns of an input
    /// stand together.
    Kernel,
    /// A tensor that is no module's weight or bias.
    Bare,
    /// The same, matrices `[count, rows, columns]`, stored one below the other.
    Stack,
    /// The same, a vector that is stored as `[1, 1, n]`.
    Row,
    /// The same, a number for each head, stored as `[1, 1, heads, 1]`.
    OfHeads,
    /// A matrix for squares of pixels, their channels one after the other, stored as a convolution
    /// `[out, channels, side, side]`.
    Patches {
        /// Channels.
        channels: usize,
        /// Frames of a film, if patches have some.
        frames: Option<usize>,
        /// Pixels of a side.
        side: usize,
    },
    /// A matrix `[rows, columns]` whose columns are of so many heads, stored as
    /// `[rows, heads, columns of each]`.
    ByHead(usize),
}

/// Rows of a [`Kind::Kernel`].
pub(crate) const KERNEL: usize = 3;

impl Kind {
    /// Endings of the parameter and of the tensor.
    fn endings(self) -> (&'static str, &'static str) {
        match self {
            Kind::Table => ("", ".weight"),
            Kind::Matrix | Kind::Patches { .. } => (".w", ".weight"),
            Kind::Bias => (".b", ".bias"),
            Kind::Gain => (".g", ".weight"),
            Kind::Taps | Kind::Kernel => (".w", ".weight"),
            Kind::Bare | Kind::Stack | Kind::Row | Kind::OfHeads | Kind::ByHead(_) => ("", ""),
        }
    }

    /// The tensor of a module.
    pub(crate) fn named(self, module: &str) -> String {
        format!("{module}{}", self.endings().1)
    }

    /// The dimensions that the tensor has in a file.
    pub(crate) fn stored(self, shape: &[usize]) -> Vec<usize> {
        match (self, shape) {
            (Kind::Taps, [channels, width]) => vec![*channels, 1, *width],
            (Kind::Kernel, [out, columns]) => vec![*out, *columns / KERNEL, KERNEL],
            (Kind::Row, [n]) => vec![1, 1, *n],
            (Kind::Stack, [count, rows, columns]) => vec![count.saturating_mul(*rows), *columns],
            (Kind::Patches { channels, frames: None, side }, [out, _]) => vec![*out, channels, side, side],
            (Kind::Patches { channels, frames: Some(frames), side }, [out, _]) => {
                vec![*out, channels, frames, side, side]
            }
            (Kind::OfHeads, [heads]) => vec![1, 1, *heads, 1],
            (Kind::ByHead(heads), [rows, columns]) => vec![*rows, heads, columns / heads.max(1)],
            _ => shape.to_vec(),
        }
    }

    /// The parameter that reads it.
    pub(crate) fn parameter(self, part: Part) -> String {
        format!("{}{}", part.0, self.endings().0)
    }
}

/// Names with the prefixes that they may have, without endings: `{}` stands for the index of the layer, `{e}` for
/// that of an expert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Each name is tried behind each prefix.
    pub prefixes: &'static [&'static str],
    /// A part may have several names.
    pub names: &'static [(Part, &'static str)],
}

/// The names of a checkpoint's tensors, written with [`names!`]. Where a part has several names or prefixes, the
/// first that a checkpoint has counts.
pub(crate) type Table = &'static [Group];

/// A table of names: groups of `PART => "name"` behind one prefix, or behind any of several.
macro_rules! names {
    ($($($prefix:literal)|+ { $($part:expr => $name:literal),+ $(,)? })+) => {
        &[$($crate::arch::blocks::names::Group {
            prefixes: &[$($prefix),+],
            names: &[$(($part, $name)),+],
        }),+]
    };
}
pub(crate) use names;

/// The names of a table in their order, each as its prefix and the rest.
pub(crate) fn entries(table: Table) -> impl Iterator<Item = (Part, &'static str, &'static str)> {
    let behind = |group: &'static Group, part: Part, name: &'static str| {
        group.prefixes.iter().map(move |prefix| (part, *prefix, name))
    };
    table.iter().flat_map(move |group| group.names.iter().flat_map(move |(part, name)| behind(group, *part, name)))
}

/// The tables that hold for an architecture; the first that has a part counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names(pub &'static [Table]);

/// Checkpoints of Transformers, for most decoders.
pub(crate) const HUGGING_FACE: Table = names! {
    "model." { TABLE => "embed_tokens", NORM => "norm" }
    "" { HEAD => "lm_head" }
    "model.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_QKV => "self_attn.qkv_proj", ATTN_Q_NORM => "self_attn.q_norm",
        ATTN_K_NORM => "self_attn.k_norm", ATTN_SINKS => "self_attn.sinks", ATTN_OUT => "self_attn.o_proj",
        MLP_NORM => "post_attention_layernorm", MLP_GATE => "mlp.gate_proj", MLP_UP => "mlp.up_proj",
        MLP_GATE_UP => "mlp.gate_up_proj", MLP_DOWN => "mlp.down_proj",
    }
};

/// Experts of DeepSeek's models.
pub(crate) const DEEPSEEK_EXPERTS: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.gate", EXPERT_GATE => "mlp.experts.{e}.gate_proj", EXPERT_UP => "mlp.experts.{e}.up_proj",
        EXPERT_DOWN => "mlp.experts.{e}.down_proj", EXPERTS_GATE_UP => "mlp.experts.gate_up_proj",
        EXPERTS_DOWN => "mlp.experts.down_proj", SHARED_GATE => "mlp.shared_experts.gate_proj",
        SHARED_UP => "mlp.shared_experts.up_proj", SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
};

/// Corrections of the choice of experts, as DeepSeek's models and many after them name these.
pub(crate) const DEEPSEEK_CORRECTION: Table = names! {
    "model.layers.{}." { CORRECTION => "mlp.gate.e_score_correction_bias" }
};

/// Experts as Qwen names them, and many after it. Before [`HUGGING_FACE`].
pub(crate) const QWEN_EXPERTS: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.gate", EXPERT_GATE => "mlp.experts.{e}.gate_proj", EXPERT_UP => "mlp.experts.{e}.up_proj",
        EXPERT_DOWN => "mlp.experts.{e}.down_proj", EXPERTS_GATE_UP => "mlp.experts.gate_up_proj",
        EXPERTS_DOWN => "mlp.experts.down_proj", SHARED_GATE => "mlp.shared_expert.gate_proj",
        SHARED_UP => "mlp.shared_expert.up_proj", SHARED_DOWN => "mlp.shared_expert.down_proj",
        SHARED_MIX => "mlp.shared_expert_gate",
    }
};

/// Experts as Mixtral names them, and then as LLM Compressor and GPTQModel do where they have quantized
/// them one by one, and as Transformers 5 has them in memory. Before [`HUGGING_FACE`].
pub(crate) const MIXTRAL_EXPERTS: Table = names! {
    "model.layers.{}." {
        ROUTER => "block_sparse_moe.gate", EXPERT_GATE => "block_sparse_moe.experts.{e}.w1",
        EXPERT_UP => "block_sparse_moe.experts.{e}.w3", EXPERT_DOWN => "block_sparse_moe.experts.{e}.w2",
        EXPERT_GATE => "block_sparse_moe.experts.{e}.gate_proj", EXPERT_UP => "block_sparse_moe.experts.{e}.up_proj",
        EXPERT_DOWN => "block_sparse_moe.experts.{e}.down_proj", ROUTER => "mlp.gate", ROUTER => "mlp.router",
        EXPERT_GATE => "mlp.experts.{e}.gate_proj", EXPERT_UP => "mlp.experts.{e}.up_proj",
        EXPERT_DOWN => "mlp.experts.{e}.down_proj", EXPERTS_GATE_UP => "mlp.experts.gate_up_proj",
        EXPERTS_DOWN => "mlp.experts.down_proj",
    }
};

/// Where the norm after attention has the usual name of the norm before the MLP; the MLP's follows.
/// Before [`HUGGING_FACE`].
pub(crate) const POST_NORMS: Table = names! {
    "model.layers.{}." {
        ATTN_POST_NORM => "post_attention_layernorm", MLP_POST_NORM => "post_feedforward_layernorm",
    }
};

/// With norms before the blocks beside [`POST_NORMS`].
pub(crate) const SANDWICH_NORMS: Table = names! {
    "model.layers.{}." { MLP_NORM => "pre_feedforward_layernorm" }
};

/// Embeddings of BERT and of encoders with its modules, behind the model's prefix.
pub(crate) const BERT_EMBEDDINGS: &[(Part, &str)] = &[
    (TABLE, "embeddings.word_embeddings"),
    (POSITIONS, "embeddings.position_embeddings"),
    (TYPES, "embeddings.token_type_embeddings"),
    (TABLE_NORM, "embeddings.LayerNorm"),
];

/// A layer of BERT and of encoders with its modules.
pub(crate) const BERT_LAYER: &[(Part, &str)] = &[
    (ATTN_Q, "attention.self.query"),
    (ATTN_K, "attention.self.key"),
    (ATTN_V, "attention.self.value"),
    (ATTN_OUT, "attention.output.dense"),
    (ATTN_POST_NORM, "attention.output.LayerNorm"),
    (MLP_UP, "intermediate.dense"),
    (MLP_DOWN, "output.dense"),
    (MLP_POST_NORM, "output.LayerNorm"),
];

/// Names of an encoder with BERT's modules, behind the model's prefix: `bert_names!("roberta.")`.
macro_rules! bert_names {
    ($prefix:literal) => {
        &[
            $crate::arch::blocks::names::Group {
                prefixes: &[$prefix],
                names: $crate::arch::blocks::names::BERT_EMBEDDINGS,
            },
            $crate::arch::blocks::names::Group {
                prefixes: &[concat!($prefix, "encoder.layer.{}.")],
                names: $crate::arch::blocks::names::BERT_LAYER,
            },
        ]
    };
}
pub(crate) use bert_names;

/// BERT.
pub(crate) const BERT: Table = bert_names!("bert.");

/// The pooler and the classifier of BERT.
pub(crate) const BERT_CLASSES: Table = names! { "bert." { POOLER => "pooler.dense" } "" { CLASSES => "classifier" } };

/// RoBERTa and models named as it is.
pub(crate) const ROBERTA: Table = bert_names!("roberta.");

/// The classifier of RoBERTa, with a matrix between.
pub(crate) const ROBERTA_CLASSES: Table = names! { "classifier." { POOLER => "dense", CLASSES => "out_proj" } };

/// Names common to all checkpoints.
const EVERYWHERE: Table = names! {
    "" { SCORE => "score" }
};

impl Names {
    /// The checkpoint's name for a tensor of layer `layer`; `None` where no table has the part.
    pub(crate) fn tensor(&self, part: Part, kind: Kind, layer: Option<usize>) -> Option<String> {
        self.tensor_of(part, kind, (layer, None), |_| true)
    }

    /// The name in a checkpoint that `has` some tensors.
    pub(crate) fn tensor_of(
        &self,
        part: Part,
        kind: Kind,
        (layer, expert): (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let named = |table: &Table| table.iter().any(|group| group.names.iter().any(|(p, _)| *p == part));
        let table = self.0.iter().chain([&EVERYWHERE]).find(|table| named(table))?;
        let number = |i: Option<usize>| i.map_or(String::new(), |i| i.to_string());
        let (layer, expert) = (number(layer), number(expert));
        let full = |prefix: &str, name: &str| {
            let module = format!("{prefix}{name}").replace("{}", &layer).replace("{e}", &expert);
            kind.named(&module)
        };
        let names = entries(table).filter(|(p, ..)| *p == part).map(|(_, prefix, name)| full(prefix, name));
        // Files of Nemotron-H call it a backbone, Transformers 5 `model` in memory.
        let in_memory = |name: &str| Some(format!("model.{}", name.strip_prefix("backbone.")?));
        let mut names = names.flat_map(|name| [in_memory(&name), Some(name)].into_iter().rev().flatten()).peekable();
        let first = names.peek().cloned();
        names.find(|name| has(name)).or(first)
    }

    /// The layer that a tensor belongs to by its name.
    pub(crate) fn layer(&self, tensor: &str) -> Option<usize> {
        let rest = |prefix: &str, name: &str| match prefix.split_once("{}") {
            Some((before, _)) => tensor.strip_prefix(before),
            None => tensor.strip_prefix(prefix)?.strip_prefix(name.split_once("{}")?.0),
        };
        let mut names = self.0.iter().flat_map(|table| entries(table));
        names.find_map(|(_, prefix, name)| rest(prefix, name)?.split('.').next()?.parse().ok())
    }

    /// For a bias of a layer by its name: whether it is one of attention's, as the matrices in the
    /// same module are.
    pub(crate) fn bias_of_attention(&self, tensor: &str) -> Option<bool> {
        let layer = self.layer(tensor)?;
        let names = self.0.iter().flat_map(|table| entries(table));
        let names = names.map(|(part, prefix, name)| (part, format!("{prefix}{name}")));
        let numbered = names.filter(|(_, name)| name.contains("{}"));
        let mut modules = numbered
            .filter_map(|(part, name)| Some((part, name.rsplit_once('.')?.0.replace("{}", &layer.to_string()))));
        let inside = |module: &str| tensor.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        let of_layer = |module: &str| module.ends_with(&format!(".{layer}"));
        let (part, _) = modules.find(|(_, module)| inside(module) && !of_layer(module))?;
        tensor.ends_with(Kind::Bias.endings().1).then_some(part.0.starts_with("attn."))
    }
}

/// The name of a text model's tensor without the prefix of a model of several parts.
pub(crate) fn alone(tensor: &str) -> String {
    tensor.replacen("language_model.", "", 1)
}
