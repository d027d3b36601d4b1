//! Defaults that were found.

use serde_json::{Map, Value};

/// The settings found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Members with an effect, by their names in `generation_config.json`; `temperature` is missing where the most
    /// probable token is taken.
    pub settings: Map<String, Value>,
    /// Members with an effect that is not had.
    pub warnings: Vec<String>,
}
