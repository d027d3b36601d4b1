//! A policy as an option names it.

use super::model::{Applied, Layers, Model};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A way to keep a part of a sequence.
pub struct Policy {
    /// Its name in options and manifests.
    pub name: &'static str,
    /// The tokens that stay, in a sentence.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Its settings, each with its meaning; all are to be given but `layers`.
    pub settings: &'static [(&'static str, &'static str)],
    /// The settings that name a file, whose text it reads.
    pub files: &'static [&'static str],
    pub(super) apply: fn(&mut Model<'_>, &Given) -> Result<Applied, String>,
}

/// The setting that names layers.
pub(super) const LAYERS: (&str, &str) = ("layers", "layers that it is for, as in 0-3+8; all, if it is not given");

/// A policy and its settings. Text: `sinks:first=4,window=1020`.
#[derive(Clone)]
pub struct Given {
    pub(super) policy: &'static Policy,
    settings: BTreeMap<&'static str, String>,
    /// The texts of files that settings name, once they are read.
    files: BTreeMap<&'static str, String>,
}

impl Given {
    /// Reads the text of an option.
    ///
    /// # Errors
    /// Says which part is not as expected, and lists what may stand there.
    pub(super) fn read(text: &str, policies: &'static [Policy]) -> Result<Given, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(policy) = policies.iter().find(|p| p.name == name) else {
            let names: Vec<&str> = policies.iter().map(|p| p.name).collect();
            return Err(format!("there is no policy `{name}`; use {}", names.join(", ")));
        };
        let mut settings = BTreeMap::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is no setting; {}", policy.usage()))?;
            let known = policy.settings.iter().find(|(k, _)| *k == key);
            let (key, _) = known.ok_or_else(|| format!("{name} has no setting `{key}`; {}", policy.usage()))?;
            if settings.insert(*key, value.to_string()).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
        }
        let optional = LAYERS.0;
        if let Some((key, _)) = policy.settings.iter().find(|(k, _)| *k != optional && !settings.contains_key(k)) {
            return Err(format!("{name} needs `{key}`; {}", policy.usage()));
        }
        let given = Given { policy, settings, files: BTreeMap::new() };
        given.layers()?;
        Ok(given)
    }

    /// Reads the files that settings name.
    ///
    /// # Errors
    /// The first of `read`.
    pub fn load<E>(&mut self, read: impl Fn(&Path) -> Result<String, E>) -> Result<(), E> {
        for (key, path) in self.settings.iter().filter(|(key, _)| self.policy.files.contains(key)) {
            self.files.insert(key, read(Path::new(path))?);
        }
        Ok(())
    }

    /// The policy.
    pub fn policy(&self) -> &'static Policy {
        self.policy
    }

    /// The text of a setting.
    pub(super) fn text(&self, key: &str) -> &str {
        self.settings.get(key).map_or("", String::as_str)
    }

    /// The text of the file that a setting names.
    pub(super) fn file(&self, key: &str) -> Result<&str, String> {
        self.files.get(key).map(String::as_str).ok_or_else(|| format!("the file of `{key}` has not been read"))
    }

    /// A setting that is a number from 1 to `most`.
    pub(super) fn count(&self, key: &str, most: usize) -> Result<usize, String> {
        let text = self.text(key);
        let count = text.parse().ok().filter(|n| (1..=most).contains(n));
        count.ok_or_else(|| format!("`{key}={text}` is no number from 1 to {most}"))
    }

    /// A setting that is a number from 0 to 1.
    pub(super) fn share(&self, key: &str) -> Result<f64, String> {
        let text = self.text(key);
        let share = text.parse().ok().filter(|share: &f64| (0.0..=1.0).contains(share));
        share.ok_or_else(|| format!("`{key}={text}` is no number from 0 to 1"))
    }

    pub(super) fn layers(&self) -> Result<Layers, String> {
        self.settings.get(LAYERS.0).map_or(Ok(Layers(None)), |text| Layers::parse(text))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> = self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "{}:{}", self.policy.name, settings.join(","))
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Given {
    fn eq(&self, other: &Given) -> bool {
        (self.policy.name, &self.settings) == (other.policy.name, &other.settings)
    }
}

impl Policy {
    /// How it is written.
    pub fn usage(&self) -> String {
        let settings: Vec<String> = self.settings.iter().map(|(key, about)| format!("{key} ({about})")).collect();
        format!("its settings are {}", settings.join(", "))
    }
}
