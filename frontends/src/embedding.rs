//! How rows become an embedding, by the files of sentence-transformers beside a checkpoint:
//! `modules.json` and a folder for each module that has settings; or by a GGUF file's metadata.

use crate::checkpoint::Checkpoint;
use crate::checkpoint::gguf::Metadata;
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;
use serde_json::Value;

/// What becomes of the last layer's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// How those of a text's tokens become one.
    pub pool: Pool,
    /// That one is scaled to length 1.
    pub normalize: bool,
    /// Linear maps after pooling, in order.
    pub layers: Vec<Dense>,
}

/// A linear map, and what its result is activated by. (Being linear, it may as well come before the
/// mean.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Folder of the module, and beginning of the names of its tensors.
    pub folder: String,
    /// Columns of its input.
    pub inner: usize,
    /// Columns of its output.
    pub out: usize,
    /// Whether it has a bias.
    pub bias: bool,
    /// The activation, if there is one.
    pub act: Option<UnaryOp>,
}

impl Embedding {
    /// The mean comes before something that is not linear: the graph makes it, and the last row has
    /// the whole of it.
    pub(crate) fn means_first(&self) -> bool {
        self.pool == Pool::Mean && self.layers.iter().any(|l| l.act.is_some())
    }
}

/// The list of modules.
pub(crate) const LIST: &str = "modules.json";
const HELP: &str = "only embedders of a transformer, one pooling of mean, first or last token, linear layers, and \
                    normalization are compiled";
/// Largest width that is believed.
const MOST: u64 = 1 << 20;

/// Whether a folder that the list names is one beside it: the list comes from a stranger.
fn beside(folder: &str) -> bool {
    !folder.contains(['/', '\\']) && !folder.starts_with('.')
}

/// The folders of modules with tensors of their own; nothing where the list is malformed, which
/// [`found`] says.
pub(crate) fn folders(list: &Value) -> impl Iterator<Item = &str> {
    let module = |m: &Value| m["type"].as_str().is_some_and(|kind| kind.rsplit('.').next() == Some("Dense"));
    let list = list.as_array().into_iter().flatten().filter(move |m| module(m));
    list.filter_map(|m| m["path"].as_str()).filter(|folder| !folder.is_empty() && beside(folder))
}

/// What `modules.json` says; `None` where there is none.
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
    let mut embedding = Embedding { pool: Pool::Mean, normalize: false, layers: vec![] };
    let mut pooled = false;
    for (i, module) in list.iter().enumerate() {
        let kind = module["type"].as_str().unwrap_or_default();
        let folder = module["path"].as_str().unwrap_or_default();
        if !beside(folder) {
            return Err(bad(format!("module {i} is in `{folder}`, which is no folder of the checkpoint")));
        }
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" if i == 0 && folder.is_empty() => {}
            "Pooling" if !pooled => {
                embedding.pool = pooling(ckpt, folder)?;
                pooled = true;
            }
            "Dense" if pooled && !embedding.normalize => embedding.layers.push(dense(ckpt, folder)?),
            "Normalize" if pooled => embedding.normalize = true,
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
    Ok(Some(embedding))
}

/// Texts are not pooled, but given classes.
const RANK: u64 = 4;

/// What a GGUF file says. It does not say whether embeddings are of length 1, as those of llama.cpp
/// are.
fn of_metadata(ckpt: &Checkpoint, metadata: &Metadata) -> Result<Option<Embedding>, FrontendError> {
    let name = metadata.get("general.architecture").and_then(|v| v.text()).unwrap_or_default();
    let key = format!("{name}.pooling_type");
    let class = ckpt.config()["architectures"][0].as_str().unwrap_or_default();
    let pool = match metadata.get(&key).and_then(|v| v.unsigned()) {
        None | Some(0) => return Ok(None),
        Some(1) => Pool::Mean,
        Some(2) => Pool::First,
        Some(3) => Pool::Last,
        Some(RANK) if class.ends_with("ForSequenceClassification") => return Ok(None),
        Some(other) => {
            let what = format!("`{key}` is {other}: this model scores pairs of texts by a head that is not read");
            return Err(FrontendError::Output { path: ckpt.config_path().to_path_buf(), what, help: HELP });
        }
    };
    Ok(Some(Embedding { pool, normalize: true, layers: vec![] }))
}

