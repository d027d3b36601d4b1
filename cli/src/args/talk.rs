//! Arguments that `llmcc run` and `llmcc chat` share.

use super::engine::EngineArgs;
use super::values::parse_variable;
use crate::loaded::{Drafter, Guesses, Model};
use crate::{Error, documents};
use clap::Args as ClapArgs;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How a conversation becomes a prompt.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct TalkArgs {
    /// System message of a conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// A variable for the chat template, e.g. enable_thinking=false; the value is JSON, or else a string (may be
    /// repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub template_var: Vec<(String, Value)>,
    /// Chat template (Jinja) in place of the model's
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
}

impl TalkArgs {
    /// The first option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            (self.system.is_some(), "--system"),
            (!self.template_var.is_empty(), "--template-var"),
            (self.chat_template.is_some(), "--chat-template"),
        ];
        all.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// Models beside the model: an adapter, and guesses of the next tokens.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct DraftArgs {
    /// Load an adapter of PEFT from this folder; the artifact needs room for it (`compile --lora-slots`)
    #[arg(long, value_name = "FOLDER")]
    pub adapter: Option<PathBuf>,
    /// Guess next tokens, and give the same text in fewer steps of the model: `lookup` guesses from the text so far,
    /// `corpus:PATH` from texts (a text file, a .jsonl file as of `compile --calib`, or a folder of such), `jacobi` by
    /// the model's own predictions behind wrong guesses, `lookahead` by n-grams of these, an ARTIFACT of a smaller
    /// model with the same tokenizer by that model, `none` not at all [default: the draft heads of the artifact, if it
    /// has any (`compile --draft-head`)]
    #[arg(long, value_name = "none|lookup|corpus:PATH|jacobi|lookahead|ARTIFACT")]
    pub draft: Option<PathBuf>,
    /// Most tokens that are guessed for a step, up to 31 [default: the number of draft heads; 4 by a model; else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub guesses: Option<u32>,
}

impl DraftArgs {
    /// Where guesses come from: `--draft`.
    ///
    /// # Errors
    /// The smaller model cannot be opened, or has another vocabulary; texts that cannot be read, or too many of them.
    pub fn source(&self, engine: &EngineArgs, model: &Model) -> Result<Guesses, Error> {
        let Some(of) = &self.draft else { return Ok(Guesses::Own) };
        match of.to_str() {
            Some("none") => return Ok(Guesses::None),
            Some("lookup") => return Ok(Guesses::Lookup),
            Some("jacobi") => return Ok(Guesses::Jacobi),
            Some("lookahead") => return Ok(Guesses::Lookahead),
            _ => {}
        }
        if let Some(path) = of.as_os_str().as_bytes().strip_prefix(b"corpus:") {
            let texts = documents::all(Path::new(OsStr::from_bytes(path)))?;
            return Ok(Guesses::Corpus(Rc::new(model.corpus(&texts)?)));
        }
        let drafter = Drafter::new(engine.open(of)?)?;
        match drafter.differs(model) {
            Some(message) => Err(Error::Artifact { path: of.clone(), message }),
            None => Ok(Guesses::Model(Rc::new(drafter))),
        }
    }
}
