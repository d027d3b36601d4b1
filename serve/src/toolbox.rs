//! Tools of a request, and how the model may call them.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use llmcc_turns::Tools;

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As the model decides.
    #[default]
    Auto,
    /// None is called, and the model is told of none.
    Never,
    /// One is called, or several are.
    Must,
    /// This one is called.
    Only(String),
}

/// The tools of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Toolbox {
    /// As templates get them; `None`: there are none.
    pub(crate) given: Option<Json>,
    pub(crate) choice: Choice,
    /// Several calls in a turn are allowed.
    pub(crate) parallel: bool,
}

impl Toolbox {
    /// Takes OpenAI's members.
    ///
    /// # Errors
    /// A member that is wrong; a call that is forced, of a tool that is not there.
    pub(crate) fn take(fields: &mut Fields) -> Result<Toolbox, ApiError> {
        let given = match fields.json("tools") {
            None => None,
            Some(Json::List(all)) if all.is_empty() => None,
            Some(Json::List(all)) => match all.iter().position(|tool| name(tool).is_none()) {
                Some(i) => {
                    let param = format!("tools[{i}]");
                    return Err(ApiError::of_param(&param, format!("`{param}` has no `function` with a `name`")));
                }
                None => Some(Json::List(all)),
            },
            Some(other) => return Err(ApiError::of_type("tools", "a list", other.kind())),
        };
        let choice = match fields.json("tool_choice") {
            None => Choice::Auto,
            Some(choice) => choice_of(&choice)?,
        };
        let parallel = fields.take("parallel_tool_calls")?.unwrap_or(true);
        Toolbox { given, choice, parallel }.checked()
    }

    /// The same, if its members fit.
    ///
    /// # Errors
    /// A call that is forced, of a tool that is not there.
    pub(crate) fn checked(self) -> Result<Toolbox, ApiError> {
        let tools = self.tools();
        let message = match &self.choice {
            Choice::Never => return Ok(Toolbox { given: None, ..self }),
            Choice::Must if tools.is_empty() => "`tool_choice` demands a call, and there are no `tools`".to_owned(),
            Choice::Only(name) if !tools.has(name) => {
                format!("`tool_choice` demands a call of `{name}`, which is not among `tools`")
            }
            _ => return Ok(self),
        };
        Err(ApiError::of_param("tool_choice", message))
    }

    /// Whether a call is demanded.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self.choice, Choice::Must | Choice::Only(_))
    }

    /// The tools, with the schemas of their arguments.
    pub(crate) fn tools(&self) -> Tools {
        let mut tools = Tools::default();
        let Some(Json::List(all)) = &self.given else { return tools };
        for tool in all {
            let Some(name) = name(tool) else { continue };
            let schema = tool.get("function").and_then(|function| function.get("parameters"));
            let order = schema.and_then(|schema| schema.get("properties")).and_then(|properties| match properties {
                Json::Object(members) => Some(members.iter().map(|(name, _)| name.clone()).collect()),
                _ => None,
            });
            let schema = schema.and_then(|schema| schema.read().ok()).unwrap_or_default();
            tools.add(name, schema, order);
        }
        tools
    }
}

/// The name of a tool.
fn name(tool: &Json) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

fn choice_of(choice: &Json) -> Result<Choice, ApiError> {
    match choice {
        Json::String(text) => match text.as_str() {
            "auto" => Some(Choice::Auto),
            "none" => Some(Choice::Never),
            "required" => Some(Choice::Must),
            _ => None,
        },
        named if named.get("type").and_then(Json::as_str) == Some("function") => {
            name(named).map(|name| Choice::Only(name.to_owned()))
        }
        _ => None,
    }
    .ok_or_else(|| {
        let message = "`tool_choice` is none of \"auto\", \"none\", \"required\" and \
            {\"type\": \"function\", \"function\": {\"name\": …}}";
        ApiError::of_param("tool_choice", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Toolbox, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let found = Toolbox::take(&mut fields)?;
        fields.finish().map(|()| found)
    }

    #[test]
    fn choices_of_openai() {
        const TOOLS: &str = r#""tools": [{"type": "function", "function": {"name": "f",
            "parameters": {"properties": {"z": {"type": "string"}, "a": {}}}}}]"#;
        for (choice, want) in [
            ("\"auto\"", Choice::Auto),
            ("\"required\"", Choice::Must),
            (r#"{"type": "function", "function": {"name": "f"}}"#, Choice::Only("f".into())),
        ] {
            let found = of(&format!("{{{TOOLS}, \"tool_choice\": {choice}}}")).unwrap();
            assert_eq!((&found.choice, found.parallel), (&want, true));
            assert!(found.tools().has("f"));
        }
        assert_eq!(of(&format!("{{{TOOLS}, \"tool_choice\": \"none\"}}")).unwrap().given, None);
        assert!(!of(&format!("{{{TOOLS}, \"parallel_tool_calls\": false}}")).unwrap().parallel);
        for (text, param) in [
            ("{\"tool_choice\": \"required\"}".to_owned(), "tool_choice"),
            (format!("{{{TOOLS}, \"tool_choice\": \"any\"}}"), "tool_choice"),
            (
                format!("{{{TOOLS}, \"tool_choice\": {{\"type\": \"function\", \"function\": {{\"name\": \"g\"}}}}}}"),
                "tool_choice",
            ),
            ("{\"tools\": [{\"function\": {}}]}".to_owned(), "tools[0]"),
            ("{\"tools\": {}}".to_owned(), "tools"),
            ("{\"parallel_tool_calls\": 1}".to_owned(), "parallel_tool_calls"),
        ] {
            assert_eq!(of(&text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
