//! Typed access to the fields of `config.json`, for those that are declared.
//!
//! An architecture declares its fields as tables of [`Field`]. What a table does not name reads as absent, so nothing is read that is not declared; what is
//! in the file and not declared is judged by [`super::known`].

use super::{ConfigError, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH};
use serde_json::{Map, Value};
use std::fmt;

/// A field that is read, and what may stand there besides `null`.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Which values it may have.
    pub accepts: Accepts,
}

/// Values of a field.
#[derive(Clone, Copy, Debug)]
pub enum Accepts {
    /// A whole number from 1 to this.
    Size(usize),
    /// A whole number.
    Count,
    /// A finite number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Any string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A list of strings, one of these each.
    ListOf(&'static [&'static str]),
    /// A token id, or a list of them.
    Tokens,
    /// An object, whose fields have a table of their own.
    Object,
    /// Anything: only what it is about matters.
    Any,
}

impl Field {
    /// A field with a name.
    pub const fn new(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts }
    }
}

/// Activations of the MLP by their names in Transformers.
const ACTIVATIONS: &[&str] = &["silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu"];

/// What tells which architecture a file is for.
pub const IDENTITY: &[Field] = &[Field::new("model_type", Accepts::Text), Field::new("architectures", Accepts::Any)];

/// What every decoder reads.
pub const DECODER: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(MAX_VOCAB)),
    Field::new("hidden_size", Accepts::Size(MAX_WIDTH)),
    Field::new("intermediate_size", Accepts::Size(MAX_WIDTH)),
    Field::new("num_hidden_layers", Accepts::Size(MAX_LAYERS)),
    Field::new("num_attention_heads", Accepts::Size(MAX_HEADS)),
    Field::new("num_key_value_heads", Accepts::Size(MAX_HEADS)),
    Field::new("head_dim", Accepts::Size(MAX_HEAD_DIM)),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("rms_norm_eps", Accepts::Number),
    Field::new("max_position_embeddings", Accepts::Size(MAX_CONTEXT)),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("original_max_position_embeddings", Accepts::Size(MAX_CONTEXT)),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
];

/// Attention with biases, if they are asked for.
pub const ATTENTION_BIAS: &[Field] = &[Field::new("attention_bias", Accepts::Flag)];

/// An MLP with biases, if they are asked for.
pub const MLP_BIAS: &[Field] = &[Field::new("mlp_bias", Accepts::Flag)];

/// Kinds of attention by their names in Transformers.
const LAYER_TYPES: &[&str] = &["full_attention", "sliding_attention"];

/// One window for all layers.
pub const WINDOW: &[Field] =
    &[Field::new("sliding_window", Accepts::Size(MAX_CONTEXT)), Field::new("layer_types", Accepts::ListOf(LAYER_TYPES))];

/// Windows that are switched on, in some layers.
pub const OPTIONAL_WINDOWS: &[Field] = &[
    Field::new("use_sliding_window", Accepts::Flag),
    Field::new("sliding_window", Accepts::Size(MAX_CONTEXT)),
    Field::new("max_window_layers", Accepts::Count),
    Field::new("layer_types", Accepts::ListOf(LAYER_TYPES)),
];

/// What all scalings of the rotary frequencies read.
pub(super) const ROPE: &[Field] =
    &[Field::new("rope_type", Accepts::Text), Field::new("type", Accepts::Text), Field::new("rope_theta", Accepts::Number)];

/// What each scaling of the rotary frequencies reads, besides [`ROPE`].
pub(super) const SCALINGS: &[(&str, &[Field])] = &[
    ("default", &[]),
    ("linear", &[Field::new("factor", Accepts::Number)]),
    (
        "llama3",
        &[
            Field::new("factor", Accepts::Number),
            Field::new("low_freq_factor", Accepts::Number),
            Field::new("high_freq_factor", Accepts::Number),
            Field::new("original_max_position_embeddings", Accepts::Size(MAX_CONTEXT)),
        ],
    ),
    (
        "yarn",
        &[
            Field::new("factor", Accepts::Number),
            Field::new("attention_factor", Accepts::Number),
            Field::new("beta_fast", Accepts::Number),
            Field::new("beta_slow", Accepts::Number),
            Field::new("mscale", Accepts::Number),
            Field::new("mscale_all_dim", Accepts::Number),
            Field::new("truncate", Accepts::Flag),
            Field::new("original_max_position_embeddings", Accepts::Size(MAX_CONTEXT)),
        ],
    ),
];

/// A field that may be absent or `null`, which Transformers treats differently.
pub(super) enum Given<T> {
    Absent,
    Null,
    Value(T),
}

impl<T> Given<T> {
    /// The value, or the default for both absent and `null`.
    pub(super) fn or(self, default: T) -> T {
        self.value().unwrap_or(default)
    }

    /// The value; the default if absent; nothing for `null`.
    pub(super) fn or_null(self, default: T) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            Given::Null => None,
            Given::Absent => Some(default),
        }
    }

    /// The value, nothing for both absent and `null`.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            Given::Null | Given::Absent => None,
        }
    }
}

/// The declared fields of a JSON object, all of them of the types that are declared. Errors name the field.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Prefix of field names in messages.
    pub(super) at: &'static str,
    tables: &'a [&'static [Field]],
}

