//! Encoders.

use super::super::file::{Config, File, Wrong, without};
use super::super::header::Value;
use super::super::names::{Names, SANDWICH_NORMS};
use super::{Family, LAYER_NORM, PLAIN, Reading, Stored, WINDOW};

const QUIET: &[&str] = &["attention.causal"];
const CLASSES: &[&str] = &["attention.causal", "classifier.output_labels"];
/// The most classes of a head.
const MOST_CLASSES: usize = 1 << 16;

pub(in super::super) const FAMILIES: &[Family] = &[
    // RoBERTa's head of classes is BERT's with its pooler.
    Family {
        name: "bert",
        model_type: ("bert", "BertForSequenceClassification"),
        suits: |f| f.has("token_types.weight") && f.has(SCORES),
        keys: &[&[LAYER_NORM]],
        quiet: CLASSES,
        names: &[CLASS_NAMES, BERT],
        adapt: |f, config| {
            if !f.has("cls.weight") {
                return f
                    .refused("has a classification head, but not the pooler before it, which llama.cpp leaves out");
            }
            classes(f, config);
            bert(f, config)
        },
        ..PLAIN
    },
    // RoBERTa and its successors too, whose tables of positions begin with the first here.
    Family {
        name: "bert",
        model_type: ("bert", "BertModel"),
        suits: |f| f.has("token_types.weight"),
        keys: &[&[LAYER_NORM]],
        quiet: QUIET,
        names: &[BERT],
        adapt: bert,
        ..PLAIN
    },
    Family {
        name: "bert",
        model_type: ("distilbert", "DistilBertForSequenceClassification"),
        suits: |f| f.has(SCORES),
        quiet: &["attention.causal", "attention.layer_norm_epsilon", "classifier.output_labels"],
        names: &[DISTILBERT_CLASSES, DISTILBERT],
        adapt: |f, config| {
            classes(f, config);
            distilbert(f, config)
        },
        ..DISTILBERTS
    },
    Family { name: "bert", ..DISTILBERTS },
    Family {
        name: "nomic-bert",
        model_type: ("nomic_bert", "NomicBertModel"),
        keys: &[&[LAYER_NORM]],
        quiet: QUIET,
        names: &[NOMIC],
        adapt: kinds,
        ..PLAIN
    },
    Family {
        model_type: ("neobert", "NeoBERTForSequenceClassification"),
        suits: |f| f.has(SCORES),
        quiet: CLASSES,
        names: &[NEO_CLASSES, NEO],
        adapt: |f, config| {
            classes(f, config);
            neo(f, config)
        },
        ..NEO_BERT
    },
    NEO_BERT,
    // Gate and up as one matrix, or taken apart by older converters.
    Family {
        name: "jina-bert-v2",
        suits: |f| !f.has("blk.0.ffn_gate.weight"),
        names: &[JINA_FUSED, JINA, BERT],
        ..JINA_BERT
    },
    Family { name: "jina-bert-v2", names: &[JINA, BERT], ..JINA_BERT },
    // Without the adapters, which are files of their own.
    Family {
        name: "jina-bert-v3",
        model_type: ("jina_embeddings_v3", "JinaEmbeddingsV3Model"),
        keys: &[&[LAYER_NORM]],
        quiet: QUIET,
        names: &[JINA_3],
        adapt: kinds,
        ..PLAIN
    },
    Family {
        name: "eurobert",
        model_type: ("eurobert", "EuroBertModel"),
        quiet: QUIET,
        found: &[("attention_bias", "blk.0.attn_q.bias"), ("mlp_bias", "blk.0.ffn_up.bias")],
        ..PLAIN
    },
    Family {
        name: "modern-bert",
        model_type: ("modernbert", "ModernBertForSequenceClassification"),
        suits: |f| f.has("cls.weight"),
        quiet: &["attention.causal", "classifier.output_labels", POOLED],
        names: &[MODERN_CLASSES, MODERN],
        adapt: |f, config| {
            if !f.has(SCORES) {
                return f.refused("has a classification head, but not the matrix after it");
            }
            classes(f, config);
            let pooled = match f.size(POOLED) {
                Some(1) => "mean",
                Some(2) => "cls",
                _ => {
                    return f.refused(format_args!("does not give the input of its classification head in `{POOLED}`"));
                }
            };
            config.insert("classifier_pooling".into(), pooled.into());
            modern(f, config)
        },
        ..MODERN_BERT
    },
    Family { name: "modern-bert", ..MODERN_BERT },
    Family {
        name: "gemma-embedding",
        model_type: ("gemma3_text", "Gemma3TextModel"),
        keys: &[WINDOW, &[("rope.freq_base_swa", "rope_local_base_freq")]],
        quiet: &["attention.causal", "dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"],
        fixed: &[("use_bidirectional_attention", true)],
        // Linear layers after pooling are in files that were converted with sentence-transformers'
        // modules.
        names: &[SANDWICH_NORMS, &[("dense_2", "2_Dense/linear"), ("dense_3", "3_Dense/linear")]],
        stored: Stored::ONE_MORE,
        // Scores are scaled by heads.
        reading: Reading { unscaled: Some(0), ..Reading::PLAIN },
        ..PLAIN
    },
];

