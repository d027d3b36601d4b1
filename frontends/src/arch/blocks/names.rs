//! What checkpoints call their tensors.
//!
//! The code that builds a model names no tensor: it asks for a [`Part`], and a table of [`Names`]
//! says what the checkpoint calls it. A family of checkpoints is one table; an architecture lists
//! the tables that hold for it, its own first.

/// What a tensor is for. The text is also the name of the parameter that reads it.
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
/// What comes between the rows and the scores of classes.
pub(crate) const POOLER: Part = Part("pooler");
/// Norm of that.
pub(crate) const POOLER_NORM: Part = Part("pooler.norm");
/// Scores of classes.
pub(crate) const CLASSES: Part = Part("classes");
/// Scores of classes by a decoder's last row.
pub(crate) const SCORE: Part = Part("score");
/// Head, unless it is the embedding table.
pub(crate) const HEAD: Part = Part("head");
/// Multiplies what a layer gives.
pub(crate) const LAYER_SCALE: Part = Part("layer.scale");
/// Norm before the head.
pub(crate) const NORM: Part = Part("norm");
/// Norm before attention.
pub(crate) const ATTN_NORM: Part = Part("attn.norm");
/// Norm of what attention adds.
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
/// A score of each head beside those of the keys.
pub(crate) const ATTN_SINKS: Part = Part("attn.sinks");
/// What scores get by the distance of their keys, `[buckets, heads]`.
pub(crate) const ATTN_BIAS: Part = Part("attn.bias");
/// Output of attention.
pub(crate) const ATTN_OUT: Part = Part("attn.out");
/// Its bias, where that is no module's.
pub(crate) const ATTN_OUT_BIAS: Part = Part("attn.out_bias");
/// Before it.
pub(crate) const ATTN_OUT_NORM: Part = Part("attn.out_norm");
/// The gate of what attention found.
pub(crate) const ATTN_GATE: Part = Part("attn.gate");
/// Norm before the MLP.
pub(crate) const MLP_NORM: Part = Part("mlp.norm");
/// Norm of what the MLP adds.
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

/// What of a part a tensor is: how its parameter and its tensor end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows that are looked up.
    Table,
    /// A matrix.
    Matrix,
    /// What a product adds.
    Bias,
    /// What a norm multiplies by.
    Gain,
    /// Taps of a convolution `[channels, width]`, stored as `[channels, 1, width]`.
    Taps,
    /// A tensor that is no module's weight or bias.
    Bare,
    /// The same, matrices `[count, rows, columns]`, stored one below the other.
    Stack,
    /// The same, a vector that is stored as `[1, 1, n]`.
    Row,
    /// The same, a number for each head, stored as `[1, 1, heads, 1]`.
    OfHeads,
}

impl Kind {
    /// Endings of the parameter and of the tensor.
    fn endings(self) -> (&'static str, &'static str) {
        match self {
            Kind::Table => ("", ".weight"),
            Kind::Matrix => (".w", ".weight"),
            Kind::Bias => (".b", ".bias"),
            Kind::Gain => (".g", ".weight"),
            Kind::Taps => (".w", ".weight"),
            Kind::Bare | Kind::Stack | Kind::Row | Kind::OfHeads => ("", ""),
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
            (Kind::Row, [n]) => vec![1, 1, *n],
            (Kind::Stack, [count, rows, columns]) => vec![count.saturating_mul(*rows), *columns],
            (Kind::OfHeads, [heads]) => vec![1, 1, *heads, 1],
            _ => shape.to_vec(),
        }
    }

    /// The parameter that reads it.
    pub(crate) fn parameter(self, part: Part) -> String {
        format!("{}{}", part.0, self.endings().0)
    }
}

/// Names without their endings, `{}` for the number of the layer, `{e}` for that of an expert. A part
/// that has several lines has any of these names: the first that a checkpoint has counts.
pub(crate) type Table = &'static [(Part, &'static str)];

/// The tables that hold for an architecture; the first that has a part counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names(pub &'static [Table]);

/// Checkpoints of Transformers, for most decoders.
pub(crate) const HUGGING_FACE: Table = &[
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
    (ATTN_SINKS, "model.layers.{}.self_attn.sinks"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_GATE, "model.layers.{}.mlp.gate_proj"),
    (MLP_UP, "model.layers.{}.mlp.up_proj"),
    (MLP_GATE_UP, "model.layers.{}.mlp.gate_up_proj"),
    (MLP_DOWN, "model.layers.{}.mlp.down_proj"),
];

/// Experts of DeepSeek's models.
pub(crate) const DEEPSEEK_EXPERTS: Table = &[
    (ROUTER, "model.layers.{}.mlp.gate"),
    (EXPERT_GATE, "model.layers.{}.mlp.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.mlp.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.mlp.experts.{e}.down_proj"),
    (EXPERTS_GATE_UP, "model.layers.{}.mlp.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.mlp.experts.down_proj"),
    (SHARED_GATE, "model.layers.{}.mlp.shared_experts.gate_proj"),
    (SHARED_UP, "model.layers.{}.mlp.shared_experts.up_proj"),
    (SHARED_DOWN, "model.layers.{}.mlp.shared_experts.down_proj"),
];

