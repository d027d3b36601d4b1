//! The form of a text, as `llmcc run` takes it.

use crate::Error;
use crate::loaded::Form;
use clap::{ArgGroup, Args as ClapArgs};
use llmcc_frontends::input;
use llmcc_model::sys::{LLMCC_GRAMMAR_CHOICES, LLMCC_GRAMMAR_JSON_SCHEMA, LLMCC_GRAMMAR_LARK, LLMCC_GRAMMAR_REGEX};
use std::path::{Path, PathBuf};

/// A form that the text is to have: at most one.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(group(ArgGroup::new("form").args(["json_schema", "regex", "grammar", "choice"]).multiple(true)
    .conflicts_with_all(["embed", "classify", "rank", "audio", "ids"])))]
pub struct FormArgs {
    /// The text is JSON of this schema: a file, or the schema itself (`{"type": ...`)
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["regex", "grammar", "choice"])]
    pub json_schema: Option<String>,
    /// The text matches this regular expression as a whole
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["grammar", "choice"])]
    pub regex: Option<String>,
    /// The text is one of this grammar, a file in the syntax of Lark
    #[arg(long, value_name = "FILE", conflicts_with = "choice")]
    pub grammar: Option<PathBuf>,
    /// The text is one of these (may be repeated)
    #[arg(long, value_name = "TEXT")]
    pub choice: Vec<String>,
}

impl FormArgs {
    /// The form, if one is wanted.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn form(&self) -> Result<Option<Form>, Error> {
        let form = |language, source| Ok(Some(Form { language, source }));
        if let Some(schema) = &self.json_schema {
            let own = schema.trim_start().starts_with('{');
            let source = if own { schema.clone() } else { read(Path::new(schema))? };
            return form(LLMCC_GRAMMAR_JSON_SCHEMA, source);
        }
        if let Some(pattern) = &self.regex {
            return form(LLMCC_GRAMMAR_REGEX, pattern.clone());
        }
        if let Some(path) = &self.grammar {
            return form(LLMCC_GRAMMAR_LARK, read(path)?);
        }
        match self.choice.is_empty() {
            true => Ok(None),
            false => form(LLMCC_GRAMMAR_CHOICES, serde_json::json!(self.choice).to_string()),
        }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    Ok(input::read_text(path)?)
}