const DISTILBERTS: Family = Family {
    model_type: ("distilbert", "DistilBertModel"),
    keys: &[&[
        ("embedding_length", "dim"),
        ("block_count", "n_layers"),
        ("feed_forward_length", "hidden_dim"),
        ("attention.head_count", "n_heads"),
    ]],
    quiet: &["attention.causal", "attention.layer_norm_epsilon"],
    names: &[DISTILBERT],
    adapt: distilbert,
    ..PLAIN
};

fn distilbert(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if f.number("attention.layer_norm_epsilon").is_some_and(|eps| (eps / 1e-12 - 1.0).abs() > 1e-3) {
        return f.refused("has no kinds of tokens, as DistilBERT, but another epsilon");
    }
    let fields = ["hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"];
    without(config, &fields)?;
    without(config, &["num_key_value_heads", "tie_word_embeddings", "bos_token_id", "eos_token_id", "_name_or_path"])
}

/// The base of layers without a window has a name of its own.
fn modern(_: &File, config: &mut Config) -> Result<(), Wrong> {
    if let Some(theta) = config.remove("rope_theta") {
        config.insert("global_rope_theta".into(), theta);
    }
    without(config, &["num_key_value_heads", "rms_norm_eps"])
}

const MODERN_BERT: Family = Family {
    model_type: ("modernbert", "ModernBertModel"),
    keys: &[&[
        ("attention.layer_norm_rms_epsilon", "norm_eps"),
        ("attention.layer_norm_epsilon", "norm_eps"),
        ("attention.sliding_window", "local_attention"),
        ("attention.sliding_window_pattern", "global_attn_every_n_layers"),
        ("rope.freq_base_swa", "local_rope_theta"),
        ("hidden_activation", "hidden_activation"),
    ]],
    quiet: &["attention.causal", POOLED],
    names: &[MODERN],
    found: &[
        ("attention_bias", "blk.0.attn_qkv.bias"),
        ("mlp_bias", "blk.0.ffn_up.bias"),
        ("norm_bias", "output_norm.bias"),
        ("classifier_bias", "cls.bias"),
    ],
    adapt: modern,
    ..PLAIN
};

const JINA_BERT: Family = Family {
    model_type: ("jina_bert", "JinaBertModel"),
    keys: &[&[LAYER_NORM]],
    quiet: QUIET,
    adapt: |f, config| {
        let normed = [f.has("blk.0.attn_q_norm.weight"), f.has("blk.0.attn_norm_2.weight")];
        if normed[0] != normed[1] {
            return f.refused("has one of the two kinds of norms of Jina's model for code, and not the other");
        }
        config.insert("qk_post_norm".into(), normed[0].into());
        // Files do not say which of the two activations there is; llama.cpp takes this one.
        config.insert("feed_forward_type".into(), "geglu".into());
        kinds(f, config)
    },
    ..PLAIN
};

/// Where a head of classes ends.
const SCORES: &str = "cls.output.weight";
/// Which rows a head of classes is given.
const POOLED: &str = "classifier.pooling_type";

/// The names of classes, from the file, where they have the order of the classes.
fn classes(f: &File, config: &mut Config) {
    let count = f.rows(SCORES).unwrap_or(0).min(MOST_CLASSES);
    let given = f.get("classifier.output_labels").and_then(Value::list).unwrap_or_default();
    // More are sorted as texts: 10 comes before 2.
    let given = if given.len() == count && count <= 10 { given } else { &[] };
    let label = |i: usize| given.get(i).and_then(Value::text).map_or_else(|| format!("LABEL_{i}"), String::from);
    let labels = (0..count).map(|i| (i.to_string(), label(i).into()));
    config.insert("id2label".into(), serde_json::Value::Object(labels.collect()));
}