impl<'a> Fields<'a> {
    /// Checks the values of all declared fields that are there.
    pub(super) fn new(map: &'a Map<String, Value>, at: &'static str, tables: &'a [&'static [Field]]) -> Result<Fields<'a>, ConfigError> {
        let f = Fields { map, at, tables };
        tables.iter().copied().flatten().try_for_each(|field| f.check(field))?;
        Ok(f)
    }

    /// Whether a field is declared.
    pub(super) fn reads(&self, name: &str) -> bool {
        self.tables.iter().copied().flatten().any(|f| f.name == name)
    }

    fn check(&self, field: &Field) -> Result<(), ConfigError> {
        let Some(v) = self.map.get(field.name).filter(|v| !v.is_null()) else { return Ok(()) };
        let (fits, expected) = match field.accepts {
            Accepts::Any => return Ok(()),
            Accepts::Size(max) => (v.as_u64().is_some_and(|n| n >= 1 && n <= max as u64), format!("a whole number from 1 to {max}")),
            Accepts::Count => (v.is_u64(), "a whole number".into()),
            Accepts::Number => (v.as_f64().is_some_and(f64::is_finite), "a finite number".into()),
            Accepts::Flag => (v.is_boolean(), "true or false".into()),
            Accepts::Text => (v.is_string(), "a string".into()),
            Accepts::Object => (v.is_object(), "an object".into()),
            Accepts::Tokens => (v.is_u64() || v.is_array(), "a token id, or a list of them".into()),
            Accepts::OneOf(names) => return self.one_of(field.name, v, names),
            Accepts::ListOf(names) => match v.as_array() {
                Some(list) => return list.iter().try_for_each(|v| self.one_of(field.name, v, names)),
                None => (false, "a list".into()),
            },
        };
        if fits { Ok(()) } else { Err(self.invalid_value(field.name, v, expected)) }
    }

    fn one_of(&self, field: &str, v: &Value, names: &[&str]) -> Result<(), ConfigError> {
        match v.as_str() {
            Some(s) if names.contains(&s) => Ok(()),
            Some(_) => Err(self.unsupported(field, show(v), format!("supported are {}", list(names)))),
            None => Err(self.invalid_value(field, v, "a string".into())),
        }
    }

    pub(super) fn invalid(&self, field: &str, found: &dyn fmt::Debug, expected: String) -> ConfigError {
        ConfigError::Invalid { field: format!("{}{field}", self.at), found: format!("{found:?}"), expected }
    }

    pub(super) fn invalid_value(&self, field: &str, found: &Value, expected: String) -> ConfigError {
        ConfigError::Invalid { field: format!("{}{field}", self.at), found: show(found), expected }
    }

    pub(super) fn unsupported(&self, field: &str, found: String, help: String) -> ConfigError {
        ConfigError::Unsupported { field: format!("{}{field}", self.at), found, help }
    }

    fn missing(&self, field: &str) -> ConfigError {
        ConfigError::Missing { field: format!("{}{field}", self.at) }
    }

    /// A field, whatever it is; undeclared ones are absent.
    pub(super) fn get(&self, field: &str) -> Given<&'a Value> {
        match self.map.get(field).filter(|_| self.reads(field)) {
            None => Given::Absent,
            Some(Value::Null) => Given::Null,
            Some(v) => Given::Value(v),
        }
    }

    /// A field of [`Accepts::Size`].
    pub(super) fn size(&self, field: &str) -> Given<usize> {
        match self.get(field) {
            Given::Absent => Given::Absent,
            Given::Null => Given::Null,
            Given::Value(v) => v.as_u64().and_then(|n| usize::try_from(n).ok()).map_or(Given::Absent, Given::Value),
        }
    }

    /// A [`size`](Self::size) that must be there.
    pub(super) fn required_size(&self, field: &str) -> Result<usize, ConfigError> {
        self.size(field).value().ok_or_else(|| self.missing(field))
    }

    /// A field of [`Accepts::Count`].
    pub(super) fn count(&self, field: &str) -> Option<usize> {
        let n = self.get(field).value()?.as_u64()?;
        Some(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// A field of [`Accepts::Number`].
    pub(super) fn number(&self, field: &str) -> Option<f64> {
        self.get(field).value()?.as_f64()
    }

    /// A required number, at least `min` and above 0.
    pub(super) fn factor(&self, field: &str, min: f64) -> Result<f64, ConfigError> {
        match self.number(field) {
            Some(n) if n >= min && n > 0.0 && (n as f32).is_finite() => Ok(n),
            Some(n) => Err(self.invalid(field, &n, format!("positive and at least {min}"))),
            None => Err(self.missing(field)),
        }
    }

    /// A field of [`Accepts::Flag`]; `false` where it is absent.
    pub(super) fn flag(&self, field: &str) -> bool {
        self.flag_or(field, false)
    }

    /// A field of [`Accepts::Flag`].
    pub(super) fn flag_or(&self, field: &str, default: bool) -> bool {
        self.get(field).value().and_then(Value::as_bool).unwrap_or(default)
    }

    /// A field of [`Accepts::Text`] or [`Accepts::OneOf`].
    pub(super) fn text(&self, field: &str) -> Option<&'a str> {
        self.get(field).value()?.as_str()
    }

    /// A field of [`Accepts::Object`].
    pub(super) fn object(&self, field: &str) -> Option<&'a Map<String, Value>> {
        self.get(field).value()?.as_object()
    }

    /// A field of [`Accepts::Tokens`]: each id below `vocab`.
    pub(super) fn token_ids(&self, field: &str, vocab: usize) -> Result<Vec<u32>, ConfigError> {
        let Some(v) = self.get(field).value() else { return Ok(vec![]) };
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

/// `a, b and c`.
pub(super) fn list(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A JSON value for a message, shortened.
pub(super) fn show(v: &(impl serde::Serialize + ?Sized)) -> String {
    let text = serde_json::to_string(v).unwrap_or_default();
    match text.char_indices().nth(60) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text,
    }
}
