//! `config.json`: the numbers of a model, checked.

use crate::arch::{self, Arch};
use llmcc_ir::graph::UnaryOp;
use serde_json::{Map, Value};
use std::fmt;

/// What is wrong in a `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not an object.
    #[error("config.json is not a JSON object; use the model's own file")]
    NotAnObject,
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
        let f = Fields { map: json.as_object().ok_or(ConfigError::NotAnObject)?, at: "" };
        let arch = find_arch(&f)?;
        refuse_quantized(&f)?;
        let d = &arch.defaults;
        let layers = f.required_size("num_hidden_layers", MAX_LAYERS)?;
        let hidden = f.required_size("hidden_size", MAX_WIDTH)?;
        let heads = f.required_size("num_attention_heads", MAX_HEADS)?;
        let kv_heads = match f.size("num_key_value_heads", MAX_HEADS)? {
            Given::Value(n) => n,
            Given::Null => heads,
            Given::Absent => d.kv_heads.unwrap_or(heads),
        };
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of `num_attention_heads` ({heads})");
            return Err(f.invalid("num_key_value_heads", &kv_heads, expected));
        }
        let head_dim = head_dim(&f, d, hidden, heads)?;
        let max_position = f.size("max_position_embeddings", MAX_CONTEXT)?.or(d.max_position);
        let vocab = f.required_size("vocab_size", MAX_VOCAB)?;
        Ok(Config {
            arch,
            name: f.text("_name_or_path")?.map(base_name).filter(|n| !n.is_empty()),
            vocab,
            hidden,
            ffn: f.required_size("intermediate_size", MAX_WIDTH)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            act: activation(&f)?,
            eps: eps(&f)?,
            max_position,
            tied: f.flag("tie_word_embeddings", false)?,
            attention_bias: f.flag("attention_bias", false)?,
            mlp_bias: f.flag("mlp_bias", false)?,
            rope: rope(&f, head_dim, max_position)?,
            windows: windows(&f, d.window, layers)?,
            bos: f.token_ids("bos_token_id", vocab)?.first().copied(),
            eos: f.token_ids("eos_token_id", vocab)?,
        })
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

fn find_arch(f: &Fields) -> Result<&'static Arch, ConfigError> {
    let class = f.map.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str);
    let unknown = |found: String| ConfigError::UnknownArch { found, supported: arch::supported() };
    let by_type = match f.text("model_type")? {
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
    let Some(q) = f.map.get("quantization_config").filter(|q| !q.is_null()) else { return Ok(()) };
    let method = q.get("quant_method").and_then(Value::as_str).unwrap_or("an unnamed method");
    Err(ConfigError::Unsupported {
        field: "quantization_config".into(),
        found: show(&method),
        help: "use the unquantized checkpoint and compile with --w8 or --w4".into(),
    })
}

fn head_dim(f: &Fields, d: &Defaults, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    let derived = || match d.head_dim {
        Some(n) => Ok(n),
        None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        None => Err(f.invalid("hidden_size", &hidden, format!("a multiple of `num_attention_heads` ({heads})"))),
    };
    match f.size("head_dim", MAX_HEAD_DIM)? {
        Given::Value(n) => Ok(n),
        Given::Null | Given::Absent => derived(),
    }
}

