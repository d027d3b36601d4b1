//! `adapter_config.json` of PEFT: the settings that decide what an adapter adds to the weights.

use super::targets::Targets;
pub use super::wrong::{AGAIN, Wrong};
use super::wrong::{OTHER, ends, no_pattern};
use crate::check::pattern;
use serde_json::{Map, Value};
use tokenizers::utils::SysRegex;

/// Settings that are read, and settings that have no effect on a trained adapter's results.
const READ: &[&str] = &[
    "peft_type",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "use_dora",
    "fan_in_fan_out",
    "init_lora_weights",
    "base_model_name_or_path",
    "modules_to_save",
    "bias",
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "target_parameters",
    "task_type",
    "trainable_token_indices",
    "velora_config",
];
/// Ways to begin that leave the base as it is.
const BEGINNINGS: &[&str] = &["gaussian", "eva", "orthogonal", "mica"];
/// Methods that add to a model's inputs, and not to its weights.
const PROMPTS: &[&str] =
    &["PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT", "CPT"];
/// Allowed values of `bias`.
const BIASES: &[&str] = &["none", "all", "lora_only"];

/// The settings that are read.
#[derive(Debug)]
pub struct Settings {
    rank: f64,
    alpha: f64,
    ranks: Vec<(Pattern, f64)>,
    alphas: Vec<(Pattern, f64)>,
    rank_stabilized: bool,
    /// The rows of the merged matrix have learned lengths.
    pub magnitudes: bool,
    /// Which modules have factors.
    pub targets: Targets,
    /// Biases of the modules with factors were trained, too.
    pub biases: bool,
    /// Changes to a table also change the head tied to it.
    pub tied: bool,
    /// Rows of tables that are replaced, by the ends of the tables' names; one without a name is the only one.
    pub rows: Vec<(String, Vec<usize>)>,
}

/// The base that an adapter names.
pub fn base(config: &Value) -> Option<&str> {
    config["base_model_name_or_path"].as_str().filter(|name| !name.is_empty())
}

impl Settings {
    /// Reads the file.
    ///
    /// # Errors
    /// A method that is not supported, or a setting that changes its computation.
    pub fn parse(config: &Value) -> Result<Settings, Wrong> {
        let all = config.as_object().ok_or_else(|| ("it is not a JSON object".to_string(), OTHER))?;
        match all.get("peft_type").and_then(Value::as_str) {
            Some("LORA") => {}
            Some(prompt) if PROMPTS.contains(&prompt) => {
                let what =
                    format!("`peft_type` is `{prompt}`, which adds to the model's inputs; only LORA is supported");
                return Err((what, "train a LoRA, or run the model with PEFT"));
            }
            Some(other) => return Err((format!("`peft_type` is `{other}`; only LORA is supported"), OTHER)),
            None => return Err(("`peft_type` is missing".into(), OTHER)),
        }
        let off = |v: &Value| match v {
            Value::Null | Value::Bool(false) => true,
            Value::Object(members) => members.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
        };
        if let Some((key, _)) = all.iter().find(|(key, v)| !READ.contains(&key.as_str()) && !off(v) && !aside(key)) {
            return Err((
                format!("`{key}` is set, which is not supported and may change the adapter's results"),
                OTHER,
            ));
        }
        begins(all.get("init_lora_weights"))?;
        let number = |key: &str, default: f64| match all.get(key) {
            None => Ok(default),
            Some(v) => positive(v).ok_or_else(|| (format!("`{key}` is {v}; it must be a positive number"), OTHER)),
        };
        let flag = |key: &str| match all.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(v) => v.as_bool().ok_or_else(|| (format!("`{key}` is {v}; it must be true or false"), OTHER)),
        };
        // How a matrix of the base is stored decides, as in PEFT, whatever is said here.
        flag("fan_in_fan_out")?;
        Ok(Settings {
            rank: number("r", 8.0)?,
            alpha: number("lora_alpha", 8.0)?,
            ranks: patterns(all, "rank_pattern")?,
            alphas: patterns(all, "alpha_pattern")?,
            rank_stabilized: flag("use_rslora")?,
            magnitudes: flag("use_dora")?,
            targets: Targets::parse(all)?,
            biases: biases(all.get("bias"))?,
            tied: flag("ensure_weight_tying")?,
            rows: rows(all.get("trainable_token_indices"))?,
        })
    }

    /// The first setting, with the reason, that requires merging into the weights.
    pub fn only_merged(&self) -> Option<&'static str> {
        let all = [
            (self.magnitudes, "`use_dora`: magnitudes depend on the base's weights"),
            (self.targets.parameters(), "`target_parameters`: matrices of all experts have no room for factors"),
            (self.targets.saved().next().is_some(), "`modules_to_save`: modules of the base are replaced"),
            (!self.rows.is_empty(), "`trainable_token_indices`: rows of embedding tables are replaced"),
        ];
        all.into_iter().find(|(is, _)| *is).map(|(_, why)| why)
    }

    /// The rows of a table that are replaced.
    pub fn rows_of(&self, module: &str) -> Option<&[usize]> {
        self.rows.iter().find(|(end, _)| Settings::is_table(end, module)).map(|(_, rows)| rows.as_slice())
    }

    /// Whether a name of [`Settings::rows`] is that of a module.
    pub fn is_table(table: &str, module: &str) -> bool {
        table.is_empty() || ends(module, table)
    }

    /// The factor that multiplies the product of a module whose factors have this rank (arXiv
    /// 2106.09685; by the root of the rank: arXiv 2312.03732).
    ///
    /// # Errors
    /// The settings say another rank.
    pub fn scale(&self, module: &str, rank: usize) -> Result<f32, Wrong> {
        let said = matched(&self.ranks, module).unwrap_or(self.rank);
        if said != rank as f64 {
            return Err((format!("module `{module}` has rank {rank}, but its settings say {said}"), AGAIN));
        }
        let alpha = matched(&self.alphas, module).unwrap_or(self.alpha);
        Ok((alpha / if self.rank_stabilized { said.sqrt() } else { said }) as f32)
    }
}

