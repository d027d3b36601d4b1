//! The output of a checkpoint: logits, embeddings, or scores of classes.
//!
//! The class in `architectures` gives the head above the layers; the files of
//! sentence-transformers, or the user, ask for rows instead of text.

use super::model::Model;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::names::{CLASSES, Kind, SCORE};
use crate::arch::blocks::outputs::{Entry, Top, Yields};
use crate::arch::reading::options::Options;
use crate::checkpoint::Checkpoint;
use crate::embedding::{self, Embedding};
use crate::error::FrontendError;
use llmcc_ir::output::{Output, Pool, Rows, RowsName};
use serde_json::Value;

impl Entry {
    /// That of a checkpoint whose files say nothing.
    pub(crate) fn imagined(shape: &dyn Shape) -> Entry {
        match shape.yields() {
            Yields::Logits | Yields::LogitsOrRows(_) => Entry::default(),
            Yields::Rows { pool, .. } => Entry {
                output: Output::Rows(Rows {
                    name: RowsName::Embedding,
                    width: shape.columns(),
                    pool,
                    normalize: false,
                }),
                embedding: Some(Embedding::plain(pool)),
                ..Entry::default()
            },
        }
    }

    /// That of a `config.json` without tensors. A classifier has as many classes as the file names, or two as in
    /// Transformers.
    pub(crate) fn of_config(model: &Model, config: &Value) -> Entry {
        let pool = match model.shape.yields() {
            Yields::Rows { classes, .. } => classes,
            Yields::LogitsOrRows(_) => Pool::Last,
            Yields::Logits => return Entry::imagined(&*model.shape),
        };
        if !model.scores_classes() {
            return Entry::imagined(&*model.shape);
        }
        let named = config.get("id2label").and_then(Value::as_object).map(serde_json::Map::len);
        let counted = || config.get("num_labels")?.as_u64().and_then(|n| usize::try_from(n).ok());
        let width = named.or_else(counted).unwrap_or(2).clamp(1, MOST_CLASSES);
        let rows = Rows { name: RowsName::Scores, width, pool, normalize: false };
        Entry { output: Output::Rows(rows), ..Entry::default() }
    }
}

impl Model {
    /// Whether the class in config.json scores classes.
    pub(crate) fn scores_classes(&self) -> bool {
        self.top == Top::Classes
    }

    /// Whether its matrices are `Conv1D` of Transformers, stored `[in, out]`.
    pub(crate) fn is_turned(&self) -> bool {
        self.shape.is_turned()
    }
}

/// The output of a checkpoint.
///
/// # Errors
/// The model cannot yield the requested output; files of sentence-transformers that are malformed,
/// or ask for an unsupported output.
pub(crate) fn entry(ckpt: &Checkpoint, model: &Model, options: &Options) -> Result<Entry, FrontendError> {
    let entry = Entry { hidden: options.hidden_states, ..yielded(ckpt, model, options.embed)? };
    if entry.hidden && entry.output != Output::Logits {
        return Err(FrontendError::Output {
            path: ckpt.dir().to_path_buf(),
            what: "the model yields rows of its last layer, or scores of classes, without hidden states beside them"
                .into(),
            help: "leave out --hidden-states and --draft-head",
        });
    }
    Ok(entry)
}

/// The entry that makes embeddings beside text.
///
/// # Errors
/// As [`entry`]; the model writes no text.
pub(crate) fn beside(ckpt: &Checkpoint, model: &Model, text: &Entry) -> Result<Entry, FrontendError> {
    if text.output != Output::Logits {
        return Err(FrontendError::Output {
            path: ckpt.dir().to_path_buf(),
            what: "the model writes no text, beside which it could make embeddings".into(),
            help: "leave out --also-embed",
        });
    }
    Ok(Entry { beside: true, ..yielded(ckpt, model, true)? })
}

/// The error where an architecture's head does not leave its rows.
pub(crate) fn without_hidden(ckpt: &Checkpoint, class: &str) -> FrontendError {
    FrontendError::Output {
        path: ckpt.dir().to_path_buf(),
        what: format!("the head of {class} does not return hidden states"),
        help: "leave out --hidden-states and --draft-head",
    }
}