/// [`kinds`], if the table of positions begins with the first: the converter leaves in CamemBERT's the
/// two rows before it, which no token has, and does not say so.
fn bert(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if let Some(rows) = f.rows("position_embd.weight").filter(|rows| rows % 16 == 2) {
        return f.refused(format_args!(
            "has {rows} rows of positions, like CamemBERT, whose first two rows belong to no token; llama.cpp's \
                files do not tell whether they are included"
        ));
    }
    kinds(f, config)
}

/// How many kinds of tokens there are, by their table.
fn kinds(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let rows = f.tensors.get("token_types.weight").and_then(|(_, info)| match info.shape[..] {
        [rows, _] => Some(rows),
        [_] => Some(1),
        _ => None,
    });
    if let Some(rows) = rows {
        config.insert("type_vocab_size".into(), rows.into());
    }
    without(config, &["num_key_value_heads"])
}

const DISTILBERT_CLASSES: Names = &[("cls", "pre_classifier"), ("cls.output", "classifier")];

const MODERN_CLASSES: Names = &[("cls", "head.dense"), ("cls.norm", "head.norm"), ("cls.output", "classifier")];

const CLASS_NAMES: Names = &[("cls", "bert.pooler.dense"), ("cls.output", "classifier")];

const BERT: Names = &[
    ("token_embd", "bert.embeddings.word_embeddings"),
    ("position_embd", "bert.embeddings.position_embeddings"),
    ("token_types", "bert.embeddings.token_type_embeddings"),
    ("token_embd_norm", "bert.embeddings.LayerNorm"),
    ("blk.{}.attn_q", "bert.encoder.layer.{}.attention.self.query"),
    ("blk.{}.attn_k", "bert.encoder.layer.{}.attention.self.key"),
    ("blk.{}.attn_v", "bert.encoder.layer.{}.attention.self.value"),
    ("blk.{}.attn_output", "bert.encoder.layer.{}.attention.output.dense"),
    ("blk.{}.attn_output_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"),
    ("blk.{}.ffn_up", "bert.encoder.layer.{}.intermediate.dense"),
    ("blk.{}.ffn_down", "bert.encoder.layer.{}.output.dense"),
    ("blk.{}.layer_output_norm", "bert.encoder.layer.{}.output.LayerNorm"),
];

const JINA_3: Names = &[
    ("token_embd", "roberta.embeddings.word_embeddings"),
    ("token_types", "roberta.embeddings.token_type_embeddings"),
    ("token_embd_norm", "roberta.emb_ln"),
    ("blk.{}.attn_qkv", "roberta.encoder.layers.{}.mixer.Wqkv"),
    ("blk.{}.attn_output", "roberta.encoder.layers.{}.mixer.out_proj"),
    ("blk.{}.attn_output_norm", "roberta.encoder.layers.{}.norm1"),
    ("blk.{}.ffn_up", "roberta.encoder.layers.{}.mlp.fc1"),
    ("blk.{}.ffn_down", "roberta.encoder.layers.{}.mlp.fc2"),
    ("blk.{}.layer_output_norm", "roberta.encoder.layers.{}.norm2"),
];

const JINA_FUSED: Names = &[("blk.{}.ffn_up", "bert.encoder.layer.{}.mlp.gated_layers")];

/// Before [`BERT`].
const JINA: Names = &[
    ("blk.{}.attn_q_norm", "bert.encoder.layer.{}.attention.self.layer_norm_q"),
    ("blk.{}.attn_k_norm", "bert.encoder.layer.{}.attention.self.layer_norm_k"),
    ("blk.{}.attn_norm_2", "bert.encoder.layer.{}.layer_norm_1"),
    ("blk.{}.ffn_gate", "bert.encoder.layer.{}.mlp.gated_layers_w"),
    ("blk.{}.ffn_up", "bert.encoder.layer.{}.mlp.gated_layers_v"),
    ("blk.{}.ffn_down", "bert.encoder.layer.{}.mlp.wo"),
    ("blk.{}.layer_output_norm", "bert.encoder.layer.{}.mlp.layernorm"),
];

