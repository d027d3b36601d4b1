//! Which modules an adapter changes, by its settings, as PEFT decides it (`check_target_module_exists`): factors
//! of other modules are in a file by mistake, and PEFT leaves them aside.

use super::wrong::{AGAIN, OTHER, Wrong, ends, no_pattern};
use crate::expression::Expression;
use serde_json::{Map, Value};

/// Stands for all linear modules but the head.
const ALL_LINEAR: &str = "all-linear";

/// Names of modules.
#[derive(Debug)]
enum Modules {
    /// Whole names, or the ends of some.
    Names(Vec<String>),
    /// An expression of whole names.
    Expression(Expression),
}

/// The modules that have factors.
#[derive(Debug, Default)]
pub struct Targets {
    /// `None`: any.
    named: Option<Modules>,
    excluded: Option<Modules>,
    /// Parameters that are no module's weight.
    parameters: Vec<String>,
    /// Modules that are replaced as a whole, which have no factors.
    saved: Vec<(String, Expression)>,
    layers: Option<Vec<u64>>,
    /// Names of lists of layers; empty: any.
    lists: Vec<String>,
}

impl Targets {
    /// Reads the settings.
    ///
    /// # Errors
    /// One of them is no name, list or expression of names, or of numbers.
    pub fn parse(all: &Map<String, Value>) -> Result<Targets, Wrong> {
        let named = modules(all, "target_modules")?.filter(|_| !said_all(all.get("target_modules")));
        let layers = match all.get("layers_to_transform").filter(|v| !v.is_null()) {
            None => None,
            Some(v) => Some(numbers(v).ok_or_else(|| wrong("layers_to_transform", v, "numbers of layers"))?),
        };
        let layers = layers.filter(|list| !list.is_empty());
        if layers.is_some() && matches!(named, Some(Modules::Expression(_))) {
            let what = "`layers_to_transform` is set, and `target_modules` is an expression, which PEFT refuses";
            return Err((what.into(), AGAIN));
        }
        let lists = names(all, "layers_pattern")?;
        if let Some(list) =
            lists.iter().find(|list| list.contains(|c: char| !c.is_alphanumeric() && !"._-".contains(c)))
        {
            return Err((format!("`layers_pattern` has `{list}`; only names of lists of layers are supported"), OTHER));
        }
        let whole = |name: &String| {
            let whole = Expression::whole(&format!("(?:.*\\.)?(?:{name})(?:\\..*)?"));
            Ok((name.clone(), whole.map_err(|why| no_pattern("modules_to_save", name, why))?))
        };
        Ok(Targets {
            named,
            excluded: modules(all, "exclude_modules")?,
            parameters: names(all, "target_parameters")?,
            saved: names(all, "modules_to_save")?.iter().map(whole).collect::<Result<_, Wrong>>()?,
            layers,
            lists,
        })
    }

    /// Whether a module has factors by the settings.
    ///
    /// # Errors
    /// It has none, with the setting that says so.
    pub fn check(&self, module: &str) -> Result<(), Wrong> {
        let no = |why: String| Err((format!("the file has factors of module `{module}`, {why}"), AGAIN));
        if self.excluded.as_ref().is_some_and(|m| m.has(module)) {
            return no("which `exclude_modules` excludes".into());
        }
        if let Some((name, _)) = self.saved.iter().find(|(_, regex)| regex.is(module)) {
            return no(format!("and `modules_to_save` has `{name}`, whose modules have none"));
        }
        if self.named.as_ref().is_some_and(|m| !m.has(module)) {
            return no("which `target_modules` does not name".into());
        }
        match &self.layers {
            Some(layers) if !self.layer(module).is_some_and(|i| layers.contains(&i)) => {
                no("which is not in a layer of `layers_to_transform`".into())
            }
            _ => Ok(()),
        }
    }

    /// The same of a module whose parameters have factors.
    ///
    /// # Errors
    /// See [`Targets::check`].
    pub fn check_parameter(&self, module: &str) -> Result<(), Wrong> {
        let of = |parameter: &String| parameter.rsplit_once('.').is_none_or(|(owner, _)| ends(module, owner));
        if self.parameters.iter().any(of) {
            return Ok(());
        }
        let what = format!("the file has factors of parameters of `{module}`, which `target_parameters` does not name");
        Err((what, AGAIN))
    }

    /// Whether any parameter has factors.
    pub fn parameters(&self) -> bool {
        !self.parameters.is_empty()
    }

    /// Names of modules that are replaced as a whole.
    pub fn saved(&self) -> impl Iterator<Item = &str> {
        self.saved.iter().map(|(name, _)| name.as_str())
    }

    /// Whether a module or tensor is of one that is replaced by this name.
    pub fn is_saved(&self, name: &str, module: &str) -> bool {
        self.saved.iter().any(|(of, regex)| of == name && regex.is(module))
    }

    /// The number of the layer that a module is of.
    fn layer(&self, module: &str) -> Option<u64> {
        let parts: Vec<&str> = module.split('.').collect();
        let number = |i: usize| parts.get(i)?.parse::<u64>().ok().filter(|_| i + 1 < parts.len());
        if self.lists.is_empty() {
            return (2..parts.len()).find_map(number);
        }
        self.lists.iter().find_map(|list| {
            let list: Vec<&str> = list.split('.').collect();
            let at = |i: &usize| parts.get(*i..i + list.len()) == Some(&list[..]);
            (0..parts.len()).filter(at).find_map(|i| number(i + list.len()))
        })
    }
}

impl Modules {
    fn has(&self, module: &str) -> bool {
        match self {
            Modules::Names(names) => names.iter().any(|name| ends(module, name)),
            Modules::Expression(regex) => regex.is(module),
        }
    }
}

fn wrong(key: &str, value: &Value, wanted: &str) -> Wrong {
    (format!("`{key}` is {value}, where {wanted} are expected"), OTHER)
}

fn said_all(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| text.eq_ignore_ascii_case(ALL_LINEAR))
}

/// A list of names, or an expression; `None` where nothing is said.
fn modules(all: &Map<String, Value>, key: &str) -> Result<Option<Modules>, Wrong> {
    match all.get(key) {
        None | Some(Value::Null) => Ok(None),
        // An empty list excludes nothing; of targets it says that only parameters have factors.
        Some(Value::Array(list)) if list.is_empty() && key == "exclude_modules" => Ok(None),
        Some(Value::Array(_)) => names(all, key).map(|names| Some(Modules::Names(names))),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => match Expression::whole(text) {
            Ok(expression) => Ok(Some(Modules::Expression(expression))),
            Err(why) => Err(no_pattern(key, text, why)),
        },
        Some(other) => Err(wrong(key, other, "names of modules")),
    }
}

/// A name or several.
fn names(all: &Map<String, Value>, key: &str) -> Result<Vec<String>, Wrong> {
    match all.get(key) {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::String(name)) if name.is_empty() => Ok(vec![]),
        Some(Value::String(name)) => Ok(vec![name.clone()]),
        Some(list) => {
            let names = list.as_array().and_then(|list| list.iter().map(|v| v.as_str().map(String::from)).collect());
            names.ok_or_else(|| wrong(key, list, "names"))
        }
    }
}

/// A number or several.
fn numbers(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        one => one.as_u64().map(|n| vec![n]),
    }
}