fn place(folder: &str) -> String {
    if folder.is_empty() { String::new() } else { format!(" in `{folder}`") }
}

fn bad(ckpt: &Checkpoint, file: &str, what: String) -> FrontendError {
    FrontendError::Output { path: ckpt.dir().join(file), what, help: HELP }
}

/// The settings of a module.
fn settings(ckpt: &Checkpoint, folder: &str) -> Result<(String, Value), FrontendError> {
    let file = format!("{folder}/config.json");
    match ckpt.json(&file)? {
        Some(settings) => Ok((file, settings)),
        None => Err(bad(ckpt, LIST, format!("`{file}` is missing, which has the settings of a module"))),
    }
}

/// How a pooling module pools.
fn pooling(ckpt: &Checkpoint, folder: &str) -> Result<Pool, FrontendError> {
    let (file, settings) = settings(ckpt, folder)?;
    const MODES: [(&str, &str, Pool); 3] = [
        ("pooling_mode_mean_tokens", "mean", Pool::Mean),
        ("pooling_mode_cls_token", "cls", Pool::First),
        ("pooling_mode_lasttoken", "lasttoken", Pool::Last),
    ];
    if let Some(mode) = settings["pooling_mode"].as_str() {
        let known = MODES.iter().find(|(_, name, _)| *name == mode).map(|(.., pool)| *pool);
        return known.ok_or_else(|| bad(ckpt, &file, format!("`pooling_mode` is \"{mode}\"")));
    }
    let on: Vec<&str> = settings
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, v)| name.starts_with("pooling_mode_") && **v == Value::Bool(true))
        .map(|(name, _)| name.as_str())
        .collect();
    let pool = |name: &str| MODES.iter().find(|(long, ..)| *long == name).map(|(.., pool)| *pool);
    match on[..] {
        [one] => pool(one).ok_or_else(|| bad(ckpt, &file, format!("`{one}` is true"))),
        // What the module's own defaults are.
        [] => Ok(Pool::Mean),
        _ => Err(bad(ckpt, &file, format!("several ways of pooling are asked for: {}", on.join(", ")))),
    }
}

/// A linear layer of its own.
fn dense(ckpt: &Checkpoint, folder: &str) -> Result<Dense, FrontendError> {
    let (file, settings) = settings(ckpt, folder)?;
    let size = |name: &str| match settings[name].as_u64() {
        Some(n) if (1..=MOST).contains(&n) => Ok(n as usize),
        _ => Err(bad(ckpt, &file, format!("`{name}` is {}", settings[name]))),
    };
    let name = settings["activation_function"].as_str().unwrap_or_default();
    let act = match name.rsplit('.').next() {
        Some("Identity") => None,
        Some("Tanh") => Some(UnaryOp::Tanh),
        Some("ReLU") => Some(UnaryOp::Relu),
        Some("SiLU") => Some(UnaryOp::Silu),
        Some("GELU") => Some(UnaryOp::Gelu),
        Some("Sigmoid") => Some(UnaryOp::Sigmoid),
        _ => {
            let known = "none of Identity, Tanh, ReLU, SiLU, GELU and Sigmoid";
            return Err(bad(ckpt, &file, format!("`activation_function` is \"{name}\", {known}")));
        }
    };
    let (inner, out) = (size("in_features")?, size("out_features")?);
    Ok(Dense { folder: folder.to_owned(), inner, out, bias: settings["bias"].as_bool().unwrap_or(true), act })
}
