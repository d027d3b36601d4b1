//! How rows become an embedding, by the files of sentence-transformers beside a checkpoint:
//! `modules.json` and a folder for each module that has settings; or by a GGUF file's metadata.

mod files;
mod modules;
pub(crate) mod texts;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::gguf::Metadata;
use crate::error::FrontendError;
pub use files::Dense;
use files::{HELP, MOST, bad, beside};
pub(crate) use files::{LIST, SETTINGS, of_modules};
use llmcc_ir::output::Pool;
use modules::{dense, kind_of, normalizes, of_transformer, pooling};
use serde_json::Value;

/// How the last layer's rows become an embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// How the rows of a text's tokens become one.
    pub pool: Pool,
    /// That one is scaled to length 1.
    pub normalize: bool,
    /// Linear maps after pooling, in order.
    pub layers: Vec<Dense>,
    /// Columns that are kept; `None`: all.
    pub keep: Option<usize>,
}

impl Embedding {
    /// Rows that are only pooled.
    pub(crate) fn plain(pool: Pool) -> Embedding {
        Embedding { pool, normalize: false, layers: vec![], keep: None }
    }

    /// Why the layers cannot be computed before pooling, if they cannot: the graph has them there, but
    /// for a mean.
    fn out_of_order(&self) -> Option<String> {
        let layer = self.layers.iter().find(|l| match self.pool {
            Pool::First | Pool::Last | Pool::Mean => false,
            Pool::Max => true,
            Pool::Root => l.bias || l.act.is_some(),
            Pool::Weighted => l.act.is_some(),
        })?;
        Some(format!("`{}` comes after a pooling with which it cannot change places ({})", layer.folder, self.pool))
    }

    /// The mean comes before something that is not linear: the graph makes it, and the last row has
    /// the whole of it.
    pub(crate) fn means_first(&self) -> bool {
        self.pool == Pool::Mean && self.layers.iter().any(|l| l.act.is_some())
    }
}

/// The folders of modules with tensors of their own; nothing where the list is malformed, which
/// [`found`] says.
pub(crate) fn folders(list: &Value) -> impl Iterator<Item = &str> {
    let module = |m: &Value| kind_of(m) == "Dense";
    let list = list.as_array().into_iter().flatten().filter(move |m| module(m));
    list.filter_map(|m| m["path"].as_str()).filter(|folder| !folder.is_empty() && beside(folder))
}

/// The contents of `modules.json`; `None` where there is none.
///
/// # Errors
/// It is malformed, or asks for a module that is not supported.
pub fn found(ckpt: &Checkpoint) -> Result<Option<Embedding>, FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        return of_metadata(ckpt, metadata);
    }
    let Some(list) = ckpt.json(LIST)? else { return Ok(None) };
    let bad = |what: String| bad(ckpt, LIST, what);
    let list = list.as_array().ok_or_else(|| bad("it is not a list of modules".into()))?;
    if only_scores(ckpt, list) {
        return Ok(None);
    }
    let mut embedding = Embedding::plain(Pool::Mean);
    let mut pooled = false;
    for (i, module) in list.iter().enumerate() {
        let kind = module["type"].as_str().unwrap_or_default();
        let folder = module["path"].as_str().unwrap_or_default();
        if !beside(folder) {
            return Err(bad(format!("module {i} is in `{folder}`, which is no folder of the checkpoint")));
        }
        match kind_of(module) {
            "Transformer" if i == 0 && folder.is_empty() => of_transformer(ckpt)?,
            "Pooling" if !pooled => {
                embedding.pool = pooling(ckpt, folder)?;
                pooled = true;
            }
            "Dense" if pooled && !embedding.normalize => embedding.layers.push(dense(ckpt, folder)?),
            "Normalize" if pooled => embedding.normalize = normalizes(ckpt, folder)? || embedding.normalize,
            // (It is for training.)
            "Dropout" if pooled => {}
            _ => return Err(bad(format!("module {i} is `{kind}`{}", place(folder)))),
        }
    }
    if !pooled {
        return Err(bad("there is no module that pools".into()));
    }
    for pair in embedding.layers.windows(2) {
        if pair[0].out != pair[1].inner {
            let [a, b] = [&pair[0], &pair[1]];
            return Err(bad(format!("`{}` gives {} columns, `{}` takes {}", a.folder, a.out, b.folder, b.inner)));
        }
    }
    if let Some(what) = embedding.out_of_order() {
        return Err(bad(what));
    }
    embedding.keep = kept(ckpt)?;
    Ok(Some(embedding))
}

/// Whether these are the modules of a cross-encoder, as sentence-transformers has written them
/// since version 6: its class decides the use of rows.
fn only_scores(ckpt: &Checkpoint, list: &[Value]) -> bool {
    let class = ckpt.config()["architectures"][0].as_str().unwrap_or_default();
    class.ends_with(CLASSIFIES) && list.iter().all(|m| kind_of(m) == "Transformer")
}

/// How many columns are kept, as the settings of the whole say: after all modules.
fn kept(ckpt: &Checkpoint) -> Result<Option<usize>, FrontendError> {
    let given = ckpt.json(SETTINGS)?.map(|s| s["truncate_dim"].clone()).filter(|n| !n.is_null());
    let Some(given) = given else { return Ok(None) };
    let n = given.as_u64().filter(|n| (1..=MOST).contains(n));
    let n = n.ok_or_else(|| bad(ckpt, SETTINGS, format!("`truncate_dim` is {given}")))?;
    Ok(Some(n as usize))
}

/// Ending of the names of classes that give texts scores.
const CLASSIFIES: &str = "ForSequenceClassification";

/// From the metadata of a GGUF file. It does not say whether embeddings are of length 1;
/// llama.cpp's are.
fn of_metadata(ckpt: &Checkpoint, metadata: &Metadata) -> Result<Option<Embedding>, FrontendError> {
    let name = metadata.get("general.architecture").and_then(|v| v.text()).unwrap_or_default();
    let key = format!("{name}.pooling_type");
    let class = ckpt.config()["architectures"][0].as_str().unwrap_or_default();
    // Rows of classifiers are pooled by their class, whatever a file says.
    if class.ends_with(CLASSIFIES) {
        return Ok(None);
    }
    let pool = match metadata.get(&key).and_then(|v| v.unsigned()) {
        None | Some(0) => return Ok(None),
        Some(1) => Pool::Mean,
        Some(2) => Pool::First,
        Some(3) => Pool::Last,
        Some(other) => {
            let what = format!("`{key}` is {other}: this model scores pairs of texts by a head that is not read");
            return Err(FrontendError::Output { path: ckpt.config_path().to_path_buf(), what, help: HELP });
        }
    };
    let layers = ["2_Dense", "3_Dense"].into_iter().filter_map(|folder| linear(ckpt, folder)).collect();
    Ok(Some(Embedding { normalize: true, layers, ..Embedding::plain(pool) }))
}

/// A linear layer for which a GGUF file has no more than the matrix.
fn linear(ckpt: &Checkpoint, folder: &str) -> Option<Dense> {
    let [out, inner] = ckpt.info(&format!("{folder}/linear.weight"))?.shape[..] else { return None };
    let bias = ckpt.info(&format!("{folder}/linear.bias")).is_some();
    Some(Dense { folder: folder.into(), inner, out, bias, act: None })
}

fn place(folder: &str) -> String {
    if folder.is_empty() { String::new() } else { format!(" in `{folder}`") }
}

#[cfg(test)]
mod tests;