fn activation(f: &Fields) -> Result<UnaryOp, ConfigError> {
    match f.text("hidden_act")?.unwrap_or("silu") {
        "silu" | "swish" => Ok(UnaryOp::Silu),
        "gelu" => Ok(UnaryOp::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(UnaryOp::GeluTanh),
        "relu" => Ok(UnaryOp::Relu),
        other => Err(ConfigError::Unsupported {
            field: "hidden_act".into(),
            found: show(&other),
            help: "supported are silu, gelu, gelu_pytorch_tanh and relu".into(),
        }),
    }
}

fn eps(f: &Fields) -> Result<f32, ConfigError> {
    let eps = f.number("rms_norm_eps")?.unwrap_or(1e-6);
    // As f32: this is what the norm adds, and a value may vanish or overflow in the conversion.
    if (0.0..1.0).contains(&(eps as f32)) {
        Ok(eps as f32)
    } else {
        Err(f.invalid("rms_norm_eps", &eps, "at least 0 and less than 1".into()))
    }
}

fn windows(f: &Fields, rule: WindowRule, layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let given = f.size("sliding_window", MAX_CONTEXT)?;
    let window = match rule {
        WindowRule::None => return Ok(vec![None; layers]),
        WindowRule::AllLayers(default) => given.or_null(default),
        WindowRule::Optional if f.flag("use_sliding_window", false)? => given.or_null(4096),
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
    let first = f.count("max_window_layers")?.unwrap_or(28);
    Ok((0..layers).map(|i| window.filter(|_| sliding.as_ref().map_or(i >= first, |s| s[i]))).collect())
}

/// `layer_types` as one flag per layer.
fn sliding_layers(f: &Fields, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let Some(list) = f.map.get("layer_types").filter(|v| !v.is_null()) else { return Ok(None) };
    let types = list.as_array().filter(|a| a.len() == layers);
    let types = types.ok_or_else(|| f.invalid_value("layer_types", list, format!("a list of {layers} names")))?;
    let flag = |v: &Value| match v.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(ConfigError::Unsupported {
            field: "layer_types".into(),
            found: show(v),
            help: "supported are full_attention and sliding_attention".into(),
        }),
    };
    types.iter().map(flag).collect::<Result<_, _>>().map(Some)
}

/// Reads `rope_parameters` (Transformers 5), or `rope_scaling` with `rope_theta` beside it.
fn rope(f: &Fields, head_dim: usize, max_position: usize) -> Result<RopeConfig, ConfigError> {
    let empty = Map::new();
    let (at, map) = match (f.object("rope_scaling")?, f.object("rope_parameters")?) {
        (Some(m), _) if !m.is_empty() => ("rope_scaling.", m),
        (_, Some(m)) => ("rope_parameters.", m),
        _ => ("rope_scaling.", &empty),
    };
    let r = Fields { map, at };
    if let Some((key, _)) = map.iter().find(|(_, v)| v.is_object()) {
        return Err(ConfigError::Unsupported {
            field: format!("{at}{key}"),
            found: "an object".into(),
            help: "one rotary embedding for all layers is supported".into(),
        });
    }
    let theta = r.number("rope_theta")?.or(f.number("rope_theta")?).unwrap_or(10_000.0);
    if !(theta > 1.0 && (theta as f32).is_finite()) {
        return Err(f.invalid("rope_theta", &theta, "a finite number above 1".into()));
    }
    let part = r.number("partial_rotary_factor")?.or(f.number("partial_rotary_factor")?).unwrap_or(1.0);
    let dim = (head_dim as f64 * part) as usize;
    if !(part > 0.0 && part <= 1.0) {
        return Err(f.invalid("partial_rotary_factor", &part, "above 0 and at most 1".into()));
    }
    if dim == 0 || !dim.is_multiple_of(2) {
        return Err(f.invalid("head_dim", &head_dim, format!("such that the rotated part ({dim}) is even and not 0")));
    }
    let original = |default: usize| -> Result<f64, ConfigError> {
        let given = match f.size("original_max_position_embeddings", MAX_CONTEXT)? {
            Given::Value(n) => Given::Value(n),
            _ => r.size("original_max_position_embeddings", MAX_CONTEXT)?,
        };
        Ok(given.or(default) as f64)
    };
    let scaling = match r.text("rope_type")?.or(r.text("type")?).unwrap_or("default") {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: r.factor("factor", 1.0)? },
        "llama3" => llama3(&r, original(max_position)?)?,
        "yarn" => yarn(&r, original(max_position)?, max_position)?,
        other => {
            return Err(ConfigError::Unsupported {
                field: format!("{at}rope_type"),
                found: show(&other),
                help: "supported are default, linear, llama3 and yarn".into(),
            });
        }
    };
    Ok(RopeConfig { theta, dim, scaling })
}

fn llama3(r: &Fields, original: f64) -> Result<RopeScaling, ConfigError> {
    let (low, high) = (r.factor("low_freq_factor", 0.0)?, r.factor("high_freq_factor", 0.0)?);
    if low >= high {
        return Err(r.invalid("high_freq_factor", &high, format!("above `low_freq_factor` ({low})")));
    }
    Ok(RopeScaling::Llama3 { factor: r.factor("factor", 1.0)?, low, high, original })
}

fn yarn(r: &Fields, original: f64, max_position: usize) -> Result<RopeScaling, ConfigError> {
    let factor = match r.map.get("factor") {
        Some(Value::Null) => max_position as f64 / original,
        _ => r.factor("factor", 1.0)?,
    };
    let magnitude = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * libm::log(factor) + 1.0 };
    let scales = (r.number("mscale")?.unwrap_or(0.0), r.number("mscale_all_dim")?.unwrap_or(0.0));
    let attention_factor = match (r.number("attention_factor")?, scales) {
        (Some(given), _) => given,
        (None, (m, all)) if m != 0.0 && all != 0.0 => magnitude(m) / magnitude(all),
        (None, _) => magnitude(1.0),
    };
    if !(attention_factor > 0.0 && (attention_factor as f32).is_finite()) {
        return Err(r.invalid("attention_factor", &attention_factor, "a positive number".into()));
    }
    let or = |name: &str, default: f64| Ok(r.number(name)?.filter(|b| *b != 0.0).unwrap_or(default));
    let (beta_fast, beta_slow) = (or("beta_fast", 32.0)?, or("beta_slow", 1.0)?);
    if !(beta_slow > 0.0 && beta_fast >= beta_slow) {
        return Err(r.invalid("beta_fast", &beta_fast, format!("at least `beta_slow` ({beta_slow}), both positive")));
    }
    let truncate = r.flag("truncate", true)?;
    Ok(RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, original, truncate })
}

