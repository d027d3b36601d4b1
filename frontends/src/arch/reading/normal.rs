//! A configuration in the form that architectures read: the words of Transformers, and the fields of the compiled
//! model alone.

use super::find_arch::{by_model_type, kind};
use super::{nested, plain_attention, state_spaces};
use crate::checkpoint::Checkpoint;
use crate::config::ConfigError;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A configuration in its normal form.
pub(crate) struct Normal {
    /// The fields of the whole file.
    pub whole: Map<String, Value>,
    /// The fields of the compiled model, if they differ from the whole file's.
    model: Option<Map<String, Value>>,
    /// The compiled model is a part of a larger one.
    pub nested: bool,
}

impl Normal {
    /// Normalizes a `config.json`, in this order: words of other authors, contradictions between parts that the
    /// tensors of `ckpt` decide, the text model of several parts, attention that only claims to be latent.
    ///
    /// # Errors
    /// The file is no object, or describes a model that Transformers has no class for.
    pub fn of(json: &Value, ckpt: Option<&Checkpoint>) -> Result<Normal, ConfigError> {
        let object = json.as_object().ok_or(ConfigError::NotAnObject { found: kind(json) })?;
        let known = |name: &str| by_model_type(name).is_some();
        let whole = state_spaces::translated(object)?;
        let settled = ckpt.and_then(|ckpt| nested::settled(ckpt, &whole, known));
        let whole = settled.unwrap_or_else(|| whole.into_owned());
        let inside = nested::text_model(&whole, known);
        let nested = inside.is_some();
        let plain = match plain_attention::translated(inside.as_ref().unwrap_or(&whole)) {
            Cow::Owned(plain) => Some(plain),
            Cow::Borrowed(_) => None,
        };
        Ok(Normal { model: plain.or(inside), whole, nested })
    }

    /// The fields of the compiled model.
    pub fn model(&self) -> &Map<String, Value> {
        self.model.as_ref().unwrap_or(&self.whole)
    }
}
