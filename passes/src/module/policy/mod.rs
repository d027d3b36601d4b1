//! Policies: which tokens of a sequence a cache keeps. A table, with a file for each.
//!
//! A policy changes the module that the front end lifts: states get another lifetime, and attention reads what is left.
//! So the runtime, the cost model and the kernels need not know it, a sequence takes as many bytes as the states say,
//! and what a token sees depends on its position alone, however steps were cut.

mod caches;
mod heads;
mod rebuild;
mod shared;
mod sinks;
mod work;

use llmcc_ir::graph::{Arg, Func, Module, Op};
use llmcc_ir::kv::KvSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// A way to keep a part of a sequence.
pub struct Policy {
    /// Its name in options and manifests.
    pub name: &'static str,
    /// What it keeps, in a sentence.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Its settings, each with its meaning; all are to be given but `layers`.
    pub settings: &'static [(&'static str, &'static str)],
    apply: fn(&mut Model<'_>, &Given) -> Result<Applied, String>,
}

/// All policies.
pub const POLICIES: &[Policy] = &[sinks::SINKS, heads::HEADS, shared::SHARED];

const LAYERS: (&str, &str) = ("layers", "layers that it is for, as in 0-3+8; all, if it is not given");

/// A policy and its settings. Text: `sinks:first=4,window=1020`.
#[derive(Clone)]
pub struct Given {
    policy: &'static Policy,
    settings: BTreeMap<&'static str, String>,
    /// The texts of files that settings name, once they are read.
    files: BTreeMap<&'static str, String>,
}

/// Settings that name a file.
const FILES: &[&str] = &["mask"];

impl Given {
    /// Reads the text of an option.
    ///
    /// # Errors
    /// Says which part is not as expected, and lists what may stand there.
    pub fn parse(text: &str) -> Result<Given, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(policy) = POLICIES.iter().find(|p| p.name == name) else {
            let names: Vec<&str> = POLICIES.iter().map(|p| p.name).collect();
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
        for (key, path) in self.settings.iter().filter(|(key, _)| FILES.contains(key)) {
            self.files.insert(key, read(Path::new(path))?);
        }
        Ok(())
    }

    /// The policy.
    pub fn policy(&self) -> &'static Policy {
        self.policy
    }

    /// The text of a setting.
    fn text(&self, key: &str) -> &str {
        self.settings.get(key).map_or("", String::as_str)
    }

    /// The text of the file that a setting names.
    fn file(&self, key: &str) -> Result<&str, String> {
        self.files.get(key).map(String::as_str).ok_or_else(|| format!("the file of `{key}` has not been read"))
    }

    /// A setting that is a number from 1 to `most`.
    fn number(&self, key: &str, most: usize) -> Result<usize, String> {
        let text = self.text(key);
        let number = text.parse().ok().filter(|n| (1..=most).contains(n));
        number.ok_or_else(|| format!("`{key}={text}` is no number from 1 to {most}"))
    }

    fn layers(&self) -> Result<Layers, String> {
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

/// Layers that a policy is for; `None`: all. Text: `0-3+8`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layers(Option<BTreeSet<usize>>);

impl Layers {
    fn parse(text: &str) -> Result<Layers, String> {
        let wrong = || format!("`layers={text}` is no list of layers, as in 0-3+8");
        let mut all = BTreeSet::new();
        for part in text.split('+') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let bound = |text: &str| text.parse().ok().filter(|n: &usize| *n < 1 << 16);
            let (Some(from), Some(to)) = (bound(from), bound(to)) else { return Err(wrong()) };
            if from > to {
                return Err(wrong());
            }
            all.extend(from..=to);
        }
        Ok(Layers(Some(all)))
    }
}

/// Lets a module's caches keep what the policies say, each those of other layers.
///
/// # Errors
/// A message where a setting is out of range, a layer has two policies, or no cache can be changed so.
pub fn apply(module: &mut Module, policies: &[Given]) -> Result<Vec<Applied>, String> {
    let caches = caches::caches(module);
    let mut model = Model { module, caches, used: BTreeSet::new() };
    let each =
        |given: &Given| (given.policy.apply)(&mut model, given).map_err(|why| format!("{}: {why}", given.policy.name));
    policies.iter().map(each).collect()
}

/// Lets sequences have `context` tokens, more than the model has positions: tokens see others at distances that it has.
///
/// # Errors
/// A message where a layer keeps whole sequences, or positions are looked up.
pub fn lengthen(module: &mut Module, context: usize) -> Result<(), String> {
    let whole = |spec: &KvSpec| spec.window.is_none() && spec.first.is_none();
    let first = module.entries.first().map_or(&[][..], |entry| &entry.calls);
    let caches = caches::caches(module);
    for (layer, state) in caches.iter().enumerate() {
        let bound = first.iter().any(|call| call.args.contains(&Arg::State(*state)));
        if let Some(spec) = module.states[*state].paged().filter(|spec| bound && whole(spec)) {
            let most = module.info.max_context;
            return Err(format!("layer {layer} keeps all of a sequence ({spec}), so contexts end at {most} tokens"));
        }
    }
    let looked_up = |f: &Func| f.nodes.iter().any(|n| matches!(n.op, Op::EmbedPositions { .. }));
    if let Some(call) = first.iter().find(|call| looked_up(&module.funcs[call.func])) {
        let (name, most) = (&module.funcs[call.func].name, module.info.max_context);
        return Err(format!("`{name}` looks positions up in a table, so contexts end at {most} tokens"));
    }
    let most = module.info.max_context;
    for entry in module.entries.iter_mut().skip(1) {
        // (Others have the positions that they have.)
        entry.context.get_or_insert(most);
    }
    module.info.max_context = context;
    Ok(())
}

/// A module under change.
struct Model<'a> {
    module: &'a mut Module,
    /// The states of layers with attention that looks behind a token, as they were.
    caches: Vec<usize>,
    /// Layers that have a policy.
    used: BTreeSet<usize>,
}

