//! Options of calibration.

use crate::options::{Calibration, SEED, TextSource};
use crate::{Error, builtin};
use clap::Args as ClapArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llmcc_passes::method::{self, LEAST_SQUARES, METHODS, Method, Needs};
use std::path::{Path, PathBuf};

/// Tokens of calibration, unless the user wants others.
pub const TOKENS: usize = 32 << 10;

/// The texts of calibration.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct CalibTexts {
    /// Text like the model's own use, by which rounding errors are weighed: `builtin`, a text file, a file of JSON
    /// lines ({"text": ...} or {"messages": [...]}) or a folder of these; with `=2`, twice the share. May be given
    /// several times
    #[arg(long = "calib", value_name = "TEXT[=WEIGHT]", value_parser = parse_source)]
    pub sources: Vec<TextSource>,
    /// Tokens of these texts to use
    #[arg(long, value_name = "TOKENS", default_value_t = TOKENS, requires = "sources", value_parser = parse_tokens)]
    pub calib_tokens: usize,
    /// Chooses which documents of the texts are used, and which are kept out to check the artifact by
    #[arg(long, value_name = "SEED", default_value_t = SEED, requires = "sources")]
    pub calib_seed: u64,
}

/// How weights become codes.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct CalibArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub texts: CalibTexts,
    /// Keep the result of --calib in a file, which --calib takes in place of a text for the same checkpoint
    #[arg(long, value_name = "FILE", requires = "sources")]
    pub save_calib: Option<PathBuf>,
    /// How weights become codes: `nearest`, `least-squares`, or, with --calib, `clip` or `gptq`, after scales moved by
    /// `awq`, `awq+clip`, `awq+gptq`, or `smoothquant` for int8 activations [default: least-squares]
    #[arg(long, value_parser = methods())]
    pub method: Option<&'static Method>,
}

impl CalibArgs {
    /// The calibration, if there is one, by a program of this command line.
    pub fn calibration(&self, program: PathBuf) -> Option<Calibration> {
        (!self.texts.sources.is_empty()).then(|| Calibration {
            sources: self.texts.sources.clone(),
            tokens: self.texts.calib_tokens,
            seed: self.texts.calib_seed,
            save: self.save_calib.clone(),
            program,
            found: None,
        })
    }

    /// Refuses a method without the statistics that it needs, and statistics that neither it nor `others` use.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self, others: bool) -> Result<(), Error> {
        let (method, texts) = (self.method.unwrap_or(&LEAST_SQUARES), !self.texts.sources.is_empty());
        match method.needs {
            Needs::Products if !texts => Err(Error::Usage(format!(
                "--method {}: it weighs errors by the inputs of products: give --calib builtin, or a text",
                method.name
            ))),
            _ if method.moves.is_some() && !texts => Err(Error::Usage(format!(
                "--method {}: its scales are made of the inputs of products: give --calib builtin, or a text",
                method.name
            ))),
            Needs::Nothing if texts && !others => {
                Err(Error::Usage(format!("--method {} uses no calibration: leave out --calib", method.name)))
            }
            Needs::Nothing | Needs::Squares | Needs::Products => Ok(()),
        }
    }
}

fn methods() -> impl TypedValueParser<Value = &'static Method> {
    PossibleValuesParser::new(METHODS.iter().map(|m| m.name)).try_map(|name| method::named(&name).ok_or("unknown"))
}

fn parse_tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("must be a whole number from 1".into()),
    }
}

/// Reads `TEXT` or `TEXT=WEIGHT`.
fn parse_source(text: &str) -> Result<TextSource, String> {
    // A file may have the sign in its name.
    let weighted = text.rsplit_once('=').filter(|_| !Path::new(text).exists());
    let (path, weight) = match weighted {
        None => (text, 1.0),
        Some((path, weight)) => match weight.parse::<f64>() {
            Ok(weight) if weight > 0.0 && weight.is_finite() => (path, weight),
            _ => return Err(format!("`{weight}` is not a number above 0, and there is no file `{text}`")),
        },
    };
    if path.is_empty() {
        return Err("it has no name; give `builtin`, a file or a folder".into());
    }
    Ok(TextSource { path: (path != builtin::NAME).then(|| path.into()), weight })
}