/// Whether the biases of modules with factors were trained.
fn biases(value: Option<&Value>) -> Result<bool, Wrong> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(which)) if BIASES.contains(&which.as_str()) => Ok(which != "none"),
        Some(other) => Err((format!("`bias` is {other}; supported are {}", BIASES.join(", ")), OTHER)),
    }
}

/// The rows of each table that are replaced: of the embedding table, where no table is named.
fn rows(value: Option<&Value>) -> Result<Vec<(String, Vec<usize>)>, Wrong> {
    const KEY: &str = "trainable_token_indices";
    let list = |of: &Value| {
        let rows = of.as_array()?.iter().map(|i| usize::try_from(i.as_u64()?).ok());
        rows.collect::<Option<Vec<usize>>>()
    };
    let wrong = |of: &Value| (format!("`{KEY}` has {of}, where token ids are expected"), OTHER);
    match value {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::Object(tables)) => {
            tables.iter().map(|(name, of)| Ok((name.clone(), list(of).ok_or_else(|| wrong(of))?))).collect()
        }
        Some(of) => match list(of).ok_or_else(|| wrong(of))? {
            none if none.is_empty() => Ok(vec![]),
            rows => Ok(vec![(String::new(), rows)]),
        },
    }
}

/// Says something about training only.
fn aside(key: &str) -> bool {
    key.starts_with('_')
}

/// Whether the base was changed before training, so that another one is needed.
fn begins(how: Option<&Value>) -> Result<(), Wrong> {
    match how {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(Value::String(name)) if BEGINNINGS.contains(&name.as_str()) => Ok(()),
        Some(other) => Err((
            format!("`init_lora_weights` is {other}, which changes the base's weights before training"),
            "convert it with PEFT (`save_pretrained` with `path_initial_model_for_weight_conversion`)",
        )),
    }
}

fn positive(v: &Value) -> Option<f64> {
    v.as_f64().filter(|x| x.is_finite() && *x > 0.0)
}

/// The modules, by name, to which a number applies.
#[derive(Debug)]
enum Pattern {
    /// A name, or the end of one unless it is said to be `whole`.
    Name { name: String, whole: bool },
    /// A regular expression of whole names, or of the parts after a dot in them, as PEFT makes it.
    Expression(SysRegex),
}

impl Pattern {
    /// Dots of a name may be escaped; a leading `^` makes it whole.
    fn parse(text: &str) -> Result<Pattern, String> {
        let whole = text.starts_with('^');
        let name = text.strip_prefix('^').unwrap_or(text).replace("\\.", ".");
        if !name.contains(['\\', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '$', '^']) {
            return Ok(Pattern::Name { name, whole });
        }
        pattern::check(text)?;
        SysRegex::new(&format!("^(?:.*\\.)?(?:{text})$")).map(Pattern::Expression).map_err(|e| e.to_string())
    }

    fn is(&self, module: &str) -> bool {
        match self {
            Pattern::Name { name, whole: true } => name == module,
            Pattern::Name { name, whole: false } => ends(module, name),
            Pattern::Expression(regex) => regex.find_iter(module).next().is_some(),
        }
    }
}

/// Numbers by the ends of modules' names.
fn patterns(all: &Map<String, Value>, key: &str) -> Result<Vec<(Pattern, f64)>, Wrong> {
    let Some(value) = all.get(key).filter(|v| !v.is_null()) else { return Ok(vec![]) };
    let map = value.as_object().ok_or_else(|| (format!("`{key}` is not an object"), OTHER))?;
    let one = |(text, number): (&String, &Value)| {
        let wrong = || (format!("`{key}` has {number} for `{text}`; it must be a positive number"), OTHER);
        let number = positive(number).ok_or_else(wrong)?;
        Ok((Pattern::parse(text).map_err(|why| no_pattern(key, text, why))?, number))
    };
    map.iter().map(one).collect()
}

/// The number of the first pattern that a name, or the end of one, has.
fn matched(patterns: &[(Pattern, f64)], module: &str) -> Option<f64> {
    patterns.iter().find(|(pattern, _)| pattern.is(module)).map(|(_, number)| *number)
}
