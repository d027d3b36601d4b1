//! The form of each matrix, by `quantization_config`.

use super::super::quantized::{self, Wrong};
use super::super::wanted::{Wanted, WantedRole};
use super::forms::Form;
use super::modules::{Patterns, around, bare};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The remedy where tensors do not follow from settings.
const NEEDS_FILES: &str = "give the folder with the checkpoint's tensors, or remove `quantization_config` to compile \
                           the model with floats";

/// Matrices of DeepSeek's models that published files have as floats, whatever the settings say.
const FLOATS: [&str; 2] = [".compressor.", ".indexer.weights_proj"];

/// The settings' fields for modules that stay floats.
const LEFT: [&str; 5] = ["modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "exclude"];

/// Forms by module.
#[derive(Debug)]
pub(super) struct Rules {
    /// Forms of modules by name, with those inside them.
    named: HashMap<String, Form>,
    /// Forms of modules that settings name by a pattern, the first that fits.
    targets: Vec<(Patterns, Form)>,
    /// Modules that stay floats where they are not named.
    left: Patterns,
    /// The form of experts' matrices, where these differ from others.
    experts: Option<Form>,
    /// The form of others.
    all: Form,
}

impl Rules {
    /// One form for all matrices.
    fn all(form: Form) -> Rules {
        Rules { named: HashMap::new(), targets: vec![], left: Patterns::default(), experts: None, all: form }
    }

    /// The forms that a configuration gives matrices.
    ///
    /// # Errors
    /// The tensors of its method do not follow from its settings.
    pub(super) fn of(config: &Value) -> Result<Rules, Wrong> {
        let Some(said) = quantized::settings_of(config) else { return Ok(Rules::all(Form::Floats)) };
        let Some(method) = quantized::method(said) else { return Ok(Rules::all(Form::Floats)) };
        let mut rules = match method {
            "fp8" => fp8(said, config)?,
            "modelopt" => modelopt(said)?,
            "compressed-tensors" => compressed(said)?,
            "fbgemm_fp8" => Rules::all(Form::Fp8Rows),
            "mxfp4" => {
                // The tensors of stacks have names of their own.
                let stacks = Form::Mxfp4 { codes: ("", ""), scales: ("", "") };
                Rules { experts: Some(stacks), ..Rules::all(Form::Floats) }
            }
            other => return Err((format!("the tensors of `{other}` do not follow from config.json"), NEEDS_FILES)),
        };
        rules.named.extend(by_layer(said)?);
        // (Beside FP8, `ignore` says what ModelOpt has left, in FP8, of layers that it quantized anew.)
        let left = if method == "fp8" { &LEFT[..1] } else { &LEFT[..] };
        for list in left.iter().filter_map(|name| said.get(*name)?.as_array()) {
            for text in list.iter().filter_map(Value::as_str) {
                rules.left.add(text)?;
            }
        }
        Ok(rules)
    }

    /// The form of a tensor.
    pub(super) fn form(&self, tensor: &Wanted) -> Form {
        let module = bare(tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name));
        match tensor.role {
            WantedRole::Gain | WantedRole::Numbers | WantedRole::Other => return Form::Floats,
            WantedRole::Product | WantedRole::Spared | WantedRole::Experts => {}
        }
        if let Some(form) = around(module).find_map(|of| self.named.get(of)) {
            return *form;
        }
        let spared = tensor.role == WantedRole::Spared || FLOATS.iter().any(|part| format!(".{module}").contains(part));
        if spared || self.left.cover(module) {
            return Form::Floats;
        }
        if let Some((_, form)) = self.targets.iter().find(|(patterns, _)| patterns.cover(module)) {
            return *form;
        }
        self.experts.filter(|_| module.contains(".experts.")).unwrap_or(self.all)
    }
}

fn text<'a>(of: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    of.get(name)?.as_str()
}

fn unsupported(name: &str, value: &Value) -> Wrong {
    (format!("the tensors of `{name}` {value} do not follow from config.json"), NEEDS_FILES)
}

/// DeepSeek's FP8, and Transformers'. DeepSeek-V4's experts are MXFP4 beside it.
fn fp8(said: &Map<String, Value>, config: &Value) -> Result<Rules, Wrong> {
    let block = quantized::block_size(said.get("weight_block_size"))?;
    let input = (text(said, "activation_scheme") == Some("static")).then_some("activation_scale");
    let four = config.get("expert_dtype").and_then(Value::as_str) == Some("fp4");
    let scales = if four { "scale" } else { "weight_scale_inv" };
    let experts = four.then_some(Form::Mxfp4 { codes: ("weight", "I8"), scales: ("scale", "F8_E8M0") });
    Ok(Rules { experts, ..Rules::all(Form::Fp8 { scales, block, input }) })
}

