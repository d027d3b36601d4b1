//! The tools of a request.

use serde_json::Value;
use std::collections::BTreeMap;

/// Tools by their names, with the schemas of their arguments.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    schemas: BTreeMap<String, Value>,
    /// Names of arguments as the client lists them.
    orders: BTreeMap<String, Vec<String>>,
}

impl Tools {
    /// The tools of a list as OpenAI's interface has it.
    pub fn new(list: &Value) -> Tools {
        let mut tools = Tools::default();
        for tool in list.as_array().into_iter().flatten() {
            let Some(function) = tool.get("function") else { continue };
            let Some(name) = function.get("name").and_then(Value::as_str) else { continue };
            tools.add(name, function.get("parameters").cloned().unwrap_or(Value::Null), None);
        }
        tools
    }

    /// Adds a tool. `order`: the names of its arguments, if they have one.
    pub fn add(&mut self, name: &str, schema: Value, order: Option<Vec<String>>) {
        let names = || schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let order = order.unwrap_or_else(|| names().map(|(name, _)| name.clone()).collect());
        self.orders.insert(name.to_owned(), order);
        self.schemas.insert(name.to_owned(), schema);
    }

    /// The tool of this name alone.
    pub fn only(&self, name: &str) -> Option<Tools> {
        let mut tools = Tools::default();
        tools.add(name, self.schemas.get(name)?.clone(), self.orders.get(name).cloned());
        Some(tools)
    }

    /// The names of a tool's arguments, in their order.
    pub(crate) fn order(&self, name: &str) -> &[String] {
        self.orders.get(name).map_or(&[], Vec::as_slice)
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
