//! The tools of a request.

use serde_json::Value;
use std::collections::BTreeMap;

/// Tools by their names, with the schemas of their arguments.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    schemas: BTreeMap<String, Value>,
}

impl Tools {
    /// The tools of a list as OpenAI's interface has it.
    pub fn new(list: &Value) -> Tools {
        let tool = |tool: &Value| {
            let function = tool.get("function")?;
            let schema = function.get("parameters").cloned().unwrap_or(Value::Null);
            Some((function.get("name")?.as_str()?.to_owned(), schema))
        };
        Tools { schemas: list.as_array().into_iter().flatten().filter_map(tool).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }

    /// Names and schemas of arguments.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.schemas.iter().map(|(name, schema)| (name.as_str(), schema))
    }

    /// Whether there is a tool of this name.
    pub fn has(&self, name: &str) -> bool {
        self.schemas.contains_key(name)
    }

    /// Whether an argument is a text by its schema; `None`: it may be one.
    pub(crate) fn is_text(&self, tool: &str, argument: &str) -> Option<bool> {
        is_text(self.schemas.get(tool)?.get("properties")?.get(argument)?)
    }
}

/// Whether values of a schema are texts; `None`: they may be.
pub(crate) fn is_text(schema: &Value) -> Option<bool> {
    let kinds = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => {
            let texts = |list: &Value| list.as_array().is_some_and(|all| all.iter().all(Value::is_string));
            return schema.get("enum").filter(|list| texts(list)).map(|_| true);
        }
    };
    match (kinds.contains(&"string"), kinds.len()) {
        (true, 1) => Some(true),
        (false, _) => Some(false),
        (true, _) => None,
    }
}