/// The caches that a policy changes.
struct Chosen {
    /// Layers with their states.
    states: Vec<(usize, usize)>,
    applied: Applied,
}

/// Which caches a policy has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Layers with attention that looks behind a token.
    pub layers: usize,
    /// How many of their caches were changed.
    pub changed: usize,
    /// Those asked for that were not, with the reason.
    pub left: Vec<(usize, String)>,
}

impl Model<'_> {
    /// The caches of the layers asked for, as far as they have more than `most` tokens.
    ///
    /// # Errors
    /// A message where a layer does not exist or has a policy already, or there is no such cache.
    fn chosen(&mut self, layers: &Layers, most: usize) -> Result<Chosen, String> {
        let count = self.caches.len();
        if let Some(layer) = layers.0.iter().flatten().find(|layer| **layer >= count) {
            return Err(format!("there is no layer {layer} with a cache; the model has {count}"));
        }
        let mut applied = Applied { layers: count, ..Applied::default() };
        let mut states = vec![];
        for (layer, state) in self.caches.iter().copied().enumerate() {
            let asked = layers.0.as_ref().map(|of| of.contains(&layer));
            if asked == Some(false) || asked.is_none() && self.used.contains(&layer) {
                continue;
            }
            if !self.used.insert(layer) {
                return Err(format!("layer {layer} has a policy already; name the layers that each is for"));
            }
            match caches::fixed(self.module, state, most) {
                Some(why) => applied.left.push((layer, why)),
                None => states.push((layer, state)),
            }
        }
        applied.changed = states.len();
        if states.is_empty() {
            let why = applied.left.first().map_or_else(
                || "the model has no attention that looks behind a token".to_string(),
                |(layer, why)| format!("no cache can be changed; that of layer {layer}: {why}"),
            );
            return Err(why);
        }
        Ok(Chosen { states, applied })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_is_wrong() {
        let wrong = |text: &str| Given::parse(text).err().unwrap_or_else(|| panic!("{text} was read"));
        assert!(wrong("h3o").contains("use sinks, heads, shared"), "{}", wrong("h3o"));
        assert!(wrong("sinks").contains("needs `first`"));
        assert!(wrong("sinks:first=4").contains("needs `window`"));
        assert!(wrong("sinks:first=4,width=9").contains("no setting `width`"));
        assert!(wrong("sinks:first=4,first=9").contains("twice"));
        assert!(wrong("sinks:first").contains("is no setting"));
        assert!(wrong("sinks:first=4,window=9,layers=3-1").contains("no list of layers"));
        let read = Given::parse("sinks:window=9,first=4,layers=0-2+5").unwrap();
        assert_eq!(read.to_string(), "sinks:first=4,layers=0-2+5,window=9");
        assert_eq!(read.layers().unwrap(), Layers(Some(BTreeSet::from([0, 1, 2, 5]))));
        let zero = Given::parse("sinks:first=0,window=9").unwrap();
        assert!(zero.number("first", 9).unwrap_err().contains("1 to 9"));
    }
}
