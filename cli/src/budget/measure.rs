//! Measuring an artifact on the texts of a budget.

use super::texts::{Text, hash, joined};
use crate::Error;
use crate::compared::{Comparison, Input};
use crate::measured::Domain;
use std::path::Path;

/// Measures artifacts against a reference.
pub struct Meter<'a> {
    /// This command line.
    pub program: &'a Path,
    /// The reference.
    pub reference: &'a Path,
    /// Threads; 0: one per core. Measurements do not depend on it.
    pub threads: u32,
}

/// Which part of the texts is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Some documents of the part that the choice is made by.
    Trial,
    /// The part that the choice is made by.
    Choice,
    /// The part that is kept aside.
    Kept,
}

impl Meter<'_> {
    /// Measures an artifact on each text.
    ///
    /// # Errors
    /// The artifact does not run here, has no tokenizer or no logits.
    pub fn domains(&self, artifact: &Path, texts: &[Text], part: Part) -> Result<Vec<Domain>, Error> {
        texts.iter().map(|text| self.domain(artifact, text, part)).collect()
    }

    fn domain(&self, artifact: &Path, text: &Text, part: Part) -> Result<Domain, Error> {
        let documents = match part {
            Part::Trial => text.trial(),
            Part::Choice => text.choice.clone(),
            Part::Kept => text.kept.clone(),
        };
        let joined = joined(&documents);
        let Meter { program, reference, threads } = *self;
        let comparison = Comparison { program, reference, artifact, threads };
        let found = comparison.run(Input::Text(&joined)).map_err(|what| {
            Error::Failed(format!("--budget: the artifact cannot be measured, so nothing was written ({what})"))
        })?;
        Ok(Domain { name: text.name.clone(), sha256: hash(&documents), bytes: joined.len(), found })
    }
}
