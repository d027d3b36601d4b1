//! `config.json`: the numbers of a model, checked.

pub mod fields;
pub mod known;
mod rope;

use crate::arch::{self, Arch};
use fields::{Fields, Given, list, show};
use llmcc_ir::graph::UnaryOp;
use serde_json::{Map, Value};

/// What is wrong in a `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not an object.
    #[error("it holds {found}, not an object with the fields of a model; use the model's own config.json")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// The architecture is not in the table.
    #[error("architecture {found} is not supported; supported are {}", supported.join(", "))]
    UnknownArch {
        /// As written.
        found: String,
        /// All supported `model_type`s.
        supported: Vec<&'static str>,
    },
    /// A field that must be present is not.
    #[error("field `{field}` is missing; use the model's own config.json")]
    Missing {
        /// The field.
        field: String,
    },
    /// A field has an impossible value.
    #[error("field `{field}` is {found}; it must be {expected}")]
    Invalid {
        /// The field.
        field: String,
        /// As written.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A field asks for something that is not implemented.
    #[error("field `{field}` is {found}, which is not supported; {help}")]
    Unsupported {
        /// The field.
        field: String,
        /// As written.
        found: String,
        /// What is supported, or what to do.
        help: String,
    },
    /// Fields that change what a model computes, and that the architecture does not read.
    #[error(
        "{}, which changes what a model computes, but {class} does not read {}: if the model was trained with {}, it is of another architecture, which is not supported; \
         if {} left over from elsewhere, remove {} from config.json",
        list(fields), it(fields), it(fields), if fields.len() == 1 { "it is" } else { "they are" }, it(fields)
    )]
    Unread {
        /// Each as `name` is value.
        fields: Vec<String>,
        /// The architecture.
        class: &'static str,
    },
}

fn it(fields: &[String]) -> &'static str {
    if fields.len() == 1 { "it" } else { "them" }
}

/// Values that an architecture's Transformers configuration class fills in for absent fields.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// `num_key_value_heads`; `None` = as many as query heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; `None` = `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// `max_position_embeddings`.
    pub max_position: usize,
    /// How the attention windows of the layers are chosen.
    pub window: WindowRule,
}

/// How an architecture reads `sliding_window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRule {
    /// Full attention in all layers.
    None,
    /// `sliding_window` (default given) in all layers.
    AllLayers(usize),
    /// `sliding_window` if `use_sliding_window`, in the layers that `layer_types` names, or those from `max_window_layers` on.
    Optional,
}

