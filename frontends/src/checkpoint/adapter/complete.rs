//! The settings of an adapter held against its tensors, before anything is merged: whatever the one calls for is
//! in the other.

use super::{AGAIN, Merging, Settings, Sorted, Wrong};
use std::collections::BTreeSet;

/// A name with all numbers of layers and experts made alike.
fn kind(module: &str) -> String {
    let alike = |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { "*" } else { part }.to_string();
    module.split('.').map(alike).collect::<Vec<_>>().join(".")
}

impl Merging<'_> {
    /// Checks that factors are of modules that the settings name, and that nothing is missing.
    pub(super) fn check(&self, parts: &Sorted) -> Result<(), Wrong> {
        if parts.whole.is_empty() && parts.factors.is_empty() && parts.rows.is_empty() {
            return Err(("holds no tensors, so the adapter changes nothing".into(), AGAIN));
        }
        for module in parts.factors.keys() {
            let of = module.trim_end_matches(".base_layer");
            match self.is_parameter(module) {
                true => self.settings.targets.check_parameter(of)?,
                false => self.settings.targets.check(of)?,
            }
        }
        if self.settings.targets.parameters() && !parts.factors.keys().any(|module| self.is_parameter(module)) {
            let what = "`target_parameters` names parameters, but the file has factors for none of them".into();
            return Err((what, AGAIN));
        }
        self.check_saved(parts)?;
        for (table, rows) in &self.settings.rows {
            if !rows.is_empty() && !parts.rows.keys().any(|module| Settings::is_table(table, module)) {
                let of = if table.is_empty() { "the embedding table".into() } else { format!("`{table}`") };
                let what = format!("`trainable_token_indices` replaces rows of {of}, but the file has no such rows");
                return Err((what, AGAIN));
            }
        }
        let unbiased = |module: &&str| {
            let bias = format!("{module}.bias");
            self.found(&bias).is_some() && !parts.whole.contains_key(&bias)
        };
        let mut modules = parts.factors.keys().map(|m| m.trim_end_matches(".base_layer"));
        match modules.find(unbiased) {
            Some(module) if self.settings.biases => {
                Err((format!("`bias` says that biases were trained, but the file has no `{module}.bias`"), AGAIN))
            }
            _ => Ok(()),
        }
    }

    /// Every module that is saved as a whole is there. (The base may lack modules PEFT adds to the
    /// list by itself, such as heads by all of their names.)
    fn check_saved(&self, parts: &Sorted) -> Result<(), Wrong> {
        let targets = &self.settings.targets;
        let mut found = false;
        for name in targets.saved() {
            let there = parts.whole.keys().chain(parts.rows.keys()).any(|tensor| targets.is_saved(name, tensor));
            found |= there;
            if let Some(tensor) = self.ckpt.index.keys().find(|tensor| !there && targets.is_saved(name, tensor)) {
                let what = format!("`modules_to_save` has `{name}`, but the file has no tensor of it like `{tensor}`");
                return Err((what, AGAIN));
            }
        }
        match targets.saved().next() {
            Some(name) if !found => {
                Err((format!("`modules_to_save` has `{name}`, but the file has no tensor of that module"), AGAIN))
            }
            _ => Ok(()),
        }
    }

    /// Modules of the base that the settings name, like others that have factors, and that have none.
    pub(super) fn left(&self, parts: &Sorted) -> Vec<String> {
        let modules = || parts.factors.keys().map(|m| m.trim_end_matches(".base_layer"));
        let (kinds, there): (BTreeSet<String>, BTreeSet<&str>) = (modules().map(kind).collect(), modules().collect());
        let stems = self.ckpt.index.keys().filter_map(|name| name.strip_suffix(".weight"));
        let missing =
            |m: &&str| !there.contains(*m) && kinds.contains(&kind(m)) && self.settings.targets.check(m).is_ok();
        stems.filter(missing).map(String::from).collect()
    }
}