/// Experts as Qwen names them, and many after it. Before [`HUGGING_FACE`].
pub(crate) const QWEN_EXPERTS: Table = &[
    (ROUTER, "model.layers.{}.mlp.gate"),
    (EXPERT_GATE, "model.layers.{}.mlp.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.mlp.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.mlp.experts.{e}.down_proj"),
    (EXPERTS_GATE_UP, "model.layers.{}.mlp.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.mlp.experts.down_proj"),
    (SHARED_GATE, "model.layers.{}.mlp.shared_expert.gate_proj"),
    (SHARED_UP, "model.layers.{}.mlp.shared_expert.up_proj"),
    (SHARED_DOWN, "model.layers.{}.mlp.shared_expert.down_proj"),
    (SHARED_MIX, "model.layers.{}.mlp.shared_expert_gate"),
];

/// Experts as Mixtral names them, and then as LLM Compressor and GPTQModel do where they have quantized
/// them one by one, and as Transformers 5 has them in memory. Before [`HUGGING_FACE`].
pub(crate) const MIXTRAL_EXPERTS: Table = &[
    (ROUTER, "model.layers.{}.block_sparse_moe.gate"),
    (EXPERT_GATE, "model.layers.{}.block_sparse_moe.experts.{e}.w1"),
    (EXPERT_UP, "model.layers.{}.block_sparse_moe.experts.{e}.w3"),
    (EXPERT_DOWN, "model.layers.{}.block_sparse_moe.experts.{e}.w2"),
    (EXPERT_GATE, "model.layers.{}.block_sparse_moe.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.block_sparse_moe.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.block_sparse_moe.experts.{e}.down_proj"),
    (ROUTER, "model.layers.{}.mlp.gate"),
    (ROUTER, "model.layers.{}.mlp.router"),
    (EXPERT_GATE, "model.layers.{}.mlp.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.mlp.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.mlp.experts.{e}.down_proj"),
    (EXPERTS_GATE_UP, "model.layers.{}.mlp.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.mlp.experts.down_proj"),
];

/// Where the norm after attention is called what most call the one before the MLP; the MLP's
/// follows. Before [`HUGGING_FACE`].
pub(crate) const POST_NORMS: Table = &[
    (ATTN_POST_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_POST_NORM, "model.layers.{}.post_feedforward_layernorm"),
];

/// With norms before the blocks beside [`POST_NORMS`].
pub(crate) const SANDWICH_NORMS: Table = &[(MLP_NORM, "model.layers.{}.pre_feedforward_layernorm")];

/// BERT.
pub(crate) const BERT: Table = &[
    (TABLE, "bert.embeddings.word_embeddings"),
    (POSITIONS, "bert.embeddings.position_embeddings"),
    (TYPES, "bert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "bert.embeddings.LayerNorm"),
    (ATTN_Q, "bert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "bert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "bert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "bert.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "bert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "bert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "bert.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "bert.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "bert.pooler.dense"),
    (CLASSES, "classifier"),
];

/// RoBERTa and what is named as it is.
pub(crate) const ROBERTA: Table = &[
    (TABLE, "roberta.embeddings.word_embeddings"),
    (POSITIONS, "roberta.embeddings.position_embeddings"),
    (TYPES, "roberta.embeddings.token_type_embeddings"),
    (TABLE_NORM, "roberta.embeddings.LayerNorm"),
    (ATTN_Q, "roberta.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "roberta.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "roberta.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "roberta.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "roberta.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "roberta.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "roberta.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "roberta.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];

/// What all checkpoints call alike.
const EVERYWHERE: Table = &[(SCORE, "score")];

impl Names {
    /// What a checkpoint calls a tensor of layer `layer`; `None` where no table has the part.
    pub(crate) fn tensor(&self, part: Part, kind: Kind, layer: Option<usize>) -> Option<String> {
        self.tensor_of(part, kind, (layer, None), |_| true)
    }

    /// What a checkpoint that `has` some tensors calls this one.
    pub(crate) fn tensor_of(
        &self,
        part: Part,
        kind: Kind,
        (layer, expert): (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let named = |table: &Table| table.iter().any(|(p, _)| *p == part);
        let table = self.0.iter().chain([&EVERYWHERE]).find(|table| named(table))?;
        let number = |i: Option<usize>| i.map_or(String::new(), |i| i.to_string());
        let (layer, expert) = (number(layer), number(expert));
        let full = |name: &str| format!("{}{}", name.replace("{}", &layer).replace("{e}", &expert), kind.endings().1);
        let names = table.iter().filter(|(p, _)| *p == part).map(|(_, name)| full(name));
        // What files of Nemotron-H call a backbone, Transformers 5 calls `model` in memory.
        let in_memory = |name: &str| Some(format!("model.{}", name.strip_prefix("backbone.")?));
        let mut names = names.flat_map(|name| [in_memory(&name), Some(name)].into_iter().rev().flatten()).peekable();
        let first = names.peek().cloned();
        names.find(|name| has(name)).or(first)
    }

    /// The layer that a tensor belongs to by its name.
    pub(crate) fn layer(&self, tensor: &str) -> Option<usize> {
        let numbered = self.0.iter().copied().flatten().filter_map(|(_, name)| name.split_once("{}"));
        let mut rests = numbered.filter_map(|(before, _)| tensor.strip_prefix(before));
        rests.find_map(|rest| rest.split('.').next()?.parse().ok())
    }

    /// For a bias of a layer by its name: whether it is one of attention's, as the matrices in the
    /// same module are.
    pub(crate) fn bias_of_attention(&self, tensor: &str) -> Option<bool> {
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

/// The name of a tensor of a text model without what a model of several parts has before it.
pub(crate) fn alone(tensor: &str) -> String {
    tensor.replacen("language_model.", "", 1)
}