/// Last component of `_name_or_path`, which may be a repository or a path on someone's disk.
fn base_name(path: &str) -> String {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or("").to_string()
}

/// A field that may be absent or `null`, which Transformers treats differently.
enum Given<T> {
    Absent,
    Null,
    Value(T),
}

impl<T> Given<T> {
    /// The value, or the default for both absent and `null`.
    fn or(self, default: T) -> T {
        match self {
            Given::Value(v) => v,
            Given::Null | Given::Absent => default,
        }
    }

    /// The value; the default if absent; nothing for `null`.
    fn or_null(self, default: T) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            Given::Null => None,
            Given::Absent => Some(default),
        }
    }
}

/// Typed access to a JSON object, with errors that name the field.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Prefix of field names in messages.
    at: &'static str,
}

impl<'a> Fields<'a> {
    fn invalid(&self, field: &str, found: &dyn fmt::Debug, expected: String) -> ConfigError {
        ConfigError::Invalid { field: format!("{}{field}", self.at), found: format!("{found:?}"), expected }
    }

    fn invalid_value(&self, field: &str, found: &Value, expected: String) -> ConfigError {
        ConfigError::Invalid { field: format!("{}{field}", self.at), found: show(found), expected }
    }

    fn get(&self, field: &str) -> Given<&'a Value> {
        match self.map.get(field) {
            None => Given::Absent,
            Some(Value::Null) => Given::Null,
            Some(v) => Given::Value(v),
        }
    }

    /// A size in `1..=max`.
    fn size(&self, field: &str, max: usize) -> Result<Given<usize>, ConfigError> {
        match self.get(field) {
            Given::Absent => Ok(Given::Absent),
            Given::Null => Ok(Given::Null),
            Given::Value(v) => match v.as_u64() {
                Some(n) if n >= 1 && n <= max as u64 => Ok(Given::Value(n as usize)),
                _ => Err(self.invalid_value(field, v, format!("a whole number from 1 to {max}"))),
            },
        }
    }

    fn required_size(&self, field: &str, max: usize) -> Result<usize, ConfigError> {
        match self.size(field, max)? {
            Given::Value(n) => Ok(n),
            Given::Null | Given::Absent => Err(ConfigError::Missing { field: format!("{}{field}", self.at) }),
        }
    }

    /// A number of layers, which may be 0.
    fn count(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        match self.get(field) {
            Given::Value(v) => match v.as_u64() {
                Some(n) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
                None => Err(self.invalid_value(field, v, "a whole number".into())),
            },
            Given::Null | Given::Absent => Ok(None),
        }
    }

    fn number(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        match self.get(field) {
            Given::Value(v) => match v.as_f64() {
                Some(n) if n.is_finite() => Ok(Some(n)),
                _ => Err(self.invalid_value(field, v, "a finite number".into())),
            },
            Given::Null | Given::Absent => Ok(None),
        }
    }

    /// A required number, at least `min` and above 0.
    fn factor(&self, field: &str, min: f64) -> Result<f64, ConfigError> {
        match self.number(field)? {
            Some(n) if n >= min && n > 0.0 && (n as f32).is_finite() => Ok(n),
            Some(n) => Err(self.invalid(field, &n, format!("positive and at least {min}"))),
            None => Err(ConfigError::Missing { field: format!("{}{field}", self.at) }),
        }
    }

    fn flag(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(field) {
            Given::Value(v) => v.as_bool().ok_or_else(|| self.invalid_value(field, v, "true or false".into())),
            Given::Null | Given::Absent => Ok(default),
        }
    }

    fn text(&self, field: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(field) {
            Given::Value(v) => v.as_str().map(Some).ok_or_else(|| self.invalid_value(field, v, "a string".into())),
            Given::Null | Given::Absent => Ok(None),
        }
    }

    fn object(&self, field: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        match self.get(field) {
            Given::Value(v) => v.as_object().map(Some).ok_or_else(|| self.invalid_value(field, v, "an object".into())),
            Given::Null | Given::Absent => Ok(None),
        }
    }

    /// One token id or a list of them, each below `vocab`.
    fn token_ids(&self, field: &str, vocab: usize) -> Result<Vec<u32>, ConfigError> {
        let Given::Value(v) = self.get(field) else { return Ok(vec![]) };
        let one = |v: &Value| match v.as_u64() {
            Some(n) if n < vocab as u64 => Ok(n as u32),
            _ => Err(self.invalid_value(field, v, format!("a token id below `vocab_size` ({vocab})"))),
        };
        match v {
            Value::Array(list) => list.iter().map(one).collect(),
            v => Ok(vec![one(v)?]),
        }
    }
}

/// A JSON value for a message, shortened.
fn show(v: &(impl serde::Serialize + ?Sized)) -> String {
    let text = serde_json::to_string(v).unwrap_or_default();
    match text.char_indices().nth(60) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