/// A checked `config.json`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The architecture.
    pub arch: &'static Arch,
    /// Name of the model, from `_name_or_path`, if any.
    pub name: Option<String>,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Model width.
    pub hidden: usize,
    /// Width of the MLP.
    pub ffn: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Activation of the MLP.
    pub act: UnaryOp,
    /// Added to the mean square in norms.
    pub eps: f32,
    /// Longest sequence.
    pub max_position: usize,
    /// The head reads the embedding table.
    pub tied: bool,
    /// The attention projections have biases.
    pub attention_bias: bool,
    /// The MLP projections have biases.
    pub mlp_bias: bool,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Sliding window of each layer.
    pub windows: Vec<Option<usize>>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`: one or several.
    pub eos: Vec<u32>,
    /// Fields that are not read and not known, each as `name` is value.
    pub unread: Vec<String>,
}

/// Parameters of the rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric sequence of wavelengths.
    pub theta: f64,
    /// Rotated elements per head; even, at most `head_dim`.
    pub dim: usize,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// Rewriting of the rotary frequencies; names and meaning as in Transformers' `rope_parameters`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// All frequencies divided by `factor`.
    Linear {
        /// Divisor.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided, short ones kept, linear between.
    Llama3 {
        /// Divisor of long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low: f64,
        /// Wavelengths below `original / high` are kept.
        high: f64,
        /// Context of pretraining.
        original: f64,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// Context extension.
        factor: f64,
        /// Multiplies sines and cosines.
        attention_factor: f64,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which it is divided.
        beta_slow: f64,
        /// Context of pretraining.
        original: f64,
        /// Round the correction range to whole dimensions.
        truncate: bool,
    },
}

const MAX_WIDTH: usize = 1 << 20;
const MAX_VOCAB: usize = 1 << 24;
const MAX_LAYERS: usize = 4096;
const MAX_HEADS: usize = 1 << 14;
const MAX_HEAD_DIM: usize = 1 << 14;
const MAX_CONTEXT: usize = 1 << 28;

impl Config {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(json: &Value) -> Result<Config, ConfigError> {
        let map = json.as_object().ok_or(ConfigError::NotAnObject { found: kind(json) })?;
        let arch = find_arch(map)?;
        let f = Fields::new(map, "", arch.fields)?;
        refuse_quantized(&f)?;
        let mut unread = known::unread(map, |name| f.reads(name), arch.fixed);
        let d = &arch.defaults;
        let layers = f.required_size("num_hidden_layers")?;
        let hidden = f.required_size("hidden_size")?;
        let heads = f.required_size("num_attention_heads")?;
        let kv_heads = match f.size("num_key_value_heads") {
            Given::Value(n) => n,
            Given::Null => heads,
            Given::Absent => d.kv_heads.unwrap_or(heads),
        };
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `num_attention_heads` ({heads})");
            return Err(f.invalid("num_key_value_heads", &kv_heads, expected));
        }
        let head_dim = head_dim(&f, d, hidden, heads)?;
        let max_position = f.size("max_position_embeddings").or(d.max_position);
        let vocab = f.required_size("vocab_size")?;
        let config = Config {
            arch,
            name: f.text("_name_or_path").map(base_name).filter(|n| !n.is_empty()),
            vocab,
            hidden,
            ffn: f.required_size("intermediate_size")?,
            layers,
            heads,
            kv_heads,
            head_dim,
            act: activation(&f),
            eps: eps(&f)?,
            max_position,
            tied: f.flag("tie_word_embeddings"),
            attention_bias: f.flag("attention_bias"),
            mlp_bias: f.flag("mlp_bias"),
            rope: rope::read(&f, head_dim, max_position, &mut unread)?,
            windows: windows(&f, d.window, layers)?,
            bos: f.token_ids("bos_token_id", vocab)?.first().copied(),
            eos: f.token_ids("eos_token_id", vocab)?,
            unread: unread.others,
        };
        match unread.changes {
            fields if fields.is_empty() => Ok(config),
            fields => Err(ConfigError::Unread { fields, class: arch.class }),
        }
    }

    /// Columns of the queries.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of the keys and of the values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// What a JSON value is, in words.
fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "`null`",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn find_arch(map: &Map<String, Value>) -> Result<&'static Arch, ConfigError> {
    let f = Fields::new(map, "", &[fields::IDENTITY])?;
    let class = map.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str);
    let unknown = |found: String| ConfigError::UnknownArch { found, supported: arch::supported() };
    let by_type = match f.text("model_type") {
        Some(t) => Some(arch::by_model_type(t).ok_or_else(|| unknown(format!("`{t}`")))?),
        None => None,
    };
    match (by_type, class) {
        (Some(a), Some(c)) if c != a.class => Err(unknown(format!("`{c}` of `{}`", a.model_type))),
        (Some(a), _) => Ok(a),
        (None, Some(c)) => arch::by_class(c).ok_or_else(|| unknown(format!("`{c}`"))),
        (None, None) => Err(ConfigError::Missing { field: "model_type".into() }),
    }
}

/// GPTQ, AWQ, FP8 and the like change what the tensors mean.
fn refuse_quantized(f: &Fields) -> Result<(), ConfigError> {
    let Some(q) = f.get("quantization_config").value() else { return Ok(()) };
    let method = q.get("quant_method").and_then(Value::as_str).unwrap_or("an unnamed method");
    Err(f.unsupported("quantization_config", show(&method), "use the unquantized checkpoint and compile with --w8 or --w4".into()))
}

fn head_dim(f: &Fields, d: &Defaults, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    match (f.size("head_dim").value(), d.head_dim) {
        (Some(n), _) | (None, Some(n)) => Ok(n),
        (None, None) if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        (None, None) => Err(f.invalid("hidden_size", &hidden, format!("a multiple of `num_attention_heads` ({heads})"))),
    }
}

fn activation(f: &Fields) -> UnaryOp {
    match f.text("hidden_act") {
        Some("gelu") => UnaryOp::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => UnaryOp::GeluTanh,
        Some("relu") => UnaryOp::Relu,
        // "silu", "swish", and the default of all classes.
        _ => UnaryOp::Silu,
    }
}

fn eps(f: &Fields) -> Result<f32, ConfigError> {
    let eps = f.number("rms_norm_eps").unwrap_or(1e-6);
    // As f32: this is what the norm adds, and a value may vanish or overflow in the conversion.
    if (0.0..1.0).contains(&(eps as f32)) {
        Ok(eps as f32)
    } else {
        Err(f.invalid("rms_norm_eps", &eps, "at least 0 and less than 1".into()))
    }
}

fn windows(f: &Fields, rule: WindowRule, layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let given = f.size("sliding_window");
    let window = match rule {
        WindowRule::None => return Ok(vec![None; layers]),
        WindowRule::AllLayers(default) => given.or_null(default),
        WindowRule::Optional if f.flag("use_sliding_window") => given.or_null(4096),
        WindowRule::Optional => None,
    };
    let sliding = sliding_layers(f, layers)?;
    if rule != WindowRule::Optional {
        return match sliding {
            Some(s) if s.iter().any(|s| *s != window.is_some()) => Err(ConfigError::Unsupported {
                field: "layer_types".into(),
                found: "a mixture of window and full attention".into(),
                help: "this architecture has the same attention in all layers".into(),
            }),
            _ => Ok(vec![window; layers]),
        };
    }
    if let (Some(s), None) = (&sliding, window)
        && s.contains(&true)
    {
        let expected = "`full_attention` everywhere, as `use_sliding_window` is off".into();
        return Err(f.invalid("layer_types", &"sliding_attention", expected));
    }
    let first = f.count("max_window_layers").unwrap_or(28);
    Ok((0..layers).map(|i| window.filter(|_| sliding.as_ref().map_or(i >= first, |s| s[i]))).collect())
}

/// `layer_types` as one flag per layer.
fn sliding_layers(f: &Fields, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(list) = f.get("layer_types").value() else { return Ok(None) };
    let types = list.as_array().filter(|a| a.len() == layers);
    let types = types.ok_or_else(|| f.invalid_value("layer_types", list, format!("a list of {layers} names")))?;
    Ok(Some(types.iter().map(|v| v.as_str() == Some("sliding_attention")).collect()))
}

/// Last component of `_name_or_path`, which may be a repository or a path on someone's disk.
fn base_name(path: &str) -> String {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or("").to_string()
}

#[cfg(test)]
mod tests;
