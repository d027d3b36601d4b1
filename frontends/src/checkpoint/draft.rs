//! A published draft beside the model that it guesses for: its tensors join the checkpoint's under names of their own.

use super::draft_files::{DRAFT, DraftFiles};
use super::load::{self, Opened};
use super::{Checkpoint, file_name};
use crate::error::FrontendError;
use std::path::{Path, PathBuf};

/// Tensors of Medusa's heads, as its authors save them.
const MEDUSA: [&str; 2] = ["medusa_lm_head.safetensors", "medusa_lm_head.pt"];

impl Checkpoint {
    /// Adds the tensors of a draft (EAGLE, Medusa), each behind `draft/`: of a folder with `config.json`, or of a file
    /// of tensors with `config.json` beside it. Safetensors, PyTorch's files and indices of either are read.
    ///
    /// # Errors
    /// Files are missing, unreadable or malformed; the weights are quantized.
    pub fn with_draft(mut self, path: &Path) -> Result<Checkpoint, FrontendError> {
        let tensors = find(path)?;
        let dir = tensors.parent().unwrap_or(Path::new(""));
        let config_path = dir.join(load::CONFIG);
        let config = load::read_config(dir)?.ok_or_else(|| {
            wrong(&config_path, "the file is missing", "a draft needs config.json beside its tensors; download it, too")
        })?;
        if config.get("quantization_config").is_some_and(|v| !v.is_null()) {
            return Err(wrong(
                &config_path,
                "`quantization_config` says that the draft's weights are quantized",
                "take the draft in floats; --w8, --w4 and --format round it with the model",
            ));
        }
        let mut opened = Opened { first: self.shards.len(), ..Opened::default() };
        let by_index = tensors.extension().is_some_and(|e| e == "json");
        match by_index {
            true => load::open_index(dir, &tensors, &mut opened)?,
            false => load::open_shard(&tensors, &mut opened)?,
        }
        let Opened { shards, tensors: views, notes, .. } = opened;
        let mut sources = vec![config_path.clone()];
        sources.extend(by_index.then(|| tensors.clone()));
        sources.extend(shards.iter().map(|s| s.path.clone()));
        self.index.extend(views.into_iter().flatten().map(|(name, view)| (format!("{DRAFT}{name}"), view.entry())));
        self.shards.extend(shards);
        self.notes.extend(notes);
        self.draft = Some(DraftFiles { config_path, config, tensors, sources });
        Ok(self)
    }

    /// The draft beside the model, if there is one.
    pub(crate) fn draft(&self) -> Option<&DraftFiles> {
        self.draft.as_ref()
    }

    /// The tensors of the model itself: all but the draft's.
    pub(crate) fn own_names(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| !name.starts_with(DRAFT))
    }
}

/// The file with a draft's tensors, or their index.
fn find(path: &Path) -> Result<PathBuf, FrontendError> {
    let meta = std::fs::metadata(path).map_err(|source| load::io(path, "open", source))?;
    let tensors = match meta.is_dir() {
        true => {
            let of_medusa = MEDUSA.iter().map(|name| path.join(name)).find(|path| path.symlink_metadata().is_ok());
            of_medusa.map_or_else(|| load::find_tensors(path), Ok)?
        }
        false => path.to_path_buf(),
    };
    let name = file_name(&tensors);
    if load::is_gguf(&tensors) {
        let help = "take EAGLE's or Medusa's own files: config.json with safetensors or PyTorch's file";
        return Err(wrong(&tensors, "a draft in a GGUF file is not supported", help));
    }
    if name.ends_with(".json") && !name.ends_with("index.json") {
        return Err(wrong(path, "it is neither a folder nor a file of tensors", "give the folder of the draft"));
    }
    Ok(tensors)
}

fn wrong(path: &Path, what: &str, help: &'static str) -> FrontendError {
    FrontendError::NotACheckpoint { path: path.to_path_buf(), what: what.into(), help: help.into() }
}