/// A kind of ModelOpt's.
fn of_algorithm(name: &str) -> Option<Form> {
    const SCALES: &str = "weight_scale";
    match name {
        "FP8" => Some(Form::Fp8 { scales: SCALES, block: None, input: Some("input_scale") }),
        "NVFP4" => Some(Form::Nvfp4 { codes: "weight", above: "weight_scale_2", input: Some("input_scale") }),
        "W4A16_NVFP4" => Some(Form::Nvfp4 { codes: "weight", above: "weight_scale_2", input: None }),
        "MXFP8" => Some(Form::Mxfp8),
        _ => None,
    }
}

fn modelopt(said: &Map<String, Value>) -> Result<Rules, Wrong> {
    let name = text(said, "quant_algo").unwrap_or_default();
    let all = match name {
        "MIXED_PRECISION" => Form::Floats,
        name => of_algorithm(name).ok_or_else(|| unsupported("quant_algo", &name.into()))?,
    };
    Ok(Rules::all(all))
}

/// Kinds that settings give single layers.
fn by_layer(said: &Map<String, Value>) -> Result<HashMap<String, Form>, Wrong> {
    let mut forms = HashMap::new();
    for (module, of) in said.get("quantized_layers").and_then(Value::as_object).into_iter().flatten() {
        let name = of.get("quant_algo").cloned().unwrap_or_default();
        let form = name.as_str().and_then(of_algorithm).ok_or_else(|| unsupported("quant_algo", &name))?;
        forms.insert(bare(module).to_string(), form);
    }
    Ok(forms)
}

/// compressed-tensors: a scheme for each target.
fn compressed(said: &Map<String, Value>) -> Result<Rules, Wrong> {
    let mut rules = Rules::all(Form::Floats);
    for group in said.get("config_groups").and_then(Value::as_object).into_iter().flat_map(Map::values) {
        let form = scheme(group, text(said, "format"))?;
        let targets = group.get("targets").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for target in targets {
            // A class of modules: all that are no others.
            match quantized::is_class(target) {
                true => rules.all = form,
                false => {
                    let mut patterns = Patterns::default();
                    patterns.add(target)?;
                    rules.targets.push((patterns, form));
                }
            }
        }
    }
    Ok(rules)
}

/// The form of a scheme of compressed-tensors; `format`: that of the whole.
fn scheme(group: &Value, format: Option<&str>) -> Result<Form, Wrong> {
    let weights = group.get("weights").and_then(Value::as_object);
    let weights = weights.ok_or_else(|| unsupported("config_groups", group))?;
    let count = |name: &str| weights.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let group_size = count("group_size").filter(|n| *n > 0);
    let format = group.get("format").and_then(Value::as_str).or(format).unwrap_or_default();
    let symmetric = weights.get("symmetric") != Some(&Value::Bool(false));
    let fixed = group.get("input_activations").is_some_and(|of| of.get("dynamic") == Some(&Value::Bool(false)));
    let input = fixed.then_some("input_scale");
    let scales = "weight_scale";
    match (text(weights, "type"), count("num_bits"), text(weights, "strategy")) {
        (Some("float"), Some(4), _) if group_size == Some(16) => {
            let input = group.get("input_activations").is_some_and(Value::is_object).then_some("input_global_scale");
            Ok(Form::Nvfp4 { codes: "weight_packed", above: "weight_global_scale", input })
        }
        (Some("float"), Some(4), _) if group_size == Some(32) => {
            Ok(Form::Mxfp4 { codes: ("weight_packed", "U8"), scales: (scales, "U8") })
        }
        (Some("float"), Some(8), Some("tensor")) => Ok(Form::Fp8 { scales, block: None, input }),
        (Some("float"), Some(8), Some("channel")) => Ok(Form::Fp8Rows),
        (Some("float"), Some(8), Some("block")) => {
            let block = quantized::block_size(weights.get("block_structure"))?;
            Ok(Form::Fp8 { scales, block, input })
        }
        (Some("float"), Some(8), Some("group")) if group_size == Some(32) => Ok(Form::Mxfp8),
        (Some("int") | None, Some(bits @ 1..=8), _) if format == "pack-quantized" => {
            Ok(Form::Words { bits, group: group_size, symmetric })
        }
        (Some("int") | None, Some(8), Some("channel")) if symmetric => Ok(Form::Int8Rows),
        _ => Err(unsupported("config_groups", group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_methods_are_refused() {
        let refused = |said: Value| Rules::of(&json!({ "quantization_config": said })).unwrap_err().0;
        assert!(refused(json!({ "quant_method": "gptq" })).contains("`gptq`"));
        assert!(refused(json!({ "quant_method": "modelopt", "quant_algo": "NEW" })).contains("NEW"));
    }
}