const DISTILBERT: Names = &[
    ("token_embd", "distilbert.embeddings.word_embeddings"),
    ("position_embd", "distilbert.embeddings.position_embeddings"),
    ("token_embd_norm", "distilbert.embeddings.LayerNorm"),
    ("blk.{}.attn_q", "distilbert.transformer.layer.{}.attention.q_lin"),
    ("blk.{}.attn_k", "distilbert.transformer.layer.{}.attention.k_lin"),
    ("blk.{}.attn_v", "distilbert.transformer.layer.{}.attention.v_lin"),
    ("blk.{}.attn_output", "distilbert.transformer.layer.{}.attention.out_lin"),
    ("blk.{}.attn_output_norm", "distilbert.transformer.layer.{}.sa_layer_norm"),
    ("blk.{}.ffn_up", "distilbert.transformer.layer.{}.ffn.lin1"),
    ("blk.{}.ffn_down", "distilbert.transformer.layer.{}.ffn.lin2"),
    ("blk.{}.layer_output_norm", "distilbert.transformer.layer.{}.output_layer_norm"),
];

const NOMIC: Names = &[
    ("token_embd", "nomic_bert.embeddings.word_embeddings"),
    ("token_types", "nomic_bert.embeddings.token_type_embeddings"),
    ("token_embd_norm", "nomic_bert.emb_ln"),
    ("blk.{}.attn_qkv", "nomic_bert.encoder.layers.{}.attn.Wqkv"),
    ("blk.{}.attn_output", "nomic_bert.encoder.layers.{}.attn.out_proj"),
    ("blk.{}.attn_output_norm", "nomic_bert.encoder.layers.{}.norm1"),
    ("blk.{}.ffn_up", "nomic_bert.encoder.layers.{}.mlp.fc11"),
    ("blk.{}.ffn_gate", "nomic_bert.encoder.layers.{}.mlp.fc12"),
    ("blk.{}.ffn_down", "nomic_bert.encoder.layers.{}.mlp.fc2"),
    ("blk.{}.layer_output_norm", "nomic_bert.encoder.layers.{}.norm2"),
];

const NEO_BERT: Family = Family {
    name: "neo-bert",
    model_type: ("neobert", "NeoBERT"),
    keys: &[&[("attention.layer_norm_rms_epsilon", "norm_eps"), ("context_length", "max_length")]],
    quiet: QUIET,
    names: &[NEO],
    adapt: neo,
    ..PLAIN
};

const NEO_CLASSES: Names = &[("cls", "dense"), ("cls.output", "classifier")];

const NEO: Names = &[
    ("token_embd", "model.encoder"),
    ("enc.output_norm", "model.layer_norm"),
    ("blk.{}.attn_norm", "model.transformer_encoder.{}.attention_norm"),
    ("blk.{}.attn_qkv", "model.transformer_encoder.{}.qkv"),
    ("blk.{}.attn_output", "model.transformer_encoder.{}.wo"),
    ("blk.{}.ffn_norm", "model.transformer_encoder.{}.ffn_norm"),
    ("blk.{}.ffn_up", "model.transformer_encoder.{}.ffn.w12"),
    ("blk.{}.ffn_down", "model.transformer_encoder.{}.ffn.w3"),
];

/// The width that NeoBERT's configuration has: half more than that of its matrices, which files do not
/// say rounded up.
fn neo(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let Some(rows) = f.rows("blk.0.ffn_up.weight") else { return f.refused("has no `blk.0.ffn_up.weight`") };
    config.insert("intermediate_size".into(), rows.div_ceil(4).saturating_mul(3).into());
    // As llama.cpp's: there is no other base.
    if f.number("rope.freq_base").is_some_and(|base| base != 1e4) {
        return f.refused("has a rotary base other than 10000");
    }
    let unread = ["num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "bos_token_id", "rope_theta"];
    without(config, &unread)
}

const MODERN: Names = &[
    ("token_embd", "model.embeddings.tok_embeddings"),
    ("token_embd_norm", "model.embeddings.norm"),
    ("output_norm", "model.final_norm"),
    ("blk.{}.attn_norm", "model.layers.{}.attn_norm"),
    ("blk.{}.attn_qkv", "model.layers.{}.attn.Wqkv"),
    ("blk.{}.attn_output", "model.layers.{}.attn.Wo"),
    ("blk.{}.ffn_norm", "model.layers.{}.mlp_norm"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.Wi"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.Wo"),
];
