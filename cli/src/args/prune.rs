//! Options of pruning.

use crate::Error;
use clap::Args as ClapArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llmcc_passes::method::{self, Needs, PRUNERS, Pruner, Pruning, Sparsity};

/// Weights that become zero.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct PruneArgs {
    /// Make weights of the layers' matrices zero before they are rounded: weights of least `magnitude`, or, with
    /// --calib, by `wanda`, or by `sparsegpt` or `rose`, which have other weights make up for them
    #[arg(long, requires = "format", value_parser = pruners())]
    #[arg(conflicts_with_all = ["error_budget", "budget", "dtype"])]
    pub prune: Option<&'static Pruner>,
    /// The part that becomes zero: a share of the weights of each row, or `2:4`, two of each four adjacent columns
    /// [default: 50%]
    #[arg(long, value_name = "SHARE", requires = "prune", value_parser = Sparsity::parse)]
    pub sparsity: Option<Sparsity>,
}

impl PruneArgs {
    /// The pruning, if there is one.
    pub fn pruning(&self) -> Option<Pruning> {
        Some(Pruning { pruner: self.prune?, sparsity: self.sparsity.unwrap_or(Sparsity::HALF) })
    }

    /// Refuses a pruner without the statistics that it needs: `texts` says whether they will be collected.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self, texts: bool) -> Result<(), Error> {
        match self.prune {
            Some(pruner) if !texts && pruner.needs > Needs::Nothing => Err(Error::Usage(format!(
                "--prune {}: it weighs weights by the inputs of products: give --calib builtin, or a text",
                pruner.name
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it reads the statistics of texts.
    pub fn uses_texts(&self) -> bool {
        self.prune.is_some_and(|pruner| pruner.needs > Needs::Nothing)
    }
}

fn pruners() -> impl TypedValueParser<Value = &'static Pruner> {
    PossibleValuesParser::new(PRUNERS.iter().map(|p| p.name)).try_map(|name| method::pruner(&name).ok_or("unknown"))
}
