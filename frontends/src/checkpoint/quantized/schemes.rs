//! Schemes of compressed-tensors: which of them a matrix has, and which tensors that calls for.

use super::required::{input_scale, missing};
use super::{Tensors, UNQUANTIZED, Wrong};
use llmcc_text::expression::Expression;
use serde_json::{Map, Value};

/// The target of a scheme.
#[derive(Debug)]
enum Target {
    Name(String),
    Expression(Expression),
    /// A class of modules.
    Class,
}

/// A scheme, and its targets.
struct Scheme<'a> {
    targets: Vec<Target>,
    of: &'a Map<String, Value>,
}

/// All schemes.
pub(super) struct Schemes<'a>(Vec<Scheme<'a>>);

impl<'a> Schemes<'a> {
    /// The schemes of `config_groups`.
    pub(super) fn of(groups: &'a Map<String, Value>) -> Result<Schemes<'a>, Wrong> {
        let scheme = |(name, group): (&String, &'a Value)| {
            let of =
                group.as_object().ok_or_else(|| (format!("`config_groups` has {group} as `{name}`"), UNQUANTIZED))?;
            let list = of.get("targets").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            Ok(Scheme { targets: list.map(target).collect::<Result<_, Wrong>>()?, of })
        };
        Ok(Schemes(groups.iter().map(scheme).collect::<Result<_, Wrong>>()?))
    }

    /// That of a module: by its name, by an expression, by its class, in this order.
    fn find(&self, stem: &str) -> Option<&'a Map<String, Value>> {
        let named = |t: &Target| {
            let ends =
                |name: &String| stem.strip_suffix(name.as_str()).is_some_and(|s| s.is_empty() || s.ends_with('.'));
            matches!(t, Target::Name(name) if ends(name))
        };
        let expressed = |t: &Target| matches!(t, Target::Expression(e) if e.is(stem));
        let classed = |t: &Target| matches!(t, Target::Class);
        let find = |is: &dyn Fn(&Target) -> bool| self.0.iter().find(|s| s.targets.iter().any(is)).map(|s| s.of);
        find(&named).or_else(|| find(&expressed)).or_else(|| find(&classed))
    }

    /// Checks that a matrix, of integers or not, has all that its scheme calls for.
    pub(super) fn check(&self, tensors: &Tensors<'_>, stem: &str) -> Result<(), Wrong> {
        let Some(scheme) = self.find(stem) else { return Ok(()) };
        let has = |name: &str| tensors.index.contains_key(&format!("{stem}.{name}"));
        let needs =
            |name: &str, why: &str| if has(name) { Ok(()) } else { Err(missing(&format!("{stem}.{name}"), why)) };
        if let Some(weights) = scheme.get("weights").and_then(Value::as_object) {
            let integers = weights.get("type").and_then(Value::as_str) != Some("float");
            if integers && weights.get("symmetric") == Some(&Value::Bool(false)) {
                needs("weight_zero_point", "and the settings say that its codes are not symmetric")?;
            }
            let order = weights.get("actorder");
            if order == Some(&Value::Bool(true))
                || ["group", "dynamic"].map(Value::from).iter().any(|o| order == Some(o))
            {
                needs("weight_g_idx", "and `actorder` says that its columns were sorted")?;
            }
        }
        let Some(inputs) = scheme.get("input_activations").and_then(Value::as_object) else { return Ok(()) };
        let fixed = matches!(inputs.get("dynamic"), None | Some(Value::Null | Value::Bool(false)));
        if fixed && inputs.get("num_bits").and_then(Value::as_u64) == Some(8) {
            input_scale(tensors, stem, "and the settings say that its input is rounded by a fixed scale")?;
            if inputs.get("symmetric") == Some(&Value::Bool(false)) {
                needs("input_zero_point", "and the settings say that its input is not symmetric")?;
            }
        }
        Ok(())
    }
}

/// Whether a target is the name of a class of modules.
pub(in crate::checkpoint) fn is_class(target: &str) -> bool {
    target.starts_with(|c: char| c.is_ascii_uppercase()) && !target.contains('.')
}

fn target(text: &str) -> Result<Target, Wrong> {
    let Some(expression) = text.strip_prefix("re:") else {
        return Ok(if is_class(text) { Target::Class } else { Target::Name(text.into()) });
    };
    let wrong = |why| (format!("`targets` has `{text}`, which is not a regular expression: {why}"), UNQUANTIZED);
    Expression::beginning(expression).map(Target::Expression).map_err(wrong)
}