/// The output of a checkpoint; `asked`: the user asked for embeddings.
fn yielded(ckpt: &Checkpoint, model: &Model, asked: bool) -> Result<Entry, FrontendError> {
    let (shape, top) = (&*model.shape, model.top);
    let refuse =
        |what: String, help: &'static str| FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help };
    let found = embedding::found(ckpt)?;
    let hidden = shape.columns();
    let rows = asked || found.is_some() || top == Top::Nothing;
    let pool = match (shape.yields(), top) {
        (Yields::Rows { classes, .. }, Top::Classes) if !asked => return scores(ckpt, model, classes),
        (Yields::LogitsOrRows(_), Top::Classes) if !asked => return scores(ckpt, model, Pool::Last),
        (Yields::Rows { pool, .. }, _) => pool,
        (Yields::LogitsOrRows(pool), _) if rows => pool,
        (Yields::Logits, _) if rows => {
            return Err(refuse(
                format!("{} is compiled for text generation only", model.arch.class),
                "leave out --embed and --also-embed, or use the checkpoint of an embedding model",
            ));
        }
        (Yields::LogitsOrRows(_) | Yields::Logits, _) => return Ok(Entry::default()),
    };
    let embedding = found.unwrap_or_else(|| Embedding::plain(pool));
    let width = embedding.layers.last().map_or(hidden, |l| l.out);
    let kept = embedding.keep.filter(|n| *n < width);
    if let Some(n) = kept.filter(|_| embedding.normalize) {
        return Err(FrontendError::Output {
            path: ckpt.dir().join(embedding::SETTINGS),
            what: format!("`truncate_dim` is {n}, of rows that a module has scaled to length 1 before"),
            help: "remove `truncate_dim`, and cut the rows that `embed` gives",
        });
    }
    let width = kept.unwrap_or(width);
    if let Some(first) = embedding.layers.first().filter(|l| l.inner != hidden) {
        return Err(refuse(
            format!("module `{}` takes rows of {}, but the model's have {hidden} columns", first.folder, first.inner),
            "the files belong to different models",
        ));
    }
    let embedding = Embedding { keep: kept, ..embedding };
    let pool = if embedding.means_first() { Pool::Last } else { embedding.pool };
    let rows = Rows { name: RowsName::Embedding, width, pool, normalize: embedding.normalize };
    Ok(Entry { output: Output::Rows(rows), embedding: Some(embedding), ..Entry::default() })
}

/// A classifier, which has as many classes as its last matrix has rows.
fn scores(ckpt: &Checkpoint, model: &Model, pool: Pool) -> Result<Entry, FrontendError> {
    let named = |part| model.arch.names.tensor(part, Kind::Matrix, None);
    let name = named(CLASSES).or_else(|| named(SCORE)).unwrap_or_default();
    let shape = ckpt.info(&name).map(|info| &info.shape[..]);
    match shape {
        Some([width @ 1..=MOST_CLASSES, _]) => {
            labels(ckpt, &name, *width)?;
            let rows = Rows { name: RowsName::Scores, width: *width, pool, normalize: false };
            Ok(Entry { output: Output::Rows(rows), ..Entry::default() })
        }
        _ => {
            let other = ckpt.names().find(|name| name.starts_with("classifier."));
            let (what, help) = match other {
                Some(other) => (
                    format!("the class in config.json scores classes by `{other}`, and not by a matrix `{name}`"),
                    "such heads of this architecture are not compiled; the model without it makes embeddings",
                ),
                None => (
                    format!("the class in config.json scores classes, but there is no matrix `{name}` for it"),
                    "the checkpoint is incomplete, or its class in config.json is wrong",
                ),
            };
            Err(FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help })
        }
    }
}

/// Holds the names of classes in a configuration against the rows of the matrix that scores them.
fn labels(ckpt: &Checkpoint, name: &str, rows: usize) -> Result<(), FrontendError> {
    let (ids, count) = (ckpt.config().get("id2label"), ckpt.config().get("num_labels"));
    let wrong = |what: String| {
        let help = "the files belong to different models, or one of them is damaged: download all of one revision";
        Err(FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help })
    };
    match (ids.and_then(|v| v.as_object()), count.and_then(|v| v.as_u64())) {
        (Some(ids), _) if ids.len() != rows => {
            wrong(format!("`id2label` in config.json names {} classes, and `{name}` has {rows} rows", ids.len()))
        }
        (Some(ids), _) => match ids.keys().find(|id| id.parse::<usize>().is_ok_and(|id| id >= rows)) {
            Some(id) => wrong(format!("`id2label` in config.json names class {id}, and `{name}` has {rows} rows")),
            None => Ok(()),
        },
        (None, Some(count)) if usize::try_from(count) != Ok(rows) => {
            wrong(format!("`num_labels` in config.json is {count}, and `{name}` has {rows} rows"))
        }
        (None, _) => Ok(()),
    }
}

/// The most classes of a head.
const MOST_CLASSES: usize = 1 << 20;
